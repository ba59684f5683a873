"""More calls for the games of an explanation, in increments, until its errors are small enough."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from graphsvx.core.arrays import Bools, Floats
from graphsvx.engine.states import TooManyStatesError
from graphsvx.errors import BudgetError
from graphsvx.estimators.differences import (
    Differences,
    corrected,
    expected_errors,
    measure,
    players_to_measure,
)
from graphsvx.estimators.gaussian_process import GaussianProcess
from graphsvx.estimators.least_squares import Estimator, Fit
from graphsvx.games.graph_game import FEWEST_LOOK_UPS, GraphGame
from graphsvx.games.lookup_game import LookupGame
from graphsvx.masks import Auto, Mask, Paired
from graphsvx.masks.exact import exact_within
from graphsvx.methods.pipeline import PlayableGame, PlayedGame, fit_all, play
from graphsvx.utils.components import components
from graphsvx.utils.given_up import give_up
from graphsvx.utils.interruption import stop_if_unwanted

logger = logging.getLogger("graphsvx")

FIRST_CALLS = 1000
"""Calls of the first increment: games with no more distinct perturbed graphs are exact."""
MOST_CALLS = 10_000
"""Calls that a game is given by default at most."""
MOST_CALLS_OF_LOOK_UPS = 3000
"""Calls whose embeddings a game of look-ups is given by default at most."""
MOST_CALLS_OF_DIFFERENCES = 30_000
"""Calls that a game is given by default at most where differences of players are measured."""
RELATIVE_ERROR = 0.01
"""Relative error below which no more calls are made by default."""
# Calls of the first increment of a whole graph by look-ups, by the least number of players. Large
# graphs get all at once: a second one would train its control variates again.
_CALLS_OF_MANY = {28: 1500, 44: MOST_CALLS_OF_LOOK_UPS}
MOST_AT_ONCE = 4500
"""Calls of all games together that are made at once."""
_WORK = 2.5e8  # below a second of known layers,
_WORK_OF_DIFFERENCES = 1.2e9  # and where no model of the game is fitted to them
_SECONDS, _LEAST_CALLS = 1.2, 80  # of all games together, where calls are counted
_FIRST_SHARE, _FEWEST_BY_CLOCK = 0.3, 4  # of a limit by the clock, before it is looked at
_HARD = 1e-3  # squared error over squared credit, from which on differences may tell more
_LEARNT_FROM = 4  # calls a player, before which pairs of coalitions tell little of each
_NODE_WORK, _EDGE_WORK = 24.0, 0.5
_LEAST_GROWTH, _MOST_GROWTH = 2.0, 16.0
_MARGIN = 1.3  # more calls than errors that fall as 1 / sqrt(calls) would need
_WORTH = 1.5  # by default, fewer calls than this times those made are not worth a fit
_WORTH_WHERE_ASKED = 1.2  # the same where a limit of calls was given
_CALLS_A_PLAYER = 2  # with fewer, a first increment is never enough
_SHARE_OF_TIME = 0.8
_NEAR = 0.7  # times a tolerance: errors above it may turn out to be too large


def default_calls(game: PlayableGame, games: int) -> int:
    """Most calls of one of so many games by default; depends on its field, not on the clock."""
    if not isinstance(game, GraphGame):
        return MOST_CALLS_OF_LOOK_UPS
    return game.most_look_ups or _calls_in_batches(game, games)


def _calls_in_batches(game: GraphGame, games: int) -> int:
    return min(_calls_by_size(game), _affordable(game, games) or MOST_CALLS)


def _calls_by_size(game: GraphGame) -> int:
    if game.evaluator.checks.fallback is not None:
        return FIRST_CALLS  # one slow call after the other
    return int(min(MOST_CALLS, max(FIRST_CALLS, _WORK / _work(game))))


def _affordable(game: GraphGame, games: int) -> int | None:
    """Most calls of one of so many games by what they cost; None: its field tells it."""
    if game.seconds_of_call is None:
        return None
    coalitions = 1 << min(game.players, 62)
    least = coalitions if coalitions <= _LEAST_CALLS else _LEAST_CALLS // games
    return max(least, int(_SECONDS / games / game.seconds_of_call))


def limited_by_cost(games: Sequence[PlayableGame]) -> bool:
    """Whether a game is given fewer calls by default than it would be if they were cheap."""
    return any(
        isinstance(game, GraphGame) and _calls_in_batches(game, len(games)) < _calls_by_size(game)
        for game in games
    )


def default_difference_calls(game: GraphGame, games: int) -> int:
    """Most calls of one of so many games by default where differences are measured."""
    if not game.evaluator.has_slopes or game.seconds_of_call is not None:
        # Layers whose first round is not a product of matrices.
        return _calls_in_batches(game, games)
    work = _work(game) * max(1, (game.evaluator.depth or 2) - 1)
    return int(min(MOST_CALLS_OF_DIFFERENCES, _WORK_OF_DIFFERENCES / work))


def _relative_square(fit: Fit) -> float:
    """Squared error over squared credit, mean over the outputs."""
    size = fit.values.square().sum(1).clamp(min=1e-300)
    return float((fit.errors.square().sum(1) / size).mean())


def _work(game: GraphGame) -> float:
    """Estimated cost of one model call."""
    field = game.setup.field
    return max(_NODE_WORK * field.size + _EDGE_WORK * len(field.inner_edges), 1.0)


def default_first_calls(games: Sequence[PlayableGame], estimator: Estimator) -> int:
    """Calls of the first increment, summed over games: all, if a second fit is needed or small."""
    affordable = [_affordable(game, len(games)) for game in games if isinstance(game, GraphGame)]
    most = len(games) * min((calls or MOST_CALLS for calls in affordable), default=MOST_CALLS)
    return most if most < FIRST_CALLS else min(_first_calls(games, estimator), most)


def _first_calls(games: Sequence[PlayableGame], estimator: Estimator) -> int:
    players = [game.players for game in games if isinstance(game, LookupGame)]
    of_many = [calls for least, calls in _CALLS_OF_MANY.items() if min(players, default=0) >= least]
    if of_many and len(players) == len(games):
        return of_many[-1]
    large = any(game.players * _CALLS_A_PLAYER > FIRST_CALLS for game in games)
    if large and isinstance(estimator, GaussianProcess):
        return FIRST_CALLS  # and then differences, which need no second fit
    allowed = [_calls_in_batches(game, len(games)) for game in games if isinstance(game, GraphGame)]
    most = min(allowed, default=FIRST_CALLS)
    return most if large or most <= MOST_AT_ONCE else FIRST_CALLS


def measures_differences(mask: Mask, estimator: Estimator) -> bool:
    """Whether differences of players may correct the fits of an estimator."""
    return isinstance(mask, (Auto, Paired)) and isinstance(estimator, GaussianProcess)


def first_of_many(games: Sequence[PlayableGame], calls: int) -> int:
    """Calls of the first increment if so many were asked for: all, where they make games exact."""
    exact = any(isinstance(game, GraphGame) and exact_within(game, calls) for game in games)
    look_ups = any(isinstance(game, LookupGame) for game in games)
    return calls if exact or look_ups else FIRST_CALLS


class Goal(Protocol):
    """What error is small enough."""

    def needed(self, fits: Sequence[Fit]) -> list[float]:
        """For each game: how many times its calls are needed, if squared errors fall as 1 / calls;
        at most 1 where none are.
        """
        ...

    def unsure(self, fit: Fit) -> Bools:
        """Players of a game whose errors are, or may be, too large, [M]."""
        ...


@dataclass(frozen=True)
class ErrorBelow:
    """Every standard error is at most `tolerance`."""

    tolerance: float

    def needed(self, fits: Sequence[Fit]) -> list[float]:
        """By the largest error of each game; infinite where errors are not known."""
        worst = [
            float((fit.errors / self.tolerance).square().max()) if fit.errors.numel() else 0.0
            for fit in fits
        ]
        return [ratio if ratio == ratio else float("inf") for ratio in worst]  # noqa: PLR0124  (NaN)

    def unsure(self, fit: Fit) -> Bools:
        """Those with an error near the tolerance too."""
        unsure: Bools = (fit.errors > _NEAR * self.tolerance).any(0).numpy()
        return unsure


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

    def unsure(self, fit: Fit) -> Bools:
        """Nobody in particular."""
        return np.zeros(fit.errors.shape[1], dtype=bool)


@dataclass(frozen=True)
class AllCalls:
    """As many calls as there may be."""

    def needed(self, fits: Sequence[Fit]) -> list[float]:
        """Any number where a game is not exact."""
        return [float("inf") if bool(fit.errors.any()) else 0.0 for fit in fits]

    def unsure(self, fit: Fit) -> Bools:
        """Nobody in particular."""
        return np.zeros(fit.errors.shape[1], dtype=bool)


@dataclass(frozen=True)
class Clock:
    """A limit of time; with it the number of calls depends on the machine."""

    seconds: float
    start: float = field(default_factory=time.monotonic)
    reserve: float = 0.0
    """Seconds that all that follows the last call will take."""
    seconds_of_call: float = 0.0
    """How long a call took in the last explanation, fits included."""

    def left(self) -> float:
        """Seconds for further calls."""
        return self.seconds - self.reserve - (time.monotonic() - self.start)

    def first_calls(self, games: Sequence[PlayableGame], calls: int) -> int:
        """Calls before the first look at the clock: at most so many, in a part of the time."""
        costs = [game.seconds_of_call or 0.0 for game in games if isinstance(game, GraphGame)]
        affordable = _FIRST_SHARE * self.left() / max(*costs, self.seconds_of_call, 1e-9)
        if any(costs) and not self.seconds_of_call:  # a count does not see all that takes time
            affordable = 0.0
        return int(min(calls, max(_FEWEST_BY_CLOCK * len(games), affordable)))

    def growth(self, seconds: float) -> float:
        """How many times the calls of a game there is time for; its last increment took `seconds`.

        Fits to them may take the square of it.
        """
        left = _SHARE_OF_TIME * max(self.left(), 0.0)
        return max(1.0, float(np.sqrt(left / max(seconds, 1e-6))))


@dataclass(frozen=True, eq=False)
class _Measured:
    """A fit to pairs of coalitions, and differences that players make, which correct it."""

    fit: Fit
    differences: Differences


_Played = tuple[PlayedGame, Fit, _Measured | None]


@dataclass(frozen=True, eq=False)
class Increments:
    """Adds calls until `goal` or a limit is reached."""

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
        measured: dict[int, _Measured | None] = {}  # None: pairs of coalitions tell more
        while True:
            needed = self.goal.needed(fits)
            i = max(range(len(games)), key=lambda k: (k not in closed, needed[k]), default=None)
            if i is None or i in closed or needed[i] <= 1:
                return games, fits
            if i not in measured:
                measured[i] = self._try_differences(games, fits[i], i)
            differences = measured[i]
            began = time.monotonic()
            continued = (
                self._more_pairs(games, i, needed[i])
                if differences is None
                else self._measure(games, differences, i, needed[i])
            )
            if continued is None:
                closed.add(i)
                continue
            games[i], fits[i], measured[i] = continued
            games[i] = replace(games[i], seconds=time.monotonic() - began)
            logger.info(
                "%s: %s calls, largest standard error %.3g",
                games[i].game.side,
                f"{games[i].game.calls:,}",
                float(fits[i].errors.max()),
            )

    def _more_pairs(self, games: list[PlayedGame], i: int, needed: float) -> _Played | None:
        """Game i with a larger budget; None: it is exact, or what is left is not worth a fit."""
        budget = self._next_budget(games, i, needed, self._allowed(games, i))
        worth = _WORTH if self.most is None else _WORTH_WHERE_ASKED
        if games[i].masks.exact or budget < worth * games[i].budget:
            return None
        try:
            most = self._allowed(games, i)
            next_game = play(games[i].game, self.mask, self.estimator, budget, self.seed, most)
        except (BudgetError, TooManyStatesError) as error:
            give_up("no more coalitions were evaluated", error)
            return None
        if next_game.budget <= games[i].budget:  # others than before, and not as many are left
            return None
        return next_game, fit_all([next_game], self.estimator, self.outputs)[0], None

    def _try_differences(self, games: list[PlayedGame], fit: Fit, i: int) -> _Measured | None:
        """First differences of game i, if more of them are expected to tell more than pairs."""
        game, masks = games[i].game, games[i].masks
        if (
            not isinstance(game, GraphGame)
            or not measures_differences(self.mask, self.estimator)
            or not components().differences
            or game.evaluator.checks.fallback is not None
            or game.players < 3
            or self._has_look_ups(games, i)
            or masks.pair is None
            or masks.exact
            or not _relative_square(fit) > _HARD
            or (isinstance(self.mask, Auto) and exact_within(game, self._allowed(games, i)))
        ):
            return None
        most = self._in_time(games, i, self._allowed_for_differences(games, i))
        calls = game.calls
        left = most - game.calls
        players = np.union1d(
            players_to_measure(fit, max(left, 1)), np.flatnonzero(self.goal.unsure(fit))
        )
        none = Differences.none(players, game.players, len(self.outputs), left)
        if left < 2 * none.first_calls:
            return None
        trial = measure(self._values(game), none, 1, self.seed)
        by_fit, by_differences = expected_errors(fit, trial, left)
        few_calls, most = _LEARNT_FROM * game.players, max(self._allowed(games, i), calls)
        by_pairs = by_fit * (few_calls + calls) / (few_calls + most)
        return _Measured(fit, trial) if by_differences < by_pairs else None

    def _measure(
        self, games: list[PlayedGame], measured: _Measured, i: int, needed: float
    ) -> _Played | None:
        """Game i with more differences; None: no calls are left."""
        game = games[i].game
        games[i] = replace(games[i], budget=game.calls)  # the first differences as well
        most = self._allowed_for_differences(games, i)
        budget = self._next_budget(games, i, needed, most)
        # Coalitions of known states cost no call, and would go on for ever where few are new.
        calls = min(measured.differences.calls + budget - game.calls, most)
        differences = measure(self._values(game), measured.differences, calls, self.seed)
        if differences is measured.differences:
            return None
        played = replace(games[i], budget=game.calls, measured=differences.coalitions)
        return played, corrected(measured.fit, differences), _Measured(measured.fit, differences)

    def _values(self, game: PlayableGame) -> Callable[[Bools], Floats]:
        """Explained outputs of coalitions."""
        columns = slice(self.outputs[0], self.outputs[-1] + 1)

        def values(rows: Bools) -> Floats:
            stop_if_unwanted()
            scores = game.values(game.states(rows))[:, columns].detach().double()
            numbers: Floats = scores.numpy()
            return numbers

        return values

    def _allowed_for_differences(self, games: list[PlayedGame], i: int) -> int:
        """Most calls of game i where differences are measured, with those already made."""
        game = games[i].game
        if self.most is None and isinstance(game, GraphGame):
            return default_difference_calls(game, len(games))
        return self._allowed(games, i)

    def _allowed(self, games: list[PlayedGame], i: int) -> int:
        """Most calls of game i, with those already made."""
        if self.most is None:
            return default_calls(games[i].game, len(games))
        return self.most - sum(game.game.calls for k, game in enumerate(games) if k != i)

    def _next_budget(self, games: list[PlayedGame], i: int, needed: float, most: int) -> int:
        # Look-ups are cheap, and the fit to them is not.
        least = _WORTH if isinstance(games[i].game, LookupGame) else _LEAST_GROWTH
        growth = min(max(_MARGIN * needed, least), _MOST_GROWTH)
        budget = (
            most if needed == float("inf") else min(int(max(games[i].budget, 4) * growth), most)
        )
        if budget > MOST_AT_ONCE and self._has_look_ups(games, i):
            budget = max(budget, FEWEST_LOOK_UPS)
        return self._in_time(games, i, budget)

    def _has_look_ups(self, games: list[PlayedGame], i: int) -> bool:
        """Whether game i may have so many calls that they are look-ups."""
        game = games[i].game
        may_look_up = isinstance(game, GraphGame) and game.most_look_ups > 0
        return may_look_up and self._allowed(games, i) >= FEWEST_LOOK_UPS

    def _in_time(self, games: list[PlayedGame], i: int, budget: int) -> int:
        """As much of a budget of game i as there is time for."""
        if self.clock is None:
            return budget
        return min(budget, int(games[i].game.calls * self.clock.growth(games[i].seconds)))


def calls_needed(goal: Goal, games: Sequence[PlayedGame], fits: Sequence[Fit]) -> int | None:
    """About how many calls would reach the goal; None: it is reached, or cannot be predicted."""
    needed = goal.needed(fits)
    if all(factor <= 1 for factor in needed) or float("inf") in needed:
        return None
    return sum(
        int(game.game.calls * max(factor, 1.0)) for game, factor in zip(games, needed, strict=True)
    )
