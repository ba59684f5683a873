"""Node and edge types of a graph, and what is stored for each type.

The nodes of all types are numbered one type after the other, and so are the edges. Fields, players,
perturbations, masks and estimators work on these numbers; the features stay in the user's tensors,
one for each type. A graph without types has one type of nodes and one of edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.names import Names
from graphsvx.errors import InputError
from graphsvx.utils.constraints import as_int, shown

EdgeType = tuple[str, str, str]
"""(node type of the source, relation, node type of the target)."""

FLAT = "node"
"""The node type of `Data`, which has no node types of its own."""


@dataclass(frozen=True, eq=False)
class Types:
    """Node and edge types, the numbers of their nodes and edges, and their tables."""

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    node_starts: Ids
    """Number of the first node of each type, and the number of all nodes."""
    edge_starts: Ids
    """The same for edges; of a flat graph 0 only, whose edges are in any order."""
    features: Mapping[str, Tensor]
    """`x` of each node type that has one."""
    flat: bool = True
    """`Data`: the model takes one x, edge_index and, where edges have types, edge_type."""
    given_edge_type: Ids | None = None
    """Position in `edge_types` of each edge's type; None: one type after the other."""
    node_values: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Other attributes with a row for each node: name, then node type."""
    edge_values: Mapping[str, Mapping[EdgeType, Tensor]] = field(default_factory=dict)
    """Attributes with a row for each edge: name, then edge type."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the nodes of a type, where the data has them (`data["author"].names`)."""
    categories_play: bool = False
    """Whether features that are integers can play."""

    @staticmethod
    def of_one(x: Tensor, edges: int, y: Tensor | None) -> Types:
        """One type of nodes, with features `x` and labels `y`, and one of edges."""
        starts = np.asarray([0, len(x)]), np.asarray([0, edges])
        return Types(
            (FLAT,),
            ((FLAT, "", FLAT),),
            *starts,
            {FLAT: x},
            categories_play=True,
            node_values={} if y is None else {"y": {FLAT: y}},
        )

    @cached_property
    def edge_type(self) -> Ids:
        """Position in `edge_types` of each edge's type."""
        if self.given_edge_type is not None:
            return self.given_edge_type
        return np.repeat(np.arange(len(self.edge_types)), np.diff(self.edge_starts))

    @property
    def columns(self) -> int:
        """Feature columns of all node types together, in the order of `blocks`."""
        return sum(map(self.width, self.node_types))

    @cached_property
    def node_type(self) -> Ids:
        """Position in `node_types` of each node's type."""
        return np.repeat(np.arange(len(self.node_types)), np.diff(self.node_starts))

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """The columns of each type's features among those of all types."""
        widths = [self.width(name) for name in self.node_types]
        ends = zip(self.node_types, widths, accumulate(widths), strict=True)
        return {name: slice(end - width, end) for name, width, end in ends}

    def width(self, node_type: str) -> int:
        """Number of feature columns that can play: those of a matrix x."""
        x = self.features.get(node_type)
        if x is None or x.dim() != 2 or not (x.is_floating_point() or self.categories_play):
            return 0
        return x.shape[1]

    def kinds(self, numbers: Ids) -> Ids:
        """Positions of the types of nodes, by their numbers."""
        return self.node_starts[1:].searchsorted(numbers, "right")

    def count(self, node_type: str) -> int:
        """Number of nodes of a type."""
        at = self.type_id(node_type)
        return int(self.node_starts[at + 1] - self.node_starts[at])

    def type_id(self, node_type: str) -> int:
        """Position of a node type."""
        if node_type not in self.node_types:
            raise InputError(f"the node types are {list(self.node_types)}, got {node_type!r}")
        return self.node_types.index(node_type)

    def number(self, node_type: str, node: int, label: str = "node") -> int:
        """The number of a node among those of all types; messages call it `label`."""
        count = self.count(node_type)
        if not 0 <= node < count:
            owner = label if self.flat else f"{label} of type {node_type!r}"
            raise InputError(f"{owner} must be from 0 to {count - 1}, got {node}")
        return int(self.node_starts[self.type_id(node_type)]) + node

    def local(self, numbers: Ids) -> Ids:
        """The ids of nodes within their types."""
        return numbers - self.node_starts[self.kinds(numbers)]

    def named(self, number: int) -> tuple[str, int]:
        """The type of a node, and its id within the type."""
        at = self.node_type[number]
        return self.node_types[at], number - int(self.node_starts[at])

    def label(self, number: int) -> str:
        """A node in words: its name, or its type and id."""
        node_type, at = self.named(number)
        return self.names[node_type][at] if node_type in self.names else f"{node_type} {at}"

    def rows(self, node_type: str, numbers: Ids) -> Tensor:
        """Features of nodes of one type, by their numbers among those of all types."""
        x = self.features[node_type]
        local = numbers - self.node_starts[self.type_id(node_type)]
        return x.index_select(0, as_tensor(local, x.device))

    def table(self, numbers: Ids) -> Tensor:
        """Features of nodes, those of all types side by side, [nodes, columns]."""
        if len(self.node_types) == 1 and (self.columns or self.categories_play):
            return self.rows(self.node_types[0], numbers)
        playing = {name: x for name, x in self.features.items() if self.width(name)}
        wide = any(x.dtype == torch.float64 for x in playing.values())
        device = next((x.device for x in self.features.values()), torch.device("cpu"))
        dtype, kinds = torch.float64 if wide else torch.float32, self.kinds(numbers)
        table = torch.zeros(len(numbers), self.columns, dtype=dtype, device=device)
        for name in playing:
            mine = np.flatnonzero(kinds == self.type_id(name))
            rows = self.rows(name, numbers[mine])
            table[as_tensor(mine, device), self.blocks[name]] = rows.to(table)
        return table

    def feature_column(self, member: Any, name: str) -> int:
        """The column of a feature (type, column), of flat graphs a column, among all columns."""
        node_type, column = (FLAT, member) if self.flat else (None, None)
        if isinstance(member, tuple) and len(member) == 2:
            node_type, column = member
        if node_type not in self.node_types:
            raise InputError(
                f"{name} must be (node type, column) with a type of {list(self.node_types)}, got "
                f"{shown(member)}"
            )
        column, width = as_int(column, name), self.width(node_type)
        if not 0 <= column < width:
            owner = "the graph" if self.flat else repr(node_type)
            raise InputError(
                f"{name} must be a feature of {owner}, whose features go from 0 to {width - 1}, "
                f"got {column}"
            )
        return self.blocks[node_type].start + column

    def feature_label(self, column: int) -> str:
        """A feature in words: its node type and column."""
        for name, block in self.blocks.items():
            if block.start <= column < block.stop:
                local = column - block.start
                return f"feature {local}" if self.flat else f"{name} feature {local}"
        raise IndexError(column)

    @cached_property
    def relation_labels(self) -> tuple[str, ...]:
        """The relation of each edge type in words, shortened where it is a path."""
        return relation_labels(self.edge_types)

    def edge_type_id(self, name: Any) -> int:
        """Position of an edge type: a triple, or its relation where only one type has it."""
        key = tuple(name) if isinstance(name, (tuple, list)) else name
        if key in self.edge_types:
            return self.edge_types.index(key)
        matching = [at for at, (_, relation, _) in enumerate(self.edge_types) if relation == key]
        if len(matching) == 1:
            return matching[0]
        problem = "which several edge types have" if matching else "which no edge type is"
        listed = ", ".join(map(str, self.edge_types[:8]))
        dots = ", ..." if len(self.edge_types) > 8 else ""
        raise InputError(f"got {shown(name)}, {problem}; the edge types are {listed}{dots}")


