"""The Lasso path: every step is optimal, also where players enter or leave at the same time."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag

from graphsvx.estimators import lasso


def integer_game(players: int, coalitions: int, seed: int) -> lasso._Part:
    """Random coalitions of a game of small integers, in which players often tie."""
    rng = np.random.default_rng(seed)
    z = (rng.random((coalitions, players)) < 0.5).astype(np.float64)
    y = z @ rng.integers(-4, 5, players) + 2.0 * rng.integers(-1, 2, coalitions)
    return lasso._Part.fitted(z, y, np.ones(coalitions), 0.0)


def assert_optimal(parts: list[lasso._Part]) -> None:
    """Players with a coefficient have the largest correlation with the residual, and its sign."""
    gram = block_diag(*(part.gram for part in parts))
    moment = np.concatenate([part.moment for part in parts])
    size = np.abs(moment).max()
    path = lasso._path(parts)
    for beta in path.T:
        correlation = (moment - gram @ beta) / size
        chosen = beta != 0
        largest = np.abs(correlation).max()
        np.testing.assert_allclose(
            correlation[chosen], largest * np.sign(beta[chosen]), rtol=0, atol=1e-8
        )
    # The last step is the fit without a penalty.
    np.testing.assert_allclose(gram @ path[:, -1] / size, moment / size, rtol=0, atol=1e-6)


@pytest.mark.parametrize("difference", [0.0, 2e-16, 1e-14])
@pytest.mark.parametrize(("players", "coalitions"), [(4, 8), (5, 8), (6, 16)])
def test_steps_of_two_games_that_are_alike_are_optimal(
    players: int, coalitions: int, difference: float
) -> None:
    for seed in (*range(8), 71):
        part = integer_game(players, coalitions, seed)
        assert_optimal([part, replace(part, moment=part.moment * (1 - difference))])


def test_players_that_left_the_path_are_not_chosen() -> None:
    leaving = 0
    for seed in range(40):
        part = integer_game(8, 16, seed)
        assert_optimal([part])
        # Without ties, a coefficient next to 0 is one that reached 0, up to rounding.
        noise = 0.1 * np.random.default_rng(seed).normal(size=8)
        path = lasso._path([replace(part, moment=part.moment + noise)])
        chosen = path != 0
        assert np.abs(path[chosen]).min() > 1e-12 * np.abs(path).max()
        leaving += np.count_nonzero(chosen[:, :-1] & ~chosen[:, 1:])
    assert leaving > 0


@pytest.mark.parametrize("unit", [1e-12, 1e9])
def test_chosen_players_do_not_depend_on_the_unit_of_the_values(unit: float) -> None:
    part = integer_game(6, 16, 0)
    scaled = replace(part, moment=part.moment * unit)
    supports = [support.tolist() for support in lasso._supports([part], 6)]
    assert [support.tolist() for support in lasso._supports([scaled], 6)] == supports
    assert len(supports[-1]) > 1


def test_without_any_effect_no_player_enters_the_path() -> None:
    part = integer_game(4, 8, 0)
    assert not lasso._path([replace(part, moment=np.zeros(4))]).any()
