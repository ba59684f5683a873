"""The tables of docs/architecture.md name what exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("## From the paper to the code")[2].partition("\n## ")[0]
NAMES = re.findall(r"\| `(graphsvx[\w.]+)` \|", TABLE)
PACKAGE = Path(__file__).parent.parent / "src" / "graphsvx"


def _resolve(name: str) -> object:
    """A module, or an attribute of one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(_resolve(module), attribute)


def test_the_table_has_about_thirty_rows() -> None:
    assert len(NAMES) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_each_row_names_something_that_can_be_imported(name: str) -> None:
    assert _resolve(name) is not None


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", TEXT))))
def test_each_file_that_is_named_exists(name: str) -> None:
    assert (PACKAGE / name).exists()
