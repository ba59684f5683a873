"""Whole perturbed graphs by look-ups: a node's embedding depends on its neighbourhood only.

The states of all nodes are evaluated as one graph (`engine.state_graph`) in one call of the model;
the output of any perturbed graph is then a look-up of its nodes' embeddings, pooled and sent
through the model's head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import log2

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.perturbation import Perturbations
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.node_states import NodeStates
from graphsvx.engine.pooled import PooledModel, Pooling
from graphsvx.engine.pooled_states import NodeEmbeddings, PooledStates
from graphsvx.engine.state_graph import BatchStates, StateGraphs
from graphsvx.errors import ModelError

_PROBES = 1 << 11  # graphs that show how the number of states grows, as a power of their number
_MANY_EDGES = 2.5  # a node
_BY_FAR = 2.0


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

    states: StateGraphs

    def __call__(self, perturbations: Perturbations, limit: int, looked_up: int = 0) -> LookedUp:
        """Outputs of perturbed graphs; a TooManyStatesError beyond `limit` new states.

        The first `looked_up` graphs are not looked up again: they and their states do not count.
        """
        if not looked_up:
            self._require_few(perturbations, limit)
        states = self.states.number(perturbations)
        count = _within(limit, states.last, looked_up)
        tables, poolings = self._embed(states)
        numbers = [node.number[looked_up:] for node in states.last]
        pool = PooledStates(NodeEmbeddings(tables, numbers, poolings), self._order)
        outputs = torch.cat([self.pooled_model.head(pooled) for pooled in pool.batches()])
        rounds = states.levels[len(states.levels) - self.states.depth :]
        return LookedUp(outputs, count, tuple(rounds))

    def embeddings(self, perturbations: Perturbations, limit: int) -> NodeEmbeddings:
        """Embeddings of nodes in perturbed graphs; a TooManyStatesError beyond `limit` of them."""
        states = self.states.number(perturbations)
        _within(limit, states.last, 0)
        tables, poolings = self._embed(states)
        return NodeEmbeddings(tables, [node.number for node in states.last], poolings)

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
            raise TooManyStatesError(_message(limit), int(fitting))

    @cached_property
    def _order(self) -> list[int]:
        """All nodes, depth first: neighbours close to each other."""
        field = self.states.field
        neighbours: list[set[int]] = [set() for _ in range(field.size)]
        for u, v in zip(field.source.tolist(), field.target.tolist(), strict=True):
            neighbours[u].add(v)
            neighbours[v].add(u)
        order: dict[int, None] = {}
        for root in range(field.size):
            stack = [root]
            while stack:
                node = stack.pop()
                if node not in order:
                    order[node] = None
                    stack += sorted(neighbours[node] - order.keys(), reverse=True)
        return list(order)

    def _embed(self, states: BatchStates) -> tuple[list[list[Tensor]], list[Pooling]]:
        """Embeddings of the states of each node after the last round, for each pooling."""
        embeddings, poolings = self.states.evaluate(states, self.pooled_model.embed)
        ends = np.cumsum([len(node.example) for node in states.last])
        ends = np.concatenate([[0], ends]) - ends[-1] + len(embeddings[0])
        return [
            [plain(part[first:last]) for first, last in pairwise(ends.tolist())]
            for part in embeddings
        ], poolings


def _within(limit: int, nodes: list[NodeStates], looked_up: int) -> int:
    """Number of states that no graph before the place `looked_up` has, if within the limit."""
    first = np.concatenate([states.example for states in nodes])
    first = np.sort(first[first >= looked_up])
    if len(first) > limit:
        raise TooManyStatesError(_message(limit), int(first[max(limit, 0)]))
    return len(first)


def _message(limit: int) -> str:
    return f"the nodes have more than {limit} states, which cost more than the budget"
