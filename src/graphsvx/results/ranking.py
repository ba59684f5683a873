"""The players of an explanation as one ranked list of named entries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from graphsvx.errors import InputError
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
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


def entries(explanation: Explanation, players: Players = "all") -> list[Entry]:
    """Players of the given kind, those with the largest absolute credit first."""
    ranked = listed(explanation, players)
    if explanation.selection is not None:
        # A selective explanation lists the chosen players only.
        ranked = [entry for entry in ranked if entry.credit != 0]
    return sorted(ranked, key=lambda entry: -abs(entry.credit))


def listed(explanation: Explanation, players: Players = "all") -> list[Entry]:
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


def scale_of(explanation: Explanation) -> str:
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
