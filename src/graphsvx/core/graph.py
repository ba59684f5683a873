"""The user's graph: validated once, with cached edge indices and feature statistics.

Nodes and edges have types (`graphsvx.core.types`); a graph without types has one of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Dataset

from graphsvx.core.arrays import Ids
from graphsvx.core.edge_index import Index, check_edge_index, index_by_end
from graphsvx.core.fingerprints import Stamp, stamp
from graphsvx.core.readable import must_be_readable
from graphsvx.core.statistics import Statistics, statistics_of
from graphsvx.core.types import FLAT, Types
from graphsvx.errors import InputError
from graphsvx.utils.exclusive import exclusive


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
EDGE_SET = "edge_set"
"""Internal attribute of edges: which of `DataForm.edge_sets` each one is of."""

Owner = Literal["nodes", "edges", "graph"]
"""Whether an attribute has a row per node, per edge, or one for the graph."""


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
    edge_weight: Tensor | None
    edge_attr: Tensor | None
    y: Tensor | None
    index: Index
    statistics: Statistics
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
        waiting: dict[Any, list[int]] = {}
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
            turned = waiting.get(back, [])
            if turned and forth != back and mine.size:
                relation[at] = turned.pop(0)
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


# Weak references: cached indices are freed with the tensors they were computed from.
_INDEXES: Any = WeakTensorKeyDictionary()
_OUT_EDGES: Any = WeakTensorKeyDictionary()


_CONVERTED: Any = WeakTensorKeyDictionary()

ADJACENCIES = ("adj_t", "adj")
"""Sparse adjacency matrices by name: row i holds the edges into node i."""


def check_graph(data: Any, adjacency: str | None = None) -> Graph:
    """Check `data` (a PyG `Data` or anything with `x` and `edge_index`) and index it.

    Index and statistics are cached as long as the tensors live and hold the same content.
    `adjacency`: the sparse matrix to read edges from though there is an edge_index too.
    """
    if isinstance(data, (list, tuple)) and any(isinstance(part, Tensor) for part in data):
        raise InputError(
            f"data must be one graph, got a {type(data).__name__} of tensors; use "
            f"torch_geometric.data.Data(x=x, edge_index=edge_index)"
        )
    if isinstance(data, (list, tuple, Dataset, DataLoader)):
        raise InputError(
            f"data must be one graph, got a {type(data).__name__} of length {len(data)}; many "
            f"graphs are explained by explain_many(model, graphs)"
        )
    if any(kind.__name__ == "HyperGraphData" for kind in type(data).__mro__):
        raise InputError(uncut("edge_index", "hyperedges"))
    edge_index, weight, attr, layout = _edges(data, adjacency)
    x, form = _features(data, edge_index)
    has_edges = layout is not None or getattr(data, "edge_index", None) is not None
    form = replace(form, layout=layout, has_edges=has_edges)
    with exclusive():  # large tensors are read
        index_key, x_stamp = (stamp(edge_index), x.shape[0]), stamp(x)
        cached = _INDEXES.get(edge_index)
        if cached is None or cached[0] != index_key:
            cached = _INDEXES[edge_index] = (index_key, _make_index(edge_index, x.shape[0]))
        index = cached[1]
        statistics = statistics_of(x, x_stamp)
    must_share_device({"x": x, "edge_index": edge_index, "edge_weight": weight, "edge_attr": attr})
    if weight is not None and weight.dim() != 1:
        raise InputError(f"edge_weight must be of shape [edges], got {list(weight.shape)}")
    labels = getattr(data, "y", None)
    must_be_readable(labels, "data.y")
    labels = labels if isinstance(labels, Tensor) else None
    y = labels if labels is not None and labels.shape == x.shape[:1] else None
    if y is not None and y.dtype in (torch.uint16, torch.uint32, torch.uint64):
        y = y.long()  # torch has few operations for these
    stamps = (x_stamp, index_key[0], *(None if v is None else stamp(v) for v in (weight, attr)))
    return Graph(
        x, edge_index, weight, attr, y, index, statistics, stamps, form=form, labels=labels
    )


def must_share_device(tensors: Mapping[Any, Any]) -> None:
    """Raise an InputError if tensors of the data, by name, are on different devices."""
    places = {name: v.device for name, v in tensors.items() if isinstance(v, Tensor)}
    if len({*places.values()}) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in places.items())
        first = next(iter(places.values()))
        raise InputError(f'data must be on one device, got {listed}; use data.to("{first}")')


def with_attributes(
    graph: Graph, data: Any, names: Iterable[str], takes_edges: bool = True
) -> Graph:
    """The graph with further attributes of `data`: of nodes, edges or the graph, by their size.

    Pairs of nodes by number (pos_edge_index) are edges too: the graph has all of them, beside
    those of edge_index if the model takes these.
    """
    edges: dict[str, Tensor] = {}
    attributes: dict[str, Attribute] = {}
    for name in names:
        value = getattr(data, name)
        must_be_readable(value, f"data.{name}")
        if is_edge_index(name, value, graph.num_nodes):
            edges[name] = value
        else:
            attributes[name] = _attribute(graph, name, value)
    rows = {name: a.value for name, a in attributes.items() if a.owner != "graph"}
    must_share_device({"x": graph.x, **edges, **rows})
    if edges:
        graph, attributes = _joined(graph, edges, attributes, takes_edges)
    if not attributes:
        return graph
    tensors = [attribute.value for attribute in attributes.values()]
    stamps = [
        stamp(v) if isinstance(v, Tensor) and v.layout == torch.strided else None for v in tensors
    ]
    return replace(graph, attributes=attributes, stamps=(*graph.stamps, *stamps))


def names_nodes(name: str, value: Any) -> bool:
    """Whether a value refers to several nodes at once, by numbers or as a matrix of nodes.

    By name, as PyG has it: `*index*` and `face` are numbers of nodes, `adj*` are matrices.
    """
    if isinstance(value, (list, tuple)):
        value = next((part for part in value if isinstance(part, Tensor)), None)
    several = isinstance(value, Tensor) and value.dim() >= 2
    numbers = several and not value.is_floating_point() and value.layout == torch.strided
    return (numbers and ("index" in name or name == "face")) or (several and name.startswith("adj"))


def is_edge_index(name: str, value: Any, nodes: int) -> bool:
    """Whether a tensor holds pairs of nodes, [2, pairs]; hyperedges are no nodes."""
    if not isinstance(value, Tensor) or not names_nodes(name, value) or "hyper" in name:
        return False
    if "index" not in name or value.dim() != 2 or value.shape[0] != 2:
        return False
    return not value.numel() or (int(value.min()) >= 0 and int(value.max()) < nodes)


def uncut(name: str, kind: str) -> str:
    """Why an attribute that names nodes cannot be used, and what to do."""
    return (
        f"data.{name} ({kind}) refers to nodes, and would stay as it is when these are switched "
        f"off; give the model a function of (x, edge_index) that makes {name} from edge_index"
    )


def _joined(
    graph: Graph, edges: Mapping[str, Tensor], attributes: dict[str, Attribute], takes_edges: bool
) -> tuple[Graph, dict[str, Attribute]]:
    """The graph with all edges that the model takes, and the attributes of each."""
    parts: dict[str, Tensor] = {"edge_index": graph.edge_index} if takes_edges else {}
    parts |= edges
    counts = [part.shape[1] for part in parts.values()]
    source = next(iter(edges.values()))
    key = ("edges", *(stamp(part) for part in parts.values()))

    def join() -> tuple[Tensor, Tensor]:
        of = torch.arange(len(parts)).repeat_interleave(torch.tensor(counts))
        return torch.cat([*parts.values()], 1), of.to(source.device)

    union, edge_set = _once(source, key, join)
    members: dict[str, list[str]] = {name: [name] for name in parts}

    def spread(name: str, value: Tensor, owner: str) -> Tensor:
        """A row for each edge of the union; those of other edges are 0."""
        members[owner].append(name)
        at = [*parts].index(owner)

        def make() -> Tensor:
            rows = value.new_zeros(sum(counts), *value.shape[1:])
            rows[sum(counts[:at]) : sum(counts[: at + 1])] = value
            return rows

        result: Tensor = _once(value, (key, owner), make)
        return result

    changed: dict[str, Any] = {"edge_weight": None, "edge_attr": None}
    for name in changed:
        value = getattr(graph, name)
        if value is not None and takes_edges:
            changed[name] = spread(name, value, "edge_index")
    for name, attribute in attributes.items():
        owner = _edges_of(name, attribute, parts)
        if owner is not None:
            attributes[name] = Attribute("edges", spread(name, attribute.value, owner))
    joined = replace(
        graph,
        edge_index=union,
        index=_make_index(union, graph.num_nodes),
        form=replace(graph.form, edge_sets=tuple(map(tuple, members.values()))),
        stamps=(graph.stamps[0], stamp(union), *graph.stamps[2:]),
        **changed,
    )
    return joined, {**attributes, EDGE_SET: Attribute("edges", edge_set)}


def _edges_of(name: str, attribute: Attribute, parts: Mapping[str, Tensor]) -> str | None:
    """Whose edges an attribute has a row for: pos_edge_attr goes with pos_edge_index."""
    if attribute.owner == "edges":
        return "edge_index" if "edge_index" in parts else None
    rows = attribute.value.shape[:1] if isinstance(attribute.value, Tensor) else None
    for part, pairs in parts.items():
        if name.startswith(part.removesuffix("index")) and rows == pairs.shape[1:]:
            return part
    return None


def _attribute(graph: Graph, name: str, value: Any) -> Attribute:
    rows = value.shape[0] if isinstance(value, Tensor) and value.dim() else None
    numbers = isinstance(value, Tensor) and not value.is_floating_point()
    if names_nodes(name, value) or (numbers and "index" in name):
        return Attribute("graph", value)
    owners: dict[Owner, int] = {"nodes": graph.num_nodes, "edges": graph.num_edges}
    fitting: list[Owner] = [owner for owner, count in owners.items() if rows == count]
    if len(fitting) == 2:  # as many nodes as edges: the name tells, as in PyG
        fitting = ["edges"] if "edge" in name else ["nodes"]
    if fitting and value.layout != torch.strided:
        raise InputError(f"data.{name} must be a dense tensor, got a sparse one; use .to_dense()")
    return Attribute(fitting[0] if fitting else "graph", value)


def converted(graph: Graph, dtype: torch.dtype) -> Graph:
    """The graph with x, weights and attributes that are floating numbers in another type."""

    def change(value: Any) -> Any:
        is_number = isinstance(value, Tensor) and value.is_floating_point()
        return _once(value, dtype, lambda: value.to(dtype)) if is_number else value

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


def _once(source: Tensor, key: Any, make: Callable[[], Any]) -> Any:
    """`make()`, cached as long as the tensor exists and its content is unchanged."""
    entry = _CONVERTED.get(source)
    version = (key, stamp(source))
    if entry is None or entry[0] != version:
        entry = _CONVERTED[source] = (version, make())
    return entry[1]


def _features(data: Any, edge_index: Tensor) -> tuple[Tensor, DataForm]:
    """Features as a table [nodes, features], and the form that they had."""
    x = getattr(data, "x", None)
    must_be_readable(x, "data.x")
    if x is None:
        count = _count_nodes(data, edge_index)
        table = torch.zeros(count, 0, device=edge_index.device)
        return _once(edge_index, ("x", count), lambda: table), DataForm(has_x=False)
    if not isinstance(x, Tensor):
        raise InputError(
            f"data.x must be a tensor of shape [nodes, features], got {type(x).__name__}; use "
            f"torch.tensor(data.x)"
        )
    if x.dim() == 0:
        raise InputError("data.x must be of shape [nodes, features], got a number")
    if x.shape[0] == 0:
        raise InputError("the graph is empty: data.x has no rows")
    if x.layout != torch.strided:
        raise InputError("data.x must be a dense tensor; use data.x.to_dense()")
    if x.is_complex():
        raise InputError(
            f"data.x must be of a floating type or integers (categories), got {x.dtype}; "
            f"use data.x.float()"
        )
    if x.dim() == 2:
        return x, DataForm()
    shape = tuple(x.shape[1:])
    # A copy: a view would keep x, and with it itself, alive for ever.
    return _once(x, "table", lambda: x.detach().reshape(len(x), -1).clone()), DataForm(shape)


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
        counts = {len(v) for v in values if isinstance(v, Tensor) and v.dim() and len(v) >= least}
    if len(counts) != 1:
        raise InputError(
            "data.x must be a tensor of shape [nodes, features], got NoneType; for a model with "
            "embeddings of its own, say how many nodes there are by data.num_nodes"
        )
    count = counts.pop()
    if count < max(1, least):
        raise InputError(f"data.num_nodes must be at least {max(1, least)}, got {count}")
    return count


def attribute_names(data: Any) -> list[str]:
    """Names of the attributes that `data` holds itself."""
    return list(
        data.keys() if callable(getattr(data, "keys", None)) else getattr(data, "__dict__", ())
    )


NO_EDGES = (
    "data must have an edge_index of shape [2, edges] (or a sparse adjacency matrix adj_t); it has "
    "none"
)


def _other_edges(data: Any) -> Tensor | None:
    """Other edges than edge_index, or positions that a model makes edges from."""
    values = {name: getattr(data, name) for name in attribute_names(data)}
    return next(
        (
            value
            for name, value in values.items()
            if isinstance(value, Tensor) and (name == "pos" or name.endswith("edge_index"))
        ),
        None,
    )


def _edges(
    data: Any, adjacency: str | None
) -> tuple[Tensor, Tensor | None, Tensor | None, torch.layout | None]:
    """edge_index, edge_weight, edge_attr, and the layout of the adjacency matrix they are from."""
    edge_index: Any = getattr(data, "edge_index", None)
    must_be_readable(edge_index, "data.edge_index")
    if edge_index is None:
        adjacency = next((n for n in ADJACENCIES if getattr(data, n, None) is not None), None)
    if edge_index is None and adjacency is None:
        other = _other_edges(data)
        if other is None:
            raise InputError(NO_EDGES)
        none = torch.zeros(2, 0, dtype=torch.long, device=other.device)
        return _once(other, "no edges", lambda: none), None, None, None
    if adjacency is None:
        check_edge_index(edge_index)
        edges = edge_index.shape[1]
        return (
            edge_index,
            _edge_values(data, "edge_weight", edges),
            _edge_values(data, "edge_attr", edges),
            None,
        )
    matrix = getattr(data, adjacency)
    must_be_readable(matrix, f"data.{adjacency}")
    dense = isinstance(matrix, Tensor) and matrix.layout == torch.strided
    if not isinstance(matrix, Tensor) or matrix.dim() < 2 or (dense and matrix.dim() > 2):
        got = list(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
        raise InputError(
            f"data.{adjacency} must be a tensor of shape [nodes, nodes], sparse or dense, got "
            f"{got}; a SparseTensor becomes one by to_torch_sparse_csr_tensor()"
        )
    try:
        ends, values = _entries(matrix)
    except RuntimeError as error:
        raise InputError(
            f"data.{adjacency} must be a plain tensor of floats or integers, got "
            f"{type(matrix).__name__} of {matrix.dtype}"
        ) from error
    weight, attr = (values, None) if values.dim() == 1 else (None, values)
    return ends, weight, attr, matrix.layout


def _entries(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Edges (source, target) and values of a sparse matrix whose row i is the edges into node i."""

    def make() -> tuple[Tensor, Tensor]:
        entries = matrix.detach().to_sparse(layout=torch.sparse_coo).coalesce()
        return entries.indices().flip(0).contiguous(), entries.values().clone()

    values = matrix
    if matrix.layout != torch.strided:
        is_coo = matrix.layout == torch.sparse_coo
        values = matrix.coalesce().values() if is_coo else matrix.values()
    entry = _CONVERTED.get(matrix)
    version = ("entries", stamp(values)[1])
    if entry is None or entry[0] != version:
        entry = _CONVERTED[matrix] = (version, make())
    ends, weights = entry[1]
    return ends, weights


def _make_index(edge_index: Tensor, nodes: int) -> Index:
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= nodes):
        raise InputError(
            f"data.edge_index must name nodes from 0 to {nodes - 1}, "
            f"got {int(edge_index.min())} to {int(edge_index.max())}"
        )
    return index_by_end(edge_index[1], nodes)


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
        attributes={
            name: replace(
                attribute, value=attribute.at(torch.from_numpy(nodes).to(device), edges, 1)
            )
            for name, attribute in graph.attributes.items()
        },
        form=graph.form,
    )


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


def _edge_values(data: Any, name: str, edges: int) -> Tensor | None:
    value = getattr(data, name, None)
    must_be_readable(value, f"data.{name}")
    if value is None:
        return None
    is_dense = isinstance(value, Tensor) and value.layout == torch.strided
    if not is_dense or value.dim() == 0 or value.shape[0] != edges:
        got = list(value.shape) if is_dense else type(value).__name__
        raise InputError(f"data.{name} must have one row for each of the {edges} edges, got {got}")
    return value
