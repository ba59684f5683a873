"""The user's graph: validated once, with cached edge indices and feature statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Dataset

from graphsvx.core.arrays import Ids
from graphsvx.core.stamps import Stamp, stamp
from graphsvx.errors import InputError
from graphsvx.utils.exclusive import exclusive


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
        if len(nodes) == 1:
            edges = self.order[first[0] : first[0] + lengths[0]]
        else:
            ends = lengths.cumsum()
            # 0 1 2 | 0 1 | ... : a counter that starts again for each node.
            at = (first - ends + lengths).repeat(lengths)
            at += np.arange(len(at))
            edges = self.order[at]
        return edges.astype(np.int64), lengths


@dataclass(frozen=True, eq=False)
class Statistics:
    """mu and sigma of every feature over the nodes of the graph (float64)."""

    mean: Tensor
    std: Tensor


@dataclass(frozen=True, eq=False)
class Graph:
    """A validated graph: features X, directed edges, edge weights and attributes."""

    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None
    edge_attr: Tensor | None
    y: Tensor | None
    index: Index
    statistics: Statistics
    stamps: tuple[Stamp | None, ...] = ()
    """Of x, edge_index, edge_weight and edge_attr, when the graph was checked."""

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.shape[0]

    @property
    def num_features(self) -> int:
        """F."""
        return self.x.shape[1]

    @property
    def num_edges(self) -> int:
        """Directed edges."""
        return self.edge_index.shape[1]


# Weak references: cached indices are freed with the tensors they were computed from.
_INDEXES: Any = WeakTensorKeyDictionary()
_OUT_EDGES: Any = WeakTensorKeyDictionary()
_STATISTICS: Any = WeakTensorKeyDictionary()


def check_graph(data: Any) -> Graph:
    """Check `data` (a PyG `Data` or anything with `x` and `edge_index`) and index it.

    Index and statistics are cached as long as the tensors live and hold the same content.
    """
    if isinstance(data, (list, tuple, Dataset)):
        raise InputError(
            f"data must be one graph, got {len(data)} in a {type(data).__name__}; many graphs are "
            f"explained by explain_many(model, graphs)"
        )
    x = _features(getattr(data, "x", None))
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise InputError(
            "data must have an edge_index of shape [2, edges]; it has none "
            "(an adj_t is turned into one by torch_geometric.utils.to_edge_index)"
        )
    check_edge_index(edge_index)
    with exclusive():  # large tensors are read
        index_key, x_stamp = (stamp(edge_index), x.shape[0]), stamp(x)
        cached = _INDEXES.get(edge_index)
        if cached is None or cached[0] != index_key:
            cached = _INDEXES[edge_index] = (index_key, _make_index(edge_index, x.shape[0]))
        index = cached[1]
        statistics = statistics_of(x, x_stamp)
    edges = edge_index.shape[1]
    weight = _edge_values(data, "edge_weight", edges)
    if weight is not None and weight.dim() != 1:
        raise InputError(f"edge_weight must be of shape [edges], got {list(weight.shape)}")
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor) or y.dim() != 1 or y.shape[0] != x.shape[0]:
        y = None
    attr = _edge_values(data, "edge_attr", edges)
    stamps = (x_stamp, index_key[0], *(None if v is None else stamp(v) for v in (weight, attr)))
    return Graph(x, edge_index, weight, attr, y, index, statistics, stamps)


def statistics_of(x: Tensor, x_stamp: Stamp | None = None) -> Statistics:
    """Mean and deviation of every column, cached as long as the tensor holds the same content."""
    x_stamp = x_stamp or stamp(x)
    cached = _STATISTICS.get(x)
    if cached is None or cached[0] != x_stamp:
        cached = _STATISTICS[x] = (x_stamp, _make_statistics(x))
    return cached[1]


def adopt(data: Any, index: Index, outgoing: Index, statistics: Statistics) -> None:
    """Cache what another process has found out about the same graph."""
    key = (stamp(data.edge_index), data.x.shape[0])
    _INDEXES[data.edge_index], _OUT_EDGES[data.edge_index] = (key, index), (key, outgoing)
    _STATISTICS[data.x] = (stamp(data.x), statistics)


def _features(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise InputError(
            f"data.x must be a tensor of shape [nodes, features], got {type(x).__name__}"
        )
    if x.dim() != 2:
        raise InputError(f"data.x must be of shape [nodes, features], got {list(x.shape)}")
    if x.shape[0] == 0:
        raise InputError("the graph is empty: data.x has no rows")
    if x.layout != torch.strided:
        raise InputError("data.x must be a dense tensor; use data.x.to_dense()")
    if not x.is_floating_point() or x.dtype.itemsize == 1:
        raise InputError(f"data.x must be of a floating type, got {x.dtype}; use data.x.float()")
    if x.is_meta:
        raise InputError("data.x must hold numbers, got a tensor on the meta device")
    return x


def check_edge_index(edge_index: Any, where: str = "data") -> None:
    """Raise an InputError unless this is a dense [2, edges] tensor of integers."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise InputError(
            f"{where}.edge_index must be a dense tensor of shape [2, edges], "
            f"got {type(edge_index).__name__}"
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(
            f"{where}.edge_index must be of shape [2, edges], got {list(edge_index.shape)}"
        )
    if edge_index.dtype != torch.long:
        raise InputError(
            f"{where}.edge_index must be of type torch.long, got {edge_index.dtype}; use .long()"
        )


