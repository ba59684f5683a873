"""The interface of graph generators (GEN), and the setup of a game that they get."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, as_tensor
from graphsvx.core.field import Field, Perturbations
from graphsvx.core.graph import Graph
from graphsvx.core.players import Players
from graphsvx.utils.constraints import Block, Checked


@dataclass(frozen=True, eq=False)
class GameSetup:
    """Setup of a game: graph, receptive field, players, reference of switched-off features."""

    graph: Graph
    field: Field
    players: Players
    reference: Tensor
    """Value of each switched-off feature: the mean mu, or another vector (contrastive)."""
    feature_nodes: int | None = None
    """Number of the field's first nodes whose features are players; None: the centres."""
    keeps_features: bool = False
    """Whether no features are replaced."""

    @property
    def num_feature_nodes(self) -> int:
        """Number of the field's first nodes whose features are players."""
        return self.field.centres if self.feature_nodes is None else self.feature_nodes

    @cached_property
    def feature_table(self) -> Tensor:
        """Feature rows of the field's nodes, in local order.

        Of a graph with types, whose models get these from the tables of each type, only where some
        are replaced.
        """
        ids = self.field.ids[: self.field.size]
        if self.keeps_features and self.graph.has_types:
            return self.graph.x.index_select(0, as_tensor(ids, self.graph.x.device))
        return self.graph.types.table(ids)


FeatureRows = Literal["own", "by_mask", "any"]
"""Nodes keep their features, but for the features that play ("own"); a replaced row depends on its
node and the mask of features alone ("by_mask"); or it may be anything ("any")."""


class Generator(Protocol):
    """Turns masks over features [rows, B] and nodes [rows, D] into perturbed graphs.

    Where edges play, the second mask is over edges [rows, E]. The edges of a perturbed graph
    depend on the second mask only. `graphsvx.testing.check_generator` tests all that is said here.
    """

    @property
    def edge_players(self) -> bool:
        """True if the second mask is over edges; False if left out."""
        ...

    @property
    def blocks_paths(self) -> bool:
        """True if a switched-off node blocks all paths to the explained node through it.

        False if left out, which is always right; True allows exact values from connected sets.
        """
        ...

    @property
    def feature_rows(self) -> FeatureRows:
        """What is known of the feature rows of perturbed graphs; coalitions are compared by it.

        "any" if left out, which is always right, and slower.
        """
        ...

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> Generator:
        """The generator with its random choices made, once per explanation."""
        ...

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        ...


_TRAITS = {"edge_players": False, "blocks_paths": False, "feature_rows": "any", "erase": False}


def trait(generator: Generator | None, name: str) -> Any:
    """What a generator says of itself; what is right of all of them where it says nothing."""
    return getattr(generator, name, _TRAITS[name])


GeneratorSetting = Annotated[
    Generator | None, Block("a generator, such as Isolate() or Indirect()", 3, ("prepare",))
]
"""A generator as a field of settings; None: the one that the players ask for."""


class Fixed(Checked):
    """Base of generators of this package; those that draw nothing need no `prepare`."""

    edge_players: ClassVar[bool] = False
    blocks_paths: ClassVar[bool] = False
    feature_rows: ClassVar[FeatureRows] = "own"

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> Self:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self
