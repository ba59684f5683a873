"""Players: the nodes, features or edges that get credit; what switched-off features become."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Floats, Ids, no_ids, run_starts
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.types import Types, node_number
from graphsvx.errors import BudgetError, InputError
from graphsvx.utils.constraints import (
    MOST,
    Converted,
    NotNegative,
    Range,
    as_int,
    checked,
    shown,
)

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

    def active_nodes(self, size: int, nodes_on: Bools) -> Bools:
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
    def owners_by_edge(self) -> tuple[Ids, Ids, Ids]:
        """The edges that play, where the owners of each start, and these: of meta-paths several."""
        order = np.argsort(self.edge_members, kind="stable")
        members = self.edge_members[order]
        starts = np.flatnonzero(run_starts(members))
        return members[starts], starts, self.edge_owner[order]


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
    types, names = graph.types, dict[str, tuple[str, ...]]()
    feature_owner, node_owner = np.arange(len(columns)), np.arange(len(nodes))
    if feature_groups and sides in ("both", "features"):
        # Columns named by the user are players whatever their values are.
        by_column = column_groups(types, feature_groups)
        columns = np.union1d(columns, np.concatenate([members for _, members in by_column]))
        feature_owner, names["features"] = _grouped(columns, by_column, types.feature_label)
    if groups and sides in ("both", "nodes"):
        by_number = node_groups(types, groups)
        node_owner, names["nodes"] = _grouped(field.ids[nodes], by_number, types.label)
    return Players(
        *_sorted_by_owner(columns, feature_owner), *_sorted_by_owner(nodes, node_owner), names=names
    )


def _sorted_by_owner(members: Ids, owner: Ids) -> tuple[Ids, Ids]:
    order = np.argsort(owner, kind="stable")
    return members[order], owner[order]


def _grouped(
    ids: Ids,
    groups: Iterable[tuple[str, tuple[Any, ...] | Ids]],
    label_of: Callable[[int], str] | None,
    code: Ids | None = None,
) -> tuple[Ids, tuple[str, ...]]:
    """The player of each id and the names of players; empty groups are dropped.

    That of its group, or else one of its own, shared by ids of the same `code`. The players of
    groups come first; without `label_of` the others have no names.
    """
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
    codes = alone if code is None else code[alone]
    _, example, inverse = np.unique(codes, return_index=True, return_inverse=True)
    owner[alone] = len(names) + inverse.reshape(-1)
    if label_of is not None:
        names += map(label_of, ids[alone[example]].tolist())
    return owner, tuple(names)


def node_groups(types: Types, groups: Groups) -> Groups:
    """Groups of nodes as numbers; of typed graphs a member is a pair (type, id)."""
    return _numbered(groups, "nodes", lambda node, name: node_number(types, node, name))


def column_groups(types: Types, groups: Groups) -> Groups:
    """Groups of columns among those of all types; of typed graphs a member is (type, column)."""
    return _numbered(groups, "features", types.feature_column)


def _numbered(groups: Groups, items: str, number: Callable[[Any, str], int]) -> Groups:
    """Groups with numbers as members; `number` is given each member and how messages call it."""
    for label, members in groups:
        for member in members:
            if type(member) is tuple and type(member[0]) is not str:
                raise InputError(
                    f"group {label!r} names the edge {member}, but {items} play; "
                    f'use players="edges" for groups of edges'
                )
    return tuple(
        (label, tuple(number(member, f"each member of group {label!r}") for member in members))
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
    code = _edge_codes(graph, field.edges[inner], directions, relations)
    carries = within_hops(field, None if hops is None else hops - 1)[field.target[inner]]
    plays = np.isin(code, code[carries])
    inner, code = inner[plays], code[plays]
    positions = field.edges[inner]
    by_position = [(name, edge_positions(graph, name, mine, directions)) for name, mine in groups]
    label = partial(edge_label, graph, apart=directions == "apart", relation=relations)
    is_named = bool(groups) or relations
    owner, labels = _grouped(positions, by_position, label if is_named else None, code)
    names = {"edges": labels} if is_named else {}
    return Players(edge_members=inner, edge_owner=owner, names=names)


def _edge_codes(graph: Graph, positions: Ids, directions: Directions, relations: bool) -> Ids:
    """A number for each edge, the same for edges that are one player."""
    kinds = graph.types.edge_type[positions]
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


def edge_label(graph: Graph, position: int, apart: bool = False, relation: bool = False) -> str:
    """An edge in words: source, relation, target; unless `apart`, as the first of both types.

    `relation`: its type, without the two nodes.
    """
    source, target = graph.edge_index[:, position].tolist()
    if not graph.has_types:
        return f"edge {source}–{target}"
    types = graph.types
    kind = int(types.edge_type[position])
    first = kind if apart else int(graph.relation_of[kind])
    name = types.relation_labels[first]
    if relation and types.flat:
        return name
    start, end = map(types.label, (source, target) if first == kind else (target, source))
    if relation:
        start, _, end = types.edge_types[first]
    return f"{start} –{name}→ {end}"


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
            x = types.rows(name, nodes[kinds == at])
            other = None if reference is None else reference[block].cpu().numpy()
            mean, std = statistics.mean[block], statistics.std[block]
            standing_out = _standing_out(x, mean.cpu().numpy(), std.cpu().numpy(), choice, other)
            columns.append(block.start + standing_out)
    return np.concatenate(columns)


def _standing_out(
    x: Tensor, mean: Floats, std: Floats, choice: FeatureChoice, reference: Floats | None
) -> Ids:
    rows = x.double().cpu().numpy()
    if choice == "all":
        return np.arange(rows.shape[1])
    if choice == "nonzero":
        differs = (rows != 0).any(0)
        return np.flatnonzero(differs if reference is None else differs | (reference != 0))
    centre = mean if reference is None else reference
    # A constant column must stay inside its own mean, whatever the last bit of the sum says.
    slack = 1e-7 * np.abs(centre) if x.is_floating_point() else 0
    return np.flatnonzero((np.abs(rows - centre) > choice * std + slack).any(0))


# --- groups that switch on and off together ------------------------------------------------


def _named_lists(mapping: Any, name: str, items: str) -> list[tuple[str, list[Any]]]:
    """Names and their lists of `items`, from a mapping or a frozen one."""
    pairs = list(mapping.items()) if isinstance(mapping, Mapping) else mapping
    are_pairs = isinstance(pairs, (list, tuple)) and all(
        type(pair) is tuple and len(pair) == 2 and type(pair[0]) is str for pair in pairs
    )
    if not are_pairs:
        raise InputError(f"{name} must be a mapping of names to {items}, got {shown(mapping)}")
    named: dict[str, list[Any]] = {}
    for label, listed in pairs:
        if label in named:
            raise InputError(f"{name} must have different names, got {label!r} twice")
        plain = listed.tolist() if isinstance(listed, (Tensor, np.ndarray)) else listed
        is_list = isinstance(plain, Iterable) and not isinstance(plain, (str, bytes))
        named[label] = [*plain] if is_list else []
        if not named[label]:
            raise InputError(
                f"{name}: {label!r} must be a list of {items}, with at least one member, got "
                f"{shown(listed)}"
            )
    return [*named.items()]


def freeze_groups(mapping: Any, name: str) -> Groups:
    """A mapping of names to members as tuples; members are integers or pairs of them."""
    groups = tuple(
        (label, tuple(_member(member, label) for member in members))
        for label, members in _named_lists(mapping, name, "members")
    )
    label_of: dict[Any, str] = {}
    for label, member in ((label, member) for label, members in groups for member in members):
        if member in label_of:
            places = " and ".join(repr(at) for at in dict.fromkeys((label_of[member], label)))
            raise InputError(f"a player can be in one group only, got {member} twice, in {places}")
        label_of[member] = label
    return groups


GroupsSetting = Annotated[Groups, Converted(freeze_groups)]
"""Groups as a field of settings."""


def _member(member: Any, label: str) -> Any:
    if isinstance(member, (tuple, list)) and len(member) in (2, 3):
        # Of typed graphs, members and their ends begin with the name of a type.
        return tuple(part if isinstance(part, str) else _member(part, label) for part in member)
    return as_int(member, f"each member of group {label!r}")


def edge_positions(
    graph: Graph, label: str, members: tuple[Any, ...], directions: Directions
) -> Ids:
    """Where the members of a group are in edge_index; each of them must be there.

    An integer is a position; a pair (u, v) is every edge from u to v and, with the directions
    together, from v to u. Of typed graphs an edge type, an edge type with a position, or two nodes
    (all edges between them, either way) is every edge that is one player with these.
    """
    positions = np.concatenate([_edges(graph, member, label, directions) for member in members])
    if not graph.has_types:
        return positions
    code = _edge_codes(graph, np.arange(graph.num_edges), directions, relations=False)
    return np.flatnonzero(np.isin(code, code[positions]))


def _edges(graph: Graph, member: Any, label: str, directions: Directions) -> Ids:
    types, has_types = graph.types, graph.has_types
    match member:
        case int() if types.flat:
            return _in_range(member, graph.num_edges, label)
        case (str(), str(), str()) if has_types:
            return np.flatnonzero(types.edge_type == types.edge_type_id(member))
        case ((str(), str(), str()), position) if has_types:
            mine = np.flatnonzero(types.edge_type == types.edge_type_id(member[0]))
            return mine[_in_range(as_int(position, f"each of group {label!r}"), len(mine), label)]
        case (_, _):
            u, v = (node_number(types, end, f"each end in group {label!r}") for end in member)
        case _:
            forms = "an edge type, an (edge type, position)" if has_types else "a position"
            raise InputError(
                f"group {label!r} must name edges as {forms} or a pair of nodes, got "
                f"{shown(member)}"
            )
    one_way = directions == "apart" and not has_types
    sources, matching = graph.edge_index[0].cpu().numpy(), no_ids()
    for source, target in [(u, v)] if one_way else [(u, v), (v, u)]:
        into = graph.index.edges_into(np.asarray([target]))
        matching = np.union1d(matching, into[sources[into] == source])
    if not len(matching):
        raise InputError(f"group {label!r} names the edge {member}, which does not exist")
    return matching


def _in_range(position: int, count: int, label: str) -> Ids:
    if not 0 <= position < count:
        raise InputError(f"group {label!r} names edge {position}; edges go from 0 to {count - 1}")
    return np.asarray([position])


def freeze_meta_paths(mapping: Any, name: str) -> Groups:
    """{name: edge types from the far end to the explained node} as tuples."""
    return tuple(
        (label, tuple(tuple(step) if isinstance(step, list) else step for step in steps))
        for label, steps in _named_lists(mapping, name, "edge types")
    )


MetaPathsSetting = Annotated[Groups, Converted(freeze_meta_paths)]
"""Meta-paths as a field of settings: each from its far end to the explained node."""


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


def find_meta_paths(types: Types, field: Field, paths: Groups) -> Players:
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
    ends = np.arange(field.centres or field.size)
    steps: list[Ids] = []
    for at in reversed(steps_of):  # from the centre outwards
        steps.append(np.flatnonzero((kinds == at) & np.isin(target, ends)))
        ends = source[steps[-1]]
    # Back to the centre: only edges whose path goes on to its far end.
    on_path: list[Ids] = []
    for step in reversed(steps):
        on_path.append(step[np.isin(source[step], ends)])
        ends = target[on_path[-1]]
    edges: Ids = inner[np.unique(np.concatenate(on_path))]
    return edges


# --- what switched-off features become ------------------------------------------------------

Reference = int | str | tuple[float, ...] | None


def freeze_reference(reference: Any, name: str = "reference") -> Reference:
    """Validate a reference and make it hashable: vectors become tuples."""
    if reference is None:
        return None
    numbers = reference.tolist() if isinstance(reference, (Tensor, np.ndarray)) else reference
    if isinstance(numbers, (list, tuple)):
        # Binary features may be truth values.
        numbers = [int(v) if isinstance(v, (bool, np.bool_)) else v for v in numbers]
        for place, number in enumerate(numbers):
            if isinstance(number, float) and not np.isfinite(number):
                raise InputError(f"{name} must be finite, got {number} for feature {place}")
    frozen: Reference = ""
    with suppress(InputError):
        frozen = checked(numbers, tuple[float, ...] | Reference, name)
    if isinstance(frozen, str) and not re.fullmatch(r"class:\d+", frozen):
        raise InputError(
            f'{name} must be a node id, "class:c" or a vector of finite numbers, got '
            f"{shown(reference)}"
        )
    return frozen


ReferenceSetting = Annotated[Reference, Converted(freeze_reference)]
"""A reference as a field of settings."""


def resolve_reference(graph: Graph, reference: Reference, centres: Ids) -> Tensor:
    """Reference vector xi, [features of all types], float64 (the paper's contrastive extension).

    The mean of a node's type; a node id, "class:c" (the mean of the nodes of a class, `data.y`) or
    a vector are features of the type of the explained nodes.
    """
    if reference is None:
        return graph.statistics.mean
    types = graph.types
    if not len(centres) and len(types.node_types) > 1:
        raise InputError(
            "reference= refers to the type of the explained node, but a graph is explained"
        )
    name = types.node_types[types.kinds(centres[:1])[0] if len(centres) else 0]
    width, owner = types.width(name), "" if types.flat else f" of {name!r}"
    if not width and (not types.flat or name not in types.features):
        raise InputError(f"reference= is about features, but {name!r} has none")
    vector = graph.statistics.mean.clone()
    vector[types.blocks[name]] = _referred(types, name, width, owner, reference).to(vector)
    return vector


def _referred(types: Types, name: str, width: int, owner: str, reference: Any) -> Tensor:
    """The features of one type that a reference means."""
    x = types.features[name]
    match reference:
        case int():
            types.number(name, reference, "reference")  # an InputError unless there is one
            return x[reference].double()
        case str():
            y = types.node_values.get("y", {}).get(name)
            if y is None or y.is_floating_point():
                raise InputError(
                    f'reference="{reference}" needs the class of every node; set data.y, or give '
                    "the vector itself"
                )
            members = x[y == int(reference.partition(":")[2])]
            if not len(members):
                labels = sorted(set(y.tolist()))[:10]
                raise InputError(
                    f'reference="{reference}" names a class without nodes; data.y has {labels}'
                )
            return _typical(members)
    if len(reference) != width:
        raise InputError(
            f"reference must have one value for each of the {width} features{owner}, "
            f"got {len(reference)}"
        )
    return torch.tensor(reference, dtype=torch.float64)


def monte_carlo_mean(graph: Graph, draws: int, rng: torch.Generator) -> Tensor:
    """The mean of `draws` nodes drawn from the data, with replacement (float64)."""
    rows = torch.randint(graph.num_nodes, (draws,), generator=rng)
    return _typical(graph.x[rows.to(graph.x.device)])


def _typical(rows: Tensor) -> Tensor:
    return (
        rows.double().mean(0) if rows.is_floating_point() else rows.long().mode(0).values.double()
    )
