"""docs/framework.md shows what the code says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from graphsvx.errors import InputError
from graphsvx.methods import registry

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_extensions"))
from framework_tables import (  # noqa: E402  (no package)
    blocks_table,
    main,
    properties_table,
    with_tables,
)

PAGE = DOCS / "framework.md"


def test_the_tables_are_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text, (
        "run: python docs/_extensions/framework_tables.py docs/framework.md"
    )
    assert blocks_table() in text
    assert properties_table() in text


def test_links_lead_to_files():
    links = re.findall(r"\]\((\.\./[^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert len(links) > 3 * len(registry.names())
    for link in links:
        assert (PAGE.parent / link).resolve().is_file(), link


def test_a_stale_table_is_renewed(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(text.replace("GraphLIME (`graphlime`)", "Something else"), encoding="utf-8")
    main(page)
    assert page.read_text(encoding="utf-8") == text
    with pytest.raises(InputError, match="markers"):
        with_tables("no markers")
