"""The paper's models, and those of graphs with types, on PyG's convolutions. All return raw logits.

    sets with ground truth   three message-passing blocks with ReLU, (max-pooling,) one linear layer
    citation sets            two layers of GCN, or of GAT with attention heads, with dropout
    sets with types          convolutions for each edge type; an encoder with a decoder of facts

`edge_weight` scales messages where the convolution can do so (GraphConv, GCN).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    HeteroConv,
    MessagePassing,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

from graphsvx.core.types import EdgeType
from graphsvx.errors import UnsupportedError
from graphsvx_lab.datasets.typed import GraphSchema
from graphsvx_lab.zoo.settings import Settings


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


class ConvolutionBlocks(nn.Module):
    """Message-passing blocks, ReLU after each: GNN(a, b, ReLU)-GNN(b, b, ReLU)-...

    `concat` returns the concatenated outputs of all blocks, otherwise those of the last block.
    `normalise` scales the output of each convolution to L2 norm 1 before its ReLU, so that hubs
    with many messages do not dominate. The last block of "released", the architecture of the
    code that the paper's authors published, has no ReLU.
    """

    def __init__(self, features: int, settings: Settings) -> None:
        super().__init__()
        make, hidden, layers = CONVOLUTIONS[settings.model], settings.hidden, settings.layers
        widths = [features, *[hidden] * layers]
        self.convolutions = nn.ModuleList(make(ins, outs) for ins, outs in pairwise(widths))
        self.concat, self.normalise = settings.concat, settings.normalise
        self.last_relu = settings.model != "released"
        self.width = hidden * layers if self.concat else hidden

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Node embeddings [nodes, width]."""
        outputs: list[Tensor] = []
        edges = (edge_index,) if edge_weight is None else (edge_index, edge_weight)
        for convolution in self.convolutions:
            if len(edges) > 1 and not isinstance(convolution, WEIGHTED):
                raise UnsupportedError(
                    f"{type(convolution).__name__} cannot weigh edges; use graphconv or gcn"
                )
            x = convolution(x, *edges)
            x = normalize(x, dim=-1) if self.normalise else x
            is_last = len(outputs) + 1 == len(self.convolutions)
            x = x if is_last and not self.last_relu else x.relu()
            outputs.append(x)
        return torch.cat(outputs, dim=-1) if self.concat else x


class NodeClassifier(nn.Module):
    """Message-passing blocks and a linear layer: logits for every node."""

    def __init__(self, features: int, classes: int, settings: Settings) -> None:
        super().__init__()
        self.blocks = ConvolutionBlocks(features, settings)
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(self.blocks.width, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, nodes x classes."""
        return self.out(self.dropout(self.blocks(x, edge_index, edge_weight)))


class GraphClassifier(nn.Module):
    """Message-passing blocks, global pooling and a linear layer: logits for every graph."""

    def __init__(self, features: int, classes: int, settings: Settings) -> None:
        super().__init__()
        self.blocks, self.pooling = ConvolutionBlocks(features, settings), settings.pooling
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(self.blocks.width, classes)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Logits [graphs, classes]; `batch` is the graph of each node, None for a single graph."""
        embedded = self.blocks(x, edge_index, edge_weight)
        return self.out(self.dropout(POOLINGS[self.pooling](embedded, batch)))


class CitationGCN(nn.Module):
    """GCN(features, hidden, ReLU)-GCN(hidden, classes), dropout before each."""

    def __init__(self, features: int, classes: int, settings: Settings) -> None:
        super().__init__()
        self.first = GCNConv(features, settings.hidden)
        self.second = GCNConv(settings.hidden, classes)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits, nodes x classes."""
        x = self.first(self.dropout(x), edge_index, edge_weight).relu()
        return self.second(self.dropout(x), edge_index, edge_weight)


class CitationGAT(nn.Module):
    """GAT(features, hidden, ReLU, heads)-GAT(hidden * heads, classes, out_heads).

    Heads are concatenated after the first layer and averaged after the second. Dropout is applied
    to the inputs of both layers and to the attention.
    """

    def __init__(self, features: int, classes: int, settings: Settings) -> None:
        super().__init__()
        convolution = partial(GATConv, dropout=settings.dropout)
        self.first = convolution(features, settings.hidden, heads=settings.heads)
        between, heads = settings.hidden * settings.heads, settings.out_heads
        self.second = convolution(between, classes, heads=heads, concat=False)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits, nodes x classes."""
        x = self.first(self.dropout(x), edge_index).relu()
        return self.second(self.dropout(x), edge_index)

    @torch.no_grad()
    def attention(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Edges with the loops of all nodes, and the attention that targets pay to sources.

        Mean over the heads of a layer, then over the two layers.
        """
        hidden, (edges, first) = self.first(x, edge_index, return_attention_weights=True)
        _, (_, second) = self.second(hidden.relu(), edge_index, return_attention_weights=True)
        return edges, (first.mean(1) + second.mean(1)) / 2


# --- of graphs with node and edge types ----------------------------------------------------


class HeteroClassifier(nn.Module):
    """A linear layer for each node type, convolutions for each edge type, a linear head.

    Types without features have a table with a row for each node. `normalise` scales projected
    features to L2 norm 1. The head classifies nodes of the first type.
    """

    def __init__(self, schema: GraphSchema, classes: int, settings: Settings) -> None:
        super().__init__()
        hidden, types = settings.hidden, schema.nodes.items()
        self.node_type, self.normalise = next(iter(schema.nodes)), settings.normalise
        # Between nodes of two types, or of one.
        make: Callable[..., nn.Module] = SAGEConv
        if settings.model == "gat":
            make = partial(GATConv, add_self_loops=False)
        self.project = nn.ModuleDict(
            {name: nn.Linear(width, hidden) for name, (_, width) in types if width}
        )
        tables = {name: torch.randn(count, hidden) for name, (count, width) in types if not width}
        self.tables = nn.ParameterDict(
            {name: nn.Parameter(table / hidden**0.5) for name, table in tables.items()}
        )
        ends, edge_types = (hidden, hidden), schema.edge_types
        self.convolutions = nn.ModuleList(
            HeteroConv({name: make(ends, hidden) for name in edge_types}, aggr="sum")
            for _ in range(settings.layers)
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[EdgeType, Tensor]) -> Tensor:
        """Logits of the classified node type, [nodes, classes]."""
        hidden: dict[str, Tensor] = {}
        for name, layer in self.project.items():
            projected = layer(x_dict[name]).relu()
            projected = normalize(projected, dim=-1) if self.normalise else projected
            hidden[name] = self.dropout(projected)
        hidden |= dict(self.tables.items())
        for layer in self.convolutions:
            new = layer(hidden, edge_index_dict)
            hidden = {name: self.dropout(x).relu() for name, x in new.items()}
        return self.out(hidden[self.node_type])


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
        return self.propagate(edge_index, x=x, edge_type=edge_type)

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
        return (head * self.relation[relation] * tail).sum(-1)
