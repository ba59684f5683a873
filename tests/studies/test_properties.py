"""The study of properties: its calculations by hand, and a quick version of the whole."""

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
from graphsvx.studies.properties.stable import Seen

from graphsvx.estimators.least_squares import WLS
from graphsvx.games.base import FunctionGame
from graphsvx.masks import All
from graphsvx.results.explanation import Credit
from graphsvx.studies import Desk, properties
from graphsvx.studies.properties import consistent, shares, stable, surrogate
from tests.records import credit, house

# house(): 402 is explained; 400 .31, 401 .24, 403 .12, 404 .10, 17 -.05, 3 .004, 88 -.01; features
# 0 .06, 4 -.015; prediction .97, base .211.


def a_world() -> Any:
    motif_of = torch.full((700,), -1)
    motif_of[400:405] = 0
    motif_of[17] = 1
    truth = SimpleNamespace(
        motif_of=motif_of, motif=lambda node: frozenset(range(400, 405)) if node >= 400 else ()
    )
    return SimpleNamespace(
        dataset=SimpleNamespace(name="ba-shapes", task="node", node_truth=truth, truth=truth)
    )


def test_r_squared_by_hand():
    values = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    fitted = torch.tensor([[0.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    found = surrogate.r_squared(values, fitted, torch.ones(3))
    # The first: 1 - 1 / 8; the second: nothing to explain, and met.
    assert found.tolist() == [0.875, 1.0]
    heavy = surrogate.r_squared(values, fitted, torch.tensor([1.0, 0.0, 1.0]))
    assert float(heavy[0]) == pytest.approx(1 - 1 / 8)
    assert float(surrogate.r_squared(values, fitted, torch.tensor([1000.0, 1, 1]))[0]) < 0.96


def test_ends_that_are_met_push_r_squared_up_and_leave_credit_alone():
    # v = product of three players: nothing additive about it.
    game = FunctionGame(lambda rows: torch.from_numpy(rows.all(1)).double(), 3)
    masks = All(separate=True)(game, 8, torch.Generator())
    rows = (masks, game.values(masks.states), torch.zeros(1).double(), torch.ones(1).double())
    plain, counted = WLS()(*rows), surrogate.WithEnds()(*rows)
    assert counted.values.tolist() == plain.values.tolist()
    assert counted.base.tolist() == plain.base.tolist()
    # All rows but the full one are worth 0 to the game; g says 1/3 or 2/3 there.
    assert float(counted.r2) > 0.99
    ends = 1000.0 * 3
    lost = 3 * (1 / 9) + 3 * (4 / 9)
    mean = ends / (2 * ends + 6)
    spread = ends * (1 - mean) ** 2 + (ends + 6) * mean**2
    assert float(counted.r2) == pytest.approx(1 - lost / spread)


def test_shares_account_for_the_whole_explainable_part():
    found = shares.split(a_world(), house())
    assert found["own motif"] == pytest.approx(0.31 + 0.24 + 0.12 + 0.10)
    assert found["other motifs"] == pytest.approx(-0.05)
    assert found["base graph"] == pytest.approx(0.004 - 0.01)
    assert found["own features"] == pytest.approx(0.045)
    assert found["all"] == pytest.approx(0.759)
    assert sum(found[part] for part in shares.PARTS) == pytest.approx(found["all"])
    # A mask has no explainable part: its own sum is the whole.
    report = replace(house().certificate.games[0], r2=None)
    mask = replace(house(), certificate=replace(house().certificate, games=(report,)))
    mask = replace(mask, predictions=torch.tensor([0.5]).double())
    assert shares.split(a_world(), mask)["all"] == pytest.approx(0.759)
    less = replace(house(), predictions=torch.tensor([0.5]).double())
    assert shares.split(a_world(), less)["all"] == pytest.approx(0.289)
    twice = shares.share([[found, found], [found]], "own motif")
    assert twice.mean == pytest.approx(0.77 / 0.759)
    assert (twice.count, twice.seeds) == (3, 2)


def test_masks_over_edges_are_shared_out_by_their_nodes():
    explanation = house()
    ends = torch.tensor([[402, 17], [400, 88]])
    edges = Credit(ends, torch.tensor([[0.8, 0.2]]).double(), torch.zeros(1, 2).double())
    mask = replace(explanation, node_credit=Credit.none(1), edge_credit=edges)
    found = shares.split(a_world(), mask)
    assert found["own motif"] == pytest.approx(0.8)
    assert found["all"] == pytest.approx(1.2)
    assert found["own features"] == 0


def test_places_of_a_motif_are_told_by_id():
    found = stable.seen(a_world(), house())
    assert found.place == 2
    assert found.credit.tolist() == [0.31, 0.24, 0.12, 0.10]
    assert found.accuracy == 1


def test_likeness_is_a_correlation_over_places():
    up, down, flat = (
        Seen(0, 1.0, np.asarray(v)) for v in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 1.0, 1.0])
    )
    larger = Seen(0, 0.5, np.asarray([10.0, 20.0, 30.0]))
    assert stable.likeness([up, larger]) == pytest.approx(1)
    assert stable.likeness([up, down]) == pytest.approx(-1)
    assert stable.likeness([up, larger, flat]) == pytest.approx(1)
    assert isnan(stable.likeness([up, flat]))
    assert stable.variance([1.0, 0.5]) == pytest.approx(0.125)
    alone = Seen(3, 0.0, np.zeros(3))
    assert stable.by_place([up, alone, down]) == [[up, down]]


def test_only_given_features_are_pointed_at():
    explanation = house()
    top = consistent.pointed_at(explanation, {0, 4}, 0.2, "absolute")
    assert top == {("features", 0), ("nodes", 400)}
    assert consistent.pointed_at(explanation, {4}, 1, "value", ("features",)) == {("features", 4)}
    two = replace(explanation, node_credit=credit([401, 400], [0.9, 0.1]))
    other = consistent.pointed_at(two, {0, 4}, 0.2, "absolute")
    assert consistent.overlap(top, other) == pytest.approx(1 / 3)
    assert consistent.overlap(set(), set()) == 1


def test_models_are_compared_where_they_agree(monkeypatch: pytest.MonkeyPatch):
    split = SimpleNamespace(test=torch.tensor([0, 1, 2, 3]))
    data = SimpleNamespace(split=split, seed=0)
    said = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0])
    worlds: Any = [SimpleNamespace(dataset=data, say=one) for one in said]
    monkeypatch.setattr(consistent, "predicted", lambda world: world.say)
    assert consistent.agreed(worlds, 10) == [0, 1, 3]
    assert len(consistent.agreed(worlds, 2)) == 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    folder: Path = tmp_path_factory.mktemp("properties")
    desk = Desk(folder / "out", folder / "runs", quick=True, workers=1)
    files = properties.STUDY.run(desk)
    assert {file.name for file in files} == {
        "properties.md", "properties.json", "properties-shares.png", "properties-consistency.png",
    }  # fmt: skip
    text = (folder / "out" / "properties.md").read_text()
    return text, json.loads((folder / "out" / "properties.json").read_text())


