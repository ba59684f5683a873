"""Covariance of the odd part of a game, and the Shapley values of functions drawn from it.

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
import torch
from scipy.linalg import lapack
from scipy.special import gammaln

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.utils.context import components

LEAST = 1e-300  # what is divided by is at least this
# Relative, added to variances: covariances of coalitions that are alike stay positive definite.
_JITTER = 1e-8
_NOISE_POWER = 1.5  # what a mean of k messages leaves unexplained falls about so fast with k
# Nodes of the quadrature: exact up to 24 players, to rounding for more that each matter less.
NODES = 12


def diagonal(matrix: Floats) -> Floats:
    """Writable view of the diagonal."""
    return np.einsum("ii->i", matrix)


def cholesky(gram: Floats) -> Floats:
    """Lower Cholesky factor, overwriting `gram`; entries above the diagonal are undefined.

    LAPACK itself, where scipy and torch copy and clear half of the matrix.
    """
    factor, failed = lapack.dpotrf(gram.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("not positive definite")
    return factor


def solve_lower(factor: Floats, right: Floats) -> Floats:
    """factor^-1 right; torch takes a third of scipy's time."""
    sides = torch.from_numpy(factor), torch.from_numpy(right)
    return torch.linalg.solve_triangular(*sides, upper=False).numpy()


def inverse_from_cholesky(factor: Floats) -> Floats:
    """Inverse of the factorised matrix."""
    # Symmetric, so its transpose, which is in the order of the other matrices, is the same.
    return torch.cholesky_inverse(torch.from_numpy(factor)).numpy().T


@dataclass(frozen=True, eq=False)
class Coalitions:
    """One coalition of each pair, with what covariances need of it; the full one may be there."""

    signs: Floats
    """[pairs, M]."""
    noise: Floats
    """Relative variance of the white part, [pairs]: 0 for the full coalition, and more for small
    ones if it is known that messages are combined."""
    direct: Ids
    """The m players that slopes per size are about."""
    combined: int | None
    """m; None if it is not known that messages are combined."""
    direct_centred: Floats
    """Membership of the direct players less its mean, [pairs, m]."""
    slope: Floats
    """Slopes that fall with the number of direct members, [pairs]."""
    mean_slope: float
    """Mean of `slope` over all numbers: the Shapley value of such a slope."""
    sizes: Floats
    """Odd functions of sizes, [pairs, functions]."""
    alone: Floats
    """Credit of a member (less the mean) for a value 1 at this pair alone, [pairs]."""
    units: tuple[float, float]
    """What slopes and functions of sizes were divided by."""

    @staticmethod
    def of(
        signs: Floats, direct: Bools | None = None, units: tuple[float, float] | None = None
    ) -> Coalitions:
        """`direct` [M]: players whose messages the explained node combines; None: all of them.

        Without `units`, slopes and functions of sizes are scaled to a mean square of 1.
        """
        players = signs.shape[1]
        combined = np.arange(players)
        if direct is not None and np.count_nonzero(direct) > 1:
            combined = np.flatnonzero(direct)
        size, direct_signs, m = (signs.sum(1) + players) / 2, signs[:, combined], len(combined)
        inner = (size > 0) & (size < players)
        active = (direct_signs.sum(1) + m) / 2
        fewer, levels = np.minimum(active, m - active), np.arange(1, m)
        slope = (fewer > 0) / np.maximum(fewer, 1)
        mean_slope = float((1 / np.minimum(levels, m - levels)).mean()) if m > 1 else 0.0
        centred = (direct_signs - direct_signs.mean(1, keepdims=True)) / 2
        sizes = _size_functions(signs, direct_signs, combined)
        if not components().size_functions:
            sizes *= 0.0
        if units is None:
            steep = slope[:, None] * centred
            units = _root_mean_square(steep, slope > 0), _root_mean_square(sizes, inner)
        alone = np.zeros(len(signs))
        alone[inner] = _credit_alone(size[inner], players) * players / 2
        count = None if direct is None else m
        noise = inner * _noise(size, players, count)
        if m < players:  # without direct players, others make little difference
            share = size / players
            noise[slope == 0] *= np.minimum(1, 8 * share * (1 - share))[slope == 0]
        return Coalitions(
            signs, noise, combined, count, centred, slope / units[0], mean_slope / units[0],
            sizes / units[1], alone, units,
        )  # fmt: skip

    def others(self, signs: Floats) -> Coalitions:
        """Other coalitions of the same players, in the same units."""
        is_direct = np.isin(np.arange(self.players), self.direct)
        return Coalitions.of(signs, None if self.combined is None else is_direct, self.units)

    def __len__(self) -> int:
        return len(self.signs)

    @property
    def players(self) -> int:
        """M."""
        return self.signs.shape[1]

    def take(self, index: Ids) -> Coalitions:
        """The coalitions at these positions, in the same units."""
        by_pair = ("signs", "noise", "direct_centred", "slope", "sizes", "alone")
        return replace(self, **{name: vars(self)[name][index] for name in by_pair})


