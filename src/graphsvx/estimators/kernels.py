"""Covariances of the odd part of a game, and the Shapley values of functions drawn from them.

Shapley values depend on a game v only through its odd part, (v(S) - v(N \\ S)) / 2. With signs
s_j = +-1 (in, out), the covariance of its values at S and T is a sum of five parts:

    linear      sum of e_j s_j t_j / M, and the same of an effect that all players have in common
    per size    linear again, with slopes that fall as 1 / min(k, m - k), where k of the m players
                that are combined directly are in: a mean changes by a k-th when a k-th joins
    size        odd functions of the numbers of players that are in; their Shapley values are zero
    product     exp(-d(S, T)) - exp(-d(S, N \\ T)), d = sum of theta w_j / M where S and T differ:
                interactions of all orders, the more of them the larger theta is
    white       a value of its own for every pair of coalitions

The relevance w_j (mean 1) says how much player j interacts; its linear effect has the variance
e_j = w_j^2 (scaled to mean 1) about a mean in proportion to w_j, which varies as much: where credit
of all players has the same sign, a large sum does not say that players differ. The Shapley values
of every part have a closed form: those of the product are one-dimensional integrals of polynomials,
by Gauss-Legendre quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from graphsvx.core.arrays import Floats
from graphsvx.estimators.cholesky import diagonal
from graphsvx.estimators.coalitions import Coalitions, white_prior

_JITTER = 1e-8
_BLOCK = 64  # rows of a covariance matrix that stay in the cache


@dataclass(frozen=True)
class Mixture:
    """Variances of the parts, relative to that of the linear one."""

    per_size: float
    theta: float
    """Of the product, which has variance 1; 0: there is none."""
    white: float


class Kernel:
    """The parts of the covariance between coalitions, for one relevance of the players."""

    def __init__(self, coalitions: Coalitions, relevance: Floats) -> None:
        self.coalitions, self.relevance = coalitions, relevance
        self.effect: Floats = relevance**2 / (relevance**2).mean()
        """Variances of linear effects, [M]."""
        self._products: dict[float, Floats] = {}
        self._last: tuple[Mixture, Floats] | None = None

    @cached_property
    def loading(self) -> Floats:
        """Linear effects for a unit of what they have in common, [M]."""
        loading: Floats = np.sqrt(self.effect / len(self.effect))
        return loading

    def common(self, coalitions: Coalitions) -> Floats:
        """Regressor of what linear effects have in common, [pairs]."""
        common: Floats = coalitions.signs @ self.loading
        return common

    @cached_property
    def likeness(self) -> Floats:
        """1 - 2 d(S, T) / theta, [pairs, pairs]."""
        return _weighted_products(self.coalitions, self.coalitions, self.relevance)

    @cached_property
    def _linear(self) -> Floats:
        """The linear part and the functions of sizes."""
        coalitions = self.coalitions
        gram = _weighted_products(coalitions, coalitions, self.effect)
        gram += coalitions.sizes @ coalitions.sizes.T
        common = self.common(coalitions)
        gram += np.multiply.outer(common, common)
        return gram

    @cached_property
    def _per_size(self) -> Floats:
        coalitions = self.coalitions
        rows = coalitions.direct_centred * np.multiply.outer(
            coalitions.slope, np.sqrt(self.effect[coalitions.direct])
        )
        gram: Floats = rows @ rows.T
        return gram

    def _product(self, theta: float) -> Floats:
        """The product, scaled to variance 1."""
        if theta not in self._products:
            self._products[theta] = product_covariance(self.likeness * (theta / 2), theta)
        return self._products[theta]

    def gram(self, mixture: Mixture) -> Floats:
        """Covariances of the pairs with each other; parts are kept for other mixtures."""
        gram = self._linear.copy()
        if mixture.per_size:
            gram += mixture.per_size * self._per_size
        if mixture.theta:
            gram += self._product(mixture.theta)
        return self.with_white(gram, mixture.white)

    def gram_once(self, mixture: Mixture) -> Floats:
        """The same on and above the diagonal, for one mixture: faster.

        Only the last one is kept, for the same mixture with another white part.
        """
        without_white = replace(mixture, white=0.0)
        if self._last is None or self._last[0] != without_white:
            self._last = without_white, self._upper(without_white)
        return self.with_white(self._last[1].copy(), mixture.white)

    def _upper(self, mixture: Mixture) -> Floats:
        """On and above the diagonal, all parts but the white one."""
        coalitions = self.coalitions
        count = len(coalitions)
        gram = np.zeros((count, count))
        regressors = self._regressors(coalitions, mixture)
        weighted = coalitions.signs * (self.relevance * (mixture.theta / 2 / coalitions.players))
        for first in range(0, count, _BLOCK):
            rows = slice(first, first + _BLOCK)
            block = gram[rows, first:]
            np.matmul(regressors[rows], regressors[first:].T, out=block)
            if mixture.theta:
                block += product_covariance(
                    weighted[rows] @ coalitions.signs[first:].T, mixture.theta
                )
        return gram

    def with_white(self, gram: Floats, white: float) -> Floats:
        """The white part added to a covariance without one, in place."""
        diagonal(gram)[:] += white * self.coalitions.inner * self.coalitions.noise
        diagonal(gram)[:] *= 1 + _JITTER
        return gram

    def expected(self, others: Coalitions, mixture: Mixture, solved: Floats) -> Floats:
        """Covariances of other pairs (none of these) with the pairs, times `solved`."""
        coalitions = self.coalitions
        shared = self._regressors(coalitions, mixture).T @ solved
        predictions: Floats = self._regressors(others, mixture) @ shared
        if mixture.theta:
            weighted = others.signs * (self.relevance * (mixture.theta / 2 / coalitions.players))
            predictions += product_covariance(weighted @ coalitions.signs.T, mixture.theta) @ solved
        return predictions

    def _regressors(self, coalitions: Coalitions, mixture: Mixture) -> Floats:
        """Rows whose products are all parts but the product and the white one."""
        rows = [coalitions.signs * self.loading, coalitions.sizes, self.common(coalitions)[:, None]]
        if mixture.per_size:
            scale = np.sqrt(mixture.per_size * self.effect[coalitions.direct])
            rows.append(coalitions.direct_centred * coalitions.slope[:, None] * scale)
        return np.concatenate(rows, 1)

    def product_derivative(self, theta: float) -> Floats:
        """The derivative of the product by w_j is s_j t_j times this, [pairs, pairs]."""
        half = theta / 2
        derivative: Floats = np.cosh(self.likeness * half)
        derivative *= half / self.coalitions.players / np.sinh(half)
        return derivative

    def shapley(self, mixture: Mixture) -> Floats:
        """Shapley values of the covariance with each pair, as a function: [pairs, M]."""
        coalitions = self.coalitions
        credit: Floats = coalitions.signs * (2 * self.effect / coalitions.players)
        credit += np.multiply.outer(self.common(coalitions), 2 * self.loading)
        if mixture.per_size:
            part = coalitions.direct_centred * self.effect[coalitions.direct]
            part -= part.mean(1, keepdims=True)
            part *= (mixture.per_size * coalitions.mean_slope * coalitions.slope)[:, None]
            credit[:, coalitions.direct] += part
        if mixture.theta:
            theta = mixture.theta * self.relevance / coalitions.players
            credit += product_shapley(coalitions.signs, theta) / -np.expm1(-mixture.theta)
        white = coalitions.alone * coalitions.noise * (mixture.white / 2)
        credit += coalitions.signs * white[:, None]
        credit -= (white * coalitions.signs.mean(1))[:, None]
        return credit

    def prior(self, mixture: Mixture) -> Floats:
        """Variances of the Shapley values before any pair is known, [M]."""
        coalitions, players = self.coalitions, self.coalitions.players
        variance = 8 * self.effect / players
        if mixture.per_size:
            direct, count = self.effect[coalitions.direct], len(coalitions.direct)
            spread = direct * (1 - 2 / count) + direct.sum() / count**2
            variance[coalitions.direct] += mixture.per_size * coalitions.mean_slope**2 * spread
        if mixture.theta:
            product = product_prior(mixture.theta * self.relevance / players)
            variance += product / -np.expm1(-mixture.theta)
        variance += mixture.white * white_prior(players, coalitions.combined)
        return variance

    def prior_of_sums(self, mixture: Mixture, weights: Floats) -> Floats:
        """Variances of weighted sums of Shapley values before any pair is known, [sums].

        `weights` [M, sums].
        """
        coalitions, players = self.coalitions, self.coalitions.players
        variance: Floats = (4 / players) * (self.effect @ weights**2)
        variance += 4 * (self.loading @ weights) ** 2
        if mixture.per_size:
            centred = weights[coalitions.direct] - weights[coalitions.direct].mean(0)
            part = self.effect[coalitions.direct] @ centred**2
            variance += mixture.per_size * coalitions.mean_slope**2 * part
        if mixture.theta:
            product = product_prior_of_sums(mixture.theta * self.relevance / players, weights)
            variance += product / -np.expm1(-mixture.theta)
        centred = weights - weights.mean(0)
        white = mixture.white * white_prior(players, coalitions.combined)
        variance += white * players / max(players - 1, 1) * (centred**2).sum(0)
        return variance


def _weighted_products(a: Coalitions, b: Coalitions, weights: Floats) -> Floats:
    """Weighted means of the products of signs, [a, b]."""
    products: Floats = a.signs @ (b.signs * (weights / a.players)).T
    return products


# The product part of a covariance (`kernels`), and Shapley values of functions drawn from it.


_NODES = 12  # quadrature: exact up to 24 players, to rounding for more that each matter less


def product_covariance(likeness: Floats, theta: float) -> Floats:
    """exp(-d) - exp(-d') over its value at the diagonal, where d = theta / 2 - likeness.

    Overwrites `likeness`.
    """
    np.exp(likeness, out=likeness)
    likeness -= 1 / likeness
    likeness /= 2 * np.sinh(theta / 2)
    return likeness


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
    """Variances of the Shapley values of a draw from the product kernel, [M]."""
    drop, left, full_product = _product_integrand(theta)
    return 4 * drop * ((1 / left) @ full_product)


def product_prior_of_sums(theta: Floats, weights: Floats) -> Floats:
    """Variances of weighted sums of Shapley values of a draw from the product kernel, [sums].

    The covariance of two players is the double integral over q, q' of
    2 (2q - 1) (2q' - 1) drop_i drop_j times the product over all others.
    """
    q, _ = _quadrature(len(theta))
    drop, left, full_product = _product_integrand(theta)
    ratio = drop[:, None] / left
    diagonal = (4 * (ratio @ full_product)) @ weights**2
    tilt = np.multiply.outer(2 * q - 1, 2 * q - 1).ravel() * full_product
    sums = weights.T @ ratio
    squares = (weights**2).T @ ratio**2
    return diagonal + 2 * (sums**2 - squares) @ tilt


def _product_integrand(theta: Floats) -> tuple[Floats, Floats, Floats]:
    """1 - exp(-theta) [M], factors [M, nodes^2], and their product times the weights [nodes^2]."""
    q, weight = _quadrature(len(theta))
    differ = np.add.outer(q, q) - 2 * np.multiply.outer(q, q)
    drop = -np.expm1(-theta)
    left = 1 - np.multiply.outer(drop, differ.ravel())
    return drop, left, left.prod(0) * np.multiply.outer(weight, weight).ravel()
