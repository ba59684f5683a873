"""A graph model in two parts: layers that give each node an embedding, and a pooled head.

A model of known structure (`engine.structure`) computes with nodes up to its poolings and with
graphs after them. `PooledModel` runs either part by itself: it calls the model with its poolings
replaced, so that no model has to be written in a special way. `PooledStates` pools the embeddings
of many graphs from those of the states of their nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import aggr

from graphsvx.core.arrays import as_tensor
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model
from graphsvx.engine.state_graph import LARGEST_TABLE, Numbers, number_keys
from graphsvx.engine.structure import replaced_poolings
from graphsvx.errors import ModelError

Reduction = Literal["sum", "mean", "max", "min"]

_REDUCTIONS: dict[Any, Reduction] = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
    "sum": "sum",
    "add": "sum",
    "mean": "mean",
    "max": "max",
    "min": "min",
}


@dataclass(frozen=True, eq=False)
class Pooling:
    """One pooling of a model: a function of node embeddings and the graph of each node."""

    reduction: Reduction | None
    """The reduction, if it can be computed from parts of a graph; None: it needs all nodes."""
    call: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class PooledModel:
    """A model of known structure with `batch`, as an encoder of nodes and a head on graphs."""

    model: Model
    graph: Graph

    def embed(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None
    ) -> tuple[list[Tensor], list[Pooling]]:
        """Inputs [nodes, width] of the model's poolings, and the poolings."""
        embeddings: list[Tensor] = []
        poolings: list[Pooling] = []

        def record(pooling: Pooling, nodes: Tensor, batch: Tensor) -> Tensor:
            embeddings.append(nodes.detach())
            poolings.append(pooling)
            return pooling.call(nodes[:1], batch[:1])  # what the head makes of it is not used

        self._call(record, x, edge_index, edge_weight, edge_attr)
        if not embeddings:
            raise ModelError("the model has no pooling over the nodes of a graph")
        return embeddings, poolings

    def head(self, pooled: list[Tensor]) -> Tensor:
        """Raw outputs, [graphs, outputs], of what the poolings gave, [graphs, width] each."""
        results, graph, none = iter(pooled), self.graph, slice(0, 0)

        def known(*_: Any) -> Tensor:
            return next(results)

        out = self._call(known, graph.x[:1], graph.edge_index[:, none], *graph.edge_rows(none))
        out = out[:, None] if out.dim() == 1 else out
        if len(out) != len(pooled[0]):
            raise ModelError("the model's head does not give a row for each graph")
        return out

    def _call(
        self,
        handle: Callable[[Pooling, Tensor, Tensor], Tensor],
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        edge_attr: Tensor | None,
    ) -> Tensor:
        inputs = {
            "x": x,
            "edge_index": edge_index,
            "edge_weight": edge_weight,
            "edge_attr": edge_attr,
            "batch": torch.zeros(len(x), dtype=torch.long, device=x.device),
        }

        def handled(pool: Callable[..., Tensor], kind: Any, args: Any, kwargs: Any) -> Tensor:
            nodes, batch, *rest = args if len(args) > 1 else (*args, kwargs.pop("index"))
            pooling = Pooling(_REDUCTIONS.get(kind), lambda x, of: pool(x, of, *rest, **kwargs))
            return handle(pooling, nodes, batch)

        try:
            with replaced_poolings(self.model.submodules, handled):
                out = self.model.returned(inputs)
        except (KeyboardInterrupt, MemoryError, ModelError):
            raise
        except Exception as error:
            raise ModelError(f"the model failed: {type(error).__name__}: {error}") from error
        if not isinstance(out, Tensor):
            raise ModelError(f"the model must return one tensor, got {type(out).__name__}")
        return out


# Pooled embeddings of many graphs.


_JOIN: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}
_JOINT = 1 << 12  # joint states of several nodes that are pooled once, at least
_POOLED = 1 << 20  # numbers of a batch of pooled embeddings


@dataclass(frozen=True, eq=False)
class NodeEmbeddings:
    """Embeddings of the nodes of perturbed graphs."""

    tables: list[list[Tensor]]
    """For each pooling and node: the embeddings of its states, [states, width]."""
    numbers: list[Numbers]
    """State of each node in each graph."""
    poolings: list[Pooling]
    new: int
    """States that no graph before these has."""

    def pooled(self, order: list[int]) -> Iterator[list[Tensor]]:
        """Pooled embeddings, [graphs, width] for each pooling, a batch of graphs after another.

        `order`: all nodes, of which neighbours are close to each other.
        """
        nodes, graphs = len(self.numbers), len(self.numbers[0])
        width = sum(tables[0].shape[1] for tables in self.tables)
        blocks = self._blocks(order)
        all_reduced = all(pooling.reduction for pooling in self.poolings)
        step = max(1, _POOLED // (width * (1 if all_reduced else nodes)))
        for first in range(0, graphs, step):
            part = slice(first, first + step)
            yield [self._pooled(number, blocks, part) for number in range(len(self.poolings))]

    def _pooled(
        self, number: int, blocks: list[tuple[Tensor, list[Tensor]]], part: slice
    ) -> Tensor:
        pooling, nodes = self.poolings[number], len(self.numbers)
        if pooling.reduction is None:
            rows = torch.stack(
                [
                    table.index_select(0, as_tensor(numbers[part], table.device))
                    for table, numbers in zip(self.tables[number], self.numbers, strict=True)
                ],
                1,
            )
            batch = torch.arange(len(rows), device=rows.device).repeat_interleave(nodes)
            return pooling.call(rows.flatten(0, 1), batch)
        join = _JOIN[pooling.reduction]
        parts = (tables[number].index_select(0, numbers[part]) for numbers, tables in blocks)
        total = reduce(lambda x, y: join(x, y, out=x), parts)
        return total / nodes if pooling.reduction == "mean" else total

    def _blocks(self, order: list[int]) -> list[tuple[Tensor, list[Tensor]]]:
        """Nodes in blocks: numbers of a block's joint states, and the embeddings of these pooled.

        Neighbours see much the same players, so that their joint states are few. Means are sums
        until the end.
        """
        blocks: list[tuple[Tensor, list[Tensor]]] = []
        most = max(_JOINT, len(self.numbers[0]) >> 4)
        device = self.tables[0][0].device
        numbers, distinct = self.numbers[order[0]], LARGEST_TABLE + 1
        tables: list[Tensor] = []
        for u in order:
            new_tables = [tables[u] for tables in self.tables]
            base = len(new_tables[0])
            if distinct * base <= LARGEST_TABLE:
                joint = number_keys(numbers * np.int32(base) + self.numbers[u], distinct * base)
                if len(joint.example) <= most:
                    before = as_tensor(numbers[joint.example], device).long()
                    mine = as_tensor(self.numbers[u][joint.example], device).long()
                    tables = [
                        _JOIN[pooling.reduction](table[before], part[mine])
                        if pooling.reduction
                        else table
                        for pooling, table, part in zip(
                            self.poolings, tables, new_tables, strict=True
                        )
                    ]
                    numbers, distinct = joint.number, len(joint.example)
                    continue
            if tables:
                blocks.append((as_tensor(numbers, device), tables))
            numbers, distinct, tables = self.numbers[u], base, new_tables
        return [*blocks, (as_tensor(numbers, device), tables)]
