"""Graphs with types from PyG's HeteroData, or Data with `edge_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data, HeteroData, TemporalData

from graphsvx.core.arrays import Ids
from graphsvx.core.calling import embedding_method
from graphsvx.core.edge_index import check_edge_index, index_by_end
from graphsvx.core.fingerprints import Stamp, stamp
from graphsvx.core.graph import Graph, check_graph, must_share_device
from graphsvx.core.readable import must_be_readable
from graphsvx.core.statistics import Statistics, statistics_of
from graphsvx.core.types import FLAT, EdgeType, Types
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.utils.constraints import as_int
from graphsvx.utils.exclusive import exclusive

# By the first edge_index: data objects cannot be keys.
_CHECKED: Any = WeakTensorKeyDictionary()


def is_typed(model: Callable[..., Any], data: Any) -> bool:
    """Whether this is a question about a typed graph: HeteroData, or a model of `edge_type`."""
    if isinstance(data, TemporalData):
        raise UnsupportedError(
            "a stream of events (TemporalData) is not explained: its models keep a memory of what "
            "they have seen, so that no event can be left out alone; make a Data or HeteroData of "
            "the events up to one moment and explain a model of that"
        )
    if isinstance(data, HeteroData):
        return True
    typed_edges = isinstance(getattr(data, "edge_type", None), Tensor)
    return typed_edges and callable(model) and "edge_type" in embedding_method(model)[1]


def check_graph_of(model: Callable[..., Any], data: Any) -> Graph:
    """The checked graph of a question, with types where the model takes them."""
    return check_graph_with_types(data) if is_typed(model, data) else check_graph(data)


def check_graph_with_types(data: Any) -> Graph:
    """Check HeteroData (or Data with `edge_type`) and number its nodes and edges over all types.

    Cached as long as the data object lives and its tensors hold the same content.
    """
    parts = _parts(data)
    if not parts.edges:
        raise InputError("the graph has no edge types; set data[source, relation, target]")
    for edge_type, store in parts.edges.items():
        if "adj_t" in store and "edge_index" not in store:
            raise InputError(
                f"data[{edge_type}] has a sparse adj_t; typed graphs are explained with "
                "edge_index: leave the transform ToSparseTensor out, or keep edge_index beside it "
                "(remove_edge_index=False)"
            )
        _check_edge_index(store.get("edge_index"), edge_type, parts)
    key = next(iter(parts.edges.values()))["edge_index"]
    with exclusive():
        stamps = tuple(
            (name, kind, id(value), stamp(value)) for name, kind, value in _tensors(parts)
        )
        seen = (stamps, tuple(parts.counts.items()))
        cached = _CHECKED.get(key)
        if cached is None or cached[0] != seen:
            cached = _CHECKED[key] = (seen, _build(parts, tuple(entry[3] for entry in stamps)))
    graph: Graph = cached[1]
    return graph


@dataclass(frozen=True, eq=False)
class _Parts:
    """The attributes of a typed graph by node and edge type."""

    flat: bool
    counts: dict[str, int]
    nodes: dict[str, dict[str, Any]]
    edges: dict[EdgeType, dict[str, Any]]


def _parts(data: Any) -> _Parts:
    if isinstance(data, HeteroData):
        counts = {}
        for name in data.node_types:
            try:
                count = data[name].num_nodes
            except (IndexError, TypeError, ValueError, RuntimeError):  # of what is no table
                count = None
            if count is None:
                raise InputError(f"data[{name!r}] must have a table x or num_nodes, got neither")
            counts[name] = as_int(count, f"data[{name!r}].num_nodes")
        return _Parts(
            False,
            counts,
            {name: dict(data[name].items()) for name in data.node_types},
            {name: dict(data[name].items()) for name in data.edge_types},
        )
    values = dict(data.items()) if isinstance(data, Data) else dict(vars(data))
    count = int(data.num_nodes)
    edges = values["edge_index"].shape[1]
    per_edge = {"edge_index", "edge_type", "edge_attr", "edge_weight"} | {
        name
        for name, value in values.items()
        if isinstance(value, Tensor) and value.dim() and value.shape[0] == edges != count
    }
    return _Parts(
        True,
        {FLAT: count},
        {FLAT: {name: value for name, value in values.items() if name not in per_edge}},
        {(FLAT, "", FLAT): {name: values[name] for name in per_edge if name in values}},
    )


def _tensors(parts: _Parts) -> list[tuple[Any, str, Tensor]]:
    stores = [*parts.nodes.items(), *parts.edges.items()]
    for kind, store in stores:
        for name, value in store.items():
            must_be_readable(value, f"data[{kind!r}].{name}")
    return [
        (kind, name, value)
        for kind, store in stores
        for name, value in store.items()
        if isinstance(value, Tensor)
    ]


def _build(parts: _Parts, stamps: tuple[Stamp, ...]) -> Graph:
    must_share_device(
        {
            f"{name} of {kind!r}": value
            for kind, name, value in _tensors(parts)
            if name in ("x", "edge_index", "edge_attr", "edge_weight")
        }
    )
    node_types = tuple(parts.counts)
    if not sum(parts.counts.values()):
        raise InputError("the graph is empty: no node type has nodes")
    starts = np.concatenate([[0], np.cumsum(list(parts.counts.values()))]).astype(np.int64)
    first = dict(zip(node_types, starts.tolist(), strict=False))
    ends: list[Tensor] = []
    for (source, _, target), store in parts.edges.items():
        edge_index = store["edge_index"]
        shift = torch.tensor([[first[source]], [first[target]]])
        ends.append(edge_index + shift.to(edge_index.device))
    device = ends[0].device
    edge_index = torch.cat(ends, 1)
    x = torch.zeros(int(starts[-1]), 0, device=device)
    features = _features(parts)
    edge_types, edge_type, edge_starts = _edge_types(parts)
    types = Types(
        node_types=node_types,
        edge_types=edge_types,
        node_starts=starts,
        edge_starts=edge_starts,
        features=features,
        flat=parts.flat,
        given_edge_type=edge_type,
        node_values=_values_by_name(parts.nodes, parts.counts, {"x"}),
        edge_values=_values_by_name(
            parts.edges,
            {name: store["edge_index"].shape[1] for name, store in parts.edges.items()},
            {"edge_index"},
        ),
        names=_names(parts),
    )
    return Graph(
        x=x,
        edge_index=edge_index,
        edge_weight=None,
        edge_attr=None,
        y=None,
        index=index_by_end(edge_index[1], int(starts[-1])),
        statistics=_statistics(features, node_types),
        stamps=stamps,
        given_types=types,
    )


def _check_edge_index(edge_index: Any, edge_type: EdgeType, parts: _Parts) -> None:
    owner = "data" if parts.flat else f"data[{edge_type}]"
    if edge_index is None:
        raise InputError(f"{owner} must have an edge_index of shape [2, edges], it has none")
    check_edge_index(edge_index, owner)
    for end, node_type in ((0, edge_type[0]), (1, edge_type[2])):
        count = parts.counts.get(node_type)
        if count is None:
            raise InputError(
                f"{owner} names the node type {node_type!r}; the data has {list(parts.counts)}"
            )
        ids = edge_index[end]
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= count):
            raise InputError(
                f"{owner}.edge_index[{end}] must name nodes of type {node_type!r} from 0 to "
                f"{count - 1}, got {int(ids.min())} to {int(ids.max())}"
            )


def _edge_types(parts: _Parts) -> tuple[tuple[EdgeType, ...], Ids | None, Ids]:
    """The edge types, the position of each edge's type, and the first edge of each."""
    if not parts.flat:
        counts = [store["edge_index"].shape[1] for store in parts.edges.values()]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return tuple(parts.edges), None, starts
    (store,) = parts.edges.values()
    kinds = store["edge_type"]
    if kinds.dim() != 1 or len(kinds) != store["edge_index"].shape[1] or kinds.is_floating_point():
        raise InputError(
            f"data.edge_type must be one integer for each of the {store['edge_index'].shape[1]} "
            f"edges, got {kinds.dtype} of shape {list(kinds.shape)}"
        )
    edge_type = kinds.cpu().numpy().astype(np.int64)
    if len(edge_type) and edge_type.min() < 0:
        raise InputError(f"data.edge_type must be 0 or more, got {edge_type.min()}")
    (nodes,) = parts.nodes.values()
    count = int(edge_type.max(initial=-1)) + 1
    relation_names = nodes.get("relation_names")
    labels = [str(r) for r in range(count)]
    if isinstance(relation_names, (list, tuple)) and len(relation_names) >= count:
        labels = [str(name) for name in relation_names]
    return tuple((FLAT, label, FLAT) for label in labels), edge_type, np.zeros(1, dtype=np.int64)


