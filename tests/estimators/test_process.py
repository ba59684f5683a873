"""Scale and error bars of a Gaussian process."""

from __future__ import annotations

import numpy as np

from graphsvx.estimators.process_average import _error_factor
from graphsvx.masks.base import all_rows, shapley_kernel


def test_errors_of_credit_that_residuals_show_widen_the_bars() -> None:
    """Residuals that are a linear game are the credit that the process misses."""
    players = 9
    rows = all_rows(players)[1:-1]
    weights = shapley_kernel(rows.sum(1), players)
    signs = 2.0 * rows - 1
    missed = np.random.default_rng(0).normal(size=(players, 2))
    missed -= missed.mean(0)
    squared = (missed**2).sum(0)
    for ratio in (1.5, 4.0):
        factor = _error_factor(signs, signs / 2 @ missed, weights, squared / ratio)
        np.testing.assert_allclose(factor, ratio, rtol=0.15)
    assert (_error_factor(signs, signs / 2 @ missed, weights, 2 * squared) == 1).all()
    assert (_error_factor(signs, np.zeros((len(signs), 2)), weights, squared) == 1).all()


def test_residuals_that_are_noise_do_not_widen_the_bars() -> None:
    """Noise moves the regression of residuals by as much as the products of pairs leave out."""
    rng = np.random.default_rng(2)
    signs = np.sign(rng.normal(size=(60, 11)))
    rows = signs / 2 - signs.mean(1, keepdims=True) / 2
    spread = (rows**2).sum() / 60 / 10
    from_noise = (rows**2).sum() / 60**2 / spread**2
    noise = rng.normal(size=(60, 400))
    factor = _error_factor(signs, noise, np.ones(60), np.full(400, from_noise))
    assert factor.mean() < 1.02  # 1.002 to 1.013 over seeds
