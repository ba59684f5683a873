"""The one rule between edge scores and node scores."""

from __future__ import annotations

import pytest
import torch

import graphsvx
from graphsvx.estimators.direct import as_edges, as_nodes, edges_to_nodes, nodes_to_edges
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.learned import GNNExplainer

ENDS = torch.tensor([[5, 7, 7, 9], [7, 5, 9, 2]])


def values(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def test_a_node_has_the_score_of_its_strongest_edge_with_its_sign():
    credit = edges_to_nodes(ENDS, values(0.2, -0.5, 0.4, -0.1), torch.tensor([9, 5, 2, 7, 11]))
    assert credit.tolist() == [[0.4, -0.5, -0.1, -0.5, 0.0]]


def test_of_opposite_edges_the_positive_one_counts():
    credit = edges_to_nodes(ENDS[:, :2], values(-0.3, 0.3), torch.tensor([5, 7]))
    assert credit.tolist() == [[0.3, 0.3]]


def test_an_edge_has_the_mean_of_its_ends_that_have_a_score():
    credit = nodes_to_edges(torch.tensor([7, 5, 2]), values(0.4, -0.2, 1.0), ENDS)
    # Node 9 has no score: its edges get the other end's; an edge between strangers gets 0.
    assert credit[0].tolist() == pytest.approx([0.1, 0.1, 0.4, 1.0])
    assert nodes_to_edges(torch.tensor([1]), values(3.0), ENDS).tolist() == [[0.0] * 4]


def test_brute_force_agrees():
    torch.manual_seed(0)
    ends = torch.randint(0, 12, (2, 60))
    edge = torch.randn(3, 60, dtype=torch.float64)
    nodes = torch.randperm(12)[:9]
    credit = edges_to_nodes(ends, edge, nodes)
    for row in range(3):
        for i, node in enumerate(nodes.tolist()):
            mine = [edge[row, k].item() for k in range(60) if node in ends[:, k].tolist()]
            assert credit[row, i].item() == max(mine, key=abs, default=0.0)


def test_explanations_keep_what_they_have(known):
    model, data = known
    by_nodes = graphsvx.explain(model, data, node=0, method=GraphSVX())
    assert as_nodes(by_nodes) is by_nodes
    edges = as_edges(by_nodes)
    # An edge to the explained node, which has no score, gets its other end's.
    assert edges.edges[1, 0] == pytest.approx(by_nodes.nodes[1])
    by_edges = graphsvx.explain(model, data, node=0, method=GNNExplainer())
    assert as_edges(by_edges) is by_edges
    assert as_nodes(by_edges).nodes[1] == pytest.approx(by_edges.edges[1, 0])
    assert 0 not in as_nodes(by_edges).nodes
