"""The pages of the documentation: every snippet runs, every public name is there."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
PAGES = [DOCS / "start.md", *sorted((DOCS / "howto").glob("*.md")), *REFERENCE]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
DOCUMENTED = re.compile(r"^\.\. (?:autoclass|autofunction|py:data):: ([\w.]+)$", re.MULTILINE)
PUBLIC = (
    "graphsvx", "graphsvx.results", "graphsvx.masks", "graphsvx.generators",
    "graphsvx.estimators", "graphsvx.methods", "graphsvx.metrics", "graphsvx.datasets",
    "graphsvx.zoo", "graphsvx.runs", "graphsvx.testing", "graphsvx.studies",
)  # fmt: skip
WITH_SNIPPETS = [page for page in PAGES if SNIPPET.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: page.stem)
def test_the_snippets_of_a_page_run_one_after_the_other(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = SNIPPET.findall(page.read_text())
    namespace: dict[str, object] = {"__name__": "page"}
    failed = 0
    for number, snippet in enumerate(snippets):
        if snippet.lstrip().startswith(">>>"):
            name = f"{page.name}, snippet {number}"
            test = doctest.DocTestParser().get_doctest(snippet, namespace, name, str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, clear_globs=False)
            failed += runner.summarize(verbose=False).failed
            namespace = test.globs
        else:
            exec(compile(snippet, f"{page.name}, snippet {number}", "exec"), namespace)
    plt.close("all")
    assert failed == 0


def test_what_is_public_has_a_place_in_the_reference_and_nothing_else_has() -> None:
    documented = {name for page in REFERENCE for name in DOCUMENTED.findall(page.read_text())}
    by_object = {id(_resolve(name)): name for name in documented}
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            if not name.startswith("_"):
                assert id(getattr(module, name)) in by_object, f"{package}.{name} has no page"
    for name in documented:
        package, _, short = name.rpartition(".")
        public = getattr(importlib.import_module(package), "__all__", None)
        assert public is None or short in public, f"{name} is documented and not public"


def test_every_name_of_the_reference_has_an_example() -> None:
    for page in REFERENCE:
        sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]
        for section in sections:
            if DOCUMENTED.search(section):
                assert SNIPPET.search(section), f"{page.name}: {section.splitlines()[0]}"


def _resolve(name: str) -> object:
    package, _, short = name.rpartition(".")
    return getattr(importlib.import_module(package), short)
