"""Random typed graphs and models for the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    FastRGCNConv,
    GATConv,
    GraphConv,
    HANConv,
    HeteroConv,
    HGTConv,
    RGCNConv,
    SAGEConv,
    global_add_pool,
    to_hetero,
)

WIDTHS = {"paper": 4, "author": 3, "subject": 2}


def typed_graph(seed: int, counts: Sequence[int] = (4, 3, 2), chance: float = 0.4) -> HeteroData:
    """Papers, authors, subjects: reverse edges, two relations of papers, a repeated edge."""
    rng = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for (name, width), count in zip(WIDTHS.items(), counts, strict=True):
        data[name].x = torch.randn(count, width, generator=rng, dtype=torch.float64)
    data["paper"].y = torch.arange(counts[0]) % 2

    def edges(source: str, target: str) -> Tensor:
        shape = (data[source].num_nodes, data[target].num_nodes)
        there = torch.rand(shape, generator=rng) < chance
        there[0, 0] = True
        return there.nonzero().t().contiguous()

    writes, topic = edges("author", "paper"), edges("paper", "subject")
    cites, extends = edges("paper", "paper"), edges("paper", "paper")
    data["author", "writes", "paper"].edge_index = writes
    data["paper", "rev_writes", "author"].edge_index = writes.flip(0)
    data["paper", "to", "subject"].edge_index = topic
    data["subject", "to", "paper"].edge_index = topic.flip(0)
    data["paper", "cites", "paper"].edge_index = torch.cat([cites, cites[:, :1]], 1)
    data["paper", "extends", "paper"].edge_index = extends
    for name in data.edge_types:
        count = data[name].edge_index.shape[1]
        data[name].edge_weight = torch.rand(count, generator=rng, dtype=torch.float64) + 0.5
        data[name].edge_attr = torch.randn(count, 2, generator=rng, dtype=torch.float64)
    return data


EDGE_TYPES = tuple(typed_graph(0).edge_types)
METADATA = typed_graph(0).metadata()


class Stack(nn.Module):
    """Two HeteroConv layers of one convolution and a linear head for papers."""

    takes = ""

    def __init__(self, conv: Callable[[str, str, int | None], nn.Module], heads: int = 3) -> None:
        super().__init__()
        self.first = HeteroConv({t: conv(t[0], t[2], None) for t in EDGE_TYPES}, aggr="sum")
        self.second = HeteroConv({t: conv(t[0], t[2], 6) for t in EDGE_TYPES}, aggr="mean")
        self.head = nn.Linear(6, heads)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        hidden = {k: v.tanh() for k, v in self.first(x_dict, edge_index_dict).items()}
        return self.head(self.second(hidden, edge_index_dict)["paper"].tanh())


class Weighted(Stack):
    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor],
        edge_weight_dict: dict[Any, Tensor],
    ) -> Tensor:  # fmt: skip
        hidden = self.first(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
        hidden = {k: v.tanh() for k, v in hidden.items()}
        out = self.second(hidden, edge_index_dict, edge_weight_dict=edge_weight_dict)
        return self.head(out["paper"].tanh())


class Attributed(Stack):
    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor],
        edge_attr_dict: dict[Any, Tensor],
    ) -> Tensor:  # fmt: skip
        hidden = self.first(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)
        hidden = {k: v.tanh() for k, v in hidden.items()}
        return self.head(
            self.second(hidden, edge_index_dict, edge_attr_dict=edge_attr_dict)["paper"].tanh()
        )


class Homogeneous(nn.Module):
    """The network that `to_hetero` turns into a typed one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 6), SAGEConv((-1, -1), 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).tanh(), edge_index)


