"""Setup, play and proof of the games of a query."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from graphsvx.core.query import Query
from graphsvx.core.random import derive_rng
from graphsvx.engine.choose import run_verified
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.profile import profile_for
from graphsvx.errors import ModelError
from graphsvx.estimators import Estimator, Fit, Lasso
from graphsvx.games.separate import separate_games
from graphsvx.generators import GameSetup, Generator
from graphsvx.masks import Auto, Mask, Paired
from graphsvx.methods.increments import (
    MOST_AT_ONCE,
    AllCalls,
    Clock,
    ErrorBelow,
    Goal,
    Increments,
    RelativeErrorBelow,
    default_first_calls,
    first_of_many,
    measures_differences,
)
from graphsvx.methods.pipeline import (
    PlayableGame,
    PlayedGame,
    fit_all,
    play_all,
)
from graphsvx.methods.player_kinds import PlayerKind
from graphsvx.methods.replay import first_coalitions_agree, replays_agree
from graphsvx.methods.settings import Budget

# Coalitions that are replayed at least, and the share of a limit by the clock that they may take.
_FEWEST_REPLAYS, _SHARE_OF_REPLAYS, _SHARE_OF_FIRST_REPLAYS = 1, 0.25, 0.05


@dataclass(frozen=True, eq=False)
class PlayedGames:
    """The evaluated games of a query, with credit in each."""

    evaluator: Evaluator
    setup: GameSetup
    games: list[PlayedGame]
    """That of nodes (or edges) comes last and ends in the full prediction."""
    fits: list[Fit]
    outputs: tuple[int, ...]
    target: int
    finished: float
    """When the last increment ended; for limits by the clock only."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Who plays for a query, and the blocks and the budget of the games."""

    query: Query
    seed: int
    kind: PlayerKind
    generator: Generator
    mask: Mask
    estimator: Estimator
    budget: Budget

    @property
    def goal(self) -> Goal | None:
        """When calls end; None: after `samples`."""
        budget = self.budget
        if budget.tolerance is not None:
            return ErrorBelow(budget.tolerance)
        many = budget.seconds is None and (budget.samples or 0) > MOST_AT_ONCE
        if many and measures_differences(self.mask, self.estimator):
            return AllCalls()
        by_default = budget.samples is None and not isinstance(self.estimator, Lasso)
        return RelativeErrorBelow() if by_default or budget.seconds is not None else None

    @property
    def by_default(self) -> bool:
        """Whether the number of calls follows the games alone."""
        return isinstance(self.goal, RelativeErrorBelow) and self.budget.most_calls is None

    def play(self) -> PlayedGames:
        """Play by the fastest evaluator that passes its checks, before and after."""
        start, limit = time.monotonic(), self.budget.seconds
        profile = profile_for(self.query.model, self.query.graph)

        def run(evaluator: Evaluator) -> PlayedGames:
            clock = None
            if limit is not None:
                after, of_call = profile.seconds_after_games, profile.seconds_of_played
                clock = Clock(limit, start, after, of_call)
            in_time = limit is None or profile.seconds_of_replay < _SHARE_OF_FIRST_REPLAYS * limit
            setup, games = self.games(evaluator)
            rng = np.random.default_rng(self.seed)
            if in_time and not all(first_coalitions_agree(game, rng) for game in games):
                raise ModelError("batches of perturbed graphs give other outputs than plain calls")
            return self._play(evaluator, setup, games, clock)

        def holds(evaluator: Evaluator, result: PlayedGames) -> bool:
            replays = evaluator.checks.replays
            if limit is not None and replays:
                affordable = int(_SHARE_OF_REPLAYS * limit / max(profile.seconds_of_replay, 1e-9))
                replays = min(replays, max(_FEWEST_REPLAYS, affordable))
            began = time.monotonic()
            agree = replays_agree(evaluator.checks, replays, result.games, self.seed)
            profile.seconds_of_replay = (time.monotonic() - began) / max(replays, 1)
            return agree

        return run_verified(self.query, self.kind.hops, self.seed, run, holds)

    def _play(
        self, evaluator: Evaluator, setup: GameSetup, games: list[PlayableGame], clock: Clock | None
    ) -> PlayedGames:
        goal, began = self.goal, time.monotonic()
        calls = self.budget.first_calls
        if self.by_default:
            calls = default_first_calls(games, self.estimator)
        elif clock is not None:
            calls = clock.first_calls(games, calls)
        elif isinstance(goal, AllCalls):
            calls = first_of_many(games, calls)
        share = self.budget.feature_share
        played = play_all(
            games, self.mask, self.estimator, calls, share, self.seed, self.by_default
        )
        outputs, target = self.query.choose_outputs(played[-1].values[1])
        fits = fit_all(played, self.estimator, outputs)
        if goal is not None:
            increments = Increments(
                goal, self.mask, self.estimator, outputs, self.seed, self.budget.most_calls, clock
            )
            first = time.monotonic() - began
            played, fits = increments.play([replace(game, seconds=first) for game in played], fits)
        finished = time.monotonic()
        if clock is not None:
            profile = profile_for(self.query.model, self.query.graph)
            calls_made = sum(game.game.calls for game in played)
            profile.seconds_of_played = (finished - began) / max(calls_made, 1)
        return PlayedGames(evaluator, setup, list(played), fits, outputs, target, finished)

    def finish(self, played: PlayedGames) -> None:
        """Note how long all that followed the games took; for limits by the clock only."""
        profile = profile_for(self.query.model, self.query.graph)
        profile.seconds_after_games = time.monotonic() - played.finished

    def games(self, evaluator: Evaluator) -> tuple[GameSetup, list[PlayableGame]]:
        """The players and their games, not evaluated."""
        query = self.query
        setup = self.kind.setup(query, evaluator, self.seed)
        rows = getattr(self.generator, "feature_rows", "any")
        setup = replace(setup, keeps_features=rows == "own" and not setup.players.features)
        generator = self.generator.prepare(setup, derive_rng(self.seed, "paths"))
        looks_up = isinstance(self.mask, (Auto, Paired))
        calls = self.budget.first_calls
        return setup, separate_games(
            query, evaluator, setup, generator, self.mask.separate, looks_up, calls
        )
