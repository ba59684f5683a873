"""Perturbed graphs without shortcuts: one call each, or plain copies side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.engine.field import Field, fresh, tensor
from graphsvx.engine.lazy import plain
from graphsvx.engine.rows import SharedRows
from graphsvx.engine.states import States
from graphsvx.graph import Graph, Ids, Index, outward
from graphsvx.model import Model


def one_by_one(
    model: Model, graph: Graph, field: Field, stage: Stage, states: States, whole: bool
) -> Tensor:
    """The same outputs to the letter of Eq. 1-2: one call a state, nothing left out."""
    states = replace(states, table=plain(states.table))
    outputs = [
        _single(model, graph, field, stage, states.take(slice(k, k + 1)), whole)
        for k in range(len(states))
    ]
    return torch.stack(outputs)


@dataclass(frozen=True, eq=False)
class Stage:
    """The part of the graph on which states are played one by one."""

    x: Tensor
    edge_index: Tensor
    edges: NDArray[np.int64]
    """Position of each edge in the user's edge_index."""
    position: NDArray[np.int64]
    """Where the field's nodes (without the rim) are among the stage's."""


def whole_stage(graph: Graph, field: Field) -> Stage:
    """Everything."""
    return Stage(graph.x, graph.edge_index, np.arange(graph.num_edges), field.ids[: field.size])


