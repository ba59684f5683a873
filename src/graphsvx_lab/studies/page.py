"""A page of results: claims first, one figure, then details; written as Markdown and PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphsvx.utils.files import atomic_write
from graphsvx.utils.printable import markdown_table
from graphsvx_lab.datasets.catalogue import data_title
from graphsvx_lab.metrics.measurements import (
    MIN_SEEDS,
    Estimate,
    Measurements,
    PairedTest,
    Rule,
    number,
)

if TYPE_CHECKING:
    from graphsvx_lab.studies.study import Study

QUICK = "**Quick: with models that are hardly trained, its figures mean nothing.**"
CLAIM_COLUMNS = ("claim", "paper", "ours", "")
VERDICTS = {True: "holds", False: "does not hold", None: "not tested"}
SCREEN, LINE = 14, "<br>"
"""More claims than fit on a screen have one row for each statement; between lines of a cell."""
BOLD = " Bold, where a claim holds on some data sets only: it holds there."
SECONDS = "processor seconds"
"""A fact: the time that measuring took, training of models included where it was needed."""
OTHER_PAGES = {
    "models.md": "Accuracy of the trained models, made by `graphsvx train --all`",
    "speed.md": "Speed against peers, made by `./scripts/bench --docs`",
    "error.md": "Error against peers at equal numbers of calls, made by `./scripts/bench --docs`",
    "protocols.md": "How accuracy is scored",
}
PaperFigures = Mapping[str, Mapping[str, float]]
"""The paper's figures by the labels of row and column."""
TITLES = {
    "paper": "Accuracy, protocol `paper`",
    "strict": "Accuracy, protocol `strict`",
    "AUROC": "AUROC of nodes",
    "strict, edges": "Accuracy on edges, `strict`",
    "AUROC, edges": "AUROC of edges",
    "error": "Relative squared error, median",
    "own error": "What references expect their own error to be (0: exact)",
    "calls": "Distinct model calls, median",
    "exact": "Share of exact explanations",
    "seconds": "Processor seconds for a node",
    "test accuracy": "Test accuracy of the models",
    "characterization": "Characterization on nodes, mean over the shares",
}
"""Tables of measures that several studies have; others are named by their measure."""
DIGITS = {"error": 4, "own error": 4, "calls": 0, "seconds": 3}


def from_paper(rows: Mapping[str, Sequence[float]], datasets: Sequence[str]) -> PaperFigures:
    """From a table of the paper: figures by row, in the order of its data sets."""
    titles = [data_title(name) for name in datasets]
    return {row: dict(zip(titles, figures, strict=True)) for row, figures in rows.items()}


@dataclass(frozen=True)
class Claim:
    """A statement that measurements confirm or not.

    paper: its figure in the paper; "" for a statement that is not in the paper.
    ours: our figure.
    interval: 95 % interval of our figure over seeds, None if there is none.
    holds: None if it was not tested, or on too few seeds to say.
    on: the data set; the summary of all studies has one row for a statement on several.
    digits: decimals of the interval.
    """

    statement: str
    paper: str
    ours: str
    interval: tuple[float, float] | None = None
    holds: bool | None = None
    on: str = ""
    digits: int = 2

    @classmethod
    def of(
        cls,
        statement: str,
        paper: str | float,
        ours: Estimate,
        rule: Rule,
        digits: int = 2,
        on: str = "",
    ) -> Claim:
        """From an estimate; `rule` compares it with the paper's figure, if it has an interval."""
        figure, shown = (nan, paper) if isinstance(paper, str) else (paper, f"{paper:.{digits}f}")
        if ours.seeds < MIN_SEEDS:
            return cls(statement, shown, ours.text(digits), on=on, digits=digits)
        holds, (low, high) = bool(rule(ours, figure)), ours.interval or (0.0, 0.0)
        rounded = round(ours.mean, digits) + 0.0  # no minus before zeros
        # A power of ten only where the interval is as small.
        mean = f"{rounded:.{digits}f}" if high - low > 10.0**-digits else number(ours.mean, digits)
        return cls(statement, shown, mean, ours.interval, holds, on, digits)

    @classmethod
    def each(
        cls,
        statement: str,
        paper: Mapping[str, Any],
        ours: Mapping[str, Estimate],
        rule: Rule,
        digits: int = 2,
    ) -> list[Claim]:
        """The same statement on everything that `paper` has a figure of."""
        return [
            cls.of(statement, figure, ours.get(on, Estimate(())), rule, digits, on)
            for on, figure in paper.items()
        ]

    @classmethod
    def first(
        cls, statement: str, paper: str, tests: Mapping[str, PairedTest], on: str = ""
    ) -> Claim:
        """That a method is significantly ahead of each of the others; the worst case is shown."""
        tests = {name: test for name, test in tests.items() if test.pairs}
        if not tests:
            return cls(statement, paper, "-", on=on)
        closest = min(tests, key=lambda name: tests[name].difference)
        tested = all(test.seeds >= MIN_SEEDS for test in tests.values())
        ahead = all(test.ahead for test in tests.values())
        difference, p = tests[closest].text().lstrip("+-").split(" ", 1)
        side = "ahead of" if tests[closest].difference >= 0 else "behind"
        ours = f"{difference} {side} {closest} {p}"
        return cls(statement, paper, ours, holds=ahead if tested else None, on=on)

    def cells(self) -> tuple[str, str, str, str]:
        """For a row of a table: statement, paper, ours with its interval, holds."""
        ends = ", ".join(number(end, self.digits) for end in self.interval or ())
        ours = f"{self.ours} [{ends}]" if ends else self.ours
        statement = f"{self.statement} ({self.on})" if self.on else self.statement
        return statement, self.paper or "-", ours, VERDICTS[self.holds]


