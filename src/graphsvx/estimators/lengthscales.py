"""Kernel hyperparameters by marginal likelihood (automatic relevance determination).

A relevance of each player and the variances of the parts of the covariance, with the scale of the
values profiled out (Rasmussen and Williams 2006, chapter 5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.linalg import lapack

from graphsvx.core.arrays import Floats
from graphsvx.estimators.cholesky import cholesky, diagonal, inverse_from_cholesky, solve_lower
from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.kernels import Kernel, Mixture
from graphsvx.utils.components import components

_GRID: dict[str, tuple[float, ...]] = {
    "theta": (0.0, 1.0, 3.0, 9.0),
    "white": (1e-4, 0.03, 0.3),
    "per_size": (0.0, 0.3, 3.0),
}
_LOWEST, _HIGHEST = -12.0, 8.0  # bounds of log relevance
_OUTPUTS = 4  # used for the curvature
_APART = 3.0  # variance of log relevance among players of which the same is expected
_LEVEL = 100.0  # variance of what all have in common: a change of scale
_MEAN_POWER = 1.5  # of what is expected of players, which relevance goes with
_POWER = 0.25  # variance of that power, as a multiple of its mean
_FLOOR = 0.05  # share of relevance that is as expected, whatever was learnt
_LONGEST = 2.0  # step in log relevance
_AGAIN = 4  # mixtures that are tried with the last relevance too


def start() -> Mixture:
    """The mixture that is tried first."""
    used = components()
    return Mixture(0.3 if used.per_size else 0.0, 3.0 if used.product else 0.0, white=0.03)


def _grid() -> dict[str, tuple[float, ...]]:
    used = components()
    none = {} if used.product else {"theta": (0.0,)}
    return _GRID | none | ({} if used.per_size else {"per_size": (0.0,)})


@dataclass(frozen=True, eq=False)
class FittedKernel:
    """A relevance of the players, [M], and how likely mixtures are with it."""

    relevance: Floats
    likelihoods: dict[Mixture, float]

    def best(self, count: int, likely: float) -> list[Mixture]:
        """The most likely first: so many, and at least that likely, compared with the first."""
        order = sorted(self.likelihoods, key=lambda mixture: -self.likelihoods[mixture])
        lowest = self.likelihoods[order[0]] + np.log(likely)
        return [mixture for mixture in order[:count] if self.likelihoods[mixture] >= lowest]


@dataclass(frozen=True, eq=False)
class LogNormalPrior:
    """Prior of the logarithm of relevance: mean [M] and covariance _APART I + traits V traits'."""

    mean: Floats
    traits: Floats
    """[M, columns]."""
    variances: Floats
    """V: of the columns' coefficients."""

    @staticmethod
    def of(players: int, expected: Floats | None) -> LogNormalPrior:
        """`expected` [M]: relevance up to a factor and a power; None: all alike."""
        level = np.ones((players, 1))
        if expected is None:
            return LogNormalPrior(np.zeros(players), level, np.full(1, _LEVEL))
        mean = _log_relevance(expected, _MEAN_POWER)
        trait = (mean - mean.mean())[:, None]
        return LogNormalPrior(mean, np.hstack([level, trait]), np.array([_LEVEL, _POWER]))

    def covariance_times(self, rows: Floats) -> Floats:
        """The covariance times each row, [..., M]."""
        product_rows: Floats = (rows @ self.traits) * self.variances @ self.traits.T
        product_rows += _APART * rows
        return product_rows


def _log_relevance(expected: Floats, power: float) -> Floats:
    """Logarithm of a power of what is `expected` of the players, with mean 1, [M]."""
    logs = power * np.log(expected / expected.max()).clip(_LOWEST)
    log_relevance: Floats = logs - np.log(np.exp(logs).mean())
    return log_relevance


