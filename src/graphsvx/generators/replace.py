"""GEN of the baselines: rows replaced, edges softened, or nothing changed at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import set_masks

from graphsvx.constraints import Checked
from graphsvx.engine.states import Bools, States
from graphsvx.generators.base import FeatureRows, Scene


@dataclass(frozen=True)
class ReplaceRows(Checked):
    """X' = M_N X + (1 - M_N) mu, A' = A: a switched-off node keeps its edges, not its features.

    PGM-Explainer's generator, with the bracket where it belongs. `by="zero"` replaces by 0.
    """

    by: Literal["mean", "zero"] = "mean"
    severs = False
    feature_rows: ClassVar[FeatureRows] = "by_mask"

    def prepare(self, scene: Scene, rng: torch.Generator) -> ReplaceRows:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, scene: Scene, features_on: Bools, nodes_on: Bools) -> States:  # noqa: ARG002  (features stay)
        """One perturbed graph a row."""
        field, players = scene.field, scene.players
        table = scene.table
        new = scene.reference.to(table)[None] if self.by == "mean" else torch.zeros_like(table[:1])
        on = np.ones((len(nodes_on), field.size), dtype=bool)
        rows = np.tile(np.arange(field.size), (len(nodes_on), 1))
        kept = nodes_on[:, players.node_owner]
        rows[:, players.node_members] = np.where(kept, rows[:, players.node_members], len(table))
        return States(on, rows, torch.cat([table, new]))


@dataclass(frozen=True)
class OwnFeatures:
    """X'_v = any vector, everything else as it is: what tabular explainers perturb."""

    def __call__(self, scene: Scene, vectors: Tensor) -> States:
        """One perturbed graph a row of `vectors` [rows, F], the explained node's features."""
        field = scene.field
        table = scene.table
        count = len(vectors)
        rows = np.tile(np.arange(field.size), (count, 1))
        rows[:, 0] = len(table) + np.arange(count)
        on = np.ones((count, field.size), dtype=bool)
        return States(on, rows, torch.cat([table, vectors.to(table)]))


@dataclass(frozen=True)
class SoftEdges:
    """A' = A * M_E: every message is weighed by its edge's mask (PyG's way of masking edges)."""

    def __call__(self, module: nn.Module, edge_index: Tensor, mask: Tensor) -> None:
        """From now on all layers of `module` weigh their messages by `mask`, in [0, 1]."""
        set_masks(module, mask, edge_index, apply_sigmoid=False)


@dataclass(frozen=True)
class Unchanged:
    """(X', A') = (X, A): the model is only read."""