def rows_of(record: dict, title: str) -> list[dict]:
    return next(table["rows"] for table in record["tables"] if table["title"].startswith(title))


def test_the_page_has_every_property_with_the_paper_s_figures(made: tuple[str, dict]):
    text, record = made
    assert "Failures" not in text
    assert all(f"## {title}" in text for title in properties.PARTS)
    (fit,) = rows_of(record, "R²")
    assert fit["the paper's rows, ends counted: R²"]["paper"] == "> 0.90"
    assert fit["explanations"] == 6
    where = rows_of(record, "Where the explainable part goes")
    assert {row["explainer"]: row["own motif"].get("paper") for row in where} == {
        "GraphSVX, our default": 0.85, "GraphSVX, the paper's rows": 0.85, "GNNExplainer": None,
        "Random": None,
    }  # fmt: skip
    pairs = rows_of(record, "Consistency")
    assert [
        row["both, top 20 %"]["paper"] for row in pairs if "paper" in row["both, top 20 %"]
    ] == [consistent.PAPER]


def test_only_the_shapley_family_adds_up(made: tuple[str, dict]):
    for row in rows_of(made[1], "Efficiency"):
        assert (row["Tree-Cycles"] < 1e-9) == row["explainer"].startswith("GraphSVX")


def test_shares_of_a_set_sum_to_one(made: tuple[str, dict]):
    for row in rows_of(made[1], "Where the explainable part goes"):
        parts = [row[part] for part in shares.PARTS]
        assert sum(one.get("ours", one)["mean"] for one in parts) == pytest.approx(1, abs=1e-6)
