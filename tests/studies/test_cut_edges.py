"""The study of models that were shown cut edges."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from graphsvx.studies.estimate import Estimate

import graphsvx
from graphsvx import GraphSVX, zoo
from graphsvx.studies import Desk, cut_edges


def test_the_quick_study_has_both_ways_of_training(tmp_path: Path):
    desk = Desk(tmp_path / "out", tmp_path / "runs", quick=True, workers=1)
    cut_edges.STUDY.run(desk)
    assert not desk.failures
    (table,) = json.loads((tmp_path / "out/cut-edges.json").read_text())["tables"]
    assert [row["training"] for row in table["rows"]] == ["whole graphs only", "with cut edges"]
    for row in table["rows"]:
        for label in cut_edges.explainers(desk):
            assert (row[label]["count"], row[label]["seeds"]) == (2, 1)


def test_a_variant_is_trained_once_and_kept_apart(tmp_path: Path):
    desk = Desk(tmp_path / "out", tmp_path / "runs", quick=True)
    usual = zoo.settings_for("tree-cycles")
    other = replace(usual, cut_edges=not usual.cut_edges)
    first = desk.variant("tree-cycles", 3, other)
    assert first.card.settings.cut_edges != desk.world("tree-cycles", 3).card.settings.cut_edges
    assert desk.variant("tree-cycles", 3, other) is first


def test_the_score_without_edges_is_the_base_value_where_features_are_constant(tmp_path: Path):
    desk = Desk(tmp_path / "out", tmp_path / "runs", quick=True)
    world = desk.world("tree-cycles")
    explanation = graphsvx.explain(world.model, world.dataset.graph, node=520, method=GraphSVX())
    (score,) = cut_edges.without_edges(world, [explanation])
    assert score == pytest.approx(explanation.base, abs=1e-6)
    assert bool((world.dataset.graph.x == world.dataset.graph.x[0]).all())


def test_the_headline_says_what_was_measured():
    def sure(value: float) -> Estimate:
        return Estimate(value, value, value, 1, 3)

    pair = [
        cut_edges.Variant("a", sure(1), sure(0.9), {"GraphSVX": sure(0.7), "Random": sure(0.5)}),
        cut_edges.Variant("b", sure(1), sure(0.2), {"GraphSVX": sure(0.9), "Random": sure(0.5)}),
    ]
    text = cut_edges.page({"ba-shapes": pair}).headline
    assert "BA-Shapes 0.90 to 0.20" in text
    assert "GraphSVX +0.20" in text
    assert "Random" not in text
