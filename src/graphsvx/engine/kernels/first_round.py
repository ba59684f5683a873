"""The first round of message passing by products of matrices.

Before the first round all graphs of a batch have the same features, so what an edge (j, t) sends
is the same in all of them, and graphs differ in which nodes are active. The sum that t receives is
then a product of two matrices, [graphs, in-neighbours of t] of zeros and ones (or of degrees) and
[in-neighbours of t, width] of messages. The outermost nodes of the field, by far the most, need no
rows in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.field import Field
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.rows import SharedRows

# exp(-x) may underflow for larger x: then in double precision, or not at all.
_STEEP, _STEEPEST = 70.0, 600.0


@dataclass(frozen=True, eq=False)
class FieldEdges:
    """Edges into the nodes that the first round computes, sorted by target; no self-loops."""

    sources: Tensor
    targets: Tensor
    starts: list[int]
    """The edges into node t are starts[t]:starts[t + 1]."""

    @property
    def count(self) -> int:
        """Number of nodes that the first round computes: the first ones of the field."""
        return len(self.starts) - 1

    @staticmethod
    def of(field: Field, rounds: int, device: torch.device) -> FieldEdges:
        """Of a model with so many rounds. Nodes of a field are sorted by hops."""
        count = int(np.searchsorted(field.hops, rounds))
        edges = field.by_target
        edges = edges[: int(np.searchsorted(field.target[edges], count))]
        target = field.target[edges]
        return FieldEdges(
            torch.from_numpy(field.source[edges]).to(device), torch.from_numpy(target).to(device),
            np.searchsorted(target, np.arange(count + 1)).tolist(),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class FirstRound:
    """The edges of a batch in its first round; stands for `BatchEdges`."""

    edges: FieldEdges
    active: Tensor
    """Which nodes are active, [nodes, graphs]."""
    degree: Tensor | None
    """In-degrees, [nodes, graphs], if a layer reads them."""
    index: Tensor
    """The node of each row of the batch."""
    cells: Tensor
    """Position of each row of the batch in the flattened [nodes, graphs]."""
    weight = None
    """Edges have no weights."""

    @staticmethod
    def of(
        edges: FieldEdges, active: NDArray[np.bool_], degrees: NDArray[np.float32] | None,
        nodes: Tensor, graphs: Tensor,
    ) -> FirstRound:  # fmt: skip
        """For `active` and `degrees` [nodes, graphs] and the node and graph of each row."""

        def contiguous(values: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values)).to(nodes.device)

        degree = None if degrees is None else contiguous(degrees)
        cells = nodes * active.shape[1] + graphs
        return FirstRound(edges, contiguous(active), degree, nodes, cells)

    def takes(self, x: Any) -> bool:
        """Whether x stands for rows of the field's nodes."""
        return isinstance(x, SharedRows) and x.index is self.index

    def weights_into(self, rows: int) -> None:
        """Edges have no weights."""

    def segments(self, rows: int) -> FirstRound:  # noqa: ARG002  (as of BatchEdges)
        """The edges into all rows."""
        return self

    def add(self, x: Any, weight: None = None, mode: str = "sum") -> Tensor:  # noqa: ARG002  (none)
        """Sum (or mean) of the rows of x over active in-neighbours, a row for each of the batch."""
        messages = plain(x.base).index_select(0, self.edges.sources)
        if mode == "sum":
            return self.sums(messages)
        total = self.sums(torch.nn.functional.pad(messages, (0, 1), value=1.0))
        return total[:, :-1] / total[:, -1:].clamp(min=1)

    def sums(self, messages: Tensor, scale: Tensor | None = None) -> Tensor:
        """Sums of messages [edges, width] from active in-neighbours, [rows, width].

        `scale` [nodes, graphs]: what a sender's messages are multiplied by, 0 if it is not active.
        """
        senders = self.active.to(messages.dtype) if scale is None else scale
        starts, sources = self.edges.starts, self.edges.sources
        count, width = self.edges.count, messages.shape[1]
        graphs = senders.shape[1]
        received = messages.new_empty(count, graphs, width)
        for target in range(count):
            edges = slice(starts[target], starts[target + 1])
            torch.mm(
                senders.index_select(0, sources[edges]).t(), messages[edges], out=received[target]
            )
        return received.view(count * graphs, width).index_select(0, self.cells)

    def of_rows(self, values: Tensor) -> Tensor:
        """Entries of [nodes, graphs] for each row of the batch, [rows, 1]."""
        return values.reshape(-1).index_select(0, self.cells)[:, None]

    def attend(self, scores: Tensor, own: Tensor | None, values: Tensor) -> Tensor | None:
        """Softmax of scores [edges, heads] over active in-neighbours, times values, and the sum.

        `own` [targets, heads]: scores of the targets' self-loops. `values` [nodes, heads, width].
        A row without edges gives zeros. None: scores are too far apart for a common scale.
        """
        targets = self.edges.targets
        empty = scores.new_full((self.edges.count, scores.shape[1]), -torch.inf)
        top = (empty if own is None else own).index_reduce(0, targets, scores, "amax")
        low = (-empty if own is None else own).index_reduce(0, targets, scores, "amin")
        steepest = float((top - low).amax())
        if not steepest < _STEEPEST:
            return None
        precision = torch.float64 if steepest > _STEEP else values.dtype
        # The sum of the weights is one more column of the values.
        table = torch.nn.functional.pad(values, (0, 1), value=1.0).to(precision)
        weights = (scores - top.index_select(0, targets)).to(precision).exp_()
        messages = weights[:, :, None] * table.index_select(0, self.edges.sources)
        total = self.sums(messages.flatten(1)).view(-1, *table.shape[1:])
        if own is not None:
            own_weights = (own - top).to(precision).exp_().index_select(0, self.index)
            total += own_weights[:, :, None] * table.index_select(0, self.index)
        norm = total[:, :, -1:]
        return (total[:, :, :-1] / norm.masked_fill(norm == 0, 1)).to(values.dtype)
