"""Pooled embeddings of many graphs, from those of the states of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import as_tensor
from graphsvx.engine.node_states import LARGEST_TABLE, Numbers, number_keys
from graphsvx.engine.pooled import Pooling, Reduction

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


@dataclass(frozen=True, eq=False)
class PooledStates:
    """Pools the embeddings of the nodes of many graphs."""

    nodes: NodeEmbeddings
    order: list[int]

    def batches(self) -> Iterator[list[Tensor]]:
        """Pooled embeddings, [graphs, width] for each pooling, a batch of graphs after another."""
        nodes, graphs = len(self.nodes.numbers), len(self.nodes.numbers[0])
        width = sum(tables[0].shape[1] for tables in self.nodes.tables)
        joined = self._joined()
        all_reduced = all(pooling.reduction for pooling in self.nodes.poolings)
        step = max(1, _POOLED // (width * (1 if all_reduced else nodes)))
        for first in range(0, graphs, step):
            part = slice(first, first + step)
            yield [
                self._pooled(number, pooling, joined, part)
                for number, pooling in enumerate(self.nodes.poolings)
            ]

    def _pooled(
        self,
        number: int,
        pooling: Pooling,
        joined: list[tuple[Tensor, list[Tensor]]],
        part: slice,
    ) -> Tensor:
        nodes = len(self.nodes.numbers)
        if pooling.reduction is None:
            tables = self.nodes.tables[number]
            rows = torch.stack(
                [
                    table.index_select(0, as_tensor(numbers[part], table.device))
                    for table, numbers in zip(tables, self.nodes.numbers, strict=True)
                ],
                1,
            )
            batch = torch.arange(len(rows), device=rows.device).repeat_interleave(nodes)
            return pooling.call(rows.flatten(0, 1), batch)
        (numbers, tables), *others = joined
        total = tables[number].index_select(0, numbers[part])
        for numbers, tables in others:
            block = tables[number].index_select(0, numbers[part])
            _reduce(pooling.reduction, total, block, out=total)
        return total / nodes if pooling.reduction == "mean" else total

    def _joined(self) -> list[tuple[Tensor, list[Tensor]]]:
        """Nodes in blocks: numbers of a block's joint states, and the embeddings of these pooled.

        Neighbours see much the same players, so that their joint states are few.
        """
        blocks: list[tuple[Tensor, list[Tensor]]] = []
        most = max(_JOINT, len(self.nodes.numbers[0]) >> 4)
        device = self.nodes.tables[0][0].device
        numbers, distinct = self.nodes.numbers[self.order[0]], LARGEST_TABLE + 1
        tables: list[Tensor] = []
        for u in self.order:
            new_tables = [tables[u] for tables in self.nodes.tables]
            base = len(new_tables[0])
            if distinct * base <= LARGEST_TABLE:
                joint = number_keys(
                    numbers * np.int32(base) + self.nodes.numbers[u], distinct * base
                )
                if len(joint.example) <= most:
                    before = as_tensor(numbers[joint.example], device).long()
                    mine = as_tensor(self.nodes.numbers[u][joint.example], device).long()
                    tables = [
                        table if pooling.reduction is None
                        else _reduce(pooling.reduction, table[before], part[mine])
                        for pooling, table, part in zip(
                            self.nodes.poolings, tables, new_tables, strict=True
                        )
                    ]  # fmt: skip
                    numbers, distinct = joint.number, len(joint.example)
                    continue
            if tables:
                blocks.append((as_tensor(numbers, device), tables))
            numbers, distinct, tables = self.nodes.numbers[u], base, new_tables
        return [*blocks, (as_tensor(numbers, device), tables)]


def _reduce(
    reduction: Reduction, first: Tensor, second: Tensor, out: Tensor | None = None
) -> Tensor:
    """Two parts of a pooling joined; means are sums until the end."""
    return _JOIN[reduction](first, second, out=out)
