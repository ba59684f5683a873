"""Switched-off nodes are removed: for models that do not, or not only, read the graph's edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from graphsvx.core.arrays import Bools
from graphsvx.core.perturbation import Perturbations
from graphsvx.generators.base import FeatureRows, GameSetup
from graphsvx.generators.isolate import Isolate
from graphsvx.utils.constraints import Checked


@dataclass(frozen=True)
class RemoveRows(Checked):
    """A switched-off node is removed: its row of x and of all attributes, and its edges.

    For models that make edges of their own from positions or features (SchNet, DGCNN), or mix all
    nodes (`to_dense_batch`, attention over all nodes), to which an isolated node is still there.
    Features of explained nodes are switched off as in Eq. 1. Each coalition is one plain call. A
    graph without nodes has logits (or values) of 0.
    """

    edge_players = False
    blocks_paths = False
    feature_rows: ClassVar[FeatureRows] = "own"

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> RemoveRows:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        return replace(Isolate()(setup, features_on, nodes_on), removes_rows=True)
