"""The game on a whole graph, played by look-ups of node embeddings (`engine.states`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids
from graphsvx.core.field import Field
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Query
from graphsvx.core.row_ids import RowIds
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.pooled import NodeEmbeddings
from graphsvx.engine.states import Lookup, States
from graphsvx.games.base import LEAST_MEMORY, PlayerPrior, empty_and_full
from graphsvx.generators.base import GameSetup, Generator

LOOK_UPS = 44
"""Coalitions that are looked up for each model call of the budget,"""
MOST_LOOK_UPS = 132
"""and if these are all that there are."""


@dataclass(eq=False)
class LookupGame:
    """Game over the nodes or edges of a whole graph whose coalitions are look-ups.

    A model call on the whole graph gives an embedding of each node; the budget bounds the
    embeddings accordingly.
    """

    query: Query
    evaluator: Evaluator
    lookup: Lookup
    setup: GameSetup
    generator: Generator
    side: str
    _budget: int = 0
    _states_evaluated: int = 0
    _rows: list[Bools] = field(default_factory=list)
    _ids: RowIds = field(default_factory=RowIds)
    _raw: Tensor | None = None
    _evaluated: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    _end_states: Ids | None = None
    full_output: Tensor | None = None
    """Raw output of the full coalition, [1, outputs]."""
    replayed: int = 0
    """Coalitions for which plain calls gave the same outputs, after the game was played."""

    @property
    def players(self) -> int:
        """M."""
        players = self.setup.players
        return players.edges if self.side == "edges" else players.nodes

    @property
    def memory(self) -> int:
        """Bytes that coalitions and their values may take."""
        return self.query.memory

    @property
    def calls(self) -> int:
        """Embeddings that were computed, in whole graphs."""
        return -(-self._states_evaluated // max(1, self.setup.field.size))

    @property
    def looked_up(self) -> int:
        """Number of coalitions that have been looked up."""
        return int(self._evaluated.sum())

    def start(self, budget: int) -> None:
        """Allow so many model calls, with those that have been made."""
        self._budget = budget

    def coalitions_for(self, budget: int) -> list[int]:
        """Numbers of coalitions to try, fewer and fewer, for a budget of model calls."""
        self.start(budget)
        # Estimators hold coalitions as float64, some of them twice.
        memory = max(self.memory, LEAST_MEMORY)
        most = max(budget, memory // (32 * max(1, self.players)))
        all_coalitions = 1 << min(self.players, 62)
        fits = all_coalitions <= budget * MOST_LOOK_UPS
        look_ups = all_coalitions if fits else budget * LOOK_UPS
        steps = [min(look_ups, most)]
        while steps[-1] > 8 * budget:
            steps.append(steps[-1] // 2)
        return steps

    def states(self, rows: Bools) -> Ids:
        """State ids; each distinct coalition is a state."""
        ids, new = self._ids.add(rows)
        if len(new):
            self._rows.append(rows[new])
            self._evaluated = np.concatenate([self._evaluated, np.zeros(len(new), dtype=bool)])
        return ids

    def end_states(self) -> Ids:
        """State ids of the empty and the full coalition."""
        if self._end_states is None:
            self._end_states = self.states(empty_and_full(self.players))
        return self._end_states

    def record_output_of(self, state: int) -> None:
        """The output of the full coalition is recorded anyway."""

    def values(self, states: Ids) -> Tensor:
        """Scores of states, [states, outputs], float64."""
        return self.query.scores(self.raw(states))

    def raw(self, states: Ids) -> Tensor:
        """Raw outputs of states, [states, 1, outputs]."""
        requested = np.zeros(len(self._ids), dtype=bool)
        requested[states] = True
        new = np.flatnonzero(requested & ~self._evaluated)
        if len(new):
            looked_up = np.flatnonzero(requested & self._evaluated)
            if len(new) < len(looked_up):
                looked_up = looked_up[:0]  # a few: not worth to tell whose states are known
            self._rows = [np.concatenate(self._rows)]
            all_states = np.concatenate([looked_up, new])
            out = self._look_up(self._rows[0][all_states], len(looked_up))
            if self._raw is None or len(self._raw) < len(requested):
                grown = out.new_zeros(len(requested), out.shape[1])
                if self._raw is not None:
                    grown[: len(self._raw)] = self._raw
                self._raw = grown
            self._raw[torch.from_numpy(new)] = out
            self._evaluated[new] = True
            full = int(self.end_states()[1])
            if self._evaluated[full]:
                self.full_output = self._raw[full, None]
        return cast(Tensor, self._raw).index_select(0, torch.from_numpy(states))[:, None]

    def embeddings(self, rows: Bools) -> NodeEmbeddings:
        """Embeddings of the nodes in coalitions; a TooManyStatesError beyond the budget."""
        limit = self._budget * self.setup.field.size
        embedded = self.lookup.embeddings(self._perturbations(rows), limit)
        self._states_evaluated += sum(len(table) for table in embedded.tables[0])
        return embedded

    def _look_up(self, rows: Bools, looked_up: int) -> Tensor:
        """Outputs of all rows but the first ones, which have been `looked_up`."""
        block = self.lookup.states.block(max(self.memory, LEAST_MEMORY))
        if len(rows) > block:
            rows, looked_up = rows[looked_up:], 0
        size = max(1, self.setup.field.size)
        # A few coalitions are never more than the budget: replays, sets of players.
        limit = len(rows) * size * 64
        if len(rows) > self._budget:
            limit = self._budget * size - self._states_evaluated
        outputs = []
        for first in range(0, len(rows), block):
            perturbations = self._perturbations(rows[first : first + block])
            result = self.lookup(perturbations, limit, looked_up)
            self._states_evaluated += result.states
            limit -= result.states
            outputs.append(result.outputs.cpu())
        return torch.cat(outputs)

    def played(self) -> Tensor:
        """Raw outputs of all states that have been looked up."""
        raw = cast(Tensor, self._raw)
        return raw[torch.from_numpy(self._evaluated[: len(raw)])][:, None]

    def perturbed(self, rows: Bools) -> tuple[Field, Perturbations]:
        """The perturbed graphs of coalitions as the generator makes them."""
        return self.setup.field, self._perturbations(rows)

    def _perturbations(self, rows: Bools) -> Perturbations:
        features = np.ones((len(rows), self.setup.players.features), dtype=bool)
        return self.generator(self.setup, features, rows)

    def player_edges(self) -> Bools | None:
        """None: the score depends on all nodes."""
        return None

    def player_prior(self) -> PlayerPrior | None:
        """None: nothing is known about the players beforehand."""
        return None

    @property
    def probabilities(self) -> bool:
        """Whether the explained scores are on the scale of probabilities."""
        return self.query.model.scale == "probability"

    @property
    def reach(self) -> int | None:
        """None: the score depends on all nodes."""
        return None


def lookup_game(
    query: Query, evaluator: Evaluator, setup: GameSetup, generator: Generator, side: str
) -> LookupGame | None:
    """The game of these players by look-ups; None for models without a pooled head."""
    lookup = evaluator.lookup if isinstance(evaluator, States) else None
    if lookup is None or side not in ("nodes", "edges"):
        return None
    return LookupGame(query, evaluator, lookup, setup, generator, side)
