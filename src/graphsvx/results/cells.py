"""Credit of cells: features of nodes (`players="cells"`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from graphsvx.results.credit import Ranking
from graphsvx.utils.constraints import Range, checked
from graphsvx.utils.printable import one_line

PRESENCE = -1
"""In place of a feature: what a node earns by its edges alone."""
OTHER_FEATURES = -2
"""In place of a feature: all features of a node that have no cell of their own, together."""


NO_FEATURES: dict[int, str] = {PRESENCE: "presence", OTHER_FEATURES: "other features"}


class RankedCell(NamedTuple):
    """A feature of a node with its credit and standard error.

    `feature` is "presence" for what the node earns by its edges alone, and "other features" for
    those that have no cell of their own.
    """

    node: int
    feature: int | str
    value: float
    error: float

    @property
    def sure(self) -> bool:
        """Whether the credit is exact or at least two standard errors away from 0."""
        return not math.isfinite(self.error) or abs(self.value) >= 2 * self.error


@dataclass(frozen=True)
class CellCredit:
    """Credit by node and feature: rows of a matrix that add up to the credit of their nodes."""

    nodes: tuple[int, ...]
    """Node of each cell."""
    features: tuple[int, ...]
    """Column of x of each cell; -1: the node's presence, -2: its other features together."""
    values: tuple[tuple[float, ...], ...]
    """[outputs, cells]."""
    errors: tuple[tuple[float, ...], ...]
    """Standard errors [outputs, cells]; 0: exact."""
    names: tuple[str, ...] | None = None
    """Name of each cell's feature; None: their numbers."""

    def feature_name(self, feature: int | str) -> str:
        """A feature in words, by its name where there is one."""
        if isinstance(feature, str):
            return feature
        if self.names is None:
            return f"feature {feature}"
        return one_line(self.names[self.features.index(feature)])

    def ranked(self, row: int, k: int | None, by: Ranking) -> list[RankedCell]:
        """The first `k` cells of one output, best first."""
        by = checked(by, Ranking, "by")
        ranked = [
            RankedCell(node, NO_FEATURES.get(feature, feature), value, error)
            for node, feature, value, error in zip(
                self.nodes, self.features, self.values[row], self.errors[row], strict=True
            )
        ]
        key = {"value": lambda cell: -cell.value, "absolute": lambda cell: -abs(cell.value)}[by]
        return sorted(ranked, key=key)[: checked(k, Annotated[int | None, Range(0)], "k")]

    def contrasted(self, first: int, second: int) -> CellCredit:
        """Row `first` minus row `second`, with the sum of their errors."""
        values, errors = self.values, self.errors
        return replace(
            self,
            values=(tuple(a - b for a, b in zip(values[first], values[second], strict=True)),),
            errors=(tuple(a + b for a, b in zip(errors[first], errors[second], strict=True)),),
        )
