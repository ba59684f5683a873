"""Gaussian process surrogate g of a game, and the Shapley values of g in closed form.

The odd part of the game, which is all that Shapley values depend on, is taken for a draw from a
Gaussian process with one of the covariances of `kernels`; g is what a process expects that has
seen the pairs. Several processes that explain the pairs about as well are averaged. All pairs
known, g is the game and its values are the game's: the estimate is consistent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.special import softmax, stdtrit
from torch import Tensor

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.cholesky import cholesky, diagonal, inverse_from_cholesky, solve_lower
from graphsvx.estimators.kernels import Coalitions, Kernel, Mixture
from graphsvx.estimators.least_squares import WLS, Fit, least_squares, surrogate
from graphsvx.estimators.lengthscales import all_mixtures, fit_lengthscales, log_likelihood
from graphsvx.estimators.ridge import needs_ridge
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked, Range

_FOLDS = 2
_FEW = 8  # pairs or fewer: nothing is learnt of who matters
_LEARNT = 128  # pairs that a covariance is learnt on
_BEST, _MANY = 3, 40  # mixtures that are averaged for a relevance that was learnt or not,
_LIKELY = 0.01  # of those that are at least so likely, compared with the best
_BLOCK = 128  # rows of a kernel matrix that stay in the cache
# Pairs that are interpolated times players: more would take gigabytes, and are left to least
# squares, which sees players in blocks.
_MOST_ENTRIES = 1 << 21


@dataclass(frozen=True)
class GaussianProcess(Checked):
    """A Gaussian process where rows are pairs of coalitions, least squares (`WLS`) elsewhere.

    Error bars: the posterior variance, scaled by how far pairs were missed that the covariance
    had not been learnt on, plus the differences between the processes that are averaged; wider
    where few pairs tell the scale, as the quantiles of Student's t distribution are.
    """

    pairs: Annotated[int, Range(8, 100_000)] = 512
    """Pairs that g interpolates; least squares on the others corrects its residuals."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: a dozen matrices of pairs and players, or least squares'."""
        pairs = coalitions // 2
        if min(pairs, self.pairs) * players > _MOST_ENTRIES:
            return WLS().memory(coalitions, players)
        return 8 * players * (16 * min(pairs, self.pairs) + 5 * pairs)

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit from g, errors from held-out pairs."""
        found = None
        coalitions, players = masks.rows.shape
        fits = min(coalitions // 2, self.pairs) * players <= _MOST_ENTRIES
        if masks.pair is not None and not masks.exact and players >= 3 and fits:
            with suppress(np.linalg.LinAlgError):  # pairs that no kernel can tell apart
                found = self._processed(masks, values, empty, full)
        phi, errors = found or least_squares(masks, values, empty, full)
        return surrogate(masks, values, empty, torch.from_numpy(phi), torch.from_numpy(errors))

    def _processed(
        self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor
    ) -> tuple[Floats, Floats] | None:
        """Credit and errors, [outputs, M] each; None where least squares explain everything."""
        signs, odd = _odd_part(masks, values, empty, full)
        if not needs_ridge(masks):
            phi, _ = least_squares(masks, values, empty, full)
            left = np.abs(odd - signs @ (phi.T / 2)).max(0)
            if bool((left <= 1e-9 * np.abs(odd).max(0) + 1e-12).all()):
                return None
        coalitions = Coalitions.of(signs)
        seen = np.arange(min(len(odd), self.pairs + 1))
        average = _average(coalitions.take(seen), odd[seen])
        credit, variance = average.credit, average.variance
        if len(seen) < len(odd):
            credit, variance = _corrected(coalitions, odd, masks, average)
        # Spread the rounding error evenly, so that credit is efficient.
        credit += (2 * odd[0] - credit.sum(0)) / len(credit)
        wider = stdtrit(len(seen) + 1, 0.975) / stdtrit(np.inf, 0.975)
        return credit.T.copy(), wider * np.sqrt(variance.T)


def _odd_part(masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> tuple[Floats, Floats]:
    """A coalition of each pair as signs [pairs, M], and half the difference of the pair's values.

    The first pair is the full and the empty coalition, which makes g efficient.
    """
    y = values.numpy()
    signs = np.ones((len(y) // 2 + 1, masks.rows.shape[1]))
    signs[1:] = 2.0 * masks.rows[::2] - 1
    return signs, np.concatenate([(full - empty).numpy()[None], y[::2] - y[1::2]]) / 2


@dataclass(frozen=True, eq=False)
class _Average:
    """Several processes that have seen the same pairs, averaged."""

    processes: list[_Process]
    weights: Floats
    credit: Floats
    """Shapley values, [M, outputs]."""
    variance: Floats
    """Of the Shapley values, with the differences between the processes, [M, outputs]."""

    @property
    def pairs(self) -> int:
        """That they have seen, with the full coalition."""
        return len(self.processes[0].whitened)

    def at(self, coalitions: Coalitions) -> Floats:
        """g at other pairs, [pairs, outputs], by the processes with the most weight."""
        best = self.weights.argsort()[-_FOLDS:]
        weights = self.weights[best] / self.weights[best].sum()
        return sum(w * self.processes[i].at(coalitions) for w, i in zip(weights, best, strict=True))


def _average(coalitions: Coalitions, odd: Floats) -> _Average:
    """The processes that explain these pairs; the full coalition is the first one."""
    processes, weights, variances, halves = [], [], [], []
    for known, held in _splits(len(odd)):
        split = known is not held
        some = known[_spread(len(known), _LEARNT)]
        learning = fit_lengthscales if split else all_mixtures
        found = learning(coalitions.take(some), odd[some])
        order = np.concatenate([known, held]) if split else known
        kernel = Kernel(coalitions.take(order), found.relevance)
        mixtures = found.best(_BEST if split else _MANY, _LIKELY)
        same = [_Process.of(kernel, mixture, odd[order]) for mixture in mixtures]
        likelihood = np.array([process.log_likelihood for process in same])
        processes += same
        weights += list(softmax(likelihood))
        first = len(known) if split else 0
        variances += [process.variance(first) for process in same]
        if split:
            halves.append(same[int(likelihood.argmax())].first_half(first))
    weight = np.array(weights) / sum(weights)
    every = np.array([process.credit() for process in processes])
    credit = np.einsum("p,pmo->mo", weight, every)
    variance = np.einsum("p,pmo->mo", weight, np.array(variances) + (every - credit) ** 2)
    return _Average(processes, weight, credit, variance * _disagreement(halves))


def _disagreement(halves: list[tuple[Floats, Floats]]) -> Floats:
    """How far Shapley values by separate halves of the pairs are apart, in multiples of what
    their variances say, [outputs]; at least 1.
    """
    if not halves:
        return np.ones(1)
    (one, variance), (other, other_variance) = halves
    apart = (one - other) ** 2 / np.maximum(variance + other_variance, 1e-300)
    return np.maximum(apart.mean(0), 1)


def _spread(count: int, most: int) -> Ids:
    """At most so many of the first `count` numbers, evenly spread."""
    return np.arange(count) if count <= most else np.arange(most) * (count - 1) // (most - 1)


def _splits(count: int) -> list[tuple[Ids, Ids]]:
    """Pairs that covariances are learnt on, and others that say how good they are.

    The full coalition, the first one, is always known. Very few pairs are not split.
    """
    every = np.arange(count)
    if count - 1 <= _FEW:
        return [(every, every)]
    return [
        (np.append(0, np.delete(every[1:], np.s_[fold::_FOLDS])), every[1 + fold :: _FOLDS])
        for fold in range(_FOLDS)
    ]


@dataclass(frozen=True, eq=False)
class _Process:
    """A Gaussian process that has seen some pairs, with unit scale."""

    kernel: Kernel
    mixture: Mixture
    factor: Floats
    whitened: Floats
    """factor^-1 y: row i is the standardised one-step-ahead error of pair i, so that errors on
    held-out pairs, if they come last, need no other fit."""
    shares: Floats
    """factor^-1 of the Shapley values of the pairs' covariance functions, [pairs, M]."""
    prior: Floats

    @staticmethod
    def of(kernel: Kernel, mixture: Mixture, odd: Floats) -> _Process:
        factor = cholesky(kernel.gram(mixture))
        whitened = solve_lower(factor, np.concatenate([odd, kernel.shapley(mixture)], 1))
        outputs = odd.shape[1]
        values, shares = whitened[:, :outputs], whitened[:, outputs:]
        return _Process(kernel, mixture, factor, values, shares, kernel.prior(mixture))

    @property
    def log_likelihood(self) -> float:
        return log_likelihood(self.factor, self.whitened)

    def at(self, coalitions: Coalitions) -> Floats:
        """g at other pairs, [pairs, outputs]."""
        solved, _ = lapack.dtrtrs(self.factor, self.whitened, lower=1, trans=1)
        blocks = [
            self.kernel.across(coalitions.take(np.arange(first, last)), self.mixture) @ solved
            for first, last in pairwise([*range(0, len(coalitions), _BLOCK), len(coalitions)])
        ]
        return np.concatenate(blocks)

    def credit(self) -> Floats:
        """Shapley values of g, [M, outputs]."""
        return self.shares.T @ self.whitened

    def variance(self, first: int) -> Floats:
        """Of the Shapley values, [M, outputs], in the scale of the errors from pair `first` on."""
        return self._left(len(self.shares))[:, None] * (self.whitened[first:] ** 2).mean(0)

    def first_half(self, count: int) -> tuple[Floats, Floats]:
        """Shapley values and their variances, had only the first `count` pairs been seen."""
        credit = self.shares[:count].T @ self.whitened[:count]
        return credit, self._left(count)[:, None] * (self.whitened[count:] ** 2).mean(0)

    def _left(self, count: int) -> Floats:
        """What the first `count` pairs leave of the prior variance, [M]."""
        told = (self.shares[:count] ** 2).sum(0)
        return np.maximum(self.prior - told, 1e-10 * self.prior)


