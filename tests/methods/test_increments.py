"""Calls are added in increments, until errors are small enough or a limit is reached."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GIN

from graphsvx import GraphSVX, explain
from graphsvx.estimators import WLR, WLS
from graphsvx.estimators.least_squares import Fit
from graphsvx.games.base import FunctionGame
from graphsvx.games.graph_game import GraphGame
from graphsvx.masks import Paired, Random
from graphsvx.methods import increments
from graphsvx.methods.increments import Goal
from graphsvx.methods.pipeline import Sampling
from tests.worlds import random_graph, random_model, seeded, star, tree


@pytest.fixture(scope="module")
def world():
    """A node with some thirty others in reach."""
    return random_model("gcn", 2), random_graph(2, nodes=34, chance=0.25)


def fit(values: list[float], errors: list[float]) -> Fit:
    one = torch.zeros(1, dtype=torch.float64)
    return Fit(torch.tensor([values]), torch.tensor([errors]), one, one)


def test_calls_needed_follow_the_largest_error() -> None:
    goal = Goal(tolerance=0.1)
    needed = goal.needed([fit([1.0, 2.0], [0.1, 0.3]), fit([5.0], [0.01]), fit([1.0], [np.nan])])
    assert needed == [pytest.approx(9, rel=1e-5), pytest.approx(0.01, rel=1e-5), np.inf]


def test_calls_needed_follow_the_relative_error() -> None:
    goal = Goal(relative=0.1)
    exact, rough = fit([3.0, 4.0], [0.0, 0.0]), fit([0.0], [1.0])
    assert goal.needed([exact, rough]) == [0, pytest.approx(4, rel=1e-5)]
    assert goal.needed([exact, fit([1.0], [np.nan])]) == [0, 0]
    assert goal.needed([fit([0.0], [0.0])]) == [0]


def test_by_default_calls_go_on_until_one_percent(world) -> None:
    model, data = world
    few = explain(model, data, node=1, method=GraphSVX(samples=1000, players="nodes"))
    many = explain(model, data, node=1, method=GraphSVX(players="nodes"))
    assert few.certificate.calls <= 1000
    assert few.certificate.relative_error > increments.RELATIVE_ERROR
    assert few.certificate.calls_needed is None  # nothing but `samples` was asked for
    assert 1000 < many.certificate.calls <= increments.MOST_CALLS_OF_DIFFERENCES
    assert many.certificate.relative_error < few.certificate.relative_error
    game = many.certificate.games[0]
    assert game.model.startswith("Gaussian process")
    assert 0.5 < game.held_out_r2 <= 1
    again = explain(model, data, node=1, method=GraphSVX(players="nodes"))
    assert torch.equal(many.node_credit.values, again.node_credit.values)


def test_calls_end_where_the_size_of_the_field_ends_them(world, monkeypatch) -> None:
    model, data = world
    monkeypatch.setattr(increments, "_WORK", 24.0 * 34 * 2500)
    monkeypatch.setattr(increments, "_HARD", np.inf)  # pairs only
    certificate = explain(model, data, node=1, method=GraphSVX(players="nodes")).certificate
    assert 1000 < certificate.calls <= 2500
    assert certificate.calls_needed > certificate.calls
    assert "1 % relative error needs about" in certificate.line()


@pytest.mark.parametrize("mask", [Paired(), Random()])
def test_earlier_increments_count(world, mask) -> None:
    model, data = world
    method = GraphSVX(mask=mask, samples=60, tolerance=1e-9, max_samples=700, estimator=WLS())
    certificate = explain(model, data, node=1, method=method).certificate
    assert certificate.tolerance_met is False
    assert 400 < certificate.calls <= 700


def test_a_tolerance_that_was_not_met_names_the_calls(world) -> None:
    model, data = world
    rough = explain(model, data, node=1, method=GraphSVX(players="nodes", samples=300))
    goal = float(rough.errors.max()) / 2
    method = GraphSVX(players="nodes", samples=100, tolerance=goal, max_samples=300)
    certificate = explain(model, data, node=1, method=method).certificate
    assert certificate.tolerance_met is False
    assert 300 < certificate.calls_needed < 30_000
    assert "the tolerance needs about" in certificate.line()
    method = method.with_settings(max_samples=20 * certificate.calls_needed)
    assert explain(model, data, node=1, method=method).certificate.tolerance_met is True


def test_increments_are_logged(world, caplog) -> None:
    model, data = world
    with caplog.at_level(logging.INFO, logger="graphsvx"):
        explain(model, data, node=1, method=GraphSVX(samples=60, tolerance=1e-4, max_samples=500))
    assert "calls, largest standard error" in caplog.text


def test_a_limit_of_time_is_in_the_certificate(world) -> None:
    model, data = world
    method = GraphSVX(players="nodes", seconds=1e-6)
    certificate = explain(model, data, node=1, method=method).certificate
    assert certificate.by_clock
    assert certificate.calls <= 200
    assert "another run may differ" in certificate.line()
    more = explain(model, data, node=1, method=method.with_settings(seconds=30.0, samples=900))
    assert 200 < more.certificate.calls <= 900


def test_without_errors_there_is_one_round(world) -> None:
    model, data = world
    method = GraphSVX(players="nodes", estimator=WLR())
    assert explain(model, data, node=1, method=method).certificate.calls <= 1000


def test_smaller_budgets_are_beginnings_of_larger_ones() -> None:
    for players in (9, 14, 40):
        game = FunctionGame(lambda rows: torch.from_numpy(rows.sum(1)), players)
        seen: set[bytes] = set()
        for budget in (100, 300, 1200):
            masks = Paired()(game, budget, torch.Generator().manual_seed(0))
            rows = {row.tobytes() for row in masks.rows}
            assert seen <= rows
            seen = rows


def test_few_more_calls_than_the_usual_ones_are_made_at_once(
    world, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = world
    fits = []
    fit_all = Sampling.fit_all
    monkeypatch.setattr(Sampling, "fit_all", lambda *args: fits.append(args) or fit_all(*args))
    monkeypatch.setattr(increments, "_HARD", np.inf)  # pairs only
    for allowed, first, later in ((1800, 1800, False), (6000, 1000, True)):
        monkeypatch.setattr(increments, "_calls_in_batches", lambda *_, most=allowed: most)
        fits.clear()
        explanation = explain(model, data, node=1, method=GraphSVX(players="nodes"))
        assert first - 10 <= explanation.certificate.calls <= allowed
        assert (len(fits) > 1) == later


@pytest.fixture(scope="module")
def hub():
    """A node with 150 neighbours, each of which hears four others; probabilities are steep."""
    rng = np.random.default_rng(0)
    leaves = np.arange(1, 151)
    far = 151 + np.arange(600)
    ends = np.stack([np.concatenate([leaves, far]), np.concatenate([0 * leaves, leaves.repeat(4)])])
    edges = torch.from_numpy(np.concatenate([ends, ends[::-1]], 1))
    x = torch.from_numpy(rng.normal(size=(751, 6)))
    model = random_model("sage", 1, features=6)
    return model, Data(x=6 * x, edge_index=edges)


def test_hard_games_are_measured_by_differences(hub) -> None:
    model, data = hub
    by_default = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    game = by_default.certificate.games[0]
    assert "differences of" in game.model
    assert 1000 < game.calls <= increments.MOST_CALLS_OF_DIFFERENCES
    assert game.coalitions > 500
    assert game.held_out_r2 is not None
    total = float(by_default.node_credit.values[0].sum())
    assert by_default.base + total == pytest.approx(by_default.prediction, abs=1e-9)
    few = explain(model, data, node=0, method=GraphSVX(players="nodes", samples=1000))
    assert by_default.certificate.relative_error < 0.5 * few.certificate.relative_error
    again = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    assert torch.equal(by_default.node_credit.values, again.node_credit.values)
    other = explain(model, data, node=0, method=GraphSVX(players="nodes"), seed=1)
    apart = (by_default.node_credit.values - other.node_credit.values)[0]
    error = (by_default.node_credit.errors.square() + other.node_credit.errors.square()).sqrt()[0]
    assert float((apart.abs() <= 1.96 * error).double().mean()) > 0.9


def test_differences_keep_to_a_limit_and_are_not_used_where_values_will_be_exact(
    hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = hub
    few = explain(model, data, node=0, method=GraphSVX(players="nodes", samples=1000))
    tolerance = 0.6 * float(few.errors.max())
    method = GraphSVX(players="nodes", samples=1000, tolerance=tolerance)
    precise = explain(model, data, node=0, method=method)
    assert "differences of" in precise.certificate.games[0].model
    assert precise.certificate.tolerance_met is True
    assert float(precise.errors.max()) <= tolerance
    method = GraphSVX(players="nodes", samples=24_000)
    certificate = explain(model, data, node=0, method=method).certificate
    assert "differences of" in certificate.games[0].model
    assert 22_000 < certificate.calls <= 24_000
    assert certificate.calls_needed is None
    monkeypatch.setattr(increments, "_HARD", 0.0)
    small = random_graph(3, nodes=12, chance=0.4)
    method = GraphSVX(players="nodes", samples=30, tolerance=1e-12)
    assert explain(random_model("gcn", 3), small, node=1, method=method).certificate.exact


def test_differences_end_where_coalitions_have_known_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few calls are new in a tree; coalitions must end all the same."""
    monkeypatch.setattr(GraphGame, "most_look_ups", 0)
    monkeypatch.setattr(increments, "_HARD", 0.0)
    monkeypatch.setattr(
        increments, "expected_errors", lambda *_: (1.0, 0.0)
    )  # differences are better
    data, model = tree(20), seeded(lambda: GIN(3, 8, 3, 2, act="tanh"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
    method = GraphSVX(players="nodes", mask=Paired(), tolerance=1e-9, max_samples=20_000)
    certificate = explain(model, data, node=0, method=method).certificate
    assert "differences of" in certificate.games[0].model
    assert certificate.games[0].coalitions <= 20_000


def test_large_games_are_played_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than two calls a player are never enough, so nothing is fitted to them."""
    data = star(520)
    budgets: list[int] = []
    fit_all = Sampling.fit_all

    def counted(sampling, played, outputs):
        budgets.extend(game.budget for game in played)
        return fit_all(sampling, played, outputs)

    monkeypatch.setattr(Sampling, "fit_all", counted)
    monkeypatch.setattr(increments, "MOST_CALLS", 5000)
    explain(random_model("gcn", 2), data, node=0, method=GraphSVX(players="nodes", estimator=WLS()))
    assert budgets == [5000]
    budgets.clear()
    few = data.subgraph(torch.arange(400))
    explain(random_model("gcn", 2), few, node=0, method=GraphSVX(players="nodes", estimator=WLS()))
    assert budgets[0] == 1000


def test_increments_end_where_fewer_calls_are_left_than_were_made(
    world, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coalitions of a larger budget may be others, for all of which there are no calls left."""
    model, data = world
    budgets: list[int] = []
    play = Sampling.play

    def with_few_left(sampling, game, budget, most=None):
        if most is None:  # the first increment
            return play(sampling, game, budget)
        budgets.append(budget)
        assert len(budgets) < 10, "increments go on for ever"
        return play(sampling, game, 40 if len(budgets) > 1 else budget, most)

    monkeypatch.setattr(Sampling, "play", with_few_left)
    monkeypatch.setattr(increments, "_HARD", np.inf)  # pairs only
    monkeypatch.setattr(increments, "_MOST_GROWTH", 3.0)
    explanation = explain(model, data, node=1, method=GraphSVX(players="nodes"))
    assert budgets == [3000, 9000]
    assert explanation.certificate.games[0].budget == 3000
