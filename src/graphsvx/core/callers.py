"""How models of graphs with types are called: with dictionaries by type, or with `edge_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.calling import CallPlan, embedding_method, must_take_a_graph
from graphsvx.core.graph import Graph
from graphsvx.core.types import FLAT, EdgeType
from graphsvx.errors import InputError


@dataclass(frozen=True, eq=False)
class Inputs:
    """A graph as its model gets it by type: the user's, perturbed, or a batch of copies."""

    x: Mapping[str, Tensor]
    edge_index: Mapping[EdgeType, Tensor]
    """Rows of the two ends within their node types, for each edge type ("" if flat)."""
    edge_rows: Mapping[EdgeType, Tensor]
    """Position of each edge in the user's edge_index of its type."""
    node_rows: Mapping[str, Tensor]
    """Id within its type of each node."""
    batch: Mapping[str, Tensor] | None = None
    """Graphs: the graph of each node."""
    graphs: int = 1
    pairs: Tensor | None = None
    """Links: rows of the two ends, [2, pairs]."""
    relation: int | None = None
    """Links of a relational model: the relation that is scored."""


def part_of(graph: Graph, ids: Ids, edges: Ids) -> Inputs:
    """The part of a graph with the nodes `ids`, in this order, and edges between these."""
    types, device = graph.types, graph.x.device
    order = np.argsort(ids)
    ends = order[np.searchsorted(ids, graph.edge_index.cpu().numpy()[:, edges], sorter=order)]
    kinds = types.kinds(ids)
    by_kind, starts, within = sorted_by_kind(kinds, len(types.node_types))
    node_rows, x = {}, {}
    for at, name in enumerate(types.node_types):
        mine = ids[by_kind[starts[at] : starts[at + 1]]]
        node_rows[name] = as_tensor(mine - types.node_starts[at], device)
        if name in types.features:
            unchanged = len(mine) == types.count(name) and bool((mine[1:] > mine[:-1]).all())
            x[name] = types.features[name] if unchanged else types.rows(name, mine)
    return Inputs(x, *edges_by_type(graph, within[ends], edges), node_rows)


def whole(graph: Graph) -> Inputs:
    """The whole graph."""
    return part_of(graph, np.arange(graph.num_nodes), np.arange(graph.num_edges))


def sorted_by_kind(kinds: Ids, count: int) -> tuple[Ids, Ids, Ids]:
    """Rows sorted by kind, where each kind starts, and the position of each row in its kind."""
    order = np.argsort(kinds, kind="stable")
    starts = np.searchsorted(kinds[order], np.arange(count + 1))
    within = np.empty(len(order), dtype=np.int64)
    within[order] = np.arange(len(order)) - starts[kinds[order]]
    return order, starts, within


def edges_by_type(
    graph: Graph, ends: Ids, edges: Ids
) -> tuple[dict[EdgeType, Tensor], dict[EdgeType, Tensor]]:
    """Edge indices by type, and the position of each edge among the user's of its type.

    `ends` are rows within the node types.
    """
    types, device = graph.types, graph.x.device
    if types.flat:
        key = (FLAT, "", FLAT)
        return {key: as_tensor(ends, device)}, {key: as_tensor(edges, device)}
    order, starts, _ = sorted_by_kind(types.edge_kinds(edges), len(types.edge_types))
    index, positions = {}, {}
    for at, name in enumerate(types.edge_types):
        mine = order[starts[at] : starts[at + 1]]
        index[name] = as_tensor(ends[:, mine], device)
        positions[name] = as_tensor(edges[mine] - types.edge_starts[at], device)
    return index, positions


def plan_by_type(
    model: Callable[..., Any], graph: Graph, *, whole_graphs: bool, links: bool, relation: bool
) -> CallPlan:
    """Read from the model's signature which parts of the graph it takes."""
    must_take_a_graph(model.forward if isinstance(model, nn.Module) else model)
    flat = graph.types.flat
    method, parameters = embedding_method(model, links)
    available = _available(graph, whole_graphs, links, relation)
    first = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    # The first arguments may have any name; of a flat graph those with known names are taken so.
    positional: tuple[str, ...] = ("x", "edge_index") if flat else ("x_dict", "edge_index_dict")
    if (flat and first and first[0] in ("edge_index", "edge_type")) or {*positional} <= {*first}:
        positional = ()  # by name, whatever their order
        available |= {"x_dict", "edge_index_dict"} if not flat else set()
    required = [name for name in first if parameters[name].default is parameters[name].empty]
    as_data = not flat and len(required) == 1 and not links
    rest = first[len(positional) :] + [
        name for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY
    ]
    for name in () if as_data else rest:
        if parameters[name].default is parameters[name].empty and name not in available:
            raise InputError(
                f"the model needs {name!r}, which the data does not give; it gives "
                f"{sorted(available)}; give a function of some of these that calls the model"
            )
    # What it reads of its data is not known before it is called.
    named = available if as_data else available.intersection(rest)
    return CallPlan(
        () if as_data else positional,
        tuple((name, name) for name in sorted(named)),
        as_data,
        method,
        tables=_tables(model, graph),
        takes_ids=_takes_ids(graph, named),
    )


