"""Interactions of GraphSVX: equal to shapiq on the same game, kept, exported."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import graphsvx
from graphsvx import Explanation, GraphSVX, explain
from graphsvx.errors import InputError
from graphsvx.estimators import BII, FSII, KSII, SII, STII, Lasso
from graphsvx.testing.oracle import cut, probability_of
from tests.engine.test_lookup import Pooled
from tests.worlds import random_graph, random_model, seeded

INDICES = [(KSII(), 2), (KSII(), 3), (SII(), 2), (STII(), 3), (FSII(), 2), (BII(), 2)]


def exact_by_shapiq(game, players: int, index: str, order: int):
    shapiq = pytest.importorskip("shapiq")
    return shapiq.ExactComputer(game, players)(index, order)


def must_be_equal(explanation: Explanation, values, abs_tolerance: float) -> None:
    record = explanation.interactions
    for members, value in zip(record.members.t().tolist(), record.values[0].tolist(), strict=True):
        expected = values[tuple(player for player in members if player >= 0)]
        assert value == pytest.approx(expected, abs=abs_tolerance)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("index", "order"), INDICES)
def test_interactions_around_a_node_equal_shapiq(index, order: int) -> None:
    data, model = random_graph(4, nodes=8, chance=0.3), random_model("gcn", 1)
    method = GraphSVX(players="nodes", order=order, index=index)
    explanation = explain(model, data, node=2, method=method)
    players = explanation.node_ids.tolist()
    score = probability_of(model, 2, target=explanation.target)

    def game(rows: np.ndarray) -> np.ndarray:
        return np.array([
            score(cut(data, [p for p, on in zip(players, row, strict=True) if not on]))
            for row in rows
        ])  # fmt: skip

    values = exact_by_shapiq(game, len(players), index.name, order)
    must_be_equal(explanation, values, 1e-7 if index.name == "FSII" else 1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("index", "order"), INDICES[:3])
def test_interactions_of_a_whole_graph_equal_shapiq(index, order: int) -> None:
    data = random_graph(9, nodes=7, chance=0.3)
    model = seeded(lambda: Pooled("graphconv", ("max",)), 1)
    explanation = explain(model, data, graph=True, method=GraphSVX(order=order, index=index))
    batch = torch.zeros(7, dtype=torch.long)

    def game(rows: np.ndarray) -> np.ndarray:
        out = []
        for row in rows:
            on = torch.from_numpy(np.asarray(row, dtype=bool))
            edges = data.edge_index[:, on[data.edge_index].all(0)]
            with torch.no_grad():
                out.append(float(model(data.x, edges, batch).softmax(-1)[0, explanation.target]))
        return np.array(out)

    must_be_equal(explanation, exact_by_shapiq(game, 7, index.name, order), 1e-9)


@pytest.fixture(scope="module")
def world() -> tuple[nn.Module, object]:
    return random_model("gin", 2), random_graph(4, nodes=9, chance=0.3)


def test_interactions_add_up_to_the_prediction_in_each_game(world) -> None:
    explanation = explain(world[0], world[1], node=1, targets="all", method=GraphSVX(order=2))
    total = explanation.interactions.values.sum(1)
    assert torch.allclose(total, explanation.predictions - explanation.bases, atol=1e-9)
    assert explanation.interactions.exact
    other = explanation.contrast(1, 0)
    assert torch.allclose(
        other.interactions.values.sum(), other.predictions[0] - other.bases[0], atol=1e-9
    )


@pytest.mark.parametrize("players", ["edges", "features"])
def test_edges_and_features_have_interactions(world, players: str) -> None:
    method = GraphSVX(players=players, order=2, features="all") if players == "features" else (
        GraphSVX(players=players, order=2, groups={"a": [0, 1, 2]})
    )  # fmt: skip
    explanation = explain(world[0], world[1], node=1, method=method)
    strongest = explanation.together(1)[0]
    assert len(strongest.players) == 2
    assert set(strongest.players) <= set(explanation.player_names)


def test_interactions_are_saved(world, tmp_path: Path) -> None:
    explanation = explain(world[0], world[1], node=1, method=GraphSVX(order=3))
    explanation.save(tmp_path / "e.json")
    again = Explanation.load(tmp_path / "e.json")
    assert again.together(5, size=3) == explanation.together(5, size=3)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("index", [KSII(), SII(), STII(), FSII(), BII()])
def test_estimated_interactions_have_error_bars(world, index, order: int) -> None:
    data = random_graph(8, nodes=16, chance=0.3)
    method = GraphSVX(players="nodes", order=order, samples=60, index=index)
    explanation = explain(world[0], data, node=1, method=method)
    assert not explanation.certificate.exact
    largest = explanation.interactions.sizes == order
    assert bool((explanation.interactions.errors[:, largest] > 0).all())


def test_triples_of_many_players_are_those_of_the_heaviest(world) -> None:
    data = random_graph(8, nodes=40, chance=0.15)
    explanation = explain(
        world[0], data, node=1, method=GraphSVX(players="nodes", order=3, samples=200, hops=3)
    )
    players, record = len(explanation.player_names), explanation.interactions
    assert players > 24
    assert record.left_out == players - 24
    assert int((record.sizes == 3).sum()) == 24 * 23 * 22 // 6


def test_what_does_not_go_together_is_said(world) -> None:
    with pytest.raises(InputError, match="Lasso"):
        GraphSVX(order=2, estimator=Lasso(k=3))
    with pytest.raises(InputError, match="order"):
        GraphSVX(order=4)
    with pytest.raises(InputError, match="order=2"):
        explain(world[0], world[1], node=1).together()


@pytest.mark.filterwarnings("ignore")
def test_to_shapiq_and_back(world) -> None:
    pytest.importorskip("shapiq")
    explanation = explain(world[0], world[1], node=1, method=GraphSVX(order=2))
    values = explanation.to_shapiq()
    pairs = list(combinations(range(values.n_players), 2))
    listed = {each.positions: each.value for each in explanation.together()}
    assert all(values[pair] == pytest.approx(listed.get(pair, 0.0)) for pair in pairs)
    again = explain(world[0], world[1], node=1).from_shapiq(values)
    assert again.together(3) == explanation.together(3)
    assert graphsvx.Explanation.from_dict(again.to_dict()).together(3) == again.together(3)


@pytest.mark.filterwarnings("ignore")
def test_shapiq_plays_the_same_game(world) -> None:
    shapiq = pytest.importorskip("shapiq")
    explanation = explain(world[0], world[1], node=1, method=GraphSVX(order=2, index=SII()))
    game = explanation.to_shapiq_game()
    values = shapiq.ExactComputer(game, game.n_players)("SII", 2)
    first = explanation.feature_credit.players
    for pair in explanation.together():
        if min(pair.positions) >= first:
            i, j = (position - first for position in pair.positions)
            assert pair.value == pytest.approx(values[(i, j)], abs=1e-9)
