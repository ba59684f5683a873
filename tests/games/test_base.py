"""Memory of games, and what is known of players beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.errors import BudgetError
from graphsvx.games.base import FunctionGame, fitting_coalitions, require_memory

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
