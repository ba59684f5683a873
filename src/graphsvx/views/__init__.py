"""Tables, plots and HTML pages of explanations, which `Explanation` has as methods.

The table in the terminal is here: coloured there, plain text when piped.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Annotated

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from graphsvx.results.describe import equation
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import (
    Entry,
    cell_name,
    decimal,
    entries,
    folds,
    leading,
    leading_cells,
    leading_pairs,
    scale_of,
    signed,
    unsure_note,
)
from graphsvx.utils.constraints import Range, checked
from graphsvx.utils.printable import one_line
from graphsvx.views.html import notebook, write

__all__ = ["notebook", "printed", "table", "write"]

FOR, AGAINST, QUIET = "red", "blue", "dim"
HALF = 10
"""Width of a bar on each side of zero, in characters."""


@dataclass(frozen=True)
class CreditBar:
    """Credit as a bar from zero: to the right if positive, to the left if negative."""

    credit: float
    largest: float
    half: int = HALF

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        width = 2 * self.half + 1
        return Measurement(width, width)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.drawn(options.ascii_only)

    def drawn(self, ascii_only: bool = False) -> Text:
        """The bar at a resolution of half a character, or of a full one in ASCII."""
        share = min(1.0, abs(self.credit) / self.largest) if self.largest > 0 else 0.0
        halves = round(share * 2 * self.half) if math.isfinite(share) else 0
        if ascii_only:
            ink, middle = "#" * round(halves / 2), "|"
        else:
            ink, middle = "█" * (halves // 2), "│"
            if halves % 2:
                ink = ink + "▌" if self.credit > 0 else "▐" + ink
        room = " " * (self.half - len(ink))
        if self.credit >= 0:
            return Text.assemble(" " * self.half, (middle, QUIET), (ink, FOR), room)
        return Text.assemble(room, (ink, AGAINST), (middle, QUIET), " " * self.half)


def table(explanation: Explanation, top: int = 10) -> Table:
    """Table of the `top` players by absolute credit, with standard errors and bars.

    More than 30 players are shown by group (ring or branch of nodes, features), those of the `top`
    below their group. Players whose credit cannot be told from 0 are summed, not listed.
    Names are printed literally: brackets in them are not interpreted as markup.
    """
    top = checked(top, Annotated[int, Range(0)], "top")
    if explanation.kind == "model":
        return _generated_graph(explanation)
    ranked, groups = entries(explanation), folds(explanation)
    shown, rest = leading(ranked, top) if any(entry.sure for entry in ranked) else ([], ranked)
    hops = explanation.field.distances
    answers = [answer.line() for answer in explanation.answers]
    out = _frame(explanation, f"{equation(explanation)} ({scale_of(explanation)})", *answers)
    with_hops = explanation.kind == "node" and any(entry.kind == "node" for entry in shown)
    estimated = any(math.isfinite(entry.error) and entry.error > 0 for entry in ranked)
    largest = max((abs(part.credit) for part in (*ranked, *groups)), default=0.0)
    out.add_column("player", overflow="fold", max_width=44 if groups else 36)
    if with_hops:
        out.add_column("hops", justify="right")
    out.add_column("credit", justify="right", no_wrap=True)
    if estimated:
        out.add_column("± s.e.", justify="right", no_wrap=True)
    out.add_column(Text(f"{'against':>{HALF}}│for"), justify="left", no_wrap=True)

    def add(name: str, credit: float, error: str, style: str = "", hop: str = "") -> None:
        texts = [Text(name, style=style), *[Text(hop)] * with_hops]
        texts.append(Text(signed(credit, 4), style=style or (FOR if credit > 0 else AGAINST)))
        out.add_row(*texts, *[Text(error, style=QUIET)] * estimated, CreditBar(credit, largest))

    def add_players(shown: list[Entry], rest: list[Entry], indent: str = "") -> None:
        """A row for each player of `shown`, and one for all others together."""
        for entry in shown:
            hop = str(hops.get(entry.key[0], "")) if entry.kind == "node" else ""
            add(indent + entry.name, entry.credit, _error(entry.error), hop=hop)
        if rest:
            name = f"{indent}{len(rest)} more together{unsure_note(rest)}"
            add(name, math.fsum(entry.credit for entry in rest), "", QUIET)

    if not groups:
        add_players(shown, rest)
    for group in groups:
        members = [entry for entry in group.members if entry in shown]
        rest = [entry for entry in group.members if entry not in members]
        if not members or len(group.members) > 1:
            name = group.name if members else group.name + unsure_note(rest)
            add(name, group.credit, _error(group.error), "" if group.sure else QUIET)
        if members:
            add_players(members, rest, "  " if len(group.members) > 1 else "")
    out.add_section()
    for pair in leading_pairs(explanation)[:3]:
        add(f"{' and '.join(pair.players)} together", pair.value, _error(pair.error))
    if explanation.interactions and explanation.interactions.left_out:
        left_out = f"pairs of {explanation.interactions.left_out} players left out"
        out.add_row(Text(left_out, style=QUIET))
    out.add_section()
    for cell in leading_cells(explanation, 5):
        add(cell_name(explanation, cell), cell.value, _error(cell.error))
    out.add_section()
    return out


def _frame(explanation: Explanation, *caption: str) -> Table:
    """A table with the title above, and below it these lines and the certificate."""
    warning = explanation.certificate.no_influence
    first_line = "" if warning is None else f"{one_line(warning)}\n"
    lines = map(one_line, [*caption, explanation.certificate.line()])
    return Table(
        title=Text.assemble((first_line, "bold red"), (explanation.title, "bold")),
        caption=Text("\n".join(lines), style=QUIET),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        pad_edge=False,
    )


def _generated_graph(explanation: Explanation) -> Table:
    """Adjacency list of a model-level explanation, which is a generated graph without credit."""
    field = explanation.field
    neighbours: dict[int, list[str]] = {node: [] for node in field.ids.tolist()}
    for source, target in field.edge_index.t().tolist():
        neighbours[source].append(str(target))
    score = decimal(explanation.prediction, 4)
    out = _frame(explanation, f"the model gives this graph {score} ({scale_of(explanation)})")
    kinds = {} if field.classes is None else {"kind": map(str, field.classes.tolist())}
    joined = map(", ".join, neighbours.values())
    columns = {"node": map(str, neighbours), **kinds, "joined to": joined}
    for name in columns:
        out.add_column(name, justify="left" if name == "joined to" else "right")
    for row in zip(*columns.values(), strict=False):
        out.add_row(*row)
    return out


def _error(error: float) -> str:
    if math.isnan(error):
        return "–"
    return f"± {error:.4f}" if error >= 5e-5 else "± 0" if error == 0 else f"± {error:.0e}"


def printed(explanation: Explanation, width: int = 100) -> str:
    """The table as plain text, for `print`."""
    console = Console(file=io.StringIO(), width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(table(explanation))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")
