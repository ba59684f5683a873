"""More calls for the games of an explanation, in rounds, until its errors are small enough."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from graphsvx.errors import BudgetError
from graphsvx.estimators.least_squares import Estimator, Fit
from graphsvx.games.graph_game import GraphGame
from graphsvx.games.lookup_game import LookupGame
from graphsvx.masks import Mask
from graphsvx.methods.pipeline import PlayableGame, PlayedGame, fit_all, play

logger = logging.getLogger("graphsvx")

FIRST_CALLS = 1000
"""Calls of the first round: games with no more distinct perturbed graphs are exact."""
MOST_CALLS = 10_000
"""Calls that a game is given by default at most."""
MOST_CALLS_OF_LOOK_UPS = 3000
"""Calls whose embeddings a game of look-ups is given by default at most."""
RELATIVE_ERROR = 0.01
"""Relative error below which no more calls are made by default."""
_MANY_PLAYERS = 28  # of look-ups, which need more than the usual number of them,
_CALLS_OF_MANY, _MOST_PLAYERS = 1500, 64  # and from which on they need as many as there may be
_WORK = 2.5e8  # below a second of known layers
_NODE_WORK, _EDGE_WORK = 24.0, 0.5
_LEAST_GROWTH, _MOST_GROWTH = 2.0, 16.0
_MARGIN = 1.3  # more calls than errors that fall as 1 / sqrt(calls) would need
_WORTH = 1.5  # by default, a round with fewer calls than this times those made is not worth its fit
_WORTH_WHERE_ASKED = 1.2  # the same where a limit of calls was given
_ONE_ROUND = 4.5  # times the calls of a first round: so many are made at once
_CALLS_A_PLAYER = 2  # with fewer, a first round is never enough
_SHARE_OF_TIME = 0.8


def default_calls(game: PlayableGame) -> int:
    """Most calls of a game by default; depends on the size of its field, not on the clock."""
    if not isinstance(game, GraphGame):
        return MOST_CALLS_OF_LOOK_UPS
    if game.evaluator.fallback is not None:
        return FIRST_CALLS  # one slow call after the other
    size = game.setup.field
    work = _NODE_WORK * size.size + _EDGE_WORK * len(size.inner_edges)
    return int(min(MOST_CALLS, max(FIRST_CALLS, _WORK / max(work, 1))))


def default_first_calls(games: Sequence[PlayableGame]) -> int:
    """Calls of the first round by default: all, where a second one would be needed or small."""
    if games and all(
        isinstance(game, LookupGame) and game.players >= _MANY_PLAYERS for game in games
    ):
        few = all(game.players < _MOST_PLAYERS for game in games)
        return _CALLS_OF_MANY if few else MOST_CALLS_OF_LOOK_UPS
    large = any(game.players * _CALLS_A_PLAYER > FIRST_CALLS for game in games)
    allowed = [default_calls(game) for game in games if isinstance(game, GraphGame)]
    most = min(allowed, default=FIRST_CALLS)
    return most if large or most <= _ONE_ROUND * FIRST_CALLS else FIRST_CALLS


class Goal(Protocol):
    """What error is small enough."""

    def needed(self, fits: Sequence[Fit]) -> list[float]:
        """For each game: how many times its calls are needed, if squared errors fall as 1 / calls;
        at most 1 where none are.
        """
        ...


@dataclass(frozen=True)
class ErrorBelow:
    """Every standard error is at most `tolerance`."""

    tolerance: float

    def needed(self, fits: Sequence[Fit]) -> list[float]:
        """By the largest error of each game; infinite where errors are not known."""
        worst = [float((fit.errors / self.tolerance).square().max()) if fit.errors.numel() else 0.0
                 for fit in fits]  # fmt: skip
        return [ratio if ratio == ratio else float("inf") for ratio in worst]  # noqa: PLR0124  (NaN)


@dataclass(frozen=True)
class RelativeErrorBelow:
    """The root of all squared errors over all squared credit is at most `limit`.

    Over all games and explained outputs: a game with little credit need not be known better.
    """

    limit: float = RELATIVE_ERROR

    def needed(self, fits: Sequence[Fit]) -> list[float]:
        """By each game's share of the error; 0 where errors are not known."""
        squares = [float(fit.errors.square().sum()) for fit in fits]
        allowed = self.limit**2 * sum(float(fit.values.square().sum()) for fit in fits)
        if allowed <= 0 or not all(square == square for square in squares):  # noqa: PLR0124  (NaN)
            return [0.0 for _ in fits]
        inexact = sum(square > 0 for square in squares)
        return [square * inexact / allowed for square in squares]


