"""How much players matter in the kernel: learning against finite differences and known games."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.explain import lengths

RNG = np.random.default_rng(7)


def pairs(count: int, players: int, outputs: int = 1):
    signs = np.where(RNG.random((count, players)) < 0.5, 1.0, -1.0)
    return signs, RNG.normal(size=(count, outputs))


def loss(logs: np.ndarray, signs: np.ndarray, y: np.ndarray) -> float:
    """The negative log marginal likelihood with its scale profiled out, by its definition."""
    theta = np.exp(logs)
    apart = ((signs[:, None] != signs[None]) * theta).sum(-1)
    gram = np.exp(-apart) - np.exp(apart - theta.sum())
    gram[np.diag_indices(len(gram))] *= 1 + 1e-6
    energy = (y * np.linalg.solve(gram, y)).sum(0)
    _, log_det = np.linalg.slogdet(gram)
    count, outputs = y.shape
    spread = logs - logs.mean()
    fit = 0.5 * count * np.log(energy).sum() + 0.5 * outputs * log_det
    return fit + 0.5 * lengths._ALIKE * spread @ spread


@pytest.mark.parametrize("outputs", [1, 2, 12])
def test_the_slope_is_that_of_the_likelihood(outputs: int) -> None:
    signs, y = pairs(30, 12, outputs)
    logs = RNG.normal(size=12) - 1
    slope, curvature = lengths._likelihood(logs, signs, y)
    step = 1e-4 * np.eye(12)
    wanted = [(loss(logs + d, signs, y) - loss(logs - d, signs, y)) / 2e-4 for d in step]
    np.testing.assert_allclose(slope, wanted, rtol=1e-3, atol=1e-3)
    assert np.linalg.eigvalsh(curvature).min() > 0


def test_a_step_makes_the_pairs_more_likely() -> None:
    for players in (5, 9, 14):
        signs = np.where(RNG.random((60, players)) < 0.5, 1.0, -1.0)
        odd = np.tanh(signs @ RNG.normal(size=(players, 1)))
        theta = np.full(players, 2 / players)
        better = lengths.learnt(signs, odd, theta)
        assert loss(np.log(better), signs, odd) < loss(np.log(theta), signs, odd) - 1


def test_players_without_credit_matter_less() -> None:
    signs = np.where(RNG.random((60, 4)) < 0.5, 1.0, -1.0)
    phi = np.array([[1.0, -2.0, 0.0, 0.5]])
    odd = signs @ phi.T / 2 + 0.1 * RNG.normal(size=(60, 1))
    theta = lengths.guessed(phi, odd, odd - signs @ phi.T / 2)
    assert np.argsort(theta).tolist() == [2, 3, 0, 1]
    # The more is missed, the larger they all are.
    assert (lengths.guessed(phi, odd, odd) > theta).all()
    # Nothing missed, or nothing to explain: still positive.
    for nothing in (0 * odd, odd):
        assert (lengths.guessed(0 * phi, nothing, 0 * odd) > 0).all()


def test_pairs_without_a_value_teach_nothing() -> None:
    signs, odd = pairs(20, 5)
    theta = np.full(5, 0.3)
    np.testing.assert_array_equal(lengths.learnt(signs, 0 * odd, theta), theta)
