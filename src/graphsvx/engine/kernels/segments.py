"""Edges of a batch by target, so that a neighbourhood sum is one `embedding_bag`.

PyG gathers a row for each edge, weighs it and scatters it. In a batch whose edges are sorted by
target, `torch.embedding_bag` adds the rows of each segment where they are: several times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from graphsvx.core.arrays import Ids, as_tensors
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.prefix import PrefixRows
from graphsvx.engine.lazy.shared import SharedRows

_ALONE = 1e-6  # share of all weights: with no more than this left, a sender is the only one


class Sums(Protocol):
    """Neighbourhood sums of a round."""

    def add(self, x: Any, weight: Any = None, mode: str = "sum") -> Tensor:
        """Sum (or mean) of the rows of x over in-neighbours."""
        ...


class Edges(Protocol):
    """What kernels that add rows up need of the edges of a batch."""

    @property
    def weight(self) -> Tensor | None:
        """Weights of the edges."""
        ...

    def weights_into(self, rows: int) -> Tensor | None:
        """Weights of the edges into the first `rows` rows."""
        ...

    def segments(self, limit: int) -> Sums:
        """The edges into the first `limit` rows."""
        ...


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
            (sources * heads + head).reshape(-1), table, starts.reshape(-1),
            active.t().reshape(-1),
        )  # fmt: skip
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
