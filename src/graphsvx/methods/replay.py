"""Coalitions that were evaluated, evaluated again by plain calls on the whole graph.

An evaluator takes shortcuts: a cut-out field, many perturbed graphs in one batch, coalitions that
differ only where it cannot matter counted as one. Each holds or fails by coalition, so what is
compared is chosen from the coalitions of the game itself: the empty and the full one, those with
the least and the largest output, and others over all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids, by_size, row_sizes
from graphsvx.core.field import Field
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.row_ids import RowIds
from graphsvx.engine.checks import equals_plain_calls
from graphsvx.engine.evaluator import Checks
from graphsvx.errors import ModelError
from graphsvx.games.base import empty_and_full
from graphsvx.games.graph_game import GraphGame
from graphsvx.masks.base import all_rows
from graphsvx.methods.pipeline import PlayableGame, PlayedGame
from graphsvx.utils.given_up import give_up

FEW = 4
"""Coalitions of all sizes that are replayed where plain calls are costly."""
FIRST = 2
"""Coalitions of each game that are compared before it is played."""
LATER = 2
"""Coalitions that are replayed at least, where the first explanation replays more."""


def replays_agree(checks: Checks, replays: int, games: Sequence[PlayedGame], seed: int) -> bool:
    """Whether the full coalition has the expected output, and replays those of plain calls."""
    last = games[-1].game
    played_outputs = None if last.full_output is None else last.played()
    if not checks.matches(last.full_output, played_outputs):
        return False
    if not replays:
        return True
    rng = np.random.default_rng(seed)
    for played in games:
        if not played.game.evaluator.checks.replays:  # it was evaluated by the definition
            continue
        coalitions = _coalitions_to_replay(played, replays, rng)
        if not coalitions_agree(played.game, coalitions, rng):
            return False
        replayed = min(LATER, len(coalitions)) if checks.replays_vary else len(coalitions)
        played.game.replayed += replayed
    return True


def coalitions_agree(game: PlayableGame, coalitions: Bools, rng: np.random.Generator) -> bool:
    """Whether plain calls give the outputs that the game has for these coalitions."""
    try:
        return _equals_plain_calls(game, coalitions, rng)
    except ModelError as error:
        give_up("coalitions could not be evaluated again by plain calls", error)
        return False


def first_coalitions_agree(game: PlayableGame, rng: np.random.Generator) -> bool:
    """Whether two coalitions have the outputs of plain calls, before a game is played at all.

    An evaluator that fails on most coalitions is left before it has cost a whole game.
    """
    evaluator = game.evaluator
    if evaluator.checks.proved or not evaluator.checks.replays:
        return True
    if not game.players or not isinstance(game, GraphGame) or game.query.graph.has_types:
        return True
    field, perturbations = game.perturbed(_random_coalitions(game, FIRST, rng))
    out = evaluator.evaluate(field, perturbations)
    game.replayed = FIRST
    return _agree(game, field, perturbations, out, out, rng)


def _equals_plain_calls(game: PlayableGame, coalitions: Bools, rng: np.random.Generator) -> bool:
    field, perturbations = game.perturbed(coalitions)
    raw = game.raw(game.states(coalitions))
    return _agree(game, field, perturbations, raw, game.played(), rng)


def _agree(
    game: PlayableGame,
    field: Field,
    perturbations: Perturbations,
    raw: Tensor,
    like: Tensor,
    rng: np.random.Generator,
) -> bool:
    """Whether raw outputs are those of plain calls; `like`: all of the game, for their scale."""
    plain = game.evaluator.plain(field, rng)
    outputs = plain.evaluate(field, perturbations)
    return equals_plain_calls(plain, field, perturbations, outputs, raw.to(outputs.device), like)


def _coalitions_to_replay(played: PlayedGame, count: int, rng: np.random.Generator) -> Bools:
    """A few coalitions of a game, or both ends, the extremes and `count` of all sizes.

    Where plain calls are costly, only the empty one and the extremes of the first output: the full
    one is compared anyway, and others were before the game was played.
    """
    game, rows = played.game, played.masks.rows
    ends = empty_and_full(game.players)
    if not len(rows):
        return ends
    costly = count <= FEW
    extremes = _extremes(played, outputs=1 if costly else 4)
    ends = ends[:1] if costly else ends
    if count <= LATER:
        return rows[[extremes[0], rng.integers(len(rows))][:count]]
    always = np.concatenate([ends, rows[extremes]])
    if costly and game.replayed:
        return _distinct(always)
    if played.masks.exact:
        # Exact values follow from all coalitions, also those that share a state with another one.
        # Each once: of few players, none may be left out because others come twice.
        few = game.players < count.bit_length()
        others = all_rows(game.players) if few else _random_coalitions(game, count, rng)
        rows = _distinct(np.concatenate([rows, others]))
    order = by_size(row_sizes(rows), game.players)
    over_sizes = np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)
    return _distinct(np.concatenate([always, rows[order[over_sizes]]]))


def _distinct(rows: Bools) -> Bools:
    _, first = RowIds().add(rows)
    return rows[first]


def _extremes(played: PlayedGame, outputs: int) -> Ids:
    """Coalitions with the smallest and the largest value of each of the first outputs."""
    values: Tensor = played.values[2:, :outputs]
    return np.concatenate([values.argmin(0).numpy(), values.argmax(0).numpy()])


def _random_coalitions(game: PlayableGame, count: int, rng: np.random.Generator) -> Bools:
    """Coalitions of random sizes."""
    return rng.random((count, game.players)) < rng.random((count, 1))
