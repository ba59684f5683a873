"""Ridge regression with a penalty by generalised cross-validation, against hat matrices."""

from __future__ import annotations

import numpy as np
import pytest

from graphsvx.estimators.least_squares import _PENALTIES, ridge


@pytest.mark.parametrize("noise", [0.05, 1.0, 20.0])
def test_the_penalty_has_the_least_error_of_cross_validation(noise: float) -> None:
    rng = np.random.default_rng(0)
    pairs, players = 30, 40
    rows = rng.normal(size=(pairs, players))
    rows -= rows.mean(1, keepdims=True)
    target = rows @ rng.normal(size=(players, 2)) + noise * rng.normal(size=(pairs, 2))
    blocks = [slice(0, 15), slice(15, players)]
    credit, errors = ridge(lambda block: rows[:, block], blocks, target)
    gram = rows @ rows.T
    penalties = _PENALTIES * np.linalg.eigvalsh(gram)[-1]
    for output, y in enumerate(target.T):
        left = [penalty * np.linalg.inv(gram + penalty * np.eye(pairs)) for penalty in penalties]
        errors_of_grid = [((part @ y) ** 2).sum() / np.trace(part) ** 2 for part in left]
        penalty = penalties[int(np.argmin(errors_of_grid))]
        inverse = np.linalg.inv(gram + penalty * np.eye(pairs))
        np.testing.assert_allclose(credit[output], rows.T @ inverse @ y, rtol=1e-7, atol=1e-9)
        # Posterior of credit with the covariance scale * (I - 11' / M) and noise scale * penalty.
        scale = y @ inverse @ y / pairs
        posterior = np.eye(players) - 1 / players - rows.T @ inverse @ rows
        np.testing.assert_allclose(errors[output], np.sqrt(scale * posterior.diagonal()), rtol=1e-6)
