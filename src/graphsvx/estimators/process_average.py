"""Averages of Gaussian processes, weighted by marginal likelihood.

Relevances and mixtures are learnt on some of the pairs and judged on the others. Pairs that no
process was fitted to correct the average (`corrected`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.special import softmax

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.estimators.cholesky import cholesky, solve_lower
from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.evidence import Evidence, average
from graphsvx.estimators.kernels import Kernel, Mixture
from graphsvx.estimators.lengthscales import (
    all_mixtures,
    fit_lengthscales,
    log_likelihood,
    prior_relevances,
    start,
)
from graphsvx.masks.base import Masks
from graphsvx.utils.components import components

# A Gaussian process that has seen the values of some pairs of coalitions.


_BLOCK = 512  # pairs that g is evaluated at together


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
    def of(kernel: Kernel, mixture: Mixture, odd: Floats, fitted: int, weights: Floats) -> Process:
        """`fitted`: number of leading pairs that the covariance was learnt on."""
        factor = cholesky(kernel.gram_once(mixture))
        outputs = odd.shape[1]
        whitened = solve_lower(factor, np.concatenate([odd, kernel.shapley(mixture)], 1))
        values, shares = whitened[:, :outputs].copy(), whitened[:, outputs:]
        prior = kernel.prior(mixture)
        moved, explained = shares[fitted:].T @ values[fitted:], squares(shares[fitted:])
        judges = values[fitted if fitted < len(values) else 0 :]
        scale = (judges**2).mean(0)
        apart = (moved**2 / np.maximum(np.multiply.outer(explained, scale), 1e-300)).mean(0)
        understatement = np.ones(outputs)
        cut = max(fitted, len(values) // 2)  # rows from there on tell how good those before are
        if len(values) - cut > 1 and components().error_factor:
            residuals = blas.dtrmm(1.0, factor[cut:, cut:], values[cut:], lower=1)
            left = np.maximum(prior - squares(shares[:cut]), 1e-10 * prior).sum()
            understatement = _error_factor(
                kernel.coalitions.signs[cut:], residuals, weights[cut:], left * scale
            )
        return Process(
            kernel,
            mixture,
            factor,
            values,
            scale,
            shares[:fitted].T @ values[:fitted] + moved,
            np.maximum(prior - explained - squares(shares[:fitted]), 1e-10 * prior),
            np.maximum(apart, understatement),
            fitted,
        )

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

    def evidence(self) -> Evidence:
        """Shapley values with their posterior variances, in units of the values."""

        def of_sums(weights: Floats) -> Floats:
            shares = solve_lower(self.factor, self.kernel.shapley(self.mixture) @ weights)
            prior = self.kernel.prior_of_sums(self.mixture, weights)
            left: Floats = np.maximum(prior - squares(shares), 1e-10 * prior)
            return np.multiply.outer(self.scale, left)

        return Evidence(self.credit.T, np.multiply.outer(self.scale, self.left), of_sums)

    def description(self) -> str:
        """The parts of the covariance, in words."""
        parts = ["linear"]
        if self.mixture.per_size:
            parts.append("slopes per size")
        if self.mixture.theta:
            parts.append(f"interactions (theta {self.mixture.theta:g})")
        return f"Gaussian process: {', '.join(parts)}, noise {self.mixture.white:g}"


def _error_factor(signs: Floats, residuals: Floats, weights: Floats, variance: Floats) -> Floats:
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


_FEW = 8  # up to so many pairs, relevances are not learnt
_LEAST_LEARNT, _MOST_LEARNT = 64, 192  # pairs to learn a covariance on; more are a quarter
_BEST, _MANY = 2, 40  # mixtures that are averaged for a learnt relevance, and for a prior one
_WHITES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # variances of the white part to try
_WHITE_PAIRS = 512  # most pairs that they are compared on
# Powers of the expected relevance for which nothing was learnt, with few pairs and with more.
_FEW_POWERS, _POWERS = (0.5, 1.5), (1.0, 2.0)
_PRIOR_INFLATION = 2.0  # of the variance of a process that is not averaged with others
_FEW_PLAYERS = 20  # for whom that is 1
_FLATTER = 0.25  # exponent of likelihoods as weights, where covariances are learnt on halves
_LIKELY = 0.1  # least likelihood of a mixture in the average, relative to the best


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs with half the differences of their values; the full coalition is the first one."""

    coalitions: Coalitions
    odd: Floats
    """[pairs, outputs]."""
    weights: Floats
    """Regression weights, [pairs]."""

    def take(self, index: Ids) -> Pairs:
        """The pairs at these positions."""
        return Pairs(self.coalitions.take(index), self.odd[index], self.weights[index])


