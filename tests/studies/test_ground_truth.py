"""Ground truth: claims of the paper beside measurements that are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from graphsvx_lab import zoo
from graphsvx_lab.metrics.measurements import Measurements, Row
from graphsvx_lab.studies import ground_truth
from graphsvx_lab.studies.ground_truth import CUT, EXPLAINERS, FRESH, OURS, RANDOM, RELEASED, WHOLE


def measured(level: float) -> Measurements:
    """GraphSVX's level on Tree-Grid; all others have 0.2 less, on the same questions."""
    results = Measurements("ground-truth")
    for seed in range(10):
        for method in (*EXPLAINERS, RANDOM):
            for question in range(10):
                shift = 0.002 * question + 0.01 * (seed % 5)
                for measure in ("paper", "strict"):
                    row = Row("tree-grid", "", seed, method, question, measure)
                    results.add(row, level + shift - (0.0 if method == OURS else 0.2))
    return results


def test_the_claims_are_the_paper_s_figures_and_to_be_first():
    claims = {
        claim.cells()[0]: claim for claim in ground_truth.ground_truth.page(measured(0.92)).claims
    }
    assert [claim.holds for claim in claims.values()].count(None) == 11  # of the other sets
    reached = claims["GraphSVX's accuracy (`paper`) (Tree-Grid)"]
    first = claims["GraphSVX is ahead of all other explainers (`strict`) (Tree-Grid)"]
    assert (reached.paper, reached.holds) == ("0.93", True)
    assert first.holds is True
    assert first.ours.startswith("0.20 ahead of ")
    short = ground_truth.ground_truth.page(measured(0.85)).claims[3]
    assert short.holds is False


def test_fresh_models_of_the_authors_architecture_are_shown_seed_by_seed_beside_the_paper():
    results = Measurements("fresh-models")
    for seed in range(5):
        results.add(Row("tree-grid", FRESH, seed, RELEASED, 511, "paper"), 0.6 + 0.05 * seed)
    page = ground_truth.fresh_models.page(results)
    released, algorithm_2 = (claim for claim in page.claims if claim.on == "Tree-Grid")
    assert (released.paper, released.ours, released.holds) == ("0.93", "0.70", False)
    assert algorithm_2.holds is None  # not measured
    table = page.sections["Details"][0]
    assert list(table.rows[0]) == ["Tree-Grid", 0.93, *(0.6 + 0.05 * seed for seed in range(5))]


def test_the_paper_s_figures_stand_beside_ours():
    table = ground_truth.ground_truth.page(measured(0.92)).sections["Accuracy"][0].markdown()
    assert table.count("(0.93)") == 3  # GraphSVX in its three variants
    assert "(0.88)" in table  # PGExplainer
    assert ground_truth.PAPER["PGExplainer"]["MUTAG"] == 0.79
    assert RANDOM not in ground_truth.PAPER


def test_the_main_grid_has_models_that_were_not_chosen_by_their_explanations():
    main = ground_truth.MAIN
    context: Any = SimpleNamespace(trained_model=lambda *_, cut_edges: cut_edges)
    assert [make(context, "tree-grid", 0) for make in main.models.values()] == [False]
    assert main.seeds == tuple(range(10))
    assert ground_truth.FRESH_GRID.seeds == ground_truth.CUT_GRID.seeds == tuple(range(5))
    assert list(ground_truth.FRESH_GRID.models) == [FRESH]
    beside = ground_truth.CUT_GRID
    assert {k: make(context, "ba-shapes", 0) for k, make in beside.models.items()} == {
        WHOLE: False, CUT: True}  # fmt: skip
    assert all(zoo.settings_for(name).cut_edges for name in beside.datasets)


def test_mutag_is_shown_seed_by_seed_with_edges_first():
    results = Measurements("ground-truth")
    for row, value in measured(0.4).values.items():
        results.add(row._replace(dataset="mutag"), value)
    page = ground_truth.ground_truth.page(results)
    edges = next(claim for claim in page.claims if "edges as players" in claim.statement)
    assert (edges.on, edges.paper, edges.ours, edges.holds) == ("MUTAG", "0.77", "0.23", False)
    table = page.sections["Accuracy"][-1]
    assert [row[0] for row in table.rows][:2] == ["GraphSVX, edges play", "GraphSVX, our estimator"]
    assert [len(row) for row in table.rows] == [12] * 6


def test_who_finds_less_than_chance_is_told_where_it_was_measured():
    results = measured(0.5)
    text = "\n".join(ground_truth.below_chance(results))
    assert text == ""
    for row, value in list(results.values.items()):
        if row.method == "GNNExplainer" and row.measure == "strict":
            results.values[row] = value - 0.1
    results.add(Row("tree-grid", "", 0, OURS, 1, "motif: score alone"), 0.75)
    (text,) = ground_truth.below_chance(Measurements("ground-truth", results.values))
    assert text.startswith("Below chance (0.33) on Tree-Grid: GNNExplainer (0.23). ")
    assert "models give the explained class 0.75" in text


def test_each_graphsvx_is_compared_with_each_rival():
    sections = ground_truth.ground_truth.page(measured(0.92)).sections["Accuracy"]
    titles = [table.title for table in sections if "minus another" in table.title]
    assert titles == [f"{name}, minus another, `strict`" for name in ground_truth.GRAPHSVX]


def test_the_change_by_cut_edges_is_taken_seed_by_seed():
    results = Measurements("cut-edges")
    for model, level in ((WHOLE, 0.5), (CUT, 0.6)):
        for seed in range(5):
            for method in EXPLAINERS:
                value = level + 0.1 * seed if method == OURS else 0.4 + 0.1 * seed
                results.add(Row("ba-shapes", model, 100 + seed, method, 1, "strict"), value)
    ours, other, *_ = ground_truth.cut_edges.page(results).claims
    assert ours.interval == pytest.approx((0.1, 0.1))
    assert (ours.holds, other.holds) == (True, False)
