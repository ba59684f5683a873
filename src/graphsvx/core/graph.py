"""The user's graph as tensors: features, edges, their indices and statistics.

Nodes and edges have types (`graphsvx.core.types`); a graph without types has one of each.
`graphsvx.core.data` reads it from the user's data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from graphsvx.core.arrays import Ids
from graphsvx.core.fingerprints import Stamp, stamp
from graphsvx.core.types import FLAT, Types
from graphsvx.errors import InputError

T = TypeVar("T")
EDGE_SET = "edge_set"
"""Internal attribute of edges: which of `DataForm.edge_sets` each one is of."""
Owner = Literal["nodes", "edges", "graph"]
"""Whether an attribute has a row per node, per edge, or one for the graph."""

# Weak references: what was computed from a tensor is freed with it.
_COMPUTED: Any = WeakTensorKeyDictionary()


def computed(source: Tensor, name: str, version: Any, make: Callable[[], T]) -> T:
    """`make()`, once as long as `source` exists and the version (a stamp) is the same.

    What is made must not refer to `source`, which would live for ever.
    """
    entries: dict[str, tuple[Any, T]] = _COMPUTED.setdefault(source, {})
    if name not in entries or entries[name][0] != version:
        entries[name] = (version, make())
    return entries[name][1]


@dataclass(frozen=True, eq=False)
class Index:
    """Edges grouped by one end (CSC): those of node i are `order[start[i]:start[i + 1]]`."""

    order: NDArray[np.signedinteger[Any]]
    start: Ids

    def edges_into(self, nodes: Ids) -> Ids:
        """Positions of all edges into `nodes`; the cost is proportional to their number."""
        return self.edges_by_node(nodes)[0]

    def edges_by_node(self, nodes: Ids) -> tuple[Ids, Ids]:
        """Positions of all edges into `nodes`, and the number of edges into each node."""
        first = self.start[nodes]
        lengths = self.start[nodes + 1] - first
        # 0 1 2 | 0 1 | ... : a counter that starts again for each node.
        at = (first - lengths.cumsum() + lengths).repeat(lengths)
        at += np.arange(len(at))
        return self.order[at].astype(np.int64), lengths


def index_by_end(ends: Tensor, nodes: int) -> Index:
    """Edges grouped by one of their ends."""
    array = ends.cpu().numpy()
    order = np.argsort(array, kind="stable")
    if len(order) < 2**31:  # half the memory, which counts for millions of edges
        order = order.astype(np.int32)
    start = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(array, minlength=nodes), out=start[1:])
    return Index(order, start)


def is_undirected(source: Ids, target: Ids, nodes: int) -> bool:
    """Whether every edge has its reverse."""
    forth, back = source * nodes + target, target * nodes + source
    return bool(np.array_equal(np.sort(forth), np.sort(back)))


@dataclass(frozen=True, eq=False)
class Statistics:
    """mu and sigma of every feature over the nodes of the graph (float64).

    Integer features are categories: mu is the mode, sigma 0.
    """

    mean: Tensor
    std: Tensor


def statistics_of(x: Tensor, version: Stamp | None = None) -> Statistics:
    """Mean and deviation of every column, once as long as the tensor holds the same content."""
    return computed(x, "statistics", version or stamp(x), lambda: _make_statistics(x))


def _make_statistics(x: Tensor) -> Statistics:
    if x.numel() == 0:
        return Statistics(*x.new_zeros(2, x.shape[1]).double())
    if not x.is_floating_point():
        modes = x.long().mode(0).values.double()
        return Statistics(modes, torch.zeros_like(modes))
    means, stds = [], []
    # Columns in blocks: a float64 copy of all of a large x would double its memory.
    for block in torch.split(x, max(1, 2**24 // x.shape[0]), dim=1):
        if not bool(torch.isfinite(block).all()):
            row, column = (~torch.isfinite(x)).nonzero()[0].tolist()
            raise InputError(
                f"data.x must be finite, got {x[row, column]:g} at node {row}, feature {column}"
            )
        wide = block.double()
        means.append(wide.mean(0))
        stds.append(wide.std(0, unbiased=False))
    return Statistics(torch.cat(means), torch.cat(stds))


@dataclass(frozen=True)
class DataForm:
    """The form in which the user's data holds what a `Graph` holds as [nodes, features] and edges.

    Models get it back in this form (`graphsvx.core.calling`).
    """

    row_shape: tuple[int, ...] | None = None
    """Shape of a node's features if it is not [features]: () for x of shape [nodes], (steps,
    features) for time series."""
    has_x: bool = True
    """False: data has no x; the graph has features [nodes, 0]."""
    layout: torch.layout | None = None
    """Layout of the sparse adjacency matrix that models get in place of edge_index."""
    dtype: torch.dtype | None = None
    """Type that floating x and attributes are converted to, where it is not their own."""
    has_edges: bool = True
    """False: data has neither edge_index nor a matrix; the graph has no edges of these."""
    edge_sets: tuple[tuple[str, ...], ...] = ()
    """Names of each tensor of edges that the model takes ("edge_index", "pos_edge_index"), with
    those of the attributes of these edges; the graph's edges are all of them. (): edge_index."""


_AS_TABLES = DataForm()


@dataclass(frozen=True, eq=False)
class Attribute:
    """An attribute of the data besides x, edges, weights and edge attributes."""

    owner: Owner
    value: Any

    def at(self, nodes: Tensor | None, edges: Tensor | None, graphs: int) -> Any:
        """Rows of the given nodes or edges (None: all); repeated for each of several graphs."""
        if self.owner == "graph":
            repeats = graphs > 1 and isinstance(self.value, Tensor) and self.value.dim() > 0
            return torch.cat([self.value] * graphs) if repeats else self.value
        rows = nodes if self.owner == "nodes" else edges
        return self.value if rows is None else self.value.index_select(0, rows)

    def extended(self, rows: int) -> Attribute:
        """With `rows` copies of the first row at the end; zeros if there is none."""
        if self.owner == "graph":
            return self
        shape = (rows, *self.value.shape[1:])
        padding = self.value[:1].expand(shape) if len(self.value) else self.value.new_zeros(shape)
        return replace(self, value=torch.cat([self.value, padding]))


