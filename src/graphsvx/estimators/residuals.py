"""Bayesian linear regression of residuals on coalitions, without a matrix of players by players.

    residual_i = x_i' delta + noise of variance tau^2 / w_i,    delta_j ~ N(0, V_j)

where x_i is membership less its mean. The posterior mean H X'W r with H = (X'WX + tau^2 / V)^-1
comes from conjugate gradients. Its variances come from the diagonal of H, for which a fixed point
stands (rows of random coalitions are nearly orthogonal; Bai and Silverstein's deterministic
equivalent of a sample covariance), and from residuals as they would be without their own row, so
that they hold whatever the noise is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphsvx.core.arrays import Bools, Floats

Singles = NDArray[np.float32]

_MOST_STEPS = 60
_TOLERANCE = 1e-5  # of the norm of the right side: far below the errors
_TOLERANCE_OF_SUMS = 1e-2  # of variances that are estimates themselves
_FIXED_POINT_STEPS = 6


@dataclass(frozen=True, eq=False)
class ResidualFit:
    """Coefficients of one output with their variances, and variances of sums of them."""

    coefficients: Floats
    variances: Floats
    rows: Singles
    """x, [rows, M]."""
    weights: Floats
    open_squares: Floats
    """w^2 times squared residuals without their own row, times the share not drawn, [rows]."""
    precision: Floats
    """tau^2 / V, [M]."""
    noise: float
    """tau^2."""

    def variances_of_sums(self, sums: Floats) -> Floats:
        """Variances of weighted sums of the coefficients, [sums], for weights [M, sums]."""
        solved = solve(self.rows, self.weights, self.precision, sums, _TOLERANCE_OF_SUMS)
        projected = (self.rows @ solved.astype(np.float32)).astype(np.float64)
        variances: Floats = self.open_squares @ projected**2
        variances += self.noise * (self.precision @ solved**2)
        return variances


def centred_rows(members: Bools) -> Singles:
    """Membership less the share of members, [rows, M]; single precision halves memory and time."""
    rows = members.astype(np.float32)
    rows -= members.mean(1, dtype=np.float64).astype(np.float32)[:, None]
    return rows


def fit_residuals(
    rows: Singles, residuals: Floats, weights: Floats, prior: Floats, unseen: Floats
) -> ResidualFit:
    """Regress `residuals` [rows] on `rows` [rows, M] with `prior` variances [M].

    `unseen`: share of each row's stratum that was not drawn, which its residual stands for.
    """
    weights = weights / weights.mean()
    noise = float((weights * residuals**2).mean()) or 1e-300
    right = _transposed(rows, weights * residuals)
    prior = prior * _understatement(rows, residuals, weights, prior, right)
    precision = noise / np.maximum(prior, 1e-300)
    coefficients = solve(rows, weights, precision, right[:, None])[:, 0]
    left = residuals - rows @ coefficients.astype(np.float32)
    inverse, loads = _inverse_diagonal(rows, weights, precision)
    left *= 1 + loads  # a row pulls the fit towards its own residual
    noise_left = float((weights * left**2).mean())
    open_squares = weights**2 * left**2 * unseen
    squares = rows**2
    spread = _transposed(squares, open_squares)
    even = noise_left * _transposed(squares, weights)
    ratio = spread / np.maximum(even, 1e-300)
    from_noise = (1 - precision * inverse).clip(0, 1)
    variances = noise_left * inverse * (from_noise * ratio + 1 - from_noise)
    return ResidualFit(coefficients, variances, rows, weights, open_squares, precision, noise_left)


def _understatement(
    rows: Singles, residuals: Floats, weights: Floats, prior: Floats, right: Floats
) -> float:
    """By what factor the prior variances are too small, as these residuals say; at least 1.

    x_j'W r has the variance sum of w^2 x_j^2 r^2 plus (sum of w x_j^2)^2 times that of delta_j. A
    weighted mean over players estimates the factor, less one standard error of it.
    """
    squares = rows**2
    noise = _transposed(squares, weights**2 * residuals**2)
    signal = _transposed(squares, weights) ** 2 * prior
    share = signal / np.maximum(noise + signal, 1e-300)
    certain = float((share**2).sum())
    if certain < 1:
        return 1.0
    excess = (right**2 - noise) / np.maximum(noise + signal, 1e-300)
    return max(1.0, float(share @ excess) / certain - float(np.sqrt(2 / certain)))


def solve(
    rows: Singles, weights: Floats, precision: Floats, right: Floats, tolerance: float = _TOLERANCE
) -> Floats:
    """(X'WX + precision)^-1 right by conjugate gradients, with a diagonal preconditioner.

    `right` [M, sides]: all sides go on until each is solved.
    """
    scale = 1 / (precision + weights @ (rows**2).mean(1))[:, None]
    solution = np.zeros_like(right)
    left = right.copy()
    towards = scale * left
    direction = towards.copy()
    size = _products(left, towards)
    small = tolerance**2 * size
    for _ in range(_MOST_STEPS):
        if (size <= small).all():
            break
        weighted = weights[:, None] * (rows @ direction.astype(np.float32))
        product = (weighted.T.astype(np.float32) @ rows).T + precision[:, None] * direction
        step = size / np.maximum(_products(direction, product), 1e-300)
        solution += step * direction
        left -= step * product
        towards = scale * left
        size, before = _products(left, towards), size
        direction = towards + (size / np.maximum(before, 1e-300)) * direction
    return solution


def _products(a: Floats, b: Floats) -> Floats:
    """Products of the columns."""
    products: Floats = np.einsum("ij,ij->j", a, b)
    return products


def _inverse_diagonal(rows: Singles, weights: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """About the diagonal of (X'WX + precision)^-1, [M], and w_i x_i' H_-i x_i, [rows]."""
    squares = rows**2
    loads = np.zeros(len(rows))
    inverse = 1 / (precision + _transposed(squares, weights))
    for _ in range(_FIXED_POINT_STEPS):
        loads = weights * (squares @ inverse.astype(np.float32))
        inverse = 1 / (precision + _transposed(squares, weights / (1 + loads)))
    return inverse, loads


def _transposed(rows: Singles, vector: Floats) -> Floats:
    return (vector.astype(np.float32) @ rows).astype(np.float64)