def prior_relevances(
    players: int, expected: Floats | None, powers: tuple[float, ...]
) -> list[Floats]:
    """Relevance before anything is learnt: `powers` of what is expected, and all alike."""
    alike = [np.ones(players)]
    if expected is None:
        return alike
    return [np.exp(_log_relevance(expected, power)) for power in powers] + alike


def all_mixtures(kernel: Kernel, odd: Floats) -> FittedKernel:
    """Nothing learnt of the players, and how likely every mixture is."""
    mixtures = [
        Mixture(**dict(zip(_grid(), mixture, strict=True)))
        for mixture in product(*_grid().values())
    ]
    return FittedKernel(
        kernel.relevance, {mixture: _likelihood(kernel, mixture, odd) for mixture in mixtures}
    )


def fit_lengthscales(
    coalitions: Coalitions, odd: Floats, expected: Floats | None = None, steps: int = 1
) -> FittedKernel:
    """Relevance of the players and likely mixtures, by turns.

    From the relevance that is `expected` of players, to the one that a first fit gives them
    credit for, to Newton `steps` up the marginal likelihood.
    """
    prior = LogNormalPrior.of(coalitions.players, expected)
    kernel = Kernel(coalitions, np.exp(prior.mean))
    if components().lengthscales:
        kernel = Kernel(coalitions, _with_credit(kernel, start(), odd))
    mixture, before = _climbed(kernel, start(), odd)
    first = kernel.relevance
    for _ in range(steps if components().lengthscales else 0):
        kernel = Kernel(coalitions, _newton(kernel, mixture, odd, prior))
    likely = sorted(before, key=lambda candidate: -before[candidate])[:_AGAIN]
    after = {candidate: _likelihood(kernel, candidate, odd) for candidate in likely}
    # Newton's method may overshoot where there are few pairs.
    better = max(after.values()) > max(before.values())
    relevance, likelihoods = (kernel.relevance, after) if better else (first, before)
    # Other pairs may show that a player matters who does not in these.
    return FittedKernel((1 - _FLOOR) * relevance + _FLOOR * np.exp(prior.mean), likelihoods)


def _climbed(kernel: Kernel, mixture: Mixture, odd: Floats) -> tuple[Mixture, dict[Mixture, float]]:
    """The most likely mixture, one variance after the other, and all that were tried."""
    likelihoods = {mixture: _likelihood(kernel, mixture, odd)}
    for name, grid in _grid().items():
        for value in grid:
            other = replace(mixture, **{name: value})
            if other not in likelihoods:
                likelihoods[other] = _likelihood(kernel, other, odd)
        mixture = max(likelihoods, key=lambda candidate: likelihoods[candidate])
    return mixture, likelihoods


def log_likelihood(factor: Floats, whitened: Floats) -> float:
    """Of pairs with this factor of their covariance and factor^-1 y; the mean over outputs.

    Every output has a scale of its own, at its most likely value.
    """
    energy = np.maximum((whitened**2).sum(0), 1e-300)
    return float(-np.log(factor.diagonal()).sum() - len(factor) / 2 * np.log(energy).mean())


def _likelihood(kernel: Kernel, mixture: Mixture, odd: Floats) -> float:
    factor = cholesky(kernel.gram(mixture))
    return log_likelihood(factor, lapack.dtrtrs(factor, odd, lower=1)[0])


def _with_credit(kernel: Kernel, mixture: Mixture, odd: Floats) -> Floats:
    """Players matter about as much as they have credit, as far as that is known."""
    factor = cholesky(kernel.gram(mixture))
    whitened = solve_lower(factor, np.concatenate([odd, kernel.shapley(mixture)], 1))
    values, shares = whitened[:, : odd.shape[1]], whitened[:, odd.shape[1] :]
    left = np.maximum(kernel.prior(mixture) - (shares**2).sum(0), 0)
    scale = np.maximum((values**2).mean(0), 1e-300)
    square = ((shares.T @ values) ** 2 / scale).mean(1) + left
    relevance = np.sqrt(square)
    return (1 - _FLOOR) * relevance / relevance.mean() + _FLOOR * kernel.relevance


