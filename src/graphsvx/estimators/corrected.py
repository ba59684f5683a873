"""Credit by a model of the game, corrected where credit was also measured without it.

Both estimates of a player's credit are joined by their precisions. Where they are further apart
than their errors allow, the errors of the model are taken for larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import torch

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.differences import Differences
from graphsvx.estimators.least_squares import Fit
from graphsvx.games.derivatives import DOUBT_OF_SLOPES, ExpectedCredit

_LEAST = 1e-300
_DOUBT_OF_CREDIT = 0.1  # a model of the game may be wrong by a tenth where it does not say so
_SIGNIFICANT = 2.0  # standard errors that estimates are apart by chance
_SCATTER = 4.0  # variance of a difference in units of squared credit, before any was measured


class Measured(Protocol):
    """Credit of some players that no model of the game was needed for."""

    @property
    def players(self) -> Ids:
        """The m players, in ascending order."""
        ...

    @property
    def fit_tells_sum(self) -> bool:
        """Whether a fit to coalitions tells the sum of their credit better."""
        ...

    def estimate(self) -> tuple[Floats, Floats]:
        """Their credit and its variances, [m, outputs] each."""
        ...

    def variance_of_sums(self, sums: Floats) -> Floats:
        """Variances of weighted sums of their credit, [outputs, sums], for weights [m, sums]."""
        ...

    def description(self) -> str:
        """What was measured, in words."""
        ...


@dataclass(frozen=True, eq=False)
class Slopes:
    """Credit by derivatives, as something measured.

    All slopes at a coalition are of the same score, so that their errors add up.
    """

    expected: ExpectedCredit
    fit_tells_sum: ClassVar[bool] = True

    @property
    def players(self) -> Ids:
        """The players that derivatives tell of."""
        return np.flatnonzero(self.expected.players)

    def estimate(self) -> tuple[Floats, Floats]:
        """Credit and variances, [m, outputs] each."""
        expected, players = self.expected, self.players
        return expected.values[players], (DOUBT_OF_SLOPES * expected.errors[players]) ** 2

    def variance_of_sums(self, sums: Floats) -> Floats:
        """Variances of weighted sums, [outputs, sums], for weights [m, sums]."""
        variance: Floats = self.estimate()[1].T @ sums**2
        return variance

    def description(self) -> str:
        """What was measured, in words."""
        return f"derivatives at {self.expected.coalitions:,} coalitions"


def players_to_measure(fit: Fit, calls: int) -> Ids:
    """The players for which so many calls lower the error of a fit most, in ascending order.

    The less sure a player's credit is, the sooner it is measured; the more players are measured,
    the fewer coalitions there are for each.
    """
    doubted = (fit.errors**2 + (_DOUBT_OF_CREDIT * fit.values) ** 2).numpy()
    size = np.maximum((fit.values**2).numpy().sum(1, keepdims=True), _LEAST)
    unsure, credit = (doubted / size).mean(0), ((fit.values**2).numpy() / size).mean(0)
    order = np.argsort(-unsure, kind="stable")
    left = unsure.sum() - np.cumsum(unsure[order])
    measured = _SCATTER * np.arange(2, len(order) + 2) / calls * np.cumsum(credit[order])
    best = int((left + np.minimum(measured, np.cumsum(unsure[order]))).argmin()) + 1
    return np.sort(order[: max(best, 2)])


@dataclass(frozen=True, eq=False)
class _Joined:
    """Both estimates of the credit of all players, joined."""

    credit: Floats
    """[outputs, M]."""
    variance: Floats
    """[outputs, M]."""
    of_measured: Floats
    """Weight of what was measured, [outputs, M]."""
    share: Floats
    """Of a gap between the credit of all and what it must add up to, each player's part."""
    doubt: Floats
    """Factor of the variances of the fit, [outputs]."""

    @staticmethod
    def of(fit: Fit, measured: Measured) -> _Joined:
        """Credit adds up to what that of the fit did."""
        players = measured.players
        values, variances = (array.T for array in measured.estimate())
        fitted, fit_variance = fit.values.numpy(), fit.errors.numpy() ** 2
        apart = ((fitted[:, players] - values) ** 2 - variances).sum(1)
        by_chance = _SIGNIFICANT * np.sqrt(2 * (variances**2).sum(1))
        of_fit = np.maximum(fit_variance[:, players].sum(1), _LEAST)
        doubt = np.maximum((apart - by_chance) / of_fit, 1.0)
        doubted = fit_variance[:, players] * doubt[:, None]
        weight = np.zeros_like(fitted)
        weight[:, players] = doubted / np.maximum(doubted + variances, _LEAST)
        credit, variance = fitted.copy(), fit_variance.copy()
        credit[:, players] += weight[:, players] * (values - fitted[:, players])
        variance[:, players] = weight[:, players] * variances
        may_change = np.maximum(variance, (1 - weight) * doubt[:, None] * fit_variance)
        if measured.fit_tells_sum:
            may_change[:, np.delete(np.arange(len(may_change.T)), players)] = 0.0
        share = may_change / np.maximum(may_change.sum(1, keepdims=True), _LEAST)
        gap = fitted.sum(1, keepdims=True) - credit.sum(1, keepdims=True)
        return _Joined(credit + share * gap, variance, weight, share, doubt)


def corrected(fit: Fit, measured: Measured) -> Fit:
    """The fit, joined with what was measured; credit still adds up."""
    joined, of_fit, players = _Joined.of(fit, measured), fit.variance_of_sums, measured.players

    def variance_of_sums(weights: Floats) -> Floats:
        rows = []
        for output, share in enumerate(joined.share):
            # The sum of those who share a gap is that of the fit; what is apart from it is joined.
            in_common = np.where(share[:, None] > 0, share @ weights, 0.0)
            apart = weights - in_common
            weight = joined.of_measured[output][:, None]
            by_measured = measured.variance_of_sums((weight * apart)[players])[output]
            by_fit = np.zeros_like(by_measured)
            if of_fit is not None:
                by_fit = joined.doubt[output] * of_fit((1 - weight) * apart + in_common)[output]
            rows.append(by_fit + by_measured)
        return np.stack(rows)

    return replace(
        fit, values=torch.from_numpy(joined.credit),
        errors=torch.from_numpy(np.sqrt(joined.variance)),
        model=f"{fit.model or 'linear'}; {measured.description()}",
        variance_of_sums=None if of_fit is None else variance_of_sums,
    )  # fmt: skip


def expected_errors(fit: Fit, measured: Differences, calls: int) -> tuple[float, float]:
    """Squared error over squared credit of a fit, and with differences by so many calls in all.

    Means over the outputs. That of the fit is as large as the differences show it to be.
    """
    doubt, players = _Joined.of(fit, measured).doubt, measured.players
    size = np.maximum((fit.values**2).numpy().sum(1), _LEAST)
    squares = fit.errors.numpy() ** 2
    of_fit = doubt * squares[:, players].sum(1)
    of_others = squares.sum(1) - squares[:, players].sum(1)
    later = measured.variance_after(calls) * measured.estimate()[1].sum(0)
    of_joined = of_fit * later / np.maximum(of_fit + later, _LEAST)
    return (
        float(((of_fit + of_others) / size).mean()),
        float(((of_joined + of_others) / size).mean()),
    )
