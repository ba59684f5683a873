"""Eq. 1 and 2: switched-off features go to the reference, switched-off nodes lose their edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from graphsvx.core.arrays import Bools, as_tensor
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.row_ids import RowIds
from graphsvx.engine.lazy import PatchedRows
from graphsvx.generators.base import FeatureRows, GameSetup
from graphsvx.utils.constraints import Checked

# Narrower rows are stored densely, which is as fast.
_WIDE = 128


@dataclass(frozen=True)
class Isolate(Checked):
    """X'_v = M_F X_v + (1 - M_F) xi; A' keeps edges between on nodes.

    xi is mu or another reference. Features are switched off at the explained node(s), or at the
    feature nodes of the setup. A switched-off node keeps its own features, which
    only a model that pools over all nodes sees; with `erase` it loses them to the reference too.
    """

    erase: bool = False
    edge_players = False
    blocks_paths = True

    @property
    def feature_rows(self) -> FeatureRows:
        """With `erase`, switched-off nodes have the reference's features."""
        return "by_mask" if self.erase else "own"

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> Isolate:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        field, players = setup.field, setup.players
        on = players.active_nodes(field.size, nodes_on)
        perturbations = switch_features_off(
            setup, Perturbations(on, None, setup.feature_table), features_on
        )
        if not self.erase or on.all():
            return perturbations
        blank = setup.reference.to(perturbations.feature_table)[None]
        rows = np.where(on, perturbations.feature_rows(), len(perturbations.feature_table))
        return replace(
            perturbations,
            feature_row=rows,
            feature_table=torch.cat([perturbations.feature_table, blank]),
        )


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


# Edges as players: a switched-off edge is removed, its ends stay.


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
