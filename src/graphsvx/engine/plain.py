"""Evaluation without shortcuts: one call per perturbed graph, or plain copies in a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor, setdiff_sorted
from graphsvx.core.edge_index import Index
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph, out_edges
from graphsvx.core.model import Model, call_on
from graphsvx.core.perturbation import Perturbations
from graphsvx.engine.batch_rows import BatchRows
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.shared import SharedRows
from graphsvx.engine.trim import trimmed


def evaluate_one_by_one(
    model: Model,
    graph: Graph,
    field: Field,
    reference_graph: ReferenceGraph,
    perturbations: Perturbations,
    graph_level: bool,
) -> Tensor:
    """Raw outputs by Eq. 1-2 to the letter: one model call per perturbed graph."""
    perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
    outputs = [
        _evaluate_single(
            model, graph, field, reference_graph, perturbations.take(slice(k, k + 1)), graph_level
        )
        for k in range(len(perturbations))
    ]
    return torch.stack(outputs)


@dataclass(frozen=True, eq=False)
class ReferenceGraph:
    """The part of the graph on which perturbed graphs are evaluated without shortcuts."""

    x: Tensor
    edge_index: Tensor
    edges: NDArray[np.int64]
    """Position of each edge in the user's edge_index."""
    position: NDArray[np.int64]
    """Positions of the field's nodes (without the boundary) in this graph."""
    nodes: Ids | None = None
    """Node ids in the user's graph; None: all of them."""


def full_reference(graph: Graph, field: Field) -> ReferenceGraph:
    """The whole graph."""
    return ReferenceGraph(
        graph.x, graph.edge_index, np.arange(graph.num_edges), field.ids[: field.size]
    )


