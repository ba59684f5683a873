"""A mask with random numbers of its own, for estimates that are independent of another one."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from graphsvx.games.base import Game
from graphsvx.masks.base import Mask, Masks
from graphsvx.masks.exact import Auto


@dataclass(frozen=True)
class OtherRandomNumbers:
    """A mask with another stream of random numbers: a reference that shares no luck with others.

    `separate=False` plays one joint game of features and nodes, as the paper's first masks do.
    """

    inner: Mask = field(default_factory=Auto)
    separate: bool = True

    def __call__(self, game: Game, budget: int, rng: torch.Generator) -> Masks:
        """As `inner`."""
        fresh = int(torch.randint(2**62, (1,), generator=rng))
        return self.inner(game, budget, torch.Generator().manual_seed(fresh))
