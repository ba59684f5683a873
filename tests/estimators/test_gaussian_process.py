"""The Gaussian process on whole games."""

from __future__ import annotations

import numpy as np
import torch

from graphsvx.estimators import WLS, GaussianProcess
from graphsvx.games.base import FunctionGame
from graphsvx.masks import Paired


def test_an_output_in_other_units_is_fitted_alike() -> None:
    """What players matter is learnt from all outputs, each in units of its own."""
    weights = torch.from_numpy(np.random.default_rng(3).normal(size=(20, 1)))
    game = FunctionGame(lambda rows: torch.tanh(torch.from_numpy(2.0 * rows - 1) @ weights), 20)
    masks = Paired()(game, 500, torch.Generator().manual_seed(0))
    ends = game.values(game.states(np.repeat([[False], [True]], 20, axis=1)))
    values = game.values(masks.states)
    units = torch.tensor([1.0, -3.0])
    fit = GaussianProcess()(masks, values * units, ends[0] * units, ends[1] * units)
    torch.testing.assert_close(fit.values[1], -3 * fit.values[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(fit.errors[1], 3 * fit.errors[0], rtol=0, atol=1e-9)
    plain = WLS()(masks, values, ends[0], ends[1])
    assert not torch.allclose(fit.values[0], plain.values[0], rtol=1e-3)
