"""Scale and error bars of a Gaussian process."""

from __future__ import annotations

import numpy as np

from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.kernels import Kernel, Mixture
from graphsvx.estimators.process_average import Process, _error_factor
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


def test_a_mean_square_as_expected_leaves_the_scale_as_it_is() -> None:
    rng = np.random.default_rng(1)
    signs = np.sign(rng.normal(size=(30, 8)))
    signs[0] = 1
    kernel, mixture = Kernel(Coalitions.of(signs), np.ones(8)), Mixture(0.5, 2.0, 0.3)
    odd, weights = rng.normal(size=(30, 2)), np.append(0.0, np.ones(29))
    alone = Process.of(kernel, mixture, odd, 15, weights, None)
    # Values of a process have the variances of the diagonal, times its scale.
    usual = kernel.gram(mixture).diagonal()[1:].mean() * alone.scale
    same = Process.of(kernel, mixture, odd, 15, weights, usual)
    np.testing.assert_allclose(same.scale, alone.scale)
    larger = Process.of(kernel, mixture, odd, 15, weights, 10 * usual)
    assert (larger.scale > 1.2 * alone.scale).all()
    assert (larger.scale < 10 * alone.scale).all()


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
