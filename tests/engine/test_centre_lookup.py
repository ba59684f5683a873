"""Perturbed graphs around a node by look-ups have the outputs of plain calls, or are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv

from graphsvx import GraphSVX, explain
from graphsvx.engine import states
from graphsvx.engine.state_graph import StateGraphs
from graphsvx.engine.states import States
from graphsvx.errors import ModelError
from graphsvx.masks import All, Paired
from graphsvx.testing.oracle import algorithm_1, cut, probability_of
from tests.worlds import random_graph, seeded

LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "graphconv": GraphConv,
    "max": lambda ins, outs: GraphConv(ins, outs, aggr="max"),
    "gcn": GCNConv,
    "gcn without loops": lambda ins, outs: GCNConv(ins, outs, add_self_loops=False),
    "gin": lambda ins, outs: GINConv(nn.Sequential(nn.Linear(ins, outs), nn.Tanh())),
    "sage": SAGEConv,
    "gat": lambda ins, outs: GATConv(ins, outs // 2, heads=2),
}


class Rounds(nn.Module):
    """Rounds of one layer, all of them joined for the head or the last alone."""

    def __init__(self, layer: str, depth: int = 3, joined: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LAYERS[layer](3 if k == 0 else 6, 6) for k in range(depth))
        self.joined = joined
        self.head = nn.Linear(6 * depth if joined else 6, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rounds = []
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
            rounds.append(x)
        return self.head(torch.cat(rounds, -1) if self.joined else x)


class Weighted(nn.Module):
    """Two rounds whose messages depend on weights of edges, and on weighted degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(3, 6), GraphConv(6, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_weight).tanh(), edge_index, edge_weight)


