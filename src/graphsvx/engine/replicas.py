"""Many perturbed fields side by side as one disconnected graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphsvx.engine.field import Field, tensor
from graphsvx.engine.rows import SharedRows
from graphsvx.engine.states import Bools, States
from graphsvx.graph import Graph
from graphsvx.model import Model

# Batches larger than this gain nothing: they leave the caches of a CPU core.
_CACHE_ITEMS = 1 << 16


@dataclass(frozen=True, eq=False)
class Replicas:
    """Evaluates states in as few model calls as memory allows.

    A replica holds only the nodes that are live in its state: isolated nodes send nothing.
    With `whole` (graph-level questions) all nodes stay, because pooling reads them all.
    """

    model: Model
    graph: Graph
    field: Field
    memory: int
    shared: bool = True
    """Feature rows are shared between replicas instead of copied."""
    whole: bool = False

    def __call__(self, states: States, live: Bools) -> Tensor:
        """Raw outputs at the centres, [states, centres, outputs] (centres = 1 if `whole`)."""
        kept = states.edges(self.field)
        if not self.whole:
            inner = self.field.source < self.field.size
            kept &= live[:, self.field.target]
            kept[:, inner] &= live[:, self.field.source[inner]]
        outputs = [
            self._chunk(states.take(part), live[part], kept[part])
            for part in self._chunks(live.sum(1) + kept.sum(1))
        ]
        return torch.cat(outputs)

    def _chunks(self, items: NDArray[np.int64]) -> list[slice]:
        """Runs of states whose nodes and edges together stay below the limit."""
        limit = max(1, min(_CACHE_ITEMS, self.memory // (4 * self._width() * 4)))
        run = np.cumsum(items)
        parts, first, spent = [], 0, 0
        while first < len(items):
            last = max(first + 1, int(np.searchsorted(run, spent + limit, side="right")))
            parts.append(slice(first, last))
            first, spent = last, int(run[last - 1])
        return parts

    def _width(self) -> int:
        """Numbers that a node or edge may take in the widest layer."""
        widest = 0 if self.shared else self.graph.num_features
        if isinstance(self.model.call, nn.Module):
            outs = (p.shape[0] for p in self.model.call.parameters() if p.dim() > 1)
            widest = max([widest, *outs])
        return max(widest, 16)

    def _chunk(self, states: States, live: Bools, kept: Bools) -> Tensor:
        field, count = self.field, len(states)
        device = self.graph.x.device
        present = np.ones_like(live) if self.whole else live
        # Ids in the batch: the shared rim first, then each state's nodes.
        position = np.cumsum(present.ravel()).reshape(present.shape) + (field.rim - 1)
        state, edge = np.nonzero(kept)
        source = field.source[edge]
        beyond = source >= field.size
        inside = np.where(beyond, 0, source)
        new_source = np.where(beyond, source - field.size, position[state, inside])
        new_target = position[state, field.target[edge]]
        rim_rows = np.arange(field.size, field.size + field.rim)
        index = np.concatenate([rim_rows, states.rows[present]])
        edge_index = tensor(np.stack([new_source, new_target]), device)
        where = tensor(field.edges[edge], device)
        rows = tensor(index, device)
        x = (
            SharedRows(states.table, rows)
            if self.shared and len(index) > len(states.table)
            else states.table.index_select(0, rows)
        )
        batch = None
        if self.whole:
            batch = torch.arange(count, device=device).repeat_interleave(field.size)
        out = self.model(
            x,
            edge_index,
            None if self.graph.edge_weight is None else self.graph.edge_weight[where],
            None if self.graph.edge_attr is None else self.graph.edge_attr[where],
            batch,
        )
        if self.whole:
            return out[:, None, :]
        centres = tensor(position[:, : field.centres].ravel(), device)
        return out.index_select(0, centres).reshape(count, field.centres, -1)


def one_by_one(
    model: Model, graph: Graph, field: Field, stage: Stage, states: States, whole: bool
) -> Tensor:
    """The same outputs to the letter of Eq. 1-2: one call a state, nothing left out."""
    outputs = [_single(model, graph, field, stage, states.take(slice(k, k + 1)), whole)
               for k in range(len(states))]
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


def wider_stage(graph: Graph, field: Field, rng: np.random.Generator, most: int = 256) -> Stage:
    """The field, nodes just beyond it and others from anywhere: none of them may matter."""
    strangers = rng.integers(0, graph.num_nodes, most // 2)
    ring = field.ids[field.size :]
    if len(ring) > most // 2:
        ring = rng.choice(ring, most // 2, replace=False)
    new = np.concatenate([ring, strangers])
    # A hub would bring its whole neighbourhood along; the others tell as much.
    new = new[graph.index.start[new + 1] - graph.index.start[new] <= 64]
    inside = np.union1d(field.ids[: field.size], new)
    edges = graph.index.edges_into(inside)
    sources = graph.edge_index[0].cpu().numpy()[edges]
    targets = graph.edge_index[1].cpu().numpy()[edges]
    ids = np.union1d(inside, sources)
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
    changed = np.flatnonzero(state.rows[0] != np.arange(field.size))
    x = stage.x
    if len(changed):
        x = x.clone()
        x[tensor(stage.position[changed], device)] = state.table[tensor(state.rows[0][changed], device)]
    keep = tensor(np.flatnonzero(kept), device)
    where = tensor(stage.edges[kept], device)
    out = model(
        x,
        stage.edge_index[:, keep],
        None if graph.edge_weight is None else graph.edge_weight[where],
        None if graph.edge_attr is None else graph.edge_attr[where],
        torch.zeros(len(x), dtype=torch.long, device=device) if whole else None,
    )
    if whole:
        return out
    return out[tensor(stage.position[: field.centres], device)]
