"""Shapley values of some players by stratified sampling of marginal contributions.

The m players in question are the *measured* ones. A player's Shapley value is the mean, over the
levels l = 0 ... m - 1, of its mean marginal contribution to coalitions with l of the other measured
players, who are equally likely, and with everybody else in with a probability q that is
Beta(l + 1, m - l) distributed. Levels differ a lot: often few active neighbours decide, and further
ones change nothing. So levels are grouped into strata, and coalitions go to the strata in which
differences vary most for the calls that they cost (Neyman allocation). No model of the game is
needed, so the estimate also shows how far a fitted one can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import stdtrit

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.estimators.covariance import LEAST
from graphsvx.estimators.evidence import Evidence, combine, doubt
from graphsvx.estimators.least_squares import Fit

Values = Callable[[Bools], Floats]
"""Values of coalitions [coalitions, M], [coalitions, outputs]."""

_MOST_STRATA = 14
_FIRST_DRAWS = 2  # of each stratum, each two coalitions, which show where more are needed
_FIRST_SHARE = 0.5  # of the calls, which the first draws take at most
_GROWTH = 3.0  # calls after a stage in multiples of those before
_DOUBT_OF_SPREAD = 2.0  # draws that the mean spread of all strata counts as, in each of them
_POOLED = 4.0  # degrees of freedom of the spread that all players of a stratum have together
_ENTRIES_AT_ONCE = 1 << 24
_DOUBT_OF_CREDIT = 0.1  # a model of the game may be wrong by a tenth where it does not say so
_SCATTER = 4.0  # variance of a difference in units of squared credit, before any was measured


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences that the measured players made, each with its stratum of levels."""

    players: Ids
    """The m measured players, of M."""
    count: int
    """M."""
    starts: Ids
    """First level of each stratum, and m."""
    stratum: Ids
    """Of each coalition, [coalitions]."""
    values: Floats
    """Differences [coalitions, m, outputs]; NaN: not measured there."""
    calls: int = 0
    stages: int = 0

    @staticmethod
    def none(players: Ids, count: int, outputs: int, calls: int) -> Differences:
        """Nothing measured yet; `calls`: how many there will be."""
        stratum_calls = 2 * _FIRST_DRAWS * (1 + 0.75 * len(players))
        strata = int(np.clip(_FIRST_SHARE * calls / stratum_calls, 1, _MOST_STRATA))
        nothing = np.zeros((0, len(players), outputs))
        return Differences(
            players, count, _starts(len(players), strata), np.zeros(0, dtype=np.int64), nothing
        )

    @property
    def coalitions(self) -> int:
        """How many coalitions single players joined or left."""
        return len(self.stratum)

    @property
    def weights(self) -> Floats:
        """Share of the levels that are in each stratum."""
        return np.diff(self.starts) / len(self.players)

    @property
    def draw_calls(self) -> Floats:
        """Most calls of a draw of each stratum: two coalitions, and who joins or leaves."""
        lowest, highest = self.starts[:-1], self.starts[1:] - 1
        return 2.0 * (1 + np.maximum(highest + 1, len(self.players) - lowest))

    @property
    def first_calls(self) -> int:
        """Most calls of the first stage."""
        return int(_FIRST_DRAWS * self.draw_calls.sum())

    def moments(self) -> tuple[Floats, Floats, Floats]:
        """Means and variances of a difference, and their numbers, by stratum and player.

        [strata, m, outputs], [strata, m, outputs], [strata, m]. Variances lean on those that all
        players of the stratum have together.
        """
        strata, m, outputs = len(self.starts) - 1, *self.values.shape[1:]
        means, variances = np.zeros((2, strata, m, outputs))
        numbers = np.zeros((strata, m))
        for k in range(strata):  # each has draws, and a draw toggles every player
            differences = self.values[self.stratum == k]
            numbers[k] = (~np.isnan(differences[:, :, 0])).sum(0)
            means[k] = np.nanmean(differences, 0)
            squares = np.nansum((differences - means[k]) ** 2, 0)
            freedom = numbers[k] - 1
            pooled = squares.sum(0) / max(freedom.sum(), 1)
            variances[k] = (_POOLED * pooled + squares) / (_POOLED + freedom)[:, None]
        return means, variances, numbers

    def evidence(self) -> Evidence:
        """Shapley values of the measured players."""
        means, variances, numbers = self.moments()
        weights = self.weights[:, None, None]
        wider = stdtrit(numbers.sum(0) + _POOLED, 0.975) / stdtrit(np.inf, 0.975)
        variance = wider[:, None] ** 2 * (weights**2 * variances / numbers[:, :, None]).sum(0)
        source = f"differences of {len(self.players):,} players at {self.coalitions:,} coalitions"
        return Evidence(
            (weights * means).sum(0).T, variance.T, self.variance_of_sums, source, self.players
        )

    def spread(self) -> Floats:
        """Root of the summed variances that a draw of each stratum leaves, [strata]."""
        _, variances, numbers = self.moments()
        draws = np.bincount(self.stratum) / 2
        scale = np.maximum(np.nanmean(self.values**2, (0, 1)), LEAST)  # outputs count alike
        squares = (variances / scale / numbers[:, :, None]).sum((1, 2)) * draws
        mean = float(self.weights @ squares)
        doubted: Floats = (draws * squares + _DOUBT_OF_SPREAD * mean) / (draws + _DOUBT_OF_SPREAD)
        return np.sqrt(doubted)

    def variance_after(self, calls: int) -> float:
        """Expected variance, relative to that of now, once so many calls were made in all."""
        spread, weights, costs = self.spread(), self.weights, self.draw_calls
        draws = np.bincount(self.stratum) / 2
        now = float((weights**2 * spread**2 / draws).sum())
        best = float((weights * spread * np.sqrt(costs)).sum()) ** 2 / max(calls, 1)
        return min(1.0, best / max(now, LEAST))

    def variance_of_sums(self, sums: Floats) -> Floats:
        """Variances of weighted sums of the values, [outputs, sums], for weights [m, sums].

        Differences at one coalition share its value, so that they are correlated.
        """
        _, variances, numbers = self.moments()
        total = np.zeros((self.values.shape[2], sums.shape[1]))
        for k, weight in enumerate(self.weights):
            errors = weight * np.sqrt(variances[k] / numbers[k][:, None])  # [m, outputs]
            common = self._correlation(k)[:, None]
            total += (1 - common) * (errors**2).T @ sums**2 + common * (errors.T @ sums) ** 2
        return total

    def _correlation(self, stratum: int) -> Floats:
        """Mean correlation of differences at a coalition, at least 0, [outputs]."""
        differences = self.values[self.stratum == stratum]
        left = np.nan_to_num(differences - np.nanmean(differences, 0))
        alone, together = (left**2).sum((0, 1)), (left.sum(1) ** 2).sum(0)
        players = max(float((~np.isnan(differences[:, :, 0])).sum(1).mean()), 2.0)  # toggled
        share: Floats = (together / np.maximum(alone, LEAST) - 1) / (players - 1)
        return share.clip(0, 1)


