"""Eq. 1: switched-off features of the explained nodes have the reference's values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.core import field as fields
from graphsvx.core import players as choosing
from graphsvx.core.data import check_graph
from graphsvx.generators import GameSetup, Isolate
from tests.worlds import random_graph


@pytest.mark.parametrize("feature_nodes", [None, 3])
@pytest.mark.parametrize("width", [4, 160])
def test_switched_off_features_have_the_reference_at_each_feature_node(
    feature_nodes: int | None, width: int
) -> None:
    data = random_graph(3, nodes=12, chance=0.3)
    rng = torch.Generator().manual_seed(width)
    data.x = torch.randn(12, width, generator=rng, dtype=torch.float64)
    graph = check_graph(data)
    field = fields.in_neighbourhood(graph, np.array([1, 4]), 1)
    players = choosing.find_players(graph, field, None, "all", "both")
    reference = torch.randn(width, generator=rng, dtype=torch.float64)
    setup = GameSetup(graph, field, players, reference, feature_nodes)
    on = np.random.default_rng(0).random((6, players.features)) < 0.5
    on[2] = on[0]
    nodes_on = np.ones((6, players.nodes), dtype=bool)
    batch = Isolate()(setup, on, nodes_on)
    table = torch.stack([batch.feature_table[i] for i in range(len(batch.feature_table))])
    features = table[torch.from_numpy(batch.feature_rows())]
    for row in range(6):
        for local, node in enumerate(field.ids[: field.size].tolist()):
            expected = data.x[node].clone()
            if local < (2 if feature_nodes is None else feature_nodes):
                off = torch.from_numpy(~on[row])
                columns = torch.from_numpy(players.feature_members)
                expected[columns[off]] = reference[columns[off]]
            assert torch.equal(features[row, local], expected)
