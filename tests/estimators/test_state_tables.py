"""States of nodes are sets of coalitions; tables of them change variances, not values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.worlds import Grab
from torch_geometric.data import Data

from graphsvx import GraphSVX, explain
from graphsvx.estimators.controls import ControlledWLS
from graphsvx.estimators.least_squares import WLS
from graphsvx.estimators.state_tables import StateTables
from graphsvx.games.base import empty_and_full
from graphsvx.games.lookup_game import LookupGame
from graphsvx.masks import All, Auto, Paired
from graphsvx.masks.base import all_rows
from tests.engine.test_lookup import Pooled, seeded
from tests.worlds import random_graph


def graph_game(data: Data, layer: str = "graphconv", **settings: Any) -> LookupGame:
    """The game of look-ups on a whole graph."""
    grab = Grab()
    model = seeded(lambda: Pooled(layer, ("max", "sum")), 2)
    explain(
        model, data, graph=True, method=GraphSVX(mask=Auto(otherwise=grab), samples=2, **settings)
    )
    (game,) = {id(game): game for game in grab.games}.values()
    fresh = LookupGame(
        game.query, game.evaluator, game.lookup, game.setup, game.generator, game.side
    )
    fresh.coalitions_for(1 << 20)
    return fresh


def looped(data: Data) -> Data:
    loops = torch.tensor([[0, 3], [0, 3]])
    return Data(x=data.x, edge_index=torch.cat([data.edge_index, loops], 1))


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (random_graph(3, nodes=7, chance=0.3), {}),
        (random_graph(4, nodes=7, directed=True, chance=0.3), {}),
        (random_graph(5, nodes=7, chance=0.2), {"erase": True}),
        (looped(random_graph(6, nodes=7, chance=0.3)), {}),
        (random_graph(7, nodes=8, chance=0.3), {"groups": {"a": [0, 4], "b": [1, 2, 5]}}),
    ],
    ids=["undirected", "directed", "erased", "loops", "groups"],
)
def test_each_coalition_is_in_one_subcube_of_its_state(
    data: Data, settings: dict[str, Any]
) -> None:
    game = graph_game(data, **settings)
    rows = all_rows(game.players)
    states = game.states(rows)
    game.values(states)
    local = game.take_local_states(states)
    assert len(local) == 2 * data.num_nodes
    for node in local:
        members, boundary = node.subcubes.members, node.subcubes.boundary
        inside = ~(members[:, None] & ~rows).any(2) & ~(boundary[:, None] & rows).any(2)
        assert (inside.sum(0) == 1).all()
        assert (node.subcubes.state[inside.argmax(0)] == node.number).all()


def test_a_second_round_tells_the_states_of_all_its_coalitions() -> None:
    game = graph_game(random_graph(3, nodes=7, chance=0.3))
    rows = all_rows(7)
    first = game.values(game.states(rows[:40]))
    states = game.states(rows)
    values = game.values(states)
    torch.testing.assert_close(values[:40], first, rtol=0, atol=1e-12)
    local = game.take_local_states(states)
    assert [len(node.number) for node in local] == [128] * 14
    at_once = graph_game(random_graph(3, nodes=7, chance=0.3))
    torch.testing.assert_close(at_once.values(at_once.states(rows)), values, rtol=0, atol=1e-12)
    assert game.calls == at_once.calls  # embeddings of the first round count once
    few = game.states(np.flip(rows, 1)[:3])
    game.values(few)
    assert game.take_local_states(np.concatenate([states, few])) == ()  # not looked up together


def test_layers_that_read_degrees_have_no_subcubes() -> None:
    game = graph_game(random_graph(3, nodes=6, chance=0.3), "gcn")
    states = game.states(all_rows(6))
    game.values(states)
    assert game.take_local_states(states) == ()


def test_credit_of_tables_is_their_shapley_values() -> None:
    game = graph_game(random_graph(3, nodes=7, chance=0.3))
    rows = np.concatenate([empty_and_full(7), all_rows(7)[1:-1]])
    states = game.states(rows)
    game.values(states)
    local = game.take_local_states(states)
    rng = np.random.default_rng(0)
    tables = StateTables(local, [rng.normal(size=(node.count, 1)) for node in local])
    total = sum(table[node.number] for node, table in zip(local, tables.tables, strict=True))
    place = {row.tobytes(): i for i, row in enumerate(rows)}
    odd = total - total[[place[(~row).tobytes()] for row in rows]]
    masks = All(separate=True)(game, 1 << 7, torch.Generator())
    values = torch.from_numpy(odd[[place[row.tobytes()] for row in masks.rows]])
    expected = WLS()(masks, values, *torch.from_numpy(odd[:2])).values
    assert np.allclose(tables.credit(), expected, atol=1e-9)
    assert np.allclose(tables.at_full(), odd[1])


def test_tables_narrow_error_bars_that_hold() -> None:
    data = random_graph(9, nodes=20, chance=0.1)
    rng = np.random.default_rng(1)
    scores, narrower = [], []
    for seed in range(6):
        game = graph_game(data)
        masks = Paired()(game, 8000, torch.Generator().manual_seed(seed))
        states = np.concatenate([game.end_states(), masks.states])
        game.values(states)
        local = game.take_local_states(states)
        # A game of which the tables know the terms, and products that they do not know.
        truth = StateTables(local, [rng.normal(size=(node.count, 1)) for node in local])
        terms = zip(local, truth.tables, strict=True)
        rows = np.concatenate([empty_and_full(20), masks.rows])
        apart = rows[:, 0] & rows[:, 9] & rows[:, 17]
        total = sum(table[node.number] for node, table in terms) + 2.0 * apart[:, None]
        exact = truth.credit() / 2
        exact[:, [0, 9, 17]] += 2 / 3
        empty, full, values = *torch.from_numpy(total[:2]), torch.from_numpy(total[2:])
        plain = ControlledWLS()(masks, values, empty, full)
        fit = ControlledWLS()(replace(masks, local=local), values, empty, full)
        assert float(fit.values.sum()) == pytest.approx(float(full - empty), abs=1e-6)
        missed = (fit.values.numpy() - exact) / fit.errors.numpy()
        scores.append(float(np.sqrt((missed**2).mean())))
        narrower.append(float(fit.errors.norm() / plain.errors.norm()))
    assert np.median(narrower) < 0.95
    assert 0.6 < np.median(scores) < 1.5
