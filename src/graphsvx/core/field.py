"""The receptive field of a query, and perturbed graphs (X', A') as differences to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids, as_tensor, run_starts, setdiff_sorted
from graphsvx.core.graph import Graph, index_by_end, out_edges


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


def subgraph(graph: Graph, nodes: Ids) -> Graph:
    """Induced subgraph of `nodes`, with local ids in their order."""
    part = in_neighbourhood(graph, nodes, 0)
    inner = part.inner_edges
    ends = np.stack([part.source[inner], part.target[inner]])
    edge_index, rows, edges = (
        as_tensor(array, graph.x.device) for array in (ends, nodes, part.edges[inner])
    )
    return Graph(
        graph.x[rows],
        edge_index,
        index_by_end(edge_index[1], len(nodes)),
        graph.statistics,
        *graph.edge_rows(edges),
        attributes={
            name: replace(attribute, value=attribute.at(rows, edges, 1))
            for name, attribute in graph.attributes.items()
        },
        form=graph.form,
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


@dataclass(frozen=True, eq=False)
class Perturbations:
    """A batch of perturbed graphs (X', A') over one receptive field.

    `active[k, i]`: node i keeps its edges to other active nodes in graph k (Eq. 2).
    `added_edges[k, e]`: edge e is kept although an end is inactive (the indirect effect).
    `removed_edges[k, e]`: edge e is removed although both ends are active (edges as players).
    `feature_row[k, i]`: row of `feature_table` that holds the features of node i; None: row i.
    `feature_table` starts with the features of the field's nodes, replaced rows follow.
    """

    active: Bools
    feature_row: Ids | None
    feature_table: Tensor
    added_edges: Bools | None = None
    removed_edges: Bools | None = None
    removes_rows: bool = False
    """Whether inactive nodes are not part of the graph at all, only for plain calls."""

    def __len__(self) -> int:
        return len(self.active)

    @property
    def changes_edges(self) -> bool:
        """Whether single edges are added or removed."""
        return self.added_edges is not None or self.removed_edges is not None

    def take(self, index: Ids | slice) -> Perturbations:
        """The perturbed graphs at these positions."""
        of_graphs = ("active", "feature_row", "added_edges", "removed_edges")
        parts = {name: vars(self)[name] for name in of_graphs if vars(self)[name] is not None}
        return replace(self, **{name: part[index] for name, part in parts.items()})

    def feature_rows(self) -> Ids:
        """`feature_row`, written out where it is None."""
        if self.feature_row is not None:
            return self.feature_row
        return np.broadcast_to(np.arange(self.active.shape[1]), self.active.shape)

    def active_edges(self, field: Field) -> Bools:
        """Edges of each perturbed graph, [graphs, edges]; boundary nodes are always active."""
        on = self.active
        if field.boundary:
            on = np.pad(on, ((0, 0), (0, field.boundary)), constant_values=True)
        edges: Bools = on[:, field.source] & on[:, field.target]
        if self.added_edges is not None:
            edges |= self.added_edges
        if self.removed_edges is not None:
            edges &= ~self.removed_edges
        return edges


UNREACHABLE = 255
"""Hop count of nodes that cannot influence a centre."""

HopCounts = NDArray[np.uint8]
"""uint8 hop counts that saturate at 254; 255 (`UNREACHABLE`) means that there is no path."""


def distances(perturbations: Perturbations, field: Field, sweeps: int | None) -> HopCounts:
    """Hops from each node to the nearest centre in each *perturbed* graph, [graphs, nodes].

    Nodes beyond `sweeps` hops are UNREACHABLE (None: no limit). Breadth-first search over all
    graphs at once: a bitset per node holds the graphs in which it has been reached.
    """
    count, size = len(perturbations), field.size
    hops = np.full((size, count), UNREACHABLE, dtype=np.uint8)
    hops[: field.centres] = 0
    edges, sources, starts = field.by_source
    edge_bits = None
    if not perturbations.changes_edges:
        unvisited = _pack_columns(perturbations.active)  # inactive nodes have no edges
    else:
        edge_bits = _pack_columns(perturbations.active_edges(field)[:, edges])
        unvisited = np.full((size, edge_bits.shape[1]), _ALL_BITS)
    front = np.zeros(unvisited.shape, dtype=np.uint64)
    front[: field.centres] = _ALL_BITS
    unvisited[: field.centres] = 0
    target = field.target[edges]
    for hop in range(1, (size if sweeps is None else min(sweeps, size)) + 1):
        messages = front[target]
        if edge_bits is not None:
            messages &= edge_bits
        new = np.zeros(unvisited.shape, dtype=np.uint64)
        if len(edges):
            new[sources] = np.bitwise_or.reduceat(messages, starts, axis=0)
        new &= unvisited
        if not new.any():
            break
        unvisited ^= new
        # Arithmetic, because boolean-mask assignment takes ten times as long.
        bits = np.unpackbits(new.view(np.uint8), axis=1, count=count)
        bits *= np.uint8(max(1, UNREACHABLE - hop))
        hops -= bits
        front = new
    return np.ascontiguousarray(hops.T)


def unreachable_unless(levels: HopCounts, matters: Bools) -> HopCounts:
    """`levels`, with UNREACHABLE where `matters` is False."""
    return levels | (matters.view(np.uint8) - np.uint8(1))


_ALL_BITS = np.uint64(2**64 - 1)


def _pack_columns(rows: Bools) -> NDArray[np.uint64]:
    """Transpose and bit-pack: one uint64 bitset per column, so that a BFS step is a bitwise OR."""
    packed = np.packbits(np.ascontiguousarray(rows.T), axis=1)
    words = np.zeros((len(packed), -(-packed.shape[1] // 8)), dtype=np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    return words


def reachable(perturbations: Perturbations, field: Field, depth: int | None) -> Bools:
    """Nodes that can influence a centre in each perturbed graph, [graphs, nodes].

    With k rounds of message passing these are the nodes within k hops of a centre in the
    *perturbed* graph, and their in-neighbours, which degree-normalising layers count.
    """
    return distances(perturbations, field, None if depth is None else depth + 1) < UNREACHABLE