class WithEdgeFeatures(nn.Module):
    """Two rounds of attention that read features of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GATConv(3, 6, edge_dim=2), GATConv(6, 2, edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_attr).tanh(), edge_index, edge_attr)


def tree(nodes: int, branches: int = 2, seed: int = 0) -> Data:
    """A tree whose nodes have `branches` children; the root is node 0."""
    child = torch.arange(1, nodes)
    edges = torch.stack([child, (child - 1) // branches])
    x = torch.randn(nodes, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """All games are looked up; the number of perturbed graphs of each batch."""
    used: list[int] = []
    look_up = States._looked_up

    def recorded(self: States, field, perturbations, hops):
        out = look_up(self, field, perturbations, hops)
        assert out is not None
        used.append(len(perturbations))
        return out

    monkeypatch.setattr(states, "FEWEST_GRAPHS", 1)
    monkeypatch.setattr(StateGraphs, "may_have_few", lambda *_: True)
    number = StateGraphs.number
    monkeypatch.setattr(StateGraphs, "number", lambda self, graphs, _=None: number(self, graphs))
    monkeypatch.setattr(States, "_looked_up", recorded)
    yield used
    assert used


def same_as_brute_force(model: nn.Module, data: Data) -> None:
    method = GraphSVX(players="nodes", mask=All(separate=True))
    explanation = explain(model, data, node=0, targets="all", method=method)
    truth = algorithm_1(probability_of(model, 0), data, 0, explanation.node_ids.tolist(), [])
    assert explanation.certificate.fallback is None
    expected = torch.stack([*truth.nodes.values()])
    assert torch.allclose(explanation.node_credit.values.t(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("directed", [False, True])
def test_look_ups_equal_brute_force(layer: str, directed: bool, look_ups: list[int]) -> None:
    data = random_graph(7, nodes=9, directed=directed, chance=0.3)
    same_as_brute_force(seeded(lambda: Rounds(layer, depth=2)), data)


@pytest.mark.parametrize("layer", ["graphconv", "gcn", "gat"])
def test_rounds_that_are_joined_equal_brute_force(layer: str, look_ups: list[int]) -> None:
    same_as_brute_force(seeded(lambda: Rounds(layer, joined=True)), random_graph(8, nodes=8))


@pytest.mark.parametrize("layer", ["graphconv", "gcn", "gat"])
def test_self_loops_equal_brute_force(layer: str, look_ups: list[int]) -> None:
    data = random_graph(7, nodes=8, chance=0.3)
    loops = torch.tensor([[2, 5], [2, 5]])
    data.edge_index = torch.cat([data.edge_index, loops], 1)
    same_as_brute_force(seeded(lambda: Rounds(layer, depth=2)), data)


def test_weights_of_edges_equal_brute_force(look_ups: list[int]) -> None:
    data = random_graph(10, nodes=8)
    data.edge_weight = torch.linspace(0.5, 1.5, data.num_edges, dtype=torch.float64)
    same_as_brute_force(seeded(Weighted), data)


def test_features_of_edges_equal_brute_force(look_ups: list[int]) -> None:
    data = random_graph(11, nodes=8)
    data.edge_attr = torch.randn(
        data.num_edges, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    same_as_brute_force(seeded(WithEdgeFeatures), data)


@pytest.mark.parametrize(
    ("layer", "settings"),
    [
        ("gcn", {"players": "nodes", "indirect": "mean"}),
        ("gcn", {"players": "nodes", "erase": True}),
        ("gcn", {"players": "edges"}),
        ("graphconv", {"players": "edges"}),  # a loop is a player too
    ],
)
def test_look_ups_of_all_generators_equal_batches(
    layer: str, settings: dict, request: pytest.FixtureRequest
) -> None:
    model, data = seeded(lambda: Rounds(layer)), random_graph(12, nodes=9, chance=0.25)
    method = GraphSVX(samples=400, **settings)
    in_batches = explain(model, data, node=0, method=method)
    request.getfixturevalue("look_ups")
    by_look_ups = explain(model, data, node=0, method=method)
    for first, second in (
        (in_batches.edge_credit, by_look_ups.edge_credit),
        (in_batches.node_credit, by_look_ups.node_credit),
    ):
        if first is not None and second is not None:
            assert torch.allclose(first.values, second.values, rtol=0, atol=1e-9)


def test_several_centres_equal_batches(request: pytest.FixtureRequest) -> None:
    model, data = seeded(lambda: Rounds("sage")), random_graph(13, nodes=9)
    in_batches = explain(model, data, nodes=[0, 4], method=GraphSVX(players="nodes"))
    request.getfixturevalue("look_ups")
    by_look_ups = explain(model, data, nodes=[0, 4], method=GraphSVX(players="nodes"))
    assert torch.allclose(
        in_batches.node_credit.values, by_look_ups.node_credit.values, rtol=0, atol=1e-12
    )


def test_a_node_with_many_connected_sets_is_exact_by_default() -> None:
    model, data = seeded(lambda: Rounds("graphconv")), tree(24, branches=3)
    explanation = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    report = explanation.certificate.games[-1]
    assert report.exact
    assert report.calls > 20_000
    # By definition, on coalitions of their own: differences that a player makes at random ones.
    rng, orders = np.random.default_rng(0), 300
    score = probability_of(model, 0, target=explanation.target)
    sums = np.zeros((orders, 23))
    for k in range(orders):
        order = rng.permutation(23)
        on = np.ones((24, 24), dtype=bool)
        on[:, 1:] = np.arange(24)[:, None] > np.argsort(order)
        sums[k, order] = np.diff([score(cut(data, np.flatnonzero(~row))) for row in on])
    credit = explanation.node_credit.values[0].numpy()
    by_node = dict(zip(explanation.node_ids.tolist(), credit, strict=True))
    values = np.array([by_node[node] for node in range(1, 24)])
    errors = sums.std(0) / np.sqrt(orders)
    assert (np.abs(sums.mean(0) - values) < 4.5 * errors + 1e-9).all()


def test_estimates_by_look_ups_are_within_their_bars() -> None:
    model, data = seeded(lambda: Rounds("graphconv")), tree(24, branches=3)
    exact = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    assert exact.certificate.exact
    method = GraphSVX(players="nodes", mask=Paired(), tolerance=1e-4)
    sampled = explain(model, data, node=0, method=method)
    assert sampled.certificate.games[-1].coalitions > 1 << 14
    distance = (sampled.node_credit.values - exact.node_credit.values).abs()
    assert bool((distance <= 5 * sampled.node_credit.errors + 1e-9).all())


def test_asked_samples_are_kept() -> None:
    model, data = seeded(lambda: Rounds("graphconv")), tree(30, branches=3)
    explanation = explain(model, data, node=0, method=GraphSVX(players="nodes", samples=3000))
    assert explanation.certificate.calls <= 3000


def test_hubs_are_not_looked_up() -> None:
    star = torch.stack([torch.arange(1, 40), torch.zeros(39, dtype=torch.long)])
    data = Data(x=torch.ones(41, 3), edge_index=torch.cat([star, star.flip(0)], 1))
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[0, 40], [40, 0]])], 1)
    model = seeded(lambda: Rounds("graphconv", depth=2)).float()
    explanation = explain(model, data, node=40, method=GraphSVX(players="nodes"))
    assert explanation.certificate.fallback is None
    assert explanation.certificate.calls <= 10_000


def test_wrong_look_ups_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = seeded(lambda: Rounds("graphconv", depth=2)), random_graph(14, nodes=9)
    right = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    evaluate = StateGraphs.evaluate

    def wrong(self: StateGraphs, numbered, call):
        return evaluate(self, numbered, call) + 0.01

    monkeypatch.setattr(states, "FEWEST_GRAPHS", 1)
    monkeypatch.setattr(StateGraphs, "may_have_few", lambda *_: True)
    monkeypatch.setattr(StateGraphs, "evaluate", wrong)
    noticed = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    assert torch.equal(noticed.node_credit.values, right.node_credit.values)


def test_look_ups_that_fail_leave_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = seeded(lambda: Rounds("graphconv", depth=2)), random_graph(14, nodes=9)
    right = explain(model, data, node=0, method=GraphSVX(players="nodes"))

    def failing(*_: object) -> Tensor:
        raise ModelError("no look-ups")

    monkeypatch.setattr(states, "FEWEST_GRAPHS", 1)
    monkeypatch.setattr(StateGraphs, "may_have_few", lambda *_: True)
    monkeypatch.setattr(StateGraphs, "evaluate", failing)
    again = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    assert again.certificate.fallback is None
    assert torch.equal(again.node_credit.values, right.node_credit.values)


def test_blocks_of_look_ups_give_the_same_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = seeded(lambda: Rounds("gcn", depth=2)), tree(16, branches=3)
    method = GraphSVX(players="nodes", mask=All(separate=True))
    together = explain(model, data, node=0, method=method)
    used, look_up = [], States._looked_up

    def recorded(self: States, field, perturbations, hops):
        used.append(look_up(self, field, perturbations, hops))
        return used[-1]

    monkeypatch.setattr(states, "FEWEST_GRAPHS", 1)
    monkeypatch.setattr(StateGraphs, "block", lambda *_: 100)
    monkeypatch.setattr(States, "_looked_up", recorded)
    in_blocks = explain(model, data, node=0, method=method)
    assert any(out is not None for out in used)
    assert torch.allclose(
        together.node_credit.values, in_blocks.node_credit.values, rtol=0, atol=1e-12
    )
