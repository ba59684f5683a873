"""The user's data, with and without types, checked and read into one `Graph`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.data.hypergraph_data import HyperGraphData

from graphsvx.core.arrays import Ids, must_be_readable, shape_of
from graphsvx.core.calling import (
    SUPPLIED,
    CallPlan,
    adjacency_for,
    entry,
    several_graphs,
    signature_of,
)
from graphsvx.core.fingerprints import Stamp, stamp
from graphsvx.core.graph import (
    EDGE_SET,
    Attribute,
    DataForm,
    Graph,
    Owner,
    Statistics,
    computed,
    edge_index_by_target,
    index_by_end,
    statistics_of,
)
from graphsvx.core.names import ADJACENCIES, attribute_names, attribute_of
from graphsvx.core.types import FLAT, EdgeType, Types
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.utils.constraints import as_int
from graphsvx.utils.exclusive import exclusive

_NO_EDGES = (
    "data must have an edge_index of shape [2, edges] (or a sparse adjacency matrix adj_t); it has "
    "none"
)


# --- graphs without types ------------------------------------------------------------------


def check_graph_of(model: Callable[..., Any], data: Any, arguments: Any = None) -> Graph:
    """The checked graph of a question, with types where the model takes them."""
    if arguments is None and is_typed(model, data):
        return check_graph_with_types(data)
    if isinstance(data, HeteroData):
        raise InputError(
            "arguments= names attributes of graphs without types; name those of a HeteroData as "
            "the model does: data[type].attribute for attribute_dict"
        )
    return check_graph(data, adjacency_for(model, data, arguments))


def check_graph(data: Any, adjacency: str | None = None) -> Graph:
    """Check `data` (a PyG `Data` or anything with `x` and `edge_index`) and index it.

    Index and statistics are kept as long as the tensors live and hold the same content.
    `adjacency`: the sparse matrix to read edges from though there is an edge_index too.
    """
    has_length = isinstance(data, Dataset) and hasattr(data, "__len__")
    if has_length or isinstance(data, (list, tuple, DataLoader)):
        got = f"of length {len(data)}; many graphs are explained by explain_many(model, graphs)"
        if not has_length and any(map(torch.is_tensor, data)):
            got = "of tensors; use torch_geometric.data.Data(x=x, edge_index=edge_index)"
        raise InputError(f"data must be one graph, got a {type(data).__name__} {got}")
    if isinstance(data, HyperGraphData):
        raise InputError(uncut("edge_index", "hyperedges"))
    edge_index, weight, attr, form = _edges(data, adjacency)
    x, form = _features(data, edge_index, form)
    with exclusive():  # large tensors are read
        edge_stamp, x_stamp = stamp(edge_index), stamp(x)
        index = edge_index_by_target(edge_index, len(x), edge_stamp)
        statistics = statistics_of(x, x_stamp)
    _must_share_device({"x": x, "edge_index": edge_index, "edge_weight": weight, "edge_attr": attr})
    if weight is not None and weight.dim() != 1:
        raise InputError(f"edge_weight must be of shape [edges], got {list(weight.shape)}")
    stored = _readable(data, "y")
    labels = stored if isinstance(stored, Tensor) else None
    y = labels if shape_of(labels) == x.shape[:1] else None
    if y is not None and y.dtype in (torch.uint16, torch.uint32, torch.uint64):
        y = y.long()  # torch has few operations for these
    stamps = (x_stamp, edge_stamp, *(None if v is None else stamp(v) for v in (weight, attr)))
    return Graph(
        x, edge_index, index, statistics, weight, attr, y, stamps, form=form, labels=labels
    )


def _readable(data: Any, name: str) -> Any:
    """An attribute of the data (None: it has none), which is refused if it cannot be read."""
    value = attribute_of(data, name)
    must_be_readable(value, f"data.{name}")
    return value


def _must_share_device(tensors: Mapping[Any, Any]) -> None:
    places = {name: v.device for name, v in tensors.items() if v is not None}
    if len({*places.values()}) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in places.items())
        first = next(iter(places.values()))
        raise InputError(f'data must be on one device, got {listed}; use data.to("{first}")')


def _features(data: Any, edge_index: Tensor, form: DataForm) -> tuple[Tensor, DataForm]:
    """Features as a table [nodes, features], and the form that they had."""
    x = _readable(data, "x")
    if x is None:
        count = _count_nodes(data, edge_index)
        table = torch.zeros(count, 0, device=edge_index.device)
        return computed(edge_index, "no x", count, lambda: table), replace(form, has_x=False)
    _check_features(x, "data")
    if x.shape[0] == 0:
        raise InputError("the graph is empty: data.x has no rows")
    if x.dim() == 2:
        return x, form
    # A copy: a view would keep x, and with it itself, alive for ever.
    table = computed(x, "table", stamp(x), lambda: x.detach().reshape(len(x), -1).clone())
    return table, replace(form, row_shape=tuple(x.shape[1:]))


def _check_features(x: Any, owner: str) -> None:
    """Raise an InputError unless this is a dense tensor of real numbers with rows."""
    if not isinstance(x, Tensor):
        raise InputError(
            f"{owner}.x must be a tensor of shape [nodes, features], got {type(x).__name__}; use "
            f"torch.tensor({owner}.x)"
        )
    if x.dim() == 0:
        raise InputError(f"{owner}.x must be of shape [nodes, features], got a number")
    if x.layout != torch.strided:
        raise InputError(f"{owner}.x must be a dense tensor; use {owner}.x.to_dense()")
    if x.is_complex():
        raise InputError(
            f"{owner}.x must be floating numbers or categories, got {x.dtype}; use .float()"
        )


def _count_nodes(data: Any, edge_index: Tensor) -> int:
    """Number of nodes of data without x: given, or that of its attributes of nodes."""
    named = attribute_names(data)
    least = int(edge_index.max()) + 1 if edge_index.numel() else 0
    if "num_nodes" in named:
        counts = {int(data.num_nodes)}
    else:
        values = [
            getattr(data, n) for n in named if not {"edge", "index", "face"} & {*n.split("_")}
        ]
        counts = {shape[0] for v in values if (shape := shape_of(v)) >= (least,)}
    if len(counts) != 1:
        raise InputError(
            "data.x must be a tensor [nodes, features], got None; without features (the model "
            "has embeddings of its own) set data.num_nodes"
        )
    count = counts.pop()
    if count < max(1, least):
        raise InputError(f"data.num_nodes must be at least {max(1, least)}, got {count}")
    return count


def _edges(
    data: Any, adjacency: str | None
) -> tuple[Tensor, Tensor | None, Tensor | None, DataForm]:
    """edge_index, edge_weight and edge_attr, and the form in which the data has them."""
    edge_index = _readable(data, "edge_index")
    if edge_index is None:
        adjacency = next((n for n in ADJACENCIES if attribute_of(data, n) is not None), None)
    if adjacency is not None:
        ends, values, layout = _entries(data, adjacency)
        weight, attr = (values, None) if values.dim() == 1 else (None, values)
        return ends, weight, attr, DataForm(layout=layout)
    if edge_index is not None:
        _check_edge_index(edge_index)
        weight, attr = (_edge_values(data, n, edge_index.shape[1]) for n in _EDGE_VALUES)
        return edge_index, weight, attr, DataForm()
    # Other edges than edge_index, or positions that a model makes edges from.
    names = [n for n in attribute_names(data) if n == "pos" or n.endswith("edge_index")]
    other = next((value for n in names if shape_of(value := getattr(data, n))), None)
    if other is None:
        raise InputError(_NO_EDGES)
    none = torch.zeros(2, 0, dtype=torch.long, device=other.device)
    none = computed(other, "no edges", None, lambda: none)
    return none, None, None, DataForm(has_edges=False)


_EDGE_VALUES = ("edge_weight", "edge_attr")


def _edge_values(data: Any, name: str, edges: int) -> Tensor | None:
    value = _readable(data, name)
    if value is None:
        return None
    if not _is_dense(value) or value.shape[:1] != (edges,):
        raise InputError(
            f"data.{name} must have one row for each of the {edges} edges, got {_shape(value)}"
        )
    return value


def _shape(value: Any) -> str:
    return str(list(value.shape)) if _is_dense(value) else type(value).__name__


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided


def _entries(data: Any, adjacency: str) -> tuple[Tensor, Tensor, torch.layout]:
    """Edges, values and layout of a matrix whose row i is the edges into node i."""
    matrix = _readable(data, adjacency)
    dense, dims = _is_dense(matrix), len(shape_of(matrix))
    if dims < 2 or (dense and dims > 2):
        raise InputError(
            f"data.{adjacency} must be a tensor of shape [nodes, nodes], sparse or dense, got "
            f"{_shape(matrix)}; a SparseTensor becomes one by to_torch_sparse_csr_tensor()"
        )

    def make() -> tuple[Tensor, Tensor]:
        entries = matrix.detach().to_sparse(layout=torch.sparse_coo).coalesce()
        return entries.indices().flip(0).contiguous(), entries.values().clone()

    try:
        stored = matrix.coalesce() if matrix.layout == torch.sparse_coo else matrix
        version = stamp(matrix if dense else stored.values())[1]
        return *computed(matrix, "entries", version, make), matrix.layout
    except RuntimeError as error:
        raise InputError(
            f"data.{adjacency} must be a plain tensor of floats or integers, got "
            f"{type(matrix).__name__} of {matrix.dtype}"
        ) from error


def _check_edge_index(edge_index: Any, owner: str = "data") -> None:
    """Raise an InputError unless this is a dense [2, edges] tensor of integers."""
    if not _is_dense(edge_index):
        remedy = f"use torch.tensor({owner}.edge_index)"
        if isinstance(edge_index, Tensor) or hasattr(edge_index, "coo"):
            remedy = "name a sparse adjacency matrix adj_t (row i holds the edges into node i)"
        raise InputError(
            f"{owner}.edge_index must be a dense tensor of shape [2, edges], "
            f"got {type(edge_index).__name__}; {remedy}"
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.long:
        raise InputError(
            f"{owner}.edge_index must be of shape [2, edges] and type torch.long, got "
            f"{list(edge_index.shape)} and {edge_index.dtype}; use .long()"
        )


# --- further attributes that a model takes -------------------------------------------------


def with_attributes(graph: Graph, data: Any, plan: CallPlan) -> Graph:
    """The graph with all attributes of `data` that the model takes.

    Of nodes, edges or the graph, by their size. Pairs of nodes by number (pos_edge_index) are edges
    too: the graph has all of them, beside those of edge_index if the model takes these.
    """
    takes_edges = bool(plan.attributes & {"edge_index", *ADJACENCIES})
    if takes_edges and not graph.form.has_edges:
        raise InputError(_NO_EDGES)
    supplied = SUPPLIED - {"batch"} if several_graphs(data) else SUPPLIED
    values = {name: _readable(data, name) for name in sorted(plan.attributes - supplied)}
    edges = {n: v for n, v in values.items() if _is_edge_index(n, v, graph.num_nodes)}
    attributes = {n: _attribute(graph, n, v) for n, v in values.items() if n not in edges}
    rows = {name: a.value for name, a in attributes.items() if a.owner != "graph"}
    _must_share_device({"x": graph.x, **edges, **rows})
    if edges:
        graph, attributes = _with_edges(graph, edges, attributes, takes_edges)
    if not attributes:
        return graph
    attribute_values = (attribute.value for attribute in attributes.values())
    stamps = (stamp(value) if _is_dense(value) else None for value in attribute_values)
    return replace(graph, attributes=attributes, stamps=(*graph.stamps, *stamps))


def names_nodes(name: str, value: Any) -> bool:
    """Whether a value refers to several nodes at once, by numbers or as a matrix of nodes.

    By name, as PyG has it: `*index*` and `face` are numbers of nodes, `adj*` are matrices.
    """
    if isinstance(value, (list, tuple)):
        value = next((part for part in value if shape_of(part)), None)
    several = len(shape_of(value)) >= 2
    numbers = several and not value.is_floating_point() and value.layout == torch.strided
    return (numbers and ("index" in name or name == "face")) or (several and name.startswith("adj"))


def uncut(name: str, kind: str) -> str:
    """Why an attribute that names nodes cannot be used, and what to do."""
    return (
        f"data.{name} ({kind}) refers to nodes, and would stay as it is when these are switched "
        f"off; give the model a function of (x, edge_index) that makes {name} from edge_index"
    )


def _is_edge_index(name: str, value: Any, nodes: int) -> bool:
    """Whether a tensor holds pairs of nodes, [2, pairs]; hyperedges are no nodes."""
    if "index" not in name or "hyper" in name or not names_nodes(name, value):
        return False
    if len(shape_of(value)) != 2 or value.shape[0] != 2:
        return False
    return not value.numel() or (int(value.min()) >= 0 and int(value.max()) < nodes)


def _with_edges(
    graph: Graph, edges: Mapping[str, Tensor], attributes: dict[str, Attribute], takes_edges: bool
) -> tuple[Graph, dict[str, Attribute]]:
    """The graph with all edges that the model takes, and the attributes of each."""
    parts = {"edge_index": graph.edge_index, **edges} if takes_edges else dict(edges)
    counts = [part.shape[1] for part in parts.values()]
    version = tuple(stamp(part) for part in parts.values())
    source = next(iter(edges.values()))
    union = computed(source, "all edges", version, lambda: torch.cat([*parts.values()], 1))
    edge_set = torch.arange(len(parts)).repeat_interleave(torch.tensor(counts)).to(source.device)
    members: dict[str, list[str]] = {name: [name] for name in parts}

    def spread(name: str, value: Tensor, owner: str) -> Tensor:
        """A row for each edge of the union; those of other edges are 0."""
        members[owner].append(name)
        rows = value.new_zeros(len(edge_set), *value.shape[1:])
        rows[edge_set == [*parts].index(owner)] = value
        return rows

    weight, attr = (
        None if value is None or not takes_edges else spread(name, value, "edge_index")
        for name, value in zip(_EDGE_VALUES, (graph.edge_weight, graph.edge_attr), strict=True)
    )
    for name, attribute in attributes.items():
        owner = _edges_of(name, attribute, parts)
        if owner is not None:
            attributes[name] = Attribute("edges", spread(name, attribute.value, owner))
    union_stamp = stamp(union)
    joined = replace(
        graph,
        edge_index=union,
        edge_weight=weight,
        edge_attr=attr,
        index=edge_index_by_target(union, graph.num_nodes, union_stamp),
        form=replace(graph.form, edge_sets=tuple(map(tuple, members.values()))),
        stamps=(graph.stamps[0], union_stamp, *graph.stamps[2:]),
    )
    return joined, {**attributes, EDGE_SET: Attribute("edges", edge_set)}


def _edges_of(name: str, attribute: Attribute, parts: Mapping[str, Tensor]) -> str | None:
    """Whose edges an attribute has a row for: pos_edge_attr goes with pos_edge_index."""
    if attribute.owner == "edges":
        return "edge_index" if "edge_index" in parts else None
    rows = shape_of(attribute.value)[:1]
    return next(
        (
            part
            for part, pairs in parts.items()
            if name.startswith(part.removesuffix("index")) and rows == tuple(pairs.shape[1:])
        ),
        None,
    )


def _attribute(graph: Graph, name: str, value: Any) -> Attribute:
    rows = shape_of(value)[:1]
    if not rows or names_nodes(name, value) or ("index" in name and not value.is_floating_point()):
        return Attribute("graph", value)
    owners: dict[Owner, int] = {"nodes": graph.num_nodes, "edges": graph.num_edges}
    fitting: list[Owner] = [o for o, count in owners.items() if rows == (count,)]
    if len(fitting) == 2:  # as many nodes as edges: the name tells, as in PyG
        fitting = ["edges"] if "edge" in name else ["nodes"]
    if fitting and value.layout != torch.strided:
        raise InputError(f"data.{name} must be a dense tensor, got a sparse one; use .to_dense()")
    return Attribute(fitting[0] if fitting else "graph", value)


# --- graphs with types ---------------------------------------------------------------------


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
    if not shape_of(attribute_of(data, "edge_type")) or not callable(model):
        return False
    return "edge_type" in signature_of(entry(model, by_type=True)[1])


def check_graph_with_types(data: Any) -> Graph:
    """Check HeteroData (or Data with `edge_type`) and number its nodes and edges over all types.

    Kept as long as the first edge_index lives and all tensors hold the same content.
    """
    flat = not isinstance(data, HeteroData)
    parts = _of_one_type(data) if flat else data
    if not parts.edge_types:
        raise InputError("the graph has no edge types; set data[source, relation, target]")
    counts = {name: _count(parts, name) for name in parts.node_types}
    tensors: dict[tuple[Any, str], Tensor] = {}
    for kind, store in [*parts.node_items(), *parts.edge_items()]:
        for name, value in store.items():
            must_be_readable(value, f"data[{kind!r}].{name}")
            if isinstance(value, Tensor):
                tensors[kind, name] = value
    for edge_type, store in parts.edge_items():
        _check_ends(edge_type, store, counts, "data" if flat else f"data[{edge_type!r}]")
    with exclusive():
        stamps = tuple(stamp(value) for value in tensors.values())
        same = tuple((key, id(value)) for key, value in tensors.items())
        version = (same, stamps, tuple(counts.items()))
        return computed(
            parts.edge_stores[0]["edge_index"],
            "typed",
            version,
            lambda: _numbered(parts, flat, counts, tensors, stamps),
        )


def _of_one_type(data: Any) -> HeteroData:
    """`Data`, whose edges have types, with the type `FLAT` of nodes and one of edges."""
    values = dict(data.items()) if isinstance(data, Data) else dict(vars(data))
    count, edges = int(data.num_nodes), values["edge_index"].shape[1]
    parts = HeteroData()
    parts[FLAT].num_nodes = count
    for name, value in values.items():
        has_edge_rows = shape_of(value)[:1] == (edges,) != (count,)
        of_edges = name in ("edge_index", "edge_type", *_EDGE_VALUES) or has_edge_rows
        parts[(FLAT, "", FLAT) if of_edges else FLAT][name] = value
    return parts


def _count(data: HeteroData, node_type: str) -> int:
    count = None
    with suppress(IndexError, TypeError, ValueError, RuntimeError):  # of what is no table
        count = data[node_type].num_nodes
    if count is None:
        raise InputError(f"data[{node_type!r}] must have a table x or num_nodes, got neither")
    return as_int(count, f"data[{node_type!r}].num_nodes")


def _check_ends(
    edge_type: EdgeType, store: Mapping[str, Any], counts: Mapping[str, int], owner: str
) -> None:
    """Raise an InputError unless the edges of a type name nodes of its two node types."""
    edge_index = store.get("edge_index")
    if edge_index is None:
        has = "a sparse adj_t; keep edge_index beside it by ToSparseTensor(remove_edge_index=False)"
        raise InputError(
            f"{owner} must have an edge_index of shape [2, edges], it has "
            f"{has if 'adj_t' in store else 'none'}"
        )
    _check_edge_index(edge_index, owner)
    for end, node_type in enumerate(edge_type[::2]):
        count, ids = counts.get(node_type), edge_index[end]
        if count is None:
            raise InputError(f"{owner} names the node type {node_type!r}; the data has {[*counts]}")
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= count):
            raise InputError(
                f"{owner}.edge_index[{end}] must name nodes of type {node_type!r} from 0 to "
                f"{count - 1}, got {int(ids.min())} to {int(ids.max())}"
            )


def _numbered(
    parts: HeteroData,
    flat: bool,
    counts: Mapping[str, int],
    tensors: Mapping[tuple[Any, str], Tensor],
    stamps: tuple[Stamp, ...],
) -> Graph:
    """The graph with nodes and edges numbered one type after the other."""
    located = {"x", "edge_index", *_EDGE_VALUES}
    _must_share_device(
        {f"{name} of {kind!r}": v for (kind, name), v in tensors.items() if name in located}
    )
    if not sum(counts.values()):
        raise InputError("the graph is empty: no node type has nodes")
    features = {name: store["x"] for name, store in parts.node_items() if "x" in store}
    for name, x in features.items():
        owner = "data" if flat else f"data[{name!r}]"
        _check_features(x, owner)
        if len(x) != counts[name]:
            raise InputError(
                f"{owner}.x must have a row for each of the {counts[name]} nodes, got {len(x)}"
            )
    edge_counts = {name: store["edge_index"].shape[1] for name, store in parts.edge_items()}
    edge_types, edge_type = _relations(parts) if flat else (tuple(edge_counts), None)
    named = {n: store.get("node_names" if flat else "names") for n, store in parts.node_items()}
    types = Types(
        node_types=tuple(counts),
        edge_types=edge_types,
        node_starts=np.cumsum([0, *counts.values()], dtype=np.int64),
        edge_starts=np.cumsum([0, *(() if flat else edge_counts.values())], dtype=np.int64),
        features=features,
        flat=flat,
        given_edge_type=edge_type,
        node_values=_values_by_name(parts.node_items(), counts, "x"),
        edge_values=_values_by_name(parts.edge_items(), edge_counts, "edge_index"),
        names={
            name: tuple(map(str, names))
            for name, names in named.items()
            if isinstance(names, (list, tuple)) and len(names) == counts[name]
        },
    )
    first = dict(zip(counts, types.node_starts.tolist(), strict=False))
    ends: list[Tensor] = []
    for (source, _, target), store in parts.edge_items():
        shift = torch.tensor([[first[source]], [first[target]]])
        ends.append(store["edge_index"] + shift.to(store["edge_index"].device))
    # Mean and deviation of every feature over the nodes of its type, types one after another.
    of_types = [statistics_of(features[name]) for name in types.node_types if types.width(name)]
    none, edge_index = torch.zeros(0, dtype=torch.float64), torch.cat(ends, 1)
    return Graph(
        x=torch.zeros(sum(counts.values()), 0, device=edge_index.device),
        edge_index=edge_index,
        index=index_by_end(edge_index[1], sum(counts.values())),
        statistics=Statistics(
            torch.cat([none, *(part.mean.cpu() for part in of_types)]),
            torch.cat([none, *(part.std.cpu() for part in of_types)]),
        ),
        stamps=stamps,
        given_types=types,
    )


def _relations(parts: HeteroData) -> tuple[tuple[EdgeType, ...], Ids]:
    """Of a flat graph: the edge types, and the position of each edge's type."""
    (store,) = parts.edge_stores
    kinds, edges = store["edge_type"], store["edge_index"].shape[1]
    if kinds.dim() != 1 or len(kinds) != edges or kinds.is_floating_point():
        raise InputError(
            f"data.edge_type must be one integer for each of the {edges} edges, got {kinds.dtype} "
            f"of shape {list(kinds.shape)}"
        )
    edge_type = kinds.cpu().numpy().astype(np.int64)
    if len(edge_type) and edge_type.min() < 0:
        raise InputError(f"data.edge_type must be 0 or more, got {edge_type.min()}")
    count, names = int(edge_type.max(initial=-1)) + 1, parts[FLAT].get("relation_names")
    if not isinstance(names, (list, tuple)) or len(names) < count:
        names = range(count)
    return tuple((FLAT, str(name), FLAT) for name in names), edge_type


def _values_by_name(
    stores: Iterable[tuple[Any, Mapping[str, Any]]], counts: Mapping[Any, int], leave: str
) -> dict[str, dict[Any, Tensor]]:
    values: dict[str, dict[Any, Tensor]] = {}
    for kind, store in stores:
        for name, value in store.items():
            if name != leave and shape_of(value)[:1] == (counts[kind],):
                values.setdefault(name, {})[kind] = value
    return values
