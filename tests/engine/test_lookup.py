"""Whole graphs by look-ups give what plain calls of the model give, or are not used."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    GraphNorm,
    SAGEConv,
    aggr,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

from graphsvx import GraphSVX, explain
from graphsvx.engine import states
from graphsvx.engine.state_graph import StateGraphs
from graphsvx.testing.oracle import cut, probability_of, replace_features, shapley_values
from tests.worlds import random_graph, seeded

LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "graphconv": GraphConv,
    "gcn": GCNConv,
    "gin": lambda ins, outs: GINConv(nn.Sequential(nn.Linear(ins, outs), nn.Tanh())),
    "sage": SAGEConv,
    "gat": GATConv,
}
POOLS = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class Pooled(nn.Module):
    """Two layers, poolings side by side, a hidden layer in the head."""

    def __init__(self, layer: str, pools: tuple[str, ...], norm: bool = False) -> None:
        super().__init__()
        self.first, self.second = LAYERS[layer](3, 6), LAYERS[layer](6, 5)
        self.norm = GraphNorm(5) if norm else None
        self.pools = [POOLS[pool] for pool in pools]
        self.head = nn.Sequential(nn.Linear(5 * len(pools), 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.second(self.first(x, edge_index).tanh(), edge_index)
        x = x if self.norm is None else self.norm(x, batch)
        return self.head(torch.cat([pool(x, batch) for pool in self.pools], -1))


class Aggregated(nn.Module):
    """Pooling by a module that needs all nodes of a graph at once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = GraphConv(3, 4)
        self.pool = aggr.MultiAggregation(["std", "median", "sum"])
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(self.pool(self.layer(x, edge_index).tanh(), batch))


