"""Credit that was expected from derivatives, joined with what the values of coalitions say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphsvx.core.arrays import Floats
from graphsvx.estimators.least_squares import Fit
from graphsvx.games.derivatives import DOUBT_OF_SLOPES, ExpectedCredit

_LEAST = 1e-300
_SHARPEST = 1e-6  # of the variance by values: no expectation is taken for more precise


@dataclass(frozen=True, eq=False)
class Joined:
    """Two estimates of the credit of the same players, each with the weight of its precision.

    Values of coalitions tell the credit of all these players together much better than that of
    each: their sum stays what the values say, and the precisions decide who gets what of it.
    """

    credit: Floats
    """[outputs, M]."""
    variance: Floats
    """[outputs, M]."""
    share: Floats
    """[outputs, M]: of a change of the sum of the expected players, how much is each player's."""
    rest: Fit

    @staticmethod
    def of(expected: ExpectedCredit, rest: Fit) -> Joined:
        """`rest`: the fit to the game without the expected credit."""
        change, by_values = rest.values.numpy(), rest.errors.numpy() ** 2
        by_derivatives = np.maximum(
            (DOUBT_OF_SLOPES * expected.errors.T) ** 2, _SHARPEST * by_values
        )
        weight = by_derivatives / np.maximum(by_derivatives + by_values, _LEAST)
        has_variance = expected.players & np.isfinite(by_values)  # else values decide
        weight = np.where(has_variance, weight, 1.0)
        variance = weight * by_values
        share = np.where(has_variance, variance, 0.0)
        share /= np.maximum(share.sum(1, keepdims=True), _LEAST)
        left = ((1 - weight) * change).sum(1, keepdims=True)
        return Joined(expected.values.T + weight * change + left * share, variance, share, rest)

    def variance_of_sums(self, sums: Floats) -> Floats:
        """Variances of weighted sums of credit, [outputs, sums], for weights [M, sums]."""
        if self.rest.variance_of_sums is None:
            raise ValueError("the fit has no variances of sums")
        rows = []
        for output, (share, variance) in enumerate(zip(self.share, self.variance, strict=True)):
            on = share[:, None] > 0
            common = np.where(on, share @ sums, sums)
            apart = np.where(on, sums - common, 0.0)
            rows.append(self.rest.variance_of_sums(common)[output] + variance @ apart**2)
        return np.stack(rows)
