"""Models of typed graphs: convolutions by relation, and a relational encoder with a decoder."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch_geometric.nn import GATConv, HeteroConv, MessagePassing, SAGEConv

EdgeType = tuple[str, str, str]


class TypedClassifier(nn.Module):
    """A linear layer for each node type, convolutions for each edge type, a linear head.

    `widths` are the features of each node type; types without features (0) have a table with a row
    for each node. `normalise` scales projected features to L2 norm 1. The head classifies nodes of
    one type.
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
        normalise: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.node_type, self.normalise = node_type, normalise
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
        hidden: dict[str, Tensor] = {}
        for name, layer in self.project.items():
            projected = layer(x_dict[name]).relu()
            if self.normalise:
                projected = normalize(projected, dim=-1)
            hidden[name] = self.dropout(projected)
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


class DiagonalRGCNConv(MessagePassing):
    """RGCN (Schlichtkrull et al. 2018) with diagonal weights: a mean of x_j * w_r over the edges.

    The block-diagonal weights of the paper with blocks of one unit: small enough for hundreds of
    relations.
    """

    def __init__(self, width: int, relations: int) -> None:
        super().__init__(aggr="mean")
        self.weight = nn.Parameter(torch.empty(relations, width))
        nn.init.uniform_(self.weight, -1, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """[nodes, width]."""
        out: Tensor = self.propagate(edge_index, x=x, edge_type=edge_type)
        return out

    def message(self, x_j: Tensor, edge_type: Tensor) -> Tensor:
        """x_j * w_r."""
        return x_j * self.weight.index_select(0, edge_type)


class RelationalEncoder(nn.Module):
    """Embeddings of entities: a table, and what relational convolutions add; `decoder` scores."""

    def __init__(
        self, entities: int, relations: int, *, hidden: int, layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.entities = nn.Parameter(torch.empty(entities, hidden))
        nn.init.normal_(self.entities, std=0.5)
        self.convolutions = nn.ModuleList(
            DiagonalRGCNConv(hidden, relations) for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.decoder = DistMult(relations, hidden)

    def forward(self, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Embeddings of all entities, [entities, hidden]."""
        x: Tensor = self.entities
        for layer in self.convolutions:
            x = x + self.dropout(layer(x, edge_index, edge_type))
        return x


class DistMult(nn.Module):
    """The score of a fact: sum of head * relation * tail (Yang et al. 2015), a logit."""

    def __init__(self, relations: int, hidden: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.empty(relations, hidden))
        nn.init.normal_(self.relation, std=0.5)

    def forward(self, head: Tensor, tail: Tensor, relation: Tensor) -> Tensor:
        """One score a fact, [facts]."""
        score: Tensor = (head * self.relation[relation] * tail).sum(-1)
        return score
