"""Nodes, features and outputs by name; graphs of networkx, dictionaries and collections as data."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Batch, Data

from graphsvx.errors import InputError, TargetError
from graphsvx.utils.constraints import checked, shown
from graphsvx.utils.printable import did_you_mean

ADJACENCIES = ("adj_t", "adj")
"""Sparse adjacency matrices by name: row i holds the edges into node i."""
NameList = tuple[str, ...] | None


def attribute_names(data: Any) -> list[str]:
    """Names of the attributes that `data` holds itself."""
    if hasattr(data, "keys"):
        return [*data.keys()]
    return [*vars(data)] if hasattr(data, "__dict__") else []


def attribute_of(data: Any, name: str) -> Any:
    """An attribute of the user's data; None: it has none."""
    return getattr(data, name, None)


@dataclass(frozen=True, eq=False)
class Names:
    """Names of features (columns of x), nodes and outputs; None: numbers are used."""

    features: NameList = None
    nodes: NameList = None
    classes: NameList = None
    edge_features: NameList = None
    graph: str | None = None
    """The name of the whole graph."""
    positions: Mapping[Hashable, int] | None = None
    """Nodes by what the data calls them itself (networkx)."""

    @cached_property
    def _node_ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.nodes or ())}

    def check(self, nodes: int, columns: int, row_shape: tuple[int, ...] | None) -> None:
        """Raise InputError unless every node and feature has a name, where names are given."""
        series = row_shape[-1] if row_shape else columns
        for name, names, counts in (
            ("node_names", self.nodes, {nodes}),
            ("feature_names", self.features, {columns, series}),
        ):
            if names is not None and len(names) not in counts:
                item = name.removesuffix("_names")
                raise InputError(
                    f"{name} must name each of the {min(counts)} {item}s, got {len(names)} names"
                )

    def node(self, node: Any) -> Any:
        """The position of a node given by name; anything else as it is."""
        if node is not None and self.positions is not None and isinstance(node, Hashable):
            if node in self.positions:
                return self.positions[node]
            raise InputError(f"the graph has no node {shown(node)}")
        return _position(node, "node", "node_names", self.nodes, self._node_ids, InputError)

    def node_group(self, nodes: Any) -> Any:
        """Positions of several nodes, some of which may be given by name."""
        plain = isinstance(nodes, (Tensor, np.ndarray, str, bytes, type))
        if plain or not hasattr(nodes, "__iter__"):
            return nodes
        return [self.node(node) for node in nodes]

    def target(self, target: Any) -> Any:
        """The number of an output given by name; anything else as it is."""
        positions = {name: i for i, name in enumerate(self.classes or ())}
        return _position(target, "target", "class_names", self.classes, positions, TargetError)


def _position(
    name: Any,
    argument: str,
    listed: str,
    names: NameList,
    positions: Mapping[str, int],
    error: type[InputError],
) -> Any:
    if not isinstance(name, str):
        return name
    if names is None:
        raise error(
            f"{argument} must be an integer, got {shown(name)}; to ask by name give {listed}="
        )
    if name not in positions:
        raise error(
            f"{argument} must be one of {listed}, got {shown(name)}; "
            f"{did_you_mean(name, names[:10_000])}they are {', '.join(names[:10])}"
        )
    if len(positions) < len(names) and names.count(name) > 1:
        raise error(
            f"{listed} must differ to ask by name, got {shown(name)} twice; give its number"
        )
    return positions[name]


NUMBERS = Names()


def find_names(
    data: Any,
    *,
    feature_names: Any = None,
    node_names: Any = None,
    class_names: Any = None,
    positions: Mapping[Hashable, int] | None = None,
) -> Names:
    """Names that are given, else those that `data` carries under the same names."""

    def find(value: Any, name: str) -> NameList:
        if value is not None:
            names: NameList = checked(_plain(value), tuple[str, ...] | None, name)
            return names
        stored = _plain(attribute_of(data, name))
        fits = isinstance(stored, (list, tuple)) and all(isinstance(part, str) for part in stored)
        return tuple(stored) if fits and stored else None

    name = attribute_of(data, "name")
    return Names(
        graph=name if isinstance(name, str) and name else None,
        features=find(feature_names, "feature_names"),
        nodes=find(node_names, "node_names"),
        classes=find(class_names, "class_names"),
        edge_features=find(None, "edge_feature_names"),
        positions=positions,
    )


def _plain(names: Any) -> Any:
    return names.tolist() if isinstance(names, np.ndarray) else names


_LABELS = ("y", "label")
"""Attributes of nodes that are no features: what the model predicts."""
_LOADERS_OF_PARTS = ("ClusterLoader", "GraphSAINT", "ShaDow")
"""How the names of PyG's loaders begin whose batches are subgraphs of a single graph."""


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
            if kind.startswith(_LOADERS_OF_PARTS):
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
    if not isinstance(value, (np.ndarray, list, tuple)):
        return value
    try:
        tensor = torch.from_numpy(np.ascontiguousarray(value))
    except (TypeError, ValueError):  # no numbers, or rows of different lengths
        return value
    # A list has no precision of its own.
    is_rounded = tensor.is_floating_point() and not isinstance(value, np.ndarray)
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
    ends: list[tuple[int, int]] = []
    about_edges: list[Mapping[str, Any]] = []
    for u, v, about in graph.edges(data=True):
        directions = 1 if u == v or graph.is_directed() else 2
        ends += [(position[u], position[v]), (position[v], position[u])][:directions]
        about_edges += [about] * directions
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
    columns, names = [], list[str]()
    for name, width in widths.items():
        values = [np.asarray(row.get(name, ())) for row in rows]
        for row, key, value in zip(rows, keys, values, strict=True):
            if value.size != width or value.dtype.kind not in "biuf":
                numbers = "a number" if width == 1 else f"{width} numbers"
                raise InputError(
                    f"the attribute {name!r} must be {numbers} at every {item} of the networkx "
                    f"graph, got {shown(row.get(name))} at {shown(key)}"
                )
        columns.append(np.stack([value.reshape(-1) for value in values]))
        names += [name] if width == 1 else [f"{name} {i}" for i in range(width)]
    return torch.tensor(np.concatenate(columns, 1), dtype=torch.get_default_dtype()), names
