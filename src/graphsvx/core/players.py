"""Players: the nodes, features or edges that get credit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Ids, no_ids, run_starts
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.statistics import Statistics
from graphsvx.core.types import Types, node_number
from graphsvx.errors import BudgetError, InputError
from graphsvx.utils.constraints import MOST, Converted, NotNegative, Range, as_int, shown

FeatureChoice = NotNegative | Literal["all", "nonzero"]
Hops = Annotated[int | None, Range(0)]
Samples = Annotated[int, Range(2, MOST, error=BudgetError)]
Sides = Literal["both", "nodes", "features", "edges"]
Directions = Literal["together", "apart"]
NodeTypes = tuple[str, ...] | None
Groups = tuple[tuple[str, tuple[Any, ...]], ...]
"""((name, members), ...): a hashable form of a mapping from names to members."""


@dataclass(frozen=True, eq=False)
class Players:
    """The B features, D nodes or E edges that can be switched on and off.

    A player may own several nodes (features, edges) that switch together: `node_members` are
    local ids in the field and `node_owner[i]` is the player that member i belongs to.
    """

    feature_members: Ids = field(default_factory=no_ids)
    feature_owner: Ids = field(default_factory=no_ids)
    node_members: Ids = field(default_factory=no_ids)
    node_owner: Ids = field(default_factory=no_ids)
    edge_members: Ids = field(default_factory=no_ids)
    """Positions among the edges of the field."""
    edge_owner: Ids = field(default_factory=no_ids)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """"features", "nodes" or "edges": the name of each player, where groups were given."""

    @cached_property
    def features(self) -> int:
        """B."""
        return int(self.feature_owner.max(initial=-1)) + 1

    @cached_property
    def nodes(self) -> int:
        """D."""
        return int(self.node_owner.max(initial=-1)) + 1

    def active_nodes(self, size: int, nodes_on: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Active nodes of the field for coalitions of node players, [coalitions, size].

        Nodes that are not players are always active.
        """
        on = np.ones((len(nodes_on), size), dtype=bool)
        members = self.node_members
        if not len(members):
            return on
        first, last = int(members[0]), int(members[-1])
        if "nodes" not in self.names and last - first + 1 == len(members):
            # Consecutive ungrouped nodes: a slice is copied ten times as fast.
            on[:, first : last + 1] = nodes_on
        else:
            on[:, members] = nodes_on[:, self.node_owner]
        return on

    @cached_property
    def edges(self) -> int:
        """E."""
        return int(self.edge_owner.max(initial=-1)) + 1

    @cached_property
    def edges_by_layer(self) -> tuple[tuple[Ids, Ids], ...]:
        """Edge members and owners in parts in which no edge is twice: one, but for meta-paths."""
        order = np.argsort(self.edge_members, kind="stable")
        starts = np.flatnonzero(run_starts(self.edge_members[order]))
        counts = np.diff(np.append(starts, len(order)))
        if counts.max(initial=0) <= 1:
            return ((self.edge_members, self.edge_owner),)
        layer = np.arange(len(order)) - np.repeat(starts, counts)
        parts = [order[layer == number] for number in range(int(layer.max()) + 1)]
        return tuple((self.edge_members[part], self.edge_owner[part]) for part in parts)


def ungrouped_players(features: Ids, nodes: Ids) -> Players:
    """Players without groups: each feature and each node is one player."""
    return Players(features, np.arange(len(features)), nodes, np.arange(len(nodes)))