def relation_labels(edge_types: Sequence[EdgeType]) -> tuple[str, ...]:
    """The relation of each edge type, shortened where it is a path (`/film/film/genre`)."""
    distinct = tuple(dict.fromkeys(relation for _, relation, _ in edge_types))
    short = dict(zip(distinct, short_names(distinct), strict=True))
    return tuple(short[relation] for _, relation, _ in edge_types)


def node_number(types: Types, node: Any, label: str = "node") -> int:
    """The number of a node given as (type, id or name); of a flat graph, as its id."""
    match node:
        case (str() as node_type, node_id):
            if isinstance(node_id, str) and node_type in types.names:
                node_id = Names(nodes=types.names[node_type]).node(node_id)
            return types.number(node_type, as_int(node_id, label))
        case _ if types.flat:
            return types.number(FLAT, as_int(node, label), label)
    raise InputError(
        f'{label} must be a node type and an id, such as ("{types.node_types[0]}", 0), '
        f"got {shown(node)}"
    )


# Short forms of names that are paths, such as relations of knowledge graphs.


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """The last part of each path (`/film/film/genre`: genre) where no other name has the same.

    Of joined paths (`/film/film/crew./film/job/role`) the last parts of all: `crew.role`. Where
    several names agree, the last two parts of the first path, else the full name.
    """
    forms = [[_ends(name, 1), _ends(name, 2), name] for name in names]
    counts = Counter(form for listed in forms for form in set(listed))
    return tuple(next((f for f in listed if counts[f] == 1), listed[-1]) for listed in forms)


def _ends(name: str, parts: int) -> str:
    first, *others = name.split("./")
    last = ["/".join(first.strip("/").split("/")[-parts:])]
    return ".".join([*last, *(other.rsplit("/", 1)[-1] for other in others)])
