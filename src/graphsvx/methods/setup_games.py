"""The games of a query for GraphSVX: its players and generator, ready to be evaluated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsvx.core.field import restrict
from graphsvx.core.perturbation import Perturbations, reachable
from graphsvx.core.players import Players
from graphsvx.core.query import Query
from graphsvx.core.random import derive_rng
from graphsvx.engine.evaluator import Evaluator
from graphsvx.games.graph_game import GraphGame, Side
from graphsvx.games.lookup_game import lookup_game
from graphsvx.generators import GameSetup, Generator, Indirect, Isolate
from graphsvx.generators.base import GeneratorSetting
from graphsvx.masks import Auto, Mask, Paired
from graphsvx.methods.pipeline import PlayableGame
from graphsvx.methods.player_kinds import PlayerKind


def setup_games(
    query: Query, evaluator: Evaluator, kind: PlayerKind, generator: GeneratorSetting, mask: Mask,
    seed: int, calls: int,
) -> tuple[GameSetup, list[PlayableGame]]:  # fmt: skip
    """The players of a query and their games; that of nodes (or edges) comes last.

    Without a `generator`, that of the kind of players is used. Games whose coalitions fit `calls`
    are evaluated by the definition where they are few and shortcuts are not proved.
    """
    block = kind.generator if generator is None else generator
    setup = kind.setup(query, evaluator, seed)
    rows = getattr(block, "feature_rows", "any")
    setup = replace(setup, keeps_features=rows == "own" and not setup.players.features)
    prepared = block.prepare(setup, derive_rng(seed, "paths"))
    games: list[PlayableGame] = []
    for game in _games(query, evaluator, setup, prepared, mask):
        coalitions = 1 << min(game.players, 62)
        few = coalitions <= min(calls, evaluator.checks.plain_up_to)
        if few and not evaluator.checks.proved and isinstance(game, GraphGame):
            calls -= coalitions
            games.append(_by_definition(game))
        else:
            games.append(game)
    return setup, games


def _by_definition(game: GraphGame) -> GraphGame:
    setup = game.full_setup or game.setup
    return replace(game, evaluator=game.evaluator.by_definition(), setup=setup, full_setup=None)


def _games(
    query: Query, evaluator: Evaluator, setup: GameSetup, generator: Generator, mask: Mask
) -> list[PlayableGame]:
    """The games to evaluate; the last one ends in the full prediction."""

    def game(side: Side) -> PlayableGame:
        if isinstance(mask, (Auto, Paired)):
            by_look_ups = lookup_game(query, evaluator, setup, generator, side)
            if by_look_ups is not None:
                return by_look_ups
        return GraphGame(query, evaluator, setup, generator, side, rest_on=side == "nodes")

    players = setup.players
    if players.edges:
        return [game("edges")]
    if players.features and not players.nodes:
        return [game("features")]
    if not mask.separate and players.features:
        return [game("joint")]
    games: list[PlayableGame] = []
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