@dataclass(frozen=True, eq=False)
class Processes:
    """Processes that have seen the same pairs, and what they say together."""

    likeliest: Process
    """The one with the most weight."""
    pairs: int
    """How many pairs they have seen, the full coalition included."""
    evidence: Evidence


def average_processes(pairs: Pairs, expected: Floats | None) -> Processes:
    """The processes that explain these pairs; `expected` [M]: relevance of the players."""
    processes: list[Process] = []
    weights: list[Floats] = []
    odd = pairs.odd
    missed, size = np.zeros(odd.shape[1]), np.zeros(odd.shape[1])
    splits = _splits(*pairs.coalitions.signs.shape)
    if not components().averaging:
        splits = splits[:1]
    for fitted, held_out in splits:
        if not len(held_out):
            candidates = _nothing_learnt(pairs, expected)
        elif len(splits) == 1:
            candidates = [_learnt(pairs, fitted, held_out, expected)]
        else:
            candidates = _learnt_on_half(pairs, fitted, held_out, expected)
        order = np.concatenate([fitted, held_out])
        same = [
            Process.of(kernel, mixture, odd[order], len(fitted), pairs.weights[order])
            for kernel, mixture in candidates
        ]
        if not components().averaging:
            same = [max(same, key=lambda process: process.log_likelihood)]
        likelihood = np.array([process.log_likelihood for process in same])
        processes += same
        # Few pairs are learnt on by halves: their likelihoods say less than they seem to.
        weights.append(softmax(likelihood if len(splits) == 1 else _FLATTER * likelihood))

        missed += (same[int(likelihood.argmax())].one_step_errors() ** 2).sum(0)
        size += (odd[held_out] ** 2).sum(0)
    weight = np.concatenate(weights) / len(splits)
    disagreement = np.einsum("p,po->o", weight, [process.disagreement for process in processes])
    if len(processes) == 1:  # no others whose differences say what the covariance leaves open
        alone = min(_PRIOR_INFLATION, pairs.coalitions.players / _FEW_PLAYERS)
        disagreement = np.maximum(disagreement, np.sqrt(alone * disagreement))
    likeliest = processes[int(weight.argmax())]
    parts = [process.evidence() for process in processes]
    evidence = average(parts, np.repeat(weight[:, None], odd.shape[1], 1)).widened(disagreement)
    r2 = np.where(size > 0, 1 - missed / np.where(size > 0, size, 1), np.nan)
    evidence = replace(evidence, source=likeliest.description(), held_out_r2=r2)
    return Processes(likeliest, len(odd), evidence)


def _nothing_learnt(pairs: Pairs, expected: Floats | None) -> list[tuple[Kernel, Mixture]]:
    """Likely mixtures for powers of the `expected` relevance and for players that are alike."""
    candidates = []
    for relevance in prior_relevances(pairs.coalitions.players, expected, _FEW_POWERS):
        kernel = Kernel(pairs.coalitions, relevance)
        mixtures = all_mixtures(kernel, pairs.odd).best(_MANY, _LIKELY)
        candidates += [(kernel, mixture) for mixture in mixtures]
    return candidates


def _learnt(
    pairs: Pairs, fitted: Ids, held_out: Ids, expected: Floats | None
) -> tuple[Kernel, Mixture]:
    """Relevance and mixture, learnt on the pairs `fitted`."""
    part = pairs.take(fitted)
    lengthscales = fit_lengthscales(part.coalitions, part.odd, expected)
    (mixture,) = lengthscales.best(1, _LIKELY)
    order = np.concatenate([fitted, held_out])
    kernel = Kernel(pairs.coalitions.take(order), lengthscales.relevance)
    return kernel, _likeliest_white(kernel, mixture, pairs.odd[order])


def _learnt_on_half(
    pairs: Pairs, fitted: Ids, held_out: Ids, expected: Floats | None
) -> list[tuple[Kernel, Mixture]]:
    """The likeliest mixtures for a relevance that is learnt on half of the pairs.

    These may be too few to learn it from: processes for which nothing was learnt are there too.
    """
    part = pairs.take(fitted)
    lengthscales = fit_lengthscales(part.coalitions, part.odd, expected)
    all_pairs = pairs.take(np.concatenate([fitted, held_out]))
    kernel = Kernel(all_pairs.coalitions, lengthscales.relevance)
    mixtures = lengthscales.best(_BEST, _LIKELY)
    relearnt = [_likeliest_white(kernel, mixture, all_pairs.odd) for mixture in mixtures]
    candidates = [(kernel, mixture) for mixture in dict.fromkeys([*mixtures, *relearnt])]
    for relevance in prior_relevances(all_pairs.coalitions.players, expected, _POWERS):
        kernel = Kernel(all_pairs.coalitions, relevance)
        candidates.append((kernel, _likeliest_white(kernel, start(), all_pairs.odd)))
    return candidates