def summary_rows(claims: Iterable[Claim]) -> list[tuple[str, str, str, str]]:
    """Cells of claims with one row for each statement, whatever the number of data sets."""
    by_statement: dict[str, list[Claim]] = {}
    for claim in claims:
        by_statement.setdefault(claim.statement, []).append(claim)
    return list(map(_merged, by_statement.values()))


def _merged(group: Sequence[Claim]) -> tuple[str, str, str, str]:
    """Several data sets in a row: a line for each, bold if the claim holds, and on how many."""
    if len(group) == 1:
        return group[0].cells()
    papers, verdicts = [c.paper or "-" for c in group], [c.holds for c in group]
    tested, lines = len(verdicts) - verdicts.count(None), list[str]()
    same = not tested or len(set(verdicts)) == 1
    for claim in group:
        low, high = claim.interval or (0.0, 0.0)
        error = f" ± {number((high - low) / 2, claim.digits)}" if high > low else ""
        line = f"{claim.on}: {claim.ours}{error}"
        lines.append(f"**{line}**" if claim.holds and not same else line)
    return (
        group[0].statement,
        papers[0] if len(set(papers)) == 1 else LINE.join(papers),
        LINE.join(lines) if any(claim.ours != "-" for claim in group) else "-",
        VERDICTS[verdicts[0]] if same else f"holds on {verdicts.count(True)} of {tested}",
    )


Cell = Estimate | PairedTest | float | str


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
        return number(cell, self.digits) if isinstance(cell, float) else cell.text(self.digits)


def pivot(
    results: Measurements,
    title: str,
    measure: str | Sequence[str],
    *,
    rows: str = "method",
    columns: str = "data",
    paper: PaperFigures | None = None,
    note: str = "",
    digits: int | None = None,
    **selection: Any,
) -> Table:
    """The estimates of a measure (or of several), by two columns of the measurements.

    selection: all that `Measurements.estimate` takes.
    """
    selection = {"measure": measure, **selection}
    head = results.names(columns, **selection)

    def cell(row: str, column: str) -> Cell:
        estimate = results.estimate(**{**selection, rows: row, columns: column})
        figure = (paper or {}).get(row, {}).get(column)
        return replace(estimate, paper=figure) if estimate.seeds else estimate

    body = [
        [row, *(cell(row, column) for column in head)] for row in results.names(rows, **selection)
    ]
    title += " (the paper's in brackets)" if paper else ""
    usual = DIGITS.get(str(measure), 2)
    return Table(title, ["", *head], body, note, usual if digits is None else digits)


def pivots(
    results: Measurements,
    tables: Mapping[str, Any] | Sequence[str],
    *,
    paper: PaperFigures | None = None,
    **common: Any,
) -> list[Table]:
    """Several tables: measures, or by title a measure, or all that `pivot` takes.

    paper: the paper's figures of the first table.
    """
    declared = tables if isinstance(tables, Mapping) else {name: {} for name in tables}
    pivoted = list[Table]()
    for name, value in declared.items():
        options = value if isinstance(value, dict) else {"measure": value}
        title = name if "measure" in options else TITLES.get(name, name.capitalize())
        figures = {} if pivoted else {"paper": paper}
        pivoted.append(pivot(results, title, **{"measure": name, **common, **figures, **options}))
    return pivoted


