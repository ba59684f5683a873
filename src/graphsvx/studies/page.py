"""A page of results: claims first, one figure, then details; written as Markdown and PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import Any

from graphsvx.errors import DataError, InputError
from graphsvx.files import written_whole
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.statistics import MIN_SEEDS, Estimate, PairedTest, number

TOLERANCE = 0.05
"""How far from the paper's figure a figure may be to be called the same."""
LITTLE = 0.02
"""A share below this counts as close to zero."""


@dataclass(frozen=True)
class Claim:
    """A statement that measurements confirm or not.

    paper: its figure in the paper; "" for a statement that is not in the paper.
    ours: our figure.
    interval: 95 % interval of our figure over seeds, None if there is none.
    holds: None if it was not tested, or on too few seeds to say.
    """

    statement: str
    paper: str
    ours: str
    interval: tuple[float, float] | None = None
    holds: bool | None = None

    @classmethod
    def of(
        cls, statement: str, paper: str | float, ours: Estimate,
        rule: Callable[[Estimate, float], bool], digits: int = 2,
    ) -> Claim:  # fmt: skip
        """From an estimate; `rule` compares it with the paper's figure, if it has an interval."""
        shown = paper if isinstance(paper, str) else f"{paper:.{digits}f}"
        tested = ours.seeds >= MIN_SEEDS
        holds = bool(rule(ours, nan if isinstance(paper, str) else paper)) if tested else None
        text = number(ours.mean, digits) if tested else ours.text(digits)
        return cls(statement, shown, text, ours.interval, holds)

    @classmethod
    def first(cls, statement: str, paper: str, tests: Mapping[str, PairedTest]) -> Claim:
        """That a method is significantly ahead of each of the others."""
        known = {name: test for name, test in tests.items() if test.pairs}
        if not known:
            return cls(statement, paper, "-")
        closest = min(known, key=lambda name: known[name].difference)
        ours = f"{known[closest].text()} to {closest}"
        return cls(statement, paper, ours, holds=all(test.ahead for test in known.values()))

    def cells(self, digits: int = 2) -> tuple[str, str, str, str]:
        """For a row of a table: statement, paper, ours with its interval, holds."""
        ends = ", ".join(number(end, digits) for end in self.interval or ())
        verdict = {True: "holds", False: "does not hold", None: "not tested"}[self.holds]
        return (
            self.statement,
            self.paper or "-",
            self.ours + (f" [{ends}]" if ends else ""),
            verdict,
        )


def reaches(ours: Estimate, paper: float) -> bool:
    """The mean, to two digits, is at least the paper's figure."""
    return round(ours.mean, 2) >= paper


def is_close(ours: Estimate, paper: float) -> bool:
    """The mean is within `TOLERANCE` of the paper's figure."""
    return abs(ours.mean - paper) <= TOLERANCE


def is_positive(ours: Estimate, _: float) -> bool:
    """The whole interval is above 0."""
    return ours.low > 0


def is_negative(ours: Estimate, _: float) -> bool:
    """The whole interval is below 0."""
    return ours.high < 0


def is_little(ours: Estimate, _: float) -> bool:
    """The whole interval is below `LITTLE`."""
    return ours.high < LITTLE


@dataclass(frozen=True)
class WithPaper:
    """A figure of ours with the paper's beside it, written `0.97 ± 0.02 (0.99)`."""

    ours: Estimate
    paper: float | str


Cell = Estimate | WithPaper | PairedTest | float | int | str | None
"""None: nothing to say, shown as a dash."""


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns, with a note on how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    digits: int = 2

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(
                    f"table {self.title!r} has {len(self.columns)} columns, got a row with "
                    f"{len(row)} cells: {row}"
                )

    def markdown(self) -> str:
        """As a Markdown table with its title and note; nothing if it has no rows."""
        lines = [[_text(cell, self.digits) for cell in row] for row in self.rows]
        parts = [f"### {self.title}", _lines(self.columns, lines), self.note]
        return "\n\n".join(part for part in parts if part) if lines else ""


Choice = Mapping[str, Mapping[str, Any]]
"""Rows or columns of a table: their labels, and what `Measurements.estimate` is asked for each."""