def _likeliest_white(kernel: Kernel, mixture: Mixture, odd: Floats) -> Mixture:
    """The mixture with the white part that all pairs (or many of them) make likeliest.

    Those that the rest was learnt on may be too few to tell it: with fewer pairs than players a
    process without a white part explains them all.
    """
    count = len(odd)
    pair_ids = np.unique(np.linspace(0, count - 1, min(count, _WHITE_PAIRS)).astype(np.int64))
    part = kernel
    if len(pair_ids) < count:
        part = Kernel(kernel.coalitions.take(pair_ids), kernel.relevance)
    gram = part.gram_once(replace(mixture, white=0.0))

    def likelihood(white: float) -> float:
        factor = cholesky(part.with_white(gram.copy(), white))
        return log_likelihood(factor, lapack.dtrtrs(factor, odd[pair_ids], lower=1)[0])

    return replace(mixture, white=_WHITES[_climb(likelihood, mixture.white)])


def _climb(likelihood: Callable[[float], float], start: float) -> int:
    """Position of a maximum of `likelihood` in `_WHITES`, uphill from the one next to `start`."""
    likelihood_at = cache(lambda position: likelihood(_WHITES[position]))
    best = int(np.abs(np.log(_WHITES) - np.log(max(start, _WHITES[0]))).argmin())
    while True:
        neighbours = range(max(best - 1, 0), min(best + 2, len(_WHITES)))
        next_best = max(neighbours, key=likelihood_at)
        if next_best == best:
            return best
        best = next_best


