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

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from scipy.linalg import lapack
from scipy.optimize import minimize
from torch import Tensor

from graphsvx.explain.regression import WLS, Fit, surrogate
from graphsvx.graph import Ids
from graphsvx.masks.base import Floats, Masks

_LOWEST, _HIGHEST = -9.0, 2.0  # bounds of log theta
_NODES = 12  # quadrature: exact up to 24 players, to rounding for more that each matter less

_BLOCK = 1 << 13  # numbers that stay in the cache


@dataclass(frozen=True)
class Smooth:
    """Kernel interpolation where rows are pairs of coalitions, least squares (`WLS`) elsewhere.

    Error bars: the posterior variance, with a part of the pairs held out, scaled by how far pairs
    were missed that had not been seen. Least squares on the same rows miss more, so where their
    own bars are the narrower ones, these are given.
    """

    players: int = 64
    """More players than this are left to least squares."""
    pairs: int = 512
    """Pairs that g is made of; least squares on the others correct what it misses."""

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Credit from g, errors from left-out pairs."""
        plain = WLS()(masks, values, empty, full)
        count, players = masks.rows.shape
        if masks.exact or masks.pair is None or not 3 <= players <= self.players:
            return plain
        pair = masks.pair[::2]
        drawn = np.flatnonzero(pair >= 0)
        if len(drawn) < 8:
            return plain
        data = _Pairs.of(masks, values, empty, full)
        if data.explained_by(plain.values.numpy()) or _sure(plain):
            return plain
        listed = np.append(np.flatnonzero(pair < 0), count // 2)
        room = max(self.pairs - len(listed), 8)
        try:
            process, variance = _interpolate(data, listed, drawn[:room], plain.values.numpy())
        except np.linalg.LinAlgError:  # pairs that the kernel cannot tell apart
            return plain
        phi = process.credit()
        if len(drawn) >= 2 * room:
            phi, variance = _corrected(data, masks, drawn[room:], process)
        credit = torch.from_numpy(phi.T.copy())
        credit += ((full - empty - credit.sum(1)) / players)[:, None]
        errors = torch.fmin(torch.from_numpy(np.sqrt(variance.T)), plain.errors)
        return surrogate(masks, values, empty, credit, errors)


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
        left = np.abs(self.odd - self.signs @ phi.T / 2).max(0)
        return bool((left <= 1e-9 * np.abs(self.odd).max(0) + 1e-12).all())


def _sure(plain: Fit) -> bool:
    """Whether least squares are within 1.5 % already: nothing that needs g (NaN is not sure)."""
    return bool(((plain.errors**2).sum(1) <= 2e-4 * (plain.values**2).sum(1)).all())


def _interpolate(data: _Pairs, listed: Ids, drawn: Ids, phi: Floats) -> tuple[_Process, Floats]:
    """The process on all pairs, and the variances of its Shapley values, [M, outputs]."""
    # Where to start: players with much credit matter and interact much.
    start = np.sqrt(np.abs(phi).mean(0)) + 1e-12
    theta = (0.9 * start / start.mean() + 0.1) * 2 / len(start)
    whole = data.take(np.concatenate([listed, drawn]))
    if len(drawn) >= 160:
        process = _Process.of(whole, _learn(whole, theta))
        # Row i of factor^-1 y is how far pair i is from what the pairs before it foretell, in
        # multiples of what they leave open: misses of held-out pairs without another fit.
        # With half of the pairs held out, the truth is between what is left then and in the end.
        half = len(listed) + len(drawn) // 2
        scale = (process.weights[(len(listed) + half) // 2 :] ** 2).mean(0)
        variance = np.sqrt(process.variance(half) * process.variance())
        return process, variance[:, None] * scale
    # Few pairs: theta fits them too well for that, and is learnt without those that are held out.
    folds = 3
    thetas, left = [], []
    scale = np.zeros(data.odd.shape[1])
    for fold in range(folds):
        known = data.take(np.append(listed, np.delete(drawn, np.s_[fold::folds])))
        learnt = _learn(known, theta)
        process = _Process.of(known, learnt)
        scale += process.missed(data.take(drawn[fold::folds])) / folds
        thetas.append(np.log(learnt))
        left.append(process.variance())
    process = _Process.of(whole, np.exp(np.mean(thetas, 0)))
    return process, np.mean(left, 0)[:, None] * scale


def _corrected(data: _Pairs, masks: Masks, rest: Ids, process: _Process) -> tuple[Floats, Floats]:
    """g's values plus those of what g misses on pairs that it has not seen, by least squares."""
    if masks.pair is None or masks.unseen is None:
        raise ValueError("these rows were not drawn as pairs")
    missed = np.zeros_like(data.odd)
    missed[rest] = data.odd[rest] - process.at(data.signs[rest])
    chosen = np.sort(np.append(np.flatnonzero(masks.pair[::2] < 0), rest))
    rows = np.stack([2 * chosen, 2 * chosen + 1], 1).reshape(-1)
    # The unseen pairs stand for all draws of their size.
    size = np.minimum(masks.rows.sum(1), (~masks.rows).sum(1))
    fresh = np.zeros(len(size), dtype=bool)
    fresh[rows] = True
    drawn = masks.pair >= 0
    whole = np.bincount(size[drawn], masks.weights[drawn], masks.rows.shape[1] + 1)
    part = np.bincount(size[drawn & fresh], masks.weights[drawn & fresh], masks.rows.shape[1] + 1)
    factor = np.where(part > 0, whole / np.where(part > 0, part, 1), 1.0)
    weights = np.where(drawn, masks.weights * factor[size], masks.weights)[rows]
    left = replace(
        masks, rows=masks.rows[rows], states=masks.states[rows], weights=weights,
        pair=masks.pair[rows], unseen=masks.unseen[rows],
    )  # fmt: skip
    values = np.stack([missed[chosen], -missed[chosen]], 1).reshape(len(rows), -1)
    nothing = torch.zeros(values.shape[1], dtype=torch.float64)
    fit = WLS()(left, torch.from_numpy(values), nothing, nothing)
    return process.credit() + fit.values.numpy().T, fit.errors.numpy().T ** 2


