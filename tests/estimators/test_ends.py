"""Least squares without the ends, and with ends that count in R²."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphsvx import GraphSVX, explain
from graphsvx.estimators.least_squares import WLS
from graphsvx.games.base import FunctionGame
from graphsvx.masks import All
from graphsvx_lab.studies.variants import NoEnds, WithEnds


def test_without_its_ends_an_additive_game_is_fitted_as_well():
    weights = torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64)

    def play(rows: np.ndarray) -> torch.Tensor:
        return 0.3 + torch.from_numpy(rows).double() @ weights

    game = FunctionGame(play, 3)
    masks = All(separate=True)(game, 8, torch.Generator())
    values = game.values(masks.states)
    full = torch.tensor([0.7], dtype=torch.float64)
    fit = NoEnds()(masks, values, torch.tensor([0.3], dtype=torch.float64), full)
    assert fit.values[0].tolist() == pytest.approx(weights.tolist())
    assert float(fit.base) == pytest.approx(0.3)
    assert bool(fit.errors.isnan().all())
    # What the ends say is not looked at, unlike by the usual fit.
    moved = NoEnds()(masks, values, torch.tensor([9.0], dtype=torch.float64), full)
    assert moved.values.tolist() == fit.values.tolist()
    usual = WLS()(masks, values, torch.tensor([9.0], dtype=torch.float64), full)
    assert usual.values[0].tolist() != pytest.approx(fit.values[0].tolist())


def test_without_its_ends_a_game_is_fitted_by_weight():
    # v = 1 for coalitions of two of three; sizes 1 and 2 weigh the same, a changed weight counts.
    game = FunctionGame(lambda rows: torch.from_numpy(rows[:, 0] & rows[:, 1]).double(), 3)
    masks = All(separate=True)(game, 8, torch.Generator())
    ends = torch.zeros(1).double(), torch.ones(1).double()
    values = game.values(masks.states)
    plain = NoEnds()(masks, values, *ends)
    heavy = np.where(masks.rows[:, 0] & masks.rows[:, 1], 1e9, masks.weights)
    met = NoEnds()(replace(masks, weights=heavy), values, *ends)

    def says(fit: Any) -> float:
        return float(fit.base + fit.values[0, [0, 1]].sum())

    assert says(met) == pytest.approx(1, abs=1e-4)
    assert says(plain) < 0.9


def test_a_fit_of_one_s_own_is_not_called_exact():
    data = SimpleNamespace(
        x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1, 2, 3, 1], [1, 0, 0, 0, 2]])
    )

    def model(x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        seen = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return torch.stack([seen.sum(1) ** 2, x.sum(1)], 1)

    method = GraphSVX(mask=All(separate=True), estimator=NoEnds())
    explanation = explain(model, data, node=0, method=method)
    assert not explanation.certificate.exact
    assert not isnan(explanation.base)


def test_ends_that_are_met_push_r_squared_up_and_leave_credit_alone():
    # v = product of three players: nothing additive about it.
    game = FunctionGame(lambda rows: torch.from_numpy(rows.all(1)).double(), 3)
    masks = All(separate=True)(game, 8, torch.Generator())
    played = (masks, game.values(masks.states), torch.zeros(1).double(), torch.ones(1).double())
    plain, counted = WLS()(*played), WithEnds()(*played)
    assert counted.values.tolist() == plain.values.tolist()
    assert counted.base.tolist() == plain.base.tolist()
    # All rows but the full one are worth 0 to the game; g says 1/3 or 2/3 there.
    ends = 1000.0 * 3
    lost = 3 * (1 / 9) + 3 * (4 / 9)
    mean = ends / (2 * ends + 6)
    spread = ends * (1 - mean) ** 2 + (ends + 6) * mean**2
    assert float(counted.r2) == pytest.approx(1 - lost / spread)
    assert float(counted.r2) > 0.99
