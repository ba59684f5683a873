"""The study of budgets: paired differences, careful words, and its page."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path

import pytest
from graphsvx.studies.budget import moved
from graphsvx.studies.budget_figures import (
    ALL,
    OURS,
    PAPER,
    SMARTER,
    Found,
    Steps,
    differences,
    halves,
)
from graphsvx.studies.scoring import Score

from graphsvx.studies import Desk, Estimate, budget


def score(node: int, paper: float = nan, error: float = nan) -> Score:
    return Score(node, paper, strict=nan, auroc=nan, error=error, calls=10, exact=False)


def test_differences_are_taken_node_by_node():
    before = [[score(1, 0.5), score(2, 1.0)], [score(7, 0.0)]]
    after = [[score(2, 0.8), score(1, 0.6), score(3, 1.0)], [score(7, 1.0)]]
    found = differences(before, after, lambda one: one.paper)
    assert found[0] == pytest.approx([-0.2, 0.1])
    assert found[1] == [1.0]


def test_the_halves_are_those_of_small_and_of_large_error():
    mine = [[score(1, 0.2, 9.0), score(2, 0.9, 0.1), score(3, 0.7, 0.2), score(4, 0.4, 8.0),
             score(5, nan, 0.0)]]  # fmt: skip
    exact = [[score(n, 0.6) for n in range(1, 6)]]
    near, far = halves(Found({(SMARTER, 50): mine, (ALL, 0): exact}), (SMARTER, 50))
    assert near.mean == pytest.approx(0.2)
    assert far.mean == pytest.approx(-0.3)
    assert (near.count, far.count) == (2, 2)


def test_a_change_is_claimed_only_where_its_interval_leaves_no_doubt():
    assert moved(Estimate(0.1, 0.02, 0.18, 9, 3)).startswith("rises (+0.10 ± 0.08)")
    assert moved(Estimate(-0.1, -0.18, -0.02, 9, 3)).startswith("falls (-0.10")
    assert "not change measurably" in moved(Estimate(-0.1, -0.3, 0.1, 9, 3))
    assert "not change measurably" in moved(Estimate(0.1, -0.1, 0.3, 9, 3))
    assert "not change measurably" in moved(Estimate(-0.1, nan, nan, 1, 1))


def test_the_page_has_both_estimators_and_the_paper_s_figures(tmp_path: Path):
    desk = Desk(tmp_path / "out", tmp_path / "runs", quick=True, workers=1)
    files = budget.STUDY.run(desk)
    assert {file.name for file in files} == {
        "budget.md", "budget.json", "budget-samples.png", "budget-order.png",
    }  # fmt: skip
    assert "Failures" not in (tmp_path / "out" / "budget.md").read_text()
    record = json.loads((tmp_path / "out" / "budget.json").read_text())
    letter, paper, strict, _, error, by_order, *_ = record["tables"]
    assert [(row["estimator"], row["samples"]) for row in letter["rows"]] == [
        (SMARTER, 50), (ALL, None), ("Random explainer", None),
    ]  # fmt: skip
    assert [(row["estimator"], row["samples"]) for row in paper["rows"]] == [
        (SMARTER, 50), (SMARTER, 150), (OURS, 50), (OURS, 150), (ALL, None),
        ("Random explainer", None),
    ]  # fmt: skip
    assert paper["rows"][-2]["Tree-Cycles"]["paper"] == PAPER[ALL]
    assert all(row["Tree-Cycles"]["count"] == 2 for row in strict["rows"])
    assert [row["S"] for row in by_order["rows"]] == [1, 2, "Random explainer"]
    errors = {(r["estimator"], r["samples"]): r["Tree-Cycles"]["mean"] for r in error["rows"]}
    # Ours is consistent: three times the rows bring it nearer.
    assert errors[OURS, 150] < errors[OURS, 50]


def test_the_paper_s_numbers_of_samples_are_among_the_steps():
    steps = Steps()
    assert {n for n in PAPER if isinstance(n, int)} <= set(steps.samples)
    assert steps.orders == (1, 2, 3, 4, 5)
