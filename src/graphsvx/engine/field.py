"""The receptive field of a question: the part of the graph that can matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.graph import Graph, Ids, changes, outward


@dataclass(frozen=True, eq=False)
class Field:
    """Nodes that can reach the centres, and every edge that ends in one of them.

    Local ids: centres first, then the rest by hops, then the *rim*: nodes beyond the field that
    send an edge into it. Their messages never reach a centre, but degree-normalising layers
    count them, so the edges stay; all replicas share one copy of the rim.
    """

    ids: Ids
    """Node ids in the user's graph, field then rim."""
    hops: Ids
    """Distance to the nearest centre, for field nodes."""
    centres: int
    source: Ids
    target: Ids
    edges: Ids
    """Position of each edge in the user's edge_index."""

    @property
    def size(self) -> int:
        """Nodes in the field, without the rim."""
        return len(self.hops)

    @property
    def rim(self) -> int:
        """Nodes beyond the field that send an edge into it."""
        return len(self.ids) - len(self.hops)

    @cached_property
    def inner(self) -> Ids:
        """Edges that start inside the field."""
        return np.flatnonzero(self.source < self.size)

    @cached_property
    def by_target(self) -> Ids:
        """All edges, in the order of the nodes that they end in."""
        if (self.target[1:] >= self.target[:-1]).all():
            return np.arange(len(self.target))
        return np.argsort(self.target, kind="stable")

    @cached_property
    def by_sender(self) -> tuple[Ids, Ids, Ids]:
        """Inner edges in the order of the nodes that send them, these, and where each begins."""
        edges = self.inner[self.source[self.inner].argsort(kind="stable")]
        source = self.source[edges]
        starts = np.flatnonzero(changes(source))
        return edges, source[starts], starts

    @cached_property
    def loops(self) -> bool:
        """Whether an edge ends where it begins."""
        return bool((self.source == self.target).any())


def cut(graph: Graph, centres: Ids, depth: int | None) -> Field:
    """Walk `depth` hops against the edges from the centres (None: until nothing is new)."""
    sources = graph.edge_index.cpu().numpy()[0]
    rings = [centres]
    seen = np.sort(centres) if len(centres) > 1 else centres
    edges, into = [], []
    while True:
        found, lengths = graph.index.edges_by_node(rings[-1])
        edges.append(found)
        into.append(lengths)
        new = fresh(sources[found], seen)
        if not len(rings[-1]) or len(rings) - 1 == depth:
            break
        rings.append(new)
        seen = np.concatenate([seen, new])
        seen.sort()
    every = np.concatenate(edges)
    ids = np.concatenate([*rings, new])
    order = ids.argsort()
    count = np.concatenate(into)
    return Field(
        ids=ids,
        hops=np.arange(len(rings)).repeat([len(ring) for ring in rings]),
        centres=len(centres),
        source=order[ids[order].searchsorted(sources[every])],
        target=np.arange(len(count)).repeat(count),
        edges=every,
    )


def around(graph: Graph, centres: Ids, depth: int | None) -> Field:
    """Like `cut`, but walking edges both ways: for models that may pass messages either way."""
    sources = graph.edge_index[0].cpu().numpy()
    targets = graph.edge_index[1].cpu().numpy()
    out = outward(graph)
    rings = [centres]
    seen = np.sort(centres)
    while len(rings[-1]) and (depth is None or len(rings) <= depth):
        ring = rings[-1]
        near = np.concatenate(
            [sources[graph.index.edges_into(ring)], targets[out.edges_into(ring)]]
        )
        new = fresh(near, seen)
        seen = np.sort(np.concatenate([seen, new]))
        rings.append(new)
    inside = np.concatenate(rings)
    edges = graph.index.edges_into(inside)
    ids = np.concatenate([inside, fresh(sources[edges], seen)])
    order = np.argsort(ids)
    return Field(
        ids=ids,
        hops=np.repeat(np.arange(len(rings)), [len(ring) for ring in rings]),
        centres=len(centres),
        source=order[np.searchsorted(ids, sources[edges], sorter=order)],
        target=order[np.searchsorted(ids, targets[edges], sorter=order)],
        edges=edges,
    )


def fresh(nodes: Ids, seen: Ids) -> Ids:
    """Sorted nodes that are not in `seen`, which is sorted; what numpy has for it is far slower."""
    ordered = np.sort(nodes)
    new = changes(ordered)
    if len(seen):
        new &= seen.take(seen.searchsorted(ordered), mode="clip") != ordered
    return ordered[new]


def restricted(field: Field, keep: Ids) -> Field:
    """The field with only these nodes (local ids, centres among them) and the edges between.

    Edges from the rim stay: the rim is always on.
    """
    new = np.full(len(field.ids), -1)
    new[keep] = np.arange(len(keep))
    inside = new >= 0
    left = np.flatnonzero(
        inside[field.target] & (inside[field.source] | (field.source >= field.size))
    )
    senders = field.source[left]
    rim = fresh(senders[senders >= field.size], senders[:0])
    new[rim] = len(keep) + np.arange(len(rim))
    return Field(
        ids=np.concatenate([field.ids[keep], field.ids[rim]]),
        hops=field.hops[keep],
        centres=field.centres,
        source=new[field.source[left]],
        target=new[field.target[left]],
        edges=field.edges[left],
    )


def whole(graph: Graph) -> Field:
    """The whole graph as a field without centres: for questions about a graph."""
    ids = np.arange(graph.num_nodes)
    return Field(
        ids=ids,
        hops=np.zeros(graph.num_nodes, dtype=np.int64),
        centres=0,
        source=graph.edge_index[0].cpu().numpy(),
        target=graph.edge_index[1].cpu().numpy(),
        edges=np.arange(graph.num_edges),
    )


def tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    """A numpy index as a tensor where the model lives."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
