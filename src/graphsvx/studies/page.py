"""A page of results: claims first, one figure, then details; written as Markdown and PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

from graphsvx.metrics.comparison import MIN_SEEDS, Estimate, PairedTest, Rule, number
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.titles import data_title
from graphsvx.utils.files import atomic_write
from graphsvx.utils.markdown import markdown_table

QUICK = "**Quick: with models that are hardly trained, its figures mean nothing.**"
CLAIM_COLUMNS = ("claim", "paper", "ours", "")
VERDICTS = {True: "holds", False: "does not hold", None: "not tested"}
SCREEN, LINE = 14, "<br>"
"""More claims than this have one row for each statement, so that they fit on a screen; and what is
between the lines of a cell."""
PaperFigure = Callable[[str, str], float | None]
"""The paper's figure by the labels of row and column, None where it has none."""


def from_paper(rows: Mapping[str, Sequence[float]], datasets: Sequence[str]) -> PaperFigure:
    """From a table of the paper: figures by row, in the order of its data sets."""
    figures = {(row, data_title(name)): figure for row, values in rows.items()
               for name, figure in zip(datasets, values, strict=True)}  # fmt: skip
    return lambda row, title: figures.get((row, title))


@dataclass(frozen=True)
class Claim:
    """A statement that measurements confirm or not.

    paper: its figure in the paper; "" for a statement that is not in the paper.
    ours: our figure.
    interval: 95 % interval of our figure over seeds, None if there is none.
    holds: None if it was not tested, or on too few seeds to say.
    on: the data set; the summary of all studies has one row for a statement on several.
    """

    statement: str
    paper: str
    ours: str
    interval: tuple[float, float] | None = None
    holds: bool | None = None
    on: str = ""

    @classmethod
    def of(
        cls, statement: str, paper: str | float | None, ours: Estimate, rule: Rule,
        digits: int = 2, on: str = "",
    ) -> Claim:  # fmt: skip
        """From an estimate; `rule` compares it with the paper's figure, if it has an interval."""
        figure = nan if isinstance(paper, str) else paper or 0.0
        shown = paper if isinstance(paper, str) else f"{figure:.{digits}f}"
        if ours.seeds < MIN_SEEDS:
            return cls(statement, shown, ours.text(digits), on=on)
        holds = bool(rule(ours, figure))
        return cls(statement, shown, number(ours.mean, digits), ours.interval, holds, on)

    @classmethod
    def first(
        cls, statement: str, paper: str, tests: Mapping[str, PairedTest], on: str = ""
    ) -> Claim:
        """That a method is significantly ahead of each of the others."""
        tests = {name: test for name, test in tests.items() if test.pairs}
        if not tests:
            return cls(statement, paper, "-", on=on)
        closest = min(tests, key=lambda name: tests[name].difference)
        tested = all(test.seeds >= MIN_SEEDS for test in tests.values())
        ahead = all(test.ahead for test in tests.values())
        ours = f"{tests[closest].text()} to {closest}"
        return cls(statement, paper, ours, holds=ahead if tested else None, on=on)

    def cells(self) -> tuple[str, str, str, str]:
        """For a row of a table: statement, paper, ours with its interval, holds."""
        ends = ", ".join(number(end, 2) for end in self.interval or ())
        ours = f"{self.ours} [{ends}]" if ends else self.ours
        statement = f"{self.statement} ({self.on})" if self.on else self.statement
        return statement, self.paper or "-", ours, VERDICTS[self.holds]


def summary_rows(claims: Iterable[Claim]) -> list[tuple[str, str, str, str]]:
    """Cells of claims with one row for each statement, whatever the number of data sets."""
    by_statement: dict[str, list[Claim]] = {}
    for claim in claims:
        by_statement.setdefault(claim.statement, []).append(claim)
    return [group[0].cells() if len(group) == 1 else _merged(group)
            for group in by_statement.values()]  # fmt: skip


def _merged(group: Sequence[Claim]) -> tuple[str, str, str, str]:
    """Several data sets in a row: a line for each of them, and on how many the claim holds."""

    def ours(claim: Claim) -> str:
        low, high = claim.interval or (0.0, 0.0)
        error = f" ± {number((high - low) / 2, 2)}" if high > low else ""
        return f"{claim.on}: {claim.ours}{error}"

    papers = [claim.paper or "-" for claim in group]
    verdicts = [claim.holds for claim in group]
    tested = len(verdicts) - verdicts.count(None)
    same = not tested or len(set(verdicts)) == 1
    return (
        group[0].statement,
        papers[0] if len(set(papers)) == 1 else LINE.join(papers),
        LINE.join(map(ours, group)) if any(claim.ours != "-" for claim in group) else "-",
        VERDICTS[verdicts[0]] if same else f"holds on {verdicts.count(True)} of {tested}",
    )


@dataclass(frozen=True)
class WithPaper:
    """A figure of ours with the paper's beside it."""

    ours: Estimate
    paper: float | str

    def text(self, digits: int) -> str:
        """`0.97 ± 0.02 (0.99)`."""
        paper = self.paper if isinstance(self.paper, str) else number(self.paper, digits)
        return f"{self.ours.text(digits)} ({paper})"


