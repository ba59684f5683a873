"""HSIC Lasso against brute force, and GraphLIME on a model that uses one feature only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls
from torch_geometric.data import Data

import graphsvx
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.methods.surrogates import GraphLIME, hsic_lasso, kernel_products
from tests.methods.conftest import Known, both_ways


def design(features, scores):
    """The n^2 x F design, one kernel at a time, as it is written down."""
    n = len(scores)
    h = np.eye(n) - 1 / n

    def kernel(v):
        k = np.exp(-((v[:, None] - v[None]) ** 2) / (2 * v.std() ** 2))
        k = h @ k @ h
        return (k / np.linalg.norm(k)).ravel()

    return np.stack([kernel(column) for column in features.T], 1), kernel(scores)


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 6))
    return features, np.tanh(features[:, 2]) + 0.8 * features[:, 4] + 0.1 * rng.normal(size=40)


@pytest.fixture
def clear_problem():
    """As many samples as it takes to tell columns 2 and 4 from the others with any seed."""
    features = np.random.default_rng(0).normal(size=(150, 6))
    return features, np.tanh(features[:, 2]) + features[:, 4]


def test_kernels_are_centred_and_of_norm_one(problem):
    features, scores = problem
    a, y = design(features, scores)
    products = kernel_products(np.column_stack([features, scores, np.ones(40)]))
    np.testing.assert_allclose(products.diagonal(), [1, 1, 1, 1, 1, 1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(products[:6, :6], a.T @ a, atol=1e-12)
    np.testing.assert_allclose(products[:6, 6], a.T @ y, atol=1e-12)
    assert not products[7].any()


@pytest.mark.parametrize("rho", [0.01, 0.1, 0.3])
def test_coefficients_minimise_the_penalised_loss(problem, rho):
    features, scores = problem
    a, y = design(features, scores)
    coefficients = hsic_lasso(features, scores, rho)

    def loss(b):
        return 0.5 * ((y - a @ b) ** 2).sum() + rho * b.sum()

    def slope(b):
        return a.T @ (a @ b - y) + rho

    brute = minimize(
        loss, np.full(6, 0.1), jac=slope, bounds=[(0, None)] * 6,
        options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 10_000},
    )  # fmt: skip
    np.testing.assert_allclose(coefficients, brute.x, atol=1e-6)
    # The conditions of an optimum: no slope where beta is positive, none downwards where it is 0.
    assert np.abs(slope(coefficients)[coefficients > 0]).max(initial=0) < 1e-7
    assert slope(coefficients).min() > -1e-7


def test_without_a_penalty_it_is_non_negative_least_squares(problem):
    features, scores = problem
    a, y = design(features, scores)
    np.testing.assert_allclose(hsic_lasso(features, scores, 0.0), nnls(a, y)[0], atol=1e-5)


def test_only_features_that_predictions_follow_get_a_coefficient(clear_problem):
    features, scores = clear_problem
    coefficients = hsic_lasso(features, scores, 0.1)
    assert set(np.argsort(-coefficients)[:2]) == {2, 4}
    assert (coefficients >= 0).all()
    assert not hsic_lasso(features, np.ones(150), 0.1).any()


def test_the_feature_that_matters_is_found():
    torch.manual_seed(0)
    x = torch.rand(40, 6)
    x[:, 0] = 0.0  # nobody carries a signal: only a node's own feature 1 matters
    x[:, 1] = 3 * torch.rand(40)
    data = Data(
        x=x,
        edge_index=both_ways([(i, j) for i in range(40) for j in (2 * i, 2 * i + 1) if i < j < 40]),
    )
    e = graphsvx.explain(Known(), data, node=3, method=GraphLIME(hops=4))
    assert e.top_features(1)[0].id == 1
    assert e.features[1] > 3 * max(v for i, v in e.features.items() if i != 1)
    few = graphsvx.explain(Known(), data, node=3, method=GraphLIME(hops=4, most=12), seed=1)
    assert len(few.neighbours) == 12
    assert few.neighbours[0] == 3


def test_graphs_and_groups_are_refused(known, known_graph):
    model, data = known_graph
    with pytest.raises(UnsupportedError, match="GraphLIME explains a node"):
        graphsvx.explain(model, data, graph=True, method=GraphLIME())
    model, data = known
    with pytest.raises(UnsupportedError, match="group"):
        graphsvx.explain(model, data, nodes=[0, 1], method=GraphLIME())
    for wrong in ({"rho": -1.0}, {"hops": 0}, {"most": 1}):
        with pytest.raises(InputError, match="must be"):
            GraphLIME(**wrong)