def paired_table(title: str, tests: Mapping[str, Mapping[str, PairedTest]]) -> Table:
    """Tests of a method against others: a row for each of these, a column for each data set."""
    others = dict.fromkeys(name for by_other in tests.values() for name in by_other)
    rows: list[list[Cell]] = [
        [name, *(by_other[name] for by_other in tests.values())] for name in others
    ]
    note = "On the same questions; p by Wilcoxon's test, corrected by Holm."
    return Table(title, ["", *tests], rows, note)


@dataclass(frozen=True, eq=False)
class Figure:
    """A picture, drawn when the page is written by `draw(graphsvx_lab.studies.plots)`."""

    name: str
    caption: str
    draw: Callable[[Any], Any] = field(repr=False)


def dots(name: str, caption: str, lines: Mapping[str, Table], log: Sequence[str] = ()) -> Figure:
    """Tables drawn: a line of panels for each, a panel for each column, a dot for each row.

    lines: tables by the label of their axis; log: those on a logarithmic one.
    """
    panels: dict[str, dict[str, dict[str, Any]]] = {}
    paper: dict[tuple[str, str, str], float] = {}
    for axis, table in lines.items():
        panels[axis] = {column: {} for column in table.columns[1:]}
        for label, *cells in table.rows:
            for column, cell in zip(panels[axis], cells, strict=True):
                if isinstance(cell, Estimate) and cell.seeds:
                    panels[axis][column][str(label)] = cell.band
                    if cell.paper is not None:
                        paper[axis, column, str(label)] = cell.paper
    return Figure(name, caption, lambda plots: plots.dots(panels, paper, log))


@dataclass(frozen=True, eq=False)
class Page:
    """What a study found.

    claims: at most a screen of them, the first thing that is read.
    figure: the one picture below them.
    sections: tables with everything else, by title; folded.
    about: the question, in a sentence or two before the claims.
    notes: what was measured and how, below the figure.
    """

    title: str
    claims: Sequence[Claim]
    figure: Figure | None = None
    sections: Mapping[str, Sequence[str | Table]] = field(default_factory=dict)
    about: str = ""
    notes: str = ""

    def markdown(self, results: Measurements) -> str:
        """The text of the page; the facts of `results` say how it was measured."""
        facts, study, figure = results.facts, results.study, self.figure
        failures = [
            f"- {question}: {reason}"
            for question, reason in sorted(facts.get("failures", {}).items())
        ]
        many, has_paper = len(self.claims) > SCREEN, any(claim.paper for claim in self.claims)
        rows = summary_rows(self.claims) if many else [claim.cells() for claim in self.claims]
        claims = [row if has_paper else (row[0], *row[2:]) for row in (CLAIM_COLUMNS, *rows)]
        parts = [
            f"# {self.title}",
            self.about,
            QUICK if facts.get("quick") else "",
            f"**{verdict(self.claims).capitalize()}.**",
            markdown_table(claims[0], claims[1:]),
            *(
                [f"![{figure.caption}]({study}-{figure.name}.png)", f"*{figure.caption}*"]
                if figure
                else []
            ),
            self.notes,
            f"Made by `{facts.get('command')}` from [{study}.parquet]({study}.parquet), one row "
            "for each measurement. ± and square brackets: 95 % interval over seeds." + BOLD * many,
            *(f"**{k} is missing:** {reason}" for k, reason in facts.get("missing", {}).items()),
            "**Failures.** These could not be made and do not count:" if failures else "",
            *failures,
        ]
        for title, section in {**self.sections, "How it was made": _made(results)}.items():
            texts = [part if isinstance(part, str) else part.markdown() for part in section]
            # Without headings, which cannot be inside of what is folded.
            folded = ["<details>", f"<summary>{title}</summary>", *texts, "</details>"]
            parts += folded if any(texts) else []
        return "\n\n".join(filter(None, parts)) + "\n"

    def write(self, results: Measurements, folder: Path) -> list[Path]:
        """Write `<study>.md` and its picture; a DataError if the folder cannot be written."""
        written = [folder / f"{results.study}.md"]
        if self.figure:
            from graphsvx_lab.studies import plots  # noqa: PLC0415  (needs matplotlib, an extra)

            written.insert(0, folder / f"{results.study}-{self.figure.name}.png")
            with atomic_write(written[0]) as file:
                picture = self.figure.draw(plots)
                picture.savefig(file, dpi=160, format="png", metadata={"Software": None})
        with atomic_write(written[-1]) as file:
            file.write_text(self.markdown(results), encoding="utf-8")
        return written


