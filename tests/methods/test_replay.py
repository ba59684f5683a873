"""Coalitions that are played again by plain calls: which, and how many."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphsvx.masks.base import all_rows
from graphsvx.methods import playing
from graphsvx.methods.playing import _coalitions_to_replay

PLAYERS = 12


@pytest.fixture
def played() -> SimpleNamespace:
    """A sampled game of 100 coalitions and three outputs."""
    rng = np.random.default_rng(0)
    rows = rng.random((100, PLAYERS)) < rng.random((100, 1))
    values = torch.from_numpy(rng.normal(size=(102, 3)))
    masks = SimpleNamespace(rows=rows, exact=False)
    return SimpleNamespace(
        game=SimpleNamespace(players=PLAYERS, replayed=0), masks=masks, values=values
    )


def replayed(played: SimpleNamespace, count: int) -> list[tuple[bool, ...]]:
    chosen = _coalitions_to_replay(played, count, np.random.default_rng(0))
    return [tuple(row) for row in chosen.tolist()]


def test_costly_plain_calls_are_few_but_at_the_ends_and_over_all_sizes(played) -> None:
    coalitions = replayed(played, playing.FEW)
    assert 5 <= len(coalitions) <= 7
    assert coalitions[0] == (False,) * PLAYERS
    for position in (played.values[2:, 0].argmin(), played.values[2:, 0].argmax()):
        assert tuple(played.masks.rows[int(position)].tolist()) in coalitions
    sizes = [sum(coalition) for coalition in coalitions]
    of_game = played.masks.rows.sum(1)
    assert (min(sizes), max(sizes)) == (of_game.min(), of_game.max())


def test_costly_plain_calls_before_a_game_make_those_over_all_sizes_superfluous(played) -> None:
    game = SimpleNamespace(players=PLAYERS, replayed=playing.FIRST)
    compared_before = SimpleNamespace(game=game, masks=played.masks, values=played.values)
    assert replayed(compared_before, playing.FEW) == replayed(played, playing.FEW)[:3]


def exact_game(players: int, listed: int) -> SimpleNamespace:
    """An exact game of few players, of which only some coalitions are listed."""
    rows = all_rows(players)[1:-1][:listed]
    values = torch.arange(len(rows) + 2.0)[:, None]
    masks = SimpleNamespace(rows=rows, exact=True)
    return SimpleNamespace(
        game=SimpleNamespace(players=players, replayed=0), masks=masks, values=values
    )


@pytest.mark.parametrize(("players", "listed"), [(5, 30), (6, 62), (6, 20), (3, 2)])
def test_all_coalitions_of_few_players_are_replayed(players: int, listed: int) -> None:
    coalitions = replayed(exact_game(players, listed), 64)
    assert set(coalitions) == {tuple(row) for row in all_rows(players).tolist()}
    assert len(coalitions) == 2**players


def test_no_listed_coalition_gives_way_to_one_that_comes_twice() -> None:
    played = exact_game(7, 40)
    coalitions = replayed(played, 200)
    assert {tuple(row) for row in played.masks.rows.tolist()} <= set(coalitions)
    assert len(coalitions) == len(set(coalitions)) > 60


def test_cheap_plain_calls_hold_both_ends_and_the_extremes_of_all_outputs(played) -> None:
    coalitions = replayed(played, 64)
    assert (True,) * PLAYERS in coalitions
    assert (False,) * PLAYERS in coalitions
    for output in range(3):
        for position in (played.values[2:, output].argmin(), played.values[2:, output].argmax()):
            assert tuple(played.masks.rows[int(position)].tolist()) in coalitions