def _size_functions(signs: Floats, direct_signs: Floats, combined: Ids) -> Floats:
    """Odd functions of the shares of all, direct and other members that vanish at both ends."""
    shares = [signs.mean(1)]
    functions: list[Floats] = []
    if 0 < len(combined) < signs.shape[1]:
        shares += [direct_signs.mean(1), np.delete(signs, combined, 1).mean(1)]
        # A jump: without any direct member the others have no influence.
        functions.append(shares[1] * (np.abs(shares[1]) < 1))
    for x in shares:
        cube = x * x * x
        functions += [cube - x, cube * x * x - x, cube * cube * x - cube]
    return np.stack(functions, 1)


def _noise(size: Floats, players: int, combined: int | None) -> Floats:
    """Variances of the white part by size: the fewer are combined, the more each matters."""
    if combined is None or not components().noise_by_size:
        return np.ones_like(size)
    smaller = np.minimum(size, players - size) * (combined / players)
    variance: Floats = 2 / (1 + smaller) ** _NOISE_POWER
    return variance


def _root_mean_square(rows: Floats, inner: Bools) -> float:
    mean = float(np.sqrt((rows[inner] ** 2).sum(1).mean())) if inner.any() else 0.0
    return mean or 1.0


def _credit_alone(size: Floats, players: int) -> Floats:
    """4 / (size (M - size)) over the number of coalitions of a size."""
    log_count = gammaln(players + 1.0) - gammaln(size + 1) - gammaln(players - size + 1)
    credit: Floats = 4 * np.exp(-log_count) / (size * (players - size))
    return credit


