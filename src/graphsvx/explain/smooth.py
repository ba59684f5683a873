"""A surrogate g with all interactions, smooth where the game is smooth, and its Shapley values.

Shapley values depend on a game only through its odd part, (v(S) - v(N \\ S)) / 2, which a pair of
complementary coalitions gives. A Gaussian process with the kernel

    k(S, T) = exp(-d(S, T)) - exp(-d(S, N \\ T)),   d(S, T) = sum of theta_i where S, T differ,

interpolates it: every theta_i, how much player i matters and interacts, is learnt from the pairs
by marginal likelihood. The kernel is a difference of products over players, so Shapley values of
g are one-dimensional integrals of polynomials, which Gauss-Legendre quadrature gets exactly.
All pairs known, g is the game and its values are the game's: the estimate is consistent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from scipy.linalg import lapack
from torch import Tensor

from graphsvx.constraints import Checked, Range
from graphsvx.explain.factors import diagonal, factored, forward
from graphsvx.explain.lengths import guessed, learnt
from graphsvx.explain.regression import Fit, least_squares, surrogate
from graphsvx.graph import Ids
from graphsvx.masks.base import Floats, Masks

_NODES = 12  # quadrature: exact up to 24 players, to rounding for more that each matter less
_BLOCK = 128  # rows of a kernel matrix that stay in the cache


@dataclass(frozen=True)
class Smooth(Checked):
    """Kernel interpolation where rows are pairs of coalitions, least squares (`WLS`) elsewhere.

    Error bars: the posterior variance, with a part of the pairs held out, scaled by how far pairs
    were missed that had not been seen. Least squares on the same rows miss more, so where their
    own bars are the narrower ones, these are given.
    """

    players: Annotated[int, Range(0)] = 64
    """More players than this are left to least squares."""
    pairs: Annotated[int, Range(8, 100_000)] = 512
    """Pairs that g is made of; least squares on the others correct what it misses."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit from g, errors from left-out pairs."""
        phi, errors = least_squares(masks, values, empty, full)
        if masks.pair is not None and self._needed(masks, phi, errors):
            data = _Pairs.of(masks, values, empty, full)
            if not data.explained_by(phi):
                with suppress(np.linalg.LinAlgError):  # pairs that the kernel cannot tell apart
                    phi, errors = self._interpolated(data, masks, masks.pair[::2], phi, errors)
        return surrogate(masks, values, empty, torch.from_numpy(phi), torch.from_numpy(errors))

    def _needed(self, masks: Masks, phi: Floats, errors: Floats) -> bool:
        """Whether least squares are not exact, nor within 1.5 % already (NaN is not), nor all
        that so many players allow.
        """
        if masks.exact or not 3 <= phi.shape[1] <= self.players:
            return False
        return not bool(((errors**2).sum(1) <= 2e-4 * (phi**2).sum(1)).all())

    def _interpolated(
        self, data: _Pairs, masks: Masks, pair: Ids, phi: Floats, errors: Floats
    ) -> tuple[Floats, Floats]:
        """Credit and errors by g where there are pairs enough, those of least squares elsewhere."""
        drawn = np.flatnonzero(pair >= 0)
        if len(drawn) < 8:
            return phi, errors
        listed = np.append(np.flatnonzero(pair < 0), len(pair))
        room = max(self.pairs - len(listed), 8)
        process, variance = _interpolate(data, listed, drawn[:room], phi)
        credit = process.credit()
        if len(drawn) >= 2 * room:
            credit, variance = _corrected(data, masks, drawn[room:], process)
        # What is left of the gain goes to everybody: g is efficient up to rounding.
        credit += (2 * data.odd[-1] - credit.sum(0)) / len(credit)
        return credit.T.copy(), np.fmin(np.sqrt(variance.T), errors)


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
        left = np.abs(self.missed_by(phi)).max(0)
        return bool((left <= 1e-9 * np.abs(self.odd).max(0) + 1e-12).all())

    def missed_by(self, phi: Floats) -> Floats:
        """What least squares miss, [pairs, outputs]."""
        return self.odd - self.signs @ (phi.T / 2)