def find_players(
    graph: Graph,
    field: Field,
    hops: int | None,
    features: FeatureChoice,
    sides: Sides,
    *,
    feature_nodes: int | None = None,
    reference: Tensor | None = None,
    groups: Groups = (),
    feature_groups: Groups = (),
    node_types: NodeTypes = None,
) -> Players:
    """Node players within `hops` of a centre (None: the whole field) and feature players.

    `feature_nodes`: the features of how many of the field's first nodes play (None: the centres').
    `reference`: what a switched-off feature becomes, if not the mean. `node_types`: the types whose
    nodes play (None: all).
    """
    count = field.centres if feature_nodes is None else feature_nodes
    columns, nodes = no_ids(), no_ids()
    if sides in ("both", "features"):
        columns = choose_features(graph, field.ids[:count], features, reference)
    if sides in ("both", "nodes"):
        nodes = np.flatnonzero(within_hops(field, hops)[field.centres :]) + field.centres
        if node_types is not None:
            plays = [graph.types.type_id(name) for name in node_types]
            nodes = nodes[np.isin(graph.types.kinds(field.ids[nodes]), plays)]
    if not feature_groups and graph.feature_columns is not None and len(columns):
        # A feature over time is one player, if it stands out at any time.
        feature_groups = tuple(
            (f"feature {i}", series)
            for i, series in enumerate(graph.feature_columns)
            if np.isin(columns, series).any()
        )
    if not groups and not feature_groups:
        return ungrouped_players(columns, nodes)
    names: dict[str, tuple[str, ...]] = {}
    feature_owner, node_owner = np.arange(len(columns)), np.arange(len(nodes))
    if feature_groups and sides in ("both", "features"):
        # Columns named by the user are players whatever their values are.
        by_column = column_groups(graph.types, feature_groups)
        named = np.concatenate([np.asarray(ids, dtype=np.int64) for _, ids in by_column])
        columns = np.union1d(columns, named)
        labels = [graph.types.feature_label(column) for column in columns.tolist()]
        feature_owner, names["features"] = grouped_owners(columns, by_column, labels)
        columns, feature_owner = sorted_by_owner(columns, feature_owner)
    if groups and sides in ("both", "nodes"):
        ids = field.ids[nodes]
        labels = [graph.types.label(number) for number in ids.tolist()]
        node_owner, names["nodes"] = grouped_owners(ids, node_groups(graph.types, groups), labels)
        nodes, node_owner = sorted_by_owner(nodes, node_owner)
    return Players(columns, feature_owner, nodes, node_owner, names=names)


def node_groups(types: Types, groups: Groups) -> Groups:
    """Groups of nodes as numbers; of typed graphs a member is a pair (type, id)."""
    return tuple(
        (
            label,
            tuple(node_number(types, node, f"each member of group {label!r}") for node in members),
        )
        for label, members in groups
    )


def column_groups(types: Types, groups: Groups) -> Groups:
    """Groups of columns among those of all types; of typed graphs a member is (type, column)."""
    return tuple(
        (label, tuple(types.feature_column(member, label) for member in members))
        for label, members in groups
    )


