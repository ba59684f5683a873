"""Coalitions that were played, played again by plain calls on the whole graph.

An evaluator takes shortcuts: a cut-out field, many perturbed graphs in one batch, coalitions that
differ only where it cannot matter counted as one. Each holds or fails by coalition, so what is
compared is chosen from the coalitions of the game itself: the empty and the full one, those with
the least and the largest output, and others over all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphsvx.engine.stages import one_by_one
from graphsvx.engine.states import Bools
from graphsvx.engine.survey import Survey, matches, reference_stage
from graphsvx.errors import ModelError
from graphsvx.game import GraphGame, ends_of
from graphsvx.graph import Ids
from graphsvx.playing import Played


def holds(survey: Survey, games: Sequence[Played], seed: int) -> bool:
    """Whether the full coalition gave what was expected and replays give what was played."""
    if not survey.kept(games[-1].game.witness):
        return False
    rng = np.random.default_rng(seed)
    try:
        return all(_replayed(played, survey.replays, rng) for played in games)
    except ModelError:
        return False


def _replayed(played: Played, count: int, rng: np.random.Generator) -> bool:
    if not count:
        return True
    game = played.game
    coalitions = _chosen(played, count, rng)
    area, states = game.perturbed(coalitions)
    stage = reference_stage(game.query, area, rng)
    whole = game.query.kind == "graph"
    alone = one_by_one(game.query.model, game.query.graph, area, stage, states, whole)
    raw = game.raw(game.states(coalitions))
    return matches(game.query, area, stage, states, alone, raw.to(alone.device), game.played())


def _chosen(played: Played, count: int, rng: np.random.Generator) -> Bools:
    """Coalitions of a game: a few, or the ends, the extremes and `count` over all sizes."""
    game, rows = played.game, played.masks.rows
    ends = ends_of(game.players)
    if not len(rows):
        return ends
    extremes = _extremes(played)
    if count <= 2:
        return rows[[extremes[0], rng.integers(len(rows))]]
    if played.masks.exact:
        # Exact values speak of all coalitions, those that were not listed one by one too.
        rows = np.concatenate([rows, _random_coalitions(game, count, rng)])
    by_size = rows.sum(1).argsort(kind="stable")
    over_sizes = by_size[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
    return np.concatenate([ends, rows[np.unique(np.concatenate([over_sizes, extremes]))]])


def _extremes(played: Played) -> Ids:
    """Rows with the least and the largest value of each of the first outputs."""
    values: Tensor = played.values[2:, :4]
    return np.concatenate([values.argmin(0).numpy(), values.argmax(0).numpy()])


def _random_coalitions(game: GraphGame, count: int, rng: np.random.Generator) -> Bools:
    """Coalitions of random sizes."""
    return rng.random((count, game.players)) < rng.random((count, 1))
