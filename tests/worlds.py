"""Random models and graphs for the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    GraphConv,
    GraphSAGE,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

from graphsvx import Explanation, explain
from graphsvx.testing.oracle import Credit


class SumNet(nn.Module):
    """GraphConv layers with edge weights: PyG has no ready-made stack of them."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GraphConv(features, 8)
        self.second = GraphConv(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = self.first(x, edge_index, edge_weight).tanh()
        return self.second(hidden, edge_index, edge_weight)


MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": lambda f, c: GCN(f, 8, 2, c, act="tanh"),
    "gat": lambda f, c: GAT(f, 8, 2, c, heads=2, act="tanh"),
    "gin": lambda f, c: GIN(f, 8, 2, c, act="tanh"),
    "sage": lambda f, c: GraphSAGE(f, 8, 2, c, act="tanh"),
    "graphconv": SumNet,
}


def random_graph(seed: int, nodes: int = 9, features: int = 3, directed: bool = False,
                 chance: float = 0.22) -> Data:  # fmt: skip
    """A random graph with a self-loop and, if directed, a repeated edge."""
    rng = torch.Generator().manual_seed(seed)
    there = torch.rand(nodes, nodes, generator=rng) < chance
    there.fill_diagonal_(False)
    if not directed:
        there |= there.t().clone()
    there[0, 0] = True
    edges = there.nonzero().t()
    if directed and edges.shape[1] > 1:
        edges = torch.cat([edges, edges[:, 1:2]], 1)
    x = torch.randn(nodes, features, generator=rng, dtype=torch.float64)
    return Data(x=x, edge_index=edges.contiguous(), y=torch.arange(nodes) % 2)


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> Any:
    """A new model of float64, with the random weights of a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().double().eval()


def joined(pairs: Any, features: int = 3, seed: int = 0, both: bool = True) -> Data:
    """A graph with these edges (pairs or [2, E]), in both directions, and random features."""
    ends = torch.as_tensor(pairs)
    ends = ends if isinstance(pairs, Tensor) else ends.t().contiguous()
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(int(ends.max()) + 1, features, generator=rng, dtype=torch.float64)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1) if both else ends)


def star(leaves: int, features: int = 3, seed: int = 0) -> Data:
    """Node 0 with so many neighbours."""
    return joined([(leaf, 0) for leaf in range(1, leaves + 1)], features, seed)


def tree(nodes: int, branches: int = 2, seed: int = 0) -> Data:
    """A tree whose nodes have `branches` children; the root is node 0."""
    return joined([(child, (child - 1) // branches) for child in range(1, nodes)], seed=seed)


def random_model(kind: str, seed: int, features: int = 3, classes: int = 3) -> Any:
    return seeded(lambda: MODELS[kind](features, classes), seed)


def one_gcn() -> nn.Module:
    """The same GCN each time, for the command line."""
    return random_model("gcn", 1)


POOLS = {"add": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class Pooled(nn.Module):
    """Convolutions, a pooling over each graph's nodes, one linear layer."""

    def __init__(self, kind: str, pool: str, features: int = 3, classes: int = 2) -> None:
        super().__init__()
        self.nodes = MODELS[kind](features, 6)
        self.out = nn.Linear(6, classes)
        self.pool = POOLS[pool]

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.out(self.pool(self.nodes(x, edge_index), batch))


def pooled(kind: str, pool: str, seed: int, **sizes: int) -> Any:
    return seeded(lambda: Pooled(kind, pool, **sizes), seed)


def node_world(kind: str, seed: int, **options: Any) -> tuple[nn.Module, Data]:
    return random_model(kind, seed), random_graph(seed, **options)


def explained_in_batches(model: Any, data: Data, **question: Any) -> Explanation:
    """The explanation, whose credit adds up and is that of one model call at a time."""
    e, alone = (explain(model, data, **question, **memory) for memory in ({}, {"memory": 1}))
    for kind in ("nodes", "features", "edges"):
        assert getattr(alone, kind) == pytest.approx(getattr(e, kind), abs=1e-6)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
    return e


def assert_same(e: Explanation, truth: Credit) -> None:
    """Everything that the oracle says, and that it adds up."""
    assert e.nodes == pytest.approx(truth.nodes, abs=1e-9)
    assert e.features == pytest.approx(truth.features, abs=1e-9)
    assert e.base == pytest.approx(truth.base, abs=1e-9)
    assert e.prediction == pytest.approx(truth.prediction, abs=1e-9)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
