"""Where a package is wrapped, its own answer comes out."""

from __future__ import annotations

import captum.attr
import lime.lime_tabular
import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import GNNExplainer as PyGExplainer
from torch_geometric.nn import GCNConv

import graphsvx
from graphsvx.methods import LIME, IntegratedGradients, Saliency
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.learned import GNNExplainer
from graphsvx.methods.surrogates import SHAP, numpy_seeded
from graphsvx.utils.imports import require_extra
from tests.methods.conftest import both_ways


class GCN(nn.Module):
    def __init__(self, features=5, classes=3):
        super().__init__()
        self.first = GCNConv(features, 8)
        self.second = GCNConv(8, classes)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.fixture
def small():
    """A graph that every node sees all of: what PyG sees is what our stage is."""
    torch.manual_seed(3)
    pairs = [(0, i) for i in range(1, 7)] + [(1, 2), (3, 4), (5, 6)]
    return GCN().eval(), Data(x=torch.randn(7, 5), edge_index=both_ways(pairs))


@pytest.mark.parametrize("nodes", [[0], [0, 3]])
def test_gnnexplainer_matches_pyg(small, nodes):
    model, data = small
    target = graphsvx.explain(model, data, nodes=nodes, method=GNNExplainer(epochs=5)).target
    e = graphsvx.explain(
        model, data, nodes=nodes, method=GNNExplainer(epochs=30), target=target, seed=7
    )
    explainer = Explainer(
        model,
        PyGExplainer(epochs=30, lr=0.01),
        explanation_type="phenomenon",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
        node_mask_type="common_attributes",
        edge_mask_type="object",
    )
    torch.manual_seed(7)
    direct = explainer(
        data.x, data.edge_index, target=torch.full((7,), target), index=torch.tensor(nodes)
    )
    torch.testing.assert_close(e.edge_values.float(), direct.edge_mask)
    torch.testing.assert_close(e.edge_ids, data.edge_index)
    torch.testing.assert_close(e.feature_values.float(), direct.node_mask[0])


def probability(model, data, node, target):
    def score(batch):
        rows = [model(x, data.edge_index)[node].double().softmax(-1)[target] for x in batch]
        return torch.stack(rows)

    return score


@pytest.mark.parametrize("node", [0, 4])
def test_gradients_match_captum(small, node):
    model, data = small
    mean = data.x.mean(0).expand_as(data.x)
    others = [i for i in range(7) if i != node]
    for method in (Saliency(), IntegratedGradients(steps=30)):
        e = graphsvx.explain(model, data, node=node, method=method)
        score = probability(model, data, node, e.target)
        if isinstance(method, Saliency):
            attribution = captum.attr.Saliency(score).attribute(data.x[None].requires_grad_())[0]
        else:
            attribution = captum.attr.IntegratedGradients(score).attribute(
                data.x[None], mean[None], n_steps=30
            )[0]
        torch.testing.assert_close(e.feature_values.float(), attribution[node].float())
        torch.testing.assert_close(e.node_values.float(), attribution.sum(1)[others].float())
        assert e.node_ids.tolist() == others


def test_integrated_gradients_are_complete_in_the_limit(small):
    model, data = small
    few, many = (
        graphsvx.explain(model, data, node=0, method=IntegratedGradients(steps=steps))
        for steps in (2, 200)
    )
    assert abs(many.certificate.residual) < min(1e-3, abs(few.certificate.residual))


def own_row(model, data, node, target):
    def score(rows):
        result = []
        for row in rows:
            x = data.x.clone()
            x[node] = torch.from_numpy(np.asarray(row)).float()
            with torch.no_grad():
                result.append(float(model(x, data.edge_index)[node].double().softmax(-1)[target]))
        return np.array(result)

    return score


def test_shap_matches_the_shap_package_and_is_exact_for_few_features(small):
    shap = require_extra("shap", quiet=(PendingDeprecationWarning, DeprecationWarning))

    model, data = small
    e = graphsvx.explain(model, data, node=2, method=SHAP(features="all"))
    score = own_row(model, data, 2, e.target)
    mean = data.x.double().mean(0).numpy()
    with numpy_seeded(0):
        direct = shap.KernelExplainer(score, mean[None]).shap_values(
            data.x[2:3].double().numpy(), l1_reg=0, silent=True
        )[0]
    np.testing.assert_allclose(e.feature_values.numpy(), direct, atol=1e-6)
    assert e.certificate.exact
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_shap_is_the_feature_game_of_graphsvx(small):
    model, data = small
    ours = graphsvx.explain(
        model, data, node=2, method=GraphSVX(players="features", features="all")
    )
    theirs = graphsvx.explain(model, data, node=2, method=SHAP(features="all"))
    torch.testing.assert_close(ours.feature_values, theirs.feature_values, atol=1e-6, rtol=1e-5)
    assert ours.base == pytest.approx(theirs.base, abs=1e-6)


def test_lime_matches_the_lime_package(small):
    model, data = small
    e = graphsvx.explain(model, data, node=2, method=LIME(samples=300, features="all"), seed=5)
    direct = lime.lime_tabular.LimeTabularExplainer(
        data.x.double().numpy(),
        mode="regression",
        discretize_continuous=False,
        feature_selection="none",
        random_state=5,
    ).explain_instance(
        data.x[2].double().numpy(),
        own_row(model, data, 2, e.target),
        num_features=5,
        num_samples=300,
    )
    expected = dict(direct.local_exp[1])
    assert e.features == pytest.approx(expected, abs=1e-6)
    assert e.base == pytest.approx(direct.intercept[1], abs=1e-6)
