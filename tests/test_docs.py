"""The pages of the documentation: every snippet runs, every public name is there."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import runpy
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FunctionType

import matplotlib.pyplot as plt
import pytest

import graphsvx
from graphsvx import errors
from graphsvx_lab import datasets, zoo

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
PAGES = [DOCS / "start.md", *sorted((DOCS / "howto").glob("*.md")), *REFERENCE]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
DOCUMENTED = re.compile(r"^\.\. (?:autoclass|autofunction|py:data):: ([\w.]+)$", re.MULTILINE)
PUBLIC = (
    "graphsvx", "graphsvx.results", "graphsvx.masks", "graphsvx.generators",
    "graphsvx.estimators", "graphsvx.methods", "graphsvx.metrics", "graphsvx.views.plot",
    "graphsvx.runs", "graphsvx.testing", "graphsvx_lab.datasets", "graphsvx_lab.metrics",
    "graphsvx_lab.studies", "graphsvx_lab.zoo",
)  # fmt: skip
FULL_SIZE = {"1_cora": "Cora", "2_acm": "ACM", "3_amazon_photo": "Amazon-Photo"}
TUTORIALS = [
    pytest.param(
        path,
        id=path.stem,
        marks=pytest.mark.data(FULL_SIZE[path.stem]) if path.stem in FULL_SIZE else (),
    )
    for path in sorted((DOCS / "tutorials").rglob("*.py"))
]
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


def test_a_public_function_that_raises_one_of_our_errors_says_so() -> None:
    for package in PUBLIC:
        module = importlib.import_module(package)
        for name in module.__all__:
            for function in _functions(getattr(module, name)):
                documented = (inspect.getdoc(function) or "").partition("Raises:")[2]
                for error in _raised(function):
                    assert f"{error}:" in documented, f"{package}.{name}: {error}"


def test_sections_of_the_faq_that_messages_name_exist() -> None:
    headings = re.findall(r"^### (.*)$", (DOCS / "howto" / "faq.md").read_text(), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    source = Path(graphsvx.__file__).parent
    text = "".join(path.read_text() for path in source.parent.rglob("graphsvx*/**/*.py"))
    named = set(re.findall(r"""\bsee\(["']([\w-]+)["']\)""", text))
    assert named
    assert named <= slugs


def _functions(value: object) -> list[FunctionType]:
    """The function itself, or the public methods of a class of ours and of its base classes."""
    members: list[tuple[str, object]] = [("function", value)]
    if inspect.isclass(value):
        members = [member for base in value.__mro__ for member in vars(base).items()]
    plain = [getattr(member, "__func__", member) for name, member in members if name[0] != "_"]
    return [
        member
        for member in plain
        if inspect.isfunction(member) and member.__module__.startswith("graphsvx")
    ]


def _raised(function: FunctionType) -> set[str]:
    """Names of our errors that the function's own code raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    names = {
        call.func.id
        for call in raised
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    return {name for name in names if hasattr(errors, name)}


def _resolve(name: str) -> object:
    package, _, short = name.rpartition(".")
    return getattr(importlib.import_module(package), short)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Models trained for a twentieth of the usual epochs, shared by the tutorials."""

    def quick(*arguments: object) -> zoo.Settings:
        settings = zoo.settings_for(*arguments)
        return replace(settings, epochs=max(1, settings.epochs // 20))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHSVX_MODELS", str(tmp_path_factory.mktemp("models")))
        patch.setattr(zoo.checkpoints, "settings_for", quick)
        patch.setattr(datasets, "load", cache(datasets.load))
        yield


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("path", TUTORIALS)
def test_the_tutorial_runs_within_a_minute(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = time.process_time()
    runpy.run_path(str(path), run_name="__main__")
    plt.close("all")
    assert time.process_time() - begun < 60
    assert capsys.readouterr().out.strip(), "a tutorial shows something"
    assert list(tmp_path.iterdir()) == [], "it writes into temporary folders only"