Cell = Estimate | WithPaper | PairedTest | float | str


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns, with a note on how to read it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    digits: int = 2

    def markdown(self) -> str:
        """As a Markdown table with its title and note; nothing if it has no rows."""
        rows = [[self._text(cell) for cell in row] for row in self.rows]
        parts = [f"**{self.title}**", markdown_table(self.columns, rows), self.note]
        return "\n\n".join(filter(None, parts)) if rows else ""

    def _text(self, cell: Cell) -> str:
        if isinstance(cell, str):
            return cell
        digits = self.digits
        return number(cell, digits) if isinstance(cell, float) else cell.text(digits)


def pivot(
    results: Measurements, title: str, measure: str | Sequence[str], *, rows: str = "method",
    columns: str = "data", paper: PaperFigure | None = None, note: str = "", digits: int = 2,
    options: Mapping[str, Any] | None = None, **selection: Any,
) -> Table:  # fmt: skip
    """The estimates of a measure (or of several), by two columns of the measurements.

    options, selection: `over` and `statistic` of `Measurements.estimate`, and what it selects.
    """
    selection = {"measure": measure, **selection}

    def cell(row: str, column: str) -> Cell:
        estimate = results.estimate(**{**selection, rows: row, columns: column}, **(options or {}))
        figure = paper(row, column) if paper and estimate.seeds else None
        return estimate if figure is None else WithPaper(estimate, figure)

    head = results.names(columns, **selection)
    body = [[row, *(cell(row, column) for column in head)]
            for row in results.names(rows, **selection)]  # fmt: skip
    return Table(title, ["", *head], body, note, digits)


def pivots(results: Measurements, tables: Mapping[str, Any], **common: Any) -> tuple[Table, ...]:
    """Several tables by title: the measure, or all that `pivot` takes."""
    return tuple(
        pivot(results, title, **{**common, **(x if isinstance(x, dict) else {"measure": x})})
        for title, x in tables.items()
    )


def paired_table(title: str, tests: Mapping[str, Mapping[str, PairedTest]]) -> Table:
    """Tests of a method against others: a row for each of these, a column for each data set."""
    others = dict.fromkeys(name for by_other in tests.values() for name in by_other)
    rows: list[list[Cell]] = [[name, *(by_other[name] for by_other in tests.values())]
                              for name in others]  # fmt: skip
    note = "On the same questions; p by Wilcoxon's test, corrected by Holm."
    return Table(title, ["", *tests], rows, note)


@dataclass(frozen=True, eq=False)
class Figure:
    """A picture that is drawn when the page is written; `draw` returns a matplotlib figure."""

    name: str
    caption: str
    draw: Callable[[], Any] = field(repr=False)


def dots(
    results: Measurements, name: str, caption: str, measures: Sequence[str], *,
    rows: str = "method", paper: PaperFigure | None = None, log: Sequence[str] = (),
    options: Mapping[str, Any] | None = None, **selection: Any,
) -> Figure:  # fmt: skip
    """A line of panels for each measure, a panel for each data set: dots with their intervals.

    rows: the column of the measurements that a panel shows; if "measure", one line for all.
    paper: the paper's figures of the first line; log: measures on a logarithmic axis.
    """
    lines: dict[str, Any] = {_axis(measure): measure for measure in measures}
    lines = {"share": measures} if rows == "measure" else lines

    def bands(measure: str | Sequence[str], title: str) -> dict[str, Any]:
        selected = {"measure": measure, "data": title, **selection}
        estimates = {label: results.estimate(**{**selected, rows: label}, **(options or {}))
                     for label in results.names(rows, **selected)}  # fmt: skip
        return {label: estimate.band for label, estimate in estimates.items() if estimate.seeds}

    def draw() -> Any:
        from graphsvx.views.plot import study  # noqa: PLC0415  (needs matplotlib, an extra)

        datasets = results.names("dataset", measure=[*measures], **selection)
        same_data = f"{data_title(datasets[0])}, " if len(datasets) == 1 else ""
        panels = {line: {t.removeprefix(same_data): bands(m, t)
                         for t in results.names("data", measure=m, **selection)}
                  for line, m in lines.items()}  # fmt: skip
        first = next(iter(lines))
        theirs = {(first, t, row): figure for t, labels in panels[first].items() for row in labels
                  if paper and (figure := paper(row, t)) is not None}  # fmt: skip
        return study.dots(panels, theirs, log)

    return Figure(name, caption, draw)


