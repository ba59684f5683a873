"""How much each player matters in a kernel: theta, by marginal likelihood.

The kernel is that of `smooth`. Scale is profiled out: only what pairs say of each other counts.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from graphsvx.explain.factors import diagonal, factored, forward, inverse
from graphsvx.masks.base import Floats

_LOWEST, _HIGHEST = -9.0, 2.0  # bounds of log theta
_PAIRS = 96  # that theta is learnt on
_OUTPUTS = 8  # whose curvature stands for that of all
_ALIKE = 0.3  # a weak pull that keeps players alike that the pairs cannot tell apart
_CAUTION = 0.2  # added to the curvature: the step is short where there is little
_LONGEST = 1.0  # step in log theta


def guessed(phi: Floats, odd: Floats, missed: Floats) -> Floats:
    """theta from what least squares found, [outputs, M], and what they missed of drawn pairs.

    Who has much credit matters and interacts much. What least squares miss is interaction, for
    which the kernel has the more room, the larger the sum of all theta: for players that are
    alike, it goes about with the square root of the share missed. The numbers are those of thetas
    learnt to the end, on games that no error is reported for.
    """
    players = phi.shape[1]
    size = (odd**2).sum(0)
    share = ((missed**2).sum(0) / np.where(size > 0, size, 1)).mean()
    # Least squares have fitted as many numbers as there are players.
    share /= max(1 - players / len(odd), 0.2)
    total = min(9.5 * max(share, 1e-12) ** 0.4, 2.0 * players)
    credit = np.abs(phi).mean(0) + 1e-12
    return (0.95 * credit / credit.mean() + 0.05) * total / players


def learnt(signs: Floats, odd: Floats, theta: Floats) -> Floats:
    """A better theta: one Newton step up the marginal likelihood of an even selection of pairs.

    More steps gain little from a good guess, and fit few pairs too well.
    """
    count = len(odd)
    if count > _PAIRS:
        chosen = np.arange(_PAIRS) * (count - 1) // (_PAIRS - 1)
        signs, odd = signs[chosen], odd[chosen]
    size = np.sqrt((odd**2).mean(0))
    some = size > 0
    if not some.any():
        return theta
    logs = np.log(theta).clip(_LOWEST, _HIGHEST)
    slope, curvature = _likelihood(logs, signs, odd[:, some] / size[some])
    _, step, _ = lapack.dposv(curvature, slope)
    return np.exp((logs - step.clip(-_LONGEST, _LONGEST)).clip(_LOWEST, _HIGHEST))


def _likelihood(logs: Floats, signs: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Slope in log theta of the negative log marginal likelihood, and about its curvature.

    The derivative of the kernel matrix K by theta_i is s_i s_i' B / 2 (elementwise) less K / 2,
    where B is the sum of the kernel's two products. The part with K is a change of scale, which
    does not matter here. The curvature is the average of the observed and the expected one,
    which needs no more than the derivatives times a = K^-1 y.
    """
    count, outputs = y.shape
    theta = np.exp(logs)
    total = theta.sum()
    near = (signs * (theta / 2)) @ signs.T
    near -= total / 2
    np.exp(near, out=near)
    far = np.exp(-total) / near
    both = near + far
    near -= far
    for matrix in (near, both):
        diagonal(matrix)[:] *= 1 + 1e-6
    factor = factored(near)
    solved, _ = lapack.dpotrs(factor, y, lower=1)
    # With each output in units of its own scale.
    unit = np.sqrt(count / np.maximum((solved * y).sum(0), 1e-300))
    solved *= unit
    pull = inverse(factor)
    pull *= outputs
    pull -= solved @ solved.T
    pull *= both
    slope = 0.25 * np.einsum("ki,ki->i", signs, pull @ signs)
    curvature = _curvature(factor, both, signs, solved[:, :_OUTPUTS], (y * unit)[:, :_OUTPUTS])
    curvature *= outputs / min(outputs, _OUTPUTS)
    curvature *= theta[:, None] * theta
    curvature -= _ALIKE / len(theta)
    diagonal(curvature)[:] += _ALIKE + _CAUTION
    return slope * theta + _ALIKE * (logs - logs.mean()), curvature


def _curvature(factor: Floats, both: Floats, signs: Floats, solved: Floats, y: Floats) -> Floats:
    """Products of the derivatives times K^-1 y, in the metric of K^-1, without change of scale."""
    count, players = signs.shape
    found = np.zeros((players, players))
    for one, own in zip(solved.T, y.T, strict=True):
        forces = signs * (both @ (signs * (one / 2)[:, None]))
        sides = forward(factor, np.concatenate([forces, own[:, None]], 1))
        products = sides.T @ sides
        along = products[-1, :-1]
        found += (products[:-1, :-1] - np.outer(along, along) / count) / 2
    return found
