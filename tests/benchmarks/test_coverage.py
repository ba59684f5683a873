"""A sample of the coverage benchmark: bars hold and least squares are not better, by family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import coverage, truths
from graphsvx.games.graph_game import GraphGame

FAMILIES = {"stars": coverage.star, "trees": coverage.tree, "hubs": coverage.hub}


def judged(family: str) -> list[coverage.Judged]:
    """Two games of each kind of layer, with their exact Shapley values."""
    judged = []
    for kind in range(4):
        for seed in range(2):
            model, graph, node = FAMILIES[family](14, kind, 50 * seed + kind)
            game, target = coverage.node_game(model, graph, node)
            truth = coverage.exact(game, target)
            assert truth is not None
            judged.append(coverage.Judged(game, target, truth, np.zeros(game.players)))
    return judged


@pytest.mark.parametrize("family", FAMILIES)
def test_bars_hold_and_least_squares_are_not_better(family: str) -> None:
    """Margins beyond 0.90-0.99 and 1.1 are for so few games."""
    games = judged(family)
    for per_player in (1.5, 6):
        answers = [coverage.answers(game, per_player, seed) for game in games for seed in range(3)]
        given = [answer for answer in answers if answer is not None]
        assert len(given) > 12
        held = np.mean([answer["default"].held for answer in given])
        assert 0.87 <= held <= 0.999, per_player
        ratio = [answer["default"].error / answer["WLS"].error for answer in given]
        assert np.median(ratio) < 1.1, per_player


def test_bars_hold_on_large_stars() -> None:
    """So few pairs were learnt on that a process without a white part explained all of them."""
    held = []
    for seed in (72, 74):
        game, target = coverage.node_game(*coverage.star(100, 0, seed))
        truth = coverage.sampled(game, target, 30_000, np.random.default_rng(seed))
        answers = coverage.answers(coverage.Judged(game, target, *truth), 5, seed)
        assert answers is not None
        held.append(answers["default"].held)
    assert np.mean(held) > 0.85


def test_a_truth_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truths, "cache_dir", lambda: tmp_path)
    probes = np.array([0.25, 1 / 3])
    values, errors = truths.stored("how", probes, lambda: (np.ones(2), np.zeros(2)))
    again, _ = truths.stored("how", probes, lambda: pytest.fail("it was kept"))
    assert (again == values).all()
    assert not errors.any()
    other, _ = truths.stored("how", 2 * probes, lambda: (np.zeros(2), np.zeros(2)))
    assert not other.any()


def test_a_sampled_truth_is_as_far_from_the_exact_one_as_it_says() -> None:
    game, target = coverage.node_game(*coverage.star(12, 1, 3))
    truth = coverage.exact(game, target)
    assert truth is not None
    values, errors = coverage.sampled(game, target, 20_000, np.random.default_rng(0))
    assert np.abs(values - truth).max() < 5 * errors.max()
    assert ((values - truth) ** 2).sum() < 0.01 * (truth**2).sum()
    assert values.sum() == pytest.approx(truth.sum())


def test_a_new_game_has_no_calls() -> None:
    game, target = coverage.node_game(*coverage.star(5, 0, 0))
    with torch.no_grad():
        coverage.values_of(game, target, np.ones((1, 5), dtype=bool))
    again = coverage.fresh(game)
    assert isinstance(again, GraphGame)
    assert again.calls == 0
