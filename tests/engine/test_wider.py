"""The wider graph that the field is compared with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphsvx import graph as graphs
from graphsvx.engine import field as fields
from graphsvx.engine.stages import wider_stage
from tests.worlds import random_graph


@pytest.mark.parametrize("leaves", range(60, 68))
def test_a_group_in_a_field_of_about_as_many_nodes_as_are_looked_at(leaves: int):
    torch.manual_seed(0)
    star = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    tail = torch.arange(leaves, leaves + 40)
    edge_index = torch.cat([star, torch.stack([tail, tail + 1])], 1)
    both = torch.cat([edge_index, edge_index.flip(0)], 1)
    data = Data(x=torch.randn(leaves + 41, 4), edge_index=both)
    graph = graphs.check(data)
    field = fields.cut(graph, np.array([0, 1, 2, 3]), 2)
    stage = wider_stage(graph, field, np.random.default_rng(0))
    assert set(field.ids[: field.size].tolist()) == set(range(leaves + 2))
    assert len(stage.position) == field.size
    assert torch.equal(stage.x[torch.from_numpy(stage.position)], data.x[field.ids[: field.size]])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("both_ways", [True, False])
def test_its_edges_are_those_of_the_graph(seed: int, both_ways: bool):
    data = random_graph(seed, nodes=60, chance=0.04)
    if not both_ways:
        kept = torch.rand(data.edge_index.shape[1], generator=torch.Generator().manual_seed(seed))
        data.edge_index = data.edge_index[:, kept < 0.7]
    graph = graphs.check(data)
    field = fields.cut(graph, np.array([seed]), 2)
    stage = wider_stage(graph, field, np.random.default_rng(seed), most=20)
    assert len(set(stage.edges.tolist())) == len(stage.edges)
    # No two nodes have the same features: rows say who is who.
    for side in range(2):
        ends = data.edge_index[side, torch.from_numpy(stage.edges)]
        assert torch.equal(stage.x[stage.edge_index[side]], data.x[ends])
    into = set(graph.index.edges_into(field.ids[: field.size]).tolist())
    assert into < set(stage.edges.tolist())
    assert len(stage.x) == len({tuple(row) for row in stage.x.tolist()})
    sent = graphs.outward(graph).edges_into(np.array([seed]))[:8]
    assert set(sent.tolist()) <= set(stage.edges.tolist()), "what the explained node sends"
