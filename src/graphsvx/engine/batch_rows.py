"""The order in which the nodes of many perturbed graphs stand in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphsvx.core.arrays import Ids, no_ids
from graphsvx.core.perturbation import UNREACHABLE, HopCounts


@dataclass(frozen=True, eq=False)
class BatchRows:
    """Order of the perturbed graphs' nodes in a batch."""

    nodes: Ids
    """Nodes of the batch, as positions in the flattened [graphs, columns]."""
    columns: int
    """The first nodes of the field, among which those of the batch are."""
    row_of: Ids
    """Inverse of `nodes`; undefined for nodes that are not in the batch."""
    per_hop: list[int] | None
    """Number of nodes at 0, 1, ... hops; None if nodes are not sorted by hops."""

    @property
    def count(self) -> int:
        """Number of nodes in the batch."""
        return len(self.nodes)

    @cached_property
    def graph(self) -> Ids:
        """The graph of each node of the batch."""
        return self.nodes // max(1, self.columns)

    @cached_property
    def node(self) -> Ids:
        """Each node of the batch, by its local id in the field."""
        return self.nodes - self.graph * self.columns

    @staticmethod
    def by_state(hops: HopCounts) -> BatchRows:
        """All nodes, graph by graph."""
        rows = np.arange(hops.size)
        return BatchRows(rows, hops.shape[1], rows, None)

    @staticmethod
    def by_hops(hops: HopCounts) -> BatchRows:
        """Nodes with influence: by hop count, then graph by graph."""
        nodes, at = sort_by_level(hops)
        of = np.empty(hops.size, dtype=np.int64)
        of[nodes] = np.arange(len(nodes))
        return BatchRows(nodes, hops.shape[1], of, at)

    def within(self, rounds: int | None) -> list[int] | None:
        """Number of nodes within 0, 1, ... `rounds` hops."""
        if rounds is None or self.per_hop is None:
            return None
        return [sum(self.per_hop[: hop + 1]) for hop in range(rounds + 1)]


def sort_by_level(levels: HopCounts) -> tuple[Ids, list[int]]:
    """Stable argsort of small integers below UNREACHABLE, and the count of each value.

    Several times faster than sorting, because there are few distinct values.
    """
    flat = levels.reshape(-1)
    positions: list[Ids] = []
    left = np.count_nonzero(flat < UNREACHABLE)
    while left:
        positions.append(np.flatnonzero(flat == len(positions)))
        left -= len(positions[-1])
    return np.concatenate([no_ids(), *positions]), [*map(len, positions)]
