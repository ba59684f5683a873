"""A Gaussian process that has seen the values of some pairs of coalitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from graphsvx.core.arrays import Bools, Floats
from graphsvx.estimators.cholesky import cholesky, solve_lower
from graphsvx.estimators.kernels import Kernel, Mixture
from graphsvx.estimators.lengthscales import log_likelihood

_BLOCK = 512  # pairs that g is evaluated at together
_MOST_EXPECTED = 4  # pairs that a known mean square counts as in the scale


@dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process that has seen some pairs, with unit scale."""

    kernel: Kernel
    mixture: Mixture
    factor: Floats
    whitened: Floats
    """factor^-1 y: row i is the standardised one-step-ahead error of pair i, so that errors on
    held-out pairs, if they come last, need no other fit."""
    scale: Floats
    """Variance of the process in units of the values, by pairs that nothing was learnt on."""
    credit: Floats
    """Shapley values of g, [M, outputs]."""
    left: Floats
    """Posterior variance of the Shapley values, [M]."""
    disagreement: Floats
    """How far the other pairs move the Shapley values that those learnt on give, in multiples of
    what the variances say, [outputs]; at least 1."""
    fitted: int

    @staticmethod
    def of(
        kernel: Kernel, mixture: Mixture, odd: Floats, fitted: int, weights: Floats,
        expected: Floats | None,
    ) -> Process:  # fmt: skip
        """`fitted`: number of leading pairs that the covariance was learnt on.

        `expected` [outputs]: mean square of `odd` that is known from elsewhere; it counts as a
        quarter of the judging pairs more in the scale, one to four.
        """
        gram = kernel.gram_once(mixture)
        inner = kernel.coalitions.inner > 0
        typical = float(gram.diagonal()[inner].mean()) if inner.any() else 1.0
        factor = cholesky(gram)
        outputs = odd.shape[1]
        whitened = solve_lower(factor, np.concatenate([odd, kernel.shapley(mixture)], 1))
        values, shares = whitened[:, :outputs].copy(), whitened[:, outputs:]
        prior = kernel.prior(mixture)
        moved, explained = shares[fitted:].T @ values[fitted:], squares(shares[fitted:])
        judges = values[fitted if fitted < len(values) else 0 :]
        scale = (judges**2).mean(0)
        if expected is not None:
            pseudo_pairs = min(max(len(judges) / 4, 1), _MOST_EXPECTED)
            scale = (squares(judges) + pseudo_pairs * expected / typical) / (
                len(judges) + pseudo_pairs
            )
        apart = (moved**2 / np.maximum(np.multiply.outer(explained, scale), 1e-300)).mean(0)
        understatement = np.ones(outputs)
        cut = max(fitted, len(values) // 2)  # rows from there on tell how good those before are
        if len(values) - cut > 1:
            residuals = blas.dtrmm(1.0, factor[cut:, cut:], values[cut:], lower=1)
            left = np.maximum(prior - squares(shares[:cut]), 1e-10 * prior).sum()
            understatement = _understatement(
                kernel.coalitions.signs[cut:], residuals, weights[cut:], left * scale
            )
        return Process(
            kernel, mixture, factor, values, scale, shares[:fitted].T @ values[:fitted] + moved,
            np.maximum(prior - explained - squares(shares[:fitted]), 1e-10 * prior),
            np.maximum(apart, understatement), fitted,
        )  # fmt: skip

    @property
    def log_likelihood(self) -> float:
        """Of all pairs, with the scale at its most likely value."""
        return log_likelihood(self.factor, self.whitened)

    def one_step_errors(self) -> Floats:
        """Errors of pairs that were not learnt on, as predicted by those before each."""
        return self.whitened[self.fitted :] * self.factor.diagonal()[self.fitted :, None]

    def at(self, members: Bools) -> Floats:
        """g at other pairs, given by one coalition of each, [pairs, outputs]."""
        solved, _ = lapack.dtrtrs(self.factor, self.whitened, lower=1, trans=1)
        coalitions = self.kernel.coalitions
        blocks = []
        for first in range(0, len(members), _BLOCK):
            signs = members[first : first + _BLOCK].astype(np.float64) * 2 - 1
            others = coalitions.others(signs)
            blocks.append(self.kernel.expected(others, self.mixture, solved))
        return np.concatenate(blocks)

    def sums(self, weights: Floats) -> tuple[Floats, Floats]:
        """Variances [sums] and values [outputs, sums] of weighted sums of Shapley values."""
        shares = solve_lower(self.factor, self.kernel.shapley(self.mixture) @ weights)
        prior = self.kernel.prior_of_sums(self.mixture, weights)
        left = np.maximum(prior - squares(shares), 1e-10 * prior)
        return left, self.whitened.T @ shares


def _understatement(signs: Floats, residuals: Floats, weights: Floats, variance: Floats) -> Floats:
    """By what factor squared errors of credit exceed `variance` [outputs]; at least 1.

    `residuals` [pairs, outputs] are those of pairs that a process has not seen, `signs` and
    `weights` theirs. Products of the residuals of two different pairs tell the squared error of the
    process's credit without bias, whatever its covariance; where they tell it badly (a standard
    error above the variance itself), the factor is drawn to 1.
    """
    rows = signs / 2
    rows -= rows.mean(1, keepdims=True)
    share = weights / weights.sum()
    lengths = squares(rows.T)
    spread = float(share @ lengths) / (signs.shape[1] - 1)
    together = (rows.T @ (share[:, None] * residuals)) / spread
    alone = (share**2 * lengths) @ residuals**2 / spread**2
    error = (squares(together) - alone) / max(1 - float(share @ share), 1e-12)
    variance = np.maximum(variance, 1e-300)
    uncertainty = np.sqrt(2 / (signs.shape[1] - 1)) * alone / variance
    factor: Floats = 1 + np.maximum(error / variance - 1, 0) / (1 + uncertainty**2)
    return factor


def squares(rows: Floats) -> Floats:
    """Sums of squares of the columns."""
    sums: Floats = np.einsum("ij,ij->j", rows, rows)
    return sums