def _available(graph: Graph, whole_graphs: bool, links: bool, relation: bool) -> set[str]:
    names = {*graph.types.node_values, *graph.types.edge_values}
    if not graph.types.flat:
        names = {f"{name}_dict" for name in names} | {"num_nodes_dict"}
    else:
        names |= {"edge_index", "edge_type"} | ({"x"} if FLAT in graph.types.features else set())
    names -= {"batch", "batch_dict"}
    if whole_graphs:
        names.add("batch" if graph.types.flat else "batch_dict")
    if links:
        names.add("edge_label_index")
    if links and relation:
        names.add("edge_label_type")
    return names


def _takes_ids(graph: Graph, takes: set[str]) -> bool:
    return any(
        not value.is_floating_point()
        for name, by_type in graph.types.node_values.items()
        if name in takes or f"{name}_dict" in takes
        for kind, value in by_type.items()
        if kind not in graph.types.features
    )


def _tables(model: Any, graph: Graph) -> dict[str, str]:
    """Parameters and buffers with as many rows as a node type without features has nodes."""
    if not isinstance(model, nn.Module):
        return {}
    counts = {
        name: graph.types.count(name)
        for name in graph.types.node_types
        if name not in graph.types.features
    }
    tables = {}
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        matching = [kind for kind, count in counts.items() if value.dim() and len(value) == count]
        named = [kind for kind in matching if kind in name]
        if len(named or matching) == 1:
            tables[name] = (named or matching)[0]
    return tables


def values_by_type(graph: Graph, inputs: Inputs, plan: CallPlan) -> dict[str, Any]:
    """What a model may be given, by name."""
    gather = _flat_values if graph.types.flat else _dictionaries
    return gather(graph, inputs, plan.attributes)


def _dictionaries(graph: Graph, inputs: Inputs, names: frozenset[str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "x_dict": dict(inputs.x),
        "edge_index_dict": dict(inputs.edge_index),
        "num_nodes_dict": {name: len(rows) for name, rows in inputs.node_rows.items()},
    }
    sides: tuple[tuple[Mapping[str, Mapping[Any, Tensor]], Mapping[Any, Tensor]], ...] = (
        (graph.types.node_values, inputs.node_rows),
        (graph.types.edge_values, inputs.edge_rows),
    )
    for stores, rows in sides:
        for name, by_type in stores.items():
            if f"{name}_dict" not in names:
                continue
            parts = {kind: value[rows[kind]] for kind, value in by_type.items()}
            values.setdefault(f"{name}_dict", {}).update(parts)
    if inputs.batch is not None:
        values["batch_dict"] = dict(inputs.batch)
    if inputs.pairs is not None:
        values["edge_label_index"] = inputs.pairs
    values["num_graphs"] = inputs.graphs
    return values


def _flat_values(graph: Graph, inputs: Inputs, names: frozenset[str]) -> dict[str, Any]:
    (edges,) = inputs.edge_index.values()
    (edge_rows,) = inputs.edge_rows.values()
    rows = inputs.node_rows[FLAT]
    values: dict[str, Any] = {"x": inputs.x.get(FLAT), "edge_index": edges}
    for name, by_node in graph.types.node_values.items():
        if name in names:
            values[name] = by_node[FLAT][rows]
    for name, by_edge in graph.types.edge_values.items():
        if name in names:
            (value,) = by_edge.values()
            values[name] = value[edge_rows]
    if inputs.batch is not None:
        values["batch"] = inputs.batch[FLAT]
    if inputs.pairs is not None:
        values["edge_label_index"] = inputs.pairs
        if inputs.relation is not None:
            values["edge_label_type"] = torch.full_like(inputs.pairs[0], inputs.relation)
    return values
