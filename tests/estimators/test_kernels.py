"""The parts of the covariance and their Shapley values against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.estimators import kernels
from graphsvx.estimators.kernels import Coalitions, Kernel, Mixture
from graphsvx.masks.base import all_rows
from tests.masks.test_paired import shapley

MIXTURES = {
    "linear": Mixture(per_size=0, theta=0, white=0, size=0),
    "per size": Mixture(per_size=2, theta=0, white=0, size=0),
    "size": Mixture(per_size=0, theta=0, white=0, size=3),
    "product": Mixture(per_size=0, theta=4, white=0, size=0),
    "white": Mixture(per_size=0, theta=0, white=5, size=0),
    "all": Mixture(per_size=0.7, theta=3, white=0.4, size=1.5),
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
    gram[np.diag_indices(len(gram))] /= 1 + kernels._JITTER
    return gram[np.ix_(place, place)] * np.outer(rows[:, 0], rows[:, 0])


def relevance(players: int) -> np.ndarray:
    w = np.random.default_rng(players).exponential(size=players)
    return w / w.mean()


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("players", [3, 4, 7])
def test_shapley_values_of_covariance_functions_are_those_of_the_definition(
    players: int, name: str
) -> None:
    kernel = Kernel(Coalitions.of(pairs(players)), relevance(players))
    whole = every(kernel, MIXTURES[name])
    # A function with the odd part k(., T) is k(., T) itself: it is odd.
    inner = np.stack([shapley(column) for column in whole.T])
    columns = [int(np.flatnonzero((all_rows(players) == (row > 0)).all(1))[0])
               for row in kernel.coalitions.signs]  # fmt: skip
    np.testing.assert_allclose(kernel.shapley(MIXTURES[name]), inner[columns], atol=1e-10)
    prior = np.stack([shapley(column) for column in inner.T]).diagonal()
    np.testing.assert_allclose(kernel.prior(MIXTURES[name]), prior, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MIXTURES)
def test_covariances_with_other_pairs_are_those_of_the_gram_matrix(name: str) -> None:
    coalitions = Coalitions.of(pairs(6))
    first, other = np.arange(20), np.arange(20, 32)
    w = relevance(6)
    gram = Kernel(coalitions, w).gram(MIXTURES[name])
    across = Kernel(coalitions.take(first), w).across(coalitions.take(other), MIXTURES[name])
    np.testing.assert_allclose(across, gram[np.ix_(other, first)], atol=1e-12)


def test_the_product_is_that_of_distances() -> None:
    players, theta, w = 5, 2.5, relevance(5)
    signs = 2.0 * all_rows(players) - 1
    apart = ((signs[:, None] != signs[None]) * w).sum(-1) * theta / players
    wanted = (np.exp(-apart) - np.exp(apart - theta)) / (1 - np.exp(-theta))
    kernel = Kernel(Coalitions.of(pairs(players)), w)
    mixture = Mixture(per_size=0, theta=theta, white=0, size=0)
    linear = (signs * w) @ signs.T / players
    np.testing.assert_allclose(every(kernel, mixture), wanted + linear, atol=1e-12)
