"""The interface of a cooperative game, and a game given by a function of coalitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, RowIds
from graphsvx.errors import BudgetError, see
from graphsvx.utils.constraints import MOST


@dataclass(frozen=True, eq=False)
class PlayerPrior:
    """What is known about the players of a game before any coalition is evaluated."""

    relevance: Floats
    """[M], above 0: how much each is expected to matter, up to a factor."""
    direct: Bools
    """[M]: players whose messages the explained node combines itself."""
    passed: Floats | None = None
    """[direct players, M]: share of a direct player's messages that comes from each player."""
    received: Floats | None = None
    """[direct players]: number of messages that each combines, its own included."""


class Game(Protocol):
    """A cooperative game, as masks and estimators use it.

    Coalitions with the same perturbed graph are one *state*. Each state costs one model call, so
    budgets count states.
    """

    @property
    def players(self) -> int:
        """M."""
        ...

    @property
    def calls(self) -> int:
        """Number of distinct states that have been evaluated."""
        ...

    def states(self, rows: Bools) -> Ids:
        """State ids of coalitions [coalitions, M]; nothing is evaluated."""
        ...

    def values(self, states: Ids) -> Tensor:
        """Scores of states, [states, outputs], float64."""
        ...

    def player_edges(self) -> Bools | None:
        """Edges between players, [M + 1, M]: entry (i, j) is an edge from player j to player i.

        The last row is the explained node. None unless the score depends only on the players
        that can reach the explained node through active players.
        """
        ...

    @property
    def reach(self) -> int | None:
        """Steps along `player_edges` within which a player has influence; None: unlimited."""
        ...

    @property
    def memory(self) -> int | None:
        """Bytes that coalitions, and a fit to their values, may take; None: unlimited."""
        ...

    def player_prior(self) -> PlayerPrior | None:
        """What is known about the players beforehand; None: nothing, they are all alike."""
        ...

    @property
    def probabilities(self) -> bool:
        """Whether values are probabilities; False: they may have any unit."""
        ...


class UnknownStructure:
    """What masks and estimators are told of a game of which nothing is known beforehand."""

    @property
    def reach(self) -> int | None:
        """None: the structure of the game is unknown."""
        return None

    def player_edges(self) -> Bools | None:
        """None: the structure of the game is unknown."""
        return None

    def player_prior(self) -> PlayerPrior | None:
        """None: nothing is known about the players."""
        return None


@dataclass(eq=False)
class FunctionGame(UnknownStructure):
    """A game given by a function of coalitions [coalitions, M] -> values."""

    function: Callable[[Bools], Tensor]
    players: int
    memory: ClassVar[int | None] = None
    probabilities: ClassVar[bool] = False
    _ids: RowIds = field(default_factory=RowIds)
    _rows: list[Bools] = field(default_factory=list)
    _values: dict[int, Tensor] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """Number of distinct coalitions that have been evaluated."""
        return len(self._values)

    def states(self, rows: Bools) -> Ids:
        """State ids; each distinct coalition is a state."""
        ids, new = self._ids.add(rows)
        self._rows.extend(rows[new])
        return ids

    def values(self, states: Ids) -> Tensor:
        """Values of states; the function is called for those not evaluated yet."""
        new = [state for state in np.unique(states).tolist() if state not in self._values]
        if new:
            out = self.function(np.stack([self._rows[state] for state in new])).double()
            out = out[:, None] if out.dim() == 1 else out
            self._values.update(zip(new, out, strict=True))
        return torch.stack([self._values[state] for state in states.tolist()])


# Never refused, whatever `memory` says: about what importing a library takes.
LEAST_MEMORY = 64 * 2**20


def fitting_coalitions(game: Game, bytes_each: int) -> int:
    """Number of coalitions within the game's memory, at `bytes_each` per coalition and player."""
    if game.memory is None:
        return MOST
    return max(game.memory, LEAST_MEMORY) // max(1, game.players * bytes_each)


def fits_memory(memory: int | None, needed: int) -> bool:
    """Whether `memory` allows so many bytes; None: any number."""
    return memory is None or needed <= max(memory, LEAST_MEMORY)


def require_memory(memory: int | None, needed: int, coalitions: int, players: int) -> None:
    """Raise a BudgetError if coalitions need more bytes than `memory`."""
    if memory is None or fits_memory(memory, needed):
        return
    raise BudgetError(
        f"{coalitions:,} coalitions of {players:,} players take about {needed >> 20:,} MiB, "
        f"but memory= allows {memory >> 20:,} MiB; use fewer samples=, fewer players "
        f"(hops=, groups=, features=), or memory={needed:_}{see('memory')}"
    )


def empty_and_full(players: int) -> Bools:
    """The empty and the full coalition."""
    rows = np.zeros((2, players), dtype=bool)
    rows[1] = True
    return rows