def _splits(count: int, players: int) -> list[tuple[Ids, Ids]]:
    """Pairs that covariances are learnt on, and others that say how good they are.

    The full coalition, the first one, is always learnt on. Very few pairs are not split; where
    there are not many, each half is learnt on in turn.
    """
    indices = np.arange(count)
    if count - 1 <= _FEW:
        return [(indices, indices[:0])]
    fit_size = min(max(_LEAST_LEARNT, players), max(_MOST_LEARNT, count // 4))
    if count >= 2 * fit_size:
        fitted = np.arange(fit_size) * (count - 1) // (fit_size - 1)
        return [(fitted, np.delete(indices, fitted))]
    return [
        (np.append(0, np.delete(indices[1:], np.s_[fold::2])), indices[1 + fold :: 2])
        for fold in range(2)
    ]


def corrected(processes: Processes, masks: Masks, odd: Floats) -> Evidence:
    """Processes, which have seen the first pairs of `masks`, corrected by all pairs.

    What g misses on pairs that it has not seen is regressed on coalitions, with the variances of
    g's Shapley values as prior of what their errors can be: few more pairs change little, and with
    very many this is weighted least squares. Errors come from the residuals, not from the model.
    """
    if masks.pair is None or masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    members, unseen = masks.rows[::2], masks.unseen[::2]
    sampled, weights = masks.pair[::2] >= 0, masks.weights[::2].copy()
    fresh = np.arange(len(sampled)) >= processes.pairs - 1
    size = members.sum(1)
    size = np.minimum(size, members.shape[1] - size)
    # Fresh pairs stand for all draws of their size; enumerated ones that g saw miss nothing.
    new = sampled & fresh
    size_mass = np.bincount(size[sampled], weights[sampled])
    rest_mass = np.bincount(size[new], weights[new], len(size_mass))
    weights[new] *= (size_mass / np.where(rest_mass > 0, rest_mass, 1))[size[new]]
    used = np.flatnonzero(fresh | ~sampled)
    missed = np.zeros((len(used), odd.shape[1]))
    missed[fresh[used]] = odd[1:][fresh] - processes.likeliest.at(members[fresh])
    rows = centred_rows(members[used])
    left = np.where(sampled, unseen, 0.0)[used]
    before = processes.evidence
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


Singles = NDArray[np.float32]

_MOST_STEPS = 60
_TOLERANCE = 1e-5  # of the norm of the right side: far below the errors
_TOLERANCE_OF_SUMS = 1e-2  # of variances that are estimates themselves
_FIXED_POINT_STEPS = 6


@dataclass(frozen=True, eq=False)
class ResidualFit:
    """Coefficients of one output with their variances, and variances of sums of them."""

    coefficients: Floats
    variances: Floats
    rows: Singles
    """x, [rows, M]."""
    weights: Floats
    open_squares: Floats
    """w^2 times squared residuals without their own row, times the share not drawn, [rows]."""
    precision: Floats
    """tau^2 / V, [M]."""
    noise: float
    """tau^2."""

    def variances_of_sums(self, sums: Floats) -> Floats:
        """Variances of weighted sums of the coefficients, [sums], for weights [M, sums]."""
        solved = solve(self.rows, self.weights, self.precision, sums, _TOLERANCE_OF_SUMS)
        projected = (self.rows @ solved.astype(np.float32)).astype(np.float64)
        variances: Floats = self.open_squares @ projected**2
        variances += self.noise * (self.precision @ solved**2)
        return variances


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
    noise = float((weights * residuals**2).mean()) or 1e-300
    right = _transposed(rows, weights * residuals)
    prior = prior * _prior_factor(rows, residuals, weights, prior, right)
    precision = noise / np.maximum(prior, 1e-300)
    coefficients = solve(rows, weights, precision, right[:, None])[:, 0]
    left = residuals - rows @ coefficients.astype(np.float32)
    inverse, loads = _inverse_diagonal(rows, weights, precision)
    left *= 1 + loads  # a row pulls the fit towards its own residual
    noise_left = float((weights * left**2).mean())
    open_squares = weights**2 * left**2 * unseen
    squares = rows**2
    spread = _transposed(squares, open_squares)
    even = noise_left * _transposed(squares, weights)
    ratio = spread / np.maximum(even, 1e-300)
    from_noise = (1 - precision * inverse).clip(0, 1)
    variances = noise_left * inverse * (from_noise * ratio + 1 - from_noise)
    return ResidualFit(coefficients, variances, rows, weights, open_squares, precision, noise_left)


def _prior_factor(
    rows: Singles, residuals: Floats, weights: Floats, prior: Floats, right: Floats
) -> float:
    """By what factor the prior variances are too small, as these residuals say; at least 1.

    x_j'W r has the variance sum of w^2 x_j^2 r^2 plus (sum of w x_j^2)^2 times that of delta_j. A
    weighted mean over players estimates the factor, less one standard error of it.
    """
    squares = rows**2
    noise = _transposed(squares, weights**2 * residuals**2)
    signal = _transposed(squares, weights) ** 2 * prior
    share = signal / np.maximum(noise + signal, 1e-300)
    certain = float((share**2).sum())
    if certain < 1:
        return 1.0
    excess = (right**2 - noise) / np.maximum(noise + signal, 1e-300)
    return max(1.0, float(share @ excess) / certain - float(np.sqrt(2 / certain)))


def solve(
    rows: Singles, weights: Floats, precision: Floats, right: Floats, tolerance: float = _TOLERANCE
) -> Floats:
    """(X'WX + precision)^-1 right by conjugate gradients, with a diagonal preconditioner.

    `right` [M, sides]: all sides go on until each is solved.
    """
    scale = 1 / (precision + weights @ (rows**2).mean(1))[:, None]
    solution = np.zeros_like(right)
    left = right.copy()
    towards = scale * left
    direction = towards.copy()
    size = _products(left, towards)
    small = tolerance**2 * size
    for _ in range(_MOST_STEPS):
        if (size <= small).all():
            break
        weighted = weights[:, None] * (rows @ direction.astype(np.float32))
        product = (weighted.T.astype(np.float32) @ rows).T + precision[:, None] * direction
        step = size / np.maximum(_products(direction, product), 1e-300)
        solution += step * direction
        left -= step * product
        towards = scale * left
        size, before = _products(left, towards), size
        direction = towards + (size / np.maximum(before, 1e-300)) * direction
    return solution


def _products(a: Floats, b: Floats) -> Floats:
    """Products of the columns."""
    products: Floats = np.einsum("ij,ij->j", a, b)
    return products


def _inverse_diagonal(rows: Singles, weights: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """About the diagonal of (X'WX + precision)^-1, [M], and w_i x_i' H_-i x_i, [rows]."""
    squares = rows**2
    loads = np.zeros(len(rows))
    inverse = 1 / (precision + _transposed(squares, weights))
    for _ in range(_FIXED_POINT_STEPS):
        loads = weights * (squares @ inverse.astype(np.float32))
        inverse = 1 / (precision + _transposed(squares, weights / (1 + loads)))
    return inverse, loads


def _transposed(rows: Singles, vector: Floats) -> Floats:
    return (vector.astype(np.float32) @ rows).astype(np.float64)