def wider_reference(
    graph: Graph, field: Field, rng: np.random.Generator, most: int = 64
) -> ReferenceGraph:
    """The field, nodes just outside it and random others, none of which may have influence."""
    strangers = rng.integers(0, graph.num_nodes, most // 2)
    ring = field.ids[field.size :]
    if len(ring) > most // 2:
        ring = rng.choice(ring, most // 2, replace=False)
    inside_ids = np.sort(field.ids[: field.size])
    new = setdiff_sorted(np.concatenate([ring, strangers]), inside_ids)
    # Out-edges of the field detect models that pass messages against the edges.
    sent = _sample_out_edges(graph, field, rng, most)
    ends = graph.edge_index.cpu().numpy()
    covered = np.sort(np.concatenate([inside_ids, new]))
    sent = sent[~_is_member(ends[1][sent], covered)]
    # The field's edges have local ids already; only the others are looked up.
    # A hub would add its whole neighbourhood: a sample of its edges is enough.
    edges = np.concatenate([_some_edges(graph.index, new, 16), sent])
    source, target = ends[0][edges], ends[1][edges]
    order = field.ids.argsort()
    ordered = field.ids[order]
    others = setdiff_sorted(np.concatenate([new, source, target]), ordered)

    def local(nodes: Ids) -> Ids:
        inside = order.take(ordered.searchsorted(nodes), mode="clip")
        outside = len(field.ids) + others.searchsorted(nodes)
        return np.where(_is_member(nodes, ordered), inside, outside)

    ends_local = np.stack([
        np.concatenate([field.source, local(source)]), np.concatenate([field.target, local(target)])
    ])  # fmt: skip
    device = graph.x.device
    return ReferenceGraph(
        graph.x.index_select(0, as_tensor(np.concatenate([field.ids, others]), device)),
        as_tensor(ends_local, device),
        np.concatenate([field.edges, edges]),
        np.arange(field.size),
        np.concatenate([field.ids, others]),
    )


def _is_member(nodes: Ids, ordered: Ids) -> NDArray[np.bool_]:
    """Mask of `nodes` that are in the sorted, non-empty `ordered`; faster than `np.isin`."""
    return ordered.take(ordered.searchsorted(nodes), mode="clip") == nodes


def _sample_out_edges(
    graph: Graph, field: Field, rng: np.random.Generator, most: int, per_node: int = 8
) -> Ids:
    """At most `per_node` out-edges of the centres and of `most` other nodes of the field."""
    centres, others = np.split(field.ids[: field.size], [field.centres])
    if len(others) > most:
        others = rng.choice(others, most, replace=False)
    nodes = np.concatenate([centres, others])
    return _some_edges(out_edges(graph), nodes, per_node)


def _some_edges(index: Index, nodes: Ids, per_node: int) -> Ids:
    """The first `per_node` edges of every node."""
    first = index.start[nodes]
    count = np.minimum(index.start[nodes + 1] - first, per_node)
    steps = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return index.order[np.repeat(first, count) + steps].astype(np.int64)


def undirected_reference(graph: Graph, field: Field, wider: Field) -> ReferenceGraph:
    """All edges with an end in `wider`, a larger field around `field`."""
    inside = wider.ids[: wider.size]
    touching = np.concatenate([graph.index.edges_into(inside), out_edges(graph).edges_into(inside)])
    edges = setdiff_sorted(touching, touching[:0])
    return _reference_from_edges(graph, field, edges, inside)


def _reference_from_edges(
    graph: Graph, field: Field, edges: NDArray[np.int64], inside: Ids
) -> ReferenceGraph:
    sources = graph.edge_index[0].cpu().numpy()[edges]
    targets = graph.edge_index[1].cpu().numpy()[edges]
    nodes = np.concatenate([inside, sources, targets])
    ids = setdiff_sorted(nodes, nodes[:0])
    local = np.stack([np.searchsorted(ids, sources), np.searchsorted(ids, targets)])
    device = graph.x.device
    return ReferenceGraph(
        graph.x.index_select(0, as_tensor(ids, device)),
        as_tensor(local, device),
        edges,
        np.searchsorted(ids, field.ids[: field.size]),
        ids,
    )


def _evaluate_single(
    model: Model,
    graph: Graph,
    field: Field,
    reference_graph: ReferenceGraph,
    perturbation: Perturbations,
    graph_level: bool,
) -> Tensor:
    device = graph.x.device
    on = np.ones(len(reference_graph.x), dtype=bool)
    on[reference_graph.position] = perturbation.active[0]
    ends = reference_graph.edge_index.cpu().numpy()
    keeps = on[ends[0]] & on[ends[1]]
    for change, value in ((perturbation.added_edges, True), (perturbation.removed_edges, False)):
        if change is not None:
            keeps[np.isin(reference_graph.edges, field.edges[change[0]])] = value
    x = reference_graph.x
    if perturbation.feature_row is not None:
        x = x.clone()
        x[as_tensor(reference_graph.position, device)] = perturbation.feature_table[
            as_tensor(perturbation.feature_row[0], device)
        ]
    edge_ids = as_tensor(reference_graph.edges[keeps], device)
    edge_index = reference_graph.edge_index[:, as_tensor(np.flatnonzero(keeps), device)]
    centres = as_tensor(reference_graph.position[: field.centres], device)
    if perturbation.removes_rows:  # on the whole graph, so that positions are ids
        if not on.any():
            return model.without_nodes(call_on(model, graph))
        left, number = np.flatnonzero(on), as_tensor(np.cumsum(on) - 1, device)
        x, edge_index, centres = x[as_tensor(left, device)], number[edge_index], number[centres]
        reference_graph = replace(reference_graph, nodes=left)
    out = model(
        x,
        edge_index,
        None if graph.edge_weight is None else graph.edge_weight[edge_ids],
        None if graph.edge_attr is None else graph.edge_attr[edge_ids],
        torch.zeros(len(x), dtype=torch.long, device=device) if graph_level else None,
        centres[:, None] if model.scores_pairs else None,
        _attributes(graph, reference_graph, edge_ids),
    )
    return out if graph_level or model.scores_pairs else out[centres]


def _attributes(
    graph: Graph, reference_graph: ReferenceGraph, edges: Tensor, rows: Ids | None = None
) -> dict[str, Any]:
    """Further attributes of (some rows of) the reference graph's nodes, and of some edges."""
    if not graph.attributes:
        return {}
    nodes = np.arange(graph.num_nodes) if reference_graph.nodes is None else reference_graph.nodes
    rows = np.arange(len(nodes)) if rows is None else rows
    return graph.attributes_at(as_tensor(nodes[rows], graph.x.device), edges)


def evaluate_copies(
    model: Model,
    graph: Graph,
    field: Field,
    reference_graph: ReferenceGraph,
    perturbations: Perturbations,
    memory: int,
    rounds: int | None,
) -> Tensor:
    """The outputs of `evaluate_one_by_one`, from batches of copies of the reference graph.

    With `rounds` of message passing, each computes only nodes that the later ones can carry to a
    centre; None: all nodes.
    """
    items = len(reference_graph.x) + reference_graph.edge_index.shape[1]
    # Rows of features are shared: at worst one tensor of them is made, of what follows several.
    step = max(1, memory // (max(4 * graph.num_features, 16 * 16) * items))
    perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
    parts = [
        _evaluate_copies(
            model,
            graph,
            field,
            reference_graph,
            perturbations.take(slice(first, first + step)),
            rounds,
        )
        for first in range(0, len(perturbations), step)
    ]
    return torch.cat(parts)


def _evaluate_copies(
    model: Model,
    graph: Graph,
    field: Field,
    reference_graph: ReferenceGraph,
    perturbations: Perturbations,
    rounds: int | None,
) -> Tensor:
    device, count, size = graph.x.device, len(perturbations), len(reference_graph.x)
    on = np.ones((count, size), dtype=bool)
    on[:, reference_graph.position] = perturbations.active
    ends = reference_graph.edge_index.cpu().numpy()
    keeps = on[:, ends[0]] & on[:, ends[1]]
    if perturbations.added_edges is not None or perturbations.removed_edges is not None:
        order = np.argsort(reference_graph.edges)
        place = order[np.searchsorted(reference_graph.edges, field.edges, sorter=order)]
        if perturbations.added_edges is not None:
            keeps[:, place] |= perturbations.added_edges
        if perturbations.removed_edges is not None:
            keeps[:, place] &= ~perturbations.removed_edges
    copy, edge = np.nonzero(keeps)
    rows = np.tile(np.arange(size), (count, 1))
    rows[:, reference_graph.position] = (
        reference_graph.position
        if perturbations.feature_row is None
        else size + perturbations.feature_row
    )
    hops = np.full(size, 0 if rounds is None else rounds + 1, dtype=np.uint8)
    hops[reference_graph.position] = 0 if rounds is None else field.hops
    batch_rows = BatchRows.by_hops(np.broadcast_to(hops, (count, size)))
    row_of = batch_rows.row_of.reshape(count, size)
    index = as_tensor(rows.reshape(-1)[batch_rows.nodes], device)
    weight, attr = graph.edge_weight, graph.edge_attr
    edge_ids = as_tensor(reference_graph.edges[edge], device)
    centres = as_tensor(row_of[:, reference_graph.position[: field.centres]].reshape(-1), device)
    layers = ModelLayers.of(model.submodules)
    with trimmed(model.submodules, layers, batch_rows.within(rounds), None):
        out = model(
            SharedRows(torch.cat([reference_graph.x, perturbations.feature_table]), index),
            as_tensor(row_of[copy, ends[:, edge]], device),
            None if weight is None else weight[edge_ids],
            None if attr is None else attr[edge_ids],
            None,
            centres.reshape(count, -1).t() if model.scores_pairs else None,
            _attributes(graph, reference_graph, edge_ids, batch_rows.node),
        )
    if model.scores_pairs:
        return plain(out)[:, None, :]
    return plain(out).index_select(0, centres).reshape(count, field.centres, -1)
