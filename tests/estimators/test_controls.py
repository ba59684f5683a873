"""Control variates change the variance of least squares on many coalitions, never the values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.core.arrays import Bools
from graphsvx.estimators.controls import ControlledWLS
from graphsvx.estimators.least_squares import WLS
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks import All, Masks, Paired
from graphsvx.masks.base import all_rows


def rough_game(players: int, seed: int) -> FunctionGame:
    """Many products of a few players under a saturating function."""
    rng = np.random.default_rng(seed)
    triples = [rng.choice(players, 3, replace=False) for _ in range(3 * players)]
    weights = rng.normal(size=len(triples))
    own = rng.normal(size=players)

    def function(rows: Bools) -> torch.Tensor:
        products = np.stack([rows[:, triple].all(1) for triple in triples], 1) @ weights
        return torch.from_numpy(np.tanh(0.5 * (products + rows @ own)))[:, None]

    return FunctionGame(function, players)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("players", [8, 9])
def test_all_pairs_give_the_shapley_values(players: int, seed: int) -> None:
    game = rough_game(players, seed)
    rows = all_rows(players)[1:-1]
    rows = rows[rows[:, 0]]
    paired = np.empty((2 * len(rows), players), dtype=bool)
    paired[::2], paired[1::2] = rows, ~rows
    every = All(separate=True)(game, 1 << players, torch.Generator())
    weight = {row.tobytes(): w for row, w in zip(every.rows, every.weights, strict=True)}
    weights = np.array([weight[row.tobytes()] for row in paired])
    drawn = np.arange(len(rows)).repeat(2)
    masks = Masks(paired, game.states(paired), weights, pair=drawn, unseen=np.ones(len(paired)))
    empty, full = game.values(game.states(empty_and_full(players)))
    fit = ControlledWLS()(masks, game.values(masks.states), empty, full)
    exact = WLS()(every, game.values(every.states), empty, full)
    assert torch.allclose(fit.values, exact.values, atol=1e-5)


def test_errors_are_smaller_than_those_of_least_squares_and_true() -> None:
    game = rough_game(16, 5)
    every = All(separate=True)(game, 1 << 16, torch.Generator())
    empty, full = game.values(game.states(np.array([[False] * 16, [True] * 16])))
    exact = WLS()(every, game.values(every.states), empty, full).values
    masks = Paired()(game, 20_000, torch.Generator().manual_seed(1))
    values = game.values(masks.states)
    plain = WLS()(masks, values, empty, full)
    fit = ControlledWLS()(masks, values, empty, full)
    assert float(fit.values.sum()) == pytest.approx(float(full - empty), abs=1e-9)
    assert fit.errors.norm() < 0.75 * plain.errors.norm()
    missed = (fit.values - exact) / fit.errors
    assert 0.4 < float(missed.square().mean().sqrt()) < 2
