"""Rounds of message passing on a graph of states, each on the states that need it alone.

After round k, a node's row depends on its state after k rounds, of which there are far fewer than
after later rounds. `StateRounds` evaluates a layer once for each of them; `SharedRows` stand for
the rows of all other vertices. Calls of layers that are not recognised run on all vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn.conv import MessagePassing

from graphsvx.engine.kernels.base import LayerKernel
from graphsvx.engine.kernels.registry import fast_kernel, is_known
from graphsvx.engine.kernels.segments import BatchEdges
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.shared import SharedRows
from graphsvx.utils.exclusive import taking_back


@dataclass(frozen=True, eq=False)
class StateRounds:
    """A graph whose vertices are states, in levels: edges go from each level to the next one."""

    edge_index: Tensor
    """Sorted by target."""
    weight: Tensor | None
    attributes: Tensor | None
    """Of the edges, as the model gets them."""
    rows: tuple[Tensor, ...]
    """For each level: the vertex of the level, counted within it, that each vertex shares its rows
    with after as many rounds; of no meaning at vertices of earlier levels."""
    starts: tuple[int, ...]
    """First vertex of each level, and the number of vertices."""
    edge_starts: tuple[int, ...]
    """First edge into each level, and the number of edges."""
    degree: Tensor | None = None
    """In-degree of each vertex, where the first level lacks the edges that show it."""

    def forward(
        self, layer: Any, kernel: LayerKernel | None, x: Any, edge_index: Any, rest: Any, named: Any
    ) -> Any:
        """A layer on the states of the next level, or on all vertices if it is called otherwise."""
        level = self._level(x) if edge_index is self.edge_index else None
        values = [value for value in (*rest, *named.values()) if value is not None]
        if level is None or not all(v is self.weight or v is self.attributes for v in values):
            self._require_all_edges()
            return type(layer).forward(layer, x, edge_index, *rest, **named)
        into = slice(*self.edge_starts[level : level + 2])
        count = self.starts[level + 1] - self.starts[level]
        local, edges = self._before(level, x, values[0][into] if values else None)
        out = None
        plain_call = not values or (len(values) == 1 and values[0] is self.weight)
        if kernel is not None and kernel.forward is not None and plain_call:
            out = kernel.forward(layer, local, edges, count)
        if out is None:
            self._require_all_edges()
            rest = [None if value is None else value[into] for value in rest]
            named = {key: None if value is None else value[into] for key, value in named.items()}
            out = type(layer).forward(layer, local, edges.index, *rest, **named)
        return SharedRows(plain(out)[:count], self.rows[level])

    def _require_all_edges(self) -> None:
        if self.degree is not None:
            raise RuntimeError("a layer was called in a way that needs all edges")

    def _level(self, x: Any) -> int | None:
        """The level after rows that have been through some rounds; None: they are of no level."""
        if type(x) is not SharedRows or x.dim() != 2:
            return None
        return next((k for k, rows in enumerate(self.rows[:-1], 1) if x.index is rows), None)

    def _before(
        self, level: int, x: SharedRows, weight: Tensor | None
    ) -> tuple[SharedRows, BatchEdges]:
        """The vertices of a level and, after them, of the one before it; edges into the level."""
        begin, middle, end = self.starts[level - 1 : level + 2]
        local = SharedRows(x.base, torch.cat([x.index[middle:end], x.index[begin:middle]]))
        source, target = self.edge_index[:, self.edge_starts[level] : self.edge_starts[level + 1]]
        loops = source >= middle
        source = torch.where(loops, source - middle, source - begin + (end - middle))
        target = target - middle
        starts = np.zeros(end - begin + 1, dtype=np.int64)
        np.cumsum(np.bincount(target.cpu().numpy(), None, end - begin), out=starts[1:])
        index = torch.stack([source, target])
        degree = self.degree
        if degree is not None:
            degree = torch.cat([degree[middle:end], degree[begin:middle]])
        return local, BatchEdges(
            index, weight, source.cpu().numpy(), target.cpu().numpy(), starts, bool(loops.any()),
            degree,
        )  # fmt: skip


@contextmanager
def by_level(parts: list[nn.Module], graph: StateRounds) -> Iterator[None]:
    """Context manager: calls of the model with these modules evaluate rounds level by level."""
    owner = get_ident()
    changed = [part for part in parts if isinstance(part, MessagePassing) and is_known(part)]

    def replacement(layer: Any, kernel: LayerKernel | None) -> Any:
        def forward(x: Any, edge_index: Any, *rest: Any, **named: Any) -> Any:
            if get_ident() != owner:
                return type(layer).forward(layer, x, edge_index, *rest, **named)
            return graph.forward(layer, kernel, x, edge_index, rest, named)

        return forward

    def restore() -> None:
        for layer in changed:
            layer.__dict__.pop("forward", None)

    with taking_back(restore):
        for layer in changed:
            layer.__dict__["forward"] = replacement(layer, fast_kernel(layer))
        yield
