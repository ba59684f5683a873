"""Perturbed graphs over one field, many at once, each in its smallest form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from graphsvx.engine.field import Field

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
            rows=self.rows[chosen],
            joined=None if self.joined is None else self.joined[chosen],
            cut=None if self.cut is None else self.cut[chosen],
        )

    def edges(self, field: Field) -> Bools:
        """Which edges each state has, [states, edges]; rim nodes are always on."""
        on = self.on if not field.rim else np.pad(self.on, ((0, 0), (0, field.rim)), constant_values=True)
        kept: Bools = on[:, field.source] & on[:, field.target]
        if self.joined is not None:
            kept |= self.joined
        if self.cut is not None:
            kept &= ~self.cut
        return kept


def reachable(states: States, field: Field, depth: int | None) -> Bools:
    """Nodes of each state that can matter to a centre, [states, nodes].

    With k rounds of message passing these are the nodes within k hops of a centre in the
    *perturbed* graph, and their in-neighbours, which degree-normalising layers count.
    """
    inner = field.inner
    source, target, size = field.source[inner], field.target[inner], field.size
    live = np.zeros((len(states), size), dtype=bool)
    live[:, : field.centres] = True
    sweeps = size if depth is None else depth + 1
    if states.joined is None and states.cut is None:
        # Off nodes have no edges at all, so one adjacency serves all states.
        step = _adjacency(source, target, size)
        for _ in range(sweeps):
            grown = live | ((step(live)) & states.on)
            if np.array_equal(grown, live):
                break
            live = grown
        return live
    kept = states.edges(field)[:, inner]
    for _ in range(sweeps):
        sends = kept & live[:, target]
        grown = live.copy()
        row, edge = np.nonzero(sends)
        grown[row, source[edge]] = True
        if np.array_equal(grown, live):
            break
        live = grown
    return live


def _adjacency(source, target, size):  # type: ignore[no-untyped-def]  # a local closure over numpy
    """A function that takes live nodes to all nodes with an edge into them."""
    if size <= 512:
        dense = np.zeros((size, size), dtype=np.float32)
        dense[target, source] = 1
        return lambda live: (live.astype(np.float32) @ dense) > 0
    matrix = sparse.csr_matrix((np.ones(len(source), dtype=np.float32), (source, target)), (size, size))
    return lambda live: (matrix @ live.T.astype(np.float32)).T > 0


def keys(*parts: NDArray[np.generic]) -> list[bytes]:
    """One hashable key a row; equal rows, equal keys."""
    packed = [
        np.packbits(part, axis=1) if part.dtype == bool else np.ascontiguousarray(part).view(np.uint8)
        for part in parts
    ]
    joined = np.ascontiguousarray(np.concatenate(packed, axis=1))
    width = joined.shape[1]
    if width == 0:
        return [b""] * len(joined)
    return joined.view(np.dtype((np.void, width)))[:, 0].tolist()