class HGT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.ModuleDict({k: nn.Linear(w, 4) for k, w in WIDTHS.items()})
        self.first, self.second = (HGTConv(4, 4, METADATA, heads=2) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        hidden = {k: self.project[k](x).tanh() for k, x in x_dict.items()}
        for layer in (self.first, self.second):
            hidden = layer(hidden, edge_index_dict)
        return self.head(hidden["paper"])


class HAN(nn.Module):
    """Semantic attention averages over all nodes of a type: no receptive field holds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = HANConv(dict(WIDTHS), 4, METADATA, heads=2)
        self.head = nn.Linear(4, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        return self.head(self.conv(x_dict, edge_index_dict)["paper"])


class Embedded(nn.Module):
    """Subjects have no features but a row each of a table in the model."""

    def __init__(self, subjects: int) -> None:
        super().__init__()
        self.table = nn.Embedding(subjects, 2)
        self.inner = Stack(lambda s, t, w: SAGEConv((w or WIDTHS[s], w or WIDTHS[t]), 6))

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        return self.inner({**x_dict, "subject": self.table.weight}, edge_index_dict)


class EmbeddedById(Embedded):
    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor],
        node_id_dict: dict[str, Tensor],
    ) -> Tensor:  # fmt: skip
        return self.inner(
            {**x_dict, "subject": self.table(node_id_dict["subject"])}, edge_index_dict
        )


class Pooled(nn.Module):
    """A score for the whole graph, from sums over papers and authors."""

    def __init__(self) -> None:
        super().__init__()
        self.first = HeteroConv(
            {t: SAGEConv((WIDTHS[t[0]], WIDTHS[t[2]]), 6) for t in EDGE_TYPES}, aggr="sum"
        )
        self.head = nn.Linear(6, 2)

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor],
        batch_dict: dict[str, Tensor],
    ) -> Tensor:  # fmt: skip
        hidden = {k: v.tanh() for k, v in self.first(x_dict, edge_index_dict).items()}
        graphs = int(max(batch.max() for batch in batch_dict.values())) + 1
        pooled = sum(global_add_pool(hidden[k], batch_dict[k], graphs) for k in hidden)
        return self.head(torch.as_tensor(pooled).tanh())


class Encoder(Stack):
    """Embeddings of all node types, for links."""

    def forward(
        self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]
    ) -> dict[str, Tensor]:
        hidden = {k: v.tanh() for k, v in self.first(x_dict, edge_index_dict).items()}
        return self.second(hidden, edge_index_dict)


class Relational(nn.Module):
    """RGCN layers on one node set with `edge_type`."""

    def __init__(self, conv: type = RGCNConv, relations: int = 3) -> None:
        super().__init__()
        self.first = conv(4, 6, relations, num_bases=2)
        self.second = conv(6, 3, relations)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_type).tanh(), edge_index, edge_type)


def _built(make: Callable[[], nn.Module], data: Any, seed: int) -> nn.Module:
    """A model in float64 with its lazy layers initialised."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make().double().eval()
        if isinstance(data, HeteroData):
            with torch.no_grad():
                model(data.x_dict, data.edge_index_dict)
    return model


def hetero_model(kind: str, data: HeteroData, seed: int) -> nn.Module:
    """A random model of one family for the graphs of `typed_graph`."""
    subjects = data["subject"].num_nodes

    def wide(node_type: str, width: int | None) -> int:
        return width or WIDTHS[node_type]

    families: dict[str, Callable[[], nn.Module]] = {
        "sage": lambda: Stack(lambda s, t, w: SAGEConv((wide(s, w), wide(t, w)), 6)),
        "gat": lambda: Stack(
            lambda s, t, w: GATConv((wide(s, w), wide(t, w)), 6, add_self_loops=False)
        ),
        "gatedges": lambda: Attributed(
            lambda s, t, w: GATConv((wide(s, w), wide(t, w)), 6, add_self_loops=False, edge_dim=2)
        ),
        "graphconv": lambda: Weighted(lambda s, t, w: GraphConv((wide(s, w), wide(t, w)), 6)),
        "hgt": HGT,
        "han": HAN,
        "embedding": lambda: Embedded(subjects),
        "embedding-id": lambda: EmbeddedById(subjects),
        "pooled": Pooled,
        "encoder": lambda: Encoder(lambda s, t, w: SAGEConv((wide(s, w), wide(t, w)), 6)),
    }
    if kind == "to_hetero":
        return _built(lambda: to_hetero(Homogeneous(), METADATA), data, seed)
    return _built(families[kind], None, seed)


def relational_graph(seed: int, nodes: int = 7, relations: int = 3) -> Data:
    """A graph with `edge_type` that has each relation at least once."""
    rng = torch.Generator().manual_seed(seed)
    there = torch.rand(nodes, nodes, generator=rng) < 0.25
    edges = there.nonzero().t().contiguous()
    extra = torch.randint(nodes, (2, relations), generator=rng)
    kinds = torch.randint(relations, (edges.shape[1],), generator=rng)
    return Data(
        x=torch.randn(nodes, 4, generator=rng, dtype=torch.float64),
        edge_index=torch.cat([edges, extra], 1),
        edge_type=torch.cat([kinds, torch.arange(relations)]),
    )


def relational_model(kind: str, seed: int, relations: int = 3) -> nn.Module:
    conv = {"rgcn": RGCNConv, "fast-rgcn": FastRGCNConv}[kind]
    return _built(lambda: Relational(conv, relations), None, seed)


Node = tuple[str, int]


def every_node(data: HeteroData) -> list[Node]:
    return [(name, i) for name in data.node_types for i in range(data[name].num_nodes)]
