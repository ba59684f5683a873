"""Summaries over many explanations add up to what the explanations say."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from graphsvx import GraphSVX, explain
from graphsvx.errors import InputError
from graphsvx.results import summary
from tests.worlds import random_graph, random_model

DATA = random_graph(3)
MODEL = random_model("gcn", 3)


@pytest.fixture(scope="module")
def found():
    return [explain(MODEL, DATA, node=node) for node in range(6)]


def test_features_are_averaged_over_explanations(found) -> None:
    s = summary.features(found)
    assert s.keys == (0, 1, 2)
    by_hand = np.array([[e.features.get(j, 0.0) for j in range(3)] for e in found])
    played = np.array([[j in e.features for j in range(3)] for e in found])
    assert (np.isnan(s.matrix) == ~played).all()
    assert np.isnan(s.matrix).any(), "a feature must be missing somewhere to be a test"
    np.testing.assert_allclose(s.mean, by_hand.mean(0))
    np.testing.assert_allclose(s.mean_absolute, np.abs(by_hand).mean(0))
    np.testing.assert_allclose(s.std, by_hand.std(0, ddof=1))
    assert s.count.tolist() == played.sum(0).tolist()
    low, high = s.interval()
    np.testing.assert_allclose(high - low, 2 * 1.96 * by_hand.std(0, ddof=1) / np.sqrt(6))
    np.testing.assert_allclose(s.quantiles([0.5])[0], np.median(by_hand, 0))
    best = s.top(1)[0]
    assert best.key == int(np.abs(by_hand).mean(0).argmax())
    assert best.name == f"feature {best.key}"
    signed = s.top(by="value")
    assert [line.mean for line in signed] == sorted((line.mean for line in signed), reverse=True)


def test_means_add_up_to_the_mean_prediction(found) -> None:
    total = summary.features(found).mean.sum() + summary.nodes(found).mean.sum()
    assert total == pytest.approx(np.mean([e.prediction - e.base for e in found]), abs=1e-9)


@pytest.mark.parametrize("by", ["class", "list", "tensor", "mapping"])
def test_nodes_are_summed_by_class_or_role(found, by: str) -> None:
    roles = {i: i % 2 for i in range(DATA.num_nodes)}
    given = {
        "class": "class",
        "list": list(roles.values()),
        "tensor": torch.tensor(list(roles.values())),
        "mapping": roles,
    }[by]
    s = summary.nodes(found, by=given)
    assert s.keys == (0, 1)
    for row, e in zip(s.filled, found, strict=True):
        for role in (0, 1):
            expected = sum(value for node, value in e.nodes.items() if roles[node] == role)
            assert row[role] == pytest.approx(expected, abs=1e-12)


def test_nodes_by_named_role_and_by_distance(found) -> None:
    s = summary.nodes(found, by=["roof" if i < 4 else "base" for i in range(DATA.num_nodes)])
    assert s.names == ("base", "roof")
    hops = summary.nodes(found, by="hops")
    assert hops.keys == (1, 2)
    assert hops.mean.sum() == pytest.approx(s.mean.sum(), abs=1e-12)


def test_shares_of_what_there_is_to_explain(found) -> None:
    s = summary.nodes(found, by=[0] * DATA.num_nodes, share=True)
    expected = [float(e.node_values.sum()) / (e.prediction - e.base) for e in found]
    np.testing.assert_allclose(s.matrix[:, 0], expected)


def test_groups_go_by_name() -> None:
    method = GraphSVX(groups={"left": [1, 2]}, feature_groups={"ends": [0, 2]}, features="all")
    explanations = [explain(MODEL, DATA, node=node, method=method) for node in (0, 3)]
    s = summary.features(explanations)
    assert s.keys == (1, "ends")
    assert not np.isnan(s.matrix).any()
    assert "left" in summary.nodes(explanations).keys


def test_edges_and_classes() -> None:
    method = GraphSVX(players="edges")
    explanations = [explain(MODEL, DATA, node=node, method=method) for node in (0, 1, 3)]
    s = summary.edges(explanations)
    assert all(isinstance(key, tuple) for key in s.keys)
    assert s.filled.sum() == pytest.approx(
        sum(e.prediction - e.base for e in explanations), abs=1e-9
    )
    split = summary.by_class(explanations, of=summary.edges)
    assert sum(part.explanations for part in split.values()) == 3
    assert all(set(part.outputs) == {target} for target, part in split.items())


def test_a_summary_of_one_and_as_json(found) -> None:
    s = summary.features(found[:1])
    assert s.std.tolist() == [0.0] * len(s.keys)
    record = json.loads(json.dumps(s.to_dict(), allow_nan=False))
    assert record["explanations"] == 1
    assert len(record["players"]) == len(s.keys)


def test_invalid_summaries_are_refused(found) -> None:
    with pytest.raises(InputError, match="at least one explanation"):
        summary.features([])
    with pytest.raises(InputError, match="got none for"):
        summary.nodes(found, by={0: 1})
    with pytest.raises(InputError, match='by must be "class"'):
        summary.nodes(found, by="colour")
    with pytest.raises(InputError, match="absolute"):
        summary.features(found).top(by="size")
