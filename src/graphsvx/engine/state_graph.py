"""The states of nodes in perturbed graphs, round by round, as one graph.

After k rounds of message passing, the embedding of a node is a function of its *state*: its
features and the states, one round earlier, of the neighbours that it has edges from. A graph of
few nodes has few states, however many perturbed graphs there are. All of them are the vertices of
one graph, whose edges go from the states after a round to those after the next one, so that one
call of the model gives all embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensors
from graphsvx.core.field import Field, Perturbations
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model
from graphsvx.engine.kernels import BatchEdges, ModelLayers
from graphsvx.engine.lazy import SharedRows, plain
from graphsvx.engine.trim import trimmed
from graphsvx.errors import ModelError

Result = TypeVar("Result")
Numbers = NDArray[np.int32]

LARGEST_TABLE = 1 << 22
"""Keys that are numbered by a table; more are sorted."""
_CACHED = 1 << 16  # keys whose table fits into the caches of a core
_FIRST_KEYS = 1 << 12  # that are numbered before the others


@dataclass(frozen=True, eq=False)
class NodeStates:
    """The states of one node in a batch of perturbed graphs."""

    number: Numbers
    """Of each graph."""
    example: Ids
    """The first graph in which the node has each state."""


def column(states: NodeStates) -> tuple[Numbers, int]:
    """State numbers with their bound."""
    return states.number, len(states.example)


def number_states(parts: list[tuple[Numbers, int]], count: int) -> NodeStates:
    """Numbers of the distinct rows of columns, each given with a bound of its values."""
    keys, distinct = np.zeros(count, dtype=np.int32), 1
    for values, bound in parts:
        if bound == 1:
            continue
        if distinct * bound > _CACHED:
            compact = number_keys(keys, distinct)
            keys, distinct = compact.number, len(compact.example)
        if distinct * bound > LARGEST_TABLE:
            pairs = keys * np.int64(bound) + values
            met, inverse = np.unique(pairs, return_inverse=True)
            keys, distinct = inverse.reshape(-1).astype(np.int32), len(met)
        else:
            keys *= np.int32(bound)
            keys += values
            distinct *= bound
    return number_keys(keys, distinct)


def number_keys(keys: Numbers, bound: int) -> NodeStates:
    """The distinct keys, numbered in the order in which they come."""
    if bound == 1:
        return NodeStates(np.zeros_like(keys), np.arange(min(1, len(keys))))
    table = np.full(bound, -1, dtype=np.int32)
    # Distinct keys are nearly all met among the first ones.
    example = _first_places(keys[:_FIRST_KEYS], table, 0)
    number = table.take(keys)
    if number.min(initial=0) < 0:
        rest = np.flatnonzero(number < 0)
        new = _first_places(keys[rest], table, len(example))
        number[rest] = table.take(keys[rest])
        example = np.concatenate([example, rest[new]])
    return NodeStates(number, example)


def _first_places(keys: Numbers, table: Numbers, start: int) -> Ids:
    """Where each distinct key comes first; the table gets their numbers, from `start` on."""
    places = keys.astype(np.intp)
    # From the last to the first, so that the first is written last.
    table[places[::-1]] = np.arange(len(keys) - 1, -1, -1, dtype=np.int32)
    first = np.flatnonzero(table.take(places) == np.arange(len(keys), dtype=np.int32))
    table[places[first]] = np.arange(start, start + len(first), dtype=np.int32)
    return first


Levels = list[list[NodeStates]]
"""States of each node after 0, 1, ... rounds; nodes that no longer matter are left out."""
Call = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Result]
"""A call of the model with features, edges, and weights and features of the edges."""

_BLOCK = 1 << 18  # graphs whose states are evaluated together


@dataclass(frozen=True, eq=False)
class BatchStates:
    """The states of nodes in a batch of perturbed graphs."""

    perturbations: Perturbations
    edges: ActiveEdges
    levels: Levels

    @staticmethod
    def count(levels: Levels) -> int:
        """Number of states of all nodes in some levels."""
        return sum(len(states.example) for level in levels for states in level)

    @property
    def last(self) -> list[NodeStates]:
        """States after the last round."""
        return self.levels[-1]

    def tables(self, rows: Tensor) -> list[Tensor]:
        """Rows of the states after the last round, of each node, from those of all states."""
        sizes = [len(node.example) for node in self.last]
        return [*plain(rows[: sum(sizes)]).split(sizes)]


class TooManyStatesError(ModelError):
    """The states of a set of perturbed graphs are more than the budget allows."""

    def __init__(self, most: int, fitting: int = 0) -> None:
        super().__init__(f"the nodes have more than {most} states, which cost more than the budget")
        self.fitting = fitting
        """Number of leading graphs whose states the budget allows."""


@dataclass(frozen=True, eq=False)
class StateGraphs:
    """Numbers the states of nodes in perturbed graphs of a field, and evaluates a graph of them."""

    model: Model
    graph: Graph
    field: Field
    depth: int
    """Rounds of message passing."""
    layers: ModelLayers

    @property
    def reads_degrees(self) -> bool:
        """Whether messages may depend on the degree of the sender."""
        return self.layers.may_read_degrees

    def block(self, memory: int) -> int:
        """Number of perturbed graphs that are evaluated together within `memory` bytes."""
        # Levels of states, and edges twice, in 32 bits; for each centre, rows of the last layer.
        numbers = (self.depth + 4) * self.field.size + 2 * len(self.field.edges)
        numbers += 4 * self.field.centres * self.layers.widest
        return int(np.clip(memory // max(1, 4 * numbers), 1, _BLOCK))

    @property
    def work(self) -> int:
        """Edges that are followed to number the states of one perturbed graph, in all rounds."""
        into = np.cumsum([0, *map(len, self._in_edges)])
        return int(sum(into[self.nodes_after(rounds)] for rounds in range(1, self.depth + 1)))

    def may_have_few(self, graphs: int) -> bool:
        """Whether so many perturbed graphs may have fewer states than that before the last round.

        After one round a node with d neighbours that send has at most 2^d states.
        """
        if self.depth < 2:
            return False
        degree = [len(into) for into in self._in_edges[: self.nodes_after(1)]]
        return sum(min(1 << min(d, 62), graphs) for d in degree) <= graphs

    def number(self, perturbations: Perturbations, most: int | None = None) -> BatchStates:
        """The states of all nodes after each round.

        A TooManyStatesError if nodes have more than `most` states after a round but the last.
        """
        states = BatchStates(perturbations, ActiveEdges.of(perturbations, self.field), [])
        for level in self._levels(perturbations, states.edges):
            if most is not None and states.levels and states.count(states.levels[-1:]) > most:
                raise TooManyStatesError(most)
            states.levels.append(level)
        return states

    def evaluate(self, states: BatchStates, call: Call[Result]) -> Result:
        """What the model gives on the graph of all states, of which those at the end come first."""
        levels, submodules = states.levels[::-1], self.model.submodules
        rows, ends, positions = self._state_graph(states, levels)
        sizes = [BatchStates.count([level]) for level in levels]
        within = np.cumsum(sizes[: self.depth + 1]).tolist()
        device = self.graph.x.device
        index, edge_index, edge_ids = as_tensors(device, rows, ends, positions)
        weight, attributes = self.graph.edge_rows(edge_ids)
        count, loops = len(rows), self.field.has_loops
        edges = BatchEdges(edge_index, ends, count, count, within, loops)
        x = SharedRows(plain(states.perturbations.feature_table), index)
        with trimmed(submodules, self.layers, [edges]):
            return call(x, edge_index, weight, attributes)

    def nodes_after(self, rounds: int) -> int:
        """Number of nodes whose state after some rounds matters: the first ones of the field.

        Those that the remaining rounds can carry to a centre; in a whole graph all of them.
        """
        return int(self.field.hops.searchsorted(self.depth - rounds, side="right"))

    @cached_property
    def _in_edges(self) -> list[Ids]:
        """Positions in the field of the edges into each node, loops left out."""
        field = self.field
        between = np.flatnonzero(field.source != field.target)
        return _by_node(between, field.target[between], field.size)

    @cached_property
    def _loops(self) -> list[Ids]:
        field = self.field
        loops = np.flatnonzero(field.source == field.target)
        return _by_node(loops, field.target[loops], field.size)

    def _levels(
        self, perturbations: Perturbations, edges: ActiveEdges
    ) -> Iterator[list[NodeStates]]:
        """States of each node after 0, 1, ... rounds.

        Where messages depend on degrees, a node has its degree from a level before round 0, which
        has the boundary of the field as well.
        """
        field, count = self.field, len(perturbations)
        features, table = perturbations.feature_row, len(perturbations.feature_table)
        feature_states: list[NodeStates] = []
        for u in range(field.size):
            parts = [(edges.there(e) & 1, 2) for e in self._loops[u]]
            if features is not None:
                parts.append((features[:, u].astype(np.int32), table))
            feature_states.append(number_states(parts, count))
        before = feature_states
        if self.reads_degrees:
            yield feature_states + [number_states([], count)] * field.boundary
            before = [self._with_degree(feature_states[u], u, edges) for u in range(field.size)]
        yield before
        for rounds in range(1, self.depth + 1):
            before = [
                number_states(
                    [
                        column(feature_states[u]),
                        *(
                            (edges.sent(e, before[w].number), len(before[w].example) + 1)
                            for e, w in zip(into, field.source[into], strict=True)
                        ),
                    ],
                    count,
                )
                for u, into in enumerate(self._in_edges[: self.nodes_after(rounds)])
            ]
            yield before

    def _with_degree(self, states: NodeStates, node: int, edges: ActiveEdges) -> NodeStates:
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

    def _state_graph(self, states: BatchStates, levels: Levels) -> tuple[Ids, Ids, Ids]:
        """All states as one graph: rows of the feature table, edges, and these in the user's graph.

        `levels`: the last one first. Edges, sorted by target, go from the states of a level to
        those of the next one.
        """
        field, feature_rows = self.field, states.perturbations.feature_rows()
        starts = np.cumsum([0, *(len(states.example) for level in levels for states in level)])
        first_node = np.cumsum([0, *(len(level) for level in levels)])
        rows: list[Ids] = []
        sources: list[Ids] = []
        targets: list[Ids] = []
        positions: list[Ids] = []
        for number, level in enumerate(levels):
            is_first = number == len(levels) - 1
            for u, node in enumerate(level):
                at = first_node[number] + u
                vertices = np.arange(starts[at], starts[at + 1])
                if u >= field.size:  # the boundary, of which edges are counted, and nothing read
                    rows.append(np.zeros(len(vertices), dtype=np.int64))
                    continue
                rows.append(feature_rows[node.example, u])
                into = np.array([*self._loops[u], *(() if is_first else self._in_edges[u])], int)
                senders = np.empty((len(vertices), len(into)), dtype=np.int64)
                present = np.empty(senders.shape, dtype=bool)
                for i, e in enumerate(into):
                    w = field.source[e]
                    present[:, i] = states.edges.there(e, node.example) != 0
                    if w == u:
                        senders[:, i] = vertices
                    else:
                        before = levels[number + 1][w].number[node.example]
                        senders[:, i] = starts[first_node[number + 1] + w] + before
                state, place = present.nonzero()
                sources.append(senders[state, place])
                targets.append(vertices[state])
                positions.append(into[place])
        ends = np.stack([np.concatenate(part) for part in (sources, targets)])
        return np.concatenate(rows), ends, field.edges[np.concatenate(positions)]


def _by_node(edges: Ids, target: Ids, nodes: int) -> list[Ids]:
    """The edges into each node."""
    order = target.argsort(kind="stable")
    return np.split(edges[order], target[order].searchsorted(np.arange(1, nodes)))


@dataclass(frozen=True, eq=False)
class ActiveEdges:
    """Edges of many perturbed graphs; all bits are set where an edge is there, for `&`."""

    field: Field
    on: Numbers | None
    """[nodes, graphs], if edges are there whenever their nodes are on."""
    single: Numbers | None
    """[edges, graphs], otherwise."""

    @staticmethod
    def of(perturbations: Perturbations, field: Field) -> ActiveEdges:
        """Those of a batch of perturbed graphs of a field, whose boundary is always on."""
        if perturbations.added_edges is None and perturbations.removed_edges is None:
            on = -np.ascontiguousarray(perturbations.active.T, dtype=np.int32)
            return ActiveEdges(field, on, None)
        edges = perturbations.active_edges(field)
        return ActiveEdges(field, None, -np.ascontiguousarray(edges.T, dtype=np.int32))

    def there(self, edge: int, graphs: Ids | slice = slice(None)) -> Numbers:
        """Column of an edge, at all graphs or at some."""
        if self.on is None:
            return cast(Numbers, self.single)[edge][graphs]
        source, target = self.field.source[edge], self.field.target[edge]
        at_target = self.on[target][graphs]
        return at_target if source >= self.field.size else self.on[source][graphs] & at_target

    def sent(self, edge: int, states: Numbers) -> Numbers:
        """What the target gets of the sender's states, counted from 1; 0: there is no edge."""
        received = states + np.int32(1)
        received &= self.there(edge)
        return received
