"""The tables of docs/architecture.md name what exists; local names say what they hold."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("## From the paper to the code")[2].partition("\n## ")[0]
NAMES = re.findall(r"\| `(graphsvx[\w.]+)` \|", TABLE)
PACKAGE = Path(__file__).parent.parent / "src" / "graphsvx"
VAGUE_NAMES = {
    *("along", "area", "asked", "beside", "both", "chosen", "drawn", "each", "enough", "every"),
    *("far", "found", "given", "gone", "heard", "held", "here", "how", "kept", "known", "learnt"),
    *("made", "meant", "more", "much", "near", "one", "own", "said", "some", "taken", "there"),
    *("thing", "things", "told", "tried", "wanted", "way", "ways", "what", "where", "which"),
    *("who", "whole", "why"),
}
"""Names that say nothing about the value they hold."""


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


TREE = TEXT.partition("## The tree")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| ((?:`\w+/`(?:, )?)+) \| (.*) \|$", TREE, re.MULTILINE)


def test_files_of_the_tree_are_in_their_package() -> None:
    named = [
        (re.findall(r"`(\w+)/`", packages), file)
        for packages, text in ROWS
        for file in re.findall(r"`(\w+\.py)`", text)
    ]
    assert len(named) > 20
    assert [
        (packages, file)
        for packages, file in named
        if not any((PACKAGE / package / file).exists() for package in packages)
    ] == []


def _vague_names(source: str) -> list[str]:
    """Variables and parameters of functions with a name from `VAGUE_NAMES`, as "line name"."""
    names = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
            continue
        for node in ast.walk(function):
            assigned = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if assigned else node.arg if isinstance(node, ast.arg) else ""
            if name.strip("_").lower() in VAGUE_NAMES:
                names.append(f"{node.lineno} {name}")
    return sorted(set(names))


@pytest.mark.parametrize(
    "package", sorted({path.name for path in PACKAGE.iterdir()} - {"__pycache__"})
)
def test_local_names_say_what_they_hold(package: str) -> None:
    path = PACKAGE / package
    files = path.rglob("*.py") if path.is_dir() else [path] if path.suffix == ".py" else []
    vague = {
        str(file.relative_to(PACKAGE)): names
        for file in files
        if (names := _vague_names(file.read_text(encoding="utf-8")))
    }
    assert vague == {}


def test_vague_names_are_noticed() -> None:
    source = "def f(given, *, size=1):\n    found = [one for one in given if one]\n    return found"
    assert _vague_names(source) == ["1 given", "2 found", "2 one"]


ESCAPE = re.compile(r"# (?:noqa: [A-Z0-9, ]+|type: ignore\[[a-z, -]+\])(?P<reason>.*)")
FOLDERS = ("src", "tests", "benchmarks")


def _escapes_without_reason(source: str) -> list[int]:
    """Lines with a noqa or type: ignore that has no reason in words after it."""
    return [
        number
        for number, line in enumerate(source.splitlines(), start=1)
        for escape in re.finditer("# (?:noqa|type: ignore)", line)
        if (match := ESCAPE.match(line, escape.start())) is None
        or not re.search("[A-Za-z]{2}", match["reason"])
    ]


def test_each_escape_has_a_reason() -> None:
    root = PACKAGE.parent.parent
    without = {
        str(file.relative_to(root)): lines
        for folder in FOLDERS
        for file in (root / folder).rglob("*.py")
        if file != Path(__file__)
        and (lines := _escapes_without_reason(file.read_text(encoding="utf-8")))
    }
    assert without == {}


def test_an_escape_without_a_reason_is_noticed() -> None:
    assert _escapes_without_reason("x = 1  # noqa: E501\ny = 2  # noqa: E501  (one label)") == [1]


def _deferred_imports(source: str) -> list[int]:
    """Lines of imports of this library in functions, but for what few users need.

    That are optional packages, and kinds of players and games that a default explanation has not.
    """
    lines = source.splitlines()
    return [
        node.lineno
        for function in ast.walk(ast.parse(source))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith("graphsvx")
        and not re.search(r"\bextra\b|\brich\b|\([a-z ]+ only\)$", lines[node.lineno - 1])
    ]


def test_no_import_is_deferred_to_break_a_cycle() -> None:
    """Commands import in their functions so that help is immediate."""
    deferred = {
        str(file.relative_to(PACKAGE)): lines
        for file in PACKAGE.rglob("*.py")
        if file.relative_to(PACKAGE).parts[0] != "cli"
        and (lines := _deferred_imports(file.read_text(encoding="utf-8")))
    }
    assert deferred == {}


def test_a_deferred_import_is_noticed() -> None:
    assert _deferred_imports("def f():\n    from graphsvx.a import b\n    import torch") == [2]


WALK = (PACKAGE.parents[1] / "docs/understand/walk.md").read_text(encoding="utf-8")
STEPS = [
    f"{file}:{name}" if "." in name or name.islower() else f"{file}:{name}.__call__"
    for file, name in re.findall(r"src/graphsvx/([\w/]+\.py)\n:pyobject: ([\w.]+)", WALK)
]
"""The functions of the walk through the code, in its order."""


def test_the_walk_goes_through_at_most_ten_files() -> None:
    assert 8 <= len(STEPS) <= 10


_PROFILED = """
import json, sys
from pathlib import Path
import graphsvx
from tests.worlds import random_graph, random_model

package, called = Path(graphsvx.__file__).parent, []

def record(frame, event, _):
    path = Path(frame.f_code.co_filename)
    if event == "call" and package in path.parents:
        called.append(f"{path.relative_to(package).as_posix()}:{frame.f_code.co_qualname}")

model, data = random_model("gcn", 1), random_graph(2, nodes=12, chance=0.3)
sys.setprofile(record)
graphsvx.explain(model, data, node=4)
sys.setprofile(None)
print(json.dumps(called))
"""


def test_an_explanation_goes_the_way_that_is_described() -> None:
    # In a process of its own: the profile was empty once within the whole suite.
    words = [sys.executable, "-W", "ignore", "-c", _PROFILED]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    called = json.loads(done.stdout)
    # Plain calls are made before the games too: they are what evaluators are compared with.
    steps = [step for step in STEPS if "evaluator.py" not in step]
    assert {*STEPS} <= {*called}
    assert (first := [called.index(step) for step in steps]) == sorted(first)
