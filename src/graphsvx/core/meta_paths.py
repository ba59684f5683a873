"""Players of typed graphs that are meta-paths: sequences of edge types."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from graphsvx.core.arrays import Ids, no_ids
from graphsvx.core.field import Field
from graphsvx.core.players import Players
from graphsvx.core.types import Types
from graphsvx.errors import InputError
from graphsvx.utils.constraints import Converted, shown

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
        edge_members=np.concatenate(members), edge_owner=np.concatenate(owners),
        names={"edges": tuple(names)},
    )  # fmt: skip


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