@dataclass(frozen=True)
class Clock:
    """A limit of time; with it the number of calls depends on the machine."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    def affordable(self, calls: int) -> int:
        """How many calls in all there is time for, if those made were typical."""
        elapsed = max(time.monotonic() - self.start, 1e-6)
        return int(calls * max(1.0, 1 + _SHARE_OF_TIME * (self.seconds - elapsed) / elapsed))


@dataclass(frozen=True, eq=False)
class Rounds:
    """How the games of an explanation go on."""

    goal: Goal
    mask: Mask
    estimator: Estimator
    outputs: Sequence[int]
    seed: int
    most: int | None = None
    """Calls of all games together; None: each has its `default_calls`."""
    clock: Clock | None = None

    def play(
        self, played: Sequence[PlayedGame], fits: Sequence[Fit]
    ) -> tuple[list[PlayedGame], list[Fit]]:
        """Play on, the game that needs it most first, until the goal or a limit is reached."""
        games, fits = list(played), list(fits)
        closed: set[int] = set()
        while True:
            needed = self.goal.needed(fits)
            i = max(range(len(games)), key=lambda k: (k not in closed, needed[k]), default=None)
            if i is None or i in closed or needed[i] <= 1:
                return games, fits
            budget = self._next_budget(games, i, needed[i])
            worth = _WORTH if self.most is None else _WORTH_WHERE_ASKED
            if games[i].masks.exact or budget < worth * games[i].budget:
                closed.add(i)
                continue
            try:
                most = self._allowed(games, i)
                next_game = play(games[i].game, self.mask, self.estimator, budget, self.seed, most)
            except BudgetError:  # more would not fit into memory
                closed.add(i)
                continue
            if next_game.budget <= games[i].budget:  # others than before, and not as many are left
                closed.add(i)
                continue
            games[i] = next_game
            fits[i] = fit_all([games[i]], self.estimator, self.outputs)[0]
            logger.info(
                "%s: %s calls, largest standard error %.3g", games[i].game.side,
                f"{games[i].game.calls:,}", float(fits[i].errors.max()),
            )  # fmt: skip

    def _allowed(self, games: list[PlayedGame], i: int) -> int:
        """Most calls of game i, with those already made."""
        if self.most is None:
            return default_calls(games[i].game)
        return self.most - sum(game.game.calls for k, game in enumerate(games) if k != i)

    def _next_budget(self, games: list[PlayedGame], i: int, needed: float) -> int:
        # Look-ups are cheap, and the fit to them is not.
        least = _WORTH if isinstance(games[i].game, LookupGame) else _LEAST_GROWTH
        growth = min(max(_MARGIN * needed, least), _MOST_GROWTH)
        budget = min(int(max(games[i].budget, 4) * growth), self._allowed(games, i))
        if self.clock is None:
            return budget
        calls = sum(game.game.calls for game in games)
        return min(budget, games[i].game.calls + self.clock.affordable(calls) - calls)


def calls_needed(goal: Goal, games: Sequence[PlayedGame], fits: Sequence[Fit]) -> int | None:
    """About how many calls would reach the goal; None: it is reached, or cannot be predicted."""
    needed = goal.needed(fits)
    if all(factor <= 1 for factor in needed) or float("inf") in needed:
        return None
    return sum(
        int(game.game.calls * max(factor, 1.0)) for game, factor in zip(games, needed, strict=True)
    )
