"""Who gets credit: the nodes that can reach the explained one, the features that stand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from graphsvx.engine.field import Field
from graphsvx.errors import InputError
from graphsvx.graph import Graph, Ids

FeatureChoice = float | Literal["all", "nonzero"]
Sides = Literal["both", "nodes", "features"]


@dataclass(frozen=True, eq=False)
class Players:
    """The B features and D nodes that can be switched on and off.

    A player may own several nodes (or features) that switch together: `node_members` are local
    ids in the field and `node_owner[i]` is the player that member i belongs to.
    """

    feature_members: Ids
    feature_owner: Ids
    node_members: Ids
    node_owner: Ids

    @property
    def features(self) -> int:
        """B."""
        return int(self.feature_owner.max(initial=-1)) + 1

    @property
    def nodes(self) -> int:
        """D."""
        return int(self.node_owner.max(initial=-1)) + 1


def singles(features: Ids, nodes: Ids) -> Players:
    """Each feature and each node plays for itself."""
    return Players(features, np.arange(len(features)), nodes, np.arange(len(nodes)))


def find(
    graph: Graph, field: Field, hops: int | None, features: FeatureChoice, sides: Sides
) -> Players:
    """Nodes of the field within `hops` (None: all of it), and the chosen features of the centres."""
    chosen = np.zeros(0, dtype=np.int64)
    if sides != "nodes":
        chosen = choose_features(graph, field.ids[: field.centres], features)
    nodes = np.zeros(0, dtype=np.int64)
    if sides != "features":
        near = np.ones(field.size, dtype=bool) if hops is None else field.hops <= hops
        near[: field.centres] = False
        nodes = np.flatnonzero(near)
    return singles(chosen, nodes)


def choose_features(graph: Graph, nodes: Ids, choice: FeatureChoice) -> Ids:
    """Columns in which one of `nodes` has a value that counts.

    A number is lambda: values outside mu +- lambda sigma. "nonzero": values that are not 0.
    "all": every column.
    """
    rows = graph.x[torch.from_numpy(nodes).to(graph.x.device)].double()
    if choice == "all":
        kept = torch.ones(rows.shape[1], dtype=torch.bool)
    elif choice == "nonzero":
        kept = (rows != 0).any(0)
    elif isinstance(choice, (int, float)) and not isinstance(choice, bool) and choice >= 0:
        mean, std = graph.statistics.mean, graph.statistics.std
        # A constant column must stay inside its own mean, whatever the last bit of the sum says.
        slack = 1e-7 * mean.abs()
        kept = ((rows - mean).abs() > choice * std + slack).any(0)
    else:
        raise InputError(
            f'features must be a lambda of at least 0, "all" or "nonzero", got {choice!r}'
        )
    return kept.nonzero()[:, 0].cpu().numpy()
