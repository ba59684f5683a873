"""PGM-Explainer: tests, blanket and network on data with a known structure."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

import graphsvx
from graphsvx.errors import BudgetError, InputError
from graphsvx.estimators.bayes import BayesNetwork, chi_square
from graphsvx.methods.perturbing import PGMExplainer, coin_flips
from tests.methods.conftest import CENTRE, CLIQUE, NODES


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    perturbed = rng.random((800, 5)) < 0.5
    noise = rng.random(800) < 0.05
    return perturbed, (perturbed[:, 1] | perturbed[:, 3]) ^ noise


def test_dependence_is_the_chi_square_test(table):
    from pgmpy.ci_tests import ChiSquare  # noqa: PLC0415  (heavy)

    from graphsvx.estimators.bayes import CHANGE, _table  # noqa: PLC0415  (heavy)

    perturbed, changed = table
    phi, p_values = chi_square(perturbed, changed)
    test = ChiSquare(data=_table(perturbed, changed, list(range(5))))
    for i in range(5):
        counts = [
            [int(((perturbed[:, i] == a) & (changed == b)).sum()) for b in (0, 1)] for a in (0, 1)
        ]
        assert 800 * phi[i] ** 2 == pytest.approx(chi2_contingency(counts, correction=False)[0])
        assert p_values[i] == pytest.approx(chi2_contingency(counts)[1])
        test(X=f"node {i}", Y=CHANGE, Z=[], significance_level=0.05)
        assert p_values[i] == pytest.approx(test.p_value_, rel=1e-6, abs=1e-300)


def test_constant_columns_depend_on_nothing():
    perturbed = np.ones((50, 2), dtype=bool)
    perturbed[:25, 1] = False
    phi, p_values = chi_square(perturbed, ~perturbed[:, 1])
    assert phi.tolist() == [0.0, -1.0]
    assert p_values[0] == 1.0


def test_the_network_has_the_causes_of_the_change(table):
    network = BayesNetwork()(*table)
    assert set(network.blanket) == {1, 3}
    assert {("node 1", "change"), ("node 3", "change")} <= set(network.edges)
    assert network.bic > 100
    assert all(with_it > alone + 0.2 for alone, with_it in network.chances)
    assert (network.strength[[1, 3]] > 0.4).all()


def test_a_node_dependent_only_through_another_is_not_in_the_markov_blanket():
    """Node 0 only goes along with node 1, which alone makes the change."""
    rng = np.random.default_rng(1)
    cause = rng.random(1000) < 0.5
    follower = cause ^ (rng.random(1000) < 0.2)
    changed = cause ^ (rng.random(1000) < 0.05)
    network = BayesNetwork()(np.stack([follower, cause], 1), changed)
    assert network.strength[0] > 0.3
    assert network.blanket == [1]


def test_no_change_means_no_network():
    network = BayesNetwork()(coin_flips(100, 4, 0.5, 0), np.zeros(100, dtype=bool))
    assert network.blanket == []
    assert network.edges == []
    assert not network.strength.any()


def test_the_nodes_that_matter_are_found_with_their_network(known):
    model, data = known
    e = graphsvx.explain(model, data, node=CENTRE, method=PGMExplainer())
    assert {r.id for r in e.top_nodes(2)} == NODES
    network = e.network
    assert set(network.blanket) >= NODES
    assert {(f"node {i}", "change") for i in NODES} <= set(network.edges)
    again = graphsvx.explain(model, data, node=CENTRE, method=PGMExplainer())
    assert again.to_dict() == e.to_dict()


def test_the_clique_of_a_graph_is_found(known_graph):
    model, data = known_graph
    e = graphsvx.explain(model, data, graph=True, method=PGMExplainer(), targets="all")
    assert {r.id for r in e.top_nodes(4)} == CLIQUE
    # What lowers one of two classes raises the other.
    assert all(v <= 0 for i, v in e.for_target(0).nodes.items() if i in CLIQUE)


def test_zero_replaces_where_the_mean_would_change_nothing(known):
    model, data = known
    data = data.clone()
    data.x = data.x[1:2].repeat(40, 1)  # every node carries the signal
    same = graphsvx.explain(model, data, node=CENTRE, method=PGMExplainer(), target=1)
    assert not same.node_values.any()
    e = graphsvx.explain(model, data, node=CENTRE, method=PGMExplainer(by="zero"), target=1)
    positive_nodes = {i for i, v in e.nodes.items() if v > 0.1}
    assert positive_nodes == set(range(1, 8))


def test_settings_are_checked():
    with pytest.raises(BudgetError, match="samples"):
        PGMExplainer(samples=5)
    for wrong in ({"rate": 0.0}, {"significance": 1.0}, {"blanket": 0}, {"by": "max"}):
        with pytest.raises(InputError, match="must be"):
            PGMExplainer(**wrong)
