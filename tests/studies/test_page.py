"""Pages: claims that say no more than their intervals allow, tables, and what is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from graphsvx.errors import DataError
from graphsvx_lab.metrics.measurements import PairedTest, Row, is_close, is_positive, reaches
from graphsvx_lab.studies import (
    Claim,
    Estimate,
    Measurements,
    Page,
    Study,
    Table,
    write_summary,
)
from graphsvx_lab.studies.page import dots, from_paper, pivot, pivots, summary_rows


def measured(level: float = 0.8, seeds: int = 5) -> Measurements:
    """Two methods on two data sets, with seeds that scatter around a known level."""
    rng = np.random.default_rng(3)
    results = Measurements("mine", facts={"command": "graphsvx study mine", "settings": {}})
    for dataset in ("ba-shapes", "tree-grid"):
        for seed in range(seeds):
            shift = rng.normal(0, 0.1)
            for method, gain in (("ours", 0.1), ("theirs", 0.0)):
                for question in range(12):
                    value = level + shift + gain + rng.normal(0, 0.05)
                    results.add(Row(dataset, "", seed, method, question, "accuracy"), value)
    return results


def test_a_claim_s_interval_holds_the_known_mean():
    held = 0
    for number in range(400):
        rng = np.random.default_rng(number)
        results = Measurements("mine")
        for seed, level in enumerate(rng.normal(0.7, 0.2, 5)):
            for question, value in enumerate(rng.normal(level, 0.1, 8)):
                results.add(Row("mutag", "", seed, "ours", question, "m"), value)
        claim = Claim.of("s", 0.7, results.estimate("m"), is_close)
        assert claim.interval is not None
        held += claim.interval[0] <= 0.7 <= claim.interval[1]
    assert 0.92 <= held / 400 <= 0.975


@pytest.mark.parametrize(
    ("rule", "paper", "by_seed", "holds"),
    [
        (reaches, 0.97, (0.96, 0.97, 0.96, 0.975), True),  # 0.966: the paper's to two digits
        (reaches, 0.97, (0.96, 0.96, 0.96, 0.96), False),
        (is_close, 0.5, (0.4, 0.5, 0.5, 0.45), True),
        (is_close, 0.5, (0.3, 0.5, 0.5, 0.45), False),
        (is_positive, 0.1, (0.1, 0.1, 0.11, 0.1), True),
        (is_positive, 0.1, (0.3, 0.1, -0.1, 0.1), False),
    ],
)
def test_a_claim_holds_by_its_rule(rule, paper: float, by_seed: tuple[float, ...], holds: bool):
    claim = Claim.of("s", paper, Estimate(by_seed), rule)
    assert claim.holds is holds
    assert claim.cells()[3] == ("holds" if holds else "does not hold")
    # On three seeds nothing is claimed, and their values are shown.
    few = Claim.of("s", paper, Estimate(by_seed[:3]), rule)
    assert few.holds is None
    assert few.cells()[3] == "not tested"
    assert few.ours.count(",") == 2


def test_to_be_first_is_to_be_ahead_of_every_other_method():
    clear, tie, few = (
        PairedTest(0.2, 0.001, 50, 5),
        PairedTest(0.01, 0.6, 50, 5),
        PairedTest(0.2, 0.001, 50, 3),
    )
    assert Claim.first("s", "first", {"a": clear}).holds is True
    claim = Claim.first("s", "first", {"a": clear, "b": tie})
    assert claim.holds is False
    assert claim.ours == "0.01 ahead of b (p = 0.600)"
    behind = Claim.first("s", "first", {"a": clear, "b": replace(tie, difference=-0.2, p=1e-4)})
    assert behind.ours == "0.20 behind b (p < 0.001)"
    assert Claim.first("s", "first", {"a": few}).holds is None
    assert Claim.first("s", "first", {"a": PairedTest(0, 1, 0, 0)}).holds is None


def test_a_pivot_has_a_row_a_method_and_a_column_a_data_set():
    results = measured()
    table = pivot(results, "t", "accuracy", paper=PAPER, note="n")
    assert table.title == "t (the paper's in brackets)"
    assert table.columns == ["", "BA-Shapes", "Tree-Grid"]
    (ours, first, _), (theirs, second, _) = table.rows
    assert (ours, theirs) == ("ours", "theirs")
    assert isinstance(first, Estimate)
    assert first.paper == 0.99
    assert second == results.estimate("accuracy", method="theirs", data="BA-Shapes")
    assert first.text() == f"{replace(first, paper=None).text()} (0.99)"
    assert f"| ours | {first.text()} |" in table.markdown()
    one, other = pivots(results, {"x": "accuracy", "y": {"measure": "none"}}, method="ours")
    assert len(one.rows) == 1
    assert other.markdown() == ""
    # Measures alone: titles of those that several studies have; the paper's figures come first.
    results.add(Row("tree-grid", "", 0, "ours", 0, "strict"), 0.5)
    first, second = pivots(results, ("strict", "accuracy"), paper=PAPER)
    assert first.title == "Accuracy, protocol `strict` (the paper's in brackets)"
    assert second.title == "Accuracy"


def test_a_bar_in_a_cell_does_not_end_it():
    assert "| b\\|c |" in Table("t", ["b|c"], [[1.0]]).markdown()


PAPER = from_paper({"ours": (0.99, 0.93)}, ("ba-shapes", "tree-grid"))


def small_page(results: Measurements) -> Page:
    ours = results.estimate("accuracy", method="ours")
    return Page(
        "Mine",
        [Claim.of("Ours is high", 0.8, ours, reaches), Claim("Beside", "", "x", holds=True)],
        dots("dots", "seen", {"accuracy": pivot(results, "t", "accuracy", paper=PAPER)}),
        {"Details": ("Some *words*.", pivot(results, "t", "accuracy"))},
        "What is asked.",
        "What was measured.",
    )


def test_a_page_is_a_function_of_the_table_alone(tmp_path: Path):
    study = Study("mine", "about", (), small_page)
    for place in ("one", "two"):
        measured().write(tmp_path / place / "mine.parquet")
        files = study.write_page(tmp_path / place)
        assert {file.name for file in files} == {"mine.md", "mine-dots.png"}
    for name in ("mine.md", "mine-dots.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    text = (tmp_path / "one" / "mine.md").read_text()
    order = ("What is asked.", "Ours is high", "![seen]", "What was measured.", "<details>")
    assert sorted(order, key=text.index) == list(order)
    assert text.count("<details>") == text.count("</details>") == 2
    assert "<summary>Details</summary>" in text
    assert text.count("\n#") == 0  # headings inside a folded part would cut it in two
    assert "- seeds: 0, 1, 2, 3, 4" in text
    assert "[mine.parquet](mine.parquet)" in text


def test_what_is_missing_failed_or_quick_is_told():
    results = measured()
    results.facts.update(
        quick=True, missing={"Cora": "no file"}, failures={"node 3": "why"}, machine="small",
        settings={"ours": {"BA-Shapes": "`A()`", "Tree-Grid": "`B()`"}, "all": {"X": "`C()`"}},
    )  # fmt: skip
    text = small_page(results).markdown(results)
    for words in ("figures mean nothing", "**Cora is missing:** no file", "- node 3: why",
                  "- ours: `A()` (BA-Shapes); `B()` (Tree-Grid)", "- all: `C()`",
                  "- machine: small"):  # fmt: skip
        assert words in text


def test_the_summary_has_every_claim_of_the_paper_and_every_study(tmp_path: Path):
    measured().write(tmp_path / "mine.parquet")
    studies = [Study(name, "about", (), small_page) for name in ("mine", "other")]
    text = write_summary(tmp_path, studies).read_text()
    assert "| [mine](mine.md) | Ours is high | 0.80 |" in text
    paper, _, beyond = text.partition("## Beyond the paper")
    assert "Beside" not in paper
    assert "| [mine](mine.md) | Beside | x | holds |" in beyond
    assert "Of 2 claims of the paper, counted by data set, 1 were tested and 1 hold." in text
    assert "- [mine](mine.md) (2 of 2 claims hold): about\n" in text
    assert "- other (not measured yet: `graphsvx study other`): about\n" in text
    assert "minutes of processor time" not in text
    results = measured()
    results.facts["processor seconds"] = 300
    results.write(tmp_path / "mine.parquet")
    assert "in 5 minutes of processor time." in write_summary(tmp_path, studies).read_text()
    assert "| other | Ours is high | 0.80 | - | not tested |" in text


def test_the_summary_has_a_row_for_a_statement_on_several_data_sets():
    claims = [
        Claim("Ours is first", "0.9", "0.95", (0.9, 1.0), holds, where)
        for where, holds in (("BA-Shapes", True), ("Tree-Grid", False), ("MUTAG", None))
    ]
    claims += [Claim("Alone", "x", "0.5", (0.4, 0.6), True, "Cora")]
    assert summary_rows(claims) == [
        (
            "Ours is first",
            "0.9",
            "**BA-Shapes: 0.95 ± 0.05**<br>Tree-Grid: 0.95 ± 0.05<br>MUTAG: 0.95 ± 0.05",
            "holds on 1 of 2",
        ),
        ("Alone (Cora)", "x", "0.5 [0.40, 0.60]", "holds"),
    ]
    alike = summary_rows([replace(claim, holds=False) for claim in claims[:2]])
    assert alike[0][3] == "does not hold"
    assert "**" not in summary_rows([replace(claim, holds=True) for claim in claims[:2]])[0][2]
    apart = summary_rows([claims[0], replace(claims[1], paper="0.8")])
    assert apart[0][1] == "0.9<br>0.8"


def test_claims_fit_on_a_screen():
    few = [Claim(f"Statement {i % 2}", "", "0.5", holds=True, on=f"set {i}") for i in range(4)]
    text = Page("Mine", few).markdown(measured())
    assert text.count("| holds |") == 4
    assert "| paper |" not in text  # nothing to compare with
    assert "| paper |" in Page("Mine", [replace(few[0], paper="1")]).markdown(measured())
    many = [replace(few[i % 4], on=f"set {i}") for i in range(40)]
    text = Page("Mine", many).markdown(measured())
    assert text.count("| holds |") == 2
    assert all(f"set {i}: 0.5" in text for i in range(40))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path):
    results = measured()
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="choose another"):
        Page("Mine", []).write(results, tmp_path / "file")
    with pytest.raises(DataError, match="choose another"):
        write_summary(tmp_path / "file", [])


def test_a_figure_shows_the_cells_of_tables_and_the_paper_s_beside_them():
    results = measured()
    table = pivot(results, "t", "accuracy", paper=PAPER)
    drawn: dict = {}
    plots = SimpleNamespace(dots=lambda *given: drawn.update(enumerate(given)))
    dots("n", "c", {"accuracy": table}, log=("accuracy",)).draw(plots)
    ours = results.estimate("accuracy", method="ours", data="BA-Shapes")
    assert drawn[0]["accuracy"]["BA-Shapes"]["ours"] == ours.band
    assert list(drawn[0]["accuracy"]["Tree-Grid"]) == ["ours", "theirs"]
    assert drawn[1] == {
        ("accuracy", "BA-Shapes", "ours"): 0.99, ("accuracy", "Tree-Grid", "ours"): 0.93,
    }  # fmt: skip
    assert drawn[2] == ("accuracy",)


def test_a_statement_is_claimed_of_everything_that_the_paper_has_a_figure_of():
    ours = measured().by("data", "accuracy", method="ours")
    shapes, mutag = Claim.each("s", {"BA-Shapes": 0.5, "MUTAG": 0.5}, ours, reaches)
    assert (shapes.on, shapes.holds) == ("BA-Shapes", True)
    assert (mutag.on, mutag.ours, mutag.holds) == ("MUTAG", "-", None)
