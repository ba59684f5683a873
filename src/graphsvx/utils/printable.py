"""Text that is shown: names from outside as harmless lines, tables in HTML and Markdown."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterable, Sequence

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


def count(number: int, item: str) -> str:
    """ "1 node", "2 nodes"."""
    return f"{number} {item}" + "s" * (number != 1)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The name that was probably meant, as the start of a sentence; "" if none is close."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    typed = name.lower()[:100]
    close = [
        candidate for candidate in by_lower if sorted(candidate) == sorted(typed)
    ]  # letters in another order
    close += difflib.get_close_matches(typed, by_lower, n=1)
    return f"did you mean {by_lower[close[0]]!r}? " if close else ""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The lines of a Markdown table; a bar inside a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; the first column is text, the others are numbers or words. Text is escaped."""

    def cells(tag: str, values: Sequence[object]) -> str:
        aligned = ("left", *["right"] * (len(values) - 1))
        return "".join(
            f'<{tag} style="text-align:{side}">{_text(value)}</{tag}>'
            for side, value in zip(aligned, values, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<table><caption style="caption-side:top;text-align:left">{_text(caption)}</caption>'
        f"<thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>"
    )


def _text(value: object) -> str:
    return html.escape(one_line(str(value)))
