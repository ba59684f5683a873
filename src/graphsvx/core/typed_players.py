"""Players of typed graphs that are nodes of some types, or features by type."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor, no_ids
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.players import (
    FeatureChoice,
    Groups,
    Players,
    grouped_owners,
    sorted_by_owner,
    standing_out,
    within_hops,
)
from graphsvx.core.reference import Reference, class_mean
from graphsvx.core.statistics import Statistics
from graphsvx.core.types import FLAT, node_number
from graphsvx.errors import InputError
from graphsvx.utils.constraints import as_int, shown

NodeTypes = tuple[str, ...] | None


def find_typed_players(
    graph: Graph,
    field: Field,
    hops: int | None,
    *,
    nodes: bool,
    node_types: NodeTypes = None,
    groups: Groups = (),
    features: FeatureChoice | None = None,
    feature_nodes: int | None = None,
    reference: Tensor | None = None,
    feature_groups: Groups = (),
) -> Players:
    """Nodes of the given types within `hops`, and features of the explained nodes.

    `features` None: no feature plays. `reference`: what a switched-off feature becomes, if not
    the mean of its type.
    """
    columns, players = no_ids(), no_ids()
    names: dict[str, tuple[str, ...]] = {}
    if features is not None:
        count = field.centres if feature_nodes is None else feature_nodes
        columns = _columns(graph, field.ids[:count], features, reference)
    if nodes:
        players = np.flatnonzero(within_hops(field, hops)[field.centres :]) + field.centres
        if node_types is not None:
            plays = [graph.types.type_id(name) for name in node_types]
            players = players[np.isin(graph.types.node_type[field.ids[players]], plays)]
    column_owner, node_owner = np.arange(len(columns)), np.arange(len(players))
    if features is not None and feature_groups:
        frozen = tuple(
            (label, tuple(feature_column(graph, member, label) for member in members))
            for label, members in feature_groups
        )
        named = np.concatenate([np.asarray(ids, dtype=np.int64) for _, ids in frozen])
        columns = np.union1d(columns, named)
        labels = [feature_label(graph, column) for column in columns.tolist()]
        column_owner, names["features"] = grouped_owners(columns, frozen, labels)
        columns, column_owner = sorted_by_owner(columns, column_owner)
    if nodes and groups:
        frozen = node_groups(graph, groups)
        ids = field.ids[players]
        labels = [graph.types.label(number) for number in ids.tolist()]
        node_owner, names["nodes"] = grouped_owners(ids, frozen, labels)
        players, node_owner = sorted_by_owner(players, node_owner)
    return Players(columns, column_owner, players, node_owner, names=names)


def node_groups(graph: Graph, groups: Groups) -> Groups:
    """Groups of nodes as numbers; a member is a pair (type, id)."""
    return tuple(
        (
            label,
            tuple(
                node_number(graph.types, member, f"each member of group {label!r}")
                for member in members
            ),
        )
        for label, members in groups
    )


def feature_column(graph: Graph, member: Any, label: str) -> int:
    """The column of a feature (type, column) among those of all types."""
    if graph.types.flat and not isinstance(member, tuple):
        member = (FLAT, member)
    if not (isinstance(member, tuple) and len(member) == 2 and member[0] in graph.types.node_types):
        raise InputError(
            f"group {label!r} must have members (node type, column) with a type of "
            f"{list(graph.types.node_types)}, got {shown(member)}"
        )
    column, width = (
        as_int(member[1], f"each member of group {label!r}"),
        graph.types.width(member[0]),
    )
    if not 0 <= column < width:
        raise InputError(
            f"group {label!r} names feature {column} of {member[0]!r}, which has {width} features"
        )
    return graph.types.blocks[member[0]].start + column


def feature_label(graph: Graph, column: int) -> str:
    """A feature in words: its node type and column."""
    for name, block in graph.types.blocks.items():
        if block.start <= column < block.stop:
            local = column - block.start
            return f"feature {local}" if graph.types.flat else f"{name} feature {local}"
    raise IndexError(column)


def _columns(graph: Graph, numbers: Ids, choice: FeatureChoice, reference: Tensor | None) -> Ids:
    """Columns of the types of `numbers` in which at least one of them differs."""
    positions = []
    for at in np.unique(graph.types.node_type[numbers]).tolist():
        name = graph.types.node_types[at]
        block = graph.types.blocks[name]
        if block.stop == block.start:
            continue
        local = numbers[graph.types.node_type[numbers] == at] - graph.types.node_starts[at]
        x = graph.types.features[name]
        rows = x.index_select(0, as_tensor(local, x.device))
        about = Statistics(graph.statistics.mean[block], graph.statistics.std[block])
        other = None if reference is None else reference[block]
        positions.append(block.start + standing_out(rows, about, choice, other))
    return np.concatenate([no_ids(), *positions])


def feature_rows(graph: Graph, numbers: Ids) -> Tensor:
    """Features of nodes, those of all types side by side, [nodes, columns]."""
    dtypes = [x.dtype for name, x in graph.types.features.items() if graph.types.width(name)]
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    rows = torch.zeros(len(numbers), graph.num_features, dtype=dtype, device=graph.x.device)
    for at, name in enumerate(graph.types.node_types):
        block = graph.types.blocks[name]
        mine = np.flatnonzero(graph.types.node_type[numbers] == at)
        if block.stop == block.start or not len(mine):
            continue
        x = graph.types.features[name]
        local = as_tensor(numbers[mine] - graph.types.node_starts[at], x.device)
        rows[as_tensor(mine, rows.device), block] = x.index_select(0, local).to(rows)
    return rows


def resolve_typed_reference(graph: Graph, reference: Reference, centres: Ids) -> Tensor:
    """What switched-off features become, [columns of all types], float64.

    The mean of their type; a node id, "class:c" or a vector refer to the explained node's type.
    """
    vector = graph.statistics.mean.clone()
    if reference is None:
        return vector
    if not len(centres):
        raise InputError(
            "reference= refers to the type of the explained node, but a graph is explained"
        )
    at = int(graph.types.node_type[centres[0]])
    name = graph.types.node_types[at]
    block, width = graph.types.blocks[name], graph.types.width(name)
    if not width:
        raise InputError(f"reference= is about features, but {name!r} has none")
    x = graph.types.features[name]
    if isinstance(reference, int):
        if not 0 <= reference < len(x):
            raise InputError(f"reference must be a {name} from 0 to {len(x) - 1}, got {reference}")
        vector[block] = x[reference].double().cpu()
    elif isinstance(reference, str):
        y = graph.types.node_values.get("y", {}).get(name)
        vector[block] = class_mean(x, y, int(reference.partition(":")[2])).cpu()
    elif len(reference) != width:
        raise InputError(
            f"reference must have one value for each of the {width} features of {name!r}, got "
            f"{len(reference)}"
        )
    else:
        vector[block] = torch.tensor(reference, dtype=torch.float64)
    return vector
