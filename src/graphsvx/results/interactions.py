"""Interactions of players: what sets of them add to a prediction together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from graphsvx.results.credit import Ranking
from graphsvx.results.schema import Array
from graphsvx.utils.constraints import Range, checked

_SETS = Array("float64", ("outputs", "sets"))


class Together(NamedTuple):
    """A set of players with the value of its interaction and standard error."""

    players: tuple[str, ...]
    """Names: "node 5", "feature 2", "edge 1–4", or the name of a group."""
    positions: tuple[int, ...]
    """Positions among all players: features, then nodes, then edges."""
    value: float
    error: float

    @property
    def sure(self) -> bool:
        """Whether the value is exact or at least two standard errors away from 0."""
        return not abs(self.value) < 2 * self.error


@dataclass(frozen=True, eq=False)
class Interactions:
    """Values of an interaction index for sets of players, for all explained outputs.

    Players are counted over features, then nodes, then edges, as in `Explanation.errors`.
    """

    index: str
    """k-SII, SII, STII, FSII or BII."""
    order: int
    """Players of the largest sets."""
    members: Annotated[Tensor, Array("int64", ("order", "sets"))]
    """Players of each set, a column, ascending; -1 fills the columns of smaller sets."""
    values: Annotated[Tensor, _SETS]
    errors: Annotated[Tensor, _SETS]
    """Standard errors: 0 where exact."""
    left_out: int = 0
    """Players with little credit whose pairs are not listed."""

    @property
    def exact(self) -> bool:
        """Whether all values are exact."""
        return not bool(self.errors.any())

    @property
    def sizes(self) -> Tensor:
        """Players of each set."""
        return (self.members >= 0).sum(0)

    def matrix(self, row: int, players: int) -> Tensor:
        """Values of pairs, [players, players], symmetric with a diagonal of zeros."""
        matrix = torch.zeros(players, players, dtype=torch.float64)
        pairs = self.sizes == 2
        i, j = self.members[:2, pairs]
        matrix[i, j] = matrix[j, i] = self.values[row, pairs]
        return matrix

    def contrasted(self, first: int, second: int) -> Interactions:
        """Row `first` minus row `second`, with the sum of their errors."""
        return replace(
            self,
            values=(self.values[first] - self.values[second])[None],
            errors=(self.errors[first] + self.errors[second])[None],
        )

    def ranked(
        self, row: int, k: int | None, size: int, by: Ranking, names: Sequence[str]
    ) -> list[Together]:
        """The first `k` sets of `size` players of one output, strongest first."""
        by, size = checked(by, Ranking, "by"), checked(size, Annotated[int, Range(1, 3)], "size")
        k = checked(k, Annotated[int | None, Range(0)], "k")
        positions = (self.sizes == size).nonzero().flatten()
        values = self.values[row, positions]
        order = torch.argsort(
            values.abs() if by == "absolute" else values, descending=True, stable=True
        )
        ranked = []
        for i in positions[order[:k]].tolist():
            members = tuple(self.members[:size, i].tolist())
            value, error = float(self.values[row, i]), float(self.errors[row, i])
            ranked.append(
                Together(tuple(names[player] for player in members), members, value, error)
            )
        return ranked
