"""Sums of waves have Shapley values in closed form, and learn what many players do together."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.estimators.waves import Waves, signs_of, train_waves
from graphsvx.masks.base import all_rows
from graphsvx.testing.oracle import shapley_of_table


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
    signs = signs_of(members)
    values = np.tanh(signs @ rng.normal(size=(14, 4))).sum(1, keepdims=True)
    sets = [slice(0, 4000, 2), slice(1, 4000, 2)]
    odd = np.stack([values[part] for part in sets])
    trained = train_waves(np.stack([signs[part] for part in sets]), odd, np.zeros_like(odd))
    for waves in trained:
        missed = values[4000:] - waves.at(members[4000:])
        assert (missed**2).mean() < 0.5 * (values**2).mean()
