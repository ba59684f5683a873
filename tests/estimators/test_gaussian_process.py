"""The Gaussian process on whole games."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.estimators import WLS, GaussianProcess
from graphsvx.estimators.covariance import Coalitions
from graphsvx.estimators.gaussian_process import Known, _without_known
from graphsvx.estimators.process import average_processes
from graphsvx.games.base import FunctionGame, PlayerPrior
from graphsvx.games.derivatives import ExpectedCredit
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


def played(players: int, budget: int, seed: int = 0) -> tuple:
    """Rows of a smooth game with interactions, and the values of all of them."""
    rng = np.random.default_rng(seed)
    inner = torch.from_numpy(rng.normal(size=(players, 6)) / players**0.5)
    outer = torch.from_numpy(rng.normal(size=(6, 2)))
    game = FunctionGame(lambda rows: torch.tanh(torch.from_numpy(1.0 * rows) @ inner) @ outer,
                        players)  # fmt: skip
    masks = Paired()(game, budget, torch.Generator().manual_seed(seed))
    ends = game.values(game.states(np.repeat([[False], [True]], players, axis=1)))
    return masks, game.values(masks.states), ends[0], ends[1]


@pytest.mark.parametrize("budget", [200, 1600])
def test_credit_of_groups_has_errors_of_its_own(budget: int) -> None:
    fit = GaussianProcess()(*played(24, budget))
    credit, errors = fit.group_credit(np.eye(24, dtype=bool))
    np.testing.assert_allclose(credit, fit.values, atol=1e-12)
    np.testing.assert_allclose(errors, fit.errors, rtol=0.1)
    halves = np.repeat([[True, False], [False, True], [True, True]], 12, axis=1)
    credit, errors = fit.group_credit(halves)
    np.testing.assert_allclose(credit[:, 2], credit[:, 0] + credit[:, 1], atol=1e-12)
    # The sum of all credit is known, so that the halves miss by the same.
    np.testing.assert_allclose(errors[:, 0], errors[:, 1], rtol=1e-3)
    assert (errors[:, 2] < 1e-2 * errors[:, 0]).all()


def test_errors_of_groups_hold() -> None:
    """Within 1.96 standard errors in 0.85-1 of the cases, over games and groups."""
    hits = []
    for seed in range(12):
        fit = GaussianProcess()(*played(12, 60, seed))
        exact = GaussianProcess()(*played(12, 1 << 12, seed))
        groups = np.random.default_rng(seed).random((6, 12)) < 0.5
        credit, errors = fit.group_credit(groups)
        truth, nothing = exact.group_credit(groups)
        assert not nothing.any()
        hits.append(np.abs(credit - truth) <= 1.96 * errors)
    assert 0.85 < np.mean(hits) <= 1


def test_more_players_than_pairs_are_no_linear_game() -> None:
    fit = GaussianProcess()(*played(80, 2400))
    assert fit.held_out_r2 is not None
    few = GaussianProcess(pairs=64)(*played(80, 2400))
    assert few.held_out_r2 is not None


def test_memory_of_games_without_players() -> None:
    assert GaussianProcess().memory(0, 0) == 0


@pytest.mark.parametrize("budget", [200, 1600])
def test_a_poor_expectation_leaves_credit_to_the_values(budget: int) -> None:
    """A game plus a linear one that is expected, with large errors, has the sum of both credits."""
    masks, values, empty, full = played(24, budget)
    players = np.arange(24) >= 8
    credit = np.where(players[:, None], np.random.default_rng(1).normal(size=(24, 2)), 0.0)
    errors = np.where(players[:, None], 1e6, np.zeros((24, 2)))
    expected = ExpectedCredit(credit, errors, players, 32, slice(0, 2), 0)
    prior = PlayerPrior(np.ones(24), np.ones(24, dtype=bool))
    shared, total = torch.from_numpy(masks.rows @ credit), torch.from_numpy(credit.sum(0))
    known, rest = Known(prior, expected), Known(_without_known(prior, expected))
    fit = GaussianProcess()(masks, values + shared, empty, full + total, known)
    left = GaussianProcess()(masks, values, empty, full, rest)
    by_values = left.values + torch.from_numpy(credit.T)
    torch.testing.assert_close(fit.values, by_values, rtol=0, atol=1e-6)
    torch.testing.assert_close(fit.errors, left.errors, rtol=1e-5, atol=0)
    assert "derivatives at 32 coalitions for 16 players" in str(fit.model)


@pytest.mark.parametrize("seed", range(4))
def test_a_process_alone_has_a_wider_variance(seed: int) -> None:
    """Where a covariance is not averaged with others, the variance says that it was chosen."""
    masks, values, empty, full = played(40, 600, seed)
    signs = np.concatenate([np.ones((1, 40)), 2.0 * masks.rows[::2] - 1])
    odd = np.concatenate([[(full - empty).numpy()], values[::2].numpy() - values[1::2].numpy()]) / 2
    likeliest, evidence = average_processes(Coalitions.of(signs), odd, None)
    alone = likeliest.evidence.variance
    assert (evidence.variance >= 2**0.5 * alone * (1 - 1e-9)).all()


def test_the_prior_of_what_derivatives_leave_goes_by_their_errors() -> None:
    players = np.array([True, True, False])
    values, errors = np.array([[3.0], [4.0], [0.0]]), np.array([[0.0], [1.0], [0.0]])
    credit = ExpectedCredit(values, errors, players, 32, slice(0, 1), 0)
    prior = PlayerPrior(np.array([1.0, 7.0, 2.0]), np.array([False, False, True]))
    left = _without_known(prior, credit)
    # Errors over the root mean square of credit, 1 / sqrt(13) and at least 1 %, of relevance 5.
    np.testing.assert_allclose(left.relevance, [0.05, 5 / np.sqrt(13), 2.0])
    np.testing.assert_array_equal(left.direct, prior.direct)