class Weighted(nn.Module):
    """Rounds that are joined, added to and fed to two layers, on weighted edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.beside = (
            GraphConv(3, 5), GraphConv(5, 5, aggr="max"), GraphConv(5, 5)
        )  # fmt: skip
        self.third = GraphConv(10, 4)
        self.head = nn.Linear(14, 2)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor | None = None
    ) -> Tensor:
        first = self.first(x, edge_index, edge_weight).tanh()
        second = self.second(first, edge_index, edge_weight) + first
        joined = torch.cat([second, self.beside(first, edge_index).tanh()], -1)
        third = self.third(joined, edge_index, edge_weight=edge_weight)
        return self.head(global_add_pool(torch.cat([third, joined], -1), batch))


def exact_credit(
    model: nn.Module, data: Data, players: list[list[int]], erase: bool = False
) -> Tensor:
    """Shapley values [groups of nodes, classes] by the oracle."""
    score = probability_of(model)

    def value(on: frozenset[int]) -> Tensor:
        off = [node for player in {*range(len(players))} - on for node in players[player]]
        return score(replace_features(cut(data, off), off if erase else [], range(3)))

    return torch.stack([*shapley_values(range(len(players)), value).values()])


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("directed", [False, True])
def test_look_ups_equal_brute_force(layer: str, directed: bool) -> None:
    pools = {"gcn": ("sum", "max"), "gin": ("max",), "gat": ("mean",)}.get(layer, ("sum", "mean"))
    model = seeded(lambda: Pooled(layer, pools), 3)
    data = random_graph(7, nodes=8, directed=directed, chance=0.3)
    erase = layer in ("gcn", "sage")
    explanation = explain(model, data, graph=True, targets="all", method=GraphSVX(erase=erase))
    expected = exact_credit(model, data, [[u] for u in range(8)], erase)
    assert explanation.certificate.exact
    assert explanation.certificate.fallback is None
    assert torch.allclose(explanation.node_credit.values.t(), expected, atol=1e-12)


def test_poolings_that_need_all_nodes_are_looked_up() -> None:
    model, data = seeded(Aggregated, 1), random_graph(2, nodes=7)
    explanation = explain(model, data, graph=True, targets="all")
    expected = exact_credit(model, data, [[u] for u in range(7)])
    assert explanation.certificate.fallback is None
    assert torch.allclose(explanation.node_credit.values.t(), expected, atol=1e-12)


def test_groups_are_looked_up() -> None:
    model, data = seeded(lambda: Pooled("graphconv", ("max",)), 4), random_graph(5, nodes=9)
    groups = {"a": [0, 4, 7], "b": [1, 2]}
    explanation = explain(model, data, graph=True, targets="all", method=GraphSVX(groups=groups))
    players = [[0, 4, 7], [1, 2], [3], [5], [6], [8]]
    expected = exact_credit(model, data, players)
    assert torch.allclose(explanation.node_credit.values.t(), expected, atol=1e-12)


def test_edges_by_look_ups_equal_whole_graphs() -> None:
    data = random_graph(11, nodes=7, chance=0.3)
    model = seeded(lambda: Pooled("gcn", ("sum",)), 2)

    def opaque(x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return model(x, edge_index, batch)

    values = [
        explain(each, data, graph=True, method=GraphSVX(players="edges", samples=5000)).edge_values
        for each in (model, opaque)
    ]
    assert torch.allclose(*values, atol=1e-12)


def test_rounds_that_are_joined_by_look_ups_equal_whole_graphs() -> None:
    data = random_graph(13, nodes=7, chance=0.3)
    data.edge_weight = torch.linspace(0.5, 1.5, data.num_edges, dtype=torch.float64)
    model = seeded(Weighted, 2)

    def opaque(x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor) -> Tensor:
        return model(x, edge_index, edge_weight, batch)

    looked_up, plain = (explain(each, data, graph=True) for each in (model, opaque))
    assert looked_up.certificate.fallback is None
    assert torch.allclose(
        looked_up.node_credit.values, plain.node_credit.values, rtol=0, atol=1e-12
    )


def _fallback_near_zero(seed: int) -> str | None:
    """Why no look-ups were taken for a model whose output is 1e-4 of its terms."""
    data = random_graph(seed, nodes=12)
    data.x = data.x.float()
    model = seeded(lambda: Pooled("graphconv", ("mean", "sum")), seed).float()
    with torch.no_grad():
        batch = torch.zeros(12, dtype=torch.long)
        model.head[-1].bias -= model(data.x, data.edge_index, batch)[0] * (1 + 1e-4)
    # What is left changes by rounding in a batch with another graph.
    explanation = explain(model, data, graph=True, method=GraphSVX(samples=5000))
    return explanation.certificate.fallback


def test_outputs_near_zero_are_looked_up() -> None:
    """In all of them with some versions of torch, in most with any: rounding decides."""
    fallbacks = [_fallback_near_zero(seed) for seed in range(8)]
    assert fallbacks.count(None) >= 5, fallbacks


def test_more_coalitions_than_calls() -> None:
    path = torch.arange(13)
    edges = torch.stack([path, path + 1])
    x = torch.randn(14, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))
    model = seeded(lambda: Pooled("graphconv", ("max",)), 0)
    explanation = explain(model, data, graph=True, method=GraphSVX(samples=1000))
    report = explanation.certificate.games[0]
    assert report.exact
    assert report.coalitions == 2**14
    assert report.calls <= 1000


def test_models_that_are_not_local_are_not_looked_up() -> None:
    data = random_graph(3, nodes=8)
    model = seeded(lambda: Pooled("graphconv", ("max",), norm=True), 0)
    explanation = explain(model, data, graph=True, targets="all")
    assert "as a whole" in str(explanation.certificate.fallback)
    expected = exact_credit(model, data, [[u] for u in range(8)])
    assert torch.allclose(explanation.node_credit.values.t(), expected, atol=1e-12)


def test_a_graph_with_too_many_states_is_not_looked_up() -> None:
    star = torch.stack([torch.arange(1, 60), torch.zeros(59, dtype=torch.long)])
    both = torch.cat([star, star.flip(0)], 1)
    data = Data(x=torch.randn(60, 3, dtype=torch.float64), edge_index=both)
    model = seeded(lambda: Pooled("graphconv", ("max",)), 0)
    explanation = explain(model, data, graph=True, method=GraphSVX(samples=40))
    assert "states" in str(explanation.certificate.fallback)
    assert explanation.certificate.calls <= 40


def ring_of(nodes: int, steps: int) -> Data:
    """A ring whose nodes have edges to the next ones on both sides."""
    ring = torch.arange(nodes)
    edges = torch.cat([torch.stack([ring, (ring + 1 + k) % nodes]) for k in range(steps)], 1)
    x = torch.randn(nodes, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


def test_few_graphs_show_that_states_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    numbered, number = [], StateGraphs.number

    def recorded(self: StateGraphs, perturbations):
        numbered.append(len(perturbations))
        return number(self, perturbations)

    monkeypatch.setattr(StateGraphs, "number", recorded)
    model = seeded(lambda: Pooled("gcn", ("sum",)), 0)
    explanation = explain(model, ring_of(70, 4), graph=True)
    assert "states" in str(explanation.certificate.fallback)
    assert sum(numbered) <= 25_000  # of 132,000 coalitions


def test_look_ups_in_blocks_keep_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateGraphs, "block", lambda *_: 2000)
    model = seeded(lambda: Pooled("gin", ("sum",)), 0)
    explanation = explain(model, ring_of(20, 2), graph=True, method=GraphSVX(samples=600))
    assert explanation.certificate.calls <= 600


def test_wrong_look_ups_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_graph(7, nodes=8)
    model = seeded(lambda: Pooled("graphconv", ("sum",)), 3)
    right = states.Lookup.__call__

    def wrong(self: states.Lookup, perturbations, limit, known):
        outputs, new = right(self, perturbations, limit, known)
        there = perturbations.active[known:].sum(1) == 4
        outputs[torch.from_numpy(there)] += 0.01
        return outputs, new

    monkeypatch.setattr(states.Lookup, "__call__", wrong)
    explanation = explain(model, data, graph=True, targets="all")
    assert "differ" in str(explanation.certificate.fallback)
    expected = exact_credit(model, data, [[u] for u in range(8)])
    assert torch.allclose(explanation.node_credit.values.t(), expected, atol=1e-12)


def test_nodes_are_pooled_depth_first_neighbours_in_ascending_order() -> None:
    source, target = np.array([[4, 3, 1, 1, 0, 2, 5], [0, 1, 0, 4, 3, 2, 6]])
    field: Any = SimpleNamespace(size=7, source=source, target=target)
    lookup = states.Lookup(StateGraphs.__new__(StateGraphs))
    object.__setattr__(lookup.states, "field", field)
    assert lookup._order == [0, 1, 3, 4, 2, 5, 6]