def _kernel(a: Floats, b: Floats, theta: Floats) -> Floats:
    near: Floats = (a * (theta / 2)) @ b.T
    total = theta.sum()
    near -= total / 2
    np.exp(near, out=near)
    # A few rows at a time: fresh memory for a large matrix costs more than filling it.
    step = max(1, _BLOCK // max(1, len(b)))
    for first in range(0, len(a), step):
        rows = near[first : first + step]
        rows -= np.exp(-total) / rows
    return near


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
        gram = _kernel(pairs.signs, pairs.signs, theta)
        gram[np.diag_indices(len(gram))] *= 1 + 1e-8
        # The transpose of a symmetric matrix is itself, in the order that LAPACK works on in place.
        factor, failed = lapack.dpotrf(gram.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the kernel matrix is singular")
        both = np.concatenate([pairs.odd, _shares(pairs.signs, theta)], 1)
        solved, _ = lapack.dtrtrs(factor, both, lower=1)
        outputs = pairs.odd.shape[1]
        return _Process(pairs, theta, factor, solved[:, :outputs], solved[:, outputs:])

    def at(self, signs: Floats) -> Floats:
        """g at other coalitions, [pairs, outputs]."""
        solved, _ = lapack.dtrtrs(self.factor, self.weights, lower=1, trans=1)
        return _kernel(signs, self.pairs.signs, self.theta) @ solved

    def credit(self) -> Floats:
        """Shapley values of g, [M, outputs]."""
        return self.shares.T @ self.weights

    def variance(self, pairs: int | None = None) -> Floats:
        """Of the Shapley values, [M]: the prior's minus what the (first) pairs tell."""
        known = (self.shares[:pairs] ** 2).sum(0)
        prior = _prior(self.theta)
        return np.maximum(prior - known, 1e-12 * prior)

    def missed(self, held: _Pairs) -> Floats:
        """Squared misses of other pairs, as multiples of the variance expected, [outputs]."""
        cross = _kernel(self.pairs.signs, held.signs, self.theta)
        cross, _ = lapack.dtrtrs(self.factor, cross, lower=1)
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
    on = signs > 0
    product = np.exp(on @ (log_in - log_out).T + log_out.sum(1)) * (2 * weight)
    return drop * np.where(on, product @ (1 / inside), -(product @ (1 / outside)))


def _prior(theta: Floats) -> Floats:
    """Variance of the Shapley values of a draw from the process with unit scale, [M]."""
    q, weight = _quadrature(len(theta))
    differ = np.add.outer(q, q) - 2 * np.multiply.outer(q, q)
    drop = -np.expm1(-theta)
    logs = np.log1p(-drop[:, None, None] * differ)
    others = np.exp(logs.sum(0) - logs)
    return 4 * drop * np.einsum("iqr,q,r->i", others, weight, weight)


def _learn(pairs: _Pairs, start: Floats, steps: int = 4) -> Floats:
    """theta by marginal likelihood, on an even selection of the pairs."""
    count = len(pairs.odd)
    most = max(96, count // 4)
    if count > most:
        pairs = pairs.take(np.linspace(0, count - 1, most).astype(np.int64))
    size = np.sqrt((pairs.odd**2).mean(0))
    some = size > 0
    y = pairs.odd[:, some] / size[some]
    if not some.any():
        return start
    found = minimize(
        _loss, np.clip(np.log(start), _LOWEST, _HIGHEST), args=(pairs.signs, y), jac=True,
        method="L-BFGS-B", bounds=[(_LOWEST, _HIGHEST)] * len(start),
        options={"maxiter": steps, "maxfun": steps + 2},
    )  # fmt: skip
    return np.exp(found.x)


def _loss(log_theta: Floats, signs: Floats, y: Floats) -> tuple[float, Floats]:
    """Negative log marginal likelihood, scale profiled out, and its gradient in log theta.

    A weak penalty keeps players alike that the pairs cannot tell apart.
    """
    count, outputs = y.shape
    theta = np.exp(log_theta)
    total = theta.sum()
    near = (signs * (theta / 2)) @ signs.T
    near -= total / 2
    np.exp(near, out=near)
    far = np.exp(-total) / near
    gram = near - far
    gram[np.diag_indices(count)] *= 1 + 1e-6
    # All matrices are symmetric, so that their transposes, which LAPACK works on, are the same.
    factor, failed = lapack.dpotrf(gram.T, lower=1, clean=1, overwrite_a=1)
    if failed:
        return 1e10, np.zeros_like(theta)
    log_det = np.log(factor.diagonal()).sum()
    solved, _ = lapack.dpotrs(factor, y, lower=1)
    energy = np.maximum((solved * y).sum(0), 1e-300)
    loss = 0.5 * count * np.log(energy / count).sum() + outputs * log_det
    # Twice one half of the inverse does for it in quadratic forms.
    half = lapack.dpotri(factor, lower=1, overwrite_c=1)[0].T
    half[np.diag_indices(count)] *= 0.5
    slope = ((-0.5 * count) * solved / energy) @ solved.T
    slope += half if outputs == 1 else outputs * half
    # d gram / d theta_i = ((far - near) + s_i s_i' (far + near)) / 2
    common = 0.5 * (np.vdot(slope, far) - np.vdot(slope, near))
    far += near
    far *= slope
    own = 0.5 * np.einsum("ki,ki->i", signs, far @ signs)
    spread = log_theta - log_theta.mean()
    return loss + 0.05 * spread @ spread, (common + own) * theta + 0.1 * spread
