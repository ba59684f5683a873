"""Players of typed graphs that are edges or relations."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphsvx.core.arrays import Ids
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.players import Directions, Groups, Players, grouped_owners
from graphsvx.core.types import node_number
from graphsvx.errors import InputError
from graphsvx.utils.constraints import as_int, shown


def find_typed_edges(
    graph: Graph,
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
    if not groups and not relations:
        return Players(edge_members=inner, edge_owner=owner)
    labels = [
        relation_label(graph, position, directions)
        if relations
        else edge_label(graph, position, directions == "apart")
        for position in field.edges[inner][example].tolist()
    ]
    if groups:
        group_codes = [
            (label, np.concatenate([
                edge_codes(graph, edge_positions(graph, member, label), directions, relations)
                for member in members
            ]))
            for label, members in groups
        ]  # fmt: skip
        number, names = grouped_owners(distinct, group_codes, labels)
        return Players(edge_members=inner, edge_owner=number[owner], names={"edges": names})
    return Players(edge_members=inner, edge_owner=owner, names={"edges": tuple(labels)})


def edge_codes(graph: Graph, positions: Ids, directions: Directions, relations: bool) -> Ids:
    """A number for each edge, the same for edges that are one player."""
    ends = graph.edge_index.cpu().numpy()[:, positions]
    kinds = graph.types.edge_type[positions]
    first, second = ends
    if directions == "together":
        kinds = graph.relation_of[kinds]
        first, second = np.minimum(*ends), np.maximum(*ends)
    if relations:
        return kinds
    order: Ids = (kinds * graph.num_nodes + first) * graph.num_nodes + second
    return order


def edge_label(graph: Graph, position: int, apart: bool = False) -> str:
    """An edge in words: source, relation, target; unless `apart`, as the first of both types."""
    source, target = graph.edge_index[:, position].tolist()
    kind = int(graph.types.edge_type[position])
    first = kind if apart else int(graph.relation_of[kind])
    if first != kind:
        source, target = target, source
    relation = graph.types.relation_labels[first]
    return f"{graph.types.label(source)} –{relation}→ {graph.types.label(target)}"


def relation_label(graph: Graph, position: int, directions: Directions) -> str:
    """The edge type of an edge in words; with its reverse type, that of the first of the two."""
    at = int(graph.types.edge_type[position])
    if directions == "together":
        at = int(graph.relation_of[at])
    (source, _, target), relation = graph.types.edge_types[at], graph.types.relation_labels[at]
    return relation if graph.types.flat else f"{source} –{relation}→ {target}"


def edge_positions(graph: Graph, member: Any, label: str) -> Ids:
    """Positions of the edges that a member of a group names.

    An edge type, an edge type with a position, or two nodes (all edges between them, either way).
    """
    if graph.types.flat and isinstance(member, int):
        return _in_range(np.asarray([member]), graph.num_edges, label)
    if isinstance(member, tuple) and len(member) == 3 and all(isinstance(m, str) for m in member):
        return np.flatnonzero(graph.types.edge_type == graph.types.edge_type_id(member))
    if isinstance(member, str):
        return np.flatnonzero(graph.types.edge_type == graph.types.edge_type_id(member))
    pair = isinstance(member, tuple) and len(member) == 2
    if pair and isinstance(member[0], tuple) and len(member[0]) == 3:
        mine = np.flatnonzero(graph.types.edge_type == graph.types.edge_type_id(member[0]))
        position = as_int(member[1], f"each of group {label!r}")
        return mine[_in_range(np.asarray([position]), len(mine), label)]
    if pair:
        u, v = (node_number(graph.types, end, f"each end in group {label!r}") for end in member)
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
