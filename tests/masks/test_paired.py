"""The estimator: consistent, efficient, and honest about its errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from graphsvx.estimators import WLS, Estimator, GaussianProcess, gaussian_process
from graphsvx.games.base import FunctionGame
from graphsvx.masks import Paired, paired
from graphsvx.masks.base import all_rows
from graphsvx.masks.paired import _Strata, _strata_at, _within
from graphsvx.testing.oracle import shapley_of_table

Values = np.ndarray


def table(values: Values) -> FunctionGame:
    """A game given by its values of all coalitions, in the order of `all_rows`."""
    players = len(values).bit_length() - 1
    known = torch.from_numpy(values)
    return FunctionGame(
        lambda rows: known[torch.from_numpy(rows @ (1 << np.arange(players)))], players
    )


def estimate(values: Values, budget: int, seed: int, regression: Estimator):
    game = table(values)
    masks = Paired()(game, budget, torch.Generator().manual_seed(seed))
    ends = torch.from_numpy(values[[0, -1]])[:, None]
    return regression(masks, game.values(masks.states), ends[0], ends[1]), masks


# --- games of many kinds, all of them with interactions but the last ------------------------


def _random(players: int, rng: np.random.Generator) -> Values:
    return rng.normal(size=1 << players)


def _pairwise(players: int, rng: np.random.Generator) -> Values:
    z = all_rows(players).astype(float)
    return z @ rng.normal(size=players) + ((z @ rng.normal(size=(players, players))) * z).sum(1)


def _unanimity(players: int, rng: np.random.Generator) -> Values:
    rows, values = all_rows(players), np.zeros(1 << players)
    for _ in range(20):
        needed = rng.random(players) < rng.uniform(0.1, 0.5)
        values += rng.normal() * rows[:, needed].all(1)
    return values


def _majority(players: int, rng: np.random.Generator) -> Values:
    votes = rng.exponential(size=players)
    return (all_rows(players) @ votes > votes.sum() * rng.uniform(0.3, 0.7)).astype(float)


def _largest(players: int, rng: np.random.Generator) -> Values:
    return np.where(all_rows(players), rng.normal(size=players), -1).max(1)


def _saturating(players: int, rng: np.random.Generator) -> Values:
    return 1 / (1 + np.exp(-(2.0 * all_rows(players) - 1) @ rng.normal(size=players)))


def _network(players: int, rng: np.random.Generator) -> Values:
    hidden = np.tanh(all_rows(players) @ rng.normal(size=(players, 8)) + rng.normal(size=8))
    return hidden @ rng.normal(size=8)


def _noisy_sum(players: int, rng: np.random.Generator) -> Values:
    return all_rows(players) @ rng.normal(size=players) + 0.1 * rng.normal(size=1 << players)


KINDS: list[Callable[[int, np.random.Generator], Values]] = [
    _random, _pairwise, _unanimity, _majority, _largest, _saturating, _network, _noisy_sum,
]  # fmt: skip


@pytest.mark.parametrize("regression", [GaussianProcess(), WLS()], ids=["smooth", "wls"])
def test_intervals_hold_the_truth_as_often_as_they_say(regression: Estimator) -> None:
    """200 games: 1.96 standard errors hold 90 to 99 % of all credit."""
    rng = np.random.default_rng(2024)
    held, known = [], 0
    for number in range(200):
        players = int(rng.integers(7, 13))
        values = KINDS[number % len(KINDS)](players, rng)
        budget = int(rng.choice([48, 120, 300]))
        fit, masks = estimate(values, budget, number, regression)
        if masks.exact or bool(fit.errors.isnan().any()):
            continue  # exact, or no error bars given
        known += 1
        miss = np.abs(fit.values[0].numpy() - shapley_of_table(values))
        held.extend(miss <= 1.96 * fit.errors[0].numpy() + 1e-9 * np.abs(values).max())
    assert known > 120
    assert 0.9 <= np.mean(held) <= 0.99


def test_intervals_hold_with_many_pairs_and_are_narrower_than_those_of_least_squares() -> None:
    """Again 90 to 99 % of all credit."""
    rng = np.random.default_rng(2025)
    held, ratios = [], []
    for number in range(96):
        players = int(rng.integers(12, 14))
        values = KINDS[number % len(KINDS)](players, rng)
        budget = int(rng.choice([400, 700, 1000]))
        fit, _ = estimate(values, budget, number, GaussianProcess())
        plain, _ = estimate(values, budget, number, WLS())
        ratios.append(float((fit.errors / plain.errors.clamp(min=1e-12)).median()))
        miss = np.abs(fit.values[0].numpy() - shapley_of_table(values))
        held.extend(miss <= 1.96 * fit.errors[0].numpy() + 1e-9 * np.abs(values).max())
    assert 0.9 <= np.mean(held) <= 0.99
    assert np.median(ratios) < 0.9


@pytest.mark.parametrize("regression", [GaussianProcess(), WLS()], ids=["smooth", "wls"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_goes_to_zero_with_the_calls(kind: Callable, regression: Estimator) -> None:
    values = kind(10, np.random.default_rng(3))
    truth = shapley_of_table(values)
    errors = []
    for budget in (40, 150, 600, 1024):
        runs = [estimate(values, budget, seed, regression)[0].values[0] for seed in range(4)]
        errors.append(np.mean([((run.numpy() - truth) ** 2).sum() for run in runs]))
    assert errors[-1] <= 1e-18 * (truth**2).sum()
    assert errors[-2] < max(0.3 * errors[0], 1e-18)


@pytest.mark.parametrize("kind", KINDS)
def test_credit_adds_up_whatever_the_rows(kind: Callable) -> None:
    values = kind(9, np.random.default_rng(5))
    for budget in (6, 20, 60, 200):
        fit, _ = estimate(values, budget, 1, GaussianProcess())
        assert float(fit.values.sum()) == pytest.approx(values[-1] - values[0], abs=1e-9)


def test_gaussian_process_beats_least_squares_where_players_interact() -> None:
    gains = []
    for number in range(24):
        values = (_largest, _saturating, _network, _unanimity)[number % 4](
            12, np.random.default_rng(number)
        )
        truth = shapley_of_table(values)
        lost = [
            ((estimate(values, 200, number, how)[0].values[0].numpy() - truth) ** 2).sum()
            for how in (GaussianProcess(), WLS())
        ]
        gains.append(lost[1] / lost[0])
    assert np.median(gains) > 1.5  # 2 to 4 over seeds


def test_many_pairs_are_corrected_by_least_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs beyond those that the process is made of still count."""
    values = _majority(14, np.random.default_rng(0))
    truth = shapley_of_table(values)

    def lost() -> float:
        fits = [estimate(values, 6000, seed, GaussianProcess(pairs=100))[0] for seed in range(3)]
        return float(np.mean([((fit.values[0].numpy() - truth) ** 2).sum() for fit in fits]))

    corrected = lost()
    monkeypatch.setattr(gaussian_process, "corrected", lambda _, before, *others: before)
    assert corrected < 0.5 * lost()


