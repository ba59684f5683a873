"""Credit of players: values and standard errors for all explained outputs, and rankings of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from graphsvx.results.schema import Array, Column
from graphsvx.utils.constraints import Range, checked
from graphsvx.utils.printable import one_line

Ranking = Literal["value", "absolute"]

_CREDIT = Array("float64", ("outputs", "players"))


class Ranked(NamedTuple):
    """A feature or node with its credit and standard error."""

    id: int
    value: float
    error: float


class RankedEdge(NamedTuple):
    """An edge (source, target) with its credit and standard error."""

    id: tuple[int, int]
    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Credit:
    """Credit of one kind of players, for all explained outputs.

    `ids` are the players' ids in the user's graph; `values` and `errors` are [outputs, players],
    float64. An error of 0 means exact, NaN means that the method gives no standard error.
    """

    ids: Annotated[Tensor, Array("int64", ("players",))]
    values: Annotated[Tensor, _CREDIT]
    errors: Annotated[Tensor, _CREDIT]
    names: Annotated[tuple[str, ...] | None, Column()] = None

    @staticmethod
    def none(outputs: int) -> Credit:
        """No players of this kind."""
        empty = torch.zeros(outputs, 0, dtype=torch.float64)
        return Credit(torch.zeros(0, dtype=torch.long), empty, empty.clone())

    @property
    def players(self) -> int:
        """How many players there are."""
        return self.values.shape[1]

    def label(self, player: int) -> str:
        """The name of a player in one line, or its id."""
        if self.names is not None:
            return one_line(self.names[player])
        ids = self.ids[..., player].tolist()
        return "–".join(map(str, ids)) if isinstance(ids, list) else str(ids)

    def map(self, change: Callable[[Tensor], Tensor]) -> Credit:
        """The same players with changed values and errors."""
        return replace(self, values=change(self.values), errors=change(self.errors))

    def ranked(self, row: int, k: int | None, by: Ranking) -> list[Ranked]:
        """The first `k` players of one output, best first; ties by id."""
        return [
            Ranked(int(self.ids[i]), float(self.values[row, i]), float(self.errors[row, i]))
            for i in self.order(row, k, by)
        ]

    def order(self, row: int, k: int | None, by: Ranking) -> list[int]:
        """Positions of the first `k` players of one output, best first; ties in their order."""
        by = checked(by, Ranking, "by")
        k = checked(k, Annotated[int | None, Range(0)], "k")
        values = self.values[row]
        order = torch.argsort(
            values.abs() if by == "absolute" else values, descending=True, stable=True
        )
        positions: list[int] = order[:k].tolist()
        return positions

    def certain(self, row: int) -> list[int]:
        """Positions of the players whose interval does not hold 0, by absolute credit."""
        values, errors = self.values[row], self.errors[row]
        unsure = values.abs() < 2 * errors  # false where the error is unknown (NaN)
        return [i for i in self.order(row, None, "absolute") if not bool(unsure[i])]

    def contrasted(self, first: int, second: int) -> Credit:
        """Row `first` minus row `second`, with the sum of their errors."""
        return replace(
            self,
            values=(self.values[first] - self.values[second])[None],
            errors=(self.errors[first] + self.errors[second])[None],
        )