def wider_stage(graph: Graph, field: Field, rng: np.random.Generator, most: int = 64) -> Stage:
    """The field, nodes just beyond it and others from anywhere: none of them may matter."""
    strangers = rng.integers(0, graph.num_nodes, most // 2)
    ring = field.ids[field.size :]
    if len(ring) > most // 2:
        ring = rng.choice(ring, most // 2, replace=False)
    near = np.sort(field.ids[: field.size])
    new = fresh(np.concatenate([ring, strangers]), near)
    # Nodes that the field sends to: a model that turns edges round would hear them.
    sent = _some_out_edges(graph, field, rng, most)
    ends = graph.edge_index.cpu().numpy()
    known = np.sort(np.concatenate([near, new]))
    sent = sent[~_among(ends[1][sent], known)]
    # The field knows its own edges; only the others have ends to be looked up.
    # A hub would bring its whole neighbourhood along: some of its edges tell as much.
    edges = np.concatenate([_some_edges(graph.index, new, 16), sent])
    source, target = ends[0][edges], ends[1][edges]
    order = field.ids.argsort()
    ordered = field.ids[order]
    others = fresh(np.concatenate([new, source, target]), ordered)

    def local(nodes: Ids) -> Ids:
        inside = order.take(ordered.searchsorted(nodes), mode="clip")
        outside = len(field.ids) + others.searchsorted(nodes)
        return np.where(_among(nodes, ordered), inside, outside)

    both = np.stack([
        np.concatenate([field.source, local(source)]), np.concatenate([field.target, local(target)])
    ])  # fmt: skip
    device = graph.x.device
    return Stage(
        graph.x.index_select(0, tensor(np.concatenate([field.ids, others]), device)),
        tensor(both, device),
        np.concatenate([field.edges, edges]),
        np.arange(field.size),
    )


def _among(nodes: Ids, ordered: Ids) -> NDArray[np.bool_]:
    """Which nodes are among the others, of which there are some; what numpy has is far slower."""
    return ordered.take(ordered.searchsorted(nodes), mode="clip") == nodes


def _some_out_edges(
    graph: Graph, field: Field, rng: np.random.Generator, most: int, each: int = 8
) -> Ids:
    """A few edges out of each of some nodes of the field, hubs or not; the centres' first."""
    centres, others = np.split(field.ids[: field.size], [field.centres])
    if len(others) > most:
        others = rng.choice(others, most, replace=False)
    nodes = np.concatenate([centres, others])
    return _some_edges(outward(graph), nodes, each)


def _some_edges(index: Index, nodes: Ids, each: int) -> Ids:
    """The first `each` edges of every node."""
    first = index.start[nodes]
    count = np.minimum(index.start[nodes + 1] - first, each)
    steps = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return index.order[np.repeat(first, count) + steps].astype(np.int64)


def around_stage(graph: Graph, field: Field, area: Field) -> Stage:
    """All edges that begin or end in a wider area around the field."""
    inside = area.ids[: area.size]
    both = np.concatenate([graph.index.edges_into(inside), outward(graph).edges_into(inside)])
    edges = fresh(both, both[:0])
    return _stage(graph, field, edges, inside)


def _stage(graph: Graph, field: Field, edges: NDArray[np.int64], inside: Ids) -> Stage:
    sources = graph.edge_index[0].cpu().numpy()[edges]
    targets = graph.edge_index[1].cpu().numpy()[edges]
    every = np.concatenate([inside, sources, targets])
    ids = fresh(every, every[:0])
    local = np.stack([np.searchsorted(ids, sources), np.searchsorted(ids, targets)])
    device = graph.x.device
    return Stage(
        graph.x.index_select(0, tensor(ids, device)),
        tensor(local, device),
        edges,
        np.searchsorted(ids, field.ids[: field.size]),
    )


def _single(
    model: Model, graph: Graph, field: Field, stage: Stage, state: States, whole: bool
) -> Tensor:
    device = graph.x.device
    on = np.ones(len(stage.x), dtype=bool)
    on[stage.position] = state.on[0]
    ends = stage.edge_index.cpu().numpy()
    kept = on[ends[0]] & on[ends[1]]
    for change, value in ((state.joined, True), (state.cut, False)):
        if change is not None:
            kept[np.isin(stage.edges, field.edges[change[0]])] = value
    x = stage.x
    if state.rows is not None:
        x = x.clone()
        x[tensor(stage.position, device)] = state.table[tensor(state.rows[0], device)]
    keep = tensor(np.flatnonzero(kept), device)
    where = tensor(stage.edges[kept], device)
    centres = tensor(stage.position[: field.centres], device)
    out = model(
        x,
        stage.edge_index[:, keep],
        None if graph.edge_weight is None else graph.edge_weight[where],
        None if graph.edge_attr is None else graph.edge_attr[where],
        torch.zeros(len(x), dtype=torch.long, device=device) if whole else None,
        centres[:, None] if model.scores_pairs else None,
    )
    return out if whole or model.scores_pairs else out[centres]


def copies(
    model: Model, graph: Graph, field: Field, stage: Stage, states: States, memory: int
) -> Tensor:
    """What `one_by_one` gives, by calls on many copies of the stage: nothing else is left out."""
    width = max(16, graph.num_features)
    step = max(1, memory // (16 * width * (len(stage.x) + stage.edge_index.shape[1])))
    states = replace(states, table=plain(states.table))
    parts = [
        _copied(model, graph, field, stage, states.take(slice(first, first + step)))
        for first in range(0, len(states), step)
    ]
    return torch.cat(parts)


def _copied(model: Model, graph: Graph, field: Field, stage: Stage, states: States) -> Tensor:
    device, count, size = graph.x.device, len(states), len(stage.x)
    on = np.ones((count, size), dtype=bool)
    on[:, stage.position] = states.on
    ends = stage.edge_index.cpu().numpy()
    kept = on[:, ends[0]] & on[:, ends[1]]
    if states.joined is not None or states.cut is not None:
        order = np.argsort(stage.edges)
        place = order[np.searchsorted(stage.edges, field.edges, sorter=order)]
        if states.joined is not None:
            kept[:, place] |= states.joined
        if states.cut is not None:
            kept[:, place] &= ~states.cut
    copy, edge = np.nonzero(kept)
    rows = np.tile(np.arange(size), (count, 1))
    rows[:, stage.position] = stage.position if states.rows is None else size + states.rows
    index = tensor(rows.reshape(-1), device)
    weight, attr = graph.edge_weight, graph.edge_attr
    where = tensor(stage.edges[edge], device)
    start = np.arange(count)[:, None] * size
    centres = tensor((start + stage.position[: field.centres]).reshape(-1), device)
    out = model(
        SharedRows(torch.cat([stage.x, states.table]), index),
        tensor(ends[:, edge] + copy * size, device),
        None if weight is None else weight[where],
        None if attr is None else attr[where],
        None,
        centres.reshape(count, -1).t() if model.scores_pairs else None,
    )
    if model.scores_pairs:
        return plain(out)[:, None, :]
    return plain(out).index_select(0, centres).reshape(count, field.centres, -1)
