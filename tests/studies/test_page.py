"""What every study stands on: intervals, tables, pages, and explanations that are kept."""

from __future__ import annotations

import json
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest
from graphsvx.studies.desk import query_of
from matplotlib.figure import Figure

from graphsvx import GraphSVX
from graphsvx.errors import DataError, InputError
from graphsvx.studies import Desk, Estimate, Page, Picture, Study, Table, overview
from graphsvx.studies.page import Beside


def test_the_interval_holds_the_truth_in_95_percent_of_cases():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        # Nodes of one graph are alike: only the seeds are independent.
        groups = [list(rng.normal(level, 0.1, 20)) for level in rng.normal(0.7, 0.2, 5)]
        found = Estimate.of(groups)
        held += found.low <= 0.7 <= found.high
    assert 0.935 <= held / 2000 <= 0.965


def test_an_estimate_counts_what_it_rests_on():
    found = Estimate.of([[1.0, nan], [0.0, 0.5], []])
    assert (found.mean, found.count, found.seeds) == (0.625, 3, 2)
    one = Estimate.of([[0.5]])
    assert one.mean == 0.5
    assert isnan(one.low)
    assert one.text() == "0.50"
    nothing = Estimate.of([[nan]])
    assert nothing.count == 0
    assert nothing.text() == "-"
    assert nothing.to_json()["mean"] is None


def test_a_table_tells_the_same_in_words_and_as_json():
    found = Estimate(0.5, 0.4, 0.6, 20, 5)
    table = Table("t", ("a", "b|c", "d"), ((Beside(found, 0.99), 1200, None), ("x", 1e-9, nan)))
    assert "| 0.50 ± 0.10 (0.99) | 1,200 | - |" in table.markdown()
    assert "b\\|c" in table.markdown()
    assert "| x | 1.0e-09 | - |" in table.markdown()
    first, second = table.to_json()["rows"]
    assert first["a"] == {"ours": found.to_json(), "paper": 0.99}
    assert second == {"a": "x", "b|c": 1e-9, "d": None}
    with pytest.raises(InputError, match="3 columns, got a row with 1"):
        Table("t", ("a", "b", "c"), (("x",),))


def test_a_page_is_written_as_markdown_json_and_pictures(tmp_path: Path):
    page = Page(
        "Title",
        ("Some *words*.", Table("t", ("a",), ((1,),)), Picture("one", "seen", Figure)),
        headline="It holds.",
        settings={"seeds": (0, 1)},
    )
    files = page.write("mine", tmp_path, {"command": "graphsvx study mine"})
    assert {file.name for file in files} == {"mine.md", "mine.json", "mine-one.png"}
    text = (tmp_path / "mine.md").read_text()
    assert "![seen](mine-one.png)" in text
    assert "- seeds: 0, 1" in text
    record = json.loads((tmp_path / "mine.json").read_text())
    assert record["tables"][0]["rows"] == [{"a": 1}]
    assert record["settings"]["seeds"] == [0, 1]


def test_the_summary_names_every_study_made_or_not(tmp_path: Path):
    Page("Mine", (), "It holds.").write("mine", tmp_path, {"command": "c"})
    text = overview.write(tmp_path, ("mine", "other")).read_text()
    assert "**[Mine](mine.md)** It holds." in text
    assert "**other**: not made yet" in text
    (tmp_path / "mine.json").write_text("{")
    with pytest.raises(DataError, match="graphsvx study mine"):
        overview.write(tmp_path, ("mine",))


def test_explanations_are_kept_and_failures_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    desk = Desk(tmp_path / "out", tmp_path / "runs", quick=True, workers=1)
    world = desk.world("ba-shapes")
    method = GraphSVX(samples=50)
    first = desk.explanations(world, method, [402, 401], label="Ours, 50")
    assert [query_of(one) for one in first] == [401, 402]
    monkeypatch.setattr(GraphSVX, "__call__", lambda *_: 1 / 0)
    again = desk.explanations(world, method, [401, 402], label="Ours, 50")
    assert [one.nodes for one in again] == [one.nodes for one in first]
    # Other settings are another run, and what fails is told on the page.
    nothing = desk.explanations(world, GraphSVX(samples=60), [401], label="Ours, 50")
    assert nothing == []
    assert "ZeroDivisionError" in "".join(desk.failures.values())

    def make(desk: Desk) -> Page:
        desk.failures["node 401"] = "no reason"
        return Page("Mine", ("words",), "It holds.")

    Study("mine", "nothing", make).run(desk)
    text = (tmp_path / "out" / "mine.md").read_text()
    assert "node 401: no reason" in text
    assert "figures mean nothing" in text
