"""Every method on models where the answer is known by construction; Random must not find it."""

from __future__ import annotations

import pytest
import torch

import graphsvx
from graphsvx import explain_many
from graphsvx.estimators.direct import as_nodes
from graphsvx.methods import LIME, SHAP, Greedy, IntegratedGradients, PGMExplainer, Random, Saliency
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.learned import GNNExplainer, PGExplainer
from graphsvx_lab.metrics import accuracy, auroc
from tests.methods.conftest import CARRIED, CENTRE, CLIQUE, EDGES, NODES, OWN

pytestmark = pytest.mark.learned

NODE_METHODS = [GraphSVX(), Greedy(), Saliency(), IntegratedGradients(), GNNExplainer()]
FEATURE_METHODS = [
    GraphSVX(), Greedy(players="features"), Saliency(), IntegratedGradients(), SHAP(), LIME(),
]  # fmt: skip
EDGE_METHODS = [GNNExplainer()]


def name(method):
    return type(method).__name__


@pytest.mark.parametrize("method", NODE_METHODS, ids=name)
def test_the_nodes_that_matter_are_found(known, method):
    model, data = known
    e = graphsvx.explain(model, data, node=CENTRE, method=method)
    assert accuracy(e, NODES, by="absolute") == 1.0
    assert auroc(e, NODES, by="absolute") == 1.0


@pytest.mark.parametrize("method", NODE_METHODS, ids=name)
def test_nodes_that_cannot_matter_get_next_to_nothing(known, method):
    model, data = known
    e = as_nodes(graphsvx.explain(model, data, node=CENTRE, method=method))
    least = min(abs(e.nodes[i]) for i in NODES)
    assert all(abs(v) < 0.05 * least for i, v in e.nodes.items() if i not in NODES)


@pytest.mark.parametrize("method", FEATURE_METHODS, ids=name)
def test_the_feature_of_the_node_that_matters_is_found(known, method):
    model, data = known
    e = graphsvx.explain(model, data, node=CENTRE, method=method)
    assert e.top_features(1, "absolute")[0].id == OWN


def test_gnnexplainer_finds_the_features_of_all_nodes_that_matter(known):
    model, data = known
    e = graphsvx.explain(model, data, node=CENTRE, method=GNNExplainer())
    assert {r.id for r in e.top_features(2)} == {OWN, CARRIED}
    assert all(v == 0 for i, v in e.features.items() if i not in {OWN, CARRIED})


@pytest.mark.parametrize("method", EDGE_METHODS, ids=name)
def test_the_edges_that_matter_are_found(known, method):
    model, data = known
    e = graphsvx.explain(model, data, node=CENTRE, method=method)
    assert accuracy(e, EDGES, level="edges") == 1.0
    assert all(v == 0 for pair, v in e.edges.items() if pair not in EDGES)


GRAPH_METHODS = [GraphSVX(), Saliency(), IntegratedGradients(), GNNExplainer()]


@pytest.mark.parametrize("method", GRAPH_METHODS, ids=name)
def test_the_clique_that_makes_the_graphs_class_is_found(known_graph, method):
    model, data = known_graph
    e = graphsvx.explain(model, data, graph=True, method=method)
    assert e.target == 1
    assert accuracy(e, CLIQUE, by="absolute") == 1.0


def test_greedy_removes_clique_nodes_until_the_class_changes(known_graph):
    model, data = known_graph
    e = graphsvx.explain(model, data, graph=True, method=Greedy())
    gone = {r.id for r in e.top_nodes() if r.value > 0}
    assert gone <= CLIQUE
    assert 1 <= len(gone) < 4
    assert set(e.removed[0]) == {f"node {i}" for i in gone}
    assert e.base < 0.5 < e.prediction


def test_random_does_not_find_what_matters(known):
    model, data = known
    explanations = [
        graphsvx.explain(model, data, node=CENTRE, method=Random(), seed=seed) for seed in range(40)
    ]
    assert accuracy(explanations, NODES) < 0.4
    assert 0.35 < auroc(explanations, NODES) < 0.65


def test_random_draws_anew_for_every_question(known):
    model, data = known
    method = Random(features="all")
    explanation, other = (
        graphsvx.explain(model, data, node=node, method=method) for node in (0, 5)
    )
    assert set(explanation.features) == set(other.features)
    assert explanation.features != other.features


def test_a_group_is_explained_together(known):
    model, data = known
    for method in (GNNExplainer(), Saliency(), IntegratedGradients()):
        e = graphsvx.explain(model, data, nodes=[0, 5], target=1, method=method)
        # Node 12 carries the signal to node 5, nodes 1 and 2 to node 0.
        assert e.kind == "nodes"
        assert {r.id for r in as_nodes(e).top_nodes(3, "absolute")} == {1, 2, 12}, method
    e = graphsvx.explain(model, data, nodes=[0, 5], target=1, method=Greedy())
    assert len([i for i, v in e.nodes.items() if v > 0 and i in {1, 2, 12}]) > 0
    assert all(v == 0 for i, v in e.nodes.items() if i not in {1, 2, 12})


@pytest.mark.parametrize("method", [*NODE_METHODS, SHAP(), LIME(), Random()], ids=name)
def test_every_output_can_be_explained_and_saved(known, method, tmp_path):
    model, data = known
    e = graphsvx.explain(model, data, node=CENTRE, method=method, targets="all")
    explanation = graphsvx.explain(model, data, node=CENTRE, method=method, target=e.target)
    if not isinstance(method, Random):
        torch.testing.assert_close(e.feature_values, explanation.feature_values)
        torch.testing.assert_close(e.node_values, explanation.node_values)
        torch.testing.assert_close(e.edge_values, explanation.edge_values)
    e.save(tmp_path / "e.json")
    again = graphsvx.Explanation.load(tmp_path / "e.json")
    assert again.to_dict() == e.to_dict()
    assert e.certificate.residual == pytest.approx(e.prediction - e.base - e.total, abs=1e-12)


def test_many_questions_at_once_give_what_single_ones_give(known):
    model, data = known
    trained = PGExplainer(epochs=1).fit(model, data, nodes=[0])
    for method in (GNNExplainer(epochs=5), trained, PGMExplainer(samples=50), Saliency()):
        many = list(explain_many(model, data, [0, 5, 9], method=method, progress=False))
        for node, e in zip((0, 5, 9), many, strict=True):
            again = graphsvx.explain(model, data, node=node, method=method, seed=e.certificate.seed)
            torch.testing.assert_close(e.edge_values, again.edge_values)
            torch.testing.assert_close(e.node_values, again.node_values)


def test_workers_change_nothing(known):
    model, data = known
    method = PGExplainer(epochs=1).fit(model, data, nodes=[0])
    one, two = (
        {
            e.centres: e.to_dict()
            for e in explain_many(
                model, data, [0, 5], method=method, workers=workers, progress=False
            )
        }
        for workers in (1, 2)
    )
    assert one == two
