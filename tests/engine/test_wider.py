"""The wider graph that the field is compared with."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import graphsvx


@pytest.mark.parametrize("nodes", [64, 65, 66, 70])
def test_a_group_in_a_field_of_about_as_many_nodes_as_are_looked_at(nodes: int):
    torch.manual_seed(0)
    ring = torch.arange(nodes)
    edge_index = torch.stack([ring, (ring + 1) % nodes])
    hub = torch.stack([ring[1:], torch.zeros(nodes - 1, dtype=torch.long)])
    both = torch.cat([edge_index, hub, edge_index.flip(0), hub.flip(0)], 1)
    data = Data(x=torch.randn(nodes, 4), edge_index=both)
    model = GCN(4, 8, 2, 3).eval()
    method = graphsvx.GraphSVX(samples=30)
    found = graphsvx.explain(model, data, nodes=[0, 1, 2, 3], method=method)
    assert "field = wider graph" in found.certificate.checks
