"""What is learnt of a covariance: against finite differences and on known games."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.estimators import lengthscales
from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.kernels import Kernel, Mixture

RNG = np.random.default_rng(7)
MIXTURE = Mixture(per_size=0.4, theta=2.0, white=0.1)


def drawn(count: int, players: int) -> Coalitions:
    return Coalitions.of(np.where(RNG.random((count, players)) < 0.5, 1.0, -1.0))


def loss(logs: np.ndarray, coalitions: Coalitions, y: np.ndarray) -> float:
    """The negative log marginal likelihood with its scale profiled out, by its definition."""
    gram = Kernel(coalitions, np.exp(logs)).gram(MIXTURE)
    energy = (y * np.linalg.solve(gram, y)).sum(0)
    _, log_det = np.linalg.slogdet(gram)
    return float(0.5 * len(y) * np.log(energy).mean() + 0.5 * log_det)


@pytest.mark.parametrize("outputs", [1, 2, 12])
def test_the_slope_is_that_of_the_likelihood(outputs: int) -> None:
    coalitions, y = drawn(30, 12), RNG.normal(size=(30, outputs))
    logs = 0.5 * RNG.normal(size=12)
    slope, sides = lengthscales._derivatives(Kernel(coalitions, np.exp(logs)), MIXTURE, y)
    step = 1e-4 * np.eye(12)
    wanted = [(loss(logs + d, coalitions, y) - loss(logs - d, coalitions, y)) / 2e-4 for d in step]
    np.testing.assert_allclose(slope, wanted, rtol=1e-3, atol=1e-3)
    assert sides.shape == (30 * min(outputs, lengthscales._OUTPUTS), 12)


@pytest.mark.parametrize("players", [5, 9, 14])
def test_what_is_learnt_makes_the_pairs_more_likely(players: int) -> None:
    coalitions = drawn(60, players)
    weights = np.exp(2 * RNG.normal(size=(players, 1)))
    odd = np.tanh(coalitions.signs @ weights / np.linalg.norm(weights))
    before = lengthscales.all_mixtures(Kernel(coalitions, np.ones(players)), odd)
    after = lengthscales.fit_lengthscales(coalitions, odd)
    assert max(after.likelihoods.values()) > max(before.likelihoods.values()) + 1


def test_players_without_credit_matter_less() -> None:
    coalitions = drawn(60, 4)
    odd = coalitions.signs @ np.array([[1.0], [-2.0], [0.0], [0.5]]) + 0.1 * RNG.normal(
        size=(60, 1)
    )
    assert lengthscales.fit_lengthscales(coalitions, odd).relevance.argsort().tolist() == [
        2,
        3,
        0,
        1,
    ]


def test_the_mixture_that_pairs_were_drawn_from_is_likely() -> None:
    """White values are found to be white, linear ones linear, interactions to be there."""
    coalitions = drawn(80, 10)
    kernel = Kernel(coalitions, np.ones(10))
    for mixture, holds in (
        (Mixture(0, 0, 1e-4), lambda m: m.white < 0.1 and m.theta <= 1),
        (Mixture(0, 0, 30), lambda m: m.white == 0.3),
        (Mixture(0, 9, 1e-4), lambda m: m.theta >= 3),
    ):
        y = np.linalg.cholesky(kernel.gram(mixture)) @ RNG.normal(size=(80, 6))
        assert holds(lengthscales.all_mixtures(kernel, y).best(1, 1)[0])


def test_lengthscales_of_constant_values_are_finite() -> None:
    coalitions = drawn(20, 5)
    relevance = lengthscales.fit_lengthscales(coalitions, np.zeros((20, 1))).relevance
    assert np.isfinite(relevance).all()


def test_relevance_for_which_nothing_was_learnt_goes_with_powers_of_what_is_expected() -> None:
    expected = np.array([4.0, 1.0, 1.0])
    even, steep, alike = lengthscales.prior_relevances(3, expected, (0.5, 2.0))
    np.testing.assert_allclose(even[0] / even[1], 2)
    np.testing.assert_allclose(steep[0] / steep[1], 16)
    np.testing.assert_allclose([even.mean(), steep.mean()], 1)
    assert alike.tolist() == [1, 1, 1]
    assert len(lengthscales.prior_relevances(3, None, (0.5, 2.0))) == 1
