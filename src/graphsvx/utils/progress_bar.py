"""Progress bars that leave no trace: in terminals by rich, in notebooks by their own display."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, TaskID

from graphsvx.utils.console import stderr_console


def in_notebook() -> bool:
    """Whether the code runs in a Jupyter kernel, where rich would leave its bars behind."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def progress_bar(*columns: ProgressColumn, shown: bool) -> AbstractContextManager[Any]:
    """A bar with `add_task`, `update`, `advance` and `console`, as rich's; gone at its end."""
    if shown and in_notebook():
        return NotebookBar()
    return Progress(*columns, console=stderr_console(), transient=True, disable=not shown)


class NotebookBar(AbstractContextManager["NotebookBar"]):
    """A progress element in the output of a cell, which is emptied at the end."""

    def __init__(self) -> None:
        self._done, self._total, self._title, self._last = 0.0, 0.0, "", 0.0
        self._handle: Any = None

    @property
    def console(self) -> Console:
        """Where messages beside the bar go."""
        return stderr_console()

    def __enter__(self) -> NotebookBar:
        from IPython.display import HTML, display  # noqa: PLC0415  (in notebooks only)

        self._html, self._handle = HTML, display(HTML(""), display_id=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handle.update(self._html(""))

    def add_task(
        self, description: str, total: float | None = None, completed: int = 0, **_: Any
    ) -> TaskID:
        """Begin with `completed` of `total` steps."""
        self._title, self._total, self._done = description, total or 0, completed
        return TaskID(0)

    def advance(self, _task: TaskID, steps: float = 1) -> None:
        """Go on by some steps; drawn at most five times a second."""
        self._done += steps
        if time.monotonic() - self._last > 0.2:
            self._last = time.monotonic()
            self._handle.update(
                self._html(
                    f'{self._title} <progress value="{self._done:g}" max="{self._total:g}">'
                    f"</progress> {self._done:g}/{self._total:g}"
                )
            )

    def update(self, task: TaskID, advance: float = 0, **_: Any) -> None:
        """Go on by `advance` steps."""
        self.advance(task, advance)
