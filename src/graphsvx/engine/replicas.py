"""Many perturbed fields side by side as one disconnected graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from graphsvx.engine.field import Field, tensor
from graphsvx.engine.kernels import BatchEdges, ModelLayers
from graphsvx.engine.lazy import plain
from graphsvx.engine.patched import PatchedRows
from graphsvx.engine.rows import SharedRows
from graphsvx.engine.states import FAR, Hops, States, far_unless
from graphsvx.engine.trim import trimmed
from graphsvx.errors import ModelError
from graphsvx.graph import Graph, Ids
from graphsvx.model import Model


@dataclass(frozen=True)
class Way:
    """Which shortcuts are taken."""

    reach: int | None
    """Hops within which nodes can matter in a perturbed graph; None: any number."""
    rounds: int | None = None
    """Rounds of message passing, each of which is trimmed; None: they are not."""
    shared: bool = True
    """Feature rows are shared between replicas instead of copied, known layers computed fast."""
    whole: bool = False
    """All nodes stay (graph-level questions)."""
    lean: bool = False
    """Edges that add to a degree and nothing else are counted, where all layers are known."""


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
    way: Way
    layers: ModelLayers
    eager: int = 1 << 12
    """Batches with fewer nodes are played plainly: lazy rows would cost more than they save."""

    def __call__(self, states: States, hops: Hops) -> Tensor:
        """Raw outputs at the centres, [states, centres, outputs] (centres = 1 if `whole`).

        `hops` are distances in the perturbed graphs, FAR where a node cannot matter.
        """
        if not self.way.shared:
            states = replace(states, table=plain(states.table))
        if not self._lean(states):
            return self._evaluate(states, hops, None, self.way.reach)
        rounds = self.way.rounds or 0
        near = far_unless(hops, hops <= rounds)
        try:
            return self._evaluate(states, near, self._degrees(hops), rounds)
        except ModelError:
            # A layer wants all edges after all.
            return self._evaluate(states, hops, None, self.way.reach)

    def _evaluate(
        self, states: States, hops: Hops, degrees: NDArray[np.float32] | None, reach: int | None
    ) -> Tensor:
        edges = self._edges(states, reach)
        levels = self._levels(states, hops, edges, reach)
        if levels.size + hops.size <= self._limit():
            return self._chunk(states, hops, levels, edges, degrees)
        items = (levels < FAR).sum(1) + (hops < FAR).sum(1)
        outputs = [
            self._chunk(
                states.take(part), hops[part], levels[part], edges,
                None if degrees is None else degrees[part],
            )
            for part in self._chunks(items)
        ]  # fmt: skip
        return torch.cat(outputs)

    def _lean(self, states: States) -> bool:
        """Whether all that lies beyond the last round are the degrees of GCN layers."""
        way = self.way
        if not way.lean or way.rounds is None or way.reach != way.rounds + 1:
            return False
        if self.field.loops or "edge_weight" in self.model.takes:
            return False
        if states.joined is not None or states.cut is not None:
            return False
        return isinstance(self.model.call, nn.Module) and self.layers.degrees_suffice

    def _degrees(self, hops: Hops) -> NDArray[np.float32]:
        """Edges into each node in each perturbed graph, [states, nodes]; all of the rim's count."""
        field = self.field
        inner = field.inner
        beyond = field.source >= field.size
        from_rim = np.bincount(field.target[beyond], minlength=field.size).astype(np.float32)
        live = (hops < FAR).astype(np.float32)
        source, target = field.source[inner], field.target[inner]
        if field.size <= 512:
            dense = np.zeros((field.size, field.size), dtype=np.float32)
            np.add.at(dense, (source, target), 1)
            return live @ dense + from_rim
        ones = np.ones(len(inner), dtype=np.float32)
        matrix = sparse.csr_matrix((ones, (target, source)), (field.size, field.size))
        return np.ascontiguousarray((matrix @ live.T).T) + from_rim

    def _edges(self, states: States, reach: int | None) -> Ids:
        """Edges of the field that can matter in any state, in the order of where they end."""
        field, edges = self.field, self.field.by_target
        if reach is None or states.joined is not None:
            return edges
        # No perturbed graph brings a node nearer than the full one.
        return edges[field.hops[field.target[edges]] < reach]

    def _levels(self, states: States, hops: Hops, edges: Ids, reach: int | None) -> Hops:
        """How far away each edge ends in each state, [states, edges]; FAR: it does not matter."""
        field = self.field
        source, target = self.field.source[edges], self.field.target[edges]
        if self.way.whole:
            return states.edges(field)[:, edges].view(np.uint8) - np.uint8(1)
        # Rows are gathered, not columns: several times faster. Rim nodes are always on.
        across = np.ascontiguousarray(hops.T)
        live = np.ones((len(field.ids), len(hops)), dtype=bool)
        np.less(across, FAR, out=live[: field.size])
        kept = live[source]
        by_edge = across[target]
        kept &= by_edge < (FAR if reach is None else reach)
        levels = np.ascontiguousarray(far_unless(by_edge, kept).T)
        if states.joined is not None or states.cut is not None:
            levels = far_unless(levels, states.edges(field)[:, edges])
        return levels

    def _chunks(self, items: Ids) -> list[slice]:
        """Runs of states whose nodes and edges together stay below the limit."""
        limit = self._limit()
        run = np.cumsum(items)
        parts, first, spent = [], 0, 0
        while first < len(items):
            last = max(first + 1, int(np.searchsorted(run, spent + limit, side="right")))
            parts.append(slice(first, last))
            first, spent = last, int(run[last - 1])
        return parts

    def _few(self, features: int) -> int:
        """So few rows that they are best copied; fewer if they are wider than `features`."""
        return self.eager * features // max(features, self.graph.num_features)

    def _limit(self) -> int:
        """Nodes and edges of a batch."""
        # Numbers that a node or edge may take in the widest layer.
        width = max(self.layers.widest, 0 if self.way.shared else self.graph.num_features, 16)
        return max(1, min(_CACHE_ITEMS, self.memory // (4 * width * 4)))

    def _chunk(
        self, states: States, hops: Hops, levels: Hops, edges: Ids,
        degrees: NDArray[np.float32] | None,
    ) -> Tensor:  # fmt: skip
        field, way, count = self.field, self.way, len(states)
        device = self.graph.x.device
        place = _Places.by_state(hops) if way.whole else _Places.by_hops(hops)
        # By hops, states and nodes, as the nodes of the batch: so edges are in their ends' order.
        flat, _ = _by_level(levels)
        state = flat // max(1, len(edges))
        edge = edges[flat - state * len(edges)]
        # Batch ids: the nodes of all states, then the rim, which they share.
        first = state * field.size
        ends = np.empty((2, len(edge)), dtype=np.int64)
        source = field.source[edge]
        ends[1] = place.of[first + field.target[edge]]
        beyond = source >= field.size
        rim = field.rim if beyond.any() else 0
        if rim:
            inside = place.of[np.where(beyond, 0, first + source)]
            ends[0] = np.where(beyond, source + (place.count - field.size), inside)
        else:
            ends[0] = place.of[first + source]
        table = states.table
        rows = np.empty(place.count + rim, dtype=np.int64)
        if states.rows is not None:
            rows[: place.count] = states.rows.reshape(-1)[place.nodes]
        else:
            rows[: place.count] = place.nodes - place.nodes // field.size * field.size
        if rim:  # wanted only where layers count the edges into the last nodes
            rows[place.count :] = table.shape[0] + np.arange(rim)
            beyond_it = tensor(field.ids[field.size :], device)
            table = torch.cat([plain(table), self.graph.x.index_select(0, beyond_it)])
        index = tensor(rows, device)
        x = (
            SharedRows(table, index)
            if way.shared
            and (
                isinstance(table, PatchedRows)
                or len(rows) > (max(self._few(16), table.shape[0]) if self.eager else 0)
            )
            else table.index_select(0, index)
        )
        weight, attr = self.graph.edge_weight, self.graph.edge_attr
        where = None if weight is None and attr is None else tensor(field.edges[edge], device)
        batch = None
        if way.whole:
            batch = torch.arange(count, device=device).repeat_interleave(field.size)
        pairs = None
        if self.model.scores_pairs:
            # The two ends are the centres of a state, which come first.
            pairs = torch.arange(2 * count, device=device).reshape(count, 2).t()
        rounds = way.rounds if len(rows) > self._few(1) else None
        edge_index = tensor(ends, device)
        weights = None if weight is None else weight[where]
        known = None
        if way.shared:
            starts = np.zeros(len(rows) + 1, dtype=np.int64)
            np.cumsum(np.bincount(ends[1], minlength=len(rows)), out=starts[1:])
            known = BatchEdges(edge_index, weights, ends[0], ends[1], starts, field.loops)
            if degrees is not None:
                known.degree = tensor(degrees.reshape(-1)[place.nodes], device)
        with trimmed(self.model.parts, self.layers, place.within(rounds), known):
            out = self.model(
                x, edge_index, weights, None if attr is None else attr[where], batch, pairs
            )
        if way.whole or pairs is not None:
            return plain(out)[:, None, :]
        # Centres are 0 hops away: they come first, state by state.
        return plain(out[: count * field.centres]).reshape(count, field.centres, -1)


@dataclass(frozen=True, eq=False)
class _Places:
    """Where the nodes of the states are in a batch."""

    nodes: Ids
    """The batch's nodes in order, as positions in the flattened [states, nodes]."""
    of: Ids
    """The way back; anything for a node that is not in the batch."""
    at: list[int] | None
    """How many of them are 0, 1, ... hops away; None: they are not in the order of hops."""

    @property
    def count(self) -> int:
        return len(self.nodes)

    @staticmethod
    def by_state(hops: Hops) -> _Places:
        every = np.arange(hops.size)
        return _Places(every, every, None)

    @staticmethod
    def by_hops(hops: Hops) -> _Places:
        nodes, at = _by_level(hops)
        of = np.empty(hops.size, dtype=np.int64)
        of[nodes] = np.arange(len(nodes))
        return _Places(nodes, of, at)

    def within(self, rounds: int | None) -> list[int] | None:
        """How many nodes are within 0, 1, ... `rounds` hops."""
        if rounds is None or self.at is None:
            return None
        return [sum(self.at[: hop + 1]) for hop in range(rounds + 1)]


def _by_level(levels: Hops) -> tuple[Ids, list[int]]:
    """Positions of levels 0, 1, ... in the flat array, and how many there are of each.

    Several times faster than sorting: there are few levels.
    """
    flat = levels.reshape(-1)
    found: list[Ids] = []
    left = np.count_nonzero(flat < FAR)
    while left:
        found.append(np.flatnonzero(flat == len(found)))
        left -= len(found[-1])
    return (np.concatenate(found) if found else np.zeros(0, dtype=np.int64)), [*map(len, found)]
