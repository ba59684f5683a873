"""Models that make N x N matrices are given small batches, others large ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import barabasi_albert_graph

from graphsvx import GraphSVX, explain


class Recorded(nn.Module):
    """Records the number of nodes of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.nodes: list[int] = []

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.nodes.append(len(x))
        return self.last(self.passed(self.first(x).tanh(), edge_index))


class Dense(Recorded):
    def passed(self, h: Tensor, edge_index: Tensor) -> Tensor:
        adjacency = torch.zeros(len(h), len(h))
        adjacency[edge_index[1], edge_index[0]] = 1.0
        return adjacency @ h


class Attention(Recorded):
    def passed(self, h: Tensor, edge_index: Tensor) -> Tensor:
        linked = torch.eye(len(h), dtype=torch.bool)
        linked[edge_index[1], edge_index[0]] = True
        return (h @ h.t()).masked_fill(~linked, -1e9).softmax(1) @ h


class Sparse(Recorded):
    def passed(self, h: Tensor, edge_index: Tensor) -> Tensor:
        ones = torch.ones(edge_index.shape[1])
        size = (len(h), len(h))
        ends = edge_index.flip(0)
        return torch.sparse_coo_tensor(ends, ones, size, check_invariants=False) @ h


class Gathered(Recorded):
    def passed(self, h: Tensor, edge_index: Tensor) -> Tensor:
        return h.index_add(0, edge_index[1], h[edge_index[0]])


@pytest.fixture(scope="module")
def graph() -> Data:
    seed_everything(0)  # numpy draws the edges
    return Data(x=torch.randn(80, 4), edge_index=barabasi_albert_graph(80, 2))


def largest_call(model: Recorded, graph: Data) -> int:
    method = GraphSVX(samples=300, players="nodes", hops=1)
    explain(model.eval(), graph, node=1, method=method)
    return max(model.nodes)


@pytest.mark.parametrize("build", [Dense, Attention])
def test_dense_models_are_given_small_batches(build, graph) -> None:
    assert largest_call(build(), graph) <= 512


@pytest.mark.parametrize("build", [Sparse, Gathered])
def test_models_that_store_edges_only_are_given_large_batches(build, graph) -> None:
    assert largest_call(build(), graph) > 1024


def test_a_dense_model_given_as_a_function_gets_small_batches(graph) -> None:
    model = Dense().eval()
    method = GraphSVX(samples=300, players="nodes", hops=1)
    explain(model.forward, graph, node=1, method=method)
    assert max(model.nodes) <= 512


class DenseGraphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.nodes = GCNConv(4, 3), []

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        self.nodes.append(len(x))
        same = (batch[:, None] == batch[None]).double()
        return global_add_pool((same @ self.layer(x, edge_index).double()).float(), batch)


def test_dense_models_of_graphs_get_small_batches(graph) -> None:
    model = DenseGraphs().eval()
    method = GraphSVX(samples=300, players="nodes")
    explain(model, graph, graph=True, method=method, scale="log_odds")
    assert max(model.nodes) <= 512
