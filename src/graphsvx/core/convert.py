"""Graphs in other forms than PyG's: networkx graphs, dictionaries, data sets of one graph.

Also collections of graphs: lists, data sets, batches and loaders.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Batch, Data

from graphsvx.core.graph import ADJACENCIES
from graphsvx.errors import InputError
from graphsvx.utils.constraints import shown

_LABELS = ("y", "label")
"""Attributes of nodes that are no features: what the model predicts."""
_PARTS_OF_A_GRAPH = (
    "ClusterLoader",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "GraphSAINTSampler",
    "ShaDowKHopSampler",
)
"""PyG's loaders whose batches are subgraphs of a single graph."""


def as_data(data: Any) -> Any:
    """One graph as an object with `x` and `edge_index`; what is one already is returned as is."""
    match data:
        case Data():
            return data
        case Dataset() if hasattr(data, "__len__") and len(data) == 1:
            return as_data(data[0])
        case DataLoader() if hasattr(data, "data"):
            return as_data(data.data)  # a loader that samples from one graph
        case _ if _is_networkx(data):
            return _from_networkx(data)
        case Mapping():
            if not {"edge_index", *ADJACENCIES} & {*data}:
                raise InputError(
                    f"a dictionary must have an edge_index, got {sorted(map(str, data))[:10]}"
                )
            return Data(**{str(name): _as_tensor(value) for name, value in data.items()})
    return data


def as_collection(data: Any) -> list[Any] | None:
    """The graphs of a list, data set, batch, loader or dictionary of graphs; None: one graph."""
    match data:
        case DataLoader():
            kind = type(data).__name__
            if kind in _PARTS_OF_A_GRAPH:
                raise InputError(
                    f"a {kind} yields parts of one graph, in which nodes lack neighbours; explain "
                    f"nodes of the graph itself: explain_many(model, data, nodes)"
                )
            batches = ((batch, as_collection(batch)) for batch in data)
            return [g for batch, graphs in batches for g in ([batch] if graphs is None else graphs)]
        case Batch():
            return list(data.to_data_list())
        case list() | tuple() | Iterator():
            return [*data]
        case Dataset() if hasattr(data, "__len__"):
            return [data[i] for i in range(len(data))]
        case Mapping():
            values = [*data.values()]
            are_graphs = all(_is_networkx(v) or isinstance(v, (Data, Mapping)) for v in values)
            return values if values and are_graphs else None
    return None


def node_positions(data: Any) -> dict[Hashable, int] | None:
    """Position of each node of a networkx graph, whose nodes are named by themselves."""
    return {node: i for i, node in enumerate(data.nodes)} if _is_networkx(data) else None


def _as_tensor(value: Any) -> Any:
    """Arrays and nested lists of numbers as tensors; anything else, such as names, as it is."""
    is_array = isinstance(value, np.ndarray)
    if not is_array and not isinstance(value, (list, tuple)):
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return value
    if array.dtype.kind not in "biuf":
        return value
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    # A list has no precision of its own.
    is_rounded = array.dtype.kind == "f" and not is_array
    return tensor.to(torch.get_default_dtype()) if is_rounded else tensor


def _is_networkx(data: Any) -> bool:
    """Whether this is a networkx graph (networkx is not imported for it)."""
    return any(kind.__module__.startswith("networkx.") for kind in type(data).__mro__)


def _from_networkx(graph: Any) -> Data:
    """A networkx graph as `Data`, its nodes in the order of `graph.nodes`.

    `x` is the node attribute "x" if there is one, else all attributes that are numbers or vectors
    of numbers, side by side (`feature_names` says which). "y" or "label" become `y`. The edge
    attribute "weight" becomes `edge_weight`, all other numbers of edges `edge_attr`. Edges without
    direction become two.
    """
    nodes, about_nodes = list(graph.nodes), [graph.nodes[node] for node in graph.nodes]
    position = {node: i for i, node in enumerate(nodes)}
    edges = [(position[u], position[v], about) for u, v, about in graph.edges(data=True)]
    # Edges without direction are two, one after the other.
    edges = [
        edge
        for u, v, about in edges
        for edge in ((u, v, about), (v, u, about))[: 1 if u == v or graph.is_directed() else 2]
    ]
    ends, about_edges = [(u, v) for u, v, _ in edges], [about for _, _, about in edges]
    data = Data(edge_index=torch.tensor(ends, dtype=torch.long).reshape(-1, 2).t().contiguous())
    data.num_nodes = len(nodes)
    data.x, data.feature_names = _columns(about_nodes, nodes, "node")
    for name in _LABELS:
        values = [attributes.get(name) for attributes in about_nodes]
        if values and all(isinstance(value, (int, np.integer, bool)) for value in values):
            data.y = torch.tensor([int(value) for value in values])
            break
    weights = [attributes.get("weight") for attributes in about_edges]
    if weights and all(isinstance(weight, Number) for weight in weights):
        data.edge_weight = torch.tensor(weights, dtype=torch.get_default_dtype())
    data.edge_attr, data.edge_feature_names = _columns(about_edges, ends, "edge")
    if nodes != list(range(len(nodes))):
        data.node_names = [str(node) for node in nodes]
    return data


def _columns(
    rows: list[Mapping[str, Any]], keys: list[Any], item: str
) -> tuple[Tensor | None, list[str] | None]:
    """Numeric attributes side by side, and the names of the columns; None: there are none."""
    combined, left_out = ("x", _LABELS) if item == "node" else ("edge_attr", ("weight",))
    first = {name: np.asarray(value) for name, value in rows[0].items()} if rows else {}
    widths = {
        name: value.size
        for name, value in first.items()
        if name not in left_out and value.dtype.kind in "biuf" and value.ndim <= 1
    }
    if combined in widths:
        widths = {combined: widths[combined]}
    if not widths:
        return None, None
    columns = []
    for name, width in widths.items():
        values = [np.asarray(row.get(name, ())) for row in rows]
        for i, value in enumerate(values):
            if value.size != width or value.dtype.kind not in "biuf":
                numbers = "a number" if width == 1 else f"{width} numbers"
                raise InputError(
                    f"the attribute {name!r} must be {numbers} at every {item} of the networkx "
                    f"graph, got {shown(rows[i].get(name))} at {shown(keys[i])}"
                )
        columns.append(np.stack([value.reshape(-1) for value in values]))
    names = [
        name if width == 1 else f"{name} {i}"
        for name, width in widths.items()
        for i in range(width)
    ]
    return torch.tensor(np.concatenate(columns, 1), dtype=torch.get_default_dtype()), names
