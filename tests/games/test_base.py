"""Memory of games, and what is known of players beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.errors import BudgetError
from graphsvx.games.base import FunctionGame, PlayerPrior, fitting_coalitions, require_memory
from graphsvx.games.derivatives import ExpectedCredit

MIB = 2**20


class _Bounded(FunctionGame):
    memory = 256 * MIB


def _zeros(rows: np.ndarray) -> torch.Tensor:
    return torch.zeros(len(rows), dtype=torch.float64)


def test_coalitions_fit_into_the_memory_of_a_game() -> None:
    game = _Bounded(_zeros, 4)
    assert fitting_coalitions(game, 16) == 4 * MIB
    game.memory = 1
    assert fitting_coalitions(game, 16) == MIB  # 64 MiB are always allowed
    require_memory(1, 64 * MIB, 1000, 4)
    with pytest.raises(BudgetError):
        require_memory(1, 64 * MIB + 1, 1000, 4)


def test_the_prior_of_what_derivatives_leave_goes_by_their_errors() -> None:
    players = np.array([True, True, False])
    values, errors = np.array([[3.0], [4.0], [0.0]]), np.array([[0.0], [1.0], [0.0]])
    credit = ExpectedCredit(values, errors, players, 32, slice(0, 1), 0)
    prior = PlayerPrior(np.array([1.0, 7.0, 2.0]), np.array([False, False, True]), None, credit)
    left = prior.without_expected()
    # Errors over the root mean square of credit, 1 / sqrt(13) and at least 1 %, of relevance 5.
    np.testing.assert_allclose(left.relevance, [0.05, 5 / np.sqrt(13), 2.0])
    np.testing.assert_array_equal(left.direct, prior.direct)
    assert left.expected is None