def verdict(claims: Sequence[Claim]) -> str:
    """How many claims hold, for readers who read no further."""
    tested = [claim.holds for claim in claims if claim.holds is not None]
    others = len(claims) - len(tested)
    words = f"{sum(tested)} of {len(tested)} claims hold" if tested else "no claim was tested"
    return f"{words}{f'; {others} were not tested' if tested and others else ''}"


def write_summary(folder: Path, studies: Sequence[Study]) -> Path:
    """Write `README.md`: one table of all claims of the paper.

    Args:
        folder: of the results, where the measurements of the studies are.
        studies: in the order of the table.

    Returns:
        The path of the page.

    """
    verdicts: list[bool | None] = []
    pages, seconds = list[str](), 0
    rows: dict[bool, list[list[str]]] = {True: [], False: []}
    for study in studies:
        measured = (folder / f"{study.name}.parquet").exists()
        results = study.read(folder) if measured else Measurements(study.name)
        link = f"[{study.name}]({study.name}.md)" if measured else study.name
        claims = study.page(results).claims
        verdicts += [claim.holds for claim in claims if claim.paper]
        seconds += results.facts.get(SECONDS, 0)
        for in_paper in (True, False) if measured else (True,):
            cells = summary_rows(claim for claim in claims if bool(claim.paper) == in_paper)
            rows[in_paper] += [[link, *row] for row in cells]
        state = verdict(claims) if measured else f"not measured yet: `graphsvx study {study.name}`"
        pages.append(f"- {link} ({state}): {study.about}")
    pages += [
        f"- [{title}]({file})" for file, title in OTHER_PAGES.items() if (folder / file).exists()
    ]
    tested = len(verdicts) - verdicts.count(None)
    beyond = [[*row[:2], *row[3:]] for row in rows[False]]
    text = [
        "# Results: what of the paper holds, and by how much",
        f"**Of {len(verdicts)} claims of the paper, counted by data set, {tested} were tested and "
        f"{verdicts.count(True)} hold.**",
        "A figure holds if our mean reaches it, or is as close as the claim says; a difference if "
        "its whole 95 % interval over seeds (± or square brackets) is above 0; a first place if "
        "p < 0.05 against each of the others (Wilcoxon's test on the same questions, corrected by "
        f"Holm): the strongest of them is shown.{BOLD}",
        markdown_table(("study", *CLAIM_COLUMNS), rows[True]),
        "## Beyond the paper" if beyond else "",
        markdown_table(("study", "claim", *CLAIM_COLUMNS[2:]), beyond) if beyond else "",
        "## Pages",
        "\n".join(pages),
        "Made by `graphsvx study --all` from the table of measurements beside each page"
        + (f", in {seconds / 60:.0f} minutes of processor time." if seconds else "."),
    ]
    path = folder / "README.md"
    with atomic_write(path) as part:
        part.write_text("\n\n".join(filter(None, text)) + "\n", encoding="utf-8")
    return path


def _made(results: Measurements) -> list[str]:
    """What the figures rest on: seeds, versions, models, settings of the methods."""
    seeds = {
        title: {seed for key in results.keys(data=title) for seed in results.series[key]}
        for title in results.names("data")
    }
    words = {title: ", ".join(map(str, sorted(numbers))) for title, numbers in seeds.items()}
    lines = [f"- seeds: {_each_once(words)}"]
    for fact, value in results.facts.items():
        if fact == "settings":
            lines += [f"- {name}: {_each_once(settings)}" for name, settings in value.items()]
        elif fact not in ("command", "quick", "missing", "failures"):
            lines.append(f"- {fact}: {value}")
    return ["\n".join(lines)]


def _each_once(words: Mapping[str, str]) -> str:
    """Words by data set, the same ones told once."""
    titles: dict[str, list[str]] = {}
    for title, text in words.items():
        titles.setdefault(text, []).append(title)
    if len(titles) < 2:
        return "".join(titles)
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in titles.items())
