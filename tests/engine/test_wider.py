"""The wider graph that the field is compared with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphsvx import graph as graphs
from graphsvx.engine import field as fields
from graphsvx.engine.stages import wider_stage


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
