"""The parts of the kernel surrogate against their definitions, over all coalitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.explain import WLS, Smooth, smooth
from graphsvx.game import FunctionGame
from graphsvx.masks import Paired
from graphsvx.masks.base import all_rows
from tests.masks.test_paired import shapley


def kernel(theta: np.ndarray) -> np.ndarray:
    """k of all coalitions with each other, as the module defines it."""
    signs = 2.0 * all_rows(len(theta)) - 1
    apart = ((signs[:, None] != signs[None]) * theta).sum(-1)
    return np.exp(-apart) - np.exp(apart - theta.sum())


@pytest.mark.parametrize("players", [3, 4, 7])
def test_shares_are_the_shapley_values_of_kernel_functions(players: int) -> None:
    theta = np.random.default_rng(players).exponential(size=players)
    every = kernel(theta)
    wanted = np.stack([shapley(column) for column in every.T])
    found = smooth._shares(2.0 * all_rows(players) - 1, theta)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("players", [3, 4, 7])
def test_the_prior_is_the_variance_of_the_shapley_values_of_a_draw(players: int) -> None:
    theta = np.random.default_rng(players).exponential(size=players)
    every = kernel(theta)
    inner = np.stack([shapley(column) for column in every.T])
    wanted = np.stack([shapley(column) for column in inner.T]).diagonal()
    np.testing.assert_allclose(smooth._prior(theta), wanted, rtol=1e-10)


def test_the_factor_is_that_of_the_whole_kernel_matrix() -> None:
    """Of more rows than fill a block: only one half of the matrix is computed."""
    players, count = 9, 2 * smooth._BLOCK + 5
    theta = np.random.default_rng(0).exponential(size=players)
    rows = np.random.default_rng(1).permutation(1 << (players - 1))[:count]
    factor = np.tril(smooth._factor((2.0 * all_rows(players) - 1)[rows], theta))
    np.testing.assert_allclose(factor @ factor.T, kernel(theta)[np.ix_(rows, rows)], atol=1e-7)


def test_an_output_in_other_units_is_fitted_alike() -> None:
    """What players matter is learnt from all outputs, each in units of its own."""
    weights = torch.from_numpy(np.random.default_rng(3).normal(size=(20, 1)))
    game = FunctionGame(lambda rows: torch.tanh(torch.from_numpy(2.0 * rows - 1) @ weights), 20)
    masks = Paired()(game, 500, torch.Generator().manual_seed(0))
    ends = game.values(game.states(np.repeat([[False], [True]], 20, axis=1)))
    values = game.values(masks.states)
    units = torch.tensor([1.0, -3.0])
    fit = Smooth()(masks, values * units, ends[0] * units, ends[1] * units)
    torch.testing.assert_close(fit.values[1], -3 * fit.values[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(fit.errors[1], 3 * fit.errors[0], rtol=0, atol=1e-9)
    plain = WLS()(masks, values, ends[0], ends[1])
    assert not torch.allclose(fit.values[0], plain.values[0], rtol=1e-3)