def _newton(kernel: Kernel, mixture: Mixture, odd: Floats, prior: LogNormalPrior) -> Floats:
    """A more likely relevance: one step of Newton's method in its logarithm.

    With the curvature X'X / 2 + C^-1 of the likelihood and the prior, whose covariance is C, by
    products with C and a matrix of pairs alone: there may be many more players than pairs.
    """
    slope, sides = _derivatives(kernel, mixture, odd)
    logs = np.log(kernel.relevance)
    step = prior.covariance_times(slope) + (logs - prior.mean)
    reached = prior.covariance_times(sides)
    inner = sides @ reached.T
    diagonal(inner)[:] += 2
    step -= reached.T @ lapack.dposv(inner, sides @ step)[1]
    relevance = np.exp((logs - step.clip(-_LONGEST, _LONGEST)).clip(_LOWEST, _HIGHEST))
    return relevance / relevance.mean()


def _derivatives(kernel: Kernel, mixture: Mixture, odd: Floats) -> tuple[Floats, Floats]:
    """Slope in log w of the negative log likelihood, [M], and X, [pairs, M]: X'X / 2 is about its
    curvature.

    The derivative of the covariance K by log w_i is 2 e_i (s_i s_i' + c z_i z_i') / M for the
    linear parts, where z are slopes per size, a_i (s_i b' + b s_i') for what effects b = sum of
    a_i s_i have in common, and w_i s_i s_i' B (elementwise) for the product.
    The curvature is the average of the observed and the expected one, which needs no more than
    the derivatives times a = K^-1 y, less what is a change of scale.
    """
    coalitions, signs = kernel.coalitions, kernel.coalitions.signs
    direct = coalitions.direct
    factor = cholesky(kernel.gram(mixture))
    solved, _ = lapack.dpotrs(factor, odd, lower=1)
    # With each output in units of its own scale.
    unit = np.sqrt(len(odd) / np.maximum((solved * odd).sum(0), 1e-300))
    solved *= unit
    pull = inverse_from_cholesky(factor) - solved @ solved.T / odd.shape[1]
    effect = 2 * kernel.effect / coalitions.players
    scale = coalitions.slope * np.sqrt(mixture.per_size * coalitions.players)
    falling = coalitions.direct_centred * scale[:, None]
    slope = 0.5 * effect * np.einsum("ki,ki->i", signs, pull @ signs)
    slope[direct] += 0.5 * effect[direct] * np.einsum("ki,ki->i", falling, pull @ falling)
    common = kernel.common(coalitions)
    slope += kernel.loading * (signs.T @ (pull @ common))
    share = kernel.effect / coalitions.players  # effects keep their mean
    slope -= share * slope.sum()
    derivative = None
    if mixture.theta:
        derivative = kernel.product_derivative(mixture.theta)
        pull *= derivative
        slope += 0.5 * kernel.relevance * np.einsum("ki,ki->i", signs, pull @ signs)
    outputs = slice(min(_OUTPUTS, odd.shape[1]))
    jacobians = []
    for weights, targets in zip(solved.T[outputs], (odd * unit).T[outputs], strict=True):
        forces = signs * (effect * (weights @ signs))
        forces[:, direct] += falling * (effect[direct] * (weights @ falling))
        forces += signs * (kernel.loading * (weights @ common))
        forces += np.outer(common, kernel.loading * (weights @ signs))
        forces -= np.outer(forces.sum(1), share)
        if derivative is not None:
            forces += signs * (kernel.relevance * (derivative @ (signs * weights[:, None])))
        sides = solve_lower(factor, np.concatenate([forces, targets[:, None]], 1))
        sides, projected = sides[:, :-1], sides[:, -1]
        jacobians.append(sides - np.outer(projected, projected @ sides / len(odd)))
    return slope, np.concatenate(jacobians) / np.sqrt(len(jacobians))
