"""Connected sets, their boundaries, and what they give away of the players beyond."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from graphsvx.core.arrays import Bools
from graphsvx.errors import BudgetError
from graphsvx.games import FunctionGame
from graphsvx.masks.base import all_rows
from graphsvx.masks.exact import Auto, Connected, connected_sets
from graphsvx.testing.oracle import shapley_of_table


@pytest.mark.parametrize("reach", [None, 1, 2, 3])
def test_unreachable_players_do_not_change_the_connected_sets(reach: int | None) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        players = int(rng.integers(1, 9))
        senders = rng.random((players + 1, players)) < 0.3
        padded = np.zeros((81, 80), dtype=bool)
        padded[:players, :players] = senders[:-1]
        padded[-1, :players] = senders[-1]
        for most in (6, 1000):
            few, many = connected_sets(senders, most, reach), connected_sets(padded, most, reach)
            assert (few is None) == (many is None)
            if few is None or many is None:
                continue
            for a, b in zip(few, many, strict=True):
                assert np.array_equal(a, b[:, :players])
                assert not b[:, players:].any()


def test_as_many_sets_as_allowed_are_found_and_no_more() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        senders = rng.random((7, 6)) < 0.35
        every = connected_sets(senders, 1000)
        assert every is not None
        assert connected_sets(senders, len(every[0]) - 1) is None
        assert connected_sets(senders, len(every[0])) is not None
    assert connected_sets(np.ones((101, 100), dtype=bool), 1 << 20) is None


def test_the_boundary_is_what_sends_to_the_set_and_is_not_in_it() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        senders = rng.random((7, 6)) < 0.35
        sets = connected_sets(senders, 1000)
        assert sets is not None
        for inside, outside in zip(*sets, strict=True):
            heard = senders[-1] | senders[:-1][inside].any(0)
            np.testing.assert_array_equal(outside, heard & ~inside)


def test_a_long_path_has_one_set_for_each_node_and_the_empty_one() -> None:
    senders = np.eye(301, 300, k=1, dtype=bool)
    senders[-1, 0] = True
    sets = connected_sets(senders, 301)
    assert sets is not None
    assert sorted(sets[0].sum(1)) == list(range(301))


def test_with_a_reach_of_0_only_the_empty_set_is_connected() -> None:
    sets = connected_sets(np.ones((4, 3), dtype=bool), 1000, reach=0)
    assert sets is not None
    assert not sets[0].any()
    assert not sets[1].any()
    assert len(sets[0]) == 1


def test_the_sets_are_those_that_can_reach_the_node() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        players = 6
        senders = rng.random((players + 1, players)) < 0.35
        sets = connected_sets(senders, 1000)
        assert sets is not None
        wanted = set()
        for bits in itertools.product([False, True], repeat=players):
            on = np.array(bits)
            live = senders[-1] & on
            for _ in range(players):
                live = live | (senders[:-1][live].any(0) & on)
            wanted.add(tuple(live.tolist()))
        assert {tuple(row) for row in sets[0].tolist()} == wanted
        assert len(sets[0]) == len(wanted)


def _reached(senders: Bools, on: Bools) -> Bools:
    """Players that reach the node through players that are on."""
    live = senders[-1] & on
    for _ in range(len(on)):
        live = live | (senders[:-1][live].any(0) & on)
    return live


class _OnReachedPlayers(FunctionGame):
    """A random value for each set of players that reach the node."""

    def __init__(self, senders: Bools, rng: np.random.Generator) -> None:
        self.senders = senders
        weights = rng.normal(size=(2, senders.shape[1]))

        def value(rows: Bools) -> torch.Tensor:
            live = np.stack([_reached(senders, row) for row in rows])
            return torch.from_numpy(np.sin(5 * live @ weights.T) + live @ weights.T)

        super().__init__(value, senders.shape[1])

    def player_edges(self) -> Bools:
        return self.senders


def test_connected_sets_give_the_shapley_values_of_all_coalitions() -> None:
    rng = np.random.default_rng(4)
    for _ in range(6):
        game = _OnReachedPlayers(rng.random((6, 5)) < 0.4, rng)
        masks = Connected()(game, 32, torch.Generator())
        assert masks.exact
        assert masks.credit is not None
        credit = masks.credit.t() @ game.values(masks.states)

        truth = shapley_of_table(game.values(game.states(all_rows(5))))
        assert credit.numpy() == pytest.approx(truth, abs=1e-12)


def test_connected_sets_that_do_not_fit_the_budget_are_refused() -> None:
    everyone = _OnReachedPlayers(np.ones((6, 5), dtype=bool), np.random.default_rng(5))
    with pytest.raises(BudgetError, match="do not fit 31 model calls"):
        Connected()(everyone, 31, torch.Generator())
    assert not Auto()(everyone, 31, torch.Generator()).exact
    assert len(Connected()(everyone, 32, torch.Generator()).rows) == 32
