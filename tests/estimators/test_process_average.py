"""Which covariance a Gaussian process has: judged by pairs that it was not learnt on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsvx.core.arrays import Floats, Ids
from graphsvx.estimators.coalitions import Coalitions
from graphsvx.estimators.kernels import Kernel, Mixture
from graphsvx.estimators.lengthscales import fit_lengthscales
from graphsvx.estimators.process_average import _best_predicted, _splits
from graphsvx.estimators.walks import Walks

PLAYERS, DIRECT, PAIRS = 24, 5, 160


def missed(
    coalitions: Coalitions, relevance: Floats, mixture: Mixture, odd: Floats, fitted: Ids,
    held_out: Ids,
) -> float:  # fmt: skip
    """Squared errors at held-out pairs, relative to their squares, by the joint covariance."""
    order = np.concatenate([fitted, held_out])
    gram = Kernel(coalitions.take(order), relevance).gram(mixture)
    seen = len(fitted)
    errors = odd[held_out] - gram[seen:, :seen] @ np.linalg.solve(gram[:seen, :seen], odd[fitted])
    return float(((errors**2).sum(0) / (odd[held_out] ** 2).sum(0)).mean())


@pytest.mark.parametrize("strength", [0.0, 0.3, 3.0])
def test_walks_are_taken_where_they_predict_held_out_pairs_clearly_better(strength: float) -> None:
    rng = np.random.default_rng(7)
    chosen = []
    for _ in range(4):
        signs = np.sign(rng.normal(size=(PAIRS, PLAYERS)))
        signs[0] = 1
        direct = np.arange(PLAYERS) < DIRECT
        passed = np.where(direct, 0, rng.random((DIRECT, PLAYERS)) < 0.2) / 4.0
        walks = Walks.of(np.flatnonzero(direct), passed)
        coalitions = Coalitions.of(signs, direct, walks)
        assert coalitions.passed is not None
        assert coalitions.walk_scale is not None
        regressors = coalitions.passed * coalitions.walk_scale
        odd = strength * regressors @ rng.normal(size=(regressors.shape[1], 2))
        odd += signs @ rng.normal(size=(PLAYERS, 2)) / PLAYERS**0.5
        odd += np.tanh(signs @ rng.normal(size=(PLAYERS, 2)))
        (fitted, held_out), *others = _splits(PAIRS, PLAYERS)
        assert not others
        part = coalitions.take(fitted)
        learnt = fit_lengthscales(part, odd[fitted], None)
        mixture = _best_predicted(coalitions, odd, fitted, held_out, learnt)
        (likeliest,) = learnt.best(1, 0.1)
        candidates = [
            replace(likeliest, walk=3.0), replace(likeliest, walk=3.0, per_size=3.0),
            Mixture(per_size=3.0, theta=0.0, white=0.3, walk=3.0),
        ]  # fmt: skip
        misses = {
            candidate: missed(coalitions, learnt.relevance, candidate, odd, fitted, held_out)
            for candidate in (*candidates, likeliest)
        }
        best = min(candidates, key=misses.__getitem__)
        assert mixture == (best if misses[best] < 0.9 * misses[likeliest] else likeliest)
        chosen.append(mixture.walk > 0)
    assert np.mean(chosen) == pytest.approx(float(strength > 1), abs=0.5)
