"""The tidy table: one row a value, estimates over seeds, pairs of the same questions."""

from __future__ import annotations

from math import nan
from operator import truediv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from graphsvx.errors import DataError, InputError
from graphsvx_lab.metrics.measurements import NO_QUESTION, Measurements, Row


def table(*rows: tuple[str, str, int, str, int, str, float]) -> Measurements:
    """From (dataset, model, seed, method, question, measure, value)."""
    results = Measurements("mine", facts={"command": "c", "settings": {"a": {"X": "b"}}})
    for *row, value in rows:
        results.add(Row(*row), value)
    return results


def series(measure: str, method: str, *seeds: list[float], dataset: str = "tree-grid") -> list:
    return [
        (dataset, "", seed, method, question, measure, value)
        for seed, values in enumerate(seeds)
        for question, value in enumerate(values)
    ]


def test_a_table_is_the_same_after_writing_and_reading(tmp_path: Path):
    results = table(*series("m", "b", [1.0, 2.5], [3.0]), *series("n", "a", [nan, 4.0]))
    path = results.write(tmp_path / "mine.parquet")
    again = Measurements.read(path, "mine")
    assert list(again.values.items()) == list(results.values.items())
    assert again.facts == results.facts
    assert again.names("method") == ["b", "a"]
    assert pq.read_table(path).column_names == [
        "study", "dataset", "model", "seed", "method", "question", "measure", "value",
    ]  # fmt: skip
    assert Measurements.read(Measurements("none").write(path), "none").values == {}


def test_what_is_no_table_is_told(tmp_path: Path):
    with pytest.raises(DataError, match="measure first: graphsvx study mine"):
        Measurements.read(tmp_path / "mine.parquet", "mine")
    (tmp_path / "mine.parquet").write_text("{}")
    with pytest.raises(DataError, match="no table of measurements"):
        Measurements.read(tmp_path / "mine.parquet", "mine")
    with pytest.raises(DataError, match="choose another"):
        table().write(tmp_path / "mine.parquet" / "below")


def test_a_row_is_measured_once():
    with pytest.raises(InputError, match="twice"):
        table(*series("m", "a", [1.0]), *series("m", "a", [1.0]))


def test_questions_of_a_seed_are_averaged_first():
    results = table(*series("m", "a", [1.0, nan], [0.0, 0.5], []))
    assert results.estimate("m").by_seed == (1.0, 0.25)
    # Several series: the mean of each, then of the seed.
    results = table(
        *series("m", "a", [1.0, 1.0, 1.0]), *series("m", "a", [0.0], dataset="tree-cycles")
    )
    assert results.estimate("m").by_seed == (0.5,)
    assert results.estimate("m", data="Tree-Cycles").by_seed == (0.0,)
    assert results.estimate("m", dataset=("tree-grid", "mutag")).by_seed == (1.0,)
    assert results.estimate("none").by_seed == ()


def test_huge_errors_do_not_move_the_figure_of_a_seed():
    results = table(*series("error", "a", [0.1, 0.2, 1e9], [0.4]))
    assert results.estimate("error").by_seed == (0.2, 0.4)
    assert results.estimate("error", statistic=max).by_seed == (1e9, 0.4)


def test_a_share_is_a_ratio_of_sums():
    # A question with nothing to explain does not blow the share up, and a seed without any drops.
    results = table(
        *series("part", "a", [0.1, 0.1], [-0.1], [0.3]),
        *series("all", "a", [1.0, 1e-9], [0.5], [0.0]),
    )
    assert results.estimate("part", over="all").by_seed == pytest.approx((0.2, -0.2), abs=1e-6)


def test_pairs_are_values_of_the_same_questions():
    results = table(
        *series("m", "a", [0.6, 0.8, 1.0], [1.0]), *series("m", "b", [0.5, 1.0], [0.0]),
        ("tree-grid", "", 5, "a", 0, "m", 9.0),
    )  # fmt: skip
    paired = results.paired(("a", "m"), ("b", "m"))
    assert paired.by_seed == pytest.approx(((0.1 - 0.2) / 2, 1.0))
    slow = table(*series("s", "a", [8.0, 2.0, 9.0]), *series("s", "b", [2.0, 1.0, 3.0]))
    ratio = slow.paired(("a", "s"), ("b", "s"), combine=truediv, statistic=np.median)
    assert ratio.by_seed == (3.0,)
    tests = results.tests("m", "a", ["b", "c"])
    assert (tests["b"].pairs, tests["b"].seeds, tests["c"].pairs) == (3, 2, 0)
    assert tests["b"].difference == pytest.approx(0.9 / 3)
    assert results.tests("m", "a", ["b"], sign=-1)["b"].difference == pytest.approx(-0.3)


def test_columns_are_listed_in_order_and_by_prefix():
    results = table(
        ("cora", "gat", 0, "a", 1, "strict, x", 1.0), ("cora", "gat", 0, "", NO_QUESTION, "n", 1.0)
    )
    assert results.names("data") == ["Cora, GAT"]
    assert results.names("measure", "strict") == ["strict, x"]
    assert results.names("measure", method="") == ["n"]
