"""Fidelity and its kin, on a model whose scores are known in closed form."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch_geometric.explain import Explainer
from torch_geometric.explain import metric as pyg
from torch_geometric.explain.algorithm import DummyExplainer

import graphsvx
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.methods import SHAP
from graphsvx.methods.learned import GNNExplainer
from graphsvx.methods.perturbing import Random
from graphsvx.metrics import (
    characterization,
    consistency,
    contrastivity,
    efficiency_residual,
    fidelity,
    similarity,
    sparsity,
    stability,
    top_keys,
    unfaithfulness,
)
from tests.methods.conftest import known as known_fixture
from tests.methods.conftest import known_graph as graph_fixture

known, known_graph = known_fixture, graph_fixture


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def test_fidelity_is_the_score_without_and_with_only_the_explanation(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0)
    # All on: 2 + 2 + 2 - 3 = 3. Without nodes 1 and 2: 2 - 3 = -1. They alone: 3 again.
    plus, minus = fidelity(e, model, data, top=2)
    assert plus == pytest.approx(sigmoid(3) - sigmoid(-1), abs=1e-6)
    assert minus == pytest.approx(0, abs=1e-6)
    # The single best node is worth 2: without it 1, alone 1.
    assert fidelity(e, model, data, top=1).minus == pytest.approx(sigmoid(3) - sigmoid(1), abs=1e-6)
    assert fidelity(e, model, data, top=2, compare="label") == (1.0, 0.0)


def test_fidelity_of_edges_and_features(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0, method=GNNExplainer())
    assert fidelity(e, model, data, top=2).plus == pytest.approx(sigmoid(3) - sigmoid(-1), abs=1e-6)
    e = graphsvx.explain(model, data, node=0, method=SHAP())
    assert e.node_credit.players == 0
    # The node's own feature goes to its mean, 1/40.
    expected = sigmoid(3) - sigmoid(1 + 2 / 40)
    assert fidelity(e, model, data, top=1).plus == pytest.approx(expected, abs=1e-6)


def test_fidelity_of_a_graph_is_high_for_its_decisive_nodes(known_graph):
    model, data = known_graph
    e = graphsvx.explain(model, data, graph=True)
    score = fidelity(e, model, data, top=4)
    assert score.plus > 0.8
    assert abs(score.minus) < 0.01
    assert fidelity(e, model, data, top=4, compare="label") == (1.0, 0.0)


def test_zero_credit_removes_no_players(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0)
    silent = replace(e, node_credit=e.node_credit.map(torch.zeros_like))
    plus, minus = fidelity(silent, model, data, top=5)
    assert plus == 0
    assert minus == pytest.approx(sigmoid(3) - sigmoid(-1), abs=1e-6)
    assert consistency(silent, e, top=2) == 0.0


def test_the_order_of_players_is_no_explanation(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0)
    # All alike: players come nearest first, so the first two would be neighbours of the node.
    even = replace(e, node_credit=e.node_credit.map(torch.ones_like))
    chosen = top_keys(even, 2, "value", "nodes")
    assert chosen != e.node_ids[:2].tolist()
    assert chosen == top_keys(even, 2, "value", "nodes")


def test_random_explanations_are_less_faithful(known):
    model, data = known
    good = graphsvx.explain(model, data, node=0)
    bad = [graphsvx.explain(model, data, node=0, method=Random(), seed=s) for s in range(10)]
    best = fidelity(good, model, data, top=2)
    assert sum(fidelity(e, model, data, top=2).plus for e in bad) / 10 < 0.5 * best.plus
    assert sum(fidelity(e, model, data, top=2).minus for e in bad) / 10 > best.minus + 0.3


def pyg_explanation(model, data, mask):
    explainer = Explainer(
        model,
        DummyExplainer(),
        explanation_type="model",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
        edge_mask_type="object",
    )
    pyg_result = explainer(data.x, data.edge_index, index=0)
    pyg_result.edge_mask = mask
    return explainer, pyg_result


@pytest.mark.parametrize("top", [1, 2, 5])
def test_label_fidelity_matches_pyg_for_hard_masks(known, top):
    model, data = known
    e = graphsvx.explain(model, data, node=0, method=GNNExplainer())
    best = sorted(e.edges, key=lambda pair: -e.edges[pair])[:top]
    mask = torch.tensor([tuple(pair) in best for pair in data.edge_index.t().tolist()]).float()
    explainer, pyg_result = pyg_explanation(model, data, mask)
    plus, minus = pyg.fidelity(explainer, pyg_result)
    ours = fidelity(e, model, data, top=top, compare="label", level="edges")
    assert ours.plus == plus
    # Edges outside the field are masked in PyG's graph and kept in ours: neither matters.
    assert ours.minus == minus


def test_unfaithfulness_is_kl_of_whole_from_part_and_pygs_is_swapped(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0, method=GNNExplainer())
    best = max(e.edges, key=lambda pair: e.edges[pair])
    mask = torch.tensor([tuple(pair) == best for pair in data.edge_index.t().tolist()]).float()
    y, part = torch.tensor([1 - sigmoid(3), sigmoid(3)]), torch.tensor([1 - sigmoid(1), sigmoid(1)])
    documented = 1 - math.exp(-float(functional.kl_div(part.log(), y, reduction="sum")))
    swapped = 1 - math.exp(-float(functional.kl_div(y.log(), part, reduction="sum")))
    ours = unfaithfulness(e, model, data, top=1, level="edges")
    assert ours == pytest.approx(documented, abs=1e-6)
    explainer, pyg_result = pyg_explanation(model, data, mask)
    assert pyg.unfaithfulness(explainer, pyg_result) == pytest.approx(swapped, abs=1e-5)
    assert abs(documented - swapped) > 0.01
    assert unfaithfulness(e, model, data, top=2, level="edges") == pytest.approx(0, abs=1e-6)


def test_characterization_is_the_harmonic_mean():
    assert characterization(0.8, 0.4) == pytest.approx(2 / (1 / 0.8 + 1 / 0.6))
    assert characterization(0.0, 0.0) == 0.0
    assert characterization(1.0, 1.0) == 0.0
    assert characterization(1.2, -0.1) == 1.0
    assert characterization(0.5, 0.0, (0.25, 0.75)) == pytest.approx(1 / (0.25 / 0.5 + 0.75))
    with pytest.raises(InputError, match="add up to 1"):
        characterization(0.5, 0.0, (0, 0))


def test_sparsity_counts_what_is_left_out(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0)
    players = e.node_credit.players
    assert sparsity(e) == pytest.approx(1 - 2 / players)
    assert sparsity(e, top=5) == pytest.approx(1 - 5 / players)
    everybody = replace(e, node_credit=e.node_credit.map(lambda credit: credit + 1))
    assert sparsity(everybody, top=0.999) == pytest.approx(0)
    assert sparsity(e, level="features") == pytest.approx(1 - 1 / e.feature_credit.players)
    nothing = replace(e, node_credit=e.node_credit.map(torch.zeros_like))
    assert sparsity(nothing) == 1.0


def test_the_efficiency_residual_is_zero_for_shapley_values_only(known):
    model, data = known
    assert efficiency_residual(graphsvx.explain(model, data, node=0)) < 1e-9
    assert efficiency_residual(graphsvx.explain(model, data, node=0, method=Random())) > 0.1


def test_similarity_and_consistency_are_1_for_equal_and_0_for_disjoint_explanations(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0)
    assert similarity(e, e) == pytest.approx(1)
    flipped = replace(e, node_credit=e.node_credit.map(torch.neg))
    assert similarity(e, flipped) == pytest.approx(-1)
    assert consistency(e, flipped, top=2) == 1.0
    assert consistency(e, flipped, top=2, by="value") == 0.0
    other = graphsvx.explain(model, data, node=0, method=Random())
    assert consistency(e, other, top=2) == consistency(other, e, top=2)
    # Top two of each, one in common: 1 / 3.
    shifted = replace(e, node_credit=replace(e.node_credit, ids=e.node_ids + 1))
    assert consistency(e, shifted, top=2) == pytest.approx(1 / 3)


def test_stability_is_high_for_shapley_values_and_low_for_noise(known):
    model, data = known
    assert stability(model, data, graphsvx.GraphSVX(), node=0) > 0.99

    class Moody:
        """Another answer for other data, however little they differ."""

        def __call__(self, query, seed):
            return Random()(query, int(query.graph.x.double().sum() * 1e9) % 2**31)

    assert stability(model, data, Moody(), node=0) < 0.95
    with pytest.raises(InputError, match="repeats"):
        stability(model, data, Random(), node=0, repeats=0)


def test_contrastivity_compares_the_supporting_players_of_two_classes(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0, targets="all")
    # What speaks for one of two classes speaks against the other.
    assert contrastivity(e) == 1.0
    assert contrastivity(e, e) == 0.0
    with pytest.raises(InputError, match="two classes"):
        contrastivity(graphsvx.explain(model, data, node=0))


def test_bad_questions_are_refused(known):
    model, data = known
    e = graphsvx.explain(model, data, node=0)
    with pytest.raises(InputError, match="top must be"):
        fidelity(e, model, data, top=0)
    with pytest.raises(InputError, match="compare must be"):
        fidelity(e, model, data, compare="logit")
    with pytest.raises(InputError, match="no edges"):
        fidelity(graphsvx.explain(model, data, node=0, method=SHAP()), model, data, level="edges")
    value = graphsvx.explain(model, data, node=0, scale="value", target=1)
    with pytest.raises(UnsupportedError, match="no label"):
        fidelity(value, model, data, compare="label")
    with pytest.raises(UnsupportedError, match="regression"):
        unfaithfulness(value, model, data)
    assert fidelity(value, model, data, top=2).plus == pytest.approx(4, abs=1e-5)
