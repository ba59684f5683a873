"""Eq. 1 and 2: switched-off features go to the reference, switched-off nodes lose their edges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from graphsvx.constraints import Checked
from graphsvx.engine.field import tensor
from graphsvx.engine.numbers import Numbers
from graphsvx.engine.patched import PatchedRows
from graphsvx.engine.states import Bools, States
from graphsvx.generators.base import FeatureRows, Scene

# Rows with fewer columns are as quickly written out as kept in mind.
_WIDE = 128


@dataclass(frozen=True)
class Isolate(Checked):
    """X'_v = M_F X_v + (1 - M_F) xi; A' keeps edges between on nodes.

    xi is mu or another reference. Features are switched off at the explained node(s), or at the
    whole neighbourhood where the scene says so. A switched-off node keeps its own features, which
    only a model that pools over all nodes sees; with `erase` it loses them to the reference too.
    """

    erase: bool = False
    severs = True

    @property
    def feature_rows(self) -> FeatureRows:
        """With `erase`, switched-off nodes have the reference's features."""
        return "by_mask" if self.erase else "own"

    def prepare(self, scene: Scene, rng: torch.Generator) -> Isolate:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, scene: Scene, features_on: Bools, nodes_on: Bools) -> States:
        """One perturbed graph a row."""
        field, players = scene.field, scene.players
        on = players.switched(field.size, nodes_on)
        states = with_features_off(scene, States(on, None, scene.table), features_on)
        if not self.erase or on.all():
            return states
        blank = scene.reference.to(states.table)[None]
        rows = np.where(on, states.written_out(), len(states.table))
        return replace(states, rows=rows, table=torch.cat([states.table, blank]))


def with_features_off(scene: Scene, states: States, features_on: Bools) -> States:
    """Eq. 1: feature j of the nodes that bear features goes to xi_j where it is off."""
    if features_on.all():
        return states
    players, table, count = scene.players, states.table, scene.bearing
    # Each distinct feature mask adds one row for each node that bears features.
    which, first = Numbers().add(features_on)
    device = table.device
    off = torch.from_numpy(~features_on[first][:, players.feature_owner]).to(device)
    columns = tensor(players.feature_members, device)
    other = scene.reference[columns].to(table.dtype)
    patched = PatchedRows(table, count, columns, off, other)
    wide = table.shape[1] >= _WIDE and 2 * len(columns) <= table.shape[1]
    longer = patched if wide else patched.plain()
    rows = states.written_out().copy()
    rows[:, :count] = len(table) + which[:, None] * count + np.arange(count)
    return replace(states, rows=rows, table=longer)
