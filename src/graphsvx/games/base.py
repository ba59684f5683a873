"""The interface of a cooperative game, and a game given by a function of coalitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


@dataclass(eq=False)
class StoredGame(ABC):
    """Base of games that evaluate each state once; nothing is known of their structure."""

    _ids: RowIds = field(default_factory=RowIds, kw_only=True)
    _rows: Bools = field(default_factory=lambda: np.zeros((0, 0), dtype=bool), kw_only=True)
    """A coalition of each state, with room for more."""
    _evaluated: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool), kw_only=True)
    """Which states have been evaluated."""
    _values: Tensor | None = field(default=None, kw_only=True)
    """Values of states, [states, outputs]."""

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

    @property
    def calls(self) -> int:
        """Number of distinct states that have been evaluated."""
        return int(self._evaluated.sum())

    def states(self, rows: Bools) -> Ids:
        """State ids of coalitions [coalitions, M]; each distinct one is a state."""
        return self._number(rows, rows)

    def values(self, states: Ids) -> Tensor:
        """Values of states, [states, outputs]; those not known yet are evaluated."""
        requested = np.zeros(len(self._ids), dtype=bool)
        requested[states] = True
        new = np.flatnonzero(requested & ~self._evaluated)
        if len(new):
            self._evaluate(new, requested)
        if self._values is None:
            raise RuntimeError("no state has been asked for yet")
        return self._values.index_select(0, torch.from_numpy(states))

    @abstractmethod
    def _evaluate(self, new: Ids, requested: Bools) -> None:
        """Store values of `new` states, among all that are `requested`."""

    def _number(self, rows: Bools, *parts: Bools) -> Ids:
        """State ids of coalitions, told apart by rows of `parts`."""
        ids, new = self._ids.add(*parts)
        before, count = len(self._evaluated), len(self._ids)
        if count > len(self._rows):  # twice as many each time: few rows are copied twice
            rows_before = self._rows[:before]
            self._rows = np.zeros((2 * count, rows.shape[1]), dtype=bool)
            self._rows[:before] = rows_before.reshape(before, rows.shape[1])
        if len(new):
            self._rows[before:count] = rows[new]
        self._evaluated = np.pad(self._evaluated, (0, len(new)))
        return ids

    def _with(self, before: Tensor | None, states: Ids, new: Tensor) -> Tensor:
        """A row for each state, with new ones for some."""
        values = new.new_zeros(len(self._ids), *new.shape[1:])
        if before is not None:
            values[: len(before)] = before
        values[torch.from_numpy(states)] = new
        return values


@dataclass(eq=False)
class FunctionGame(StoredGame):
    """A game given by a function of coalitions [coalitions, M] -> values."""

    function: Callable[[Bools], Tensor]
    players: int
    memory: ClassVar[int | None] = None
    probabilities: ClassVar[bool] = False

    def _evaluate(self, new: Ids, requested: Bools) -> None:  # noqa: ARG002  (only new ones)
        out = self.function(self._rows[new]).double()
        self._values = self._with(self._values, new, out[:, None] if out.dim() == 1 else out)
        self._evaluated[new] = True


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
