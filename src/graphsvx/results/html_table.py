"""Plain HTML tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from graphsvx.utils.printable import one_line


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
