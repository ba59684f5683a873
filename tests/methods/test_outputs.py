"""Whatever the model returns and takes, the same nodes are found."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import graphsvx
from graphsvx.methods import (
    LIME,
    SHAP,
    GNNExplainer,
    Greedy,
    IntegratedGradients,
    PGExplainer,
    PGMExplainer,
    Saliency,
)
from graphsvx_lab.metrics import accuracy
from tests.methods.conftest import CENTRE, NODES, OWN, Known, hand_set

pytestmark = pytest.mark.learned

METHODS = [GNNExplainer(), Saliency(), IntegratedGradients(), Greedy(), PGMExplainer()]


class Returning(nn.Module):
    """The hand-set model with another kind of output."""

    def __init__(self, kind):
        super().__init__()
        self.inner = Known()
        self.kind = kind

    def forward(self, x, edge_index):
        out = self.inner(x, edge_index)
        if self.kind == "one logit":
            return out[:, 1:]
        if self.kind == "one probability":
            return out[:, 1].sigmoid()
        if self.kind == "probabilities":
            return out.softmax(-1)
        if self.kind == "log-probabilities":
            return out.log_softmax(-1)
        return out


KINDS = {
    "one logit": {"output": "class"},
    "one probability": {"output": "probs"},
    "probabilities": {"output": "probs"},
    "log-probabilities": {"output": "log_probs"},
    "a value": {"scale": "value", "target": 1},
    "a logit": {"scale": "logit"},
    "log-odds": {"scale": "log_odds"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_what_matters_is_found_for_every_output(kind, method):
    _, data = hand_set()
    e = graphsvx.explain(Returning(kind), data, node=CENTRE, method=method, **KINDS[kind])
    assert e.target == 1
    if isinstance(method, Greedy):
        assert {i for i, v in e.nodes.items() if v > 0} <= NODES
    else:
        assert accuracy(e, NODES, by="absolute") == 1.0
    assert bool(torch.isfinite(e.edge_values).all())


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_found_for_every_output(kind):
    _, data = hand_set()
    for method in (SHAP(), LIME(samples=300)):
        e = graphsvx.explain(Returning(kind), data, node=CENTRE, method=method, **KINDS[kind])
        assert e.top_features(1, "absolute")[0].id == OWN


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_is_trained_for_every_output(kind):
    _, data = hand_set()
    query_kind = dict(KINDS[kind])
    method = PGExplainer(epochs=2).fit(Returning(kind), data, nodes=[0, 5], **query_kind)
    e = graphsvx.explain(Returning(kind), data, node=CENTRE, method=method, **query_kind)
    assert bool(((e.edge_values >= 0) & (e.edge_values <= 1)).all())


class Weighted(nn.Module):
    """A neighbour counts as much as its edge weighs."""

    def __init__(self):
        super().__init__()
        self.inner = Known()

    def forward(self, x, edge_index, edge_weight):
        hidden = self.inner.first(x, edge_index, edge_weight).relu()
        return self.inner.second(hidden, edge_index, edge_weight)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_edge_weights_go_along(method):
    _, data = hand_set()
    data.edge_weight = torch.ones(data.num_edges)
    # The edge from node 2 weighs nothing: only node 1 is left.
    gone = (data.edge_index[0] == 2) & (data.edge_index[1] == CENTRE)
    data.edge_weight[gone] = 0.0
    e = graphsvx.explain(Weighted(), data, node=CENTRE, method=method, target=1)
    assert accuracy(e, {1}, by="absolute") == 1.0
