"""Edges grouped by one of their ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.errors import InputError


@dataclass(frozen=True, eq=False)
class Index:
    """Edges grouped by one end (CSC): those of node i are `order[start[i]:start[i + 1]]`."""

    order: NDArray[np.signedinteger[Any]]
    start: Ids

    def edges_into(self, nodes: Ids) -> Ids:
        """Positions of all edges into `nodes`; the cost is proportional to their number."""
        return self.edges_by_node(nodes)[0]

    def edges_by_node(self, nodes: Ids) -> tuple[Ids, Ids]:
        """Positions of all edges into `nodes`, and the number of edges into each node."""
        first = self.start[nodes]
        lengths = self.start[nodes + 1] - first
        if len(nodes) == 1:
            edges = self.order[first[0] : first[0] + lengths[0]]
        else:
            ends = lengths.cumsum()
            # 0 1 2 | 0 1 | ... : a counter that starts again for each node.
            at = (first - ends + lengths).repeat(lengths)
            at += np.arange(len(at))
            edges = self.order[at]
        return edges.astype(np.int64), lengths


def check_edge_index(edge_index: Any, owner: str = "data") -> None:
    """Raise an InputError unless this is a dense [2, edges] tensor of integers."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        remedy = f"use torch.tensor({owner}.edge_index)"
        if isinstance(edge_index, Tensor) or hasattr(edge_index, "coo"):
            remedy = "name a sparse adjacency matrix adj_t (row i holds the edges into node i)"
        raise InputError(
            f"{owner}.edge_index must be a dense tensor of shape [2, edges], "
            f"got {type(edge_index).__name__}; {remedy}"
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(
            f"{owner}.edge_index must be of shape [2, edges], got {list(edge_index.shape)}"
        )
    if edge_index.dtype != torch.long:
        raise InputError(
            f"{owner}.edge_index must be of type torch.long, got {edge_index.dtype}; use .long()"
        )


def index_by_end(ends: Tensor, nodes: int) -> Index:
    """Edges grouped by one of their ends."""
    array = ends.cpu().numpy()
    order = np.argsort(array, kind="stable")
    if len(order) < 2**31:  # half the memory, which counts for millions of edges
        order = order.astype(np.int32)
    start = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(array, minlength=nodes), out=start[1:])
    return Index(order, start)


def is_undirected(source: Ids, target: Ids, nodes: int) -> bool:
    """Whether every edge has its reverse."""
    forth, back = source * nodes + target, target * nodes + source
    return bool(np.array_equal(np.sort(forth), np.sort(back)))
