"""Messages to the person at the terminal."""

from __future__ import annotations

from rich.console import Console


def message(text: str, style: str | None = None) -> None:
    """A line on standard error, as it is: no markup, no highlighting, not wrapped."""
    # A new console each time: it writes to what `sys.stderr` is now.
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, style=style, markup=False)