def measure(values: Values, before: Differences, calls: int, seed: int) -> Differences:
    """More differences, with at most so many calls in all after the first stage."""
    measured = before
    while measured.calls < calls:
        draws = _next_draws(measured, calls)
        if not draws.any():
            break
        rng = np.random.default_rng([seed, measured.stages, 4])
        measured = _with_draws(measured, values, np.repeat(np.arange(len(draws)), draws), rng)
    return measured


def _next_draws(measured: Differences, calls: int) -> Ids:
    """Draws of each stratum in the next stage."""
    costs = measured.draw_calls
    if not measured.stages:
        return np.full(len(costs), _FIRST_DRAWS)
    draws_before = np.bincount(measured.stratum) / 2
    calls_after = min(float(calls), _GROWTH * measured.calls)
    spread = measured.spread()
    if not spread.any():  # all alike so far: more of them tell whether that is so
        spread = np.ones_like(spread)
    best = measured.weights * spread / np.sqrt(costs)
    missing = np.maximum(best * calls_after / (best @ costs) - draws_before, 0)
    missing *= (calls_after - measured.calls) / max(float(missing @ costs), 1.0)
    draws: Ids = np.floor(missing).astype(np.int64)
    left = calls - measured.calls - float(draws @ costs)
    for k in np.argsort(draws - missing, kind="stable"):
        if missing[k] > draws[k] and costs[k] <= left:
            draws[k] += 1
            left -= costs[k]
    return draws


