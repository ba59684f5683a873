"""GEN of the baselines: rows replaced, edges softened, or nothing changed at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import set_masks

from graphsvx.core.arrays import Bools
from graphsvx.core.field import Perturbations
from graphsvx.generators.base import FeatureRows, Fixed, GameSetup
from graphsvx.generators.isolate import switch_features_off, with_row


@dataclass(frozen=True)
class ReplaceRows(Fixed):
    """X' = M_N X + (1 - M_N) mu, A' = A: a switched-off node keeps its edges, not its features.

    PGM-Explainer's generator, with the bracket where it belongs. `by="zero"` replaces by 0.
    Features that play are switched off as in Eq. 1.
    """

    by: Literal["mean", "zero"] = "mean"
    feature_rows: ClassVar[FeatureRows] = "by_mask"

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        off = ~setup.players.active_nodes(setup.field.size, nodes_on)
        unchanged = Perturbations(np.ones_like(off), None, setup.feature_table)
        reference = setup.reference if self.by == "mean" else torch.zeros_like(setup.reference)
        return with_row(switch_features_off(setup, unchanged, features_on), off, reference)


@dataclass(frozen=True)
class OwnFeatures:
    """X'_v = any vector, everything else as it is: what tabular explainers perturb."""

    def __call__(self, setup: GameSetup, vectors: Tensor) -> Perturbations:
        """One perturbed graph per row of `vectors` [rows, F], the explained node's features."""
        table, count, size = setup.feature_table, len(vectors), setup.field.size
        rows = np.tile(np.arange(size), (count, 1))
        rows[:, 0] = len(table) + np.arange(count)
        on = np.ones((count, size), dtype=bool)
        return Perturbations(on, rows, torch.cat([table, vectors.to(table)]))


@dataclass(frozen=True)
class SoftEdges:
    """A' = A * M_E: every message is weighed by its edge's mask (PyG's way of masking edges)."""

    def __call__(self, module: nn.Module, edge_index: Tensor, mask: Tensor) -> None:
        """Set `mask`, in [0, 1], as the message weights of all layers of `module`."""
        set_masks(module, mask, edge_index, apply_sigmoid=False)


@dataclass(frozen=True)
class Unchanged:
    """(X', A') = (X, A): the model is only read."""