def by(column: str, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A row (or column) for each of these entries of a column of the measurements."""
    return {name: {column: name} for name in names}


def pivot(
    results: Measurements,
    title: str,
    rows: Choice,
    columns: Choice,
    *,
    paper: Callable[[str, str], float | str | None] | None = None,
    note: str = "",
    digits: int = 2,
    **common: Any,
) -> Table:
    """Estimates of every row and column; rows without any measurement are left out.

    paper: the paper's figure by labels of row and column, where it has one.
    common: what all cells ask `Measurements.estimate` for.
    """
    lines: list[tuple[Cell, ...]] = []
    for row, asked in rows.items():
        cells = {c: results.estimate(**{**common, **asked, **more}) for c, more in columns.items()}
        beside = {c: paper(row, c) if paper and cells[c].seeds else None for c in columns}
        if any(estimate.seeds for estimate in cells.values()):
            lines.append((row, *(own if (figure := beside[c]) is None else WithPaper(own, figure)
                                 for c, own in cells.items())))  # fmt: skip
    return Table(title, ("", *columns), tuple(lines), note, digits)


def pivots(
    results: Measurements, rows: Choice, columns: Choice, tables: Mapping[str, Any], **common: Any
) -> tuple[Table, ...]:
    """Several tables with the same rows and columns: by title, the measure or all options."""
    options = {t: {"measure": x} if isinstance(x, str) else x for t, x in tables.items()}
    return tuple(
        pivot(results, title, rows, columns, **{**common, **asked})
        for title, asked in options.items()
    )


@dataclass(frozen=True, eq=False)
class Figure:
    """A picture that is drawn when the page is written; `draw` returns a matplotlib figure."""

    name: str
    caption: str
    draw: Callable[[], Any] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the details."""

    title: str
    parts: tuple[str | Table | Figure, ...]


@dataclass(frozen=True, eq=False)
class Page:
    """What a study found.

    claims: at most a screen of them, the first thing that is read.
    figure: the one picture below them.
    sections: tables with everything else.
    about: what was measured, in a few sentences before the claims.
    """

    title: str
    claims: tuple[Claim, ...]
    figure: Figure | None = None
    sections: tuple[Section, ...] = ()
    about: str = ""

    def figures(self) -> list[Figure]:
        """All pictures."""
        parts = [self.figure, *(part for section in self.sections for part in section.parts)]
        return [part for part in parts if isinstance(part, Figure)]

    def markdown(self, results: Measurements) -> str:
        """The text of the page; `results` say how it was measured."""
        facts = results.facts

        def text(part: str | Table | Figure) -> str:
            if isinstance(part, Figure):
                return f"![{part.caption}]({results.study}-{part.name}.png)\n\n*{part.caption}*"
            return part.markdown() if isinstance(part, Table) else part.strip()

        parts = [
            f"# {self.title}",
            self.about.strip(),
            "**A quick version with models that are hardly trained: it shows that everything "
            "works, its figures mean nothing.**"
            if facts.get("quick")
            else "",
            f"Made by `{facts.get('command', 'graphsvx study')}` from "
            f"[{results.study}.parquet]({results.study}.parquet), one row for each measurement. "
            "In square brackets: 95 % interval over seeds.",
            _lines(CLAIM_COLUMNS, [claim.cells() for claim in self.claims]),
            *([text(self.figure)] if self.figure else []),
        ]
        for section in self.sections:
            parts += [f"## {section.title}", *map(text, section.parts)]
        parts += [f"**{name} is missing:** {why}" for name, why in facts.get("missing", {}).items()]
        if facts.get("failures"):
            parts.append("## Failures\n\nThese explanations could not be made and do not count:")
            parts += [f"- {what}: {why}" for what, why in sorted(facts["failures"].items())]
        parts += ["## How it was made", "\n".join(_made(results))]
        return "\n\n".join(part for part in parts if part) + "\n"

    def write(self, results: Measurements, folder: Path) -> list[Path]:
        """Write `<study>.md` and its pictures."""
        written = []
        try:
            for figure in self.figures():
                written.append(folder / f"{results.study}-{figure.name}.png")
                _draw(figure, written[-1])
            written.append(folder / f"{results.study}.md")
            with written_whole(written[-1]) as file:
                file.write_text(self.markdown(results))
        except OSError as error:
            raise DataError(
                f"{folder} cannot be written ({error}); choose another --out"
            ) from error
        return written


CLAIM_COLUMNS = ("claim", "paper", "ours", "")


def _draw(figure: Figure, path: Path) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415  (an extra, and slow to import)

    drawn = figure.draw()
    try:
        with written_whole(path) as file:
            drawn.savefig(file, dpi=160, format="png", metadata={"Software": None})
    finally:
        plt.close(drawn)


def _text(cell: Cell, digits: int) -> str:
    if cell is None or (isinstance(cell, float) and not isfinite(cell)):
        return "-"
    if isinstance(cell, WithPaper):
        paper = cell.paper if isinstance(cell.paper, str) else number(cell.paper, digits)
        return f"{cell.ours.text(digits)} ({paper})"
    if isinstance(cell, Estimate):
        return cell.text(digits)
    if isinstance(cell, float):
        return number(cell, digits)
    return cell.text() if isinstance(cell, PairedTest) else str(cell)


def _made(results: Measurements) -> list[str]:
    """What the figures rest on: seeds, versions, models, settings of the methods."""
    seeds = {
        title: ", ".join(map(str, sorted({s for key in keys for s in results.series[key]})))
        for title in results.names("data")
        if (keys := results.keys(data=title))
    }
    lines = [f"- seeds: {_each_once(seeds)}"]
    for fact, value in results.facts.items():
        if fact == "settings":
            lines += [f"- {name}: {_each_once(words)}" for name, words in value.items()]
        elif fact not in ("command", "quick", "missing", "failures"):
            lines.append(f"- {fact}: {value}")
    return lines


def _each_once(words: Mapping[str, str]) -> str:
    """Words by data set, the same ones told once."""
    titles: dict[str, list[str]] = {}
    for title, text in words.items():
        titles.setdefault(text, []).append(title)
    if len(titles) == 1:
        return next(iter(titles))
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in titles.items())


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(c.replace('|', chr(92) + '|') for c in row)} |"
                     for row in cells)  # fmt: skip


def claims_table(claims: Sequence[tuple[str, Claim]]) -> str:
    """Claims of several pages, each with the page that it is from."""
    return _lines(("study", *CLAIM_COLUMNS), [(page, *claim.cells()) for page, claim in claims])
