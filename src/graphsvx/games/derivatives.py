"""Credit of players with small effects, by derivatives of the score at random coalitions.

Player j's Shapley value is the mean, over q in [0, 1] and coalitions that each player is in with
probability q, of the difference that j makes. For a player whose effect is one small message among
many, the derivative of the score by how active it is tells the difference, and one backward pass
gives the derivatives of all of them. A coalition and its complement are drawn together, so that
each player is active in one of the two: the mean of a function's slopes at both ends of an interval
is its mean slope, but for a third derivative.

Code can be differentiated and wrong (a part that is detached, a rounded output has derivatives 0),
so the first derivatives are compared with differences: groups of players leave the one coalition
and join the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import stdtrit

from graphsvx.core.arrays import Bools, Floats

DOUBT_OF_SLOPES = 1.5
"""Factor of standard errors: slopes have heavy tails, so that their spread is often understated."""
GOLDEN = 0.6180339887498949
"""Its multiples, modulo 1, spread any number of draws evenly."""
_CURVATURE = 1 / 6  # what slopes at both ends miss of a mean slope, in units of their difference
_PAIRS_AT_ONCE = 32
_FIRST_PAIRS = 8  # which tell whether more are worth it
_MOST_OPEN = 1.0  # squared errors over squared credit, from which on derivatives tell too little
_GROUP = 4  # players that leave a coalition together, to compare with derivatives
_UNLIKE = 0.9  # share of the usual difference, from which on derivatives are not about it


@dataclass(frozen=True, eq=False)
class ExpectedCredit:
    """Credit of some players by derivatives, which the values of coalitions correct."""

    values: Floats
    """[M, outputs]; 0 for the other players."""
    errors: Floats
    """[M, outputs]: standard errors, with what derivatives miss of a player's whole effect."""
    players: Bools
    """[M]: the players that it is about."""
    coalitions: int
    """That derivatives were taken at."""
    columns: slice
    """The outputs, as positions among all of the game."""
    evaluated: int
    """Coalitions that were evaluated to check derivatives."""

    @property
    def calls(self) -> int:
        """What they cost: one for the score, and about as long as two for the derivatives."""
        return 3 * self.coalitions

    @property
    def open_share(self) -> Floats:
        """Errors as a share of the usual size of credit, [M]."""
        squares = (self.values**2 + self.errors**2)[self.players].mean(0)
        share: Floats = np.sqrt((self.errors**2 / np.maximum(squares, 1e-300)).mean(1))
        return share


def expected_by_derivatives(
    slopes: Callable[[Bools], Floats | None],
    scores: Callable[[Bools], Floats],
    players: Bools,
    coalitions: int,
    columns: slice,
    seed: int,
) -> ExpectedCredit | None:
    """Credit of `players` [M] from derivatives at so many coalitions, an even number.

    `slopes` gives them for coalitions [coalitions, M] as [coalitions, M, outputs]; None: it cannot.
    `scores` gives [coalitions, outputs]. Smaller numbers draw the beginnings of larger ones. Where
    the first ones show that derivatives do not tell the differences that players make, there are no
    players with expected credit.
    """
    rng = np.random.default_rng([seed, 1])
    start, pairs = rng.random(), coalitions // 2
    evaluated = 4 * min(_FIRST_PAIRS, pairs)
    at_pairs: list[Floats] = []
    apart: list[Floats] = []
    unlike: Floats | None = None
    for first, last in pairwise([0, *range(_FIRST_PAIRS, pairs, _PAIRS_AT_ONCE), pairs]):
        count = last - first
        q = (start + GOLDEN * np.arange(first, first + count)) % 1.0
        rows = rng.random((count, len(players))) < q[:, None]
        rates = slopes(np.concatenate([rows, ~rows]))
        if rates is None or not np.isfinite(rates).all():
            return None
        inside = np.where(rows[:, :, None], rates[:count], rates[count:])
        outside = np.where(rows[:, :, None], rates[count:], rates[:count])
        if unlike is None:
            unlike = _mismatch(scores, rows, players, (inside + outside) / 2, seed)
        at_pairs.append(((inside + outside) / 2)[:, players])
        apart.append((inside - outside)[:, players])
        mean, error = _mean_and_error(np.concatenate(at_pairs))
        difference, its_error = _mean_and_error(np.concatenate(apart))
        missed = _CURVATURE**2 * np.maximum(difference**2 - its_error**2, 0) + (unlike * mean) ** 2
        # Errors of the mean fall with the number of pairs, what derivatives miss does not.
        left = float((error**2).sum()) * last / pairs + float(missed.sum())
        if left > _MOST_OPEN * float((mean**2).sum()) or not bool((unlike <= _UNLIKE).all()):
            none = np.zeros((len(players), mean.shape[1]))
            return ExpectedCredit(none, none, np.zeros_like(players), 2 * last, columns, evaluated)
    values, errors = np.zeros((2, len(players), mean.shape[1]))
    values[players], errors[players] = mean, np.sqrt(error**2 + missed)
    return ExpectedCredit(values, errors, players, coalitions, columns, evaluated)


def _mismatch(
    scores: Callable[[Bools], Floats], rows: Bools, players: Bools, slopes: Floats, seed: int
) -> Floats:
    """How far `slopes` [pairs, M, outputs] usually are from differences, [outputs].

    As a share of the usual difference that a random group of a coalition's active players makes
    when it leaves, and when it joins the complement: medians, because few groups make most of it.
    """
    rng, active = np.random.default_rng([seed, 2]), rows & players
    chance = _GROUP / np.maximum(active.sum(1, keepdims=True), _GROUP)
    groups = active & (rng.random(rows.shape) < chance)
    before, without, complement, joined = np.split(
        scores(np.concatenate([rows, rows & ~groups, ~rows, ~rows | groups])), 4
    )
    difference = (before - without + joined - complement) / 2
    missed = difference - np.einsum("pm,pmo->po", groups, slopes)
    usual: Floats = np.median(np.abs(difference), 0)
    misses: Floats = np.median(np.abs(missed), 0)
    return np.where(misses <= _UNLIKE * usual, misses / np.maximum(usual, 1e-300), 1.0)


def _mean_and_error(draws: Floats) -> tuple[Floats, Floats]:
    """Means, and standard errors that are wider where few draws tell them."""
    wider = stdtrit(len(draws) - 1, 0.975) / stdtrit(np.inf, 0.975)
    return draws.mean(0), wider * draws.std(0, ddof=1) / np.sqrt(len(draws))
