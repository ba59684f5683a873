"""Regressions against other ways of computing the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphsvx.errors import InputError
from graphsvx.estimators import WLR, WLS, Lasso, lasso
from graphsvx.games.base import LEAST_MEMORY, FunctionGame, fitting_coalitions
from graphsvx.masks import All, Masks, Paired, Random
from graphsvx.masks.base import all_rows
from graphsvx.testing.oracle import shapley_of_table
from graphsvx.utils.constraints import MOST


def random_game(players: int, seed: int, outputs: int = 1) -> FunctionGame:
    """Any game: a table of 2^M random numbers."""
    rng = torch.Generator().manual_seed(seed)
    table = torch.randn(1 << players, outputs, generator=rng, dtype=torch.float64)
    powers = 1 << np.arange(players)
    return FunctionGame(lambda rows: table[torch.from_numpy(rows @ powers)], players)


def play(game, mask, budget: int, seed: int = 0):
    masks = mask(game, budget, torch.Generator().manual_seed(seed))
    ends = np.stack([np.zeros(game.players, dtype=bool), np.ones(game.players, dtype=bool)])
    empty, full = game.values(game.states(ends))
    return masks, game.values(masks.states) if len(masks.states) else full[None][:0], empty, full


def exact(game) -> torch.Tensor:
    values = game.values(game.states(all_rows(game.players)))[:, 0]
    return torch.from_numpy(shapley_of_table(values.numpy()))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(0, 10**6))
def test_wls_on_all_rows_is_the_shapley_value(players: int, seed: int) -> None:
    game = random_game(players, seed)
    fit = WLS()(*play(game, All(), 0))
    torch.testing.assert_close(fit.values[0], exact(game), atol=1e-9, rtol=0)
    assert float(fit.errors.sum()) == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(2, 80), st.integers(0, 10**6))
def test_efficiency_holds_on_any_rows(players: int, budget: int, seed: int) -> None:
    game = random_game(players, seed, outputs=2)
    for mask in (Random(), Paired()):
        for regression in (WLS(), WLR(), Lasso(k=3)):
            masks, values, empty, full = play(game, mask, budget, seed)
            fit = regression(masks, values, empty, full)
            torch.testing.assert_close(fit.base + fit.values.sum(1), full, atol=1e-8, rtol=0)


def test_constrained_least_squares_agrees_with_a_huge_weight() -> None:
    """The exact constraint is the limit of weights that grow without bound."""
    game = random_game(6, 1)
    masks, values, empty, full = play(game, Random(), 40)
    fit = WLS()(masks, values, empty, full)
    z = np.vstack([masks.rows.astype(float), np.ones(6)])
    y = np.r_[(values[:, 0] - empty[0]).numpy(), float(full[0] - empty[0])]
    w = np.sqrt(np.r_[masks.weights, 1e10])
    other = np.linalg.lstsq(z * w[:, None], y * w, rcond=None)[0]
    np.testing.assert_allclose(fit.values[0].numpy(), other, atol=1e-5)


def test_an_additive_game_is_found_exactly_from_any_rows_that_span_it() -> None:
    truth = torch.tensor([3.0, -1.0, 0.5, 0.0, 2.0], dtype=torch.float64)
    game = FunctionGame(lambda rows: torch.from_numpy(rows).double() @ truth + 7, 5)
    for regression in (WLS(), WLR()):
        fit = regression(*play(game, Random(), 60))
        torch.testing.assert_close(fit.values[0], truth, atol=1e-9, rtol=0)
        assert float(fit.base) == pytest.approx(7)
        assert float(fit.r2) == pytest.approx(1)


def test_one_player_gets_everything() -> None:
    game = random_game(1, 0)
    for mask in (All(), Paired()):
        masks, values, empty, full = play(game, mask, 10)
        fit = WLS()(masks, values, empty, full)
        assert float(fit.values) == pytest.approx(float(full - empty))
        assert float(fit.errors) == 0


def test_five_thousand_players_are_fitted() -> None:
    weights = torch.linspace(-1, 1, 5000, dtype=torch.float64)
    game = FunctionGame(lambda rows: torch.from_numpy(rows).double() @ weights, 5000)
    masks, values, empty, full = play(game, Paired(), 400)
    fit = WLS()(masks, values, empty, full)
    assert torch.isfinite(fit.values).all()
    assert float(fit.values.sum()) == pytest.approx(float(full - empty), abs=1e-8)
    assert bool((fit.errors > 0).all())


@pytest.mark.parametrize("players", [600, 1500])
def test_too_few_rows_shrink_towards_an_equal_share_and_know_their_error(players: int) -> None:
    rng = np.random.default_rng(players)
    truth = rng.normal(size=players) * np.exp(rng.normal(size=players))
    game = FunctionGame(lambda rows: torch.from_numpy(rows @ truth), players)
    fit = WLS()(*play(game, Paired(), 1000))
    missed = np.abs(fit.values[0].numpy() - truth)
    equal = np.sqrt(np.mean((truth - truth.mean()) ** 2))
    assert np.sqrt(np.mean(missed**2)) < 0.95 * equal
    assert 0.9 <= np.mean(missed <= 1.96 * fit.errors[0].numpy()) <= 0.99


def test_lasso_keeps_at_most_k_players_and_finds_the_right_ones() -> None:
    truth = torch.zeros(12, dtype=torch.float64)
    truth[[2, 7, 9]] = torch.tensor([3.0, -2.0, 1.0], dtype=torch.float64)
    game = FunctionGame(lambda rows: torch.from_numpy(rows).double() @ truth, 12)
    fit = Lasso(k=3)(*play(game, Paired(), 200))
    torch.testing.assert_close(fit.values[0], truth, atol=1e-6, rtol=0)
    for k in (1, 2):
        fit = Lasso(k=k)(*play(game, Paired(), 200))
        assert int((fit.values != 0).sum()) <= k


def test_lasso_without_k_chooses_by_validation() -> None:
    truth = torch.zeros(12, dtype=torch.float64)
    truth[[2, 7, 9]] = torch.tensor([3.0, -2.0, 1.0], dtype=torch.float64)
    game = FunctionGame(lambda rows: torch.from_numpy(rows).double() @ truth, 12)
    fit = Lasso()(*play(game, Paired(), 200))
    assert set(fit.values[0].nonzero()[:, 0].tolist()) == {2, 7, 9}


def test_lasso_needs_a_player() -> None:
    with pytest.raises(InputError, match="at least 1"):
        Lasso(k=0)


def test_wlr_fits_its_base_value() -> None:
    game = random_game(6, 3)
    masks, values, empty, full = play(game, Random(), 50)
    fit = WLR()(masks, values, empty, full)
    assert float(fit.base) != pytest.approx(float(empty), abs=1e-6)


def solved(rows: np.ndarray, weights: np.ndarray, values: np.ndarray, gain: float) -> np.ndarray:
    """Least squares with sum `gain`, by its Karush-Kuhn-Tucker system."""
    z, players = rows.astype(float), rows.shape[1]
    system = np.zeros((players + 1, players + 1))
    system[:players, :players] = z.T @ (z * weights[:, None])
    system[players, :players] = system[:players, players] = 1
    right = np.append(z.T @ (weights * values), gain)
    return np.linalg.solve(system, right)[:players]


def test_standard_errors_are_those_of_leaving_each_drawn_pair_out() -> None:
    game = random_game(10, 3)
    masks, values, empty, full = play(game, Paired(), 120)
    fit = WLS()(masks, values, empty, full)
    gain, gained = float(full - empty), (values - empty)[:, 0].numpy()
    complete = solved(masks.rows, masks.weights, gained, gain)
    np.testing.assert_allclose(fit.values[0], complete, atol=1e-9)
    square = np.zeros(10)
    for pair in np.flatnonzero(masks.pair[::2] >= 0):
        rest = np.delete(np.arange(len(masks.rows)), [2 * pair, 2 * pair + 1])
        without = solved(masks.rows[rest], masks.weights[rest], gained[rest], gain)
        square += masks.unseen[2 * pair] * (without - complete) ** 2
    assert square.min() > 0
    np.testing.assert_allclose(fit.errors[0], np.sqrt(square), rtol=1e-6)


@pytest.mark.parametrize("drawn", [1, 4])
def test_errors_are_unknown_where_one_pair_alone_tells_players_apart(drawn: int) -> None:
    coalitions = [[1, 1, 0, 0]] * 4 + [[1, 0, 0, 0]] * 4 + [[1, 0, 1, 0]] * drawn
    on = np.array(coalitions, dtype=bool)
    rows = np.stack([on, ~on], 1).reshape(-1, 4)
    masks = Masks(
        rows, np.arange(len(rows)), np.ones(len(rows)),
        pair=np.arange(len(on)).repeat(2), unseen=np.ones(len(rows)),
    )  # fmt: skip
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(len(rows), 1)))
    errors = WLS()(masks, values, torch.zeros(1).double(), torch.ones(1).double()).errors
    if drawn == 1:  # without it, nothing tells players 2 and 3 apart
        assert errors.isnan().all()
    else:
        assert (errors > 0).all()
        assert errors.isfinite().all()


@pytest.mark.parametrize(("coalitions", "players"), [(4000, 20), (40, 3000), (2000, 1000)])
def test_the_memory_of_a_fit_is_at_least_its_matrices(coalitions: int, players: int) -> None:
    pairs = coalitions // 2
    gram = 8 * min(pairs, players) ** 2
    design = 8 * pairs * players if pairs >= players else 0
    assert gram + design <= WLS().memory(coalitions, players) <= 4 * (gram + design)


def test_coalitions_that_fit_follow_memory_and_players() -> None:
    game = random_game(8, 0)
    assert fitting_coalitions(game, 4) == MOST  # unlimited

    class Small(FunctionGame):
        @property
        def memory(self) -> int:
            return 2 * LEAST_MEMORY

    small = Small(lambda rows: torch.zeros(len(rows), 1), 8)
    assert fitting_coalitions(small, 4) == 2 * LEAST_MEMORY // 32


@pytest.mark.parametrize("few", [1, 2, 3])
def test_without_rows_to_hold_out_lasso_keeps_the_players_that_explain_the_surrogate(few) -> None:
    weights = np.array([16.0, 0.02, -18.0, 0.01, 20.0, 0.03])
    weights[[0, 2, 4][few:]] = 0.02
    coalitions = (np.arange(1, 63)[:, None] >> np.arange(6)) & 1
    size = coalitions.sum(1)
    kernel = 1 / (np.array([math.comb(6, k) for k in size]) * size * (6 - size))
    gram = coalitions.T @ (coalitions * (kernel / kernel.sum())[:, None])
    part = lasso._Part(gram, gram @ weights, float(weights.sum()))
    assert lasso._validated_size([part]) == few
    credit = Lasso()._choose([part])[0]
    assert int((credit != 0).sum()) == few
    assert float(credit.sum()) == pytest.approx(weights.sum())
