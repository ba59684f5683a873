"""Algorithms 3 and 4 of the paper against hand-worked cases."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import torch

from graphsvx.errors import BudgetError
from graphsvx.games.base import FunctionGame
from graphsvx.masks import (
    All,
    Auto,
    Paired,
    Random,
    Smart,
    SmarterSeparate,
    SmartSeparate,
)
from graphsvx.masks.base import shapley_kernel, split_budget
from graphsvx.masks.paper import _diverse_of_order, _random_of_order, _whole_orders


def game(players: int) -> FunctionGame:
    return FunctionGame(lambda rows: torch.from_numpy(rows).double().sum(1), players)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def as_sets(rows) -> list[tuple[int, ...]]:
    return [tuple(np.flatnonzero(row).tolist()) for row in rows]


@pytest.mark.parametrize(
    ("samples", "features", "nodes", "r", "expected"),
    [
        (100, 5, 15, 0.3, 30),  # r exists: int(r P)
        (100, 0, 15, None, 0),  # F = 0: int(P * 0)
        (100, 5, 0, None, 100),  # D = 0: int(P * 5 / 5)
        (100, 5, 15, None, 37),  # int(0.5 * 100 / 2 + 0.5 * 100 * 5 / 20) = int(25 + 12.5)
        (1000, 10, 10, None, 500),
    ],
)
def test_the_budget_is_split_as_in_algorithm_3(samples, features, nodes, r, expected) -> None:
    assert split_budget(samples, features, nodes, r) == expected


def test_the_share_of_features_must_be_between_0_and_1() -> None:
    with pytest.raises(BudgetError, match="between 0 and 1"):
        split_budget(100, 1, 1, 1.5)


def test_orders_are_taken_whole_from_zero_up_with_both_u_and_v() -> None:
    """M = 4, P' = 20: order 0 costs 2, order 1 costs 8 (10 < 20), order 2 costs 6 (16 < 20)."""
    rows, stopped = _whole_orders(4, 20, 4)
    assert stopped == 3
    sets = as_sets(rows)
    assert sets[:2] == [(), (0, 1, 2, 3)]
    assert sets[2:6] == [(0,), (1,), (2,), (3,)]
    assert sets[6:10] == [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]
    assert sorted(sets[10:]) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_an_order_that_exceeds_the_budget_is_not_enumerated() -> None:
    rows, stopped = _whole_orders(4, 10, 4)  # 2 + 8 = 10 is not below 10
    assert (len(rows), stopped) == (2, 1)
    rows, stopped = _whole_orders(4, 11, 4)
    assert (len(rows), stopped) == (10, 2)


def test_the_maximum_order_is_kept() -> None:
    rows, stopped = _whole_orders(6, 10**6, 1)
    assert stopped == 2
    assert len(rows) == 2 + 12


@pytest.mark.parametrize("players", [4, 5])
def test_with_budget_for_all_orders_each_coalition_is_listed_once(players: int) -> None:
    rows, stopped = _whole_orders(players, 1000, players)
    assert len(rows) == len(np.unique(rows, axis=0)) == 2**players
    assert stopped == players // 2 + 1


def test_the_rest_of_the_middle_order_is_diverse() -> None:
    """M = 4, P' = 14: orders 0 and 1 cost 10, four of the six coalitions of order 2 follow."""
    rows = SmarterSeparate(order=2)(game(4), 16, rng()).rows
    assert rows[10 - 2 : 14 - 2].sum(1).tolist() == [2, 2, 2, 2]


def test_every_player_is_drawn_once_before_any_is_drawn_twice() -> None:
    """k = 2 of 6 players: three coalitions see all six, the next three again, and so on."""
    rows = _diverse_of_order(6, 2, 9, rng())
    sizes = rows.sum(1)
    assert set(sizes.tolist()) <= {2, 4}
    members = np.where((sizes == 2)[:, None], rows, ~rows)
    for first in (0, 3, 6):
        assert (members[first : first + 3].sum(0) == 1).all()


