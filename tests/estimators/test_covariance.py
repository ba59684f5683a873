"""The parts of the covariance and their Shapley values against their definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsvx.estimators import covariance
from graphsvx.estimators.covariance import Coalitions, Kernel, Mixture
from graphsvx.masks.base import all_rows
from graphsvx.testing.oracle import shapley_of_table

MIXTURES = {
    "linear": Mixture(per_size=0, theta=0, white=0),
    "per size": Mixture(per_size=2, theta=0, white=0),
    "product": Mixture(per_size=0, theta=4, white=0),
    "white": Mixture(per_size=0, theta=0, white=5),
    "all": Mixture(per_size=0.7, theta=3, white=0.4),
}


def pairs(players: int) -> np.ndarray:
    """One coalition of every pair, the full one first."""
    rows = all_rows(players)
    return 2.0 * rows[rows[:, 0]][::-1] - 1


def every(kernel: Kernel, mixture: Mixture) -> np.ndarray:
    """Covariances of the odd part over all coalitions, from those of the pairs."""
    players = kernel.coalitions.players
    rows = 2.0 * all_rows(players) - 1
    half = kernel.coalitions.signs
    place = [int(np.flatnonzero((half == row * row[0]).all(1))[0]) for row in rows]
    gram = kernel.gram(mixture)
    gram[np.diag_indices(len(gram))] /= 1 + covariance._JITTER
    return gram[np.ix_(place, place)] * np.outer(rows[:, 0], rows[:, 0])


def relevance(players: int) -> np.ndarray:
    w = np.random.default_rng(players).exponential(size=players)
    return w / w.mean()


def direct(players: int) -> np.ndarray:
    return np.arange(players) % 3 != 1


@pytest.mark.parametrize("some_direct", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("players", [3, 4, 7])
def test_shapley_values_of_covariance_functions_are_those_of_the_definition(
    players: int, name: str, some_direct: bool
) -> None:
    coalitions = Coalitions.of(pairs(players), direct(players) if some_direct else None)
    kernel = Kernel(coalitions, relevance(players))
    whole = every(kernel, MIXTURES[name])
    # A function with the odd part k(., T) is k(., T) itself: it is odd.
    inner = shapley_of_table(whole).T
    columns = [int(np.flatnonzero((all_rows(players) == (row > 0)).all(1))[0])
               for row in kernel.coalitions.signs]  # fmt: skip
    np.testing.assert_allclose(kernel.shapley(MIXTURES[name]), inner[columns], atol=1e-10)
    variances = shapley_of_table(inner).T
    weights = np.random.default_rng(1).normal(size=(players, 4))
    sums = np.einsum("is,ij,js->s", weights, variances, weights)
    prior, of_sums = kernel.prior(MIXTURES[name]), kernel.prior_of_sums(MIXTURES[name], weights)
    if some_direct and MIXTURES[name].white:  # an upper bound
        assert (prior >= variances.diagonal() - 1e-12).all()
        assert (prior <= 2 * variances.diagonal()).all()
    else:
        np.testing.assert_allclose(prior, variances.diagonal(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(of_sums, sums, rtol=1e-9, atol=1e-12)
    for each, weight in zip(prior, np.eye(players), strict=True):
        alone = kernel.prior_of_sums(MIXTURES[name], weight[:, None])
        assert alone[0] == pytest.approx(each, abs=1e-12)


@pytest.mark.parametrize("name", MIXTURES)
def test_covariances_with_other_pairs_are_those_of_the_gram_matrix(name: str) -> None:
    coalitions = Coalitions.of(pairs(6), direct(6))
    first, other = np.arange(20), np.arange(20, 32)
    w = relevance(6)
    gram = Kernel(coalitions, w).gram(MIXTURES[name])
    known = coalitions.take(first)
    for others in (coalitions.take(other), known.others(coalitions.signs[other])):
        across = Kernel(known, w).expected(others, MIXTURES[name], np.eye(20))
        np.testing.assert_allclose(across, gram[np.ix_(other, first)], atol=1e-12)


def test_the_product_is_that_of_distances() -> None:
    players, theta, w = 5, 2.5, relevance(5)
    signs = 2.0 * all_rows(players) - 1
    apart = ((signs[:, None] != signs[None]) * w).sum(-1) * theta / players
    wanted = (np.exp(-apart) - np.exp(apart - theta)) / (1 - np.exp(-theta))
    kernel = Kernel(Coalitions.of(pairs(players)), w)
    mixture = Mixture(per_size=0, theta=theta, white=0)
    without = every(kernel, replace(mixture, theta=0.0))
    np.testing.assert_allclose(every(kernel, mixture), wanted + without, atol=1e-12)


def test_the_noise_of_pairs_falls_with_the_number_that_is_combined() -> None:
    """As 2 / (1 + k)^1.5, where k of the combined players are in, or out, on average."""
    signs = 2.0 * (np.arange(8) < np.arange(1, 8)[:, None]) - 1
    smaller = np.array([1, 2, 3, 4, 3, 2, 1])
    everyone = Coalitions.of(signs, np.ones(8, dtype=bool)).noise
    np.testing.assert_allclose(everyone, 2 / (1 + smaller) ** 1.5)
    half = Coalitions.of(signs[:3], np.arange(8) < 4).noise  # some, not all, of the four are in
    np.testing.assert_allclose(half, 2 / (1 + smaller[:3] / 2) ** 1.5)
    assert (Coalitions.of(signs).noise == 1).all()
