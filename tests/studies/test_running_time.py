"""The study of running times: a fair clock, and ratios node by node."""

from __future__ import annotations

import time

import pytest

from graphsvx_lab.metrics.measurements import Measurements, Row
from graphsvx_lab.studies import sampling
from graphsvx_lab.studies.sampling import GNN, PAPERS, take_turns


def test_contenders_take_turns_and_only_processor_time_counts():
    order: list[str] = []

    def work() -> None:
        order.append("work")
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    def sleep() -> None:
        order.append("sleep")
        time.sleep(0.02)

    seconds = take_turns({"work": work, "sleep": sleep}, 3)
    assert order == ["work", "sleep"] * 3
    assert seconds["work"] >= 0.02
    assert seconds["sleep"] < 0.01


def test_the_paper_s_samples_are_timed():
    settings = sampling.timed("tree-grid")
    assert settings[f"{PAPERS}, 2 hops"].method.budget.samples == 400
    assert settings[f"{PAPERS}, 3 hops"].method.players.hops == 3
    assert sampling.SECONDS[GNN]["Tree-Cycles"] == 6.89


def test_ratios_are_taken_node_by_node_and_stand_beside_the_paper_s():
    results = Measurements("time")
    for seed in range(5):
        for node, (slow, fast) in enumerate(((8.0, 2.0), (2.0, 1.0), (9.0, 3.0))):
            results.add(Row("tree-cycles", "", seed, GNN, node, "seconds"), slow)
            results.add(Row("tree-cycles", "", seed, f"{PAPERS}, 3 hops", node, "seconds"), fast)
    page = sampling.time.page(results)
    claim = next(claim for claim in page.claims if claim.on == "Tree-Cycles")
    assert claim.ours == "3.0"
    assert float(claim.paper) == pytest.approx(6.89 / 3.65, abs=0.05)
    assert claim.holds is True
    assert {claim.holds for claim in page.claims if claim.on != "Tree-Cycles"} == {None}
    assert "| paper's method, 3 hops | - | - | 3.0 | - |" in page.sections["Details"][0].markdown()