def test_no_more_distinct_coalitions_than_calls() -> None:
    for players in (3, 8, 13, 40, 300):
        for budget in (5, 50, 400):
            game = FunctionGame(lambda rows: torch.from_numpy(rows.sum(1)).double(), players)
            masks = Paired()(game, budget, torch.Generator().manual_seed(0))
            assert len(np.unique(masks.states)) + 2 <= max(budget, 4)
            np.testing.assert_array_equal(masks.rows[::2], ~masks.rows[1::2])


def test_draws_are_distinct_and_of_the_size_of_their_stratum() -> None:
    strata = _Strata(12)
    rows, stratum = strata.draw(2, 300, torch.Generator().manual_seed(0))
    assert len(np.unique(np.concatenate([rows, ~rows]), axis=0)) == 2 * len(rows)
    np.testing.assert_array_equal(rows.sum(1), stratum + 1)
    assert stratum.min() == 2
    assert stratum.max() == 5


@pytest.mark.parametrize("players", [2, 5, 8, 13, 30, 31])
def test_strata_count_their_pairs(players: int) -> None:
    strata = _Strata(players)
    assert 2 * strata.pair_counts.sum() == 2**players - 2


@pytest.mark.parametrize("players", [1023, 1030, 20_001])
def test_strata_of_very_many_players_have_weights(players: int) -> None:
    strata = _Strata(players)
    assert strata.enumerable(10**6) < strata.count
    for shares in (strata.mass, strata.even, strata.root):
        assert shares.sum() == pytest.approx(1)
        assert shares.min() > 0