def _corrected(
    coalitions: Coalitions, odd: Floats, masks: Masks, average: _Average
) -> tuple[Floats, Floats]:
    """Credit and variances, corrected by what g misses on pairs that it has not seen.

    What is missed is regressed on coalitions, with the variances of g's Shapley values as prior
    of what their errors can be: few more pairs change little, and with very many this is weighted
    least squares. Errors come from the residuals (a sandwich), not from the model.
    """
    if masks.pair is None or masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    drawn, weights, unseen = masks.pair[::2] >= 0, masks.weights[::2].copy(), masks.unseen[::2]
    fresh = np.arange(len(drawn)) >= average.pairs - 1
    size = masks.rows[::2].sum(1)
    size = np.minimum(size, coalitions.players - size)
    # Fresh pairs stand for all draws of their size; enumerated ones that g has seen miss nothing.
    new = drawn & fresh
    every = np.bincount(size[drawn], weights[drawn])
    rest_mass = np.bincount(size[new], weights[new], len(every))
    weights[new] *= (every / np.where(rest_mass > 0, rest_mass, 1))[size[new]]
    used = np.flatnonzero(fresh | ~drawn)
    missed = np.zeros((len(used), odd.shape[1]))
    behind = fresh[used]
    missed[behind] = odd[1:][fresh] - average.at(coalitions.take(np.flatnonzero(fresh) + 1))
    rows = coalitions.centred[used + 1]
    left = np.where(drawn, unseen, 0.0)[used]
    credit, variance = average.credit.copy(), np.empty_like(average.variance)
    for output in range(odd.shape[1]):
        change, variance[:, output] = _ridge(
            rows, missed[:, output], weights[used], average.variance[:, output], left
        )
        credit[:, output] += change
    return credit, variance


def _ridge(
    rows: Floats, target: Floats, weights: Floats, prior: Floats, unseen: Floats
) -> tuple[Floats, Floats]:
    """Coefficients with a `prior` variance each, and their variances, [M] each."""
    weights = weights / weights.mean()
    noise = float((weights * target**2).mean()) or 1e-300
    precision = noise / np.maximum(prior, 1e-300)
    gram = (rows * weights[:, None]).T @ rows
    diagonal(gram)[:] += precision
    hat = inverse_from_cholesky(cholesky(gram))
    moved = rows @ hat
    moved *= weights[:, None]
    coefficients = moved.T @ target
    leverage = np.einsum("ij,ij->i", moved, rows)
    residual = (target - rows @ coefficients) / np.maximum(1 - leverage, 0.1)
    variance = (residual**2 * unseen) @ moved**2 + hat**2 @ (precision * noise)
    return coefficients, variance
