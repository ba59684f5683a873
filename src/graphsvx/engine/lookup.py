"""Whole perturbed graphs by look-ups: a node's embedding depends on its neighbourhood only.

After k rounds of message passing, the embedding of a node is a function of its *state*: its
features and the states, one round earlier, of the neighbours that it has edges from. A graph of
few nodes has few states, however many coalitions there are. All of them are evaluated as one
graph of states in one call of the model; the output of any perturbed graph is then a look-up of
its nodes' embeddings, pooled and sent through the model's head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model
from graphsvx.core.perturbation import Perturbations
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.shared import SharedRows
from graphsvx.engine.node_states import NodeStates, Numbers, column, number_states
from graphsvx.engine.pooled import PooledModel, Pooling
from graphsvx.engine.pooled_states import NodeEmbeddings, PooledStates
from graphsvx.engine.state_rounds import StateRounds, by_level
from graphsvx.errors import ModelError

_BLOCK = 1 << 18  # graphs whose states are evaluated together


class TooManyStatesError(ModelError):
    """The states of a set of perturbed graphs are more than the budget allows."""

    def __init__(self, message: str, fitting: int = 0) -> None:
        super().__init__(message)
        self.fitting = fitting
        """Number of leading graphs whose states the budget allows."""


@dataclass(frozen=True, eq=False)
class LookedUp:
    """Outputs of perturbed graphs, and what they cost."""

    outputs: Tensor
    """[graphs that were not known, outputs]."""
    states: int
    """States of the last round that no known graph has: embeddings that were not known."""
    rounds: tuple[list[NodeStates], ...]
    """States of each node after each round."""


@dataclass(frozen=True, eq=False)
class Lookup:
    """Evaluates perturbed graphs of a model that is layers on nodes and a pooled head."""

    model: Model
    graph: Graph
    field: Field
    depth: int
    """Rounds of message passing."""
    reads_degrees: bool
    """Whether messages depend on the degree of the sender."""

    def block(self, memory: int) -> int:
        """Number of perturbed graphs that are evaluated together within `memory` bytes."""
        # Levels of states, and edges twice, in 32 bits.
        numbers = (self.depth + 4) * self.field.size + 2 * len(self.field.edges)
        return int(np.clip(memory // max(1, 4 * numbers), 1, _BLOCK))

    def __call__(self, perturbations: Perturbations, limit: int, looked_up: int = 0) -> LookedUp:
        """Outputs of perturbed graphs; a TooManyStatesError beyond `limit` new states.

        The first `looked_up` graphs are not looked up again: they and their states do not count.
        """
        edges = _Edges.of(perturbations, self.field)
        levels = self._levels(perturbations, edges)
        count = _within(limit, levels[-1], looked_up)
        tables, poolings = self._embed(perturbations, levels, edges)
        numbers = [states.number[looked_up:] for states in levels[-1]]
        pool = PooledStates(NodeEmbeddings(tables, numbers, poolings), self._order)
        pooled_model = PooledModel(self.model, self.graph)
        outputs = torch.cat([pooled_model.head(pooled) for pooled in pool.batches()])
        return LookedUp(outputs, count, tuple(levels[len(levels) - self.depth :]))

    def embeddings(self, perturbations: Perturbations, limit: int) -> NodeEmbeddings:
        """Embeddings of nodes in perturbed graphs; a TooManyStatesError beyond `limit` of them."""
        edges = _Edges.of(perturbations, self.field)
        levels = self._levels(perturbations, edges)
        _within(limit, levels[-1], 0)
        tables, poolings = self._embed(perturbations, levels, edges)
        return NodeEmbeddings(tables, [states.number for states in levels[-1]], poolings)

    @cached_property
    def _in_edges(self) -> list[Ids]:
        """Positions in the field of the edges into each node, loops left out."""
        field = self.field
        loops = field.source == field.target
        return [np.flatnonzero((field.target == u) & ~loops) for u in range(field.size)]

    @cached_property
    def _loops(self) -> list[Ids]:
        field = self.field
        at = np.flatnonzero(field.source == field.target)
        return [at[field.target[at] == u] for u in range(field.size)]

    @cached_property
    def _order(self) -> list[int]:
        """All nodes, depth first: neighbours close to each other."""
        neighbours: list[set[int]] = [set() for _ in range(self.field.size)]
        for u, v in zip(self.field.source.tolist(), self.field.target.tolist(), strict=True):
            neighbours[u].add(v)
            neighbours[v].add(u)
        order: dict[int, None] = {}
        for root in range(self.field.size):
            stack = [root]
            while stack:
                node = stack.pop()
                if node not in order:
                    order[node] = None
                    stack += sorted(neighbours[node] - order.keys(), reverse=True)
        return list(order)

    def _levels(self, perturbations: Perturbations, edges: _Edges) -> list[list[NodeStates]]:
        """States of each node after 0, 1, ... rounds.

        Where messages depend on degrees, a node has its degree from a level before round 0.
        """
        size, count = self.field.size, len(perturbations)
        features, table = perturbations.feature_row, len(perturbations.feature_table)
        feature_states: list[NodeStates] = []
        for u in range(size):
            parts = [(edges.there(e) & 1, 2) for e in self._loops[u]]
            if features is not None:
                parts.append((features[:, u].astype(np.int32), table))
            feature_states.append(number_states(parts, count))
        levels = [feature_states]
        if self.reads_degrees:
            levels.append([self._with_degree(feature_states[u], u, edges) for u in range(size)])
        for _ in range(self.depth):
            before = levels[-1]
            levels.append(
                [
                    number_states(
                        [
                            column(feature_states[u]),
                            *(
                                (edges.sent(e, before[w].number), len(before[w].example) + 1)
                                for e, w in zip(into, self.field.source[into], strict=True)
                            ),
                        ],
                        count,
                    )
                    for u, into in enumerate(self._in_edges)
                ]
            )
        return levels

    def _with_degree(self, states: NodeStates, node: int, edges: _Edges) -> NodeStates:
        into = self._in_edges[node]
        parts = [column(states)]
        if "edge_weight" in self.model.takes and self.graph.edge_weight is not None:
            parts += [(edges.there(e) & 1, 2) for e in into]
        else:
            degree = np.zeros(len(states.number), dtype=np.int32)
            for e in into:
                degree -= edges.there(e)
            parts.append((degree, len(into) + 1))
        return number_states(parts, len(states.number))

    def _embed(
        self, perturbations: Perturbations, levels: list[list[NodeStates]], edges: _Edges
    ) -> tuple[list[list[Tensor]], list[Pooling]]:
        """Embeddings of the states of each node at the last level, for each pooling."""
        states = self._state_graph(perturbations, levels, edges)
        x: Tensor = SharedRows(plain(perturbations.feature_table), states.rows[0])
        inputs = (states.edge_index, states.weight, states.attributes)
        pooled_model = PooledModel(self.model, self.graph)
        if self.reads_degrees:  # of senders, which have edges into them in all rounds
            embeddings, poolings = pooled_model.embed(plain(x), *inputs)
        else:
            with by_level(self.model.submodules, states):
                embeddings, poolings = pooled_model.embed(x, *inputs)
        ends = np.cumsum([states.starts[-2], *(len(node.example) for node in levels[-1])])
        return [
            [plain(part[first:last]) for first, last in pairwise(ends.tolist())]
            for part in embeddings
        ], poolings

    def _state_graph(
        self, perturbations: Perturbations, levels: list[list[NodeStates]], edges: _Edges
    ) -> StateRounds:
        """All states as one graph, whose edges go from the states of a level to the next one."""
        field, graph, device = self.field, self.graph, self.graph.x.device
        feature_rows = perturbations.feature_rows()
        counts = [len(states.example) for level in levels for states in level]
        starts = np.cumsum([0, *counts])
        rows: list[Ids] = []
        sources: list[Ids] = []
        targets: list[Ids] = []
        positions: list[Ids] = []
        edge_starts = []
        for number, level in enumerate(levels):
            edge_starts.append(sum(len(part) for part in positions))
            for u, states in enumerate(level):
                at = number * field.size + u
                vertices = np.arange(starts[at], starts[at + 1])
                rows.append(feature_rows[states.example, u])
                into = np.array([*self._loops[u], *(self._in_edges[u] if number else ())], np.int64)
                senders = np.empty((len(vertices), len(into)), dtype=np.int64)
                present = np.empty(senders.shape, dtype=bool)
                for i, e in enumerate(into):
                    w = field.source[e]
                    present[:, i] = edges.there(e, states.example) != 0
                    if w == u:
                        senders[:, i] = vertices
                    else:
                        before = levels[number - 1][w].number[states.example]
                        senders[:, i] = starts[at - field.size - u + w] + before
                state, place = present.nonzero()
                sources.append(senders[state, place])
                targets.append(vertices[state])
                positions.append(into[place])
        index = np.stack([np.concatenate(part) for part in (sources, targets)])
        edge_ids = as_tensor(field.edges[np.concatenate(positions)], device)
        level_starts = starts[:: field.size].tolist()
        return StateRounds(
            edge_index=as_tensor(index, device),
            weight=None if graph.edge_weight is None else graph.edge_weight[edge_ids],
            attributes=None if graph.edge_attr is None else graph.edge_attr[edge_ids],
            rows=tuple(
                as_tensor(part, device)
                for part in (np.concatenate(rows), *_shared_rows(levels, level_starts))
            ),
            starts=tuple(level_starts),
            edge_starts=(*edge_starts, len(edge_ids)),
        )


def _within(limit: int, nodes: list[NodeStates], looked_up: int) -> int:
    """Number of states that no graph before the place `looked_up` has, if within the limit."""
    first = np.concatenate([states.example for states in nodes])
    first = np.sort(first[first >= looked_up])
    if len(first) > limit:
        raise TooManyStatesError(
            f"the nodes have more than {limit} states, which cost more than the budget",
            int(first[max(limit, 0)]),
        )
    return len(first)


def _shared_rows(levels: list[list[NodeStates]], starts: list[int]) -> list[Ids]:
    """For each level but the first: its vertex that each vertex of this or a later one came from.

    Counted within the level; `starts` of all levels, and the number of vertices.
    """
    rows = np.zeros((len(levels) - 1, starts[-1]), dtype=np.int64)
    for number, level in enumerate(levels[1:], 1):
        mine = slice(starts[number], starts[number + 1])
        rows[number - 1, mine] = np.arange(mine.stop - mine.start)
        first, before = starts[number - 1], []
        for states, earlier in zip(level, levels[number - 1], strict=True):
            before.append(first + earlier.number[states.example])
            first += len(earlier.example)
        rows[: number - 1, mine] = rows[: number - 1, np.concatenate(before)]
    return list(rows)


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges of many perturbed graphs; all bits are set where an edge is there, for `&`."""

    field: Field
    on: Numbers | None
    """[nodes, graphs], if edges are there whenever their nodes are on."""
    single: Numbers | None
    """[edges, graphs], otherwise."""

    @staticmethod
    def of(perturbations: Perturbations, field: Field) -> _Edges:
        if perturbations.added_edges is None and perturbations.removed_edges is None:
            on = -np.ascontiguousarray(perturbations.active.T, dtype=np.int32)
            padding = ((0, field.boundary), (0, 0))
            return _Edges(field, np.pad(on, padding, constant_values=-1), None)
        edges = perturbations.active_edges(field)
        return _Edges(field, None, -np.ascontiguousarray(edges.T, dtype=np.int32))

    def there(self, edge: int, graphs: Ids | slice = slice(None)) -> Numbers:
        """Column of an edge, at all graphs or at some."""
        if self.on is None:
            return cast(Numbers, self.single)[edge][graphs]
        source, target = self.field.source[edge], self.field.target[edge]
        return self.on[source][graphs] & self.on[target][graphs]

    def sent(self, edge: int, states: Numbers) -> Numbers:
        """What the target gets of the sender's states, counted from 1; 0: there is no edge."""
        received = states + np.int32(1)
        received &= self.there(edge)
        return received
