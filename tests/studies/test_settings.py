"""Settings: chosen on seeds that nobody scores, and the page says where they are not the best."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graphsvx.studies.rivals import KINDS

from graphsvx.errors import InputError
from graphsvx.results.explanation import Ranking
from graphsvx.studies import Desk, chosen, ground_truth, settings
from graphsvx.studies.motifs import Measure
from graphsvx.studies.settings import Line, candidates, verdict


def line(words: str, value: float, absolute: float, taken: Ranking | None = None) -> Line:
    samples = {
        Measure(what, by): [[score], [score]]
        for what in ("paper", "strict", "auroc")
        for by, score in (("value", value), ("absolute", absolute))
    }
    return Line(words, samples, taken)  # type: ignore[arg-type] # literals from a loop


def test_no_seed_is_used_for_both_choosing_and_scoring():
    choosing = {*settings.SEEDS, *settings.MUTAG_SEEDS, *settings.RIVAL_SEEDS}
    assert not choosing & set(ground_truth.SEEDS)
    assert min(settings.SEEDS) >= 100


def test_every_choice_is_among_its_candidates():
    for dataset in chosen.TRUTH_SETS:
        for kind in KINDS.values():
            taken = chosen.choice(dataset, kind)
            tried = [(one.method, one.scale) for one in candidates(dataset, kind)]
            assert (taken.method, taken.scale) in tried
            assert len(set(tried)) == len(tried) >= 2


def test_the_default_row_is_the_default():
    assert all(
        chosen.choice(dataset, "default").method.samples == 1000 for dataset in chosen.TRUTH_SETS
    )
    with pytest.raises(InputError, match="must be one of"):
        chosen.choice("cora")
    with pytest.raises(InputError, match="kind must be"):
        chosen.choice("ba-shapes", "mine")  # type: ignore[arg-type] # wrong on purpose


def test_a_choice_that_is_not_the_best_is_told():
    good, bad = line("good", 0.7, 0.9), line("bad", 0.8, 0.5, taken="value")
    assert "0.100 below the best: good, absolute" in verdict([good, bad], ("value", "absolute"))
    assert verdict([good, bad], ("value",)) == ""
    close = line("close", 0.895, 0.1, taken="value")
    assert verdict([good, close], ("value", "absolute")) == ""
    assert "not in this table" in verdict([good], ("value",))


def test_the_worth_of_a_setting_is_the_mean_of_both_protocols():
    found = Line("x", {Measure("paper"): [[0.4, 0.6]], Measure("strict"): [[1.0]]}, None)
    assert found.worth("value") == pytest.approx(0.75)


def test_the_page_marks_what_was_chosen(tmp_path: Path):
    desk = Desk(tmp_path / "out", tmp_path / "runs", quick=True, workers=1)
    settings.STUDY.run(desk)
    record = json.loads((tmp_path / "out" / "settings.json").read_text())
    titles = [table["title"] for table in record["tables"]]
    assert titles == [*(f"Tree-Cycles: {name}" for name in KINDS), "Tree-Cycles: others"]
    for rows in (table["rows"] for table in record["tables"][:3]):
        assert sum(row["chosen"] != "" for row in rows) == 1
    marked = [row for row in record["tables"][-1]["rows"] if row["chosen"]]
    assert len(marked) == 3
