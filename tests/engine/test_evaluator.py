"""Shortcuts that do not hold are found at run time, and the result is right all the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCN, GCNConv, PairNorm

from graphsvx import GraphSVX, explain
from graphsvx.testing.oracle import credit_of
from tests.worlds import random_graph, random_model


def path() -> Data:
    """5 -> 4 -> 3 -> 2 -> 1 -> 0."""
    edges = torch.tensor([[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]])
    rng = torch.Generator().manual_seed(0)
    return Data(x=torch.randn(6, 3, generator=rng, dtype=torch.float64), edge_index=edges)


def three_rounds(x, edge_index):
    """A model that is no module: nobody can count its rounds."""
    h = x
    for _ in range(3):
        h = h + torch.zeros_like(h).index_add_(0, edge_index[1], h[edge_index[0]])
    return h.tanh()


class VirtualNode(nn.Module):
    """Every node hears the mean of all: no field is small enough, no batch is safe."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = GCNConv(3, 3).double()

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + self.conv(x, edge_index).mean(0)


def test_a_virtual_node_falls_back_to_one_call_a_coalition() -> None:
    data = random_graph(1, nodes=7)
    model = VirtualNode()
    e = explain(model, data, node=1, method=GraphSVX(samples=4000))
    assert "one call a coalition" in str(e.certificate.fallback)
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)


def test_normalising_over_the_batch_falls_back() -> None:
    class Paired(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.norm = GCNConv(3, 3).double(), PairNorm()

        def forward(self, x, edge_index):
            return self.norm(self.conv(x, edge_index))

    data, model = random_graph(2, nodes=7), Paired()
    e = explain(model, data, node=1, method=GraphSVX(samples=4000))
    assert e.certificate.fallback is not None
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)


def test_propagation_inside_one_layer_is_counted() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.lin, self.prop = nn.Linear(3, 2).double(), APPNP(K=4, alpha=0.1)

        def forward(self, x, edge_index):
            return self.prop(self.lin(x), edge_index)

    data = path()
    e = explain(Deep(), data, node=0)
    assert e.certificate.depth == 4
    assert sorted(e.nodes) == [1, 2, 3, 4]
    assert e.certificate.fallback is None


def test_a_plain_function_uses_all_that_can_reach_the_node() -> None:
    model, data = three_rounds, path()
    e = explain(model, data, node=0)
    assert e.certificate.depth is None
    assert sorted(e.nodes) == [1, 2, 3, 4, 5]
    assert e.nodes[5] == pytest.approx(0, abs=1e-12)
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)


def test_hops_that_are_too_few_for_a_function_are_widened() -> None:
    model, data = three_rounds, path()
    e = explain(model, data, node=0, method=GraphSVX(hops=1))
    assert sorted(e.nodes) == [1]
    full = model(data.x, data.edge_index)[0].softmax(-1)[e.target]
    assert e.prediction == pytest.approx(float(full), abs=1e-9)
    assert "1 hops are not enough" in str(e.certificate.fallback)


def test_fewer_hops_restrict_the_players_not_the_model() -> None:
    data, model = random_graph(3), random_model("gcn", 3)
    e = explain(model, data, node=1, method=GraphSVX(hops=1))
    full = explain(model, data, node=1)
    assert set(e.nodes) < set(full.nodes)
    assert e.prediction == pytest.approx(full.prediction, abs=1e-12)
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)


def test_batch_norm_in_eval_mode_needs_no_fallback() -> None:
    torch.manual_seed(0)
    model = GCN(3, 8, 2, 3, norm="batch_norm").double()
    data = random_graph(4)
    e = explain(model.train(), data, node=1)
    assert e.certificate.fallback is None
    model.eval()
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)
    model.train()


def test_degrees_beyond_the_field_count() -> None:
    """A GCN divides by degrees of nodes k hops away, which have neighbours k + 1 hops away."""
    star = [(2, 1), (1, 0)] + [(i, 2) for i in range(3, 9)]
    edges = torch.tensor(star + [(v, u) for u, v in star]).t()
    data = Data(x=torch.randn(9, 3, dtype=torch.float64), edge_index=edges)
    model = random_model("gcn", 1)
    e = explain(model, data, node=0)
    assert sorted(e.nodes) == [1, 2]
    assert e.certificate.fallback is None
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)
