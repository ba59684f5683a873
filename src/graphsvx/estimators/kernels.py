"""Covariances of the odd part of a game, and the Shapley values of functions drawn from them.

Shapley values depend on a game v only through its odd part, (v(S) - v(N \\ S)) / 2. With signs
s_j = +-1 (in, out), the covariance of its values at S and T is a sum of five:

    linear      sum of w_j s_j t_j / M
    per size    linear again, with slopes that fall as 1 / min(|S|, M - |S|): a mean over neighbours
                changes by a j-th when a j-th neighbour comes in
    size        three odd polynomials of the share of players that are in; nobody's credit
    product     exp(-d(S, T)) - exp(-d(S, N \\ T)), d = sum of theta w_j / M where S and T differ:
                interactions of all orders, the more of them the larger theta is
    white       every pair of coalitions for itself: what no other part foretells

The relevance w_j (mean 1) is how much player j matters. Of every part the Shapley values have a
closed form: those of the product are one-dimensional integrals of polynomials, which
Gauss-Legendre quadrature gets exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.cholesky import diagonal

_NODES = 12  # quadrature: exact up to 24 players, to rounding for more that each matter less
_JITTER = 1e-8


@dataclass(frozen=True)
class Mixture:
    """Variances of the parts, relative to that of the linear one."""

    per_size: float
    theta: float
    """Of the product, which has variance 1; 0: there is none."""
    white: float
    size: float = 1.0


@dataclass(frozen=True, eq=False)
class Coalitions:
    """One coalition of each pair, with what the kernels need of it; the full one may be there."""

    signs: Floats
    """[pairs, M]."""
    centred: Floats
    """Members less the share of members, [pairs, M]."""
    inner: Floats
    """1, or 0 for the full coalition, [pairs]."""
    slope: Floats
    """Size of the slopes that fall with the size, [pairs]."""
    mean_slope: float
    """Its mean over all sizes, which is the Shapley value of such a slope."""
    sizes: Floats
    """Odd polynomials of the size, [pairs, 3]."""
    alone: Floats
    """Credit of the members for a value at this coalition alone, [pairs]."""

    @staticmethod
    def of(signs: Floats) -> Coalitions:
        """With slopes and polynomials in units in which their mean square is 1 over the pairs."""
        players = signs.shape[1]
        size = (signs.sum(1) + players) / 2
        inner = (size > 0) & (size < players)
        centred = (signs - signs.mean(1, keepdims=True)) / 2
        slope = inner / np.where(inner, np.minimum(size, players - size), 1)
        unit = _root_mean_square(slope[:, None] * centred, inner)
        every = np.arange(1, players)
        mean_slope = float((1 / np.minimum(every, players - every)).mean()) / unit
        x = 2 * size / players - 1
        sizes = np.stack([x**3 - x, x**5 - x, x**7 - x**3], 1)
        sizes /= _root_mean_square(sizes, inner)
        between = np.where(inner, size * (players - size), 1)
        alone = np.where(inner, 2 * players * np.exp(-_log_count(players, size)) / between, 0)
        return Coalitions(
            signs, centred, inner.astype(np.float64), slope / unit, mean_slope, sizes, alone
        )

    def __len__(self) -> int:
        return len(self.signs)

    @property
    def players(self) -> int:
        """M."""
        return self.signs.shape[1]

    def take(self, chosen: Ids) -> Coalitions:
        """Some of them, in the same units."""
        return Coalitions(
            self.signs[chosen], self.centred[chosen], self.inner[chosen], self.slope[chosen],
            self.mean_slope, self.sizes[chosen], self.alone[chosen],
        )  # fmt: skip


def _root_mean_square(rows: Floats, inner: Floats) -> float:
    found = float(np.sqrt((rows[inner] ** 2).sum(1).mean())) if inner.any() else 0.0
    return found or 1.0


def _log_count(players: int, size: Floats) -> Floats:
    """Logarithm of the number of coalitions of a size."""
    found: Floats = gammaln(players + 1.0) - gammaln(size + 1) - gammaln(players - size + 1)
    return found


class Kernel:
    """The parts of the covariance between coalitions, for one relevance of the players."""

    def __init__(self, coalitions: Coalitions, relevance: Floats) -> None:
        self.coalitions, self.relevance = coalitions, relevance
        signs = coalitions.signs
        self.linear: Floats = signs @ (signs * (relevance / coalitions.players)).T
        self.per_size = _per_size(self.linear, coalitions, coalitions, relevance)
        self.size: Floats = coalitions.sizes @ coalitions.sizes.T
        self._products: dict[float, Floats] = {}

    def product(self, theta: float) -> Floats:
        """The product, which has variance 1."""
        if theta not in self._products:
            self._products[theta] = _product(self.linear, theta)
        return self._products[theta]

    def gram(self, mixture: Mixture) -> Floats:
        """Covariances of the pairs with each other."""
        gram = mixture.size * self.size
        gram += self.linear
        if mixture.per_size:
            gram += mixture.per_size * self.per_size
        if mixture.theta:
            gram += self.product(mixture.theta)
        diagonal(gram)[:] += mixture.white * self.coalitions.inner
        diagonal(gram)[:] *= 1 + _JITTER
        return gram

    def across(self, others: Coalitions, mixture: Mixture) -> Floats:
        """Covariances of other pairs (none of these) with the pairs, [others, pairs]."""
        here, w = self.coalitions, self.relevance
        linear = (others.signs * (w / here.players)) @ here.signs.T
        gram = mixture.per_size * _per_size(linear, others, here, w)
        gram += linear
        gram += mixture.size * (others.sizes @ here.sizes.T)
        if mixture.theta:
            gram += _product(linear, mixture.theta)
        return gram

    def common(self, mixture: Mixture) -> Floats:
        """The derivative of the covariance by w_j is s_j t_j times this, plus a part per size."""
        found = np.full(self.linear.shape, 1 / self.coalitions.players)
        if mixture.theta:
            half = mixture.theta / 2
            found += np.cosh(self.linear * half) * (half / self.coalitions.players / np.sinh(half))
        return found

    def shapley(self, mixture: Mixture) -> Floats:
        """Shapley values of the covariance with each pair, as a function: [pairs, M]."""
        here, w = self.coalitions, self.relevance
        credit: Floats = here.signs * (2 * w / here.players)
        if mixture.per_size:
            part = here.centred * w
            part -= part.mean(1, keepdims=True)
            part *= (mixture.per_size * here.mean_slope * here.slope)[:, None]
            credit += part
        if mixture.theta:
            theta = mixture.theta * w / here.players
            credit += product_shapley(here.signs, theta) / -np.expm1(-mixture.theta)
        credit += here.centred * (mixture.white * here.alone)[:, None]
        return credit

    def prior(self, mixture: Mixture) -> Floats:
        """Variance of the Shapley values before any pair is known, [M]."""
        w, players = self.relevance, self.coalitions.players
        variance = 4 * w / players
        if mixture.per_size:
            spread = w * (1 - 2 / players) + w.sum() / players**2
            variance = variance + mixture.per_size * self.coalitions.mean_slope**2 * spread
        if mixture.theta:
            product = product_prior(mixture.theta * w / players)
            variance = variance + product / -np.expm1(-mixture.theta)
        return variance + mixture.white * white_prior(players)


def _per_size(linear: Floats, a: Coalitions, b: Coalitions, relevance: Floats) -> Floats:
    """Covariances of the part per size: centred members are signs less their mean, by two."""
    mean, other = a.signs.mean(1), b.signs.mean(1)
    found: Floats = linear * a.players
    found -= np.multiply.outer(a.signs @ relevance, other)
    found -= np.multiply.outer(mean, b.signs @ relevance - other * relevance.sum())
    found *= (a.slope / 4)[:, None]
    found *= b.slope
    return found


def _product(linear: Floats, theta: float) -> Floats:
    """exp(-d) - exp(-d') over its value at the diagonal: d is (1 - linear) theta / 2."""
    found: Floats = np.exp(linear * (theta / 2))
    found -= 1 / found
    found /= 2 * np.sinh(theta / 2)
    return found


@lru_cache
def white_prior(players: int) -> float:
    """Variance of every Shapley value where all pairs have independent values of variance 1."""
    size = np.arange(1.0, players // 2 + 1)
    each = 4 * np.exp(-_log_count(players, size)) / (size * (players - size))
    if players % 2 == 0:
        each[-1] /= 2  # a coalition and its complement have the same size: half as many pairs
    return float(each.sum())


@lru_cache
def _quadrature(players: int) -> tuple[Floats, Floats]:
    x, w = np.polynomial.legendre.leggauss(min(players // 2 + 1, _NODES))
    return (x + 1) / 2, w / 2


def product_shapley(signs: Floats, theta: Floats) -> Floats:
    """Shapley values of the product kernel with every T, [pairs, M].

    For a product over players with factors u_i (in) and w_i (out), player i's value is the
    integral over q of (u_i - w_i) times the product over the others of q u_j + (1 - q) w_j.
    The second product of the kernel has T's complement for T; q -> 1 - q shows that it adds the
    same.
    """
    drop = -np.expm1(-theta)
    q, weight = _quadrature(signs.shape[1])
    # A member's factor is 1 in and exp(-theta) out, a non-member's the other way round.
    inside, outside = 1 - np.outer(1 - q, drop), 1 - np.outer(q, drop)
    log_in, log_out = np.log(inside), np.log(outside)
    product = np.exp(signs @ ((log_in - log_out) / 2).T + (log_in + log_out).sum(1) / 2)
    product *= 2 * weight
    # + product / inside for members, - product / outside for the others.
    credit: Floats = product @ (drop / 2 / inside + drop / 2 / outside)
    credit *= signs
    credit += product @ (drop / 2 / inside - drop / 2 / outside)
    return credit


def product_prior(theta: Floats) -> Floats:
    """Variance of the Shapley values of a draw from the product kernel, [M]."""
    q, weight = _quadrature(len(theta))
    differ = np.add.outer(q, q) - 2 * np.multiply.outer(q, q)
    drop = -np.expm1(-theta)
    left = 1 - np.multiply.outer(drop, differ.ravel())
    every = left.prod(0) * np.multiply.outer(weight, weight).ravel()
    return 4 * drop * ((1 / left) @ every)
