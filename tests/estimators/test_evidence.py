"""Independent evidence is combined by precisions; that of the same values is averaged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphsvx.core.arrays import Floats
from graphsvx.estimators.evidence import Evidence, by_precision, combine, of_derivatives
from graphsvx.games.derivatives import ExpectedCredit

PLAYERS, FAR = 9, 6


def joined(errors: float, seed: int = 0) -> tuple[Evidence, ExpectedCredit, Evidence]:
    """Of a fit with independent errors; the last players have credit by derivatives."""
    rng = np.random.default_rng(seed)
    far = np.arange(PLAYERS) >= PLAYERS - FAR
    expected = ExpectedCredit(
        np.where(far[:, None], rng.normal(size=(PLAYERS, 2)), 0.0),
        np.where(far[:, None], errors * rng.uniform(0.5, 1, (PLAYERS, 2)), 0.0),
        far, 16, slice(0, 2), 0,
    )  # fmt: skip
    values, variances = rng.normal(size=(2, PLAYERS)), rng.uniform(0.5, 1, (2, PLAYERS))

    def of_sums(sums: Floats) -> Floats:
        products: Floats = variances @ sums**2
        return products

    whole = Evidence(expected.values.T + values, variances, of_sums)
    return combine(whole, of_derivatives(expected)), expected, whole


@pytest.mark.parametrize("errors", [0.0, 1e-3, 1.0, 1e3])
def test_the_sum_and_the_other_players_stay_as_values_say(errors: float) -> None:
    both, _, whole = joined(errors)
    assert both.credit[:, :-FAR] == pytest.approx(whole.credit[:, :-FAR])
    assert both.credit.sum(1) == pytest.approx(whole.credit.sum(1))
    assert both.variance_of_sums(np.ones((PLAYERS, 1)))[:, 0] == pytest.approx(
        whole.variance.sum(1)
    )
    assert (both.variance <= whole.variance + 1e-12).all()


def test_precise_derivatives_change_only_with_the_sum_and_poor_ones_not_at_all() -> None:
    precise, expected, whole = joined(1e-2)
    change = (precise.credit - expected.values.T)[:, -FAR:]
    share = precise.variance[:, -FAR:] / precise.variance[:, -FAR:].sum(1, keepdims=True)
    missing = (whole.credit - expected.values.T)[:, -FAR:].sum(1, keepdims=True)
    assert change == pytest.approx(share * missing, abs=1e-3)
    poor, _, whole = joined(1e6)
    assert poor.credit == pytest.approx(whole.credit, abs=1e-9)
    assert poor.variance == pytest.approx(whole.variance)


def test_differences_between_players_have_the_joined_variance() -> None:
    both, _, _ = joined(0.3)
    difference = np.zeros((PLAYERS, 1))
    difference[-1], difference[-2] = 1.0, -both.variance[0, -1] / both.variance[0, -2]
    sums = both.variance_of_sums(difference)[0, 0]
    assert sums == pytest.approx(float(both.variance[0] @ difference[:, 0] ** 2))


def test_errors_that_are_not_known_leave_credit_to_the_values() -> None:
    _, expected, whole = joined(0.3)
    unknown = replace(whole, variance=np.full_like(whole.variance, np.nan))
    both = combine(unknown, of_derivatives(expected))
    assert both.credit == pytest.approx(whole.credit)
    assert np.isnan(both.variance).all()


def test_an_average_goes_by_precision_and_says_how_far_its_parts_are_apart() -> None:
    credit = np.zeros((1, 9))
    sure = Evidence(credit, np.full_like(credit, 0.01), lambda sums: 0.01 * (sums**2).sum(0)[None])
    unsure = Evidence(
        credit + 1, np.full_like(credit, 0.09), lambda sums: 0.09 * (sums**2).sum(0)[None]
    )
    both = by_precision([sure, unsure])
    assert both.credit == pytest.approx(0.1)
    apart = 0.9 * 0.1**2 + 0.1 * 0.9**2
    assert both.variance == pytest.approx(0.9 * 0.01 + 0.1 * 0.09 + apart)
    single = both.variance_of_sums(np.eye(9))
    assert single == pytest.approx(both.variance)
    unknown = replace(unsure, variance=np.full_like(credit, np.nan))
    assert by_precision([sure, unknown]) is sure