def _features(parts: _Parts) -> dict[str, Tensor]:
    features = {}
    for name, store in parts.nodes.items():
        x = store.get("x")
        if x is None:
            continue
        attribute = "data.x" if parts.flat else f"data[{name!r}].x"
        if not isinstance(x, Tensor) or x.layout != torch.strided or x.dim() == 0:
            raise InputError(
                f"{attribute} must be a dense tensor with a row for each node, "
                f"got {type(x).__name__}"
            )
        if x.shape[0] != parts.counts[name]:
            raise InputError(
                f"{attribute} must have a row for each of the {parts.counts[name]} nodes, "
                f"got {x.shape[0]}"
            )
        features[name] = x
    return features


def _statistics(features: dict[str, Tensor], node_types: tuple[str, ...]) -> Statistics:
    """Mean and deviation of every feature over the nodes of its type, types one after another."""
    parts = [
        statistics_of(features[name])
        for name in node_types
        if name in features and features[name].is_floating_point() and features[name].dim() == 2
    ]
    none = torch.zeros(0, dtype=torch.float64)
    return Statistics(
        torch.cat([none, *(part.mean.cpu() for part in parts)]),
        torch.cat([none, *(part.std.cpu() for part in parts)]),
    )


def _values_by_name(
    stores: Mapping[Any, dict[str, Any]], counts: Mapping[Any, int], leave: set[str]
) -> dict[str, dict[Any, Tensor]]:
    """Attributes that have a row for each node (edge) of their type."""
    values: dict[str, dict[Any, Tensor]] = {}
    for kind, store in stores.items():
        for name, value in store.items():
            rows = isinstance(value, Tensor) and value.dim() and value.shape[0] == counts[kind]
            if rows and name not in leave:
                values.setdefault(name, {})[kind] = value
    return values


def _names(parts: _Parts) -> dict[str, tuple[str, ...]]:
    names = {}
    for kind, store in parts.nodes.items():
        listed = store.get("node_names" if parts.flat else "names")
        if isinstance(listed, (list, tuple)) and len(listed) == parts.counts[kind]:
            names[kind] = tuple(map(str, listed))
    return names
