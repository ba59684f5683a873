"""Models that pass messages in ways that shortcuts do not expect must still be explained right."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GCN,
    ChebConv,
    DirGNNConv,
    GCNConv,
    GraphConv,
    MessagePassing,
    MFConv,
)
from torch_geometric.utils import degree, to_undirected

from graphsvx import GraphSVX, explain
from graphsvx.engine.evaluator import SAME_ALONE
from graphsvx.engine.rows import Copies
from graphsvx.errors import ModelError
from graphsvx.testing.oracle import credit_of
from tests.worlds import random_graph


class RowNormalised(MessagePassing):
    """Messages divided by the sender's out-degree."""

    def __init__(self, given: int, wanted: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(given, wanted)

    def forward(self, x, edge_index):
        out = degree(edge_index[0], x.shape[0], x.dtype).clamp(min=1)
        return self.lin(x) + self.propagate(edge_index, x=self.lin(x) / out[:, None])

    def message(self, x_j):
        return x_j


class Net(nn.Module):
    def __init__(self, *layers: nn.Module, change=lambda edges: edges) -> None:
        super().__init__()
        self.layers, self.change = nn.ModuleList(layers), change

    def forward(self, x, edge_index):
        edge_index = self.change(edge_index)
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return x


MODELS = {
    "chebyshev": lambda: Net(ChebConv(3, 8, K=3), ChebConv(8, 3, K=2)),
    "row-normalised": lambda: Net(RowNormalised(3, 8), RowNormalised(8, 8), RowNormalised(8, 3)),
    "against the edges": lambda: Net(
        GraphConv(3, 8, flow="target_to_source"), GraphConv(8, 3, flow="target_to_source")
    ),
    "edges turned round": lambda: Net(
        GraphConv(3, 8), GraphConv(8, 3), change=lambda edges: edges.flip(0)
    ),
    "both directions": lambda: Net(DirGNNConv(GCNConv(3, 8)), DirGNNConv(GCNConv(8, 3))),
    "made undirected": lambda: Net(GCNConv(3, 8), GCNConv(8, 3), change=to_undirected),
}


# Along directed edges some nodes depend on no other one.
@pytest.mark.filterwarnings("ignore::graphsvx.errors.NoInfluenceWarning")
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", list(MODELS))
def test_brute_force_agrees(name: str, directed: bool) -> None:
    for seed in range(4):
        torch.manual_seed(seed)
        model = MODELS[name]().double().eval()
        data = random_graph(seed, nodes=7, directed=directed, chance=0.2)
        node = seed + 1
        e = explain(model, data, node=node, method=GraphSVX(samples=4000))
        truth = credit_of(e, model, data)
        assert e.prediction == pytest.approx(truth.prediction, abs=1e-9)
        assert e.nodes == pytest.approx(truth.nodes, abs=1e-9), e.certificate.line()


def test_nodes_that_matter_against_the_edges_play() -> None:
    torch.manual_seed(0)
    model = MODELS["against the edges"]().double()
    edges = torch.tensor([[0, 1, 3], [1, 2, 0]])
    data = Data(x=torch.randn(4, 3, dtype=torch.float64), edge_index=edges)
    e = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    assert abs(e.nodes[1]) > 1e-4
    assert abs(e.nodes[2]) > 1e-6
    assert e.nodes.get(3, 0.0) == pytest.approx(0, abs=1e-12)
    assert e.certificate.fallback is not None


@pytest.mark.parametrize("filled", [False, True])
def test_layers_that_remember_their_graph(filled: bool) -> None:
    data = random_graph(1)
    torch.manual_seed(0)
    plain = GCN(3, 8, 2, 3).double().eval()
    cached = GCN(3, 8, 2, 3, cached=True).double().eval()
    cached.load_state_dict(plain.state_dict())
    if filled:
        cached(data.x, data.edge_index)
    before = [layer._cached_edge_index for layer in cached.convs]
    e = explain(cached, data, node=1)
    assert e.nodes == pytest.approx(explain(plain, data, node=1).nodes, abs=1e-12)
    assert max(abs(v) for v in e.nodes.values()) > 1e-4
    assert all(layer.cached for layer in cached.convs)
    assert [layer._cached_edge_index for layer in cached.convs] == before
    torch.testing.assert_close(cached(data.x, data.edge_index), plain(data.x, data.edge_index))


class Centred(MessagePassing):
    """Messages without the mean over all nodes: copies in a batch disturb each other."""

    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x - x.mean(0)) + x

    def message(self, x_j):
        return x_j


@pytest.mark.parametrize(("name", "how"), [("chebyshev", "copies of"), ("centred", "one call")])
def test_unknown_layers_are_batched_where_that_changes_nothing(name: str, how: str) -> None:
    torch.manual_seed(0)
    model = (MODELS[name]() if name in MODELS else Net(Centred())).double().eval()
    data = random_graph(2, nodes=8)
    e = explain(model, data, node=1, method=GraphSVX(samples=4000))
    assert how in str(e.certificate.fallback)
    assert (SAME_ALONE in e.certificate.checks) == (how == "copies of")
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)


def no_copies() -> None:
    raise ModelError("made to fail")


@pytest.mark.parametrize("wide", [3, 100])
def test_copies_with_edges_and_features_as_players(wide: int) -> None:
    torch.manual_seed(0)
    model = Net(ChebConv(wide, 8, K=3), ChebConv(8, 3, K=2)).double().eval()
    data = random_graph(2, nodes=8)
    data.x = torch.randn(8, wide, dtype=torch.float64)
    for method in (
        GraphSVX(players="edges", samples=100),
        GraphSVX(players="features", samples=60),
        GraphSVX(indirect="mean", samples=100),
    ):
        quick = explain(model, data, node=1, method=method)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Copies, "evaluate", lambda *_: no_copies())
            slow = explain(model, data, node=1, method=method)
        assert "copies of" in str(quick.certificate.fallback)
        assert "one call" in str(slow.certificate.fallback)
        assert quick.nodes == pytest.approx(slow.nodes, abs=1e-9)
        assert quick.features == pytest.approx(slow.features, abs=1e-9)
        torch.testing.assert_close(quick.edge_credit.values, slow.edge_credit.values)


class Elsewhere(nn.Module):
    """Divides by a number that another thread computes, where operations cannot be followed."""

    def __init__(self, number) -> None:
        super().__init__()
        self.layers, self.number = nn.ModuleList([MFConv(3, 8), MFConv(8, 3)]), number

    def forward(self, x, edge_index):
        with ThreadPoolExecutor(1) as pool:
            number = pool.submit(self.number, x, edge_index).result()
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return 3 * x / (1 + number)


NUMBERS = {
    "largest degree": lambda x, edges: degree(edges[1], len(x), x.dtype).max(),
    "share of isolated nodes": lambda x, edges: (degree(edges[1], len(x)) == 0).to(x).mean(),
    "edges": lambda x, edges: x.new_tensor(edges.shape[1] / 4),
}


@pytest.mark.parametrize("name", list(NUMBERS))
def test_untraceable_models_are_detected_by_their_outputs(name: str) -> None:
    for seed in (0, 8, 21):  # graphs in which batches hide it from the first checks
        torch.manual_seed(seed)
        model = Elsewhere(NUMBERS[name]).double().eval()
        data = random_graph(seed, nodes=6, chance=0.2)
        e = explain(model, data, node=1, method=GraphSVX(players="nodes", samples=4000))
        truth = credit_of(e, model, data)
        assert e.nodes == pytest.approx(truth.nodes, abs=1e-9), e.certificate.line()
