"""Shapley values as means of differences, and fits that they correct."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphsvx.core.arrays import Bools, Floats
from graphsvx.estimators.differences import (
    Differences,
    Values,
    corrected,
    expected_errors,
    measure,
    players_to_measure,
)
from graphsvx.estimators.evidence import Evidence, combine, of_derivatives
from graphsvx.estimators.least_squares import Fit
from graphsvx.games.derivatives import ExpectedCredit
from graphsvx.masks.base import all_rows
from graphsvx.testing.oracle import shapley_of_table

PLAYERS = 9


def random_game(seed: int, outputs: int = 2) -> tuple[Values, Floats]:
    """A probability that few players decide, and its Shapley values."""
    rng = np.random.default_rng(seed)
    rows = all_rows(PLAYERS)
    scores = 1.5 * rows @ rng.normal(1, 1.5, (PLAYERS, outputs)) - 2
    values = 1 / (1 + np.exp(-scores)) + 0.1 * rng.normal(size=scores.shape)
    powers = 1 << np.arange(PLAYERS)
    return lambda members: values[members @ powers], shapley_of_table(values)


def measured(
    values: Values, players: list[int], calls: int, seed: int, outputs: int = 2
) -> Differences:
    none = Differences.none(np.array(players), PLAYERS, outputs, calls)
    return measure(values, none, calls, seed)


def test_differences_of_an_additive_game_are_its_credit() -> None:
    credit = np.random.default_rng(0).normal(size=(PLAYERS, 2))
    found = measured(lambda rows: rows @ credit, [1, 4, 5, 8], 300, 0)
    values, variances = found.evidence().credit.T, found.evidence().variance.T
    assert values == pytest.approx(credit[[1, 4, 5, 8]])
    assert variances == pytest.approx(0, abs=1e-25)
    assert found.variance_of_sums(np.ones((4, 1))) == pytest.approx(0, abs=1e-25)


def test_differences_that_do_not_vary_at_all_are_measured_on() -> None:
    alike = measured(lambda rows: rows @ np.ones((PLAYERS, 2)), [1, 4], 300, 0)
    assert 250 < alike.calls <= 300
    assert alike.evidence().credit.T.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("players", [[0, 3, 7], list(range(PLAYERS))])
def test_values_come_near_brute_force_and_errors_hold(players: list[int]) -> None:
    scores, of_sums, near = [], [], []
    for seed in range(40):
        values, truth = random_game(seed)
        found = measured(values, players, 1500, seed)
        estimate, variances = found.evidence().credit.T, found.evidence().variance.T
        scores.append((estimate - truth[players]) / np.sqrt(variances))
        total = (estimate - truth[players]).sum(0)
        of_sums.append(total / np.sqrt(found.variance_of_sums(np.ones((len(players), 1)))[:, 0]))
        near.append(((estimate - truth[players]) ** 2).sum() / (truth[players] ** 2).sum())
    assert np.median(near) < 0.01
    assert 0.9 <= (np.abs(scores) < 1.96).mean() <= 0.995
    assert (np.abs(of_sums) < 1.96).mean() >= 0.88


def test_calls_keep_to_the_limit_and_the_same_seed_gives_the_same_bits() -> None:
    values, _ = random_game(3)
    seen: list[int] = []

    def counted(rows: Bools) -> Floats:
        seen.append(len(rows))
        return values(rows)

    found = measured(counted, [0, 1, 2, 3], 700, 5)
    assert found.calls == sum(seen) <= 700
    assert found.calls > 600
    again = measured(values, [0, 1, 2, 3], 700, 5)
    assert np.array_equal(found.values, again.values, equal_nan=True)
    more = measure(values, found, 1400, 5)
    assert np.array_equal(more.values[: len(found.values)], found.values, equal_nan=True)
    assert more.calls > 1300


@pytest.mark.parametrize("players", [2, 3, 7, PLAYERS])
def test_every_player_is_measured_in_every_stratum(players: int) -> None:
    values, _ = random_game(0)
    found = measured(values, list(range(players)), 60 * players, 1)
    _, _, numbers = found.moments()
    assert numbers.min() >= 2
    assert found.weights.sum() == pytest.approx(1)


def test_calls_go_where_differences_vary() -> None:
    """Here the first active player decides all, so that nothing varies at higher levels."""
    noise = np.random.default_rng(0).normal(size=1 << PLAYERS)
    powers = 1 << np.arange(PLAYERS)

    def values(rows: Bools) -> Floats:
        alone = rows[:, :6].sum(1) == 1
        return np.where(alone, 1 + noise[rows @ powers], rows[:, :6].any(1))[:, None].astype(float)

    found = measured(values, list(range(6)), 3000, 0, outputs=1)
    draws = np.bincount(found.stratum, minlength=len(found.starts) - 1)
    assert draws[0] > 2 * draws[-1]
    assert found.variance_after(4 * found.calls) < 0.5


def poor_fit(truth: Floats, off: float, error: float, seed: int = 0) -> Fit:
    """Credit that is off by `off` and says `error`; it adds up."""
    wrong = np.random.default_rng(seed).normal(size=truth.shape) * off
    values = torch.from_numpy((truth + wrong - wrong.mean(0)).T.copy())
    none = torch.zeros(truth.shape[1], dtype=torch.float64)
    return Fit(
        values, torch.full_like(values, error), none, none,
        variance_of_sums=lambda sums: np.full((truth.shape[1], 1), error**2)
        * ((sums - sums.mean(0)) ** 2).sum(0),
    )  # fmt: skip


@pytest.mark.parametrize("stated", [0.2, 1e-3])
def test_a_fit_is_corrected_whatever_it_says_of_its_errors(stated: float) -> None:
    values, truth = random_game(1)
    fit = poor_fit(truth, 0.2, stated)
    players = [0, 1, 2, 3, 4, 5]
    found = measured(values, players, 4000, 0)
    joined = corrected(fit, found)
    assert joined.values.sum(1).numpy() == pytest.approx(fit.values.sum(1).numpy())
    before = (fit.values.numpy() - truth.T)[:, players]
    after = (joined.values.numpy() - truth.T)[:, players]
    assert (after**2).sum() < 0.05 * (before**2).sum()
    assert (joined.errors[:, players] < 0.2).all()
    assert "differences of 6 players" in joined.model
    everyone = joined.variance_of_sums(np.ones((PLAYERS, 1)))
    assert everyone == pytest.approx(0, abs=1e-20)  # the sum is known
    single = joined.variance_of_sums(np.eye(PLAYERS))
    assert (single <= joined.errors.numpy() ** 2 * 1.5 + 1e-12)[:, players].all()


def test_slopes_tell_players_apart_and_the_fit_tells_their_sum() -> None:
    _, truth = random_game(5)
    fit = poor_fit(truth, 0.1, 0.3)
    far = np.arange(PLAYERS) >= 4
    slopes = np.where(far[:, None], truth + 0.05, 0.0)  # all too large
    errors = np.where(far[:, None], 0.01, np.zeros_like(truth))
    derivatives = ExpectedCredit(slopes, errors, far, 16, slice(0, 2), 0)
    joined = combine(Evidence.of(fit), of_derivatives(derivatives))
    assert joined.credit[:, ~far] == pytest.approx(fit.values[:, ~far].numpy())
    assert joined.credit.sum(1) == pytest.approx(fit.values.sum(1).numpy())
    apart = (joined.credit - truth.T)[:, far]
    assert apart.std(1) == pytest.approx(0, abs=0.01)
    of_far = far.astype(float)[:, None]
    assert joined.variance_of_sums(of_far) == pytest.approx(fit.variance_of_sums(of_far))


def test_a_precise_fit_stays_as_it_is() -> None:
    values, truth = random_game(2)
    fit = poor_fit(truth, 1e-6, 1e-6)
    joined = corrected(fit, measured(values, [0, 4, 6], 300, 0))
    assert joined.values.numpy() == pytest.approx(fit.values.numpy(), abs=1e-4)


def test_players_that_are_unsure_are_measured_first() -> None:
    values = torch.tensor([[1.0, 1.0, 0.1, 0.01, 0.01]], dtype=torch.float64)
    errors = torch.tensor([[0.01, 0.5, 0.01, 0.001, 0.001]], dtype=torch.float64)
    none = torch.zeros(1, dtype=torch.float64)
    fit = Fit(values, errors, none, none)
    assert players_to_measure(fit, 100).tolist() == [0, 1]
    assert len(players_to_measure(fit, 10**9)) == 5


def test_expected_errors_come_true() -> None:
    values, truth = random_game(4, outputs=1)
    fit = poor_fit(truth, 0.1, 0.1)
    first = measured(values, list(range(PLAYERS)), 400, 0, outputs=1)
    now, later = expected_errors(fit, first, 6000)
    assert later < now
    joined = corrected(fit, measure(values, first, 6000, 0))
    size = float(fit.values.square().sum())
    assert float(joined.errors.square().sum()) / size == pytest.approx(later, rel=0.6)
