"""Perturbed graphs over one field, many at once, each in its smallest form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from graphsvx.engine.field import Field
from graphsvx.graph import Ids

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class States:
    """A batch of perturbed graphs (X', A'), written as differences to the field.

    `on[k, i]`: node i keeps its edges to other nodes that are on (Eq. 2).
    `joined[k, e]`: edge e is there although an end is off (the indirect effect); None: no such.
    `cut[k, e]`: edge e is gone although both ends are on (edges as players); None: no such.
    `rows[k, i]`: which row of `table` is the node's feature vector.
    The first rows of `table` are the field's own, then the rim's, then replaced ones.
    """

    on: Bools
    rows: NDArray[np.int64]
    table: Tensor
    joined: Bools | None = None
    cut: Bools | None = None

    def __len__(self) -> int:
        return len(self.on)

    def take(self, chosen: NDArray[np.int64] | slice) -> States:
        """Some of the states."""
        return replace(
            self,
            on=self.on[chosen],
            rows=_taken(self.rows, chosen),
            joined=None if self.joined is None else self.joined[chosen],
            cut=None if self.cut is None else self.cut[chosen],
        )

    def followed_by(self, other: States) -> States | None:
        """Both as one batch, where the features of no node are replaced; None elsewhere."""
        if self.joined is not None or self.cut is not None or other.joined is not None:
            return None
        if other.cut is not None or len(self.table) != len(other.table):
            return None
        if not len(self) or not (_same(self.rows) and _same(other.rows)):
            return None
        return replace(
            self,
            on=np.concatenate([self.on, other.on]),
            rows=np.broadcast_to(self.rows[:1], (len(self) + len(other), self.rows.shape[1])),
        )

    def edges(self, field: Field) -> Bools:
        """Which edges each state has, [states, edges]; rim nodes are always on."""
        on = (
            self.on
            if not field.rim
            else np.pad(self.on, ((0, 0), (0, field.rim)), constant_values=True)
        )
        kept: Bools = on[:, field.source] & on[:, field.target]
        if self.joined is not None:
            kept |= self.joined
        if self.cut is not None:
            kept &= ~self.cut
        return kept


def _same(rows: NDArray[np.int64]) -> bool:
    """Whether all rows are one, broadcast: each node has its own features."""
    return rows.strides[0] == 0


def _taken(rows: NDArray[np.int64], chosen: NDArray[np.int64] | slice) -> NDArray[np.int64]:
    if not len(rows) or not _same(rows):
        return rows[chosen]
    count = len(range(*chosen.indices(len(rows)))) if isinstance(chosen, slice) else len(chosen)
    return np.broadcast_to(rows[0], (count, rows.shape[1]))


FAR = 32767
"""The distance of nodes that cannot matter."""

Hops = NDArray[np.int16]


def distances(states: States, field: Field, sweeps: int | None) -> Hops:
    """Hops from each node to the nearest centre in each *perturbed* graph, [states, nodes].

    Nodes further away than `sweeps` are FAR; None: as far as it goes.
    """
    found = np.full((len(states), field.size), FAR, dtype=np.int16)
    found[:, : field.centres] = 0
    sweeps = min(field.size, FAR - 1) if sweeps is None else min(sweeps, FAR - 1)
    if states.joined is not None or states.cut is not None:
        return _distances_by_edge(states, field, sweeps, found)
    # Off nodes have no edges at all, so one adjacency serves all states. Nodes are in the order
    # of their hops in the full graph, and h hops there take h or more here.
    inner = field.inner
    step = _adjacency(field.source[inner], field.target[inner], field.size)
    ends = np.searchsorted(field.hops, np.arange(sweeps + 1), side="right")
    waiting = states.on.copy()
    waiting[:, : field.centres] = False
    front = np.ones((1, field.centres), dtype=bool)  # the centres are on in all states
    for hop, reach in enumerate(ends[1:].tolist(), start=1):
        new = step(front, reach) & waiting[:, :reach]
        if not new.any():
            break
        np.copyto(found[:, :reach], hop, where=new)
        waiting[:, :reach] ^= new
        front = new
    return found


def _distances_by_edge(states: States, field: Field, sweeps: int, found: Hops) -> Hops:
    inner = field.inner
    source, target = field.source[inner], field.target[inner]
    kept = states.edges(field)[:, inner]
    for hop in range(1, sweeps + 1):
        row, edge = np.nonzero(kept & (found[:, target] == hop - 1))
        new = np.zeros(found.shape, dtype=bool)
        new[row, source[edge]] = True
        new &= found == FAR
        if not new.any():
            break
        found[new] = hop
    return found


def reachable(states: States, field: Field, depth: int | None) -> Bools:
    """Nodes of each state that can matter to a centre, [states, nodes].

    With k rounds of message passing these are the nodes within k hops of a centre in the
    *perturbed* graph, and their in-neighbours, which degree-normalising layers count.
    """
    return distances(states, field, None if depth is None else depth + 1) < FAR


def _adjacency(source: Ids, target: Ids, size: int) -> Callable[[Bools, int], Bools]:
    """A function that takes live nodes to the first `reach` nodes with an edge into them."""
    if size <= 1024:
        dense = np.zeros((size, size), dtype=np.float32)
        dense[target, source] = 1

        def multiply(front: Bools, reach: int) -> Bools:
            if front.shape[1] <= 64:
                return front.astype(np.float32) @ dense[: front.shape[1], :reach] > 0
            some = np.flatnonzero(front.any(0))
            return front[:, some].astype(np.float32) @ dense[some, :reach] > 0

        return multiply
    ones = np.ones(len(source), dtype=np.float32)
    matrix = sparse.csr_matrix((ones, (source, target)), (size, size))

    def spread(front: Bools, reach: int) -> Bools:
        part = matrix[:reach, : front.shape[1]]
        return np.ascontiguousarray((part @ front.T.astype(np.float32)).T > 0)

    return spread
