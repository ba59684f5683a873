"""EXPL of GraphLIME: HSIC Lasso, a non-negative regression of similarities on similarities.

    min_{beta >= 0}  1/2 || L - sum_k beta_k K_k ||_F^2 + rho sum_k beta_k

K_k and L are Gaussian kernels of feature k and of the predictions over the same nodes, centred
(H K H, H = I - 11'/n) and scaled to Frobenius norm 1. Only inner products of kernels enter, so
the n^2 x F design is never held at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsvx.utils.constraints import Checked, NotNegative

Floats = NDArray[np.float64]


def gaussian_kernel(values: Floats) -> Floats:
    """exp(-(a - b)^2 / (2 s^2)) for each column of `values` [n, k], s its standard deviation.

    Returns [k, n, n]; a constant column has a kernel of ones, which centring turns into zeros.
    """
    spread = values.std(0)
    scaled = values / np.where(spread > 0, spread, 1)
    difference = scaled.T[:, :, None] - scaled.T[:, None, :]
    kernel: Floats = np.exp(-(difference**2) / 2)
    return kernel


def centred(kernels: Floats) -> Floats:
    """H K H over its Frobenius norm, [k, n, n]; kernels without any variation become 0."""
    result: Floats = (
        kernels
        - kernels.mean(1, keepdims=True)
        - kernels.mean(2, keepdims=True)
        + kernels.mean((1, 2), keepdims=True)
    )
    norm = np.sqrt((result**2).sum((1, 2), keepdims=True))
    flat = norm <= 1e-9 * kernels.shape[1]
    scaled: Floats = np.where(flat, 0.0, result / np.where(flat, 1, norm))
    return scaled


@dataclass(frozen=True)
class HSICLasso(Checked):
    """Coefficients beta of features, sparse and not negative."""

    rho: NotNegative = 0.1
    """Weight of the L1 norm. Kernels have norm 1, so features with an HSIC below it get 0."""

    def __call__(self, features: Floats, scores: Floats, memory: int = 2**28) -> Floats:
        """`features` [n, F] and `scores` [n] to beta [F]."""
        count, width = features.shape
        beta = np.zeros(width)
        varies = np.flatnonzero(features.std(0) > 0)
        target = centred(gaussian_kernel(scores[:, None]))[0]
        if len(varies) == 0 or not target.any():
            return beta
        gram, link = products(features[:, varies], target, max(1, memory // (8 * 4 * count**2)))
        beta[varies] = nonnegative_lasso(gram, link, self.rho)
        return beta


def products(features: Floats, target: Floats, block: int) -> tuple[Floats, Floats]:
    """<K_k, K_l> [F, F] and <K_k, L> [F], a block of features at a time."""
    width = features.shape[1]
    parts = [slice(first, min(width, first + block)) for first in range(0, width, block)]
    gram, link = np.zeros((width, width)), np.zeros(width)
    for i, part in enumerate(parts):
        rows = centred(gaussian_kernel(features[:, part])).reshape(part.stop - part.start, -1)
        link[part] = rows @ target.ravel()
        gram[part, part] = rows @ rows.T
        for other in parts[i + 1 :]:
            columns = centred(gaussian_kernel(features[:, other]))
            gram[part, other] = rows @ columns.reshape(len(columns), -1).T
            gram[other, part] = gram[part, other].T
    return gram, link


def nonnegative_lasso(gram: Floats, link: Floats, rho: float) -> Floats:
    """argmin_{b >= 0} 1/2 b' G b - g' b + rho sum b, by scikit-learn's coordinate descent.

    G = R'R with R = sqrt(Lambda) V', so that the problem is an ordinary Lasso with F rows.
    """
    from sklearn.linear_model import Lasso  # noqa: PLC0415  (slow to import)

    values, vectors = np.linalg.eigh(gram)
    positive = values > 1e-12 * values.max(initial=1e-300)
    root = np.sqrt(values[positive])[:, None] * vectors[:, positive].T
    answer = (vectors[:, positive].T @ link) / np.sqrt(values[positive])
    if rho == 0:
        rho = 1e-12  # scikit-learn warns about a Lasso without a penalty; this one is the same
    lasso = Lasso(
        # scikit-learn divides the squares by the number of rows.
        alpha=rho / len(answer), positive=True, fit_intercept=False, tol=1e-10, max_iter=100_000,
        random_state=0,  # not used, but drawn from numpy's global state if left out
    )  # fmt: skip
    coefficients: Floats = lasso.fit(root, answer).coef_
    return coefficients
