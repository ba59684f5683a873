"""Models are left as found, errors come before work, extras are asked for by name."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest
import torch
from torch_geometric.nn import MessagePassing

import graphsvx
from graphsvx.errors import InputError, MissingExtraError, UnsupportedError
from graphsvx.methods import LIME, SHAP, Greedy, IntegratedGradients, Random, Saliency
from graphsvx.methods.learned import GNNExplainer
from graphsvx.testing.laws import _snapshot
from graphsvx.utils import imports

ALL = [
    GNNExplainer(epochs=5),
    Saliency(),
    IntegratedGradients(steps=5),
    Greedy(),
    SHAP(),
    LIME(),
    Random(),
]


@pytest.mark.parametrize("method", ALL, ids=lambda m: type(m).__name__)
def test_model_data_and_random_state_are_left_as_found(known, method):
    model, data = known
    model.train()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before, x = _snapshot(model), data.x.clone()
    state, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    graphsvx.explain(model, data, node=0, method=method)
    assert _snapshot(model) == before
    assert torch.equal(data.x, x)
    assert torch.equal(state, torch.get_rng_state())
    assert (numbers == np.random.get_state()[1]).all()


@pytest.mark.parametrize("method", [Greedy(players="features"), Random(players="features")])
def test_features_of_a_whole_graph_play_as_in_graphsvx(known_graph, method):
    model, data = known_graph
    shapley = graphsvx.explain(
        model, data, graph=True, method=graphsvx.GraphSVX(players="features")
    )
    explanation = graphsvx.explain(model, data, graph=True, method=method)
    assert shapley.feature_credit.players > 0
    assert torch.equal(explanation.feature_ids, shapley.feature_ids)
    assert explanation.node_credit.players == 0


def test_the_model_is_left_as_found_when_learning_fails(known):
    model, data = known
    broken = copy.deepcopy(model)
    calls = 0
    forward = broken.forward

    def failing(x, edge_index):
        nonlocal calls
        calls += 1
        if x.requires_grad:
            raise RuntimeError("no")
        return forward(x, edge_index)

    broken.forward = failing
    before = _snapshot(broken)
    with pytest.raises(graphsvx.errors.GraphSVXError, match="no"):
        graphsvx.explain(broken, data, node=0, method=GNNExplainer())
    assert calls > 1
    assert _snapshot(broken) == before


@pytest.mark.parametrize("method", [SHAP(), LIME()], ids=lambda m: type(m).__name__)
def test_what_a_method_cannot_do_is_said_before_the_model_is_called(known, known_graph, method):
    model, data = known_graph
    with pytest.raises(UnsupportedError, match="explains a node, got a question about a graph"):
        graphsvx.explain(Untouchable(model), data, graph=True, method=method)
    model, data = known
    with pytest.raises(UnsupportedError, match="a group of nodes"):
        graphsvx.explain(Untouchable(model), data, nodes=[0, 1], method=method)


class Untouchable(torch.nn.Module):
    """A model that must not be called."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index, batch=None):
        raise AssertionError("work has started")


def test_edge_masks_need_layers_that_pass_messages(known):
    model, data = known
    called = []

    def plain(x, edge_index):
        called.append(1)
        return model(x, edge_index)

    with pytest.raises(UnsupportedError, match="MessagePassing"):
        graphsvx.explain(plain, data, node=0, method=GNNExplainer(), output="class")
    assert not called
    e = graphsvx.explain(plain, data, node=0, method=GNNExplainer(edges=False))
    assert {r.id for r in e.top_features(2)} == {0, 1}


@pytest.mark.parametrize(
    ("method", "missing"),
    [(Saliency(), "captum"), (IntegratedGradients(), "captum"), (SHAP(), "shap"), (LIME(), "lime")],
)
def test_a_missing_package_is_named_with_its_extra(known, monkeypatch, method, missing):
    model, data = known
    real = importlib.import_module

    def gone(name, *rest):
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(name=missing)
        return real(name, *rest)

    monkeypatch.setattr(imports.importlib, "import_module", gone)
    with pytest.raises(MissingExtraError, match=rf"{missing}.*graphsvx\[baselines\]"):
        graphsvx.explain(Untouchable(model), data, node=0, method=method)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GNNExplainer(epochs=0),
        lambda: GNNExplainer(lr=0.0),
        lambda: GNNExplainer(edges=False, features=False),
        lambda: IntegratedGradients(steps=0),
        lambda: IntegratedGradients(baseline="median"),
        lambda: Greedy(rounds=0),
        lambda: Greedy(players="edges"),
        lambda: SHAP(samples=1),
        lambda: LIME(samples=0),
        lambda: Random(players="hyperedges"),
    ],
)
def test_settings_are_checked_when_they_are_made(make):
    with pytest.raises(InputError, match=r"must be"):
        make()


def test_an_isolated_node_is_explained_too(known):
    model, data = known
    data = copy.copy(data)
    data.x = torch.cat([data.x, data.x[:1]])
    for method in ALL:
        e = graphsvx.explain(model, data, node=40, method=method)
        assert e.node_credit.players == 0
        assert e.edge_credit.players == 0
        assert bool(e.feature_values.isfinite().all())


def test_cost_follows_the_field_not_the_graph(known):
    model, data = known
    sizes = []
    # The layers tell: a model whose own code reads the number of nodes is run on all of them.
    for layer in model.modules():
        if isinstance(layer, MessagePassing):
            layer.register_forward_pre_hook(lambda _, given: sizes.append(given[0].shape[0]))
    # A long tail that node 0 does not see: 4,000 more nodes.
    tail = torch.arange(39, 4039)
    data = copy.copy(data)
    data.x = torch.cat([data.x, torch.rand(4000, 6) * 0.3])
    data.edge_index = torch.cat([data.edge_index, torch.stack([tail, tail + 1])], 1)
    graphsvx.explain(model, data, node=0)  # checks once that the model can be run on a field
    for method in (GNNExplainer(epochs=3), Saliency(), IntegratedGradients(steps=3)):
        sizes.clear()
        graphsvx.explain(model, data, node=0, method=method)
        assert max(sizes) < 700, method
