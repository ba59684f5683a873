"""Control variates change the variance of least squares on many coalitions, never the values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.core.arrays import Bools
from graphsvx.estimators.controls import ControlledWLS, Waves, _signs, _train
from graphsvx.estimators.least_squares import WLS
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks import All, Masks, Paired
from graphsvx.masks.base import all_rows
from graphsvx.testing.oracle import shapley_of_table


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


@pytest.mark.parametrize("players", [2, 5, 6])
def test_credit_of_waves_is_their_shapley_values(players: int) -> None:
    rng = np.random.default_rng(players)
    directions, amplitudes = rng.normal(size=(players, 3)), rng.normal(size=(3, 2))
    waves = Waves(directions.astype(np.float32), amplitudes.astype(np.float32))
    expected = shapley_of_table(waves.at(all_rows(players)))
    assert np.allclose(waves.credit(), expected.T, atol=1e-6)
    assert np.allclose(waves.credit().sum(1), 2 * waves.at_full(), atol=1e-12)


def test_waves_predict_pairs_that_they_have_not_seen() -> None:
    rng = np.random.default_rng(0)
    members = all_rows(14)
    members = members[members[:, 0]][rng.permutation(1 << 13)]
    values = np.tanh(_signs(members) @ rng.normal(size=(14, 4))).sum(1, keepdims=True)
    halves = [np.arange(0, 4000, 2), np.arange(1, 4000, 2)]
    for waves in _train(members, values, np.zeros_like(values), halves):
        missed = values[4000:] - waves.at(members[4000:])
        assert (missed**2).mean() < 0.5 * (values**2).mean()
