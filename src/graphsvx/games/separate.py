"""Separate games of features and nodes: the paper's relative efficiency.

Features play with the explained node isolated, nodes play with all features on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsvx.core.field import restrict
from graphsvx.core.perturbation import Perturbations, reachable
from graphsvx.core.players import Players
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.games.graph_game import GraphGame, Side
from graphsvx.games.lookup_game import LookupGame, lookup_game
from graphsvx.generators import GameSetup, Generator, Indirect, Isolate


def separate_games(
    query: Query,
    evaluator: Evaluator,
    setup: GameSetup,
    generator: Generator,
    separate: bool,
    looks_up: bool,
    calls: int,
) -> list[GraphGame | LookupGame]:
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
    games: list[GraphGame | LookupGame] = []
    for game in _games(query, evaluator, setup, generator, separate, looks_up):
        coalitions = 1 << min(game.players, 62)
        few = coalitions <= min(calls, evaluator.checks.plain_up_to)
        if few and not evaluator.checks.proved and isinstance(game, GraphGame):
            calls -= coalitions
            games.append(_by_definition(game))
        else:
            games.append(game)
    return games


def _by_definition(game: GraphGame) -> GraphGame:
    setup = game.full_setup or game.setup
    return replace(game, evaluator=game.evaluator.by_definition(), setup=setup, full_setup=None)


def _games(
    query: Query,
    evaluator: Evaluator,
    setup: GameSetup,
    generator: Generator,
    separate: bool,
    looks_up: bool,
) -> list[GraphGame | LookupGame]:
    def game(side: Side) -> GraphGame | LookupGame:
        if looks_up:
            by_look_ups = lookup_game(query, evaluator, setup, generator, side)
            if by_look_ups is not None:
                return by_look_ups
        return GraphGame(query, evaluator, setup, generator, side, rest_on=side == "nodes")

    players = setup.players
    if players.edges:
        return [game("edges")]
    if players.features and not players.nodes:
        return [game("features")]
    if not separate and players.features:
        return [game("joint")]
    games: list[GraphGame | LookupGame] = []
    if players.features and not (generator == Isolate() or isinstance(generator, Indirect)):
        games.append(game("features"))
    elif players.features:
        # All nodes are off, so there is no indirect effect.
        alone = _setup_without_nodes(setup, evaluator)
        games.append(
            GraphGame(query, evaluator, alone, Isolate(), "features", False, full_setup=setup)
        )
    return [*games, game("nodes")]


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