def curves(
    results: Measurements, name: str, caption: str, panels: Sequence[str], lines: Sequence[str],
    x: tuple[str, Sequence[float]], at: Callable[[str, str, Any], tuple[str, str]], *,
    paper: Mapping[tuple[str, str], Mapping[Any, float]] | None = None, log: Sequence[str] = (),
) -> Figure:  # fmt: skip
    """Rows of panels, a panel for each data set, with lines over x and bands for intervals.

    x: the label of the axis, and where points are.
    at: measure and method of a point, from its panel, line and x.
    paper: the paper's figures by x, for some panels and data sets; log: logarithmic axes.
    """

    def points(panel: str, line: str, title: str) -> dict[float, Any]:
        places = {value: at(panel, line, value) for value in x[1]}
        estimates = {value: results.estimate(measure, method=method, data=title)
                     for value, (measure, method) in places.items()}  # fmt: skip
        return {value: estimate.band for value, estimate in estimates.items() if estimate.seeds}

    def draw() -> Any:
        from graphsvx.views.plot import study  # noqa: PLC0415  (needs matplotlib, an extra)

        bands = {
            _axis(panel): {
                title: {line: points(panel, line, title) for line in lines}
                for title in results.names("data")
            }
            for panel in panels
        }
        theirs = {(_axis(panel), title): by_x for (panel, title), by_x in (paper or {}).items()}
        return study.curves(bands, x[0], theirs, log)

    return Figure(name, caption, draw)


def _axis(measure: str) -> str:
    """The label of an axis: that of an accuracy names its protocol."""
    return f"accuracy ({measure})" if measure in ("paper", "strict") else measure


@dataclass(frozen=True, eq=False)
class Page:
    """What a study found.

    claims: at most a screen of them, the first thing that is read.
    figure: the one picture below them.
    sections: tables with everything else, by title; folded.
    about: what was measured, in a few sentences before the claims.
    """

    title: str
    claims: Sequence[Claim]
    figure: Figure | None = None
    sections: Mapping[str, Sequence[str | Table | Figure]] = field(default_factory=dict)
    about: str = ""

    def markdown(self, results: Measurements) -> str:
        """The text of the page; the facts of `results` say how it was measured."""
        facts, study = results.facts, results.study

        def text(part: str | Table | Figure) -> str:
            if isinstance(part, Figure):
                return f"![{part.caption}]({study}-{part.name}.png)\n\n*{part.caption}*"
            return part.markdown() if isinstance(part, Table) else part

        folded = {title: map(text, section) for title, section in self.sections.items()}
        failures = [f"- {question}: {reason}"
                    for question, reason in sorted(facts.get("failures", {}).items())]  # fmt: skip
        parts = [
            f"# {self.title}",
            self.about,
            QUICK if facts.get("quick") else "",
            f"Made by `{facts.get('command')}` from [{study}.parquet]({study}.parquet), one row "
            "for each measurement. In square brackets: 95 % interval over seeds.",
            self._claims_table(),
            text(self.figure) if self.figure else "",
            *(line for title, section in folded.items() for line in _folded(title, section)),
            *(
                f"**{name} is missing:** {reason}"
                for name, reason in facts.get("missing", {}).items()
            ),
            "**Failures.** These could not be made and do not count:" if failures else "",
            *failures,
            *_folded("How it was made", ["\n".join(_made(results))]),
        ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _claims_table(self) -> str:
        """A screen of claims: one row for each statement if they are many."""
        many, has_paper = len(self.claims) > SCREEN, any(claim.paper for claim in self.claims)
        rows = summary_rows(self.claims) if many else [claim.cells() for claim in self.claims]
        shown = [CLAIM_COLUMNS, *rows]
        head, *body = shown if has_paper else [(row[0], *row[2:]) for row in shown]
        return markdown_table(head, body)

    def write(self, results: Measurements, folder: Path) -> list[Path]:
        """Write `<study>.md` and its pictures.

        Raises:
            DataError: the folder cannot be written.

        """
        parts = [self.figure, *(part for section in self.sections.values() for part in section)]
        figures = {folder / f"{results.study}-{part.name}.png": part
                   for part in parts if isinstance(part, Figure)}  # fmt: skip
        page = folder / f"{results.study}.md"
        for path, figure in figures.items():
            with atomic_write(path) as file:
                figure.draw().savefig(file, dpi=160, format="png", metadata={"Software": None})
        with atomic_write(page) as file:
            file.write_text(self.markdown(results))
        return [*figures, page]


def _folded(title: str, parts: Iterable[str]) -> list[str]:
    """Parts that are shown when the title is clicked; without headings, which cannot be inside."""
    return ["<details>", f"<summary>{title}</summary>", *parts, "</details>"]


def _made(results: Measurements) -> list[str]:
    """What the figures rest on: seeds, versions, models, settings of the methods."""
    seeds = {title: {seed for key in results.keys(data=title) for seed in results.series[key]}
             for title in results.names("data")}  # fmt: skip
    words = {title: ", ".join(map(str, sorted(numbers))) for title, numbers in seeds.items()}
    lines = [f"- seeds: {_each_once(words)}"]
    for fact, value in results.facts.items():
        if fact == "settings":
            lines += [f"- {name}: {_each_once(settings)}" for name, settings in value.items()]
        elif fact not in ("command", "quick", "missing", "failures"):
            lines.append(f"- {fact}: {value}")
    return lines


def _each_once(words: Mapping[str, str]) -> str:
    """Words by data set, the same ones told once."""
    titles: dict[str, list[str]] = {}
    for title, text in words.items():
        titles.setdefault(text, []).append(title)
    if len(titles) < 2:
        return "".join(titles)
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in titles.items())
