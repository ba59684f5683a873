"""Connected sets of few players (words of bits) and of many (rows of booleans) are the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphsvx.masks.exact import connected_sets


@pytest.mark.parametrize("reach", [None, 1, 2, 3])
def test_many_players_that_do_not_matter_change_nothing(reach: int | None) -> None:
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


def test_the_sets_are_those_that_can_reach_the_node() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        players = 6
        senders = rng.random((players + 1, players)) < 0.35
        found = connected_sets(senders, 1000)
        assert found is not None
        wanted = set()
        for bits in itertools.product([False, True], repeat=players):
            on = np.array(bits)
            live = senders[-1] & on
            for _ in range(players):
                live = live | (senders[:-1][live].any(0) & on)
            wanted.add(tuple(live.tolist()))
        assert {tuple(row) for row in found[0].tolist()} == wanted
        assert len(found[0]) == len(wanted)
