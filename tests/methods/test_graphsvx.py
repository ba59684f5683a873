"""The parts of GraphSVX: players, budget, mask, generator and estimator."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from graphsvx import GraphSVX, explain
from graphsvx.errors import InputError
from graphsvx.estimators import WLS, Lasso
from graphsvx.generators import Indirect, Isolate
from graphsvx.masks import Paired
from graphsvx.methods import (
    Budget,
    Edges,
    Features,
    Nodes,
    NodesAndFeatures,
    PlayerKind,
    SubgraphFeatures,
)
from graphsvx.methods.graphsvx import SETTINGS, FlatSettings
from graphsvx.methods.player_kinds import KINDS, DefaultPlayers
from graphsvx.runs import identity
from tests.worlds import random_graph, random_model

SAME = [
    (GraphSVX(), GraphSVX(players=DefaultPlayers(), budget=Budget())),
    (GraphSVX(samples=40, tolerance=0.1), GraphSVX(budget=Budget(40, tolerance=0.1))),
    (GraphSVX(hops=2, features="all"), GraphSVX(players=DefaultPlayers(2, "all"))),
    (GraphSVX(players="nodes", hops=1), GraphSVX(players=Nodes(hops=1))),
    (GraphSVX(players="features", reference=2), GraphSVX(players=Features(reference=2))),
    (
        GraphSVX(players="edges", directions="apart", groups={"a": [1]}),
        GraphSVX(players=Edges(directions="apart", groups={"a": [1]})),
    ),
    (GraphSVX(balance=0.5), GraphSVX(players=NodesAndFeatures(balance=0.5))),
    (
        GraphSVX(players="subgraph_features", monte_carlo=9),
        GraphSVX(players=SubgraphFeatures(monte_carlo=9)),
    ),
    (GraphSVX(indirect="target"), GraphSVX(generator=Indirect("target"))),
    (GraphSVX(erase=True, players="nodes"), GraphSVX(generator=Isolate(True), players=Nodes())),
]


@pytest.mark.parametrize(("flat", "parts"), SAME, ids=lambda method: str(method.settings()))
def test_flat_keywords_are_fields_of_the_parts(flat: GraphSVX, parts: GraphSVX) -> None:
    assert flat == parts
    assert hash(flat) == hash(parts)
    assert GraphSVX(**flat.settings()) == flat
    assert replace(flat, mask=Paired()).with_settings(mask=flat.mask) == flat


def test_a_keyword_changes_a_field_of_a_given_part() -> None:
    method = GraphSVX(players=Edges(hops=2), budget=Budget(tolerance=0.1), estimator=WLS())
    assert method.with_settings(samples=50) == GraphSVX(
        players=Edges(hops=2), budget=Budget(50, tolerance=0.1), estimator=WLS()
    )
    assert method.with_settings(directions="apart").players == Edges(2, directions="apart")
    with pytest.raises(InputError, match="no feature is switched off"):
        method.with_settings(reference=1)


def test_every_field_of_players_and_budget_is_a_keyword() -> None:
    names = {field.name for part in (Budget, *KINDS.values()) for field in fields(part)}
    assert names | {"indirect", "erase"} == set(FlatSettings.__annotations__)
    assert set(SETTINGS) == {field.name for field in fields(GraphSVX)} | set(
        FlatSettings.__annotations__
    )


def test_settings_are_what_differs_from_the_defaults() -> None:
    assert GraphSVX().settings() == {}
    method = GraphSVX(samples=40, players="edges", hops=2, estimator=Lasso(3))
    assert method.settings() == {
        "samples": 40, "players": "edges", "hops": 2, "estimator": Lasso(3),
    }  # fmt: skip


class FirstNodes(Nodes):
    """A kind of players of one's own: the three nodes nearest to the explained one."""

    def setup(self, query, evaluator, seed):
        setup = super().setup(query, evaluator, seed)
        players = replace(
            setup.players,
            node_members=setup.players.node_members[:3],
            node_owner=setup.players.node_owner[:3],
        )
        return replace(setup, players=players)


def test_a_kind_of_players_of_ones_own() -> None:
    assert issubclass(FirstNodes, PlayerKind)
    method = GraphSVX(players=FirstNodes(hops=2))
    explanation = explain(random_model("gcn", 1), random_graph(1), node=1, method=method)
    assert explanation.node_credit.players == 3
    assert explanation.base + explanation.total == pytest.approx(explanation.prediction, abs=1e-9)
    assert GraphSVX(**method.settings()) == method


def test_erase_changes_nothing_for_a_node() -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    plain, erased = (
        explain(model, data, node=1, method=GraphSVX(players="nodes", erase=erase))
        for erase in (False, True)
    )
    assert torch.allclose(plain.node_values, erased.node_values, atol=1e-9)


def test_runs_record_each_field_of_each_part() -> None:
    settings = identity.settings_as_text({"method": GraphSVX(samples=40, players="edges", hops=2)})
    assert settings["method.players"] == "Edges"
    assert settings["method.players.hops"] == "2"
    assert settings["method.budget.samples"] == "40"
