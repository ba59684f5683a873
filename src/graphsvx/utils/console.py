"""Terminal output: results on standard output, messages and progress on standard error.

Progress bars leave no trace: in terminals they are rich's, in notebooks an element of their own.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress, ProgressColumn, TaskID
from rich.table import Table

from graphsvx.utils.printable import one_line

# A new console each time: it writes to what `sys.stdout` or `sys.stderr` is now.


def stdout_console() -> Console:
    """Console for results, without highlighting of numbers."""
    return Console(highlight=False)


def stderr_console() -> Console:
    """Console for messages and progress bars; lines are not wrapped."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def message(text: str, style: str | None = None) -> None:
    """One line on standard error: no markup, no highlighting, no control characters."""
    stderr_console().print(one_line(text), style=style, markup=False)


def simple_table(title: str | None = None) -> Table:
    """An empty table with a line under its head."""
    return Table(title=title, box=box.SIMPLE, padding=(0, 1, 0, 0))


# --- progress ------------------------------------------------------------------------------


def in_notebook() -> bool:
    """Whether the code runs in a Jupyter kernel, where rich would leave its bars behind."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


def progress_bar(*columns: ProgressColumn, shown: bool) -> AbstractContextManager[Any]:
    """A bar with `add_task`, `update`, `advance` and `console`, as rich's; gone at its end."""
    if shown and in_notebook():
        return NotebookBar()
    return Progress(*columns, console=stderr_console(), transient=True, disable=not shown)


class NotebookBar(AbstractContextManager["NotebookBar"]):
    """A progress element in the output of a cell, which is emptied at the end."""

    def __init__(self) -> None:
        self.console = stderr_console()
        self._done, self._total, self._title, self._last = 0.0, 0.0, "", 0.0

    def __enter__(self) -> NotebookBar:
        from IPython.display import HTML, display  # noqa: PLC0415  (in notebooks only)

        self._html, self._handle = HTML, display(HTML(""), display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.update(self._html(""))

    def add_task(
        self, description: str, total: float | None = None, completed: float = 0, **_: Any
    ) -> TaskID:
        """Begin with `completed` of `total` steps."""
        self._title, self._total, self._done = description, total or 0, completed
        return TaskID(0)

    def advance(self, task: TaskID, steps: float = 1) -> None:
        """Go on by some steps."""
        self.update(task, steps)

    def update(
        self, _task: TaskID, advance: float = 0, *, completed: float | None = None, **_: Any
    ) -> None:
        """Go on by some steps, or up to so many; drawn at most five times a second."""
        self._done = self._done + advance if completed is None else completed
        if time.monotonic() - self._last > 0.2:
            self._last = time.monotonic()
            element = f'<progress value="{self._done:g}" max="{self._total:g}"></progress>'
            counts = f"{self._done:g}/{self._total:g}"
            self._handle.update(self._html(f"{self._title} {element} {counts}"))
