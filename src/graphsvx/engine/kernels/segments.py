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

from graphsvx.core.arrays import Ids
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.prefix import PrefixRows
from graphsvx.engine.lazy.shared import SharedRows


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
    _shared: dict[Any, Any] = field(default_factory=dict)

    def begin_with(self, first_round: FirstRound) -> None:
        """Take the edges of the first round, and degrees, from there."""
        self.first_round = first_round
        if first_round.degree is not None:
            self.degree = first_round.of_rows(first_round.degree)[:, 0]

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
        return EdgeSegments(sources[: int(self.starts[limit])], starts[:limit])

    def _plain(self) -> tuple[Tensor, Tensor]:
        return self.index[0], as_tensor(self.starts, self.index)

    def segments_with_self_loops(self, limit: int) -> EdgeSegments:
        """The same with one self-loop per row, at the end; existing self-loops are replaced."""
        sources, starts, ends = self.once("looped", lambda: self._looped(limit))
        if starts.shape[0] < limit:  # a later round that needs more than the first: not expected
            sources, starts, ends = self._shared["looped"] = self._looped(limit)
        return EdgeSegments(sources[: int(ends[limit]) + limit], starts[:limit])

    def _looped(self, limit: int) -> tuple[Tensor, Tensor, Ids]:
        source, target, ends = self.without_self_loops()
        stop = int(ends[limit])
        rows = np.arange(limit)
        sources = np.empty(stop + limit, dtype=np.int64)
        sources[np.arange(stop) + target[:stop]] = source[:stop]
        sources[ends[1 : limit + 1] + rows] = rows
        return as_tensor(sources, self.index), as_tensor(ends[:limit] + rows, self.index), ends

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

    def add(self, x: Tensor, weight: Tensor | None = None, mode: str = "sum") -> Tensor:
        """Sum (or mean) of the rows of x in each segment."""
        sources = self.sources
        if isinstance(x, SharedRows):
            sources, x = x.index.index_select(0, sources), x.base
        elif isinstance(x, PrefixRows):
            x = x.base
        return embedding_sum(sources, plain(x), self.starts, weight, mode)

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
