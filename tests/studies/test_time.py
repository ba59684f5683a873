"""The study of running times: a fair clock, the same credit, and its page."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import replace
from pathlib import Path

import pytest
from graphsvx.studies.stopwatch import Kept, machine, one_call_a_row, take_turns

from graphsvx import explain
from graphsvx.studies import Desk, running_time
from graphsvx.studies.running_time import (
    GNN,
    HOPS,
    OURS,
    PAPER_GNN,
    PAPER_SECONDS,
    RIGHT,
    Found,
    paper_method,
    timed_nodes,
)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("time")
    return Desk(folder / "out", folder / "runs", quick=True, workers=1)


@pytest.mark.parametrize("hops", HOPS)
def test_one_call_a_row_gives_the_credit_of_the_engine(desk: Desk, hops: int):
    world = desk.world("ba-community")
    told = paper_method("ba-community", hops, divisor=4)
    kept = Kept(told.mask)
    method = replace(told, indirect=False, mask=kept)
    explanation = explain(world.model, world.dataset.graph, node=402, method=method)
    plain = one_call_a_row(world, 402, kept.drawn, explanation)
    assert set(plain) == {"features", "nodes"}
    assert (plain["nodes"] - explanation.node_values).abs().max() < 1e-5
    assert (plain["features"] - explanation.feature_values).abs().max() < 1e-5
    assert explanation.node_values.abs().max() > 1e-3


def test_contenders_take_turns_and_only_processor_time_counts():
    order: list[str] = []

    def work() -> str:
        order.append("work")
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        return "done"

    def sleep() -> None:
        order.append("sleep")
        time.sleep(0.02)

    seconds, results = take_turns({"work": work, "sleep": sleep}, 3)
    assert order == ["work", "sleep"] * 3
    assert seconds["work"] >= 0.02
    assert seconds["sleep"] < 0.01
    assert results["work"] == "done"


def test_a_ratio_is_taken_node_by_node():
    found = Found({(GNN, 0): [[8.0, 2.0, 9.0], [3.0]], (OURS, 3): [[2.0, 1.0, 3.0], [3.0]]})
    ratio = found.ratio((GNN, 0), (OURS, 3))
    assert ratio.mean == pytest.approx((3 + 1) / 2)
    assert (ratio.count, ratio.seeds) == (4, 2)


def test_the_paper_s_samples_and_nodes_of_its_protocol_are_timed():
    assert paper_method("tree-grid", 2).samples == 400
    assert paper_method("ba-shapes", 3).samples == 400
    assert timed_nodes("tree-cycles", 1, 2) == [511 + 12, 511 + 18]
    assert len({n for seed in range(5) for n in timed_nodes("ba-community", seed, 2)}) == 10


def test_the_machine_is_described_without_its_name():
    told = machine()
    assert told["threads"] == "1"
    assert platform.node() not in " ".join(told.values())


def test_the_page_has_ratios_seconds_and_accuracy(desk: Desk):
    files = running_time.STUDY.run(desk)
    assert {file.name for file in files} == {"time.md", "time.json", "time-seconds.png"}
    text = Path(files[-1]).read_text()
    assert "only ratios count" in text
    assert "Failures" not in text
    ratios, seconds, paper, strict = json.loads((desk.out / "time.json").read_text())["tables"]
    rows = {row[""]: row["Tree-Cycles"] for row in ratios["rows"]}
    told = rows[f"{GNN} / {RIGHT}, 2 hops"]
    assert told["paper"] == pytest.approx(PAPER_GNN[2] / PAPER_SECONDS[2][2])
    assert told["ours"]["mean"] > 0
    times = {row[""]: row["Tree-Cycles"] for row in seconds["rows"]}
    assert times[f"{RIGHT}, 3 hops"]["paper"] == "3.65"
    assert times[GNN]["paper"] == "6.89"
    assert [row["Tree-Cycles"]["count"] for row in paper["rows"]] == [2] * 5
    assert strict["rows"][0][""] == "Random explainer"
