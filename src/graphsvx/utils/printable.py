"""Names from outside as one harmless line: they must not steer a terminal or turn text around."""

from __future__ import annotations

# Not printable by Python's rule, yet part of words: the joiners of Persian and of emoji.
_JOINERS = "\u200c\u200d"


def one_line(text: str) -> str:
    """The text without line breaks, control characters (ESC) and marks of direction (U+202E)."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(
        c if c.isprintable() or c in _JOINERS else "\N{REPLACEMENT CHARACTER}" for c in line
    )
