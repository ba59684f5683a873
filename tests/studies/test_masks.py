"""The study of mask generators, and the figures that it shares with the study of budgets."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest
import torch
from graphsvx.studies.chosen import NODE_SETS
from graphsvx.studies.mask_generators import ALL, FLOOR, LETTER, OURS, PAPER, ROWS, TUNED, fates
from graphsvx.studies.scoring import Elsewhere, Plan, middle, own_error, relative_error

from graphsvx.errors import InputError
from graphsvx.games.base import FunctionGame
from graphsvx.masks import Auto, Paired
from graphsvx.studies import Desk, mask_generators, scoring
from tests.records import credit, house

# house(): the motif of 402 is 400..404; its credit is .31 .24 .12 .10, then -.05 for 17.
MOTIF = frozenset(range(400, 405))


def test_the_error_is_the_squared_distance_as_a_share_of_the_reference():
    exact = house()
    assert relative_error(exact, exact) == 0
    ids = exact.node_ids.tolist()
    off = replace(exact, node_credit=credit(ids, [0.41, 0.24, 0.12, 0.10, -0.05, 0.004, -0.01]))
    size = sum(v**2 for v in [*exact.nodes.values(), *exact.features.values()])
    assert relative_error(off, exact) == pytest.approx(0.01 / size)
    # Credit that is nowhere has no relative error, and other players are no mistake to average.
    nothing = replace(exact, node_credit=credit([], []), feature_credit=credit([], []))
    assert isnan(relative_error(nothing, nothing))
    with pytest.raises(InputError, match="same players"):
        relative_error(nothing, exact)


def test_an_estimate_expects_the_error_of_its_bars():
    exact = house()
    assert own_error(exact) == 0
    ids, values = exact.node_ids.tolist(), exact.node_values.tolist()
    unsure = replace(exact, node_credit=credit(ids, values, errors=[0.1] + [0.0] * 6))
    size = sum(v**2 for v in [*values, *exact.features.values()])
    assert own_error(unsure) == pytest.approx(0.01 / size)


def test_the_median_of_a_seed_is_not_moved_by_one_huge_error():
    found = middle([[0.1, 0.2, 1e9, nan], [0.4], []])
    assert found.mean == pytest.approx(0.3)
    assert (found.count, found.seeds) == (4, 2)


def test_every_node_of_the_truth_has_one_outcome():
    explanation = house()
    assert fates(explanation, MOTIF, "value") == {
        "found": 1.0, "beyond reach": 0, "no credit, or credit against": 0, "outranked": 0,
    }  # fmt: skip
    ids = [400, 401, 403, 17, 3, 88]
    # 404 does not play; 401 speaks against, 403 has nothing; 400 is found.
    other = replace(explanation, node_credit=credit(ids, [0.5, -0.1, 0.0, 0.3, 0.2, 0.1]))
    assert list(fates(other, MOTIF, "value").values()) == [0.25, 0.25, 0.5, 0]
    # By magnitude 401 is found too, and three others leave no place for 403.
    other = replace(explanation, node_credit=credit(ids, [0.5, -0.4, 0.01, 0.3, 0.2, 0.1]))
    assert list(fates(other, MOTIF, "absolute").values()) == [0.5, 0.25, 0, 0.25]


def test_the_reference_shares_no_luck_and_is_the_same_every_time():
    def game() -> FunctionGame:
        return FunctionGame(lambda rows: torch.zeros(len(rows)), 20)

    def rows(mask) -> np.ndarray:
        return mask(game(), 200, torch.Generator().manual_seed(0)).rows

    plain, other, again = rows(Auto()), rows(Elsewhere()), rows(Elsewhere())
    assert not np.array_equal(plain, other)
    assert np.array_equal(other, again)
    assert not Elsewhere(Paired(), separate=False).separate


def test_the_paper_s_samples_are_played_in_one_game():
    plan = Plan(NODE_SETS)
    assert [plan.choice(name).method.samples for name in NODE_SETS] == [400, 800, 1400, 1500]
    for name in NODE_SETS:
        method = plan.choice(name).method
        more = scoring.reference_method(method)
        assert more.samples == 20 * method.samples
        # The same game, or the error would be a difference of games.
        assert replace(more, samples=method.samples, mask=method.mask) == method


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    folder: Path = tmp_path_factory.mktemp("masks")
    desk = Desk(folder / "out", folder / "runs", quick=True, workers=1)
    files = mask_generators.STUDY.run(desk)
    assert {file.name for file in files} == {
        "masks.md", "masks.json", "masks-accuracy.png", "masks-example.png",
    }  # fmt: skip
    text = (folder / "out" / "masks.md").read_text()
    return text, json.loads((folder / "out" / "masks.json").read_text())


def test_the_page_has_every_mask_with_the_paper_s_figures(made: tuple[str, dict]):
    text, record = made
    assert "Failures" not in text
    paper, strict, auroc, error, *_ = record["tables"]
    assert [row["mask"] for row in paper["rows"]] == list(ROWS)
    here = NODE_SETS.index("ba-community")
    for row in paper["rows"]:
        cell = row["BA-Community"]
        if row["mask"] in PAPER:
            assert cell["paper"] == PAPER[row["mask"]][here]
        assert cell.get("ours", cell)["count"] == 2
    assert [row["BA-Community"]["count"] for row in strict["rows"]] == [2] * len(ROWS)
    assert len(auroc["rows"]) == len(ROWS)
    # Four nodes, judged but for the references themselves and the random one.
    others = {FLOOR, LETTER, TUNED, ALL, "ours, 20x the calls"}
    assert {row["mask"] for row in error["rows"]} == set(ROWS) - others
    assert all(row["BA-Community"]["count"] == 4 for row in error["rows"])


def test_outcome_shares_of_the_truth_sum_to_one(made: tuple[str, dict]):
    shares = [row["BA-Community"]["mean"] for row in made[1]["tables"][-1]["rows"]]
    assert sum(shares) == pytest.approx(1)
    assert OURS in made[0]
