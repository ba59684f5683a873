"""The ablation study: its calculations by hand, and a quick version of the whole."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from graphsvx.studies.ablation.reduction import Left

from graphsvx import GraphSVX, explain
from graphsvx.estimators.least_squares import WLS
from graphsvx.games.base import FunctionGame
from graphsvx.masks import All
from graphsvx.studies import Desk, ablation
from graphsvx.studies.ablation import base, fits, indirect, reduction, subgraph
from tests.records import credit, house

# house(): 402 is explained; 400 .31, 401 .24 (1 hop), 403 .12, 404 .10, 17 -.05, 3 .004, 88 -.01;
# features 0 .06, 4 -.015; prediction .97, base .211.
ABSOLUTE = 0.31 + 0.24 + 0.12 + 0.10 + 0.05 + 0.004 + 0.01 + 0.06 + 0.015


def a_world(x: torch.Tensor) -> Any:
    graph = SimpleNamespace(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))
    return SimpleNamespace(dataset=SimpleNamespace(graph=graph, features=x.shape[1]))


def test_players_left_out_have_the_credit_that_they_got_when_they_played():
    explanation = house()
    far = reduction.beyond(explanation, 2)
    assert sorted(far) == [3, 17, 88]
    left = reduction.left_out(explanation, [4], far)
    assert left.credit == pytest.approx(-0.015 - 0.05 + 0.004 - 0.01)
    assert left.explainable == pytest.approx(0.759)
    assert left.absolute == pytest.approx((0.015 + 0.05 + 0.004 + 0.01) / ABSOLUTE)
    assert (left.kept, left.dropped) == (5, 4)


def test_a_share_is_a_ratio_of_sums_over_the_nodes_of_a_seed():
    # A node with nothing to explain does not blow the share up.
    first = [Left(0.1, 1.0, 0, 1, 1), Left(0.1, 1e-9, 0, 1, 1)]
    second = [Left(-0.1, 0.5, 0, 1, 1)]
    found = reduction.share([first, second])
    assert found.mean == pytest.approx((0.2 - 0.2) / 2, abs=1e-6)
    assert (found.count, found.seeds) == (3, 2)


def test_features_are_left_out_by_the_rule_of_the_method():
    # Column 0 is 0 to 4 evenly (mean 2, sigma 1.414), column 1 constant.
    x = torch.stack([torch.arange(5.0), torch.ones(5)], 1)
    world = a_world(x)
    assert reduction.dropped_features(world, 2, 0.1) == [0, 1]
    assert reduction.dropped_features(world, 3, 0.5) == [1]
    assert reduction.dropped_features(world, 3, 0.8) == [0, 1]
    assert reduction.bands(world, 3) == {0.1: [1], 0.25: [], 0.5: [], 1.0: [0]}


def test_groups_of_features_hold_each_once_and_are_counted_by_lambda():
    groups = reduction.dealt(list(range(100, 121)), seed=3)
    assert len(groups) == reduction.GROUPS
    assert sorted(one for group in groups for one in group) == list(range(100, 121))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    assert groups != reduction.dealt(list(range(100, 121)), seed=4)
    names = ("0.1/0", "0.25/0", "0.5/0", "feature 7")
    explanation = replace(
        house(), feature_credit=credit([0, 1, 2, 7], [0.1, 0.02, 0.004, 0.3], names=names)
    )
    left = reduction.left_out_groups(explanation, 0.25, dropped=40, features=50)
    assert left.credit == pytest.approx(0.12)
    assert (left.kept, left.dropped) == (17, 40)
    assert isnan(left.absolute)


def test_without_its_ends_an_additive_game_is_fitted_as_well():
    weights = torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64)

    def play(rows: np.ndarray) -> torch.Tensor:
        return 0.3 + torch.from_numpy(rows).double() @ weights

    game = FunctionGame(play, 3)
    masks = All(separate=True)(game, 8, torch.Generator())
    values = game.values(masks.states)
    full = torch.tensor([0.7], dtype=torch.float64)
    found = fits.NoEnds()(masks, values, torch.tensor([0.3], dtype=torch.float64), full)
    assert found.values[0].tolist() == pytest.approx(weights.tolist())
    assert float(found.base) == pytest.approx(0.3)
    assert bool(found.errors.isnan().all())
    # What the ends say is not looked at, unlike by the usual fit.
    moved = fits.NoEnds()(masks, values, torch.tensor([9.0], dtype=torch.float64), full)
    assert moved.values.tolist() == found.values.tolist()
    assert float(moved.base) == pytest.approx(0.3)
    usual = WLS()(masks, values, torch.tensor([9.0], dtype=torch.float64), full)
    assert usual.values[0].tolist() != pytest.approx(found.values[0].tolist())


def test_without_its_ends_a_game_is_fitted_by_weight():
    # v = 1 for coalitions of two of three; sizes 1 and 2 weigh the same, a changed weight counts.
    game = FunctionGame(lambda rows: torch.from_numpy(rows[:, 0] & rows[:, 1]).double(), 3)
    masks = All(separate=True)(game, 8, torch.Generator())
    ends = torch.zeros(1).double(), torch.ones(1).double()
    values = game.values(masks.states)
    plain = fits.NoEnds()(masks, values, *ends)
    heavy = np.where(masks.rows[:, 0] & masks.rows[:, 1], 1e9, masks.weights)
    met = fits.NoEnds()(replace(masks, weights=heavy), values, *ends)
    pair = [0, 1]

    def says(fit: Any) -> float:
        return float(fit.base + fit.values[0, pair].sum())

    assert says(met) == pytest.approx(1, abs=1e-4)
    assert says(plain) < 0.9


def test_a_tie_is_no_other_top(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fits, "true_nodes", lambda *_: {400, 401})
    usual = house()
    ids = usual.node_ids.tolist()

    def with_credit(*values: float) -> Any:
        return replace(usual, node_credit=credit(ids, values))

    tied = with_credit(0.31, 0.12, 0.12, 0.1, -0.05, 0.0, 0.0)
    other = with_credit(0.31, 0.11, 0.13, 0.1, -0.05, 0.0, 0.0)
    assert fits.judge(None, other, tied, None).same == 1  # type: ignore[arg-type]  # not looked at
    assert fits.judge(None, other, usual, None).same == 0  # type: ignore[arg-type]  # the same
    judged = fits.judge(None, other, usual, usual)  # type: ignore[arg-type]  # the same
    size = sum(v**2 for v in [*usual.nodes.values(), 0.06, -0.015])
    off = 0.13**2 + 0.01**2 + 0.004**2 + 0.01**2
    assert judged.error == pytest.approx(off / size)
    assert judged.residual == pytest.approx(abs(0.97 - 0.211 - 0.6 - 0.045))


def test_what_the_indirect_effect_adds_is_paired_by_seed():
    rows = indirect.ROWS[0]
    scores: Any = {
        (rows, False, "tree-cycles", "strict"): [[0.5, 0.7], [0.2]],
        (rows, "mean", "tree-cycles", "strict"): [[0.6, 0.8], [0.4]],
        (rows, False, "tree-grid", "strict"): [[0.5], [0.5]],
        (rows, "mean", "tree-grid", "strict"): [[0.4], [0.5]],
    }
    found = indirect.gain(scores, rows, "mean", "strict", ["tree-cycles", "tree-grid"])
    # Seed 0: (+.1 - .1) / 2, seed 1: (+.2 + 0) / 2.
    assert found.mean == pytest.approx(0.05)
    assert (found.count, found.seeds) == (5, 2)
    # Over the two seeds, not over four differences: t for one degree of freedom, spread .1 / 2.
    assert found.reach == pytest.approx(12.706 * 0.05, rel=1e-3)
    assert indirect.near(house()) == pytest.approx(0.55)


def test_the_distance_of_distributions_is_total_variation():
    assert base.distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])) == 1
    assert base.distance(torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25])) == 0.25
    paper = base.distance(torch.tensor(base.PAPER_BASE), torch.tensor(base.PAPER_BALANCE))
    assert paper == pytest.approx(0.03, abs=1e-6)


def test_informative_features_are_counted_among_as_many():
    truth = SimpleNamespace(informative_features=frozenset({0, 4}))
    world: Any = SimpleNamespace(dataset=SimpleNamespace(node_truth=truth))
    explanation = replace(house(), feature_credit=credit([0, 4, 5], [0.06, -0.5, 0.05]))
    assert subgraph.found_features(world, explanation, "value") == 0.5
    assert subgraph.found_features(world, explanation, "absolute") == 1
    assert subgraph.playing(world, replace(explanation, feature_credit=credit([0], [1.0]))) == 0.5
    # Feature 5 is the strongest on the whole, feature 4 comes next, in one explanation only.
    other = replace(house(), feature_credit=credit([0, 4, 5], [0.06, 0.0, 0.9]))
    assert subgraph.on_the_whole(world, [explanation, other, other]) == 0.5
    assert subgraph.on_the_whole(world, [explanation]) == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    folder: Path = tmp_path_factory.mktemp("ablation")
    desk = Desk(folder / "out", folder / "runs", quick=True, workers=1)
    files = ablation.STUDY.run(desk)
    assert {file.name for file in files} == {
        "ablation.md", "ablation.json", "ablation-hops.png", "ablation-indirect.png",
        "ablation-indirect-example.png",
    }  # fmt: skip
    text = (folder / "out" / "ablation.md").read_text()
    return text, json.loads((folder / "out" / "ablation.json").read_text())


def rows_of(record: dict, title: str) -> list[dict]:
    return next(table["rows"] for table in record["tables"] if table["title"].startswith(title))


def test_the_page_has_every_part_with_the_paper_s_figures(made: tuple[str, dict]):
    text, record = made
    assert "Failures" not in text
    assert all(f"## {title}" in text for title in ablation.PARTS)
    reduced = rows_of(record, "Player reduction")
    beyond = [row for row in reduced if row["left out"] == "nodes beyond 2 hops"]
    assert [row["part of the explainable part"]["paper"] for row in beyond] == ["8 %"]
    assert all(row["explanations"] == 3 for row in reduced)
    gains = rows_of(record, "What the indirect effect adds")
    assert {row["tree sets, `strict`"]["paper"] for row in gains} == {0.19}
    named = {row["features"]: row for row in rows_of(record, "BA-Community")}
    assert named["the node's own"]["paper's nodes, signed"]["paper"] == 0.65
    assert named["of the subgraph"]["paper's nodes, signed"]["paper"] == 1.0


def test_random_credit_stands_in_every_table_of_accuracy(made: tuple[str, dict]):
    record = made[1]
    for title, first in (
        ("Indirect effect on and off", "coalitions"),
        ("How values become credit: accuracy", "coalitions"),
        ("BA-Community", "features"),
    ):
        assert "Random" in [row[first] for row in rows_of(record, title)]


def test_only_fits_with_their_ends_share_the_whole_prediction_out(made: tuple[str, dict]):
    residual = "Tree-Cycles, residual"
    rows = rows_of(made[1], "How values become credit: the same")
    by_fit = {(row["coalitions"], row["fit"]): row[residual]["mean"] for row in rows}
    for (_, fit), value in by_fit.items():
        assert (value < 1e-9) == (fit != fits.NO_ENDS)


def test_a_fit_of_one_s_own_is_not_called_exact():
    torch.manual_seed(0)
    data = SimpleNamespace(
        x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1, 2, 3, 1], [1, 0, 0, 0, 2]])
    )

    def model(x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        seen = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return torch.stack([seen.sum(1) ** 2, x.sum(1)], 1)

    method = GraphSVX(mask=All(separate=True), regression=fits.NoEnds())
    explanation = explain(model, data, node=0, method=method)
    assert not explanation.certificate.exact
    assert not isnan(explanation.base)