@pytest.mark.parametrize("draw", [_diverse_of_order, _random_of_order])
def test_coalitions_of_an_order_and_their_complements_both_occur(draw) -> None:
    sizes = draw(8, 2, 40, rng()).sum(1)
    assert set(sizes.tolist()) == {2, 6}


def test_masks_named_separate_play_features_and_nodes_apart() -> None:
    assert SmarterSeparate().separate
    assert SmartSeparate().separate
    assert not Smart().separate
    assert not Random().separate


def test_algorithm_4_spends_the_budget_as_it_says() -> None:
    """M = 10, P = 100, S = 2: P' = 90; orders 0 and 1 cost 22; order 2 (90 rows) does not fit,
    so 68 rows of it are drawn for diversity, and 10 random rows follow."""
    masks = SmarterSeparate(order=2)(game(10), 100, rng())
    sizes = masks.rows.sum(1)
    assert len(masks.rows) >= 95  # random rows may be empty or full, which are played anyway
    assert (sizes[:20] == np.r_[np.ones(10), np.full(10, 9)]).all()
    assert set(sizes[20:88].tolist()) == {2, 8}
    # Without S = 2, S = 1: everything after order 1 is random.
    masks = SmarterSeparate(order=1)(game(10), 100, rng())
    assert len(set(masks.rows[20:].sum(1).tolist())) > 3


@pytest.mark.parametrize("budget", [5, 9, 10, 11, 40, 70])
def test_algorithm_4_leaves_no_call_over(budget: int) -> None:
    masks = SmarterSeparate(order=1)(game(30), budget, rng())
    assert len(masks.rows) == budget - 2  # the empty and the full coalition are not listed


def test_weights_are_the_kernel_whatever_was_drawn() -> None:
    masks = SmarterSeparate(order=1)(game(7), 60, rng())
    np.testing.assert_allclose(masks.weights / masks.weights.max(),
                               shapley_kernel(masks.rows.sum(1), 7))  # fmt: skip


@pytest.mark.parametrize("players", [2, 3, 5, 9])
def test_the_kernel_is_the_papers(players: int) -> None:
    sizes = np.arange(1, players)
    paper = [(players - 1) / (players * s) / comb(players - 1, s) for s in sizes]
    np.testing.assert_allclose(shapley_kernel(sizes, players), np.array(paper) / max(paper))


def test_the_kernel_survives_five_thousand_players() -> None:
    weights = shapley_kernel(np.array([1, 2, 2500, 4999]), 5000)
    assert np.isfinite(weights).all()
    # s = 1 and s = M - 1 weigh the same, s = 2 weighs 1 / (M - 2) of that.
    np.testing.assert_allclose(weights[[0, 3, 1]], [1, 1, 1 / 4998], rtol=1e-6)


def test_the_kernel_has_no_weight_for_empty_and_full() -> None:
    with pytest.raises(ValueError, match="infinite"):
        shapley_kernel(np.array([0, 2]), 4)
    with pytest.raises(ValueError, match="infinite"):
        shapley_kernel(np.array([2, 4]), 4)


def test_smart_takes_heavy_coalitions_first() -> None:
    masks = Smart()(game(8), 40, rng())
    sizes = np.minimum(masks.rows.sum(1), 8 - masks.rows.sum(1))
    assert (sizes[:16] == 1).all()
    assert (sizes[16:] == 2).all()


def test_random_masks_have_players_on_with_probability_one_half() -> None:
    masks = Random()(game(20), 2000, rng())
    assert abs(masks.rows.mean() - 0.5) < 0.02


def test_all_refuses_what_cannot_be_enumerated() -> None:
    with pytest.raises(BudgetError, match="at most"):
        All()(game(40), 100, rng())


def test_auto_is_exact_as_soon_as_everything_fits() -> None:
    assert Auto()(game(6), 64, rng()).exact
    assert not Auto()(game(6), 63, rng()).exact


def test_paired_rows_are_complements() -> None:
    masks = Paired()(game(12), 300, rng())
    assert (masks.rows[::2] ^ masks.rows[1::2]).all()
    assert len(masks.rows) <= 298
