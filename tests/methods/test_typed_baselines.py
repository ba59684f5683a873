"""Baselines on typed graphs, against plain computations on the whole graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

import graphsvx
from graphsvx.errors import UnsupportedError
from graphsvx.methods import GNNExplainer, Greedy, IntegratedGradients, Random, Saliency
from graphsvx.testing.oracle import cut, probability_of
from tests import typed_worlds as worlds
from tests.typed_worlds import typed_graph

NODE = ("paper", 1)


@pytest.fixture(scope="module")
def data() -> HeteroData:
    return typed_graph(4, counts=(3, 3, 2))


@pytest.fixture(scope="module")
def model(data: HeteroData) -> nn.Module:
    return worlds.hetero_model("gat", data, 4)


def probability(model: nn.Module, x: dict[str, Tensor], data: HeteroData) -> Tensor:
    return model(x, data.edge_index_dict)[NODE[1]].softmax(-1)[0]


def attribution(explanation: graphsvx.Explanation) -> dict[str, dict[int, float]]:
    return {name: part.by_id() for name, part in explanation.nodes.items()}


def test_saliency_is_the_absolute_gradient(model, data) -> None:
    explanation = graphsvx.explain(model, data, node=NODE, target=0, method=Saliency())
    x = {name: value.clone().requires_grad_() for name, value in data.x_dict.items()}
    gradient = dict(
        zip(x, torch.autograd.grad(probability(model, x, data), list(x.values())), strict=True)
    )
    for name, part in attribution(explanation).items():
        for i, value in part.items():
            assert value == pytest.approx(float(gradient[name][i].abs().sum()), abs=1e-9)
    own = explanation.features["paper"]
    torch.testing.assert_close(own.values, gradient["paper"][1].abs()[own.ids])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_integrated_gradients_add_up_from_the_baseline(model, data) -> None:
    explanation = graphsvx.explain(
        model, data, node=NODE, target=0, method=IntegratedGradients(steps=40)
    )
    means = {name: x.mean(0).expand_as(x) for name, x in data.x_dict.items()}
    with torch.no_grad():
        start = float(probability(model, means, data))
    assert explanation.base == pytest.approx(start, abs=1e-9)
    assert explanation.base + explanation.total == pytest.approx(explanation.prediction, abs=1e-4)


def test_greedy_removes_the_node_that_lowers_the_score_most(model, data) -> None:
    explanation = graphsvx.explain(
        model, data, node=NODE, target=0, method=Greedy(players="nodes", rounds=1)
    )
    others = [(k, i) for k in data.node_types for i in range(data[k].num_nodes) if (k, i) != NODE]
    loss = {
        (kind, i): explanation.prediction
        - probability_of(model, NODE, target=0)(cut(data, [(kind, i)]))
        for kind, i in others
    }
    first = max(loss, key=lambda node: loss[node])
    assert explanation.nodes[first[0]][first[1]] == pytest.approx(loss[first], abs=1e-9)
    assert explanation.removed[0] == (f"{first[0]} {first[1]}",)


@pytest.mark.parametrize("players", ["both", "nodes", "features", "edges"])
def test_random_credit_has_the_players_of_graphsvx(model, data, players) -> None:
    explanation = graphsvx.explain(model, data, node=NODE, method=Random(players=players))
    own = graphsvx.GraphSVX(players=players, samples=40)
    expected = graphsvx.explain(model, data, node=NODE, method=own)
    for kind in ("node", "feature", "edge"):
        credits = getattr(explanation, f"{kind}_credit"), getattr(expected, f"{kind}_credit")
        assert credits[0].names == credits[1].names


def test_other_baselines_are_refused_with_those_that_apply(model, data) -> None:
    with pytest.raises(UnsupportedError, match="Saliency"):
        graphsvx.explain(model, data, node=NODE, method=GNNExplainer())


def test_baselines_explain_graphs_and_links(data) -> None:
    pooled = worlds.hetero_model("pooled", data, 4)
    for method in (Saliency(), IntegratedGradients(steps=4), Random(), Greedy(rounds=1)):
        assert graphsvx.explain(pooled, data, graph=True, method=method).nodes
    encoder = worlds.hetero_model("encoder", data, 4)
    link = {"edge": (("author", 0), ("paper", 1)), "scale": "value", "method": Saliency()}
    assert graphsvx.explain(encoder, data, **link).title.startswith("link author 0")
