"""Models of typed graphs: convolutions by relation, and a relational encoder with a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, HeteroConv, RGCNConv, SAGEConv

EdgeType = tuple[str, str, str]


class TypedClassifier(nn.Module):
    """A linear layer for each node type, convolutions for each edge type, a linear head.

    `widths` are the features of each node type; types without features (0) have a table with a row
    for each node. The head classifies nodes of one type.
    """

    def __init__(
        self,
        widths: Mapping[str, int],
        counts: Mapping[str, int],
        edge_types: tuple[EdgeType, ...],
        node_type: str,
        *,
        hidden: int,
        layers: int,
        classes: int,
        convolution: str = "sage",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.node_type = node_type
        self.project = nn.ModuleDict(
            {name: nn.Linear(width, hidden) for name, width in widths.items() if width}
        )
        self.tables = nn.ParameterDict(
            {
                name: nn.Parameter(torch.randn(counts[name], hidden) / hidden**0.5)
                for name, width in widths.items()
                if not width
            }
        )
        self.convolutions = nn.ModuleList(
            HeteroConv({name: _convolution(convolution, hidden) for name in edge_types}, aggr="sum")
            for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor]) -> Tensor:
        """Logits of the classified node type, [nodes, classes]."""
        hidden: dict[str, Tensor] = {
            name: layer(self.dropout(x_dict[name])).relu() for name, layer in self.project.items()
        }
        hidden |= dict(self.tables.items())
        for layer in self.convolutions:
            new = layer(hidden, edge_index_dict)
            hidden = {name: self.dropout(x).relu() for name, x in new.items()}
        logits: Tensor = self.out(hidden[self.node_type])
        return logits


def _convolution(kind: str, hidden: int) -> nn.Module:
    if kind == "gat":
        return GATConv((hidden, hidden), hidden, add_self_loops=False)
    return SAGEConv((hidden, hidden), hidden)


class RelationalEncoder(nn.Module):
    """Embeddings of entities from a table and RGCN layers; `decoder` scores facts."""

    def __init__(
        self, entities: int, relations: int, *, hidden: int, layers: int, blocks: int,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.entities = nn.Parameter(torch.empty(entities, hidden))
        nn.init.xavier_uniform_(self.entities)
        self.convolutions = nn.ModuleList(
            RGCNConv(hidden, hidden, relations, num_blocks=blocks) for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.decoder = DistMult(relations, hidden)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Embeddings of all entities, [entities, hidden]."""
        x: Tensor = self.entities
        for at, layer in enumerate(self.convolutions):
            new = layer(self.dropout(x), edge_index, edge_type)
            x = x + (new.relu() if at + 1 < len(self.convolutions) else new)
        return x


class DistMult(nn.Module):
    """The score of a fact: sum of head * relation * tail (Yang et al. 2015), a logit."""

    def __init__(self, relations: int, hidden: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.empty(relations, hidden))
        nn.init.xavier_uniform_(self.relation)

    def forward(self, head: Tensor, tail: Tensor, relation: Tensor) -> Tensor:
        """One score a fact, [facts]."""
        score: Tensor = (head * self.relation[relation] * tail).sum(-1)
        return score


def metadata(graph: Any) -> tuple[dict[str, int], dict[str, int], tuple[EdgeType, ...]]:
    """Widths and counts of the node types of a HeteroData, and its edge types."""
    widths = {
        name: graph[name].x.shape[1] if "x" in graph[name] else 0 for name in graph.node_types
    }
    counts = {name: int(graph[name].num_nodes) for name in graph.node_types}
    return widths, counts, tuple(graph.edge_types)
