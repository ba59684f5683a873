"""Progress bars in notebooks: shown in the cell's own output, and gone at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import ModuleType

import pytest

from graphsvx import GraphSVX, explain_many
from graphsvx.api import shown_after
from graphsvx.utils.console import NotebookBar, in_notebook, progress_bar
from tests.worlds import random_graph, random_model


class ZMQInteractiveShell:
    """Called as the shell of a Jupyter kernel is."""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stand-in for IPython in a notebook; what its display shows, one entry per change."""
    shown: list[str] = []

    class Handle:
        def update(self, content: str) -> None:
            shown.append(content)

    def display(content: str, display_id: bool) -> Handle:
        shown.append(content)
        return Handle()

    ipython, place = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = ZMQInteractiveShell
    place.HTML, place.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", place)
    return shown


def test_a_notebook_shows_the_bar_and_keeps_nothing(notebook, capsys) -> None:
    assert in_notebook()
    many = explain_many(
        random_model("gcn", 1), random_graph(1), [1, 2, 3], progress=True,
        method=GraphSVX(samples=40),
    )  # fmt: skip
    assert len(list(many)) == 3
    assert 'max="3"' in notebook[1]
    assert notebook[-1] == ""
    assert capsys.readouterr().err == ""


def test_the_bar_is_emptied_after_an_error_too(notebook) -> None:
    bar = NotebookBar().__enter__()
    bar.update(bar.add_task("explaining", total=4, completed=1), advance=2, failed=0)
    bar.__exit__(KeyError, KeyError(), None)
    assert "3/4" in notebook[1]
    assert notebook[-1] == ""


def test_terminals_have_the_usual_bar() -> None:
    assert not in_notebook()
    with progress_bar(shown=False) as bar:
        bar.advance(bar.add_task("explaining", total=2))


@pytest.mark.parametrize(("seconds", "events"), [(0.0, ["begin", "end"]), (60.0, [])])
def test_a_bar_is_shown_only_if_work_takes_long(seconds: float, events: list[str]) -> None:
    seen: list[str] = []
    began = Event()

    @contextmanager
    def bar() -> Iterator[None]:
        seen.append("begin")
        began.set()
        yield
        seen.append("end")

    with shown_after(seconds, bar):
        if events:
            assert began.wait(30)
            assert seen == ["begin"]
    assert seen == events
