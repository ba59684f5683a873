"""Edges as players: a switched-off edge is cut, its ends stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from graphsvx.constraints import Checked
from graphsvx.engine.states import Bools, States
from graphsvx.generators.base import FeatureRows, Scene


@dataclass(frozen=True)
class CutEdges(Checked):
    """A' loses the switched-off edges; every node keeps its features and its other edges."""

    severs = False
    feature_rows: ClassVar[FeatureRows] = "own"

    def prepare(self, scene: Scene, rng: torch.Generator) -> CutEdges:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, scene: Scene, features_on: Bools, nodes_on: Bools) -> States:
        """One perturbed graph a row; the second mask is over edges."""
        field, players = scene.field, scene.players
        count = len(features_on)
        cut = np.zeros((count, len(field.edges)), dtype=bool)
        cut[:, players.edge_members] = ~nodes_on[:, players.edge_owner]
        on = np.broadcast_to(np.ones(1, dtype=bool), (count, field.size))
        return States(on, None, scene.table, cut=cut)