@dataclass(frozen=True, eq=False)
class Graph:
    """A validated graph: features X, directed edges, edge weights and attributes."""

    x: Tensor
    edge_index: Tensor
    index: Index
    statistics: Statistics
    edge_weight: Tensor | None = None
    edge_attr: Tensor | None = None
    y: Tensor | None = None
    stamps: tuple[Stamp | None, ...] = ()
    """Of x, edge_index, edge_weight, edge_attr and attributes, when the graph was checked."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Further attributes that the model takes, by name."""
    form: DataForm = _AS_TABLES
    labels: Tensor | None = None
    """data.y as it is: [nodes], [nodes, outputs], or the labels of a graph."""
    given_types: Types | None = None
    """Node and edge types that the model takes; then x has no columns. None: there are none."""

    @property
    def has_types(self) -> bool:
        """Whether the model is given node or edge types."""
        return self.given_types is not None

    @cached_property
    def types(self) -> Types:
        """Node and edge types; without given ones, one of each."""
        return self.given_types or Types.of_one(self.x, self.num_edges, self.y)

    def with_features(self, features: Mapping[str, Tensor]) -> Graph:
        """The graph with other features of some node types."""
        if self.given_types is None:
            return replace(self, x=features.get(FLAT, self.x))
        changed = {**self.given_types.features, **features}
        return replace(self, given_types=replace(self.given_types, features=changed))

    @cached_property
    def relation_of(self) -> Ids:
        """For each edge type, the first of itself and its reverse type.

        Types are each other's reverse if their edges are the same, turned round; `rev_writes` is
        also that of `writes`.
        """
        types, ends = self.types, self.edge_index.cpu().numpy()
        relation = np.arange(len(types.edge_types))
        if len(relation) == 1:
            return relation
        order = np.argsort(types.edge_type, kind="stable")
        starts = np.searchsorted(types.edge_type[order], np.arange(len(relation) + 1))
        waiting: dict[bytes, list[int]] = {}
        for at, (source, name, target) in enumerate(types.edge_types):
            other = (target, name.removeprefix("rev_"), source)
            if name.startswith("rev_") and other in types.edge_types:
                relation[at] = types.edge_types.index(other)
                continue
            mine = ends[:, order[starts[at] : starts[at + 1]]]
            forth, back = (
                np.sort(first * self.num_nodes + second).tobytes()
                for first, second in (mine, mine[::-1])
            )
            if mine.size and forth != back and waiting.get(back):
                relation[at] = waiting[back].pop(0)
            else:
                waiting.setdefault(forth, []).append(at)
        return np.minimum(relation, np.arange(len(relation)))

    def attributes_at(
        self, nodes: Tensor | None, edges: Tensor | None, graphs: int = 1
    ) -> dict[str, Any]:
        """Rows of all further attributes, for the given nodes and edges of this graph."""
        return {
            name: attribute.at(nodes, edges, graphs) for name, attribute in self.attributes.items()
        }

    def edge_rows(self, edges: Tensor | slice) -> tuple[Tensor | None, Tensor | None]:
        """Weights and attributes of some edges; None where the graph has none."""
        weight, attr = self.edge_weight, self.edge_attr
        return None if weight is None else weight[edges], None if attr is None else attr[edges]

    @property
    def feature_columns(self) -> tuple[tuple[int, ...], ...] | None:
        """Columns of each feature of a time series [nodes, steps, features]; None: no series."""
        shape = self.form.row_shape
        if not shape:
            return None
        last = shape[-1]
        return tuple(tuple(range(start, self.num_features, last)) for start in range(last))

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        """F, those of all node types together."""
        return self.x.shape[1] if self.given_types is None else self.given_types.columns

    @property
    def num_edges(self) -> int:
        """Directed edges."""
        return self.edge_index.shape[1]


def converted(graph: Graph, dtype: torch.dtype) -> Graph:
    """The graph with x, weights and attributes that are floating numbers in another type."""

    def change(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return computed(value, "converted", (dtype, stamp(value)), lambda: value.to(dtype))

    return replace(
        graph,
        x=change(graph.x),
        edge_weight=change(graph.edge_weight),
        edge_attr=change(graph.edge_attr),
        attributes={
            name: replace(attribute, value=change(attribute.value))
            for name, attribute in graph.attributes.items()
        },
        form=replace(graph.form, dtype=dtype),
    )


def edge_index_by_target(edge_index: Tensor, nodes: int, version: Stamp) -> Index:
    """Edges grouped by target, once; an InputError if they name other nodes."""

    def make() -> Index:
        if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= nodes):
            raise InputError(
                f"data.edge_index must name nodes from 0 to {nodes - 1}, "
                f"got {int(edge_index.min())} to {int(edge_index.max())}"
            )
        return index_by_end(edge_index[1], nodes)

    return computed(edge_index, "by target", (version, nodes), make)


def out_edges(graph: Graph) -> Index:
    """Edges grouped by source, cached: `out_edges(g).edges_into(v)` are the edges *from* v."""
    edges, nodes = graph.edge_index, graph.num_nodes
    version = (graph.stamps[1] if graph.stamps else None) or stamp(edges)
    return computed(edges, "by source", (version, nodes), lambda: index_by_end(edges[0], nodes))
