"""Eq. 1 and 2: switched-off features go to the reference, switched-off nodes lose their edges.

Or they are removed altogether; where edges play, single edges are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, RowIds, as_tensor
from graphsvx.core.field import Perturbations
from graphsvx.engine.lazy import PatchedRows
from graphsvx.generators.base import FeatureRows, Fixed, GameSetup

# Narrower rows are stored densely, which is as fast.
_WIDE = 128


@dataclass(frozen=True)
class Isolate(Fixed):
    """X'_v = M_F X_v + (1 - M_F) xi; A' keeps edges between on nodes.

    xi is mu or another reference. Features are switched off at the explained node(s), or at the
    feature nodes of the setup. A switched-off node keeps its own features, which
    only a model that pools over all nodes sees; with `erase` it loses them to the reference too.
    """

    erase: bool = False
    blocks_paths = True

    @property
    def feature_rows(self) -> FeatureRows:  # type: ignore[override]  # it depends on a setting
        """With `erase`, switched-off nodes have the reference's features."""
        return "by_mask" if self.erase else "own"

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        field, players = setup.field, setup.players
        on = players.active_nodes(field.size, nodes_on)
        perturbations = switch_features_off(
            setup, Perturbations(on, None, setup.feature_table), features_on
        )
        if not self.erase or on.all():
            return perturbations
        return with_row(perturbations, ~on, setup.reference)


@dataclass(frozen=True)
class RemoveRows(Fixed):
    """A switched-off node is removed: its row of x and of all attributes, and its edges.

    For models that make edges of their own from positions or features (SchNet, DGCNN), or mix all
    nodes (`to_dense_batch`, attention over all nodes), to which an isolated node is still there.
    Features of explained nodes are switched off as in Eq. 1. Each coalition is one plain call. A
    graph without nodes has logits (or values) of 0.
    """

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        return replace(Isolate()(setup, features_on, nodes_on), removes_rows=True)


def switch_features_off(
    setup: GameSetup, perturbations: Perturbations, features_on: Bools
) -> Perturbations:
    """Eq. 1: feature j of the feature nodes becomes xi_j where it is switched off."""
    if features_on.all():
        return perturbations
    players, table, count = setup.players, perturbations.feature_table, setup.num_feature_nodes
    # Each distinct feature coalition adds one row per feature node.
    inverse, first = RowIds().add(features_on)
    device = table.device
    off = torch.from_numpy(~features_on[first][:, players.feature_owner]).to(device)
    columns = as_tensor(players.feature_members, device)
    other = setup.reference.to(table)[columns]
    patched = PatchedRows(table, count, columns, off, other)
    wide = table.shape[1] >= _WIDE and 2 * len(columns) <= table.shape[1]
    longer = patched if wide else patched.plain()
    rows = perturbations.feature_rows().copy()
    rows[:, :count] = len(table) + inverse[:, None] * count + np.arange(count)
    return replace(perturbations, feature_row=rows, feature_table=longer)


def with_row(perturbations: Perturbations, at: Bools, row: Tensor) -> Perturbations:
    """The same with one row of features at some nodes, `at` [graphs, nodes]."""
    table = perturbations.feature_table
    return replace(
        perturbations,
        feature_row=np.where(at, len(table), perturbations.feature_rows()),
        feature_table=torch.cat([table, row.to(table)[None]]),
    )


# Edges as players: a switched-off edge is removed, its ends stay.


@dataclass(frozen=True)
class CutEdges(Fixed):
    """A' loses the switched-off edges; every node keeps its features and its other edges."""

    edge_players = True

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition; the second mask is over edges."""
        field, players = setup.field, setup.players
        count = len(features_on)
        cut = np.zeros((count, len(field.edges)), dtype=bool)
        edges, starts, owners = players.owners_by_edge
        on_edges = nodes_on[:, owners]
        if len(edges) < len(owners):  # an edge of several meta-paths: there if one of them is on
            on_edges = np.logical_or.reduceat(on_edges, starts, axis=1)
        cut[:, edges] = ~on_edges
        on = np.broadcast_to(np.ones(1, dtype=bool), (count, field.size))
        return Perturbations(on, None, setup.feature_table, removed_edges=cut)
