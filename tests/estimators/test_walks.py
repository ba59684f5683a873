"""Shapley values of the walks' regressors against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.estimators.walks import Walks
from graphsvx.masks.base import all_rows
from tests.masks.test_paired import shapley


@pytest.mark.parametrize("direct", [[0], [1, 3], [0, 2, 5], [0, 1, 2, 3, 4, 5]])
def test_shapley_values_are_those_of_the_definition(direct: list[int]) -> None:
    players, rng = 6, np.random.default_rng(len(direct))
    passed = rng.random((len(direct), players)) * (rng.random((len(direct), players)) < 0.7)
    passed[np.arange(len(direct)), direct] = 0
    walks = Walks.of(np.array(direct), passed)
    rows = all_rows(players)
    regressors = walks.regressors(2.0 * rows - 1)
    by_definition = np.stack([shapley(column) for column in regressors.T])  # [M + m, M]
    one = np.ones(players + len(direct))
    np.testing.assert_allclose(walks.shapley(np.eye(len(one)), one), by_definition, atol=1e-12)
    scale = rng.random(len(one))
    scaled = by_definition * scale[:, None]
    np.testing.assert_allclose(walks.variances(scale), (scaled**2).sum(0), atol=1e-12)
    weights = rng.normal(size=(players, 3))
    np.testing.assert_allclose(walks.loadings(weights, scale), scaled @ weights, atol=1e-12)
