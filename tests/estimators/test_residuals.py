"""Regression of residuals without a matrix of players by players, against one with it."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.estimators.process import centred_rows, fit_residuals, solve


@pytest.mark.parametrize("strength", [0.02, 0.3, 3.0])
def test_coefficients_and_variances_are_those_of_the_normal_equations(strength: float) -> None:
    rng = np.random.default_rng(0)
    pairs, players = 400, 60
    rows = centred_rows(rng.random((pairs, players)) < 0.5)
    weights = rng.exponential(size=pairs) + 0.2
    truth = strength * rng.normal(size=players)
    residuals = rows @ truth + rng.normal(size=pairs) / np.sqrt(weights)
    unseen = rng.uniform(0.3, 1, pairs)
    fit = fit_residuals(rows, residuals, weights, np.full(players, strength**2), unseen)
    x, w = rows.astype(np.float64), weights / weights.mean()
    # tau^2 / V, or less where the residuals show that the prior variances are too small.
    assert (fit.precision <= (w * residuals**2).mean() / strength**2 * (1 + 1e-9)).all()
    inverse = np.linalg.inv(x.T @ (w[:, None] * x) + np.diag(fit.precision))
    np.testing.assert_allclose(
        fit.coefficients, inverse @ x.T @ (w * residuals), atol=1e-4 * strength
    )
    # Errors of a residual that was not fitted itself: those of leave-one-out.
    leverage = w * np.einsum("ij,jk,ik->i", x, inverse, x)
    left = (residuals - x @ fit.coefficients) / (1 - leverage)
    squares = w**2 * left**2 * unseen
    np.testing.assert_allclose(fit.open_squares, squares, rtol=0.25, atol=1e-3)
    sums = np.concatenate([np.eye(players), rng.normal(size=(players, 3))], 1)
    projected = x @ inverse @ sums
    noise = (w * left**2).mean()
    variances = squares @ projected**2 + noise * (fit.precision @ (inverse @ sums) ** 2)
    np.testing.assert_allclose(fit.variances_of_sums(sums), variances, rtol=0.1)
    np.testing.assert_allclose(fit.variances, variances[:players], rtol=0.2)


def test_conjugate_gradients_solve_all_sides() -> None:
    rng = np.random.default_rng(1)
    rows, weights = centred_rows(rng.random((90, 40)) < 0.4), rng.exponential(size=90)
    precision, right = rng.exponential(size=40) + 0.1, rng.normal(size=(40, 3))
    x = rows.astype(np.float64)
    dense = np.linalg.solve(x.T @ (weights[:, None] * x) + np.diag(precision), right)
    np.testing.assert_allclose(solve(rows, weights, precision, right), dense, atol=1e-3)
