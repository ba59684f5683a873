"""The product part of a covariance (`kernels`), and Shapley values of functions drawn from it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from graphsvx.core.arrays import Floats

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
