"""Batches of perturbed graphs (X', A'), stored as differences to the receptive field."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids
from graphsvx.core.field import Field


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
        added, removed = self.added_edges, self.removed_edges
        return replace(
            self,
            active=self.active[index],
            feature_row=None if self.feature_row is None else self.feature_row[index],
            added_edges=None if added is None else added[index],
            removed_edges=None if removed is None else removed[index],
        )

    def feature_rows(self) -> Ids:
        """`feature_row`, written out where it is None."""
        if self.feature_row is not None:
            return self.feature_row
        return np.broadcast_to(np.arange(self.active.shape[1]), self.active.shape)

    def concatenated(self, other: Perturbations) -> Perturbations | None:
        """Both batches as one; None where features or single edges are replaced in either."""
        parts = (self, other)
        if any(part.changes_edges or part.feature_row is not None for part in parts):
            return None
        if len(self.feature_table) != len(other.feature_table):
            return None
        return replace(self, active=np.concatenate([self.active, other.active]))

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
