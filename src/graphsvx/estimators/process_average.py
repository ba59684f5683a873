"""Gaussian processes that explain the same pairs of coalitions about as well, averaged.

Relevances and mixtures are learnt on some of the pairs and judged on the others. Pairs that no
process was fitted to correct the average (`Corrected`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.linalg import lapack
from scipy.special import softmax

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.estimators.cholesky import cholesky
from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.kernels import Kernel, Mixture
from graphsvx.estimators.lengthscales import (
    START,
    FittedKernel,
    all_mixtures,
    fit_lengthscales,
    log_likelihood,
    prior_relevances,
)
from graphsvx.estimators.process import Process
from graphsvx.estimators.residuals import ResidualFit, centred_rows, fit_residuals
from graphsvx.masks.base import Masks

_FEW = 8  # up to so many pairs, relevances are not learnt
_LEAST_LEARNT, _MOST_LEARNT = 64, 192  # pairs to learn a covariance on; more are a quarter
_BEST, _MANY = 2, 40  # mixtures that are averaged for a learnt relevance, and for a prior one
_JUDGES = 256  # held-out pairs on which a mixture with walks is compared with the likeliest
_CLEARLY = 0.9  # largest ratio of their squared errors for which it is taken
_WHITES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # variances of the white part to try
_WHITE_PAIRS = 512  # most pairs that they are compared on
# Powers of the expected relevance for which nothing was learnt, with few pairs and with more.
_FEW_POWERS, _POWERS = (0.5, 1.5), (1.0, 2.0)
_ALONE = 2.0  # what the factor of the variance of a process alone is drawn to, if it is smaller,
_FEW_PLAYERS = 20  # and not where so many pairs tell all of so few players
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
    expected_square: Floats | None
    """Mean square of `odd` as log-odds predict it, [outputs]; None: they are not known."""

    def take(self, index: Ids) -> Pairs:
        """The pairs at these positions."""
        return Pairs(
            self.coalitions.take(index), self.odd[index], self.weights[index], self.expected_square
        )


@dataclass(frozen=True, eq=False)
class Average:
    """Several processes that have seen the same pairs, averaged."""

    processes: list[Process]
    weights: Floats
    credit: Floats
    """Shapley values, [M, outputs]."""
    variance: Floats
    """Variance of the Shapley values, with the differences between the processes, [M, outputs]."""
    disagreement: Floats
    """Factor of the variance, [outputs]."""
    held_out_r2: Floats
    """Share of the variance of held-out pairs that was predicted, [outputs]."""

    @property
    def pairs(self) -> int:
        """Number of pairs that the processes have seen, the full coalition included."""
        return len(self.processes[0].whitened)

    def at(self, members: Bools) -> Floats:
        """g at other pairs, [pairs, outputs], by the process with the most weight."""
        return self.processes[int(self.weights.argmax())].at(members)

    def description(self) -> str:
        """The parts of the covariance with the most weight, in words."""
        mixture = self.processes[int(self.weights.argmax())].mixture
        parts = ["linear"]
        if mixture.per_size:
            parts.append("slopes per size")
        if mixture.walk:
            parts.append("walks")
        if mixture.theta:
            parts.append(f"interactions (theta {mixture.theta:g})")
        return f"Gaussian process: {', '.join(parts)}, noise {mixture.white:g}"

    def variance_of_sums(self, weights: Floats) -> Floats:
        """Variances of weighted sums of Shapley values, [outputs, sums], for weights [M, sums]."""
        mean = self.credit.T @ weights
        total_variance = np.zeros_like(mean)
        for process, weight in zip(self.processes, self.weights, strict=True):
            variance, credit = process.sums(weights)
            total_variance += weight * (
                np.multiply.outer(process.scale, variance) + (credit - mean) ** 2
            )
        return total_variance * self.disagreement[:, None]


def average_processes(pairs: Pairs, expected: Floats | None) -> Average:
    """The processes that explain these pairs; `expected` [M]: relevance of the players."""
    processes: list[Process] = []
    weights: list[Floats] = []
    odd = pairs.odd
    missed, size = np.zeros(odd.shape[1]), np.zeros(odd.shape[1])
    splits = _splits(*pairs.coalitions.signs.shape)
    for fitted, held_out in splits:
        if not len(held_out):
            candidates = _nothing_learnt(pairs, expected)
        elif len(splits) == 1:
            candidates = [_learnt(pairs, fitted, held_out, expected)]
        else:
            candidates = _learnt_on_half(pairs, fitted, held_out, expected)
        order = np.concatenate([fitted, held_out])
        same = [
            Process.of(
                kernel, mixture, odd[order], len(fitted), pairs.weights[order],
                pairs.expected_square,
            )
            for kernel, mixture in candidates
        ]  # fmt: skip
        likelihood = np.array([process.log_likelihood for process in same])
        processes += same
        # Few pairs are learnt on by halves: their likelihoods say less than they seem to.
        weights.append(softmax(likelihood if len(splits) == 1 else _FLATTER * likelihood))

        missed += (same[int(likelihood.argmax())].one_step_errors() ** 2).sum(0)
        size += (odd[held_out] ** 2).sum(0)
    weight = np.concatenate(weights) / len(splits)
    credits = np.array([process.credit for process in processes])
    credit = np.einsum("p,pmo->mo", weight, credits)
    variances = [process.left[:, None] * process.scale for process in processes]
    variance = np.einsum("p,pmo->mo", weight, np.array(variances) + (credits - credit) ** 2)
    disagreement = np.einsum("p,po->o", weight, [process.disagreement for process in processes])
    if len(processes) == 1:  # no others whose differences say what the covariance leaves open
        alone = min(_ALONE, pairs.coalitions.players / _FEW_PLAYERS)
        disagreement = np.maximum(disagreement, np.sqrt(alone * disagreement))
    r2 = np.where(size > 0, 1 - missed / np.where(size > 0, size, 1), np.nan)
    return Average(processes, weight, credit, variance * disagreement, disagreement, r2)


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
    mixture = _best_predicted(pairs.coalitions, pairs.odd, fitted, held_out, lengthscales)
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
        candidates.append((kernel, _likeliest_white(kernel, START, all_pairs.odd)))
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


def _best_predicted(
    coalitions: Coalitions, odd: Floats, fitted: Ids, held_out: Ids, lengthscales: FittedKernel
) -> Mixture:
    """The likeliest mixture, or one with walks that predicts held-out pairs clearly better.

    Likelihood is a poor judge of walks: it goes by the small coalitions, which vary most.
    """
    (likeliest,) = lengthscales.best(1, _LIKELY)
    if coalitions.walks is None:
        return likeliest
    candidates = [
        replace(likeliest, walk=3.0), replace(likeliest, walk=3.0, per_size=3.0),
        Mixture(per_size=3.0, theta=0.0, white=0.3, walk=3.0),
    ]  # fmt: skip
    kernel = Kernel(coalitions.take(fitted), lengthscales.relevance)
    judges = held_out[:_JUDGES]
    others, actual = coalitions.take(judges), odd[judges]
    size = np.maximum((actual**2).sum(0), 1e-300)

    def missed(mixture: Mixture) -> float:
        factor = cholesky(kernel.gram(mixture))
        solved, _ = lapack.dpotrs(factor, odd[fitted], lower=1)
        errors = actual - kernel.expected(others, mixture, solved)
        return float(((errors**2).sum(0) / size).mean())

    misses = [missed(mixture) for mixture in candidates]
    best = int(np.argmin(misses))
    return candidates[best] if misses[best] < _CLEARLY * missed(likeliest) else likeliest


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


@dataclass(frozen=True, eq=False)
class Corrected:
    """g corrected by what it misses on pairs that it has not seen.

    What is missed is regressed on coalitions, with the variances of g's Shapley values as prior of
    what their errors can be: few more pairs change little, and with very many this is weighted
    least squares. Errors come from the residuals, not from the model.
    """

    credit: Floats
    variance: Floats
    fits: list[ResidualFit]

    @staticmethod
    def of(average: Average, masks: Masks, odd: Floats) -> Corrected:
        """Correct `average`, which has seen the first pairs, by all pairs of `masks`."""
        if masks.pair is None or masks.unseen is None:
            raise ValueError("these rows were not drawn as pairs")
        members, unseen = masks.rows[::2], masks.unseen[::2]
        sampled, weights = masks.pair[::2] >= 0, masks.weights[::2].copy()
        fresh = np.arange(len(sampled)) >= average.pairs - 1
        size = members.sum(1)
        size = np.minimum(size, members.shape[1] - size)
        # Fresh pairs stand for all draws of their size; enumerated ones that g saw miss nothing.
        new = sampled & fresh
        size_mass = np.bincount(size[sampled], weights[sampled])
        rest_mass = np.bincount(size[new], weights[new], len(size_mass))
        weights[new] *= (size_mass / np.where(rest_mass > 0, rest_mass, 1))[size[new]]
        used = np.flatnonzero(fresh | ~sampled)
        missed = np.zeros((len(used), odd.shape[1]))
        missed[fresh[used]] = odd[1:][fresh] - average.at(members[fresh])
        rows = centred_rows(members[used])
        left = np.where(sampled, unseen, 0.0)[used]
        fits = [
            fit_residuals(rows, residuals, weights[used], prior, left)
            for residuals, prior in zip(missed.T, average.variance.T, strict=True)
        ]
        change = np.stack([fit.coefficients for fit in fits], 1)
        variance = np.stack([fit.variances for fit in fits], 1)
        return Corrected(average.credit + change - change.mean(0), variance, fits)

    def variance_of_sums(self, weights: Floats) -> Floats:
        """Variances of weighted sums of Shapley values, [outputs, sums], for weights [M, sums]."""
        centred = weights - weights.mean(0)
        return np.stack([fit.variances_of_sums(centred) for fit in self.fits])