def _white_prior(players: int, combined: int | None) -> float:
    """Variance of every Shapley value of a white game (at most: its noise depends on more)."""
    size = np.arange(1.0, players // 2 + 1)
    per_size = _credit_alone(size, players) * _noise(size, players, combined)
    if players % 2 == 0:
        per_size[-1] /= 2  # a coalition and its complement have the same size: half as many pairs
    return float(per_size.sum())


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
        self.loading: Floats = np.sqrt(self.effect / len(self.effect))
        """Linear effects for a unit of what they have in common, [M]."""
        self._products: dict[float, Floats] = {}

    def _regressors(self, coalitions: Coalitions) -> Floats:
        """Rows whose products are the linear part and functions of sizes.

        Last comes what linear effects have in common.
        """
        common = (coalitions.signs @ self.loading)[:, None]
        return np.concatenate([coalitions.signs * self.loading, coalitions.sizes, common], 1)

    def _slopes(self, coalitions: Coalitions) -> Floats:
        """Rows whose products are the slopes per size."""
        scale = np.multiply.outer(coalitions.slope, np.sqrt(self.effect[coalitions.direct]))
        slopes: Floats = coalitions.direct_centred * scale
        return slopes

    @cached_property
    def _linear(self) -> Floats:
        rows = self._regressors(self.coalitions)
        return rows @ rows.T

    @cached_property
    def _per_size(self) -> Floats:
        rows = self._slopes(self.coalitions)
        return rows @ rows.T

    @cached_property
    def _likeness(self) -> Floats:
        return self._likeness_to(self.coalitions)

    def _likeness_to(self, others: Coalitions) -> Floats:
        """1 - 2 d(S, T) / theta, [other pairs, pairs]."""
        weighted = others.signs * (self.relevance / others.players)
        return weighted @ self.coalitions.signs.T

    def gram(self, mixture: Mixture) -> Floats:
        """Covariances of the pairs with each other; parts are kept for other mixtures."""
        gram = self._linear.copy()
        if mixture.per_size:
            gram += mixture.per_size * self._per_size
        if mixture.theta:
            if mixture.theta not in self._products:
                self._products[mixture.theta] = _product_covariance(self._likeness, mixture.theta)
            gram += self._products[mixture.theta]
        diagonal(gram)[:] += mixture.white * self.coalitions.noise
        diagonal(gram)[:] *= 1 + _JITTER
        return gram

    def expected(self, others: Coalitions, mixture: Mixture, solved: Floats) -> Floats:
        """Covariances of other pairs (none of these) with the pairs, times `solved`."""
        parts = [(1.0, self._regressors), (mixture.per_size, self._slopes)]
        predictions = np.zeros((len(others), solved.shape[1]))
        for variance, rows in parts:
            if variance:
                predictions += variance * (rows(others) @ (rows(self.coalitions).T @ solved))
        if mixture.theta:
            predictions += _product_covariance(self._likeness_to(others), mixture.theta) @ solved
        return predictions

    def shapley(self, mixture: Mixture) -> Floats:
        """Shapley values of the covariance with each pair, as a function: [pairs, M]."""
        coalitions = self.coalitions
        credit: Floats = coalitions.signs * (2 * self.effect / coalitions.players)
        credit += np.multiply.outer(coalitions.signs @ self.loading, 2 * self.loading)
        if mixture.per_size:
            part = coalitions.direct_centred * self.effect[coalitions.direct]
            part -= part.mean(1, keepdims=True)
            part *= (mixture.per_size * coalitions.mean_slope * coalitions.slope)[:, None]
            credit[:, coalitions.direct] += part
        if mixture.theta:
            theta = mixture.theta * self.relevance / coalitions.players
            credit += _product_shapley(coalitions.signs, theta) / -np.expm1(-mixture.theta)
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
            drop, left, full_product = _product_integrand(mixture.theta * self.relevance / players)
            variance += 4 * drop * ((1 / left) @ full_product) / -np.expm1(-mixture.theta)
        variance += mixture.white * _white_prior(players, coalitions.combined)
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
            product = _product_prior_of_sums(mixture.theta * self.relevance / players, weights)
            variance += product / -np.expm1(-mixture.theta)
        centred = weights - weights.mean(0)
        white = mixture.white * _white_prior(players, coalitions.combined)
        variance += white * players / max(players - 1, 1) * (centred**2).sum(0)
        return variance


def _product_covariance(likeness: Floats, theta: float) -> Floats:
    """exp(-d) - exp(d - theta) over its value at the diagonal, d = theta (1 - likeness) / 2."""
    covariance = likeness * (theta / 2)
    np.exp(covariance, out=covariance)  # several times faster than sinh
    covariance -= 1 / covariance
    covariance /= 2 * np.sinh(theta / 2)
    return covariance


@lru_cache
def _quadrature(players: int) -> tuple[Floats, Floats]:
    x, w = np.polynomial.legendre.leggauss(min(players // 2 + 1, NODES))
    return (x + 1) / 2, w / 2


def _product_shapley(signs: Floats, theta: Floats) -> Floats:
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


def _product_prior_of_sums(theta: Floats, weights: Floats) -> Floats:
    """Variances of weighted sums of Shapley values of a draw from the product kernel, [sums].

    The covariance of two players is the double integral over q, q' of
    2 (2q - 1) (2q' - 1) drop_i drop_j times the product over all others.
    """
    q, _ = _quadrature(len(theta))
    drop, left, full_product = _product_integrand(theta)
    ratio = drop[:, None] / left
    by_player = (4 * (ratio @ full_product)) @ weights**2
    tilt = np.multiply.outer(2 * q - 1, 2 * q - 1).ravel() * full_product
    sums = weights.T @ ratio
    squares = (weights**2).T @ ratio**2
    return by_player + 2 * (sums**2 - squares) @ tilt


def _product_integrand(theta: Floats) -> tuple[Floats, Floats, Floats]:
    """1 - exp(-theta) [M], factors [M, nodes^2], and their product times the weights [nodes^2]."""
    q, weight = _quadrature(len(theta))
    differ = np.add.outer(q, q) - 2 * np.multiply.outer(q, q)
    drop = -np.expm1(-theta)
    left = 1 - np.multiply.outer(drop, differ.ravel())
    return drop, left, left.prod(0) * np.multiply.outer(weight, weight).ravel()
