"""Edges of a batch: a neighbourhood sum is one `embedding_bag`, or a product of matrices.

PyG gathers a row for each edge, weighs it and scatters it. In a batch whose edges are sorted by
target (`BatchEdges`), `torch.embedding_bag` adds the rows of each segment where they are: several
times faster.

Before the first round all graphs of a batch have the same features, so what an edge (j, t) sends
is the same in all of them, and graphs differ in which nodes are active. The sum that t receives is
then a product of two matrices (`FirstRound`), [graphs, in-neighbours of t] of zeros and ones (or of
degrees) and [in-neighbours of t, width] of messages. The outermost nodes of the field, by far the
most, need no rows in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from graphsvx.core.arrays import Ids, as_tensors
from graphsvx.core.field import Field
from graphsvx.engine.lazy import PrefixRows, SharedRows, plain

_ALONE = 1e-6  # share of all weights: with no more than this left, a sender is the only one
# exp(-x) may underflow for larger x: then in double precision, or not at all.
_STEEP, _STEEPEST = 70.0, 600.0


@dataclass(eq=False)
class BatchEdges:
    """The edges of a batch, sorted by target."""

    index: Tensor
    """The tensor that the model gets as edge_index."""
    weight: Tensor | None
    source: Ids
    target: Ids
    starts: Ids
    """CSC pointer [rows + 1]: the edges into row i are starts[i]:starts[i + 1]."""
    loops: bool
    """Whether there are self-loops."""
    degree: Tensor | None = None
    """In-degree of each row, if edges that only add to a degree are not listed."""
    first_round: FirstRound | None = None
    """The edges of the first round, if they are not listed here."""
    activity: Tensor | None = None
    """How active the sender of each edge is, if outputs are differentiated by it; else they are."""
    _shared: dict[Any, Any] = field(default_factory=dict)

    def begin_with(self, first_round: FirstRound) -> None:
        """Take the edges of the first round, degrees and differentiable activity from there."""
        self.first_round = first_round
        if first_round.degree is not None:
            self.degree = first_round.of_rows(first_round.degree)[:, 0]
        if first_round.active.requires_grad:
            activity = first_round.of_rows(first_round.active)[:, 0]
            self.activity = activity.index_select(0, self.index[0])

    @property
    def rows(self) -> int:
        """Number of nodes in the batch."""
        return len(self.starts) - 1

    def once(self, name: Any, make: Callable[[], Any]) -> Any:
        """Value cached under `name` for all layers of a call; computed on first use."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def weights_into(self, rows: int) -> Tensor | None:
        """Weights of the edges into the first `rows` rows."""
        return None if self.weight is None else self.weight[: int(self.starts[rows])]

    def segments(self, limit: int) -> EdgeSegments:
        """The edges into the first `limit` rows."""
        sources, starts = self.once("plain", self._plain)
        stop = int(self.starts[limit])
        activity = None if self.activity is None else self.activity[:stop]
        return EdgeSegments(sources[:stop], starts[:limit], activity)

    def _plain(self) -> tuple[Tensor, Tensor]:
        return self.index[0], as_tensor(self.starts, self.index)

    def segments_with_self_loops(self, limit: int) -> EdgeSegments:
        """The same with one self-loop per row, at the end; existing self-loops are replaced."""
        sources, starts, ends = self.once("looped", lambda: self._looped(limit))
        if starts.shape[0] < limit:  # a later round that needs more than the first: not expected
            sources, starts, ends = self._shared["looped"] = self._looped(limit)
        stop, activity = int(ends[limit]), None
        if self.activity is not None:  # of a batch without self-loops of its own
            between = as_tensor(np.arange(stop) + self.target[:stop], self.index)
            activity = self.activity.new_ones(stop + limit)
            activity = activity.index_copy(0, between, self.activity[:stop])
        return EdgeSegments(sources[: stop + limit], starts[:limit], activity)

    def _looped(self, limit: int) -> tuple[Tensor, Tensor, Ids]:
        source, target, ends = self.without_self_loops()
        stop = int(ends[limit])
        rows = np.arange(limit)
        sources = np.empty(stop + limit, dtype=np.int64)
        sources[np.arange(stop) + target[:stop]] = source[:stop]
        sources[ends[1 : limit + 1] + rows] = rows
        looped = as_tensors(self.index.device, sources, ends[:limit] + rows)
        return looped[0], looped[1], ends

    def without_self_loops(self) -> tuple[Ids, Ids, Ids]:
        """Sources, targets and starts of the edges between different rows."""
        if not self.loops:
            return self.source, self.target, self.starts
        return self.once("between", self._between)

    def _between(self) -> tuple[Ids, Ids, Ids]:
        between = self.source != self.target
        target = self.target[between]
        ends = np.zeros_like(self.starts)
        np.cumsum(np.bincount(target, minlength=self.rows), out=ends[1:])
        return self.source[between], target, ends


