"""Terminal output: results on standard output, messages and progress on standard error."""

from __future__ import annotations

from rich import box
from rich.console import Console
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
