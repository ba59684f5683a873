"""What every graph generator gets, and what it must give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import torch
from torch import Tensor

from graphsvx.engine.field import Field, tensor
from graphsvx.engine.states import Bools, States
from graphsvx.graph import Graph
from graphsvx.players import Players


@dataclass(frozen=True, eq=False)
class Scene:
    """Where a game is played: the field, its players, and what switched-off features become."""

    graph: Graph
    field: Field
    players: Players
    reference: Tensor
    """The value of each switched-off feature: mu, or another vector (contrastive)."""
    bearers: int | None = None
    """The features of how many of the field's first nodes play; None: the centres'."""

    @property
    def bearing(self) -> int:
        """How many of the field's first nodes have the features that play."""
        return self.field.centres if self.bearers is None else self.bearers

    @cached_property
    def table(self) -> Tensor:
        """Feature rows of the field's nodes, in local order."""
        own = self.field.ids[: self.field.size]
        return self.graph.x.index_select(0, tensor(own, self.graph.x.device))


FeatureRows = Literal["own", "by_mask", "any"]
"""Nodes keep their features, but for the features that play ("own"); a replaced row depends on its
node and the mask of features alone ("by_mask"); or it may be anything ("any")."""


class Generator(Protocol):
    """Turns masks over features [rows, B] and nodes [rows, D] into perturbed graphs.

    Where edges play, the second mask is over edges [rows, E].
    """

    @property
    def severs(self) -> bool:
        """True if a switched-off node cuts off all that reach the explained node through it."""
        ...

    @property
    def feature_rows(self) -> FeatureRows:
        """What is known of the feature rows of perturbed graphs; coalitions are compared by it."""
        ...

    def prepare(self, scene: Scene, rng: torch.Generator) -> Generator:
        """The generator with everything drawn that is drawn once per explanation."""
        ...

    def __call__(self, scene: Scene, features_on: Bools, nodes_on: Bools) -> States:
        """One perturbed graph a row."""
        ...
