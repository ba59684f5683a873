"""The wider graph that the field is compared with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphsvx.core import field as fields
from graphsvx.core.data import check_graph
from graphsvx.core.graph import out_edges
from graphsvx.engine.evaluator import wider_reference
from tests.worlds import random_graph


@pytest.mark.parametrize("leaves", range(60, 68))
def test_a_group_in_a_field_of_about_as_many_nodes_as_are_looked_at(leaves: int):
    torch.manual_seed(0)
    star = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    tail = torch.arange(leaves, leaves + 40)
    edge_index = torch.cat([star, torch.stack([tail, tail + 1])], 1)
    both = torch.cat([edge_index, edge_index.flip(0)], 1)
    data = Data(x=torch.randn(leaves + 41, 4), edge_index=both)
    graph = check_graph(data)
    field = fields.in_neighbourhood(graph, np.array([0, 1, 2, 3]), 2)
    reference_graph = wider_reference(graph, field, np.random.default_rng(0))
    assert set(field.ids[: field.size].tolist()) == set(range(leaves + 2))
    assert len(reference_graph.position) == field.size
    assert torch.equal(
        reference_graph.x[torch.from_numpy(reference_graph.position)],
        data.x[field.ids[: field.size]],
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("both_ways", [True, False])
def test_its_edges_are_those_of_the_graph(seed: int, both_ways: bool):
    data = random_graph(seed, nodes=60, chance=0.04)
    if not both_ways:
        weights = torch.rand(
            data.edge_index.shape[1], generator=torch.Generator().manual_seed(seed)
        )
        data.edge_index = data.edge_index[:, weights < 0.7]
    graph = check_graph(data)
    field = fields.in_neighbourhood(graph, np.array([seed]), 2)
    reference_graph = wider_reference(graph, field, np.random.default_rng(seed), most=20)
    assert len(set(reference_graph.edges.tolist())) == len(reference_graph.edges)
    # No two nodes have the same features: rows say who is who.
    for side in range(2):
        ends = data.edge_index[side, torch.from_numpy(reference_graph.edges)]
        assert torch.equal(reference_graph.x[reference_graph.ends[side]], data.x[ends])
    into = set(graph.index.edges_into(field.ids[: field.size]).tolist())
    assert into < set(reference_graph.edges.tolist())
    assert len(reference_graph.x) == len({tuple(row) for row in reference_graph.x.tolist()})
    sent = out_edges(graph).edges_into(np.array([seed]))[:8]
    assert set(sent.tolist()) <= set(reference_graph.edges.tolist()), (
        "what the explained node sends"
    )
