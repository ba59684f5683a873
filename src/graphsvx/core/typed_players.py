"""Players of typed graphs: nodes of some types, features by type, edges, relations, meta-paths."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.field import Field
from graphsvx.core.players import (
    Directions,
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
from graphsvx.core.typed_graph import FLAT, TypedGraph, node_number
from graphsvx.errors import InputError
from graphsvx.utils.constraints import Converted, as_int, shown

NodeTypes = tuple[str, ...] | None
MetaPaths = tuple[tuple[str, tuple[Any, ...]], ...]
"""((name, edge types), ...): each path from its far end to the explained node."""


def _none() -> Ids:
    return np.zeros(0, dtype=np.int64)


# --- nodes and features ----------------------------------------------------------------------


def find_typed_players(
    graph: TypedGraph,
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
    columns, players = _none(), _none()
    names: dict[str, tuple[str, ...]] = {}
    if features is not None:
        count = field.centres if feature_nodes is None else feature_nodes
        columns = _columns(graph, field.ids[:count], features, reference)
    if nodes:
        players = np.flatnonzero(within_hops(field, hops)[field.centres :]) + field.centres
        if node_types is not None:
            plays = [graph.type_id(name) for name in node_types]
            players = players[np.isin(graph.node_type[field.ids[players]], plays)]
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
        labels = [graph.label(number) for number in ids.tolist()]
        node_owner, names["nodes"] = grouped_owners(ids, frozen, labels)
        players, node_owner = sorted_by_owner(players, node_owner)
    return Players(columns, column_owner, players, node_owner, names=names)


def node_groups(graph: TypedGraph, groups: Groups) -> Groups:
    """Groups of nodes as numbers; a member is a pair (type, id)."""
    return tuple(
        (
            label,
            tuple(
                node_number(graph, member, f"each member of group {label!r}") for member in members
            ),
        )
        for label, members in groups
    )


def feature_column(graph: TypedGraph, member: Any, label: str) -> int:
    """The column of a feature (type, column) among those of all types."""
    if graph.flat and not isinstance(member, tuple):
        member = (FLAT, member)
    if not (isinstance(member, tuple) and len(member) == 2 and member[0] in graph.node_types):
        raise InputError(
            f"group {label!r} must have members (node type, column) with a type of "
            f"{list(graph.node_types)}, got {shown(member)}"
        )
    column, width = as_int(member[1], f"each member of group {label!r}"), graph.width(member[0])
    if not 0 <= column < width:
        raise InputError(
            f"group {label!r} names feature {column} of {member[0]!r}, which has {width} features"
        )
    return graph.blocks[member[0]].start + column


def feature_label(graph: TypedGraph, column: int) -> str:
    """A feature in words: its node type and column."""
    for name, block in graph.blocks.items():
        if block.start <= column < block.stop:
            local = column - block.start
            return f"feature {local}" if graph.flat else f"{name} feature {local}"
    raise IndexError(column)


def _columns(
    graph: TypedGraph, numbers: Ids, choice: FeatureChoice, reference: Tensor | None
) -> Ids:
    """Columns of the types of `numbers` in which at least one of them differs."""
    positions = []
    for at in np.unique(graph.node_type[numbers]).tolist():
        name = graph.node_types[at]
        block = graph.blocks[name]
        if block.stop == block.start:
            continue
        local = numbers[graph.node_type[numbers] == at] - graph.node_starts[at]
        x = graph.features[name]
        rows = x.index_select(0, as_tensor(local, x.device))
        about = Statistics(graph.statistics.mean[block], graph.statistics.std[block])
        other = None if reference is None else reference[block]
        positions.append(block.start + standing_out(rows, about, choice, other))
    return np.concatenate([_none(), *positions])


def feature_rows(graph: TypedGraph, numbers: Ids) -> Tensor:
    """Features of nodes, those of all types side by side, [nodes, columns]."""
    dtypes = [x.dtype for name, x in graph.features.items() if graph.width(name)]
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    rows = torch.zeros(len(numbers), graph.num_features, dtype=dtype, device=graph.x.device)
    for at, name in enumerate(graph.node_types):
        block = graph.blocks[name]
        mine = np.flatnonzero(graph.node_type[numbers] == at)
        if block.stop == block.start or not len(mine):
            continue
        x = graph.features[name]
        local = as_tensor(numbers[mine] - graph.node_starts[at], x.device)
        rows[as_tensor(mine, rows.device), block] = x.index_select(0, local).to(rows)
    return rows


def resolve_typed_reference(graph: TypedGraph, reference: Reference, centres: Ids) -> Tensor:
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
    at = int(graph.node_type[centres[0]])
    name = graph.node_types[at]
    block, width = graph.blocks[name], graph.width(name)
    if not width:
        raise InputError(f"reference= is about features, but {name!r} has none")
    x = graph.features[name]
    if isinstance(reference, int):
        if not 0 <= reference < len(x):
            raise InputError(f"reference must be a {name} from 0 to {len(x) - 1}, got {reference}")
        vector[block] = x[reference].double().cpu()
    elif isinstance(reference, str):
        y = graph.node_values.get("y", {}).get(name)
        vector[block] = class_mean(x, y, int(reference.partition(":")[2])).cpu()
    elif len(reference) != width:
        raise InputError(
            f"reference must have one value for each of the {width} features of {name!r}, got "
            f"{len(reference)}"
        )
    else:
        vector[block] = torch.tensor(reference, dtype=torch.float64)
    return vector


# --- edges -----------------------------------------------------------------------------------


def find_typed_edges(
    graph: TypedGraph,
    field: Field,
    hops: int | None,
    directions: Directions,
    groups: Groups = (),
    relations: bool = False,
) -> Players:
    """Edge players: edges that carry messages to the centres within `hops` rounds (None: all).

    Parallel edges of one type are one player, and with `directions="together"` so are an edge and
    its reverse, of the same type or of the reverse type. `relations`: all edges of a type are one
    player.
    """
    inner = field.inner_edges
    carries = np.ones(len(inner), dtype=bool)
    if hops is not None and field.centres:
        carries = field.hops[field.target[inner]] < hops
    code = edge_codes(graph, field.edges[inner], directions, relations)
    plays = np.isin(code, code[carries])
    inner, code = inner[plays], code[plays]
    distinct, example, owner = np.unique(code, return_index=True, return_inverse=True)
    owner = owner.reshape(-1)
    positions = field.edges[inner]
    if not groups and not relations:
        return Players(_none(), _none(), _none(), _none(), inner, owner)
    labels = [
        relation_label(graph, position, directions)
        if relations
        else edge_label(graph, position, directions == "apart")
        for position in positions[example].tolist()
    ]
    if groups:
        members = [
            (label, np.concatenate([
                edge_codes(graph, edge_positions(graph, member, label), directions, relations)
                for member in listed
            ]))
            for label, listed in groups
        ]  # fmt: skip
        group = np.full(len(distinct), -1)
        for at, (label, codes) in enumerate(members):
            mine = np.isin(distinct, codes)
            if (group[mine] >= 0).any():
                raise InputError(f"an edge can be in one group only, got one of {label!r} twice")
            group[mine] = at
        present = [at for at in range(len(members)) if (group == at).any()]
        alone = np.flatnonzero(group < 0)
        number = np.empty(len(distinct), dtype=np.int64)
        number[alone] = len(present) + np.arange(len(alone))
        for new, at in enumerate(present):
            number[group == at] = new
        owner = number[owner]
        labels = [members[at][0] for at in present] + [labels[at] for at in alone]
    return Players(_none(), _none(), _none(), _none(), inner, owner, {"edges": tuple(labels)})


def edge_codes(graph: TypedGraph, positions: Ids, directions: Directions, relations: bool) -> Ids:
    """A number for each edge, the same for edges that are one player."""
    ends = graph.edge_index.cpu().numpy()[:, positions]
    kinds = graph.edge_type[positions]
    first, second = ends
    if directions == "together":
        kinds = graph.relation_of[kinds]
        first, second = np.minimum(*ends), np.maximum(*ends)
    if relations:
        return kinds
    order: Ids = (kinds * graph.num_nodes + first) * graph.num_nodes + second
    return order


def edge_label(graph: TypedGraph, position: int, apart: bool = False) -> str:
    """An edge in words: source, relation, target; unless `apart`, as the first of both types."""
    source, target = graph.edge_index[:, position].tolist()
    kind = int(graph.edge_type[position])
    first = kind if apart else int(graph.relation_of[kind])
    if first != kind:
        source, target = target, source
    relation = graph.relation_labels[first]
    return f"{graph.label(source)} –{relation}→ {graph.label(target)}"


def relation_label(graph: TypedGraph, position: int, directions: Directions) -> str:
    """The edge type of an edge in words; with its reverse type, that of the first of the two."""
    at = int(graph.edge_type[position])
    if directions == "together":
        at = int(graph.relation_of[at])
    (source, _, target), relation = graph.edge_types[at], graph.relation_labels[at]
    return relation if graph.flat else f"{source} –{relation}→ {target}"


def edge_positions(graph: TypedGraph, member: Any, label: str) -> Ids:
    """Positions of the edges that a member of a group names.

    An edge type, an edge type with a position, or two nodes (all edges between them, either way).
    """
    if graph.flat and isinstance(member, int):
        return _in_range(np.asarray([member]), graph.num_edges, label)
    if isinstance(member, tuple) and len(member) == 3 and all(isinstance(m, str) for m in member):
        return np.flatnonzero(graph.edge_type == graph.edge_type_id(member))
    if isinstance(member, str):
        return np.flatnonzero(graph.edge_type == graph.edge_type_id(member))
    pair = isinstance(member, tuple) and len(member) == 2
    if pair and isinstance(member[0], tuple) and len(member[0]) == 3:
        mine = np.flatnonzero(graph.edge_type == graph.edge_type_id(member[0]))
        position = as_int(member[1], f"each of group {label!r}")
        return mine[_in_range(np.asarray([position]), len(mine), label)]
    if pair:
        u, v = (node_number(graph, end, f"each end in group {label!r}") for end in member)
        source, target = graph.edge_index.cpu().numpy()
        matching = ((source == u) & (target == v)) | ((source == v) & (target == u))
        if matching.any():
            return np.flatnonzero(matching)
        raise InputError(f"group {label!r} names the edge {member}, which does not exist")
    raise InputError(
        f"group {label!r} must name edges as an edge type, an (edge type, position) or a pair of "
        f"nodes, got {shown(member)}"
    )


def _in_range(positions: Ids, count: int, label: str) -> Ids:
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < count:
        raise InputError(
            f"group {label!r} names edge {int(positions[0])}; edges go from 0 to {count - 1}"
        )
    return positions


# --- meta-paths ------------------------------------------------------------------------------


def freeze_meta_paths(mapping: Any, name: str) -> MetaPaths:
    """{name: edge types from the far end to the explained node} as tuples."""
    pairs = list(mapping.items()) if isinstance(mapping, Mapping) else mapping
    expected = f"{name} must be a mapping of names to lists of edge types, got {shown(mapping)}"
    if not isinstance(pairs, (list, tuple)):
        raise InputError(expected)
    paths: list[tuple[str, tuple[Any, ...]]] = []
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InputError(expected)
        label, steps = pair
        if isinstance(steps, str) or not isinstance(steps, (list, tuple)) or not steps:
            raise InputError(
                f"meta-path {label!r} must be a list of edge types, got {shown(steps)}"
            )
        frozen = tuple(tuple(step) if isinstance(step, (list, tuple)) else step for step in steps)
        paths.append((label, frozen))
    if len({label for label, _ in paths}) < len(paths):
        raise InputError(f"{name} must have different names, got {[label for label, _ in paths]}")
    return tuple(paths)


MetaPathsSetting = Annotated[MetaPaths, Converted(freeze_meta_paths)]
"""Meta-paths as a field of settings."""


def meta_path_types(graph: TypedGraph, label: str, steps: tuple[Any, ...]) -> list[int]:
    """The edge types of a meta-path; each must start where the one before it ends."""
    types = [graph.edge_type_id(step) for step in steps]
    for before, after in pairwise(types):
        first, second = graph.edge_types[before], graph.edge_types[after]
        if first[2] != second[0]:
            raise InputError(
                f"meta-path {label!r} has {first} before {second}: the first must end in the node "
                f"type that the second starts from"
            )
    return types


def find_meta_paths(graph: TypedGraph, field: Field, paths: MetaPaths) -> Players:
    """A player for each meta-path: the edges of all its instances that end in a centre.

    An edge on several meta-paths is there as long as one of them is. Edges on none stay.
    """
    names: list[str] = []
    members, owners = [_none()], [_none()]
    for label, steps in paths:
        edges = _instances(graph, field, meta_path_types(graph, label, steps))
        if len(edges):
            members.append(edges)
            owners.append(np.full(len(edges), len(names)))
            names.append(label)
    return Players(
        _none(), _none(), _none(), _none(), np.concatenate(members), np.concatenate(owners),
        {"edges": tuple(names)},
    )  # fmt: skip


def _instances(graph: TypedGraph, field: Field, types: list[int]) -> Ids:
    """Edges of the field (inner ones) that lie on an instance of a path of edge types."""
    inner = field.inner_edges
    kinds = graph.edge_type[field.edges[inner]]
    source, target = field.source[inner], field.target[inner]
    ends = np.arange(field.size) < (field.centres or field.size)
    steps: list[Ids] = []
    for at in reversed(types):  # from the centre outwards
        step = np.flatnonzero((kinds == at) & ends[target])
        steps.append(step)
        ends = np.zeros(field.size, dtype=bool)
        ends[source[step]] = True
    # Back to the centre: only edges whose path goes on to its far end.
    on_path: list[Ids] = []
    starts = ends
    for step in reversed(steps):
        alive = step[starts[source[step]]]
        on_path.append(alive)
        starts = np.zeros(field.size, dtype=bool)
        starts[target[alive]] = True
    edges: Ids = inner[np.unique(np.concatenate(on_path))]
    return edges