def _with_draws(
    before: Differences, values: Values, stratum: Ids, rng: np.random.Generator
) -> Differences:
    """Two coalitions for each draw, whose measured players are drawn in opposite orders."""
    m = len(before.players)
    differences, used = np.full((2 * len(stratum), m, before.values.shape[2]), np.nan), 0
    step = max(1, _ENTRIES_AT_ONCE // (2 * (m + 1) * before.count))
    for first in range(0, len(stratum), step):
        part = stratum[first : first + step]
        coalitions = [two for k in part for two in _draw(before, int(k), rng)]
        rows = np.concatenate(
            [_toggled(row, before.players[toggled]) for row, toggled in coalitions]
        )
        used += len(rows)
        ends = np.cumsum([len(toggled) + 1 for _, toggled in coalitions])
        for i, ((row, toggled), block) in enumerate(
            zip(coalitions, np.split(values(rows), ends[:-1]), strict=True), start=2 * first
        ):
            sign = np.where(row[before.players[toggled]], -1.0, 1.0)[:, None]
            differences[i, toggled] = sign * (block[1:] - block[0])
    return replace(
        before,
        stratum=np.concatenate([before.stratum, stratum.repeat(2)]),
        values=np.concatenate([before.values, differences]),
        calls=before.calls + used,
        stages=before.stages + 1,
    )


def _draw(measured: Differences, stratum: int, rng: np.random.Generator) -> list[tuple[Bools, Ids]]:
    """Two coalitions of a level, and who joins (or leaves) them, as positions among the measured.

    At low levels players join, at high ones they leave: each time the greater part of them.
    """
    m = len(measured.players)
    level = int(rng.integers(measured.starts[stratum], measured.starts[stratum + 1]))
    joins = 2 * level < m
    active = level if joins else level + 1
    q, noise, order = rng.beta(level + 1, m - level), rng.random(measured.count), rng.permutation(m)
    coalitions = []
    for row, places in ((noise < q, order), (noise >= 1 - q, order[::-1])):
        row[measured.players] = False
        row[measured.players[places[:active]]] = True
        coalitions.append((row, np.sort(places[active:] if joins else places[:active])))
    return coalitions


def _toggled(row: Bools, players: Ids) -> Bools:
    """A coalition, and it without (or with) each of these players."""
    rows = np.repeat(row[None], len(players) + 1, 0)
    rows[np.arange(1, len(players) + 1), players] ^= True
    return rows


def _starts(levels: int, strata: int) -> Ids:
    """First levels of strata, which are small at both ends, and the number of levels."""
    half = np.arange((strata + 1) // 2 + 1) / ((strata + 1) // 2)
    low = np.rint((levels / 2 + 1) ** half - 1).astype(np.int64)
    if strata == 1:
        low = low[:1]
    return np.unique(np.concatenate([low, levels - low]))


def corrected(fit: Fit, measured: Differences) -> Fit:
    """The fit, combined with what was measured; credit still adds up."""
    joined = combine(Evidence.of(fit), measured.evidence())
    return replace(
        fit,
        values=torch.from_numpy(joined.credit),
        errors=torch.from_numpy(np.sqrt(joined.variance)),
        model=joined.source,
        variance_of_sums=joined.variance_of_sums,
    )


def players_to_measure(fit: Fit, calls: int) -> Ids:
    """The players for which so many calls lower the error of a fit most, in ascending order.

    The less sure a player's credit is, the sooner it is measured; the more players are measured,
    the fewer coalitions there are for each.
    """
    doubted = (fit.errors**2 + (_DOUBT_OF_CREDIT * fit.values) ** 2).numpy()
    size = np.maximum((fit.values**2).numpy().sum(1, keepdims=True), LEAST)
    unsure, credit = (doubted / size).mean(0), ((fit.values**2).numpy() / size).mean(0)
    order = np.argsort(-unsure, kind="stable")
    left = unsure.sum() - np.cumsum(unsure[order])
    measured = _SCATTER * np.arange(2, len(order) + 2) / calls * np.cumsum(credit[order])
    best = int((left + np.minimum(measured, np.cumsum(unsure[order]))).argmin()) + 1
    return np.sort(order[: max(best, 2)])


def expected_errors(fit: Fit, measured: Differences, calls: int) -> tuple[float, float]:
    """Squared error over squared credit of a fit, and with differences by so many calls in all.

    Means over the outputs. That of the fit is as large as the differences show it to be.
    """
    evidence, players = measured.evidence(), measured.players
    size = np.maximum((fit.values**2).numpy().sum(1), LEAST)
    squares = fit.errors.numpy() ** 2
    of_fit = doubt(Evidence.of(fit), evidence) * squares[:, players].sum(1)
    of_others = squares.sum(1) - squares[:, players].sum(1)
    later = measured.variance_after(calls) * evidence.variance.sum(1)
    of_joined = of_fit * later / np.maximum(of_fit + later, LEAST)
    return (
        float(((of_fit + of_others) / size).mean()),
        float(((of_joined + of_others) / size).mean()),
    )
