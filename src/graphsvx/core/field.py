"""The receptive field of a query: the part of the graph that can influence its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphsvx.core.arrays import Ids, run_starts, setdiff_sorted
from graphsvx.core.graph import Graph, out_edges


@dataclass(frozen=True, eq=False)
class Field:
    """Nodes that can reach the centres, and every edge that ends in one of them.

    Local ids: centres first, then the other nodes by hops, then the *boundary*: nodes outside
    the field with an edge into it. Their messages never reach a centre, but degree-normalising
    layers count their edges, so these are kept; a batch has one copy of the boundary.
    """

    ids: Ids
    """Node ids in the user's graph: the field, then its boundary."""
    hops: Ids
    """Distance to the nearest centre, for field nodes."""
    centres: int
    source: Ids
    target: Ids
    edges: Ids
    """Position of each edge in the user's edge_index."""

    @property
    def size(self) -> int:
        """Number of nodes in the field, without the boundary."""
        return len(self.hops)

    @property
    def boundary(self) -> int:
        """Number of nodes outside the field with an edge into it."""
        return len(self.ids) - len(self.hops)

    @cached_property
    def inner_edges(self) -> Ids:
        """Edges that start inside the field."""
        return np.flatnonzero(self.source < self.size)

    @cached_property
    def by_target(self) -> Ids:
        """All edges, sorted by target."""
        if (self.target[1:] >= self.target[:-1]).all():
            return np.arange(len(self.target))
        return np.argsort(self.target, kind="stable")

    @cached_property
    def by_source(self) -> tuple[Ids, Ids, Ids]:
        """Inner edges sorted by source, the distinct sources, and the start of each."""
        edges = self.inner_edges[self.source[self.inner_edges].argsort(kind="stable")]
        source = self.source[edges]
        starts = np.flatnonzero(run_starts(source))
        return edges, source[starts], starts

    @cached_property
    def has_loops(self) -> bool:
        """Whether there is a self-loop."""
        return bool((self.source == self.target).any())


def in_neighbourhood(graph: Graph, centres: Ids, depth: int | None) -> Field:
    """Receptive field of `depth` hops against the edges (None: all nodes that reach a centre)."""
    sources = graph.edge_index.cpu().numpy()[0]
    rings = _rings(centres, depth, lambda ring: sources[graph.index.edges_into(ring)])
    return _field(graph, rings, len(centres))


def undirected_neighbourhood(
    graph: Graph, centres: Ids, depth: int | None, everyone: bool = False
) -> Field:
    """Field of `depth` hops along edges in both directions.

    For models whose layers may pass messages against the edges. With `everyone`, nodes that are
    not joined to a centre are part of it, further away than all others.
    """
    sources, targets = graph.edge_index.cpu().numpy()
    out = out_edges(graph)

    def neighbours(ring: Ids) -> Ids:
        into = graph.index.edges_into(ring)
        return np.concatenate([sources[into], targets[out.edges_into(ring)]])

    rings = _rings(centres, depth, neighbours)
    if everyone:
        joined = np.sort(np.concatenate(rings))
        rings.append(setdiff_sorted(np.arange(graph.num_nodes), joined))
    return _field(graph, rings, len(centres))


def _rings(centres: Ids, depth: int | None, neighbours: Callable[[Ids], Ids]) -> list[Ids]:
    """Nodes at 0, 1, ... up to `depth` hops, the last of which may be none."""
    rings, visited = [centres], np.sort(centres)
    while len(rings[-1]) and (depth is None or len(rings) <= depth):
        rings.append(setdiff_sorted(neighbours(rings[-1]), visited))
        visited = np.sort(np.concatenate([visited, rings[-1]]))
    return rings


def _field(graph: Graph, rings: list[Ids], centres: int) -> Field:
    """The field with the nodes of these rings, all edges into them, and its boundary."""
    inside = np.concatenate(rings)
    edges, in_degrees = graph.index.edges_by_node(inside)
    sources = graph.edge_index.cpu().numpy()[0][edges]
    ids = np.concatenate([inside, setdiff_sorted(sources, np.sort(inside))])
    order = ids.argsort()
    return Field(
        ids=ids,
        hops=np.arange(len(rings)).repeat([len(ring) for ring in rings]),
        centres=centres,
        source=order[ids[order].searchsorted(sources)],
        target=np.arange(len(inside)).repeat(in_degrees),
        edges=edges,
    )


def restrict(field: Field, keep: Ids) -> Field:
    """Restrict a field to the nodes `keep` (local ids, centres included) and the edges between.

    Edges from the boundary are kept, because the boundary is always active.
    """
    new = np.full(len(field.ids), -1)
    new[keep] = np.arange(len(keep))
    inside = new >= 0
    remaining = np.flatnonzero(
        inside[field.target] & (inside[field.source] | (field.source >= field.size))
    )
    sources = field.source[remaining]
    boundary = setdiff_sorted(sources[sources >= field.size], sources[:0])
    new[boundary] = len(keep) + np.arange(len(boundary))
    return Field(
        ids=np.concatenate([field.ids[keep], field.ids[boundary]]),
        hops=field.hops[keep],
        centres=field.centres,
        source=new[field.source[remaining]],
        target=new[field.target[remaining]],
        edges=field.edges[remaining],
    )


def whole_graph(graph: Graph) -> Field:
    """The whole graph as a field without centres, for graph-level queries."""
    ids = np.arange(graph.num_nodes)
    return Field(
        ids=ids,
        hops=np.zeros(graph.num_nodes, dtype=np.int64),
        centres=0,
        source=graph.edge_index[0].cpu().numpy(),
        target=graph.edge_index[1].cpu().numpy(),
        edges=np.arange(graph.num_edges),
    )
