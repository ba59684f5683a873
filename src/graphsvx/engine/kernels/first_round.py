"""The first round of message passing by products of matrices.

Before the first round all graphs of a batch have the same features, so what an edge (j, t) sends
is the same in all of them, and graphs differ in which nodes are active. The sum that t receives is
then a product of two matrices, [graphs, in-neighbours of t] of zeros and ones (or of degrees) and
[in-neighbours of t, width] of messages. The outermost nodes of the field, by far the most, need no
rows in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import as_tensors
from graphsvx.core.field import Field
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.shared import SharedRows

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
        sources, targets = as_tensors(device, field.source[edges], target)
        starts = np.searchsorted(target, np.arange(count + 1)).tolist()
        return FieldEdges(sources, targets, starts)


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

    def as_function_of(self, active: Tensor, sources: Tensor, targets: Tensor) -> FirstRound:
        """The same as a differentiable function of `active` [nodes, graphs], 0 or 1.

        `sources` and `targets`: the edges that degrees count.
        """
        degree = self.degree
        if degree is not None:
            change = active - active.detach()
            degree = degree.index_add(0, targets, change.index_select(0, sources))
        return replace(self, active=active, degree=degree)

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
        base = plain(x.base)
        if mode == "sum":
            return self.sums(base.index_select(0, self.edges.sources))
        equal = base.new_ones(len(self.edges.sources), 1)
        return self._weighted_means(equal, None, base[:, None])[:, 0]

    def sums(self, messages: Tensor, scale: Tensor | None = None) -> Tensor:
        """Sums of messages [edges, width] from active in-neighbours, [rows, width].

        `scale` [nodes, graphs]: what a sender's messages are multiplied by, 0 if it is not active.
        """
        senders = self.active.to(messages.dtype) if scale is None else scale
        starts, sources = self.edges.starts, self.edges.sources
        received = []
        for first, last in pairwise(starts):
            part = senders.index_select(0, sources[first:last])
            received.append(part.t() @ messages[first:last])
        return torch.cat(received).index_select(0, self.cells)

    def of_rows(self, values: Tensor) -> Tensor:
        """Entries of [nodes, graphs] for each row of the batch, [rows, 1]."""
        return values.reshape(-1).index_select(0, self.cells)[:, None]

    def attend(self, scores: Tensor, self_scores: Tensor | None, values: Tensor) -> Tensor | None:
        """Softmax of scores [edges, heads] over active in-neighbours, times values, and the sum.

        `self_scores` [targets, heads]: of the targets' self-loops; `values` [nodes, heads, width].
        A row without edges gives zeros. None: scores are too far apart for a common scale.
        """
        targets = self.edges.targets
        empty = scores.new_full((self.edges.count, scores.shape[1]), -torch.inf)
        scores, self_scores = (
            scores.detach(),
            None if self_scores is None else self_scores.detach(),
        )  # of features alone
        top = (empty if self_scores is None else self_scores).index_reduce(
            0, targets, scores, "amax"
        )
        low = (-empty if self_scores is None else self_scores).index_reduce(
            0, targets, scores, "amin"
        )
        steepest = float((top - low).amax())
        if not steepest < _STEEPEST:
            return None
        precision = torch.float64 if steepest > _STEEP else values.dtype
        weights = (scores - top.index_select(0, targets)).to(precision).exp_()
        own_weights = None if self_scores is None else (self_scores - top).to(precision).exp_()
        return self._weighted_means(weights, own_weights, values.to(precision)).to(values.dtype)

    def _weighted_means(
        self, weights: Tensor, self_weights: Tensor | None, values: Tensor
    ) -> Tensor:
        """Means of values [nodes, heads, width] over active in-neighbours, [rows, heads, width].

        `weights` [edges, heads]; `self_weights` [targets, heads]: of the targets' self-loops.
        """
        # The sum of the weights is one more column of the values.
        table = torch.nn.functional.pad(values, (0, 1), value=1.0)
        messages = weights[:, :, None] * table.index_select(0, self.edges.sources)
        total = self.sums(messages.flatten(1)).view(-1, *table.shape[1:])
        if self_weights is not None:
            own_weights = self_weights.index_select(0, self.index)
            total = total + own_weights[:, :, None] * table.index_select(0, self.index)
        norm = total[:, :, -1:]
        means = total[:, :, :-1] / norm.masked_fill(norm == 0, 1)
        if not self.active.requires_grad:
            return means
        return self._with_differences(means.detach(), norm.detach(), weights, values)

    def _with_differences(
        self, means: Tensor, norm: Tensor, weights: Tensor, values: Tensor
    ) -> Tensor:
        """Means whose derivative by `active` is the difference that a sender makes.

        The derivative itself may be many times larger: where a sender is not active whose weight
        is above the sum of all others.
        """
        graphs = self.active.shape[1]
        shape = (self.edges.count * graphs, *means.shape[1:])
        all_means = means.new_zeros(shape).index_copy(0, self.cells, means)
        all_norms = norm.new_ones(*shape[:2], 1).index_copy(0, self.cells, norm)
        change = (self.active - self.active.detach()).to(means.dtype)
        joins = 1 - 2 * self.active.detach().to(means.dtype)  # 1, or -1 where it would leave
        moved = []
        for target, (first, last) in enumerate(pairwise(self.edges.starts)):
            senders = self.edges.sources[first:last]
            rows = slice(target * graphs, (target + 1) * graphs)
            weight = weights[first:last, :, None]
            others = all_norms[rows, :, 0].t() + weight * joins[senders][:, None]
            share = torch.where(others > 0, weight / others, 0) * change[senders][:, None]
            received = torch.einsum("ehg,ehw->ghw", share, values[senders])
            moved.append(received - share.sum(0).t()[:, :, None] * all_means[rows])
        return means + torch.cat(moved).index_select(0, self.cells)
