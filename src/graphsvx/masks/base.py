"""The interface of mask generators (MASK), and the Shapley kernel (Eq. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids
from graphsvx.errors import BudgetError
from graphsvx.games.base import Game
from graphsvx.utils.constraints import Block


@dataclass(frozen=True, eq=False)
class Masks:
    """Coalitions to evaluate, without the empty and the full one, which always are."""

    rows: Bools
    """z: [rows, M]."""
    states: Ids
    """The state of each row in its game."""
    weights: Floats
    """pi, up to a common factor."""
    exact: bool = False
    """True if these coalitions determine the Shapley values exactly."""
    credit: Tensor | None = None
    """[rows, M]: the exact linear map from values to credit, where there is one."""
    pair: Ids | None = None
    """Paired samplers: rows 2i and 2i + 1 are complements with equal weights; equal ids belong to
    one independent draw, -1 marks enumerated pairs, which come first."""
    unseen: Floats | None = None
    """Paired samplers: share of the row's stratum that was not drawn (1 for huge strata)."""


class Mask(Protocol):
    """Chooses coalitions of a game within a budget of model calls."""

    @property
    def separate(self) -> bool:
        """True: features and nodes play two games; False: one joint game."""
        ...

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """Rows and weights for one game; `budget` counts the empty and the full coalition."""
        ...


MaskSetting = Annotated[Mask, Block("a mask, such as Auto() or Paired()", 3, ("separate",))]
"""A mask as a field of settings."""


def shapley_kernel(sizes: NDArray[np.int64], players: int) -> Floats:
    """Weight pi of coalitions with `sizes` of `players` members (Eq. 3).

    (M - 1) / (M |z|) / binom(M - 1, |z|), in log space: binom(1100, 550) overflows float64. The
    largest weight is scaled to 1. Sizes 0 and M have infinite weight and are constraints of the
    estimators, so they are not allowed here.
    """
    s = np.asarray(sizes, dtype=np.float64)
    if len(s) and (s.min() < 1 or s.max() > players - 1):
        raise ValueError("the kernel is infinite for the empty and the full coalition")
    m = float(players)
    log = -np.log(s) - (gammaln(m) - gammaln(s + 1) - gammaln(m - s))
    return np.exp(log - log.max()) if len(log) else log


def kernel_masks(game: Game, rows: Bools) -> Masks:
    """Coalitions with Shapley kernel weights, however they were drawn (as in the paper)."""
    sizes = rows.sum(1)
    inner = rows[(sizes > 0) & (sizes < game.players)]
    return Masks(inner, game.states(inner), shapley_kernel(inner.sum(1), game.players))


def all_rows(players: int) -> Bools:
    """All 2^M coalitions."""
    numbers = np.arange(1 << players, dtype=np.int64)
    # Player by player: all at once would take eight times the memory of the result.
    rows = np.empty((len(numbers), players), dtype=bool)
    for player in range(players):
        rows[:, player] = (numbers >> player) & 1
    return rows


def split_budget(samples: int, features: int, nodes: int, r: float | None = None) -> int:
    """Rows for features (algorithm 3): a share r, or halfway between one half and F / (F + N)."""
    if r is not None:
        if not 0 <= r <= 1:
            raise BudgetError(f"r must be between 0 and 1, got {r}")
        return int(r * samples)
    if not features or not nodes:
        return samples if features else 0
    return int(0.5 * samples / 2 + 0.5 * samples * features / (features + nodes))
