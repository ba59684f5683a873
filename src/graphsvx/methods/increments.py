"""How many model calls an explanation makes: its budget, and more until errors are small enough."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from graphsvx.core.arrays import Ids
from graphsvx.engine.profile import ModelProfile
from graphsvx.engine.state_graph import TooManyStatesError
from graphsvx.errors import BudgetError
from graphsvx.estimators.differences import (
    Differences,
    corrected,
    expected_errors,
    measure,
    players_to_measure,
)
from graphsvx.estimators.least_squares import Fit
from graphsvx.games.graph_game import FEWEST_LOOK_UPS
from graphsvx.methods.pipeline import FittedGame, PlayableGame, Sampling, explained_values
from graphsvx.utils.constraints import MOST, Checked, Range
from graphsvx.utils.context import components, give_up

logger = logging.getLogger("graphsvx")

FIRST_CALLS = 1000
"""Calls of the first increment: games with no more distinct perturbed graphs are exact."""
# Calls that a game is given by default at most: of batches, of look-ups, and where differences that
# players make are measured; and the relative error below which no more calls are made.
MOST_CALLS, MOST_CALLS_OF_LOOK_UPS, MOST_CALLS_OF_DIFFERENCES = 10_000, 3000, 30_000
RELATIVE_ERROR = 0.01
# Calls of the first increment of a whole graph by look-ups, by the least number of players. Large
# graphs get all at once: a second one would train its control variates again.
_CALLS_OF_MANY = {28: 1500, 44: MOST_CALLS_OF_LOOK_UPS}
MOST_AT_ONCE = 4500
"""Calls of all games together that are made at once."""
_WORK = 2.5e8  # below a second of known layers,
_WORK_OF_DIFFERENCES = 1.2e9  # and where no model of the game is fitted to them
_SECONDS, _LEAST_CALLS = 1.2, 80  # of all games together, where calls are counted
_HARD = 1e-3  # squared error over squared credit, from which on differences may tell more
_LEARNT_FROM = 4  # calls a player, before which pairs of coalitions tell little of each
_NODE_WORK, _EDGE_WORK = 24.0, 0.5
_LEAST_GROWTH, _MOST_GROWTH = 2.0, 16.0
_MARGIN = 1.3  # more calls than errors that fall as 1 / sqrt(calls) would need
_WORTH = 1.5  # by default, fewer calls than this times those made are not worth a fit
_WORTH_WHERE_ASKED = 1.2  # the same where a limit of calls was given
_CALLS_A_PLAYER = 2  # with fewer, a first increment is never enough
_NEAR = 0.7  # times a tolerance: errors above it may turn out to be too large


# --- what is asked for -------------------------------------------------------------------


@dataclass(frozen=True)
class Budget(Checked):
    """How much may be spent on an explanation."""

    samples: Annotated[int | None, Range(2, MOST, error=BudgetError)] = None
    """Model calls per explanation, all games together (P). None: 1,000, and more in games that are
    not exact with them, until the relative error is below 1 % or as many are made as the size of
    the receptive field allows in about a second (10,000 at most, 30,000 where the differences that
    single players make are measured). Layers without fast code: at most as many as their cost, by a
    count, allows in about two seconds, about 100 in all at least."""
    feature_share: Annotated[float | None, Range(0, 1)] = None
    """Share of the samples that goes to features (r); None: as in algorithm 3."""
    tolerance: Annotated[float | None, Range(0, inside=True)] = None
    """Keep sampling until every standard error is below this, or `max_samples` are spent."""
    max_samples: Annotated[int, Range(2, MOST, error=BudgetError)] = 100_000
    seconds: Annotated[float | None, Range(0, inside=True)] = None
    """A limit by the clock; no new round of calls starts that would exceed it. The same seed may
    then give other bits, and the certificate says so."""

    @property
    def first_calls(self) -> int:
        """Of the first round, of all games together."""
        if self.seconds is not None:
            return min(_FIRST_BY_CLOCK, self.samples or _FIRST_BY_CLOCK)
        return self.samples or FIRST_CALLS

    @property
    def most_calls(self) -> int | None:
        """Of all games together; None: as many as the games allow by default."""
        if self.tolerance is None and self.samples is not None:
            return self.samples
        return None if self.tolerance is None and self.seconds is None else self.max_samples

    def goal(self, sampling: Sampling) -> Goal:
        """When calls end."""
        if self.tolerance is not None:
            return Goal(tolerance=self.tolerance)
        many = self.seconds is None and (self.samples or 0) > MOST_AT_ONCE
        if many and sampling.pairs_for_process:
            return Goal()
        by_default = self.samples is None and not sampling.selective
        goes_on = by_default or self.seconds is not None
        return Goal(relative=RELATIVE_ERROR if goes_on else math.inf)


@dataclass(frozen=True)
class Goal:
    """What error is small enough, of each player or of all; neither: as many calls as allowed."""

    tolerance: float | None = None
    """Every standard error is at most this."""
    relative: float | None = None
    """The root of all squared errors over all squared credit is at most this, over all games and
    explained outputs: a game with little credit need not be known better. Infinite: any will do."""

    def needed(self, fits: Sequence[Fit]) -> list[float]:
        """For each game: how many times its calls are needed, if squared errors fall as 1 / calls;
        at most 1 where none are.
        """
        if self.tolerance is not None:  # by the largest error; infinite where it is not known
            worst = [
                float((fit.errors / self.tolerance).square().max()) if fit.errors.numel() else 0.0
                for fit in fits
            ]
            return [math.inf if math.isnan(ratio) else ratio for ratio in worst]
        squares = [float(fit.errors.square().sum()) for fit in fits]
        if self.relative is None:
            return [0.0 if square == 0 else math.inf for square in squares]
        # By each game's share of the error; 0 where errors are not known.
        allowed = self.relative**2 * sum(float(fit.values.square().sum()) for fit in fits)
        if not allowed > 0 or any(map(math.isnan, squares)):
            return [0.0 for _ in fits]
        inexact = sum(square > 0 for square in squares)
        return [square * inexact / allowed for square in squares]

    def unsure(self, fit: Fit) -> Ids:
        """Players of a game whose errors are, or may be, above the tolerance."""
        limit = math.inf if self.tolerance is None else _NEAR * self.tolerance
        return np.flatnonzero((fit.errors > limit).any(0).numpy())


def calls_needed(needed: Sequence[float], games: Sequence[FittedGame]) -> int | None:
    """About how many calls would reach the goal; None: it is reached, or cannot be predicted.

    `needed`: how many times the calls of each game are, as the goal says.
    """
    if max(needed, default=0) <= 1 or math.inf in needed:
        return None
    return sum(
        int(game.game.calls * max(factor, 1.0)) for game, factor in zip(games, needed, strict=True)
    )


# --- a limit by the clock ----------------------------------------------------------------

_FIRST_BY_CLOCK = 200  # calls before the first look at the clock,
_FIRST_SHARE, _FEWEST_BY_CLOCK = 0.3, 4  # and the share of the limit that they may take
_SHARE_OF_TIME = 0.8
# Coalitions that are replayed at least, and the share of the limit that they may take.
_FEWEST_REPLAYS, _SHARE_OF_REPLAYS, _SHARE_OF_FIRST_REPLAYS = 1, 0.25, 0.05


@dataclass(eq=False)
class Clock:
    """A limit of time; with it the number of calls depends on the machine.

    What took how long in the last explanation is noted in the model's `profile`.
    """

    limit: float
    """Infinite: as much time as it takes."""
    profile: ModelProfile
    start: float
    games_ended: float = 0.0

    def left(self) -> float:
        """Seconds for further calls."""
        return self.limit - self.profile.seconds_after_games - (time.monotonic() - self.start)

    def first_calls(self, games: Sequence[PlayableGame], calls: int) -> int:
        """Calls before the first look at the clock: at most so many, in a part of the time."""
        costs = [game.seconds_of_call or 0.0 for game in games]
        of_played = self.profile.seconds_of_played
        affordable = _FIRST_SHARE * self.left() / max(*costs, of_played, 1e-9)
        if any(costs) and not of_played:  # a count does not see all that takes time
            affordable = 0.0
        return int(min(calls, max(_FEWEST_BY_CLOCK * len(games), affordable)))

    def growth(self, seconds: float) -> float:
        """How many times the calls of a game there is time for; its last increment took `seconds`.

        Fits to them may take the square of it.
        """
        left = _SHARE_OF_TIME * max(self.left(), 0.0)
        return max(1.0, float(np.sqrt(left / max(seconds, 1e-6))))

    @property
    def compares_first(self) -> bool:
        """Whether there is time to compare coalitions before a game is played."""
        return self.profile.seconds_of_replay < _SHARE_OF_FIRST_REPLAYS * self.limit

    def replays(self, most: int) -> int:
        """How many coalitions there is time to replay."""
        seconds = max(self.profile.seconds_of_replay, 1e-9)
        return int(min(most, max(_FEWEST_REPLAYS, _SHARE_OF_REPLAYS * self.limit / seconds)))

    def note_games(self, began: float, calls: int) -> None:
        """The games began then, have just ended, and took so many calls."""
        self.games_ended = time.monotonic()
        self.profile.seconds_of_played = (self.games_ended - began) / max(calls, 1)

    def note_replays(self, began: float, replays: int) -> None:
        """So many coalitions were replayed since then."""
        self.profile.seconds_of_replay = (time.monotonic() - began) / max(replays, 1)

    def note_end(self) -> None:
        """All that follows the games has been done."""
        self.profile.seconds_after_games = time.monotonic() - self.games_ended


# --- how many calls the games are given by default ---------------------------------------


def default_calls(game: PlayableGame, games: int, differences: bool = False) -> int:
    """Most calls of one of so many games by default; depends on its field, not on the clock.

    `differences`: where those that players make are measured, and no model is fitted to the game.
    """
    if game.looks_up:
        return MOST_CALLS_OF_LOOK_UPS
    if differences and game.evaluator.has_slopes and game.seconds_of_call is None:
        # The first round is a product of matrices.
        work = _work(game) * max(1, (game.evaluator.depth or 2) - 1)
        return int(min(MOST_CALLS_OF_DIFFERENCES, _WORK_OF_DIFFERENCES / work))
    if game.most_look_ups and not differences:
        return game.most_look_ups
    return _calls_in_batches(game, games)


def _calls_in_batches(game: PlayableGame, games: int) -> int:
    return min(_calls_by_size(game), _affordable(game, games))


def _calls_by_size(game: PlayableGame) -> int:
    if game.evaluator.checks.fallback is not None:
        return FIRST_CALLS  # one slow call after the other
    return int(min(MOST_CALLS, max(FIRST_CALLS, _WORK / _work(game))))


def _work(game: PlayableGame) -> float:
    field = game.setup.field
    return max(_NODE_WORK * field.size + _EDGE_WORK * len(field.inner_edges), 1.0)


def _affordable(game: PlayableGame, games: int) -> int:
    """Most calls of one of so many games by what they cost, where its field does not tell it."""
    if game.seconds_of_call is None:
        return MOST_CALLS
    coalitions = 1 << min(game.players, 62)
    least = coalitions if coalitions <= _LEAST_CALLS else _LEAST_CALLS // games
    return max(least, int(_SECONDS / games / game.seconds_of_call))


def limited_by_cost(games: Sequence[PlayableGame]) -> bool:
    """Whether a game is given fewer calls by default than it would be if they were cheap."""
    return any(_affordable(game, len(games)) < _calls_by_size(game) for game in games)


def first_calls(games: Sequence[PlayableGame], sampling: Sampling) -> int:
    """Calls of the first increment by default, summed over games."""
    most = len(games) * min(_affordable(game, len(games)) for game in games)
    return most if most < FIRST_CALLS else min(_cheap_first_calls(games, sampling), most)


def _cheap_first_calls(games: Sequence[PlayableGame], sampling: Sampling) -> int:
    """All calls, where a second fit is needed anyway or they are few."""
    players = [game.players for game in games]
    if all(game.looks_up for game in games):
        of_many = [calls for least, calls in _CALLS_OF_MANY.items() if min(players) >= least]
        return of_many[-1] if of_many else FIRST_CALLS
    large = max(players) * _CALLS_A_PLAYER > FIRST_CALLS
    if large and sampling.fits_process:
        return FIRST_CALLS  # and then differences, which need no second fit
    most = min(_calls_in_batches(game, len(games)) for game in games)
    return most if large or most <= MOST_AT_ONCE else FIRST_CALLS


# --- more calls --------------------------------------------------------------------------


_Measured = tuple[Fit, Differences]
"""A fit to pairs of coalitions, and differences that players make, which correct it."""


@dataclass(eq=False)
class Increments:
    """Adds calls to `games` until `goal` or a limit is reached."""

    games: list[FittedGame]
    goal: Goal
    sampling: Sampling
    outputs: Sequence[int]
    clock: Clock
    most: int | None = None
    """Calls of all games together; None: each has its `default_calls`."""
    _measured: dict[PlayableGame, _Measured | None] = field(default_factory=dict)
    """Games in which differences were tried; None: pairs of coalitions tell more."""

    def play(self) -> list[FittedGame]:
        """Play on, the game that needs it most first, until the goal or a limit is reached."""
        closed: set[int] = set()
        while True:
            needed = self.goal.needed([game.fit for game in self.games])
            i = max(range(len(needed)), key=lambda k: (k not in closed, needed[k]), default=None)
            if i is None or i in closed or needed[i] <= 1:
                return self.games
            before, began = self.games[i], time.monotonic()
            if before.game not in self._measured:
                self._measured[before.game] = self._try_differences(before)
            measured = self._measured[before.game]
            if measured is None:
                game = self._more_pairs(before, needed[i])
            else:
                game = self._more_differences(before, measured, needed[i])
            self.games[i] = replace(game, seconds=time.monotonic() - began)
            if game.fit is before.fit:
                closed.add(i)
                continue
            calls, error = f"{game.game.calls:,}", float(game.fit.errors.max())
            logger.info("%s: %s calls, largest standard error %.3g", game.game.side, calls, error)

    def _more_pairs(self, game: FittedGame, needed: float) -> FittedGame:
        """The game with more calls, or as it is where none are allowed, or worth a fit."""
        most = self._allowed(game)
        budget = self._next_budget(game, needed, most)
        worth = _WORTH if self.most is None else _WORTH_WHERE_ASKED
        if game.masks.exact or budget < worth * game.budget:
            return game
        try:
            played = self.sampling.play(game.game, budget, most)
        except (BudgetError, TooManyStatesError) as error:
            give_up("no more coalitions were evaluated", error)
            return game
        if played.budget <= game.budget:  # others than before, and not as many are left
            return game
        return self.sampling.fit_all([played], self.outputs)[0]

    def _try_differences(self, played: FittedGame) -> _Measured | None:
        """First differences of a game, if more of them are expected to tell more than pairs."""
        game, masks, fit = played.game, played.masks, played.fit
        squares = fit.values.square().sum(1).clamp(min=1e-300)
        if (
            game.looks_up
            or not self.sampling.pairs_for_process
            or not components().differences
            or game.evaluator.checks.fallback is not None
            or game.players < 3
            or self._has_look_ups(played)
            or masks.pair is None
            or masks.exact
            or not float((fit.errors.square().sum(1) / squares).mean()) > _HARD
            or self.sampling.exact_within(game, self._allowed(played))
        ):
            return None
        calls = game.calls
        left = self._in_time(played, self._allowed(played, differences=True)) - calls
        players = np.union1d(players_to_measure(fit, max(left, 1)), self.goal.unsure(fit))
        none = Differences.none(players, game.players, len(self.outputs), left)
        if left < 2 * none.first_calls:
            return None
        trial = measure(explained_values(game, self.outputs), none, 1, self.sampling.seed)
        by_fit, by_differences = expected_errors(fit, trial, left)
        few_calls, most = _LEARNT_FROM * game.players, max(self._allowed(played), calls)
        by_pairs = by_fit * (few_calls + calls) / (few_calls + most)
        return (fit, trial) if by_differences < by_pairs else None

    def _more_differences(self, game: FittedGame, measured: _Measured, needed: float) -> FittedGame:
        fit, before = measured
        game = replace(game, budget=game.game.calls)  # the first differences as well
        most = self._allowed(game, differences=True)
        budget = self._next_budget(game, needed, most)
        # Coalitions of known states cost no call, and would go on for ever where few are new.
        calls = min(before.calls + budget - game.budget, most)
        values = explained_values(game.game, self.outputs)
        differences = measure(values, before, calls, self.sampling.seed)
        if differences is before:
            return game
        self._measured[game.game] = fit, differences
        fit, coalitions = corrected(fit, differences), differences.coalitions
        return replace(game, budget=game.game.calls, fit=fit, measured=coalitions)

    def _allowed(self, game: FittedGame, differences: bool = False) -> int:
        if self.most is None:
            return default_calls(game.game, len(self.games), differences)
        return self.most - sum(other.game.calls for other in self.games if other.game != game.game)

    def _next_budget(self, game: FittedGame, needed: float, most: int) -> int:
        # Look-ups are cheap, and the fit to them is not.
        least = _WORTH if game.game.looks_up else _LEAST_GROWTH
        growth = min(max(_MARGIN * needed, least), _MOST_GROWTH)
        budget = most if needed == math.inf else min(int(max(game.budget, 4) * growth), most)
        if budget > MOST_AT_ONCE and self._has_look_ups(game):
            budget = max(budget, FEWEST_LOOK_UPS)
        return self._in_time(game, budget)

    def _has_look_ups(self, game: FittedGame) -> bool:
        return game.game.most_look_ups > 0 and self._allowed(game) >= FEWEST_LOOK_UPS

    def _in_time(self, game: FittedGame, budget: int) -> int:
        return int(min(budget, game.game.calls * self.clock.growth(game.seconds)))
