"""Averages of Gaussian processes, weighted by marginal likelihood, and their residuals.

Relevances of the players and mixtures of the covariance are chosen by some of the pairs
(Rasmussen and Williams 2006, chapter 5), with the scale of the values profiled out. Pairs that no
process has seen correct the average (`corrected`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import softmax

from graphsvx.core.arrays import Bools, Floats
from graphsvx.estimators.covariance import LEAST, Coalitions, Kernel, Mixture, cholesky, solve_lower
from graphsvx.estimators.evidence import Evidence, average
from graphsvx.masks.base import Masks
from graphsvx.utils.context import components

_GRID: dict[str, tuple[float, ...]] = {
    "theta": (0.0, 1.0, 3.0, 9.0),
    "white": (1e-4, 0.03, 0.3),
    "per_size": (0.0, 0.3, 3.0),
}
"""Variances of the parts of a covariance that are tried, relative to that of the linear one."""
_WHITES = (1e-4, 1e-3, 0.01, 0.1, 1.0)  # those of the white part at the end
_LEAST_CHOSEN, _MOST_CHOSEN = 64, 192  # pairs to choose a covariance on; more are a quarter
_POWERS = (0.5, 1.5)  # of what random walks expect of the players, as relevances to try
_LEAST_RELEVANCE = 1e-5  # of a player, relative to the largest: no player is left out
_FLATTER = 0.25  # exponent of likelihoods as weights: few pairs say less than they seem to
_LIKELY = 0.1  # least weight of a process in the average, relative to the best
_MOST_AVERAGED = 12  # processes, which take time each
_PRIOR_INFLATION = 2.0  # of the variance of a process that is not averaged with others
_FEW_PLAYERS = 20  # for whom that is 1
# Pairs that g is evaluated at together, in which memory stays bounded, and that white parts are
# compared on: more cost time and tell no more.
BLOCK = 512
_CG_STEPS = 60  # of conjugate gradients at most
_TOLERANCE = 1e-5  # of the norm of their right side: far below the errors
_FIXED_POINT_STEPS = 6  # after which the diagonal of an inverse changes by less than its error

Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Process:
    """A Gaussian process that has seen some pairs, with unit scale."""

    kernel: Kernel
    mixture: Mixture
    factor: Floats
    whitened: Floats
    """factor^-1 y: row i is the standardised one-step-ahead error of pair i, so that errors on
    held-out pairs, if they come last, need no other fit."""
    evidence: Evidence
    """Shapley values of g with their posterior variances, in units of the values."""
    disagreement: Floats
    """How far the other pairs move the Shapley values that those chosen on give, in multiples of
    what the variances say, [outputs]; at least 1."""

    @staticmethod
    def of(kernel: Kernel, mixture: Mixture, odd: Floats, fitted: int) -> Process:
        """`fitted`: number of leading pairs that the covariance was chosen on."""
        factor = cholesky(kernel.gram(mixture))
        outputs = odd.shape[1]
        whitened = solve_lower(factor, np.concatenate([odd, kernel.shapley(mixture)], 1))
        values, shares = whitened[:, :outputs].copy(), whitened[:, outputs:]
        prior = kernel.prior(mixture)
        moved, explained = shares[fitted:].T @ values[fitted:], squares(shares[fitted:])
        # Variance of the process in units of the values, by pairs that nothing was chosen on.
        scale = (values[fitted if fitted < len(values) else 0 :] ** 2).mean(0)
        apart = (moved**2 / np.maximum(np.multiply.outer(explained, scale), LEAST)).mean(0)
        left = np.maximum(prior - explained - squares(shares[:fitted]), 1e-10 * prior)
        credit = shares[:fitted].T @ values[:fitted] + moved

        def of_sums(weights: Floats) -> Floats:
            shares = solve_lower(factor, kernel.shapley(mixture) @ weights)
            prior = kernel.prior_of_sums(mixture, weights)
            return np.multiply.outer(scale, np.maximum(prior - squares(shares), 1e-10 * prior))

        evidence = Evidence(credit.T, np.multiply.outer(scale, left), of_sums)
        return Process(kernel, mixture, factor, values, evidence, np.maximum(apart, 1))

    def at(self, members: Bools) -> Floats:
        """g at other pairs, given by one coalition of each, [pairs, outputs]."""
        solved, _ = lapack.dtrtrs(self.factor, self.whitened, lower=1, trans=1)
        blocks = []
        for first in range(0, len(members), BLOCK):
            signs = members[first : first + BLOCK].astype(np.float64) * 2 - 1
            others = self.kernel.coalitions.others(signs)
            blocks.append(self.kernel.expected(others, self.mixture, solved))
        return np.concatenate(blocks)

    def description(self) -> str:
        """The parts of the covariance, in words."""
        parts = ["linear"]
        if self.mixture.per_size:
            parts.append("slopes per size")
        if self.mixture.theta:
            parts.append(f"interactions (theta {self.mixture.theta:g})")
        return f"Gaussian process: {', '.join(parts)}, noise {self.mixture.white:g}"


def average_processes(
    coalitions: Coalitions, odd: Floats, expected: Floats | None
) -> tuple[Process, Evidence]:
    """The likeliest process for some pairs, and what all likely ones say together.

    `coalitions` has one of each pair, the full one first, and `odd` [pairs, outputs] half the
    differences of their values. `expected` [M]: relevance of the players. Few pairs choose
    covariances, and all that are likely are averaged. With more of them the likeliest on some of
    the pairs is taken, and the others say how good it is.
    """
    count, players = coalitions.signs.shape
    size = min(max(_LEAST_CHOSEN, players), max(_MOST_CHOSEN, count // 4))
    few = count < 2 * size
    chosen_ids = np.arange(count) if few else np.arange(size) * (count - 1) // (size - 1)
    order = np.concatenate([chosen_ids, np.delete(np.arange(count), chosen_ids)])
    candidates = relevances(players, expected)
    likelihoods = _likelihoods(coalitions.take(chosen_ids), odd[chosen_ids], candidates)
    likely = sorted(likelihoods, key=lambda candidate: -likelihoods[candidate])
    logs = _FLATTER * np.array([likelihoods[candidate] for candidate in likely])
    least = logs[0] + (np.log(_LIKELY) if few and components().averaging else 0.0)
    weights = softmax(logs[logs >= least][:_MOST_AVERAGED])
    coalitions, odd = coalitions.take(order), odd[order]
    kernels = [Kernel(coalitions, relevance) for relevance in candidates]
    processes = []
    for number, mixture in likely[: len(weights)]:
        kernel = kernels[number]
        relearnt = mixture if few else _with_likeliest_white(kernel, mixture, odd)
        processes.append(Process.of(kernel, relearnt, odd, len(chosen_ids)))
    disagreement = np.einsum("p,po->o", weights, [process.disagreement for process in processes])
    if len(processes) == 1:  # no others whose differences say what the covariance leaves open
        alone = min(_PRIOR_INFLATION, players / _FEW_PLAYERS)
        disagreement = np.maximum(disagreement, np.sqrt(alone * disagreement))
    parts = [process.evidence for process in processes]
    evidence = average(parts, np.repeat(weights[:, None], odd.shape[1], 1)).widened(disagreement)
    r2 = _held_out_r2(processes[0], odd, count // 2 if few else len(chosen_ids))
    return processes[0], replace(evidence, source=processes[0].description(), held_out_r2=r2)


def products(a: Floats, b: Floats) -> Floats:
    """Products of the columns."""
    sums: Floats = np.einsum("ij,ij->j", a, b)
    return sums


def squares(rows: Floats) -> Floats:
    """Sums of squares of the columns."""
    return products(rows, rows)


def relevances(players: int, expected: Floats | None) -> list[Floats]:
    """Relevances to try: powers of what is expected, and all alike; mean 1, [M] each."""
    if expected is None:
        return [np.ones(players)]
    shares = np.maximum(expected / expected.max(), _LEAST_RELEVANCE)
    return [power / power.mean() for power in (shares**exponent for exponent in (0, *_POWERS))]


def _likelihoods(
    coalitions: Coalitions, odd: Floats, relevances: list[Floats]
) -> dict[tuple[int, Mixture], float]:
    """Of relevances (by number) with mixtures: one variance after the other, at its likeliest."""
    used = {"theta": components().product, "per_size": components().per_size}
    grid = {name: values if used.get(name, True) else (0.0,) for name, values in _GRID.items()}
    middle = {name: values[len(values) // 2] for name, values in grid.items()}
    likelihoods: dict[tuple[int, Mixture], float] = {}
    for number, relevance in enumerate(relevances):
        kernel, mixture = Kernel(coalitions, relevance), Mixture(**middle)
        of_mixtures = {mixture: _log_likelihood(kernel, mixture, odd)}
        for name, values in grid.items():
            for value in values:
                other = replace(mixture, **{name: value})
                if other not in of_mixtures:
                    of_mixtures[other] = _log_likelihood(kernel, other, odd)
            mixture = max(of_mixtures, key=lambda candidate: of_mixtures[candidate])
        likelihoods |= {(number, mixture): value for mixture, value in of_mixtures.items()}
    return likelihoods


def _log_likelihood(kernel: Kernel, mixture: Mixture, odd: Floats) -> float:
    """Of the pairs, each output with a scale of its own, at its likeliest; mean over outputs."""
    factor = cholesky(kernel.gram(mixture))
    energy = np.maximum(squares(lapack.dtrtrs(factor, odd, lower=1)[0]), LEAST)
    return float(-np.log(factor.diagonal()).sum() - len(factor) / 2 * np.log(energy).mean())


def _with_likeliest_white(kernel: Kernel, mixture: Mixture, odd: Floats) -> Mixture:
    """The mixture with the white part that all pairs (or many of them) make likeliest.

    Those that the rest was chosen on may be too few to tell it: with fewer pairs than players a
    process without a white part explains them all.
    """
    count = len(odd)
    ids = np.unique(np.linspace(0, count - 1, min(count, BLOCK)).astype(np.int64))
    part = Kernel(kernel.coalitions.take(ids), kernel.relevance)
    mixtures = [replace(mixture, white=white) for white in _WHITES]
    return max(mixtures, key=lambda other: _log_likelihood(part, other, odd[ids]))


def _held_out_r2(process: Process, odd: Floats, seen: int) -> Floats:
    """Share of the variance of later pairs that was predicted by those before each, [outputs]."""
    missed = squares(process.whitened[seen:] * process.factor.diagonal()[seen:, None])
    size = squares(odd[seen:])
    return np.where(size > 0, 1 - missed / np.where(size > 0, size, 1), np.nan)


def corrected(likeliest: Process, before: Evidence, masks: Masks, odd: Floats) -> Evidence:
    """Evidence of processes, which have seen the first pairs of `masks`, corrected by all pairs.

    What g misses on pairs that it has not seen is regressed on coalitions, with the variances of
    g's Shapley values as prior of what their errors can be: few more pairs change little, and with
    very many this is weighted least squares. Errors come from the residuals, not from the model.
    """
    if masks.pair is None or masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    members, unseen = masks.rows[::2], masks.unseen[::2]
    sampled, weights = masks.pair[::2] >= 0, masks.weights[::2].copy()
    fresh = np.arange(len(sampled)) >= len(likeliest.whitened) - 1
    size = members.sum(1)
    size = np.minimum(size, members.shape[1] - size)
    # Fresh pairs stand for all draws of their size; enumerated ones that g saw miss nothing.
    new = sampled & fresh
    size_mass = np.bincount(size[sampled], weights[sampled])
    rest_mass = np.bincount(size[new], weights[new], len(size_mass))
    weights[new] *= (size_mass / np.where(rest_mass > 0, rest_mass, 1))[size[new]]
    used = np.flatnonzero(fresh | ~sampled)
    missed = np.zeros((len(used), odd.shape[1]))
    missed[fresh[used]] = odd[1:][fresh] - likeliest.at(members[fresh])
    rows = centred_rows(members[used])
    left = np.where(sampled, unseen, 0.0)[used]
    fits = [
        fit_residuals(rows, residuals, weights[used], prior, left)
        for residuals, prior in zip(missed.T, before.variance, strict=True)
    ]
    change = np.stack([fit.coefficients for fit in fits])

    def of_sums(sums: Floats) -> Floats:
        centred = sums - sums.mean(0)
        return np.stack([fit.variances_of_sums(centred) for fit in fits])

    return replace(
        before,
        credit=before.credit + change - change.mean(1, keepdims=True),
        variance=np.stack([fit.variances for fit in fits]),
        variance_of_sums=of_sums,
    )


# Bayesian linear regression of residuals on coalitions, without a matrix of players by players.
#
#     residual_i = x_i' delta + noise of variance tau^2 / w_i,    delta_j ~ N(0, V_j)
#
# where x_i is membership less its mean. The posterior mean H X'W r with H = (X'WX + tau^2 / V)^-1
# comes from conjugate gradients. Its variances come from the diagonal of H, for which a fixed point
# stands (rows of random coalitions are nearly orthogonal; Bai and Silverstein's deterministic
# equivalent of a sample covariance), and from residuals as they would be without their own row, so
# that they hold whatever the noise is.


class ResidualFit(NamedTuple):
    """A fit to one output."""

    coefficients: Floats
    variances: Floats
    variances_of_sums: Callable[[Floats], Floats]
    """Of weighted sums of the coefficients, [sums], for weights [M, sums]."""
    open_squares: Floats
    """w^2 times squared residuals without their own row, times the share not drawn, [rows]."""
    precision: Floats
    """tau^2 / V, [M]."""


def centred_rows(members: Bools) -> Singles:
    """Membership less the share of members, [rows, M]; single precision halves memory and time."""
    rows = members.astype(np.float32)
    rows -= members.mean(1, dtype=np.float64).astype(np.float32)[:, None]
    return rows


def fit_residuals(
    rows: Singles, residuals: Floats, weights: Floats, prior: Floats, unseen: Floats
) -> ResidualFit:
    """Regress `residuals` [rows] on `rows` [rows, M] with `prior` variances [M].

    `unseen`: share of each row's stratum that was not drawn, which its residual stands for.
    """
    weights = weights / weights.mean()
    noise = float((weights * residuals**2).mean()) or LEAST
    right = _transposed(rows, weights * residuals)
    prior = prior * _prior_factor(rows, residuals, weights, prior, right)
    precision = noise / np.maximum(prior, LEAST)
    coefficients = solve(rows, weights, precision, right[:, None])[:, 0]
    left = residuals - rows @ coefficients.astype(np.float32)
    inverse, loads = _inverse_diagonal(rows, weights, precision)
    left *= 1 + loads  # a row pulls the fit towards its own residual
    noise_left = float((weights * left**2).mean())
    open_squares = weights**2 * left**2 * unseen
    squared = rows**2
    spread = _transposed(squared, open_squares)
    even = noise_left * _transposed(squared, weights)
    ratio = spread / np.maximum(even, LEAST)
    from_noise = (1 - precision * inverse).clip(0, 1)

    def variances_of_sums(sums: Floats) -> Floats:
        solved = solve(rows, weights, precision, sums)
        projected = (rows @ solved.astype(np.float32)).astype(np.float64)
        variances: Floats = open_squares @ projected**2
        variances += noise_left * (precision @ solved**2)
        return variances

    variances = noise_left * inverse * (from_noise * ratio + 1 - from_noise)
    return ResidualFit(coefficients, variances, variances_of_sums, open_squares, precision)


def _prior_factor(
    rows: Singles, residuals: Floats, weights: Floats, prior: Floats, right: Floats
) -> float:
    """By what factor the prior variances are too small, as these residuals say; at least 1.

    x_j'W r has the variance sum of w^2 x_j^2 r^2 plus (sum of w x_j^2)^2 times that of delta_j. A
    weighted mean over players estimates the factor, less one standard error of it.
    """
    squared = rows**2
    noise = _transposed(squared, weights**2 * residuals**2)
    signal = _transposed(squared, weights) ** 2 * prior
    share = signal / np.maximum(noise + signal, LEAST)
    certain = float((share**2).sum())
    if certain < 1:
        return 1.0
    excess = (right**2 - noise) / np.maximum(noise + signal, LEAST)
    return max(1.0, float(share @ excess) / certain - float(np.sqrt(2 / certain)))


def solve(rows: Singles, weights: Floats, precision: Floats, right: Floats) -> Floats:
    """(X'WX + precision)^-1 right by conjugate gradients, with a diagonal preconditioner.

    `right` [M, sides]: all sides go on until each is solved.
    """
    scale = 1 / (precision + weights @ (rows**2).mean(1))[:, None]
    solution, left, direction = np.zeros_like(right), right.copy(), scale * right
    size = products(left, direction)
    small = _TOLERANCE**2 * size
    for _ in range(_CG_STEPS):
        if (size <= small).all():
            break
        weighted = weights[:, None] * (rows @ direction.astype(np.float32))
        product = (weighted.T.astype(np.float32) @ rows).T + precision[:, None] * direction
        step = size / np.maximum(products(direction, product), LEAST)
        solution += step * direction
        left -= step * product
        size, before = products(left, scale * left), size
        direction = scale * left + (size / np.maximum(before, LEAST)) * direction
    return solution


def _inverse_diagonal(rows: Singles, weights: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """About the diagonal of (X'WX + precision)^-1, [M], and w_i x_i' H_-i x_i, [rows]."""
    squared = rows**2
    loads = np.zeros(len(rows))
    inverse = 1 / (precision + _transposed(squared, weights))
    for _ in range(_FIXED_POINT_STEPS):
        loads = weights * (squared @ inverse.astype(np.float32))
        inverse = 1 / (precision + _transposed(squared, weights / (1 + loads)))
    return inverse, loads


def _transposed(rows: Singles, vector: Floats) -> Floats:
    return (vector.astype(np.float32) @ rows).astype(np.float64)
