"""The games of an explanation; on whole graphs they may be look-ups of node embeddings.

Look-ups are those of `engine.states`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids
from graphsvx.core.field import Perturbations, reachable, restrict
from graphsvx.core.players import Players
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.pooled import NodeEmbeddings
from graphsvx.engine.states import Lookup, States
from graphsvx.games.base import LEAST_MEMORY
from graphsvx.games.graph_game import GraphGame, Side
from graphsvx.generators import GameSetup, Generator, Indirect, Isolate

LOOK_UPS = 44
"""Coalitions that are looked up for each model call of the budget,"""
MOST_LOOK_UPS = 132
"""and if these are all that there are."""


@dataclass(eq=False)
class LookupGame(GraphGame):
    """Game over the nodes or edges of a whole graph whose coalitions are look-ups.

    A model call on the whole graph gives an embedding of each node; the budget bounds the
    embeddings accordingly.
    """

    lookup: Lookup = field(kw_only=True)
    looks_up: ClassVar[bool] = True
    budget: int = 0
    """Model calls that are allowed, with those that have been made."""
    _states_evaluated: int = 0

    @property
    def calls(self) -> int:
        """Embeddings that were computed, in whole graphs."""
        return -(-self._states_evaluated // max(1, self.setup.field.size))

    @property
    def looked_up(self) -> int:
        """Number of coalitions that have been looked up."""
        return int(self._evaluated.sum())

    def coalitions_for(self, budget: int) -> list[int]:
        """Numbers of coalitions to try, fewer and fewer, for a budget of model calls."""
        self.budget = budget
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

    def _evaluate(self, new: Ids, requested: Bools) -> None:
        looked_up = np.flatnonzero(requested & self._evaluated)
        if len(new) < len(looked_up):
            looked_up = looked_up[:0]  # a few: not worth to tell whose states are known
        rows = self._rows[np.concatenate([looked_up, new])]
        self._store(new, self._look_up(rows, len(looked_up))[:, None])

    def embeddings(self, rows: Bools) -> NodeEmbeddings:
        """Embeddings of the nodes in coalitions; a TooManyStatesError beyond the budget."""
        limit = self.budget * self.setup.field.size
        embedded = self.lookup.embeddings(self.perturbed(rows)[1], limit)
        self._states_evaluated += embedded.new
        return embedded

    def _look_up(self, rows: Bools, looked_up: int) -> Tensor:
        """Outputs of all rows but the first ones, which have been `looked_up`."""
        block = self.lookup.states.block(max(self.memory, LEAST_MEMORY))
        if len(rows) > block:
            rows, looked_up = rows[looked_up:], 0
        size = max(1, self.setup.field.size)
        # A few coalitions are never more than the budget: replays, sets of players.
        limit = len(rows) * size * 64
        if len(rows) > self.budget:
            limit = self.budget * size - self._states_evaluated
        outputs = []
        for first in range(0, len(rows), block):
            _, perturbations = self.perturbed(rows[first : first + block])
            out, new = self.lookup(perturbations, limit, looked_up)
            self._states_evaluated += new
            limit -= new
            outputs.append(out.cpu())
        return torch.cat(outputs)

    def _relevant(self, rows: Bools) -> list[Bools]:
        """Each distinct coalition is a state."""
        return [rows]


# Separate games of features and nodes: the paper's relative efficiency. Features play with the
# explained node isolated, nodes play with all features on.


def separate_games(
    query: Query,
    evaluator: Evaluator,
    setup: GameSetup,
    generator: Generator,
    separate: bool,
    looks_up: bool,
    calls: int,
) -> list[GraphGame]:
    """The games of a setup; the last one, of nodes or edges, ends in the full prediction.

    Games whose coalitions fit the `calls` are evaluated by the definition where they are few and
    shortcuts are not proved.

    Args:
        query: what is explained.
        evaluator: what perturbed graphs are evaluated by.
        setup: the players.
        generator: what switches them off.
        separate: two games, not one over features and nodes.
        looks_up: coalitions of whole graphs may be look-ups.
        calls: model calls for all games together.

    """

    def game(side: Side) -> GraphGame:
        lookup = evaluator.lookup if looks_up and isinstance(evaluator, States) else None
        settings = (query, evaluator, setup, generator, side)
        if lookup is not None and side in ("nodes", "edges"):
            return LookupGame(*settings, rest_on=True, lookup=lookup)
        return GraphGame(*settings, rest_on=side == "nodes")

    players, games = setup.players, list[GraphGame]()
    if players.edges:
        games = [game("edges")]
    elif players.features and not players.nodes:
        games = [game("features")]
    elif players.features and not separate:
        games = [game("joint")]
    else:
        if players.features and (generator == Isolate() or isinstance(generator, Indirect)):
            # All nodes are off, so there is no indirect effect.
            alone = _setup_without_nodes(setup, evaluator)
            games.append(
                GraphGame(
                    query, evaluator, alone, Isolate(), "features", rest_on=False, full_setup=setup
                )
            )
        elif players.features:
            games.append(game("features"))
        games.append(game("nodes"))
    for place, listed in enumerate(games):
        coalitions = 1 << min(listed.players, 62)
        few = coalitions <= min(calls, evaluator.checks.plain_up_to)
        if few and not evaluator.checks.proved and not listed.looks_up:
            calls -= coalitions
            plain, full_setup = evaluator.by_definition(), listed.full_setup or setup
            games[place] = replace(listed, evaluator=plain, setup=full_setup, full_setup=None)
    return games


def _setup_without_nodes(setup: GameSetup, evaluator: Evaluator) -> GameSetup:
    """The setup of features with all node players off: only nodes that still reach a centre."""
    if not evaluator.local:
        return setup
    field = setup.field
    on = np.ones((1, field.size), dtype=bool)
    on[:, setup.players.node_members] = False
    live = reachable(Perturbations(on, None, setup.graph.x[:0]), field, evaluator.depth)[0]
    left = restrict(field, np.flatnonzero(live))
    features = Players(setup.players.feature_members, setup.players.feature_owner)
    return replace(setup, field=left, players=features)
