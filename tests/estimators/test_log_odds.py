"""What log-odds say of other probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import expit

from graphsvx.estimators import GaussianProcess
from graphsvx.estimators.gaussian_process import expected_square
from graphsvx.games.base import FunctionGame
from graphsvx.masks import Paired

RNG = np.random.default_rng(5)


def test_many_normal_log_odds_predict_the_variance_of_others() -> None:
    """Half the difference of two independent values has half their variance as mean square."""
    log_odds = RNG.normal(1, 2, size=(4000, 1))
    others = expit(RNG.normal(1, 2, size=100_000))
    assert expected_square(expit(log_odds))[0] == pytest.approx(others.var() / 2, rel=0.05)


def test_probabilities_near_one_half_vary_as_those_seen() -> None:
    seen = 0.5 + 1e-3 * RNG.normal(size=(4000, 1))
    assert expected_square(seen)[0] == pytest.approx(seen.var() / 2, rel=0.05)


def test_saturated_probabilities_say_that_others_may_differ() -> None:
    """0.9999 and more, but by log-odds of 9 to 35: one of another sign is not far away."""
    seen = expit(np.array([[9.0], [20.0], [35.0]]))
    assert expected_square(seen)[0] > 1e3 * seen.var()


def test_few_log_odds_do_not_tell_their_tail() -> None:
    """Most are about 35, some 20, one 9: of the others, one in a hundred may be below 0."""
    log_odds = np.concatenate([np.linspace(33, 36, 14), [20.0, 19.5, 19.0, 17.0, 9.0]])
    assert 0.005 < expected_square(expit(log_odds)[:, None])[0] < 0.05


def test_equal_probabilities_predict_nothing() -> None:
    assert expected_square(np.array([[1.0, 0.3], [1.0, 0.3]])).tolist() == [0, 0]


class Saturated(FunctionGame):
    """A probability that is close to 1 for most coalitions."""

    def __init__(self, seed: int) -> None:
        slopes = torch.from_numpy(np.random.default_rng(seed).normal(0, 8, size=12))
        super().__init__(lambda rows: torch.sigmoid(torch.from_numpy(1.0 * rows) @ slopes + 20), 12)


class SaturatedProbability(Saturated):
    """The same, and it is known that it is a probability."""

    @property
    def probabilities(self) -> bool:
        """True."""
        return True


def missed(game: FunctionGame, budget: int, seed: int) -> float:
    """Share of the players whose credit is further away than 1.96 standard errors."""
    ends = game.values(game.states(np.repeat([[False], [True]], 12, axis=1)))

    def fit(calls: int) -> tuple[np.ndarray, np.ndarray]:
        masks = Paired()(game, calls, torch.Generator().manual_seed(seed))
        result = GaussianProcess()(masks, game.values(masks.states), ends[0], ends[1])
        return result.values.numpy(), result.errors.numpy()

    (values, errors), (truth, _) = fit(budget), fit(1 << 12)
    return float((np.abs(values - truth) > 1.96 * errors).mean())


def test_bars_of_saturated_probabilities_hold_more_often() -> None:
    seeds = range(40)
    known = np.mean([missed(SaturatedProbability(seed), 8, seed) for seed in seeds])
    unknown = np.mean([missed(Saturated(seed), 8, seed) for seed in seeds])
    assert known < 0.8 * unknown