@dataclass(frozen=True, eq=False)
class EdgeSegments:
    """Sources grouped by target: segment i is sources[starts[i]:starts[i + 1]]."""

    sources: Tensor
    starts: Tensor
    activity: Tensor | None = None
    """How active each sender is, 0 or 1; None: all are."""

    def add(self, x: Tensor, weight: Tensor | None = None, mode: str = "sum") -> Tensor:
        """Sum (or mean) of the rows of x in each segment."""
        sources = self.sources
        if isinstance(x, SharedRows):
            sources, x = x.index.index_select(0, sources), x.base
        elif isinstance(x, PrefixRows):
            x = x.base
        x = plain(x)
        if self.activity is None:
            return embedding_sum(sources, x, self.starts, weight, mode)
        activity = self.activity.to(x.dtype)
        if mode == "sum":
            weight = activity if weight is None else weight * activity
            return embedding_sum(sources, x, self.starts, weight)
        return self.means(activity.new_ones(len(sources), 1), x[:, None], sources)[:, 0]

    def means(self, weights: Tensor, values: Tensor, sources: Tensor) -> Tensor:
        """Means with `weights` [edges, heads] of `values` [rows, heads, width] at `sources`.

        [segments, heads, width]; zeros for a segment without active senders. The derivative by
        activity is the difference that a sender makes: where it is not active, and its weight is
        above the sum of all others, the derivative itself may be many times larger.
        """
        heads, width = values.shape[1:]
        activity = None if self.activity is None else self.activity.to(values.dtype)[:, None]
        active = weights if activity is None else weights * activity.detach()
        head = torch.arange(heads, device=sources.device)[:, None]
        # The sum of the weights is one more column of the values.
        table = functional.pad(values, (0, 1), value=1.0).reshape(-1, width + 1)
        starts = self.starts + head * len(sources)
        sums = embedding_sum(
            (sources * heads + head).reshape(-1),
            table,
            starts.reshape(-1),
            active.t().reshape(-1),
        )
        total = sums.view(heads, len(self.starts), width + 1).transpose(0, 1)
        norm = total[:, :, width:]
        means = total[:, :, :width] / norm.masked_fill(norm == 0, 1)
        if activity is None:
            return means
        targets, joins = self.targets(), 1 - 2 * activity.detach()
        before, norm, weights = means.detach()[targets], norm.detach()[targets], weights.detach()
        others = norm[:, :, 0] + weights * joins
        alone = others <= _ALONE * norm[:, :, 0]
        share = weights / others.masked_fill(alone, 1)
        apart = values.detach().index_select(0, sources) - before
        difference = torch.where(alone[:, :, None], before, share[:, :, None] * apart)
        change = (activity - activity.detach())[:, :, None]
        return means.index_add(0, targets, change * difference)

    def pointer(self) -> Tensor:
        """Segment boundaries [segments + 1]."""
        count = self.starts.shape[0]
        ends = self.starts.new_empty(count + 1)
        ends[:count], ends[count] = self.starts, self.sources.shape[0]
        return ends

    def targets(self) -> Tensor:
        """The segment of each edge."""
        rows = torch.arange(self.starts.shape[0], device=self.starts.device)
        return torch.repeat_interleave(
            rows, self.pointer().diff(), output_size=self.sources.shape[0]
        )


def embedding_sum(
    sources: Tensor, x: Tensor, starts: Tensor, weight: Tensor | None, mode: str = "sum"
) -> Tensor:
    """`torch.nn.functional.embedding_bag` without the checks of its wrapper."""
    return torch.embedding_bag(
        x, sources, starts, mode=int(mode == "mean"), per_sample_weights=weight
    )[0]


def as_tensor(array: Ids, like: Tensor) -> Tensor:
    """A numpy index on the device of a tensor."""
    return torch.from_numpy(array).to(like.device)


# The first round.


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
        edges: FieldEdges,
        active: NDArray[np.bool_],
        degrees: NDArray[np.float32] | None,
        nodes: Tensor,
        graphs: Tensor,
    ) -> FirstRound:
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

    def add(self, x: Any, weight: Tensor | None = None, mode: str = "sum") -> Tensor:  # noqa: ARG002  (none)
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
        table = functional.pad(values, (0, 1), value=1.0)
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
