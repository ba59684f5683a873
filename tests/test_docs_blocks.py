"""The snippets of docs/blocks.md run as they stand, each by itself."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from graphsvx.methods import registry

PAGE = Path(__file__).parents[1] / "docs" / "blocks.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_there_is_a_snippet_for_each_kind_of_block() -> None:
    kinds = re.findall(r'register\("(\w+)"', "".join(SNIPPETS))
    assert kinds == ["mask", "generator", "estimator", "method"]


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_the_snippet_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = registry._KNOWN
    known = {kind: {**named} for kind, named in before.items()}
    monkeypatch.setattr(registry, "_KNOWN", known)
    (tmp_path / "snippet.py").write_text(SNIPPETS[number])
    runpy.run_path(str(tmp_path / "snippet.py"))
    new = sum(map(len, known.values())) - sum(map(len, before.values()))
    assert new == SNIPPETS[number].count("@graphsvx.reg")
