"""A page of results: words, tables and pictures, written as Markdown, JSON and PNG."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from graphsvx.errors import DataError, InputError
from graphsvx.files import written_whole
from graphsvx.studies.estimate import Estimate


@dataclass(frozen=True)
class Beside:
    """A figure of ours with the paper's beside it, written `0.97 ± 0.02 (0.99)`."""

    ours: Estimate | float | str
    paper: float | str
    digits: int = 2


Cell = Estimate | Beside | float | int | str | None
"""None: nothing to say, shown as a dash."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """How to read it, below the table."""
    digits: int = 2

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(
                    f"table {self.title!r} has {len(self.columns)} columns, got a row with "
                    f"{len(row)} cells: {row}"
                )

    def markdown(self) -> str:
        """As a Markdown table with its title and note."""
        lines = [f"### {self.title}", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line([self.text(cell) for cell in row]) for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    def text(self, cell: Cell) -> str:
        """A cell in words."""
        return _text(cell, self.digits)

    def to_json(self) -> dict[str, Any]:
        """As plain values: one record a row."""
        return {
            "title": self.title,
            "note": self.note,
            "rows": [
                {name: _plain(cell) for name, cell in zip(self.columns, row, strict=True)}
                for row in self.rows
            ],
        }


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture that is drawn when the page is written.

    `draw` returns a matplotlib figure; `name` becomes part of the file's name.
    """

    name: str
    caption: str
    draw: Callable[[], Any] = field(repr=False)


Part = str | Table | Picture


@dataclass(frozen=True, eq=False)
class Page:
    """What a study found."""

    title: str
    parts: tuple[Part, ...]
    """In the order of reading: Markdown text, tables, pictures."""
    headline: str
    """The finding in one or two sentences of Markdown, for the summary of all studies."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Seeds, counts and choices that the figures rest on."""

    def tables(self) -> list[Table]:
        """The tables, in order."""
        return [part for part in self.parts if isinstance(part, Table)]

    def write(self, name: str, folder: Path, facts: Mapping[str, Any]) -> list[Path]:
        """Write `name.md`, `name.json` and the pictures; `facts` say how the page was made."""
        pictures = {id(p): f"{name}-{p.name}.png" for p in self.parts if isinstance(p, Picture)}
        if len(set(pictures.values())) != len(pictures):
            raise InputError(f"two pictures of {name!r} share a name: {sorted(pictures.values())}")
        text = [f"# {self.title}", "", f"Made by `{facts['command']}`.", "", self.headline, ""]
        for part in self.parts:
            if isinstance(part, Table):
                text.append(part.markdown())
            elif isinstance(part, Picture):
                text.append(f"![{part.caption}]({pictures[id(part)]})\n\n*{part.caption}*")
            else:
                text.append(part.strip())
            text.append("")
        text += ["## How it was made", "", *_listed({**facts, **self.settings})]
        record = {
            "study": name,
            "title": self.title,
            "headline": self.headline,
            **{key: _plain(value) for key, value in facts.items()},
            "settings": _plain(dict(self.settings)),
            "tables": [table.to_json() for table in self.tables()],
        }
        written = []
        try:
            for part in self.parts:
                if isinstance(part, Picture):
                    written.append(folder / pictures[id(part)])
                    _draw(part, written[-1])
            for ending, content in (
                (".json", json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)),
                (".md", "\n".join(text).rstrip()),
            ):
                written.append(folder / f"{name}{ending}")
                with written_whole(written[-1]) as file:
                    file.write_text(content + "\n")
        except OSError as error:
            raise DataError(
                f"{folder} cannot be written ({error}); choose another --out"
            ) from error
        return written


def _draw(picture: Picture, path: Path) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415  (an extra, and slow to import)

    figure = picture.draw()
    try:
        with written_whole(path) as file:
            figure.savefig(file, dpi=160, format="png", metadata={"Software": None})
    finally:
        plt.close(figure)


def _text(cell: Cell, digits: int) -> str:  # noqa: PLR0911  (one line a kind of cell)
    if cell is None:
        return "-"
    if isinstance(cell, Beside):
        paper = cell.paper if isinstance(cell.paper, str) else f"{cell.paper:.{cell.digits}f}"
        return f"{_text(cell.ours, cell.digits)} ({paper})"
    if isinstance(cell, Estimate):
        return cell.text(digits)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        if not isfinite(cell):
            return "-"
        small = cell != 0 and abs(cell) < 0.5 * 10.0**-digits
        return f"{cell:.1e}" if small else f"{cell:.{digits}f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return cell


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        return value.to_json()
    if isinstance(value, Beside):
        return {"ours": _plain(value.ours), "paper": value.paper}
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _listed(values: Mapping[str, Any]) -> list[str]:
    def shown(value: Any) -> str:
        if isinstance(value, (list, tuple)):
            return ", ".join(map(shown, value))
        if isinstance(value, Mapping):
            return "; ".join(f"{key}: {shown(one)}" for key, one in value.items())
        return str(value)

    return [f"- {key}: {shown(value)}" for key, value in values.items()]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
