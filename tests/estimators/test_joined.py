"""Expected credit and the fit to the rest of the game, each with the weight of its precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphsvx.core.arrays import Floats
from graphsvx.estimators.gaussian_process import Joined
from graphsvx.estimators.least_squares import Fit
from graphsvx.games.derivatives import ExpectedCredit

PLAYERS, FAR = 9, 6


def joined(errors: float, seed: int = 0) -> tuple[Joined, ExpectedCredit, Fit]:
    """Of a fit with independent errors; the last players have expected credit."""
    rng = np.random.default_rng(seed)
    far = np.arange(PLAYERS) >= PLAYERS - FAR
    expected = ExpectedCredit(
        np.where(far[:, None], rng.normal(size=(PLAYERS, 2)), 0.0),
        np.where(far[:, None], errors * rng.uniform(0.5, 1, (PLAYERS, 2)), 0.0),
        far, 16, slice(0, 2), 0,
    )  # fmt: skip
    values, variances = rng.normal(size=(2, PLAYERS)), rng.uniform(0.5, 1, (2, PLAYERS))
    none = torch.zeros(2)

    def of_sums(sums: Floats) -> Floats:
        products: Floats = variances @ sums**2
        return products

    rest = Fit(
        torch.from_numpy(values), torch.from_numpy(np.sqrt(variances)), none, none,
        variance_of_sums=of_sums,
    )  # fmt: skip
    return Joined.of(expected, rest), expected, rest


@pytest.mark.parametrize("errors", [0.0, 1e-3, 1.0, 1e3])
def test_the_sum_and_the_other_players_stay_as_the_fit_says(errors: float) -> None:
    both, expected, rest = joined(errors)
    by_values = expected.values.T + rest.values.numpy()
    assert both.credit[:, :-FAR] == pytest.approx(by_values[:, :-FAR])
    assert both.credit.sum(1) == pytest.approx(by_values.sum(1))
    assert both.variance_of_sums(np.ones((PLAYERS, 1)))[:, 0] == pytest.approx(
        (rest.errors.numpy() ** 2).sum(1)
    )
    assert (both.variance <= rest.errors.numpy() ** 2 + 1e-12).all()


def test_a_precise_expectation_changes_only_with_the_sum_and_a_poor_one_not_at_all() -> None:
    precise, expected, rest = joined(1e-2)
    change = (precise.credit - expected.values.T)[:, -FAR:]
    assert change == pytest.approx(
        precise.share[:, -FAR:] * rest.values.numpy()[:, -FAR:].sum(1, keepdims=True), abs=1e-3
    )
    poor, expected, rest = joined(1e6)
    assert poor.credit == pytest.approx(expected.values.T + rest.values.numpy(), abs=1e-9)
    assert poor.variance == pytest.approx(rest.errors.numpy() ** 2)


def test_differences_between_expected_players_have_the_joined_variance() -> None:
    both, _, _ = joined(0.3)
    difference = np.zeros((PLAYERS, 1))
    difference[-1], difference[-2] = 1.0, -both.share[0, -1] / both.share[0, -2]
    sums = both.variance_of_sums(difference)[0, 0]
    assert sums == pytest.approx(float(both.variance[0] @ difference[:, 0] ** 2))


def test_errors_that_are_not_known_leave_credit_to_the_values() -> None:
    _, expected, rest = joined(0.3)
    unknown = replace(rest, errors=torch.full_like(rest.errors, torch.nan))
    both = Joined.of(expected, unknown)
    assert both.credit == pytest.approx(expected.values.T + rest.values.numpy())
    assert np.isnan(both.variance).all()
