"""Covariance of the even or the odd part of a game, learnt by marginal likelihood.

The kernel is a sum of two products over players, each with the sign of its parity:

    k(S, T) = sum over c of h_c (exp(-d_c(S, T)) + parity exp(-d_c(S, N - T)))

with distances d_c that add theta_i where S and T differ in player i. The second product has the
thetas of the first times a common factor: it is for what many players do together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from graphsvx.core.arrays import Floats
from graphsvx.estimators.cholesky import inverse_from_cholesky

Parity = Literal[1, -1]
"""1: the even part of a game, -1: its odd part."""

_FITTED_PAIRS = 320  # pairs of coalitions that the kernel is learnt on
_STEPS = 30
_JITTER = 1e-10
_LOWEST, _HIGHEST = -7.0, 2.5  # of log theta
_FIRST_LENGTHS = (0.02, 3.0)  # mean theta that is tried first, from, to
_LONGEST = 25.0  # theta of which 1 - exp(-theta) differs from 1
_APART = 1.0  # variance of log theta among players
_LEVEL = 9.0  # variance of its mean
# Mean and variance of the logarithms of factor and height of the second product, and bounds.
_FACTOR = (np.log(3.0), 1.0, (-1.0, 3.0))
_HEIGHT = (np.log(0.1), 4.0, (-8.0, 3.0))


@dataclass(frozen=True, eq=False)
class ParityKernel:
    """A sum of products over players."""

    parity: Parity
    heights: Floats
    """h, [products]."""
    lengths: Floats
    """theta, [products, M]: how fast the game changes with each player."""

    def factor(self, signs: Floats) -> Floats:
        """Lower Cholesky factor of the covariance of coalitions, given as signs [pairs, M]."""
        gram = _JITTER * np.eye(len(signs))
        for height, same, opposite in self.products(signs):
            gram += height * (same + self.parity * opposite)
        return np.asarray(np.linalg.cholesky(gram), dtype=np.float64)

    def products(self, signs: Floats) -> Iterator[tuple[float, Floats, Floats]]:
        """h, exp(-d(S, T)) and exp(-d(S, N - T)) of each product, [pairs, pairs]."""
        for height, lengths in zip(self.heights, self.lengths, strict=True):
            inner, total = (signs * lengths) @ signs.T, lengths.sum()
            yield height, np.exp((inner - total) / 2), np.exp((-inner - total) / 2)

    def moved(self) -> Iterator[tuple[float, Floats]]:
        """h and 1 - exp(-theta) [M] of each product."""
        # Below 1: multilinear extensions are divided by the factor of a player, which has a slope.
        moved = -np.expm1(-self.lengths.clip(None, _LONGEST))
        yield from zip(self.heights.tolist(), moved, strict=True)


def fitted_kernel(parity: Parity, signs: Floats, part: Floats) -> ParityKernel:
    """The most likely kernel for values of one part of a game, [pairs, outputs]."""
    count, players = signs.shape
    learnt_on = np.unique(np.linspace(0, count - 1, min(count, _FITTED_PAIRS)).astype(np.int64))
    signs, part = signs[learnt_on], part[learnt_on]
    part = part[:, np.ptp(part, 0) > 0]
    if not part.shape[1]:  # the same at all pairs
        lengths = np.full(players, np.log(_FIRST_LENGTHS[0]))
        return _kernel(parity, np.append(lengths, (_FACTOR[0], _HEIGHT[0])))
    start = np.log(_first_lengths(parity, signs, part))
    mean = start.mean()

    def loss(parameters: Floats) -> tuple[float, Floats]:
        logs, others = parameters[:players], parameters[players:]
        value, slope = _likelihood(_kernel(parity, parameters), signs, part)
        centred, level = logs - logs.mean(), logs.mean() - mean
        value += (centred**2).sum() / (2 * _APART) + level**2 / (2 * _LEVEL)
        slope[:players] += centred / _APART + level / (_LEVEL * players)
        for place, (expected, variance, _) in enumerate((_FACTOR, _HEIGHT)):
            value += (others[place] - expected) ** 2 / (2 * variance)
            slope[players + place] += (others[place] - expected) / variance
        return value, slope

    bounds = [(_LOWEST, _HIGHEST)] * players + [_FACTOR[2], _HEIGHT[2]]
    parameters = np.append(start.clip(_LOWEST, _HIGHEST), (_FACTOR[0], _HEIGHT[0]))
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to import, seldom needed)

    fitted = minimize(
        loss, parameters, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}
    )
    return _kernel(parity, fitted.x)


def _kernel(parity: Parity, parameters: Floats) -> ParityKernel:
    """From logarithms: theta of all players, factor and height of the second product."""
    lengths, factor, height = np.exp(parameters[:-2]), *np.exp(parameters[-2:])
    return ParityKernel(parity, np.array([1.0, height]), np.stack([lengths, factor * lengths]))


def _likelihood(kernel: ParityKernel, signs: Floats, part: Floats) -> tuple[float, Floats]:
    """Negative log likelihood, scale and mean integrated out, and its slope in the parameters."""
    try:
        factor = kernel.factor(signs)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros(signs.shape[1] + 2)
    trend = np.ones((len(signs), 1 if kernel.parity == 1 else 0))
    of_trend = cho_solve((factor, True), trend)
    precision = trend.T @ of_trend
    inverse = inverse_from_cholesky(factor)
    inverse = inverse - of_trend @ np.linalg.solve(precision, of_trend.T)
    solved = inverse @ part
    energy = np.maximum((part * solved).sum(0), 1e-300)
    count = len(signs) - trend.shape[1]
    value = np.log(energy).mean() * count / 2 + np.log(factor.diagonal()).sum()
    value += np.log(precision.diagonal()).sum() / 2
    pull = (inverse - count * (solved / energy) @ solved.T / part.shape[1]) / 2
    slopes, heights = [], []
    for height, same, opposite in kernel.products(signs):
        opposite_signed = kernel.parity * opposite
        total = ((same + opposite_signed) * pull).sum()
        differing = np.einsum("ki,ki->i", signs, ((same - opposite_signed) * pull) @ signs)
        heights.append(height * total)
        slopes.append(height / 2 * (differing - total))
    of_lengths = [slope * lengths for slope, lengths in zip(slopes, kernel.lengths, strict=True)]
    return float(value), np.append(sum(of_lengths), (of_lengths[1].sum(), heights[1]))


def _first_lengths(parity: Parity, signs: Floats, part: Floats) -> Floats:
    """The most likely of some: relevance by the values' spread, and a common length, [M]."""
    players = signs.shape[1]
    relevance = _relevance(parity, signs, part)
    candidates = [
        total * shape / shape.sum()
        for shape in (np.ones(players), np.sqrt(relevance), relevance)
        for total in players * np.geomspace(*_FIRST_LENGTHS, 8)
    ]
    return min(candidates, key=lambda lengths: _misfit(parity, signs, part, lengths))