def _interpolate(data: _Pairs, listed: Ids, drawn: Ids, phi: Floats) -> tuple[_Process, Floats]:
    """The process on all pairs, and the variances of its Shapley values, [M, outputs]."""
    seen = data.take(drawn)
    theta = guessed(phi, seen.odd, seen.missed_by(phi))
    whole = data.take(np.concatenate([listed, drawn]))
    if len(drawn) >= 160:
        process = _Process.of(whole, learnt(whole.signs, whole.odd, theta))
        # Row i of factor^-1 y is how far pair i is from what the pairs before it foretell, in
        # multiples of what they leave open: misses of held-out pairs without another fit.
        # With half of the pairs held out, the truth is between what is left then and in the end.
        half = len(listed) + len(drawn) // 2
        scale = (process.weights[(len(listed) + half) // 2 :] ** 2).mean(0)
        variance = np.sqrt(np.prod(process.variances(half), 0))
        return process, variance[:, None] * scale
    # Few pairs: theta fits them too well for that, and is learnt without those that are held out.
    folds = 2
    logs, left = [], []
    scale = np.zeros(data.odd.shape[1])
    for fold in range(folds):
        known = data.take(np.append(listed, np.delete(drawn, np.s_[fold::folds])))
        process = _Process.of(known, learnt(known.signs, known.odd, theta))
        scale += process.missed(data.take(drawn[fold::folds])) / folds
        logs.append(np.log(process.theta))
        left.append(process.variances()[0])
    process = _Process.of(whole, np.exp(np.mean(logs, 0)))
    return process, np.mean(left, 0)[:, None] * scale


def _corrected(data: _Pairs, masks: Masks, rest: Ids, process: _Process) -> tuple[Floats, Floats]:
    """g's values plus those of what g misses on pairs that it has not seen, by least squares."""
    if masks.pair is None or masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    drawn, few, weights = masks.pair[::2] >= 0, masks.rows[::2], masks.weights[::2].copy()
    players = few.shape[1]
    fresh = ~drawn
    fresh[rest] = True
    # The unseen pairs stand for all draws of their size.
    size = few.sum(1)
    size = np.minimum(size, players - size)
    whole = np.bincount(size[drawn], weights[drawn], players)
    part = np.bincount(size[rest], weights[rest], players)
    weights[rest] *= (whole / np.where(part > 0, part, 1))[size[rest]]
    missed = np.zeros((len(few), data.odd.shape[1]))
    missed[rest] = data.odd[rest] - process.at(data.signs[rest])
    both = fresh.repeat(2)
    left = replace(
        masks, rows=masks.rows[both], states=masks.states[both], weights=weights[fresh].repeat(2),
        pair=masks.pair[both], unseen=masks.unseen[both],
    )  # fmt: skip
    values = torch.from_numpy(missed[fresh].repeat(2, 0))
    values[1::2] *= -1
    nothing = torch.zeros(values.shape[1], dtype=torch.float64)
    phi, errors = least_squares(left, values, nothing, nothing)
    return process.credit() + phi.T, errors.T**2


def _kernel(a: Floats, b: Floats, theta: Floats) -> Floats:
    near: Floats = (a * (theta / 2)) @ b.T
    total = theta.sum()
    near -= total / 2
    np.exp(near, out=near)
    near -= np.exp(-total) / near
    return near


def _blocks(count: int) -> Iterator[slice]:
    """A few rows at a time: fresh memory for a large matrix costs more than filling it."""
    for first in range(0, count, _BLOCK):
        yield slice(first, first + _BLOCK)


def _factor(signs: Floats, theta: Floats) -> Floats:
    """The lower Cholesky factor of the kernel matrix, of which one half is computed."""
    gram = np.empty((len(signs), len(signs)))
    for rows in _blocks(len(signs)):
        gram[rows, rows.start :] = _kernel(signs[rows], signs[rows.start :], theta)
    diagonal(gram)[:] *= 1 + 1e-8
    return factored(gram)


@dataclass(frozen=True, eq=False)
class _Process:
    """A Gaussian process on some pairs, with unit scale."""

    pairs: _Pairs
    theta: Floats
    factor: Floats
    weights: Floats
    """factor^-1 y."""
    shares: Floats
    """factor^-1 of the kernel functions' own Shapley values, [pairs, M]."""

    @staticmethod
    def of(pairs: _Pairs, theta: Floats) -> _Process:
        factor = _factor(pairs.signs, theta)
        both = np.concatenate([pairs.odd, _shares(pairs.signs, theta)], 1)
        solved = forward(factor, both)
        outputs = pairs.odd.shape[1]
        return _Process(pairs, theta, factor, solved[:, :outputs], solved[:, outputs:])

    def at(self, signs: Floats) -> Floats:
        """g at other coalitions, [pairs, outputs]."""
        solved, _ = lapack.dtrtrs(self.factor, self.weights, lower=1, trans=1)
        return np.concatenate(
            [
                _kernel(signs[rows], self.pairs.signs, self.theta) @ solved
                for rows in _blocks(len(signs))
            ]
        )

    def credit(self) -> Floats:
        """Shapley values of g, [M, outputs]."""
        return self.shares.T @ self.weights

    def variances(self, *first: int) -> list[Floats]:
        """Of the Shapley values, [M]: the prior's minus what all pairs, or the first ones, tell."""
        prior = _prior(self.theta)
        told = self.shares**2
        return [
            np.maximum(prior - told[:count].sum(0), 1e-12 * prior) for count in (len(told), *first)
        ]

    def missed(self, held: _Pairs) -> Floats:
        """Squared misses of other pairs, as multiples of the variance expected, [outputs]."""
        cross = forward(self.factor, _kernel(self.pairs.signs, held.signs, self.theta))
        own = 1 - np.exp(-self.theta.sum())
        expected = np.maximum(own - (cross**2).sum(0), 1e-12 * own)
        miss = (held.odd - cross.T @ self.weights) ** 2 / expected[:, None]
        return miss.mean(0)


@lru_cache
def _quadrature(players: int) -> tuple[Floats, Floats]:
    x, w = np.polynomial.legendre.leggauss(min(players // 2 + 1, _NODES))
    return (x + 1) / 2, w / 2


def _shares(signs: Floats, theta: Floats) -> Floats:
    """Shapley values of k(., T) for every T, [pairs, M].

    For a product over players with factors u_i (in) and w_i (out), player i's value is the
    integral over q of (u_i - w_i) times the product over the others of q u_j + (1 - q) w_j.
    The second product of k has T's complement for T; q -> 1 - q shows that it adds the same.
    """
    drop = -np.expm1(-theta)
    q, weight = _quadrature(signs.shape[1])
    # A member's factor is 1 in and exp(-theta) out, a non-member's the other way round.
    inside, outside = 1 - np.outer(1 - q, drop), 1 - np.outer(q, drop)
    log_in, log_out = np.log(inside), np.log(outside)
    product = np.exp(signs @ ((log_in - log_out) / 2).T + (log_in + log_out).sum(1) / 2)
    product *= 2 * weight
    # + product / inside for members, - product / outside for the others.
    found: Floats = product @ (drop / 2 / inside + drop / 2 / outside)
    found *= signs
    found += product @ (drop / 2 / inside - drop / 2 / outside)
    return found


def _prior(theta: Floats) -> Floats:
    """Variance of the Shapley values of a draw from the process with unit scale, [M]."""
    q, weight = _quadrature(len(theta))
    differ = np.add.outer(q, q) - 2 * np.multiply.outer(q, q)
    drop = -np.expm1(-theta)
    kept = 1 - np.multiply.outer(drop, differ.ravel())
    every = kept.prod(0) * np.multiply.outer(weight, weight).ravel()
    return 4 * drop * ((1 / kept) @ every)
