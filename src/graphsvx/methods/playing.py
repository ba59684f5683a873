"""Setup, play and proof of the games of a query.

An evaluator takes shortcuts: a cut-out field, many perturbed graphs in one batch, coalitions that
differ only where it cannot matter counted as one. Each holds or fails by coalition, so some are
evaluated again by plain calls on the whole graph, chosen from the coalitions of the game itself:
the empty and the full one, those with the least and the largest output, and others over all sizes.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids, RowIds, by_size, derive_rng, row_sizes
from graphsvx.core.query import Query
from graphsvx.engine.choose import run_verified
from graphsvx.engine.evaluator import Checks, Evaluator, equals_plain_calls
from graphsvx.engine.profile import profile_for
from graphsvx.errors import ModelError
from graphsvx.games.base import empty_and_full
from graphsvx.games.lookup_game import separate_games
from graphsvx.generators import Generator, trait
from graphsvx.masks import Auto, Paired, all_rows
from graphsvx.methods.increments import FIRST_CALLS, Budget, Clock, Goal, Increments, first_calls
from graphsvx.methods.pipeline import FittedGame, PlayableGame, PlayedGame, Prediction, Sampling
from graphsvx.methods.player_kinds import PlayerKind
from graphsvx.utils.context import give_up


@dataclass(frozen=True, eq=False)
class PlayedGames:
    """The evaluated games of a query, with credit in each."""

    prediction: Prediction
    games: list[FittedGame]
    """That of nodes (or edges) comes last and ends in the full prediction."""
    clock: Clock


@dataclass(frozen=True, eq=False)
class Plan:
    """Who plays for a query, and the blocks and the budget of the games."""

    query: Query
    kind: PlayerKind
    generator: Generator
    sampling: Sampling
    budget: Budget

    @property
    def seed(self) -> int:
        """What random numbers are made from."""
        return self.sampling.seed

    @property
    def goal(self) -> Goal:
        """When calls end."""
        return self.budget.goal(self.sampling)

    @property
    def by_default(self) -> bool:
        """Whether the games themselves tell how many calls are made."""
        return self.budget.most_calls is None and not self.sampling.selective

    def play(self) -> PlayedGames:
        """Play by the fastest evaluator that passes its checks, before and after."""
        profile = profile_for(self.query.model, self.query.graph)
        clock = Clock(self.budget.seconds or math.inf, profile, time.monotonic())

        def run(evaluator: Evaluator) -> PlayedGames:
            games, rng = self.games(evaluator), np.random.default_rng(self.seed)
            if clock.compares_first and not all(
                first_coalitions_agree(game, rng) for game in games
            ):
                raise ModelError("batches of perturbed graphs give other outputs than plain calls")
            return self._play(evaluator, games, clock)

        def holds(evaluator: Evaluator, played: PlayedGames) -> bool:
            replays, began = clock.replays(evaluator.checks.replays), time.monotonic()
            agree = replays_agree(evaluator.checks, replays, played.games, self.seed)
            clock.note_replays(began, replays)
            return agree

        return run_verified(self.query, self.kind.hops, self.seed, run, holds)

    def games(self, evaluator: Evaluator) -> list[PlayableGame]:
        """The games of the players, not evaluated."""
        setup = self.kind.setup(self.query, evaluator, self.seed)
        keeps_rows = trait(self.generator, "feature_rows") == "own"
        setup = replace(setup, keeps_features=keeps_rows and not setup.players.features)
        ready, mask = (
            self.generator.prepare(setup, derive_rng(self.seed, "paths")),
            self.sampling.mask,
        )
        looks_up, calls = isinstance(mask, (Auto, Paired)), self.budget.first_calls
        return separate_games(self.query, evaluator, setup, ready, mask.separate, looks_up, calls)

    def _play(self, evaluator: Evaluator, games: list[PlayableGame], clock: Clock) -> PlayedGames:
        budget, sampling, began = self.budget, self.sampling, time.monotonic()
        calls = self._first_calls(games, clock)
        played = sampling.play_all(games, calls, budget.feature_share, self.by_default)
        prediction = Prediction.of(self.query, evaluator, played[-1].values[1])
        outputs, most = prediction.outputs, budget.most_calls
        fitted = sampling.fit_all(played, outputs)
        seconds = time.monotonic() - began
        fitted = [replace(game, seconds=seconds) for game in fitted]
        fitted = Increments(fitted, self.goal, sampling, outputs, clock, most).play()
        clock.note_games(began, sum(game.game.calls for game in fitted))
        return PlayedGames(prediction, fitted, clock)

    def _first_calls(self, games: list[PlayableGame], clock: Clock) -> int:
        """Calls of the first increment, summed over games."""
        calls = self.budget.first_calls
        if self.by_default:
            return first_calls(games, self.sampling)
        if self.budget.seconds is not None:
            return clock.first_calls(games, calls)
        if self.goal == Goal():  # all at once only where that makes a game exact
            at_once = any(game.looks_up or Auto().exact_within(game, calls) for game in games)
            return calls if at_once else FIRST_CALLS
        return calls


# --- coalitions that are evaluated again ---------------------------------------------------

FEW = 4  # coalitions of all sizes that are replayed where plain calls are costly
FIRST = 2  # coalitions of each game that are compared before it is played
LATER = 2  # coalitions that are replayed at least, where the first explanation replays more


def first_coalitions_agree(game: PlayableGame, rng: np.random.Generator) -> bool:
    """Whether two coalitions have the outputs of plain calls, before a game is played at all.

    An evaluator that fails on most coalitions is left before it has cost a whole game.
    """
    evaluator = game.evaluator
    if evaluator.checks.proved or not evaluator.checks.replays:
        return True
    if not game.players or game.looks_up or game.query.graph.has_types:
        return True
    coalitions = _random_coalitions(game, FIRST, rng)
    out = evaluator.evaluate(*game.perturbed(coalitions))
    game.replayed = FIRST
    return _equals_plain_calls(game, coalitions, rng, out, out)


def replays_agree(checks: Checks, replays: int, games: list[FittedGame], seed: int) -> bool:
    """Whether the full coalition has the expected output, and replays those of plain calls."""
    last = games[-1].game
    played_outputs = None if last.full_output is None else last.played()
    if not checks.matches(last.full_output, played_outputs):
        return False
    rng = np.random.default_rng(seed)
    for played in games:
        if not replays or not played.game.evaluator.checks.replays:
            continue  # it was evaluated by the definition
        coalitions = _coalitions_to_replay(played, replays, rng)
        if not coalitions_agree(played.game, coalitions, rng):
            return False
        replayed = min(LATER, len(coalitions)) if checks.replays_vary else len(coalitions)
        played.game.replayed += replayed
    return True


def coalitions_agree(game: PlayableGame, coalitions: Bools, rng: np.random.Generator) -> bool:
    """Whether plain calls give the outputs that the game has for these coalitions."""
    try:
        raw = game.raw(game.states(coalitions))
        return _equals_plain_calls(game, coalitions, rng, raw, game.played())
    except ModelError as error:
        give_up("coalitions could not be evaluated again by plain calls", error)
        return False


def _equals_plain_calls(
    game: PlayableGame, coalitions: Bools, rng: np.random.Generator, raw: Tensor, like: Tensor
) -> bool:
    """Whether raw outputs are those of plain calls; `like`: all of the game, for their scale."""
    field, perturbations = game.perturbed(coalitions)
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
    values = played.values[2:, : 1 if costly else 4]
    extremes: Ids = np.concatenate([values.argmin(0).numpy(), values.argmax(0).numpy()])
    if count <= LATER:
        return rows[[extremes[0], rng.integers(len(rows))][:count]]
    always = np.concatenate([ends[:1] if costly else ends, rows[extremes]])
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


def _random_coalitions(game: PlayableGame, count: int, rng: np.random.Generator) -> Bools:
    return rng.random((count, game.players)) < rng.random((count, 1))
