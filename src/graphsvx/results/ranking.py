"""The players of an explanation as one ranked list of named entries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from graphsvx.errors import InputError
from graphsvx.results.base import BaseExplanation
from graphsvx.results.cells import RankedCell
from graphsvx.results.credit import Credit
from graphsvx.utils.printable import one_line

Players = Literal["all", "nodes", "features", "edges"]


@dataclass(frozen=True)
class Entry:
    """One player, named, with its credit; `error` is NaN where the method gives none."""

    kind: Literal["feature", "node", "edge"]
    key: tuple[int, ...]
    """The id: a node, a column of x, or the two ends of an edge."""
    name: str
    credit: float
    error: float

    @property
    def sure(self) -> bool:
        """Whether the credit is exact or at least two standard errors away from 0."""
        return not math.isfinite(self.error) or abs(self.credit) >= 2 * self.error


def entries(explanation: BaseExplanation, players: Players = "all") -> list[Entry]:
    """Players of the given kind, those with the largest absolute credit first."""
    ranked = listed(explanation, players)
    if explanation.selection is not None:
        # A selective explanation lists the chosen players only.
        ranked = [entry for entry in ranked if entry.credit != 0]
    return sorted(ranked, key=lambda entry: -abs(entry.credit))


def leading(ranked: list[Entry], top: int) -> tuple[list[Entry], list[Entry]]:
    """The first `top` players whose interval does not hold 0, and all others.

    Where it holds 0 for every player, the first `top` of them, to be shown as uncertain.
    """
    certain = [entry for entry in ranked if entry.sure]
    shown = (certain or ranked)[:top]
    seen = {(entry.kind, entry.key, entry.name) for entry in shown}
    return shown, [e for e in ranked if (e.kind, e.key, e.name) not in seen]


def listed(explanation: BaseExplanation, players: Players = "all") -> list[Entry]:
    """Players of the given kind in the order of the record: features, nodes, edges."""
    if players not in ("all", "nodes", "features", "edges"):
        raise InputError(f"players must be 'all', 'nodes', 'features' or 'edges', got {players!r}")
    row = explanation.outputs.index(explanation.target)
    entries_of_kinds: list[Entry] = []
    if players in ("all", "features"):
        entries_of_kinds += _of(explanation.feature_credit, row, "feature")
    if players in ("all", "nodes"):
        entries_of_kinds += _of(explanation.node_credit, row, "node")
    if players in ("all", "edges"):
        entries_of_kinds += _of(explanation.edge_credit, row, "edge")
    return entries_of_kinds


def _of(credit: Credit, row: int, kind: Literal["feature", "node", "edge"]) -> Iterator[Entry]:
    keys = credit.ids.reshape(2, -1).t().tolist() if kind == "edge" else credit.ids.tolist()
    values, errors = credit.values[row].tolist(), credit.errors[row].tolist()
    for i, (key, value, error) in enumerate(zip(keys, values, errors, strict=True)):
        if credit.names is not None:
            name = one_line(credit.names[i]) or "–"
        elif kind == "edge":
            name = f"edge {key[0]}–{key[1]}"
        else:
            name = f"{kind} {key}"
        yield Entry(kind, tuple(key) if kind == "edge" else (key,), name, value, error)


def cell_name(explanation: BaseExplanation, cell: RankedCell) -> str:
    """A cell in words: "age of node 5", "presence of node 5"."""
    feature = str(cell.feature) if explanation.cells is None else (
        explanation.cells.feature_name(cell.feature)
    )  # fmt: skip
    return f"{feature} of {explanation.node_label(cell.node)}"


def leading_cells(explanation: BaseExplanation, top: int) -> list[RankedCell]:
    """The `top` cells by absolute credit of those whose interval does not hold 0."""
    cells = [cell for cell in explanation.top_cells(by="absolute") if cell.sure and cell.value]
    return cells[:top]


def scale_of(explanation: BaseExplanation) -> str:
    """What the numbers are, in words: "probability", "log-odds"."""
    return explanation.scale.replace("_", "-")


def signed(value: float, digits: int = 3) -> str:
    """A credit as people read it: with its sign, a real minus, and no digits that say nothing."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:+.{digits}f}"
    if float(text) == 0 and value != 0:
        text = f"{value:+.0e}"
    elif float(text) == 0:
        text = "0"
    return text.replace("-", "−")


def plain(value: float, digits: int = 3) -> str:
    """A score: `digits` decimals and a real minus."""
    return f"{value:.{digits}f}".replace("-", "−")
