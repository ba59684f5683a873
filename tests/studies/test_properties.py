"""The study of properties: its calculations by hand."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphsvx.metrics import consistency
from graphsvx_lab.metrics.measurements import Measurements, Row, sample_variance
from graphsvx_lab.metrics.truth import classified_alike
from graphsvx_lab.studies import motifs, properties
from graphsvx_lab.studies.context import with_features
from graphsvx_lab.studies.properties import OURS, RANDOM
from tests.records import credit, house
from tests.studies.conftest import answer_of


def test_r_squared_is_told_by_game():
    games = house().certificate.games  # features and nodes, both 0.98
    single = replace(games[0], players=1)
    explanation = replace(house(), certificate=replace(house().certificate, games=games))
    measured = properties.r_squared(answer_of(None, explanation, 402))
    assert measured == {
        "R², features": 0.98, "R², nodes": 0.98, "R², features above 0.90": 1,
        "R², nodes above 0.90": 1,
    }  # fmt: skip
    alone = replace(house(), certificate=replace(house().certificate, games=(single,)))
    assert properties.r_squared(answer_of(None, alone, 402)) == {}


def test_only_given_features_are_compared():
    first = with_features(house(), {4, 7})
    assert first.features == {4: pytest.approx(-0.015)}
    assert first.nodes == house().nodes


def test_overlap_is_that_of_the_top_features_and_nodes():
    first = house()  # the top fifth: feature 0 and node 400
    second = replace(first, node_credit=credit([401, 400], [0.9, 0.1]))
    levels = ("features", "nodes")
    assert consistency(first, first, top=0.2, level=levels) == 1
    assert consistency(first, second, top=0.2, level=levels) == pytest.approx(1 / 3)
    assert consistency(first, second, top=0.2, level=("features",)) == 1
    nothing = replace(first, node_credit=credit([], []), feature_credit=credit([], []))
    assert consistency(nothing, nothing, top=0.2, level=levels) == 1


def test_models_are_compared_where_they_agree():
    split = SimpleNamespace(test=torch.tensor([0, 1, 2, 3]))
    data = SimpleNamespace(split=split, seed=0)
    said = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 0, 0])
    models: Any = [SimpleNamespace(dataset=data, predicted_classes=lambda c=c: c) for c in said]
    assert classified_alike(models, 10) == [0, 1, 3]
    assert len(classified_alike(models, 2)) == 2


def test_variance_is_within_a_role_and_single_nodes_do_not_count():
    assert sample_variance([1.0, 0.5]) == pytest.approx(0.125)
    assert isnan(sample_variance([1.0]))
    results = Measurements("properties")
    for seed in range(4):
        for method in (OURS, RANDOM):
            for role, values in (("top", [1.0, 0.5]), ("middle", [0.2, 0.2]), ("bottom", [0.9])):
                for question, value in enumerate(values):
                    row = Row("ba-shapes", "", seed, method, question, motifs.ROLE + role)
                    results.add(row, value)
    (claim, *_) = [
        c for c in properties.properties.page(results).claims if c.statement.startswith("Variance")
    ]
    assert claim.ours == "0.062"  # the mean of 0.125 and 0
    assert claim.holds is True


def test_the_motif_s_share_stands_beside_the_paper_s():
    results = Measurements("properties")
    for seed in range(4):
        for measure, value in (("own motif", 0.4), ("explainable", 0.5)):
            results.add(Row("tree-cycles", "", seed, OURS, 1, measure), value)
    claims = {claim.cells()[0]: claim for claim in properties.properties.page(results).claims}
    share = claims["The motif's share of the explainable part, within 0.05 (Tree-Cycles)"]
    assert (share.paper, share.ours, share.holds) == ("0.85", "0.80", True)
