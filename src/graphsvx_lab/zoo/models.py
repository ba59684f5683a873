"""The paper's models, on PyG's convolutions. All return raw logits.

    sets with ground truth   three message-passing blocks with ReLU, (max-pooling,) one linear layer
    citation sets            two layers of GCN, or of GAT with attention heads, with dropout

`edge_weight` scales messages where the convolution can do so (GraphConv, GCN).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

from graphsvx.errors import UnsupportedError


def _sum_of_neighbours(ins: int, outs: int) -> GraphConv:
    """W sum of the neighbours' x + b: a GraphConv that does not see the node itself."""
    convolution = GraphConv(ins, outs, aggr="add")
    nn.init.zeros_(convolution.lin_root.weight.requires_grad_(False))
    return convolution


# Constructor of each convolution: (inputs, outputs) -> module.
CONVOLUTIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "graphconv": lambda ins, outs: GraphConv(ins, outs, aggr="add"),
    "gcn": GCNConv,
    "gin": lambda ins, outs: GINConv(
        nn.Sequential(nn.Linear(ins, outs), nn.ReLU(), nn.Linear(outs, outs))
    ),
    "sage": SAGEConv,
    "gat": GATConv,
    "released": _sum_of_neighbours,
}
WEIGHTED = (GraphConv, GCNConv)
POOLINGS = {"max": global_max_pool, "mean": global_mean_pool, "sum": global_add_pool}


class Blocks(nn.Module):
    """Message-passing blocks, ReLU after each: GNN(a, b, ReLU)-GNN(b, b, ReLU)-...

    `concat` returns the concatenated outputs of all blocks, otherwise those of the last block.
    `normalise` scales the output of each convolution to L2 norm 1 before its ReLU, so that hubs
    with many messages do not dominate. The last block of "released", the architecture of the
    code that the paper's authors published, has no ReLU.
    """

    def __init__(
        self,
        features: int,
        *,
        hidden: int,
        layers: int,
        convolution: str,
        concat: bool,
        normalise: bool = False,
    ) -> None:
        super().__init__()
        make = CONVOLUTIONS[convolution]
        widths = [features, *[hidden] * layers]
        self.convolutions = nn.ModuleList(make(ins, outs) for ins, outs in pairwise(widths))
        self.concat = concat
        self.normalise = normalise
        self.last_relu = convolution != "released"
        self.width = hidden * layers if concat else hidden

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Node embeddings [nodes, width]."""
        outputs: list[Tensor] = []
        for convolution in self.convolutions:
            x = _convolve(convolution, x, edge_index, edge_weight)
            x = normalize(x, dim=-1) if self.normalise else x
            is_last = len(outputs) + 1 == len(self.convolutions)
            x = x if is_last and not self.last_relu else x.relu()
            outputs.append(x)
        return torch.cat(outputs, dim=-1) if self.concat else x


class NodeClassifier(nn.Module):
    """Message-passing blocks and a linear layer: logits for every node."""

    def __init__(self, blocks: Blocks, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.blocks = blocks
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(blocks.width, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, nodes x classes."""
        logits: Tensor = self.out(self.dropout(self.blocks(x, edge_index, edge_weight)))
        return logits


class GraphClassifier(nn.Module):
    """Message-passing blocks, global pooling and a linear layer: logits for every graph."""

    def __init__(
        self, blocks: Blocks, classes: int, dropout: float = 0.0, pooling: str = "max"
    ) -> None:
        super().__init__()
        self.blocks = blocks
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(blocks.width, classes)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Logits [graphs, classes]; `batch` is the graph of each node, None for a single graph."""
        embedded = self.blocks(x, edge_index, edge_weight)
        logits: Tensor = self.out(self.dropout(POOLINGS[self.pooling](embedded, batch)))
        return logits


class CitationGCN(nn.Module):
    """GCN(features, hidden, ReLU)-GCN(hidden, classes), dropout before each."""

    def __init__(self, features: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.first = GCNConv(features, hidden)
        self.second = GCNConv(hidden, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, nodes x classes."""
        x = self.first(self.dropout(x), edge_index, edge_weight).relu()
        logits: Tensor = self.second(self.dropout(x), edge_index, edge_weight)
        return logits


class CitationGAT(nn.Module):
    """GAT(features, hidden, ReLU, heads)-GAT(hidden * heads, classes, out_heads).

    Heads are concatenated after the first layer and averaged after the second. Dropout is applied
    to the inputs of both layers and to the attention.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        classes: int,
        *,
        heads: int,
        out_heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.first = GATConv(features, hidden, heads=heads, dropout=dropout)
        self.second = GATConv(
            hidden * heads, classes, heads=out_heads, concat=False, dropout=dropout
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, nodes x classes."""
        x = self.first(self.dropout(x), edge_index).relu()
        logits: Tensor = self.second(self.dropout(x), edge_index)
        return logits

    @torch.no_grad()
    def attention(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Edges with the loops of all nodes, and the attention that targets pay to sources.

        Mean over the heads of a layer, then over the two layers.
        """
        hidden, (edges, first) = self.first(x, edge_index, return_attention_weights=True)
        _, (_, second) = self.second(hidden.relu(), edge_index, return_attention_weights=True)
        return edges, (first.mean(1) + second.mean(1)) / 2


def _convolve(
    convolution: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None
) -> Tensor:
    if edge_weight is None:
        plain: Tensor = convolution(x, edge_index)
        return plain
    if not isinstance(convolution, WEIGHTED):
        raise UnsupportedError(
            f"{type(convolution).__name__} cannot weigh edges; use graphconv or gcn"
        )
    weighted: Tensor = convolution(x, edge_index, edge_weight)
    return weighted
