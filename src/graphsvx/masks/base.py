"""What every mask generator gets, and what it must give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor

from graphsvx.constraints import Block
from graphsvx.engine.states import Bools
from graphsvx.graph import Ids

Floats = NDArray[np.float64]


class Game(Protocol):
    """What masks and regressions need to know of a game.

    Coalitions that give the same perturbed graph are one *state*: states are what costs a model
    call, so budgets count them.
    """

    @property
    def players(self) -> int:
        """M."""
        ...

    @property
    def calls(self) -> int:
        """Distinct states that have gone through the model."""
        ...

    def states(self, rows: Bools) -> Ids:
        """The state of each coalition [rows, M], as numbers; nothing is evaluated."""
        ...

    def values(self, states: Ids) -> Tensor:
        """Scores of states, [states, outputs], float64."""
        ...

    def senders(self) -> Bools | None:
        """Who needs whom: [M + 1, M], entry (i, j): player j sends to player i.

        The last row is for the explained node. Given only if the score depends on nothing but
        the players that can reach the explained node through players that are on.
        """
        ...

    @property
    def reach(self) -> int | None:
        """Steps between players, as in `senders`, within which one can matter; None: any."""
        ...


@dataclass(frozen=True, eq=False)
class Masks:
    """Coalitions to play, without the empty and the full one, which are always played."""

    rows: Bools
    """z: [rows, M]."""
    states: Ids
    """The state of each row in its game."""
    weights: Floats
    """pi, up to a common factor."""
    exact: bool = False
    """True if regressing on these rows gives the Shapley values themselves."""
    credit: Tensor | None = None
    """[rows, M]: the exact linear map from values to credit, where there is one."""
    pair: Ids | None = None
    """Consistent samplers: rows come in pairs of complements with one weight, 2i and 2i + 1; those
    with one number are one independent draw; -1: not a draw but enumerated."""
    unseen: Floats | None = None
    """Consistent samplers: share of the row's stratum that was not drawn (1 if it is vast)."""


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
    largest weight is scaled to 1, which no regression notices. Sizes 0 and M have infinite
    weight, which the regressions meet by a constraint, so they are not allowed here.
    """
    s = np.asarray(sizes, dtype=np.float64)
    if len(s) and (s.min() < 1 or s.max() > players - 1):
        raise ValueError("the kernel is infinite for the empty and the full coalition")
    m = float(players)
    log = -np.log(s) - (gammaln(m) - gammaln(s + 1) - gammaln(m - s))
    return np.exp(log - log.max()) if len(log) else log


def kernel_masks(game: Game, rows: Bools) -> Masks:
    """Rows as the paper weighs them: by the Shapley kernel, however they were drawn."""
    sizes = rows.sum(1)
    inner = rows[(sizes > 0) & (sizes < game.players)]
    return Masks(inner, game.states(inner), shapley_kernel(inner.sum(1), game.players))


def all_rows(players: int) -> Bools:
    """All 2^M coalitions."""
    numbers = np.arange(1 << players, dtype=np.int64)
    return (numbers[:, None] >> np.arange(players)) & 1 == 1
