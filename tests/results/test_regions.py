"""Credit by hop and by branch: sums with the right standard error."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN
from torch_geometric.utils import barabasi_albert_graph, to_undirected

import graphsvx
from graphsvx import GraphSVX
from graphsvx.results.credit import SEVERAL


@pytest.fixture(scope="module")
def model() -> GCN:
    torch.manual_seed(0)
    return GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3)


def tree() -> Data:
    """Node 0 hears 1 and 2; 3 and 4 come through 1, 5 through 2, 6 through both."""
    edges = torch.tensor([[1, 2, 3, 4, 5, 6, 6], [0, 0, 1, 1, 2, 1, 2]])
    return Data(x=torch.randn(7, 4), edge_index=to_undirected(edges))


def test_exact_credit_by_hop_and_branch(model: GCN) -> None:
    explanation = graphsvx.explain(model, tree(), node=0)
    credit = explanation.nodes
    hops = {region.name: region for region in explanation.by_hop()}
    assert hops["hop 1"].value == pytest.approx(credit[1] + credit[2])
    assert hops["hop 2"].value == pytest.approx(sum(credit[node] for node in (3, 4, 5, 6)))
    branches = {region.name: region for region in explanation.branches()}
    assert {name: sorted(region.members) for name, region in branches.items()} == {
        "through 1": [1, 3, 4], "through 2": [2, 5], "several ways": [6],
    }  # fmt: skip
    assert branches["through 1"].value == pytest.approx(credit[1] + credit[3] + credit[4])
    assert [hops[f"hop {hop}"].key for hop in (1, 2)] == [1, 2]
    assert {name: region.key for name, region in branches.items()} == {
        "through 1": 1, "through 2": 2, "several ways": SEVERAL,
    }  # fmt: skip
    assert all(region.error == 0 for region in (*hops.values(), *branches.values()))


@pytest.mark.parametrize("seed", range(3))
def test_branches_are_those_of_all_ways_within_the_depth(model: GCN, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(14, 0.2, seed=int(rng.integers(1000)))
    graph.add_edge(0, 1)
    ends = torch.tensor(list(graph.edges)).t()
    data = Data(x=torch.randn(14, 4), edge_index=to_undirected(ends, num_nodes=14))
    explanation = graphsvx.explain(model, data, node=0, method=GraphSVX(players="nodes"))
    for region in explanation.branches():
        for node in region.members:
            ways = {path[1] for path in nx.all_simple_paths(graph, 0, node, cutoff=2)}
            expected = {node} if graph.has_edge(0, node) else ways
            name = f"through {expected.pop()}" if len(expected) == 1 else "several ways"
            assert region.name == name


def test_errors_of_sums_hold_and_are_saved(model: GCN) -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    data = Data(x=torch.randn(120, 4), edge_index=barabasi_albert_graph(120, 4))
    node = int(torch.bincount(data.edge_index[0]).argmax())
    truth = graphsvx.explain(
        model, data, node=node, method=GraphSVX(players="nodes", samples=20_000)
    )
    exact = {region.name: region.value for region in truth.by_hop()}
    within = []
    for seed in range(8):
        explanation = graphsvx.explain(
            model, data, node=node, seed=seed, method=GraphSVX(players="nodes", samples=200)
        )
        for region in explanation.by_hop():
            assert region.error > 0
            within.append(abs(region.value - exact[region.name]) <= 3 * region.error)
    assert np.mean(within) >= 0.8
    again = graphsvx.Explanation.from_dict(explanation.to_dict())
    assert [region.error for region in again.by_hop()] == [
        region.error for region in explanation.by_hop()
    ]
    total = sum(region.value for region in explanation.branches())
    assert total == pytest.approx(float(explanation.node_values.sum()))
