"""A surrogate g with all interactions, smooth where the game is smooth, and its Shapley values.

The odd part of the game, which is all that Shapley values depend on, is taken for a draw from a
Gaussian process with one of the covariances of `kernels`; g is what a process expects that has
seen the pairs. Several processes that explain the pairs about as well are averaged. All pairs
known, g is the game and its values are the game's: the estimate is consistent.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.special import stdtrit
from torch import Tensor

from graphsvx.explain.factors import factored, forward
from graphsvx.explain.kernels import Coalitions, Kernel, Mixture
from graphsvx.explain.lengths import MIXTURES, learnt, log_likelihood
from graphsvx.explain.regression import Fit, least_squares, surrogate
from graphsvx.graph import Ids
from graphsvx.masks.base import Floats, Masks

_FEW = 8  # pairs or fewer: nothing is learnt of who matters
_LEARNT = 128  # pairs that a covariance is learnt on
_STEPS = 4  # of learning who matters
_BEST = 3  # mixtures that are averaged, of those at least this likely, beside the best:
_LIKELY = 0.01


@dataclass(frozen=True)
class Smooth:
    """A Gaussian process where rows are pairs of coalitions, least squares (`WLS`) elsewhere.

    Error bars: the posterior variance, scaled by how far pairs were missed that the covariance
    had not been learnt on, plus the differences between the processes that are averaged; wider
    where few pairs tell the scale, as the quantiles of Student's t distribution are.
    """

    pairs: int = 512
    """Pairs that g is made of; least squares on the others correct what it misses."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit from g, errors from left-out pairs."""
        phi, errors = least_squares(masks, values, empty, full)
        if masks.pair is not None and not masks.exact and phi.shape[1] >= 3:
            data = _Pairs.of(masks, values, empty, full)
            if not data.explained_by(phi):
                with suppress(np.linalg.LinAlgError):  # pairs that the kernel cannot tell apart
                    phi, errors = self._interpolated(data, masks, masks.pair[::2])
        return surrogate(masks, values, empty, torch.from_numpy(phi), torch.from_numpy(errors))

    def _interpolated(self, data: _Pairs, masks: Masks, pair: Ids) -> tuple[Floats, Floats]:
        """Credit and errors, [outputs, M] each."""
        used = data.take(np.r_[len(pair), : min(len(pair), self.pairs)])
        average = _average(used)
        credit, variance = average.credit, average.variance
        # What is left of the gain goes to everybody: g is efficient up to rounding.
        credit += (2 * data.odd[-1] - credit.sum(0)) / len(credit)
        wider = stdtrit(len(used.odd) + 1, 0.975) / stdtrit(np.inf, 0.975)
        return credit.T.copy(), wider * np.sqrt(variance.T)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Coalitions as signs [pairs, M] and the odd part of the game [pairs, outputs].

    The last pair is the full and the empty coalition, which makes g efficient.
    """

    signs: Floats
    odd: Floats

    @staticmethod
    def of(masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> _Pairs:
        y = values.numpy()
        signs = np.ones((len(y) // 2 + 1, masks.rows.shape[1]))
        signs[:-1] = 2.0 * masks.rows[::2] - 1
        odd = np.concatenate([(y[::2] - y[1::2]) / 2, (full - empty).numpy()[None] / 2])
        return _Pairs(signs, odd)

    def take(self, chosen: Ids) -> _Pairs:
        return _Pairs(self.signs[chosen], self.odd[chosen])

    def explained_by(self, phi: Floats) -> bool:
        """Whether least squares already leave nothing unexplained."""
        left = np.abs(self.odd - self.signs @ (phi.T / 2)).max(0)
        return bool((left <= 1e-9 * np.abs(self.odd).max(0) + 1e-12).all())


class _Average(NamedTuple):
    """Of the Shapley values of several processes, [M, outputs] each."""

    credit: Floats
    variance: Floats


def _average(pairs: _Pairs) -> _Average:
    """The processes that explain these pairs; the full coalition is the first one."""
    coalitions = Coalitions.of(pairs.signs)
    credits, variances, weights = [], [], []
    for known, held in _splits(len(pairs.odd)):
        steps = 0 if known is held else _STEPS
        relevance, likelihoods = learnt(coalitions.take(known), pairs.odd[known], steps)
        order = known if known is held else np.concatenate([known, held])
        kernel = Kernel(coalitions.take(order), relevance)
        best = likelihoods.argsort()[::-1][: len(MIXTURES) if known is held else _BEST]
        chosen = best[likelihoods[best] > likelihoods[best[0]] + np.log(_LIKELY)]
        processes = [_Process.of(kernel, MIXTURES[i], pairs.odd[order]) for i in chosen]
        first = 0 if known is held else len(known)
        credits += [process.credit() for process in processes]
        variances += [process.variance(first) for process in processes]
        logs = np.array([process.log_likelihood for process in processes])
        share = np.exp(logs - logs.max())
        weights += list(share / share.sum())
    weight = np.array(weights) / sum(weights)
    every = np.array(credits)
    credit = np.einsum("p,pmo->mo", weight, every)
    apart = (every - credit) ** 2
    return _Average(credit, np.einsum("p,pmo->mo", weight, np.array(variances) + apart))


def _splits(count: int) -> list[tuple[Ids, Ids]]:
    """Pairs that covariances are learnt on, and others that say how good they are.

    The full coalition, the first one, is always known. Very few pairs are not split.
    """
    every = np.arange(count)
    if count - 1 <= _FEW:
        return [(every, every)]
    if count <= _LEARNT * 5 // 4:
        return [
            (np.append(0, np.delete(every[1:], np.s_[fold::2])), every[1 + fold :: 2])
            for fold in range(2)
        ]
    known = np.arange(_LEARNT) * (count - 1) // (_LEARNT - 1)
    return [(known, np.delete(every, known))]


@dataclass(frozen=True, eq=False)
class _Process:
    """A Gaussian process that has seen some pairs, with unit scale."""

    whitened: Floats
    """factor^-1 y: row i is the standardised one-step-ahead error of pair i, so that errors on
    held-out pairs, if they come last, need no other fit."""
    shares: Floats
    """factor^-1 of the Shapley values of the pairs' covariance functions, [pairs, M]."""
    prior: Floats
    log_likelihood: float

    @staticmethod
    def of(kernel: Kernel, mixture: Mixture, odd: Floats) -> _Process:
        factor = factored(kernel.gram(mixture))
        whitened = forward(factor, np.concatenate([odd, kernel.shapley(mixture)], 1))
        values, shares = whitened[:, : odd.shape[1]], whitened[:, odd.shape[1] :]
        return _Process(values, shares, kernel.prior(mixture), log_likelihood(factor, values))

    def credit(self) -> Floats:
        """Shapley values of g, [M, outputs]."""
        return self.shares.T @ self.whitened

    def variance(self, first: int) -> Floats:
        """Of the Shapley values, [M, outputs], in the scale of the errors from pair `first` on."""
        left = np.maximum(self.prior - (self.shares**2).sum(0), 1e-10 * self.prior)
        return left[:, None] * (self.whitened[first:] ** 2).mean(0)