def _relevance(parity: Parity, signs: Floats, part: Floats) -> Floats:
    """How much the part changes with each player: alone (odd), or in products with others."""
    centred = part - part.mean(0) if parity == 1 else part
    others = signs.sum(1, keepdims=True) if parity == 1 else 1.0
    slopes = (signs * others).T @ centred / len(signs)
    weight = np.sqrt((slopes**2).sum(1))
    relevance: Floats = weight / max(weight.max(), 1e-300) + 0.05
    return relevance


def _misfit(parity: Parity, signs: Floats, part: Floats, lengths: Floats) -> float:
    """Negative log likelihood of a single product."""
    kernel = ParityKernel(parity, np.ones(1), lengths[None])
    try:
        factor = kernel.factor(signs)
    except np.linalg.LinAlgError:
        return np.inf
    ones = np.ones((len(signs), 1))
    whitened = solve_triangular(factor, np.concatenate([ones, part], 1), lower=True)
    trend, rest = whitened[:, 0], whitened[:, 1:]
    misfit = np.log(factor.diagonal()).sum()
    count = len(signs)
    if parity == 1:
        rest = rest - np.outer(trend, trend @ rest / (trend @ trend))
        misfit += np.log(trend @ trend) / 2
        count -= 1
    return float(misfit + np.log(np.maximum((rest**2).sum(0), 1e-300)).mean() * count / 2)
