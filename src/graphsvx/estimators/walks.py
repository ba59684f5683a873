"""Regressors of a game of nodes that follow walks from the explained node through active players.

A direct player t that is active has the share 1 / (k + 1) of a mean over the k active direct
players and the node itself, and passes the share a_tj of it on to player j:

    own part       on_t / (k + 1)
    passed part    on_j * sum over t of on_t a_tj / (k + 1)

Their Shapley values have a closed form. With B the number of active players among n direct ones
that are each active with probability q, E[1 / (c + B)] enters through its integrals over q.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from graphsvx.core.arrays import Bools, Floats, Ids

MOST_ENTRIES = 1 << 22
"""Direct players times players: for more, the Shapley values of the regressors take much memory."""


@dataclass(frozen=True, eq=False)
class Walks:
    """The regressors of one game, [M] passed parts before [m] own parts."""

    direct: Ids
    """The m direct players."""
    passed: Floats
    """a, [m, M]; a player passes nothing on to itself."""
    direct_credit: Floats
    """Shapley values of the direct players for each regressor, [m, M + m]."""
    other_credit: Floats
    """Shapley values of the other players for their own passed part, [M]; 0 for direct ones."""

    @staticmethod
    def of(direct: Ids, passed: Floats) -> Walks:
        """`passed` [m, M]."""
        count, players = passed.shape
        total = passed.sum(0)
        others = np.ones(players, dtype=bool)
        others[direct] = False
        # A connector comes in, or another direct player that shortens its share.
        other_join, far_shift = _mean(1, 2, count - 1), _shift(2, 2, count - 2)
        direct_join, near_shift = _mean(1, 3, count - 2), _shift(2, 3, count - 3)
        joins = np.where(others, other_join, direct_join)
        shifts = np.where(others, far_shift, near_shift)
        credit = np.empty((count, players + count))
        credit[:, :players] = passed * (joins - shifts) + total * shifts
        credit[np.arange(count), direct] = direct_join * total[direct]
        direct_credit = np.full((count, count), _shift(1, 2, count - 2))
        direct_credit[np.diag_indices(count)] = _mean(0, 2, count - 1)
        credit[:, players:] = direct_credit
        return Walks(direct, passed, credit, np.where(others, other_join * total, 0.0))

    def regressors(self, signs: Floats) -> Floats:
        """Odd parts, [pairs, M + m]."""
        return (self._values(signs > 0) - self._values(signs < 0)) / 2

    def _values(self, on: Bools) -> Floats:
        active = on[:, self.direct].astype(np.float64)
        active /= active.sum(1, keepdims=True) + 1
        values = np.empty((len(on), on.shape[1] + active.shape[1]))
        values[:, : on.shape[1]] = (self._sparse @ active.T).T
        values[:, : on.shape[1]] *= on
        values[:, on.shape[1] :] = active
        return values

    @cached_property
    def _sparse(self) -> sparse.csr_array:
        """`passed`, transposed: most players are heard through few direct ones."""
        return sparse.csr_array(self.passed.T)

    def shapley(self, regressors: Floats, scale: Floats) -> Floats:
        """Shapley values of functions with these coefficients, [functions, M]."""
        weighted = regressors * scale
        credit: Floats = weighted[:, : len(self.other_credit)] * self.other_credit
        credit[:, self.direct] += weighted @ self.direct_credit.T
        return credit

    def loadings(self, weights: Floats, scale: Floats) -> Floats:
        """Weighted sums of the Shapley values of each regressor, [M + m, sums]."""
        credit: Floats = self.direct_credit.T @ weights[self.direct]
        credit[: len(self.other_credit)] += self.other_credit[:, None] * weights
        credit *= scale[:, None]
        return credit

    def variances(self, scale: Floats) -> Floats:
        """Of the Shapley values where coefficients have variance 1, [M]."""
        variance: Floats = (self.other_credit * scale[: len(self.other_credit)]) ** 2
        variance[self.direct] += (self.direct_credit**2) @ scale**2
        return variance


def _mean(power: int, offset: int, count: int) -> float:
    """Integral over q of q^power E[1 / (offset + B)], B binomial of `count` players."""
    if count < 0:
        return 0.0
    b = np.arange(count + 1.0)
    logs = gammaln(count + 1) - gammaln(b + 1) + gammaln(b + power + 1) - gammaln(count + power + 2)
    return float((np.exp(logs) / (offset + b)).sum())


def _shift(power: int, offset: int, count: int) -> float:
    """Change of the integral when one more direct player is active."""
    return _mean(power, offset + 1, count) - _mean(power, offset, count)
