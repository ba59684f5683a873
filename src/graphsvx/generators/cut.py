"""Edges as players: a switched-off edge is removed, its ends stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from graphsvx.core.arrays import Bools
from graphsvx.core.perturbation import Perturbations
from graphsvx.generators.base import FeatureRows, GameSetup
from graphsvx.utils.constraints import Checked


@dataclass(frozen=True)
class CutEdges(Checked):
    """A' loses the switched-off edges; every node keeps its features and its other edges."""

    edge_players = True
    blocks_paths = False
    feature_rows: ClassVar[FeatureRows] = "own"

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> CutEdges:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition; the second mask is over edges."""
        field, players = setup.field, setup.players
        count = len(features_on)
        cut = np.zeros((count, len(field.edges)), dtype=bool)
        cut[:, players.edge_members] = True
        # An edge of several players (meta-paths) is there as long as one of them is on.
        for members, owner in players.edges_by_layer:
            cut[:, members] &= ~nodes_on[:, owner]
        on = np.broadcast_to(np.ones(1, dtype=bool), (count, field.size))
        return Perturbations(on, None, setup.feature_table, removed_edges=cut)
