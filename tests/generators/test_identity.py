"""Which coalitions count as one state follows from what the generator changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.nn.models import GCN

from graphsvx.core.model import evaluation_mode
from graphsvx.core.players import find_players
from graphsvx.core.query import build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.games.graph_game import GraphGame
from graphsvx.generators import GameSetup
from graphsvx.generators.replace import ReplaceRows
from graphsvx.masks.base import all_rows
from tests.worlds import random_graph


class Shifted(ReplaceRows):
    """A generator of one's own that says nothing about its feature rows."""

    feature_rows = "any"

    def __call__(self, scene, features_on, nodes_on):
        """Each switched-off node's features are moved by its own number of switched-on nodes."""
        perturbations = super().__call__(scene, features_on, nodes_on)
        on = torch.from_numpy(nodes_on.sum(1)).to(scene.feature_table)
        moved = [scene.feature_table + k for k in on]
        size = scene.field.size
        rows = np.where(
            perturbations.feature_row >= size,
            size * (1 + np.arange(len(nodes_on)))[:, None] + np.arange(size),
            perturbations.feature_row,
        )
        return replace(
            perturbations, feature_row=rows, feature_table=torch.cat([scene.feature_table, *moved])
        )


@pytest.mark.parametrize("generator", [ReplaceRows(), ReplaceRows("zero"), Shifted()])
def test_replaced_features_make_another_state(generator: ReplaceRows) -> None:
    torch.manual_seed(0)
    model = GCN(3, 8, 2, 3).double().eval()
    data = random_graph(2, nodes=7, chance=0.4)
    query = build_query(model, data, node=1)
    with evaluation_mode(query.model.submodules):
        evaluator = choose_evaluator(query, None, 0)
        setup = GameSetup(
            query.graph,
            evaluator.field,
            find_players(query.graph, evaluator.field, None, "all", "nodes"),
            query.graph.statistics.mean,
        )
        game = GraphGame(query, evaluator, setup, generator, "nodes", rest_on=True)
        rows = all_rows(game.players)
        states = game.states(rows)
        # `Shifted` moves nothing where nobody is on, which is the graph as it is.
        assert len(np.unique(states)) == len(rows) - isinstance(generator, Shifted)
        values = game.values(states)
    ids = evaluator.field.ids[setup.players.node_members]
    for row, value in zip(rows, values, strict=True):
        x = data.x.clone()
        for node in ids[~row]:
            if isinstance(generator, Shifted):
                x[node] = data.x[node] + row.sum()
            else:
                x[node] = data.x.mean(0) if generator.by == "mean" else 0
        with torch.no_grad():
            direct = model(x, data.edge_index)[1].softmax(-1)
        torch.testing.assert_close(value, direct, atol=1e-10, rtol=0)