def find_edge_players(
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
    code = edge_codes(graph, field.edges[inner], directions, relations)
    carries = np.ones(len(inner), dtype=bool)
    if hops is not None and field.centres:
        carries = field.hops[field.target[inner]] < hops
    plays = np.isin(code, code[carries])
    inner, code = inner[plays], code[plays]
    positions = field.edges[inner]
    names: dict[str, tuple[str, ...]] = {}
    if groups:
        group_positions = [
            (label, edge_positions(graph, label, members, directions)) for label, members in groups
        ]
        owner, names["edges"] = _edge_owners(graph, positions, code, directions, group_positions)
    else:
        _, example, owner = np.unique(code, return_index=True, return_inverse=True)
        if relations:
            names["edges"] = tuple(
                relation_label(graph, at, directions) for at in positions[example].tolist()
            )
    return Players(edge_members=inner, edge_owner=owner.reshape(-1), names=names)


def edge_codes(graph: Graph, positions: Ids, directions: Directions, relations: bool) -> Ids:
    """A number for each edge, the same for edges that are one player."""
    kinds = graph.types.edge_kinds(positions)
    if directions == "together":
        kinds = graph.relation_of[kinds]
    if relations:
        return kinds
    ends = graph.edge_index.cpu().numpy()[:, positions]
    first, second = ends
    if directions == "together":
        first, second = np.minimum(*ends), np.maximum(*ends)
    order: Ids = (kinds * graph.num_nodes + first) * graph.num_nodes + second
    return order


def edge_label(graph: Graph, position: int, apart: bool = False) -> str:
    """An edge in words: source, relation, target; unless `apart`, as the first of both types."""
    source, target = graph.edge_index[:, position].tolist()
    if not graph.has_types:
        return f"edge {source}–{target}"
    types = graph.types
    kind = int(types.edge_type[position])
    first = kind if apart else int(graph.relation_of[kind])
    if first != kind:
        source, target = target, source
    return f"{types.label(source)} –{types.relation_labels[first]}→ {types.label(target)}"


def relation_label(graph: Graph, position: int, directions: Directions) -> str:
    """The edge type of an edge in words; with its reverse type, that of the first of the two."""
    types = graph.types
    at = int(types.edge_type[position])
    if directions == "together":
        at = int(graph.relation_of[at])
    (source, _, target), relation = types.edge_types[at], types.relation_labels[at]
    return relation if types.flat else f"{source} –{relation}→ {target}"


def within_hops(field: Field, hops: int | None) -> np.ndarray:
    """Mask of the field's nodes within `hops` of a centre; these come first in the field."""
    if hops is None or not field.centres:
        return np.ones(field.size, dtype=bool)
    return field.hops <= hops


def choose_features(
    graph: Graph, nodes: Ids, choice: FeatureChoice, reference: Tensor | None = None
) -> Ids:
    """Columns in which at least one of `nodes` has a value that differs from the reference.

    A number is lambda: values outside mu +- lambda sigma. "nonzero": values that are not 0.
    "all": every column. With a `reference`, values are compared with it in place of mu (and of
    0: a value that only the reference has counts too). Columns are those of the nodes' types.
    """
    types, statistics = graph.types, graph.statistics
    kinds, columns = types.kinds(nodes), [no_ids()]
    for at in np.unique(kinds).tolist():
        name = types.node_types[at]
        block = types.blocks[name]
        if block.stop > block.start:
            rows = types.rows(name, nodes[kinds == at])
            about = Statistics(statistics.mean[block], statistics.std[block])
            other = None if reference is None else reference[block]
            columns.append(block.start + _standing_out(rows, about, choice, other))
    return np.concatenate(columns)


def _standing_out(
    x: Tensor, statistics: Statistics, choice: FeatureChoice, reference: Tensor | None = None
) -> Ids:
    """Columns of `x` [nodes, columns] in which a row differs from the reference."""
    rows = x.double().cpu().numpy()
    other = None if reference is None else reference.cpu().numpy()
    if choice == "all":
        return np.arange(rows.shape[1])
    if choice == "nonzero":
        differs = (rows != 0).any(0)
        if other is not None:
            differs |= other != 0
    elif isinstance(choice, (int, float)) and not isinstance(choice, bool) and choice >= 0:
        std = statistics.std.cpu().numpy()
        centre = statistics.mean.cpu().numpy() if other is None else other
        # A constant column must stay inside its own mean, whatever the last bit of the sum says.
        slack = 1e-7 * np.abs(centre) if x.is_floating_point() else 0
        differs = (np.abs(rows - centre) > choice * std + slack).any(0)
    else:
        raise InputError(
            f'features must be a lambda of at least 0, "all" or "nonzero", got {choice!r}'
        )
    return np.flatnonzero(differs)


# --- groups that switch on and off together ------------------------------------------------


def freeze_groups(mapping: Any, name: str) -> Groups:
    """A mapping of names to members as sorted tuples; members are integers or pairs of them."""
    pairs = list(mapping.items()) if isinstance(mapping, Mapping) else mapping
    if not isinstance(pairs, (list, tuple)):
        raise InputError(f"{name} must be a mapping of names to members, got {shown(mapping)}")
    groups: list[tuple[str, tuple[Any, ...]]] = []
    seen: dict[Any, str] = {}
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InputError(f"{name} must be a mapping of names to members, got {shown(mapping)}")
        label, members = pair
        if isinstance(members, (str, bytes)) or not isinstance(members, (Iterable, Tensor)):
            raise InputError(f"group {label!r} must be a list of members, got {shown(members)}")
        plain = members.tolist() if isinstance(members, (Tensor, np.ndarray)) else list(members)
        if not plain:
            raise InputError(f"group {label!r} must have at least one member, got none")
        if label in (other for other, _ in groups):
            raise InputError(f"{name} must have different names, got {label!r} twice")
        frozen = tuple(_member(member, label) for member in plain)
        for member in frozen:
            if member in seen:
                places = (
                    f"in {seen[member]!r} and {label!r}"
                    if seen[member] != label
                    else "in " + repr(label)
                )
                raise InputError(f"a player can be in one group only, got {member} twice, {places}")
            seen[member] = label
        groups.append((label, frozen))
    return tuple(groups)


GroupsSetting = Annotated[Groups, Converted(freeze_groups)]
"""Groups as a field of settings."""


def _member(member: Any, label: str) -> Any:
    if isinstance(member, (tuple, list)) and len(member) in (2, 3):
        # Of typed graphs, members and their ends begin with the name of a type.
        return tuple(part if isinstance(part, str) else _member(part, label) for part in member)
    return as_int(member, f"each member of group {label!r}")


def check_groups(groups: Groups, count: int, item: str) -> None:
    """Every member must be one of the graph's `count` nodes (features)."""
    for label, members in groups:
        for member in members:
            if isinstance(member, tuple):
                raise InputError(
                    f"group {label!r} names the edge {member}, but {item}s play; "
                    f'use players="edges" for groups of edges'
                )
            if not 0 <= member < count:
                raise InputError(
                    f"group {label!r} names {item} {member}; {item}s go from 0 to {count - 1}"
                )


def grouped_owners(
    ids: Ids, groups: Iterable[tuple[str, tuple[Any, ...] | Ids]], labels: list[str]
) -> tuple[Ids, tuple[str, ...]]:
    """The player of each id: its group, or a player of its own; empty groups are dropped."""
    owner = np.full(len(ids), -1)
    names: list[str] = []
    for label, members in groups:
        mine = np.isin(ids, np.asarray(members, dtype=np.int64))
        if (owner[mine] >= 0).any():
            raise InputError(f"a player can be in one group only, got one of {label!r} twice")
        if mine.any():
            owner[mine] = len(names)
            names.append(label)
    alone = np.flatnonzero(owner < 0)
    owner[alone] = len(names) + np.arange(len(alone))
    names += [labels[at] for at in alone.tolist()]
    return owner, tuple(names)


def sorted_by_owner(members: Ids, owner: Ids) -> tuple[Ids, Ids]:
    """Members sorted by their owner (stable)."""
    order = np.argsort(owner, kind="stable")
    return members[order], owner[order]


def _edge_owners(
    graph: Graph, positions: Ids, code: Ids, directions: Directions, groups: list[tuple[str, Ids]]
) -> tuple[Ids, tuple[str, ...]]:
    """The player of each edge: its group's, or that of the edges with its `code`."""
    owner = np.full(len(positions), -1)
    names: list[str] = []
    for label, members in groups:
        mine = np.isin(positions, members)
        if (owner[mine] >= 0).any():
            raise InputError(f"an edge can be in one group only, got one of {label!r} twice")
        if mine.any():
            owner[mine] = len(names)
            names.append(label)
    alone = np.flatnonzero(owner < 0)
    _, example, inverse = np.unique(code[alone], return_index=True, return_inverse=True)
    owner[alone] = len(names) + inverse.reshape(-1)
    names += [
        edge_label(graph, position, directions == "apart")
        for position in positions[alone[example]].tolist()
    ]
    return owner, tuple(names)


def edge_positions(
    graph: Graph, label: str, members: tuple[Any, ...], directions: Directions
) -> Ids:
    """Where the members of a group are in edge_index; each of them must be there.

    An integer is a position; a pair (u, v) is every edge from u to v and, with the directions
    together, from v to u. Of typed graphs an edge type, an edge type with a position, or two nodes
    (all edges between them, either way) is every edge that is one player with these.
    """
    find = _edges_by_type if graph.has_types else _edges_by_ends
    positions = np.concatenate([find(graph, member, label, directions) for member in members])
    if not graph.has_types:
        return positions
    code = edge_codes(graph, np.arange(graph.num_edges), directions, relations=False)
    return np.flatnonzero(np.isin(code, code[positions]))


def _edges_by_ends(graph: Graph, member: Any, label: str, directions: Directions) -> Ids:
    if not isinstance(member, tuple):
        return _in_range(member, graph.num_edges, label)
    if len(member) != 2 or not all(isinstance(end, int) for end in member):
        raise InputError(
            f"group {label!r} must name edges as positions or pairs of nodes, got {member}"
        )
    sources, matching = graph.edge_index[0].cpu().numpy(), no_ids()
    for u, v in [member] if directions == "apart" else [member, member[::-1]]:
        if 0 <= u < graph.num_nodes and 0 <= v < graph.num_nodes:
            into = graph.index.edges_into(np.asarray([v]))
            matching = np.union1d(matching, into[sources[into] == u])
    return _existing(matching, member, label)


def _edges_by_type(graph: Graph, member: Any, label: str, directions: Directions) -> Ids:  # noqa: ARG001  (either way)
    types = graph.types
    if types.flat and isinstance(member, int):
        return _in_range(member, graph.num_edges, label)
    if isinstance(member, str) or (
        isinstance(member, tuple)
        and len(member) == 3
        and all(isinstance(part, str) for part in member)
    ):
        return np.flatnonzero(types.edge_type == types.edge_type_id(member))
    if not (isinstance(member, tuple) and len(member) == 2):
        raise InputError(
            f"group {label!r} must name edges as an edge type, an (edge type, position) or a pair "
            f"of nodes, got {shown(member)}"
        )
    if isinstance(member[0], tuple) and len(member[0]) == 3:
        mine = np.flatnonzero(types.edge_type == types.edge_type_id(member[0]))
        return mine[_in_range(as_int(member[1], f"each of group {label!r}"), len(mine), label)]
    u, v = (node_number(types, end, f"each end in group {label!r}") for end in member)
    source, target = graph.edge_index.cpu().numpy()
    either_way = ((source == u) & (target == v)) | ((source == v) & (target == u))
    return _existing(np.flatnonzero(either_way), member, label)


def _existing(positions: Ids, member: Any, label: str) -> Ids:
    if not len(positions):
        raise InputError(f"group {label!r} names the edge {member}, which does not exist")
    return positions


def _in_range(position: int, count: int, label: str) -> Ids:
    if not 0 <= position < count:
        raise InputError(f"group {label!r} names edge {position}; edges go from 0 to {count - 1}")
    return np.asarray([position])


MetaPaths = tuple[tuple[str, tuple[Any, ...]], ...]
"""((name, edge types), ...): each path from its far end to the explained node."""


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


def meta_path_types(types: Types, label: str, steps: tuple[Any, ...]) -> list[int]:
    """The edge types of a meta-path; each must start where the one before it ends."""
    ids = [types.edge_type_id(step) for step in steps]
    for before, after in pairwise(ids):
        first, second = types.edge_types[before], types.edge_types[after]
        if first[2] != second[0]:
            raise InputError(
                f"meta-path {label!r} has {first} before {second}: the first must end in the node "
                f"type that the second starts from"
            )
    return ids


def find_meta_paths(types: Types, field: Field, paths: MetaPaths) -> Players:
    """A player for each meta-path: the edges of all its instances that end in a centre.

    An edge on several meta-paths is there as long as one of them is. Edges on none stay.
    """
    names: list[str] = []
    members, owners = [no_ids()], [no_ids()]
    for label, steps in paths:
        edges = _instances(types, field, meta_path_types(types, label, steps))
        if len(edges):
            members.append(edges)
            owners.append(np.full(len(edges), len(names)))
            names.append(label)
    return Players(
        edge_members=np.concatenate(members),
        edge_owner=np.concatenate(owners),
        names={"edges": tuple(names)},
    )


def _instances(types: Types, field: Field, steps_of: list[int]) -> Ids:
    """Edges of the field (inner ones) that lie on an instance of a path of edge types."""
    inner = field.inner_edges
    kinds = types.edge_type[field.edges[inner]]
    source, target = field.source[inner], field.target[inner]
    ends = np.arange(field.size) < (field.centres or field.size)
    steps: list[Ids] = []
    for at in reversed(steps_of):  # from the centre outwards
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
