"""An explanation as a table in the terminal: coloured there, plain text when piped."""

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
from graphsvx.results.ranking import entries, plain, scale_of, signed
from graphsvx.utils.constraints import Range, checked
from graphsvx.utils.printable import one_line

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

    Names are printed literally: brackets in them are not interpreted as markup.
    """
    top = checked(top, Annotated[int, Range(0)], "top")
    if explanation.kind == "model":
        return _generated_graph(explanation)
    ranked = entries(explanation)
    estimated = any(math.isfinite(entry.error) and entry.error > 0 for entry in ranked)
    certain = [entry for entry in ranked if entry.sure or not estimated]
    shown = certain[:top]
    rest = [entry for entry in ranked if entry not in shown]
    field = explanation.field
    hops = dict(zip(field.ids.tolist(), field.hops.tolist(), strict=True))
    with_hops = explanation.kind == "node" and any(entry.kind == "node" for entry in shown)
    out = _frame(explanation, _caption(explanation))
    out.add_column("player", overflow="fold", max_width=36)
    if with_hops:
        out.add_column("hops", justify="right")
    out.add_column("credit", justify="right", no_wrap=True)
    if estimated:
        out.add_column("± s.e.", justify="right", no_wrap=True)
    out.add_column(Text(f"{'against':>{HALF}}│for"), justify="left", no_wrap=True)
    largest = max((abs(entry.credit) for entry in ranked), default=0.0)
    for entry in shown:
        cells: list[Text | CreditBar] = [Text(entry.name)]
        if with_hops:
            cells.append(Text(str(hops.get(entry.key[0], "")) if entry.kind == "node" else ""))
        cells.append(Text(signed(entry.credit, 4), style=FOR if entry.credit > 0 else AGAINST))
        if estimated:
            cells.append(Text(_error(entry.error), style=QUIET))
        out.add_row(*cells, CreditBar(entry.credit, largest))
    if rest:
        total = math.fsum(entry.credit for entry in rest)
        unsure = sum(not entry.sure for entry in rest) if estimated else 0
        note = f" ({unsure} of them may be 0)" if unsure else ""
        total_row: list[Text | CreditBar] = [Text(f"{len(rest)} more together{note}", style=QUIET)]
        total_row += [Text("")] * with_hops
        total_row += [Text(signed(total, 4), style=QUIET)]
        total_row += [Text("")] * estimated
        out.add_row(*total_row, CreditBar(total, largest))
    if explanation.interactions is not None:
        out.add_section()
        for pair in explanation.together(3):
            names = f"{' and '.join(pair.players)} together"
            line: list[Text | CreditBar] = [Text(names), *[Text("")] * with_hops]
            line.append(Text(signed(pair.value, 4), style=FOR if pair.value > 0 else AGAINST))
            if estimated:
                line.append(Text(_error(pair.error), style=QUIET))
            out.add_row(*line, CreditBar(pair.value, largest))
    return out


def _frame(explanation: Explanation, caption: str) -> Table:
    return Table(
        title=Text(explanation.title, style="bold"),
        caption=Text("\n".join(map(one_line, caption.splitlines())), style=QUIET),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        pad_edge=False,
    )


def _generated_graph(explanation: Explanation) -> Table:
    """Adjacency list of a model-level explanation, which is a generated graph without credit."""
    field = explanation.field
    neighbours: dict[int, list[str]] = {int(node): [] for node in field.ids}
    for source, target in field.edge_index.t().tolist():
        neighbours[source].append(str(target))
    score = plain(explanation.prediction, 4)
    lines = (f"the model gives this graph {score} ({scale_of(explanation)})",
             explanation.certificate.line())  # fmt: skip
    out = _frame(explanation, "\n".join(lines))
    kinds = None if field.classes is None else field.classes.tolist()
    out.add_column("node", justify="right")
    if kinds is not None:
        out.add_column("kind", justify="right")
    out.add_column("joined to")
    for i, (node, others) in enumerate(neighbours.items()):
        kind = [] if kinds is None else [str(kinds[i])]
        out.add_row(str(node), *kind, ", ".join(others))
    return out


def _error(error: float) -> str:
    if math.isnan(error):
        return "–"
    if error == 0:
        return "exact"
    return f"± {error:.4f}" if error >= 5e-5 else f"± {error:.0e}"


def _caption(explanation: Explanation) -> str:
    lines = [f"{equation(explanation)} ({scale_of(explanation)})"]
    lines += [answer.line() for answer in explanation.answers]
    return "\n".join([*lines, explanation.certificate.line()])


def text(explanation: Explanation, width: int = 100) -> str:
    """The table as plain text, for `print`."""
    console = Console(file=io.StringIO(), width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(table(explanation))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")
