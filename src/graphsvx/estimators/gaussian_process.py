"""Gaussian process surrogate g of a game, and the Shapley values of g in closed form.

The odd part of the game, which is all that Shapley values depend on, is taken for a draw from a
Gaussian process with one of the covariances of `kernels`; g is what a process expects that has
seen the pairs. Several processes that explain the pairs about as well are averaged. All pairs
known, g is the game and its values are the game's: the estimate is consistent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.special import softmax, stdtrit
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.estimators.cholesky import cholesky, diagonal
from graphsvx.estimators.kernels import Coalitions, Kernel, Mixture
from graphsvx.estimators.least_squares import WLS, Fit, surrogate
from graphsvx.estimators.lengthscales import (
    START,
    FittedKernel,
    all_mixtures,
    fit_lengthscales,
    log_likelihood,
    prior_relevances,
)
from graphsvx.estimators.log_odds import expected_square
from graphsvx.estimators.process import Process
from graphsvx.estimators.residuals import ResidualFit, centred_rows, fit_residuals
from graphsvx.estimators.walks import MOST_ENTRIES, Walks
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.masks.base import Masks
from graphsvx.utils.constraints import Checked, Range

_FEW = 8  # pairs or fewer: nothing is learnt of who matters
_LEAST_LEARNT, _MOST_LEARNT = 64, 192  # pairs that a covariance is learnt on, or a quarter
_LEAST_PAIRS, _MOST_PAIRS = 512, 2048  # that g interpolates by default,
_PAIRS_A_PLAYER = 8  # and not more than these
_BEST, _MANY = 2, 40  # mixtures that are averaged for a relevance that was learnt or not,
_ROWS_AT_ONCE = 512
_JUDGES = 256  # held-out pairs that choose a mixture,
_CLEARLY = 0.9  # if it misses them by less than this times what the likeliest one misses
_WHITES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # tried with all pairs,
_WHITE_PAIRS = 512  # or so many of them
_FLATTER = 0.25  # power of likelihoods as weights of processes, where pairs are few
_LIKELY = 0.1  # of those that are at least so likely, compared with the best
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

    pairs: Annotated[int | None, Range(8, 100_000)] = None
    """Pairs that g interpolates; least squares on the others corrects its residuals. None: a
    quarter of them, at least 512 and at most 2,048, or 8 for each player."""

    def memory(self, coalitions: int, players: int) -> int:
        """Bytes that a fit takes: several matrices of pairs and players, or least squares'."""
        pairs = coalitions // 2
        interpolated = self._interpolated(pairs, players)
        if interpolated * players > _MOST_ENTRIES:
            return WLS().memory(coalitions, players)
        return 8 * (players * (14 * interpolated + 2 * pairs) + 3 * interpolated**2)

    def _interpolated(self, pairs: int, players: int) -> int:
        """How many of the pairs g interpolates."""
        if self.pairs is not None:
            return min(pairs, self.pairs)
        most = min(_MOST_PAIRS, _PAIRS_A_PLAYER * players, _MOST_ENTRIES // max(players, 1))
        return min(pairs, max(_LEAST_PAIRS, min(pairs // 4, most)))

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit from g, errors from held-out pairs."""
        if masks.prior is not None and masks.prior.expected is not None:
            return self._around(masks.prior.expected, masks, values, empty, full)
        coalitions, players = masks.rows.shape
        fits = self._interpolated(coalitions // 2, players) * players <= _MOST_ENTRIES
        if masks.pair is not None and not masks.exact and players >= 3 and fits:
            with suppress(np.linalg.LinAlgError):  # pairs that no kernel can tell apart
                fit = self._processed(masks, values, empty, full)
                if fit is not None:
                    return fit
        return WLS()(masks, values, empty, full)

    def _around(
        self, expected: ExpectedCredit, masks: Masks, values: Tensor, empty: Tensor, full: Tensor
    ) -> Fit:
        """Credit that is expected, and that of the game which is left without it."""
        rows, credit = masks.rows, torch.from_numpy(expected.values)
        shared = torch.empty_like(values)
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            part = torch.from_numpy(rows[first : first + _ROWS_AT_ONCE]).to(credit.dtype)
            shared[first : first + _ROWS_AT_ONCE] = part @ credit
        prior = None if masks.prior is None else masks.prior.without_expected()
        rest = self(
            replace(masks, prior=prior, probabilities=False),
            values - shared, empty, full - credit.sum(0),
        )  # fmt: skip
        squares = expected.errors**2
        fit = surrogate(
            masks, values, empty, rest.values + credit.t(),
            (rest.errors**2 + torch.from_numpy(squares.T)).sqrt(),
        )  # fmt: skip
        of_sums = rest.variance_of_sums
        return replace(
            fit,
            model=f"derivatives at {expected.coalitions} coalitions for "
            f"{np.count_nonzero(expected.players):,} players; {rest.model or 'linear'}",
            held_out_r2=rest.held_out_r2,
            variance_of_sums=of_sums and (lambda sums: of_sums(sums) + squares.T @ sums**2),
        )

    def _processed(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit | None:
        """The fit; None where least squares explain everything."""
        odd = _odd_part(values, empty, full)
        count = self._interpolated(len(odd) - 1, masks.rows.shape[1])
        signs = np.ones((count + 1, masks.rows.shape[1]))
        signs[1:] = 2.0 * masks.rows[: 2 * count : 2] - 1
        if _is_linear(signs, odd[: count + 1]):
            return None
        prior = masks.prior
        direct, relevance, walks = None, None, None
        if prior is not None:
            direct, relevance = prior.direct, prior.relevance
            if prior.passed is not None and prior.passed.size <= MOST_ENTRIES:
                walks = Walks.of(np.flatnonzero(direct), prior.passed)
        coalitions = Coalitions.of(signs, direct, walks)
        square = None
        if masks.probabilities:
            square = expected_square(
                np.concatenate([[empty.numpy(), full.numpy()], values.numpy()])
            )
        pairs = _Pairs(coalitions, odd[: count + 1], _pair_weights(masks, count), square)
        average = _average(pairs, relevance)
        posterior: _Average | _Corrected = average
        if count + 1 < len(odd):
            posterior = _Corrected.of(average, masks, odd)
        wider = float(stdtrit(count + 2, 0.975) / stdtrit(np.inf, 0.975))
        credit = posterior.credit
        # Spread the rounding error evenly, so that credit is efficient.
        credit = credit + (2 * odd[0] - credit.sum(0)) / len(credit)
        fit = surrogate(
            masks, values, empty, torch.from_numpy(credit.T.copy()),
            torch.from_numpy(wider * np.sqrt(posterior.variance.T)),
        )  # fmt: skip
        return replace(
            fit,
            model=average.description(),
            held_out_r2=torch.from_numpy(average.held_out_r2),
            variance_of_sums=lambda weights: wider**2 * posterior.variance_of_sums(weights),
        )


def _pair_weights(masks: Masks, count: int) -> Floats:
    """Regression weights of the first `count` pairs, after 0 for the full coalition."""
    return np.append(0.0, masks.weights[: 2 * count : 2])


def _odd_part(values: Tensor, empty: Tensor, full: Tensor) -> Floats:
    """Half the difference of the two values of each pair, [pairs, outputs].

    The first pair is the full and the empty coalition, which makes g efficient.
    """
    y = values.numpy()
    odd: Floats = np.concatenate([(full - empty).numpy()[None], y[::2] - y[1::2]]) / 2
    return odd


def _is_linear(signs: Floats, odd: Floats) -> bool:
    """Whether some credit explains all of many pairs to rounding."""
    if len(signs) < 2 * signs.shape[1]:
        return False
    gram = signs.T @ signs
    diagonal(gram)[:] *= 1 + 1e-12
    credit, _ = lapack.dpotrs(cholesky(gram), signs.T @ odd, lower=1)
    left = np.abs(odd - signs @ credit).max(0)
    return bool((left <= 1e-9 * np.abs(odd).max(0) + 1e-12).all())


@dataclass(frozen=True, eq=False)
class _Average:
    """Several processes that have seen the same pairs, averaged."""

    processes: list[Process]
    weights: Floats
    credit: Floats
    """Shapley values, [M, outputs]."""
    variance: Floats
    """Of the Shapley values, with the differences between the processes, [M, outputs]."""
    disagreement: Floats
    """Factor of the variance, [outputs]."""
    held_out_r2: Floats
    """Share of the variance of held-out pairs that was predicted, [outputs]."""

    @property
    def pairs(self) -> int:
        """That they have seen, with the full coalition."""
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


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs with half the differences of their values; the full coalition is the first one."""

    coalitions: Coalitions
    odd: Floats
    """[pairs, outputs]."""
    weights: Floats
    """In a regression, [pairs]."""
    expected_square: Floats | None
    """Mean square of `odd` as log-odds predict it, [outputs]; None: they are not known."""

    def take(self, index: Ids) -> _Pairs:
        """Those at these positions."""
        return _Pairs(
            self.coalitions.take(index), self.odd[index], self.weights[index], self.expected_square
        )


def _average(pairs: _Pairs, expected: Floats | None) -> _Average:
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
    r2 = np.where(size > 0, 1 - missed / np.where(size > 0, size, 1), np.nan)
    return _Average(processes, weight, credit, variance * disagreement, disagreement, r2)


def _nothing_learnt(pairs: _Pairs, expected: Floats | None) -> list[tuple[Kernel, Mixture]]:
    """All likely mixtures, with players as `expected` and with all of them alike."""
    candidates = []
    for relevance in prior_relevances(pairs.coalitions.players, expected):
        kernel = Kernel(pairs.coalitions, relevance)
        mixtures = all_mixtures(kernel, pairs.odd).best(_MANY, _LIKELY)
        candidates += [(kernel, mixture) for mixture in mixtures]
    return candidates


def _learnt(
    pairs: _Pairs, fitted: Ids, held_out: Ids, expected: Floats | None
) -> tuple[Kernel, Mixture]:
    """Relevance and mixture that are learnt on some of many pairs."""
    part = pairs.take(fitted)
    lengthscales = fit_lengthscales(part.coalitions, part.odd, expected)
    mixture = _best_predicted(pairs.coalitions, pairs.odd, fitted, held_out, lengthscales)
    order = np.concatenate([fitted, held_out])
    kernel = Kernel(pairs.coalitions.take(order), lengthscales.relevance)
    return kernel, _likeliest_white(kernel, mixture, pairs.odd[order])


def _learnt_on_half(
    pairs: _Pairs, fitted: Ids, held_out: Ids, expected: Floats | None
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
    for relevance in prior_relevances(all_pairs.coalitions.players, expected):
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
class _Corrected:
    """g corrected by what it misses on pairs that it has not seen.

    What is missed is regressed on coalitions, with the variances of g's Shapley values as prior of
    what their errors can be: few more pairs change little, and with very many this is weighted
    least squares. Errors come from the residuals, not from the model.
    """

    credit: Floats
    variance: Floats
    fits: list[ResidualFit]

    @staticmethod
    def of(average: _Average, masks: Masks, odd: Floats) -> _Corrected:
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
        return _Corrected(average.credit + change - change.mean(0), variance, fits)

    def variance_of_sums(self, weights: Floats) -> Floats:
        """Variances of weighted sums of Shapley values, [outputs, sums], for weights [M, sums]."""
        centred = weights - weights.mean(0)
        return np.stack([fit.variances_of_sums(centred) for fit in self.fits])
