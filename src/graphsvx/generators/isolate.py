"""Eq. 1 and 2: switched-off features go to their mean, switched-off nodes lose their edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from graphsvx.engine.field import tensor
from graphsvx.engine.states import Bools, States
from graphsvx.generators.base import Scene


@dataclass(frozen=True)
class Isolate:
    """X'_v = M_F X_v + (1 - M_F) mu for the explained node(s); A' keeps edges between on nodes."""

    severs = True

    def prepare(self, scene: Scene, rng: torch.Generator) -> Isolate:  # noqa: ARG002  (nothing is drawn)
        """Nothing is drawn."""
        return self

    def __call__(self, scene: Scene, features_on: Bools, nodes_on: Bools) -> States:
        """One perturbed graph a row."""
        field, players = scene.field, scene.players
        count = len(features_on)
        on = np.ones((count, field.size), dtype=bool)
        on[:, players.node_members] = nodes_on[:, players.node_owner]
        rows = np.broadcast_to(np.arange(field.size), on.shape)
        table = scene.table()
        if features_on.all():
            return States(on, rows, table)
        # Each distinct feature mask adds one row for each explained node.
        masks, which = np.unique(features_on, axis=0, return_inverse=True)
        own = table[: field.centres]
        replaced = own.repeat(len(masks), 1).reshape(len(masks), field.centres, -1)
        device = table.device
        off = tensor(~masks[:, players.feature_owner], device)
        columns = tensor(players.feature_members, device)
        chosen = replaced[:, :, columns]
        mean = scene.reference[columns].to(table.dtype)
        replaced[:, :, columns] = torch.where(off[:, None, :], mean, chosen)
        rows = rows.copy()
        first = len(table) + which.reshape(-1, 1) * field.centres
        rows[:, : field.centres] = first + np.arange(field.centres)
        return States(on, rows, torch.cat([table, replaced.flatten(0, 1)]))
