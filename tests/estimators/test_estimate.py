"""graphsvx.estimate: Shapley values of any game, against brute force and known answers."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

import graphsvx
from graphsvx.errors import BudgetError, InputError
from graphsvx.estimators import WLR, WLS, Lasso
from graphsvx.masks import All, Paired, Random, Smart, SmarterSeparate
from graphsvx.masks.base import all_rows
from graphsvx.testing.oracle import shapley_of_table


def random_game(players: int, seed: int, outputs: tuple[int, ...] = ()):
    table = np.random.default_rng(seed).normal(size=(1 << players, *outputs))
    return lambda rows: table[rows @ (1 << np.arange(players))]


def network(players: int, seed: int):
    """A smooth game with interactions, for any number of players."""
    rng = np.random.default_rng(seed)
    first, bias, last = (
        rng.normal(size=(players, 6)) / players**0.5,
        rng.normal(size=6),
        rng.normal(size=6),
    )
    return lambda rows: np.tanh(2 * rows @ first + bias) @ last


class Counted:
    """A game that keeps every coalition it was asked for."""

    def __init__(self, game) -> None:
        self.game, self.seen = game, []

    def __call__(self, rows):
        self.seen += [row.tobytes() for row in rows]
        return self.game(rows)


@pytest.mark.parametrize("players", [1, 2, 3, 4, 5, 6])
def test_small_games_are_exact(players: int) -> None:
    for seed in range(3):
        game = random_game(players, seed)
        result = graphsvx.estimate(game, players)
        truth = shapley_of_table(game(all_rows(players)))
        np.testing.assert_allclose(result.values, truth, atol=1e-10)
        assert result.exact
        assert not result.errors.any()
        assert result.calls == 1 << players
        assert result.players == players


def test_games_of_several_outputs_are_shared_out_output_by_output() -> None:
    game = random_game(5, 0, outputs=(3,))
    result = graphsvx.estimate(game, 5)
    assert result.values.shape == result.errors.shape == (3, 5)
    np.testing.assert_allclose(result.values, shapley_of_table(game(all_rows(5))).T, atol=1e-10)
    np.testing.assert_allclose(result.base + result.values.sum(-1), result.full, atol=1e-10)
    assert result.base.shape == result.full.shape == result.r2.shape == (3,)


@pytest.mark.parametrize("players", [3, 12, 60, 300])
@pytest.mark.parametrize("budget", [4, 33, 400])
def test_credit_adds_up_and_budgets_are_kept(players: int, budget: int) -> None:
    game = Counted(network(players, 1))
    result = graphsvx.estimate(game, players, budget=budget)
    assert result.base + result.values.sum() == pytest.approx(result.full, abs=1e-9)
    assert len(game.seen) == len(set(game.seen)) == result.calls <= budget
    assert result.exact == (1 << players <= budget)


@pytest.mark.parametrize("mask", [Paired(), Random(), Smart(), SmarterSeparate(),
                                  SmarterSeparate(random_share=1)], ids=repr)  # fmt: skip
def test_every_sampling_mask_keeps_the_budget(mask) -> None:
    for budget in (4, 5, 20, 101):
        result = graphsvx.estimate(network(20, 0), 20, budget=budget, mask=mask, estimator=WLS())
        assert result.calls <= budget


@pytest.mark.parametrize("players", [4, 30, 200])
def test_an_additive_game_gives_each_player_its_weight(players: int) -> None:
    weights = np.random.default_rng(2).normal(size=players)
    budget = max(64, 8 * players)  # a few pairs for each player
    result = graphsvx.estimate(lambda rows: 3 + rows @ weights, players, budget=budget)
    np.testing.assert_allclose(result.values, weights, atol=1e-8)
    assert result.base == pytest.approx(3)
    assert result.r2 == pytest.approx(1)


@pytest.mark.parametrize("needed", [[0], [1, 3], [0, 2, 4, 5]])
def test_a_unanimity_game_is_shared_by_those_it_needs(needed: list[int]) -> None:
    result = graphsvx.estimate(lambda rows: rows[:, needed].all(1), 7)
    expected = np.zeros(7)
    expected[needed] = 1 / len(needed)
    np.testing.assert_allclose(result.values, expected, atol=1e-10)


def test_standard_errors_hold_the_truth_as_often_as_they_say() -> None:
    held = []
    for seed in range(40):
        game = network(10, seed) if seed % 2 else random_game(10, seed)
        truth = graphsvx.estimate(game, 10, budget=1024)
        assert truth.exact
        result = graphsvx.estimate(game, 10, budget=150, seed=seed)
        assert not result.exact
        held.extend(np.abs(result.values - truth.values) <= 1.96 * result.errors)
    assert 0.88 <= np.mean(held) <= 1


def test_the_same_seed_gives_the_same_bits_and_another_one_other_rows() -> None:
    def run(seed: int) -> graphsvx.Estimate:
        return graphsvx.estimate(network(25, 3), 25, budget=200, seed=seed)

    first, again, other = run(1), run(1), run(2)
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_array_equal(first.errors, again.errors)
    assert not np.array_equal(first.values, other.values)


def test_numpy_torch_and_lists_are_the_same_game() -> None:
    game = network(12, 4)
    results = [
        graphsvx.estimate(wrapped, 12, budget=100).values
        for wrapped in (
            game,
            lambda rows: torch.from_numpy(game(rows)).requires_grad_(),
            lambda rows: game(rows).tolist(),
        )
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    column = graphsvx.estimate(lambda rows: game(rows)[:, None], 12, budget=100)
    np.testing.assert_array_equal(results[0], column.values[0])


def test_a_tolerance_stops_early_or_says_that_it_was_not_met() -> None:
    game = Counted(network(40, 5))
    wide = graphsvx.estimate(game, 40, budget=2000, tolerance=10.0)
    assert wide.tolerance_met is True
    assert wide.calls < 200
    strict = graphsvx.estimate(random_game(12, 0), 12, budget=1000, tolerance=1e-6)
    assert strict.tolerance_met is False
    assert 500 < strict.calls <= 1000
    small = graphsvx.estimate(random_game(9, 0), 9, budget=512, tolerance=1e-6)
    assert small.exact
    assert small.tolerance_met is True
    assert small.calls == 512
    assert graphsvx.estimate(random_game(3, 0), 3).tolerance_met is None


def test_masks_and_estimators_are_arguments() -> None:
    game = random_game(6, 1)
    truth = shapley_of_table(game(all_rows(6)))
    plain = graphsvx.estimate(game, 6, mask=All(), estimator=WLS())
    np.testing.assert_allclose(plain.values, truth, atol=1e-10)
    few = graphsvx.estimate(game, 6, estimator=Lasso(k=2))
    assert np.count_nonzero(few.values) == 2
    assert not few.exact
    fitted = graphsvx.estimate(game, 6, estimator=WLR())
    assert np.isnan(fitted.errors).all()
    assert fitted.base + fitted.values.sum() == pytest.approx(fitted.full)


def test_the_record_is_frozen_and_shows_what_matters() -> None:
    weights = np.array([1.0, -5.0, 0.5, 0.25, 0.1, 0.0, 2.0])
    result = graphsvx.estimate(lambda rows: rows @ weights, 7)
    text = repr(result)
    assert "7 players, exact, 128 calls" in text
    assert text.index("player 1: -5") < text.index("player 6: +2") < text.index("player 0: +1")
    assert "and 2 more" in text
    assert "±" in repr(graphsvx.estimate(network(30, 0), 30, budget=100))
    assert "3 outputs" in repr(graphsvx.estimate(random_game(4, 0, (3,)), 4))
    with pytest.raises(FrozenInstanceError):
        result.calls = 3


def ragged(rows):
    return [[1.0], [1.0, 2.0]]


@pytest.mark.parametrize(
    ("game", "problem"),
    [
        (lambda rows: 1.0, r"a row of them, for each of the 2 coalitions.*got \[\]"),
        (lambda rows: rows.sum(), r"for each of the 2 coalitions"),
        (lambda rows: np.zeros(len(rows) + 1), r"got \[3\]"),
        (lambda rows: np.zeros((len(rows), 0)), r"got \[2, 0\]"),
        (lambda rows: np.zeros((len(rows), 2, 2)), r"got \[2, 2, 2\]"),
        (lambda rows: None, "got NoneType"),
        (lambda rows: ["a"] * len(rows), "got list"),
        (ragged, "got list"),
        (lambda rows: torch.zeros(len(rows), dtype=torch.complex64), "got Tensor"),
        (lambda rows: np.where(rows.all(1), np.nan, 0), r"finite.*players \[0, 1, 2\]"),
        (lambda rows: np.where(rows.any(1), 0, np.inf), r"finite.*players \[\]"),
        (lambda rows: np.zeros((len(rows), len(rows))), "same number of outputs"),
    ],
)
def test_wrong_values_are_named(game, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        graphsvx.estimate(game, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        ({"game": 3}, InputError, "game must be a function of a boolean matrix"),
        ({"game": lambda a, b: 0}, InputError, "game must be a function of a boolean matrix"),
        ({"players": 0}, InputError, "players must be an integer of at least 1"),
        ({"players": 2.5}, InputError, "players must be an integer"),
        ({"budget": 3}, BudgetError, "budget must be an integer of at least 4"),
        ({"mask": Paired}, InputError, "mask must be a mask"),
        ({"estimator": "wls"}, InputError, "estimator must be an estimator"),
        ({"tolerance": 0.0}, InputError, "tolerance must be"),
        ({"seed": -1}, InputError, "seed must be"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, problem: str) -> None:
    given = {"game": lambda rows: rows.sum(1), "players": 3, **arguments}
    with pytest.raises(error, match=problem):
        graphsvx.estimate(**given)


def test_errors_of_the_game_are_the_callers_own() -> None:
    def broken(rows):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        graphsvx.estimate(broken, 3)


def test_a_game_may_change_what_it_is_given() -> None:
    def careless(rows):
        values = rows @ np.arange(5.0)
        rows[:] = False
        return values

    np.testing.assert_allclose(graphsvx.estimate(careless, 5).values, np.arange(5.0), atol=1e-10)
