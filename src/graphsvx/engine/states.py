"""Look-ups of states: perturbed graphs by the states of the nodes in them.

A node's embedding depends on its neighbourhood only, so it has far fewer states than there are
perturbed graphs, and all of them are evaluated as one graph (`engine.state_graph`). The output of
an explained node follows from what its neighbours send in the last round; that of a whole graph is
a look-up of the embeddings of its nodes, pooled and sent through the model's head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from math import log2
from typing import final

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import allclose, as_tensor
from graphsvx.core.field import Field, HopCounts, Perturbations
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.pooled import NodeEmbeddings, PooledModel
from graphsvx.engine.rows import Rows
from graphsvx.engine.state_graph import StateGraphs, TooManyStatesError
from graphsvx.errors import ModelError
from graphsvx.utils.context import give_up

FEWEST_GRAPHS = 1 << 11
"""Perturbed graphs from which on states are numbered: of fewer, most states differ."""
_CHECKED = 16  # graphs of each batch that are evaluated without look-ups too


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class States(Evaluator):
    """Look-ups for models of known structure; few graphs, and some of many, in batches.

    All rounds but the last one are computed once for each state of a node; the last one, and the
    head of the model, once for each perturbed graph.
    """

    rows: Rows
    rounds: int

    @staticmethod
    def of(rows: Rows, rounds: int) -> States:
        """Look-ups beside the batches of an evaluator."""
        common = {part.name: vars(rows)[part.name] for part in fields(Evaluator)}
        return States(**common, rows=rows, rounds=rounds)

    def states(self, field: Field) -> StateGraphs | None:
        """The states of nodes around the explained ones; None for whole graphs (`lookup`)."""
        return self._states(field) if self.local else None

    @property
    def lookup(self) -> Lookup | None:
        """Look-ups of whole graphs; None where nodes are explained."""
        return None if self.local else Lookup(self._states(self.field))

    def _states(self, field: Field) -> StateGraphs:
        return StateGraphs(self.query.model, self.query.graph, field, self.rounds, self.rows.layers)

    def slopes(
        self,
        field: Field,
        perturbations: Perturbations,
        hops: HopCounts,
        score: Callable[[Tensor], Tensor],
    ) -> Tensor | None:
        """Derivatives of scores by how active nodes are as senders, [graphs, nodes, scores]."""
        return self.rows.slopes(field, perturbations, hops, score)

    def evaluate(
        self, field: Field, perturbations: Perturbations, hops: HopCounts | None = None
    ) -> Tensor:
        """Raw outputs at the centres [graphs, centres, outputs]; in batches where look-ups fail."""
        if hops is None:
            hops = self.hop_counts(field, perturbations)
        if self.local and len(perturbations) >= FEWEST_GRAPHS:
            out = self._looked_up(field, perturbations, hops)
            if out is not None:
                return out
        return self.rows.evaluate(field, perturbations, hops)

    def _looked_up(
        self, field: Field, perturbations: Perturbations, hops: HopCounts
    ) -> Tensor | None:
        """None: there are too many states, or some outputs are not those of batches."""
        states = self._states(field)
        if not states.may_have_few(len(perturbations)):
            return None
        step = states.block(self.query.memory)
        blocks = (slice(first, first + step) for first in range(0, len(perturbations), step))
        try:
            parts = [
                _outputs_at_centres(states, perturbations.take(block), len(perturbations))
                for block in blocks
            ]
        except TooManyStatesError:
            return None
        except ModelError as error:  # of the model or of look-ups: batches show which
            give_up("coalitions were evaluated in batches, not looked up", error)
            return None
        out = torch.cat(parts)
        checked = np.linspace(0, len(out) - 1, _CHECKED).astype(np.int64)
        in_batches = self.rows.evaluate(field, perturbations.take(checked), hops[checked])
        return out if allclose(out[as_tensor(checked, out.device)], in_batches, out) else None


def _outputs_at_centres(
    graphs: StateGraphs, perturbations: Perturbations, most_states: int
) -> Tensor:
    states = graphs.number(perturbations, most_states)
    tables = states.tables(graphs.evaluate(states, graphs.model))
    columns = [
        table.index_select(0, as_tensor(node.number, table.device))
        for table, node in zip(tables, states.last, strict=True)
    ]
    return torch.stack(columns, 1)


# Whole graphs.


_PROBES = 1 << 11  # graphs that show how the number of states grows, as a power of their number
_MANY_EDGES = 2.5  # a node
_BY_FAR = 2.0


@dataclass(frozen=True, eq=False)
class Lookup:
    """Evaluates perturbed graphs of a model that is layers on nodes and a pooled head."""

    states: StateGraphs

    def __call__(
        self, perturbations: Perturbations, limit: int, looked_up: int = 0
    ) -> tuple[Tensor, int]:
        """Outputs of perturbed graphs [graphs, outputs], and the number of new states.

        A TooManyStatesError beyond `limit` new states. The first `looked_up` graphs are not looked
        up again: they and their states do not count.
        """
        if not looked_up:
            self._require_few(perturbations, limit)
        embedded = self.embeddings(perturbations, limit, looked_up)
        pooled = embedded.pooled(self._order)
        return torch.cat([*map(self.pooled_model.head, pooled)]), embedded.new

    def embeddings(
        self, perturbations: Perturbations, limit: int, looked_up: int = 0
    ) -> NodeEmbeddings:
        """Embeddings of nodes in all but the first graphs, which have been `looked_up`.

        A TooManyStatesError beyond `limit` states that no graph before has.
        """
        states = self.states.number(perturbations)
        first = np.sort(np.concatenate([node.example for node in states.last]))
        first = first[first >= looked_up]
        if len(first) > limit:
            raise TooManyStatesError(limit, int(first[max(limit, 0)]))
        embeddings, poolings = self.states.evaluate(states, self.pooled_model.embed)
        numbers = [node.number[looked_up:] for node in states.last]
        return NodeEmbeddings([*map(states.tables, embeddings)], numbers, poolings, len(first))

    @property
    def pooled_model(self) -> PooledModel:
        """The model as an encoder of nodes and a head on graphs."""
        return PooledModel(self.states.model, self.states.graph)

    def _require_few(self, perturbations: Perturbations, limit: int) -> None:
        """A TooManyStatesError if a few of many graphs show that all exceed the limit by far.

        Only for graphs of many edges: others are numbered in no time.
        """
        field, graphs = self.states.field, len(perturbations)
        if graphs < 8 * _PROBES or len(field.edges) < _MANY_EDGES * field.size:
            return
        # From all of them: the first ones are of few sizes, and alike. One half, then the other.
        places = np.linspace(0, graphs - 1, _PROBES).astype(np.int64).reshape(-1, 2).T.reshape(-1)
        last = self.states.number(perturbations.take(places)).last
        first = np.concatenate([node.example for node in last])
        power = max(log2(len(first) / np.count_nonzero(first < _PROBES // 2)), 1e-3)
        if len(first) * (graphs / _PROBES) ** power > _BY_FAR * limit:
            fitting = _PROBES * (limit / len(first)) ** (1 / power)
            raise TooManyStatesError(limit, int(fitting))

    @cached_property
    def _order(self) -> list[int]:
        """All nodes, depth first: neighbours close to each other."""
        import networkx as nx  # noqa: PLC0415  (costly to import)

        field = self.states.field
        graph, ends = nx.empty_graph(field.size), np.stack([field.source, field.target], 1)
        # Edges in this order list the neighbours of each node in ascending order.
        graph.add_edges_from(np.unique(np.sort(ends, 1), axis=0).tolist())
        return [*nx.dfs_preorder_nodes(graph)]