def _make_index(edge_index: Tensor, nodes: int) -> Index:
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= nodes):
        raise InputError(
            f"data.edge_index must name nodes from 0 to {nodes - 1}, "
            f"got {int(edge_index.min())} to {int(edge_index.max())}"
        )
    return index_by_end(edge_index[1], nodes)


def index_by_end(ends: Tensor, nodes: int) -> Index:
    """Edges grouped by one of their ends."""
    array = ends.cpu().numpy()
    order = np.argsort(array, kind="stable")
    if len(order) < 2**31:  # half the memory, which counts for millions of edges
        order = order.astype(np.int32)
    start = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(array, minlength=nodes), out=start[1:])
    return Index(order, start)


def subgraph(graph: Graph, nodes: Ids) -> Graph:
    """Induced subgraph of `nodes`, with local ids in their order."""
    inside = graph.index.edges_into(nodes)
    sources = graph.edge_index[0].cpu().numpy()[inside]
    order = np.argsort(nodes)
    at = np.minimum(np.searchsorted(nodes, sources, sorter=order), len(nodes) - 1)
    within = nodes[order[at]] == sources
    count = graph.index.start[nodes + 1] - graph.index.start[nodes]
    ends = np.stack([order[at], np.repeat(np.arange(len(nodes)), count)])[:, within]
    device = graph.x.device
    edge_index = torch.from_numpy(ends).to(device)
    edges = torch.from_numpy(inside[within]).to(device)
    return Graph(
        x=graph.x[torch.from_numpy(nodes).to(device)],
        edge_index=edge_index,
        edge_weight=None if graph.edge_weight is None else graph.edge_weight[edges],
        edge_attr=None if graph.edge_attr is None else graph.edge_attr[edges],
        y=None,
        index=index_by_end(edge_index[1], len(nodes)),
        statistics=graph.statistics,
    )


def is_undirected(source: Ids, target: Ids, nodes: int) -> bool:
    """Whether every edge has its reverse."""
    forth, back = source * nodes + target, target * nodes + source
    return bool(np.array_equal(np.sort(forth), np.sort(back)))


def out_edges(graph: Graph) -> Index:
    """Edges grouped by source, cached: `out_edges(g).edges_into(v)` are the edges *from* v."""
    checked = graph.stamps[1] if graph.stamps else None
    key = (checked or stamp(graph.edge_index), graph.num_nodes)
    cached = _OUT_EDGES.get(graph.edge_index)
    if cached is None or cached[0] != key:
        cached = _OUT_EDGES[graph.edge_index] = (
            key,
            index_by_end(graph.edge_index[0], graph.num_nodes),
        )
    return cached[1]


def _make_statistics(x: Tensor) -> Statistics:
    # Columns in blocks: a float64 copy of all of a large x would double its memory.
    if x.shape[1] == 0:
        return Statistics(x.new_zeros(0).double(), x.new_zeros(0).double())
    means, stds = [], []
    for block in torch.split(x, max(1, 2**24 // x.shape[0]), dim=1):
        if not bool(torch.isfinite(block).all()):
            row, column = (~torch.isfinite(x)).nonzero()[0].tolist()
            raise InputError(
                f"data.x must be finite, got {float(x[row, column])} at node {row}, "
                f"feature {column}"
            )
        wide = block.double()
        means.append(wide.mean(0))
        stds.append(wide.std(0, unbiased=False))
    return Statistics(torch.cat(means), torch.cat(stds))


def _edge_values(data: Any, name: str, edges: int) -> Tensor | None:
    value = getattr(data, name, None)
    if value is None:
        return None
    if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[0] != edges:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(f"data.{name} must have one row for each of the {edges} edges, got {got}")
    return value
