"""Perturbed graphs over one field, many at once, each in its smallest form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
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
    `rows[k, i]`: which row of `table` is the node's feature vector; None: the i-th, always.
    The first rows of `table` are the field's own, then replaced ones.
    """

    on: Bools
    rows: Ids | None
    table: Tensor
    joined: Bools | None = None
    cut: Bools | None = None

    def __len__(self) -> int:
        return len(self.on)

    def take(self, chosen: Ids | slice) -> States:
        """Some of the states."""
        return States(
            self.on[chosen],
            None if self.rows is None else self.rows[chosen],
            self.table,
            None if self.joined is None else self.joined[chosen],
            None if self.cut is None else self.cut[chosen],
        )

    def written_out(self) -> Ids:
        """`rows`, whether or not each node has its own."""
        if self.rows is not None:
            return self.rows
        return np.broadcast_to(np.arange(self.on.shape[1]), self.on.shape)

    def followed_by(self, other: States) -> States | None:
        """Both as one batch, where the features of no node are replaced; None elsewhere."""
        if self.joined is not None or self.cut is not None or other.joined is not None:
            return None
        if other.cut is not None or len(self.table) != len(other.table):
            return None
        if self.rows is not None or other.rows is not None:
            return None
        return replace(self, on=np.concatenate([self.on, other.on]))

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


FAR = 255
"""The distance of nodes that cannot matter."""

Hops = NDArray[np.uint8]
"""Distances; 254 is said for longer ones, which no model of that many rounds minds."""


def distances(states: States, field: Field, sweeps: int | None) -> Hops:
    """Hops from each node to the nearest centre in each *perturbed* graph, [states, nodes].

    Nodes further away than `sweeps` are FAR; None: as far as it goes. All states take a step at
    once: where a node has been reached is a row of bits, one for each state.
    """
    count, size = len(states), field.size
    found = np.full((size, count), FAR, dtype=np.uint8)
    found[: field.centres] = 0
    edges, senders, starts = field.by_sender
    kept = None
    if states.joined is None and states.cut is None:
        waiting = _bits(states.on)  # off nodes have no edges at all
    else:
        kept = _bits(states.edges(field)[:, edges])
        waiting = np.full((size, kept.shape[1]), _ALL)
    front = np.zeros(waiting.shape, dtype=np.uint64)
    front[: field.centres] = _ALL
    waiting[: field.centres] = 0
    target = field.target[edges]
    for hop in range(1, (size if sweeps is None else min(sweeps, size)) + 1):
        heard = front[target]
        if kept is not None:
            heard &= kept
        new = np.zeros(waiting.shape, dtype=np.uint64)
        if len(edges):
            new[senders] = np.bitwise_or.reduceat(heard, starts, axis=0)
        new &= waiting
        if not new.any():
            break
        waiting ^= new
        # Arithmetic: to write where a mask of random bits is true takes ten times as long.
        bits = np.unpackbits(new.view(np.uint8), axis=1, count=count)
        bits *= np.uint8(max(1, FAR - hop))
        found -= bits
        front = new
    return np.ascontiguousarray(found.T)


def far_unless(levels: Hops, matters: Bools) -> Hops:
    """FAR where it does not matter."""
    return levels | (matters.view(np.uint8) - np.uint8(1))


_ALL = np.uint64(2**64 - 1)


def _bits(rows: Bools) -> NDArray[np.uint64]:
    """A row of bits for each column, one for each row, in whole words: these are joined fast."""
    packed = np.packbits(np.ascontiguousarray(rows.T), axis=1)
    words = np.zeros((len(packed), -(-packed.shape[1] // 8)), dtype=np.uint64)
    words.view(np.uint8)[:, : packed.shape[1]] = packed
    return words


def reachable(states: States, field: Field, depth: int | None) -> Bools:
    """Nodes of each state that can matter to a centre, [states, nodes].

    With k rounds of message passing these are the nodes within k hops of a centre in the
    *perturbed* graph, and their in-neighbours, which degree-normalising layers count.
    """
    return distances(states, field, None if depth is None else depth + 1) < FAR
