"""What is chosen of a covariance, by marginal likelihood, on known games."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.estimators import process
from graphsvx.estimators.covariance import Coalitions, Kernel, Mixture

RNG = np.random.default_rng(7)


def drawn(count: int, players: int) -> Coalitions:
    return Coalitions.of(np.where(RNG.random((count, players)) < 0.5, 1.0, -1.0))


def likeliest(coalitions: Coalitions, odd: np.ndarray, relevances: list) -> tuple[int, Mixture]:
    likelihoods = process._likelihoods(coalitions, odd, relevances)
    return max(likelihoods, key=lambda candidate: likelihoods[candidate])


def test_the_likelihood_is_that_of_a_normal_distribution_with_the_best_scale() -> None:
    coalitions, y = drawn(30, 12), RNG.normal(size=(30, 3))
    kernel, mixture = Kernel(coalitions, np.ones(12)), Mixture(per_size=0.4, theta=2.0, white=0.1)
    gram = kernel.gram(mixture)
    energy = (y * np.linalg.solve(gram, y)).sum(0)
    expected = -0.5 * 30 * np.log(energy).mean() - 0.5 * np.linalg.slogdet(gram)[1]
    assert process._log_likelihood(kernel, mixture, y) == pytest.approx(expected)


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
        assert holds(likeliest(coalitions, y, [np.ones(10)])[1])


@pytest.mark.parametrize("wanted", [0, 1])
def test_the_relevance_that_pairs_were_drawn_with_is_likely(wanted: int) -> None:
    coalitions = drawn(80, 10)
    relevances = [np.ones(10), np.repeat([1.9, 0.1], 5)]
    gram = Kernel(coalitions, relevances[wanted]).gram(Mixture(0, 3, 1e-3))
    y = np.linalg.cholesky(gram) @ RNG.normal(size=(80, 6))
    assert likeliest(coalitions, y, relevances)[0] == wanted


def test_constant_values_have_no_credit() -> None:
    coalitions = Coalitions.of(np.vstack([np.ones(5), drawn(20, 5).signs]))
    _, evidence = process.average_processes(coalitions, np.zeros((21, 1)), None)
    assert (evidence.credit == 0).all()
    assert np.isfinite(evidence.variance).all()


def test_relevances_go_with_powers_of_what_is_expected() -> None:
    expected = np.array([4.0, 1.0, 1.0])
    alike, *powers = process.relevances(3, expected)
    assert alike.tolist() == [1, 1, 1]
    for power, relevance in zip(process._POWERS, powers, strict=True):
        np.testing.assert_allclose(relevance[0] / relevance[1], 4**power)
        assert relevance.mean() == pytest.approx(1)
    assert len(process.relevances(3, None)) == 1