def test_draws_in_many_parts_have_the_size_of_their_stratum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paired, "_NOISE_ITEMS", 12 * 7)  # seven rows at a time
    rows, stratum = _Strata(12).draw(2, 300, torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(rows.sum(1), stratum + 1)
    assert len(np.unique(rows, axis=0)) == len(rows) > 200


def test_a_budget_is_spent_up_to_the_last_state_that_fits() -> None:
    states = np.array([3, 0, 3, 5, 5, 0, 1, 3, 2])
    assert [_within(states, most) for most in (0, 1, 2, 3, 4, 5)] == [0, 1, 3, 6, 8, 9]
    assert _within(states[:0], 4) == 0


def test_the_same_seed_draws_the_same_rows_and_another_one_others() -> None:
    def rows(seed: int) -> np.ndarray:
        game = FunctionGame(lambda rows: torch.zeros(len(rows)), 30)
        return Paired()(game, 200, torch.Generator().manual_seed(seed)).rows

    np.testing.assert_array_equal(rows(1), rows(1))
    assert not np.array_equal(rows(1), rows(2))


def test_fewer_pairs_of_even_sizes_are_smaller_and_weigh_the_same_in_sum() -> None:
    game = FunctionGame(lambda rows: torch.zeros(len(rows)), 40)
    sizes, weights = [], []
    for even_pairs in (512, 16):
        masks = Paired()(game, 402, torch.Generator().manual_seed(0), even_pairs)
        of_row = masks.rows.sum(1)
        sizes.append(np.minimum(of_row, 40 - of_row).mean())
        weights.append(masks.weights.sum())
    assert sizes[1] < 0.9 * sizes[0]
    assert weights[1] == pytest.approx(weights[0])


def test_every_player_is_drawn_equally_often() -> None:
    """How often each of 9 is in 4000 coalitions of size 4: 4 in 9 times."""
    rng, counts, size = torch.Generator().manual_seed(0), np.zeros(9), 0
    for _ in range(100):
        rows, stratum = _Strata(9).draw(3, 40, rng)
        assert (stratum == 3).all()
        counts, size = counts + rows.sum(0), size + len(rows)
    # Three standard deviations of a share of so many.
    np.testing.assert_allclose(counts / size, 4 / 9, atol=3 * (20 / 81 / size) ** 0.5)


def test_places_at_the_end_belong_to_the_last_stratum() -> None:
    # Just below 1, a place times the sum of the shares rounds to the sum.
    assert _strata_at(np.array([0.3, 0.3, 0.1]), np.array([0.0, 0.5, 1.0])).tolist() == [0, 1, 2]


@pytest.mark.parametrize("players", [10, 11])
def test_no_pair_is_drawn_twice_not_even_as_its_complement(players: int) -> None:
    game = table(np.zeros(1 << players))
    masks = Paired()(game, 600, torch.Generator().manual_seed(0))
    rows = np.asarray(masks.rows, dtype=bool)
    first = np.unique(np.where(rows[:, :1], rows, ~rows), axis=0)  # the one with player 0
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert len(first) * 2 == len(rows)
