"""Many small graphs concatenated into a few tensors, for fast batching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Packed:
    """Concatenated graphs; `edge_index` has the node ids within each graph.

    first_node, first_edge: [graphs + 1] offset of each graph's first node and edge, and the end.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    first_node: Tensor
    first_edge: Tensor

    @classmethod
    def of(cls, graphs: Sequence[Data]) -> Packed:
        """Pack the graphs."""
        return cls(
            x=torch.cat([graph.x for graph in graphs]),
            edge_index=torch.cat([graph.edge_index for graph in graphs], dim=1),
            y=torch.cat([graph.y for graph in graphs]),
            first_node=_starts([int(graph.num_nodes) for graph in graphs]),
            first_edge=_starts([int(graph.edge_index.shape[1]) for graph in graphs]),
        )

    def batch(self, graphs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(x, edge_index, batch, y) of the chosen graphs as a PyG batch."""
        nodes, owner, first = _rows(self.first_node, graphs)
        edges, edge_owner, _ = _rows(self.first_edge, graphs)
        return self.x[nodes], self.edge_index[:, edges] + first[edge_owner], owner, self.y[graphs]


def _starts(sizes: list[int]) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.tensor(sizes).cumsum(0)])


def _rows(starts: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of the chosen graphs, the graph of each row, and each graph's first row in the batch."""
    sizes = starts[graphs + 1] - starts[graphs]
    owner = torch.arange(graphs.numel()).repeat_interleave(sizes)
    first = sizes.cumsum(0) - sizes
    rows = torch.arange(owner.numel()) - first[owner] + starts[graphs][owner]
    return rows, owner, first
