"""How explainers are asked, and how their answers are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphsvx import GraphSVX, explain
from graphsvx.methods import GNNExplainer, PGExplainer, Random
from graphsvx.results.explanation import Credit, Explanation
from graphsvx_lab.metrics import accuracy, auroc
from graphsvx_lab.studies import Setting, StudyContext
from graphsvx_lab.studies.context import (
    both_directions,
    fitted,
    training_questions,
    with_node_scores,
    without_credit,
)
from tests.records import house
from tests.studies.conftest import trained_on


def with_edges(ends: list[tuple[int, int]], values: list[float]) -> Explanation:
    table = torch.tensor([values], dtype=torch.float64)
    credit = Credit(torch.tensor(ends).t().contiguous(), table, torch.full_like(table, torch.nan))
    return replace(house(), node_credit=Credit.none(1), edge_credit=credit)


ENDS = [(402, 400), (400, 402), (400, 401), (401, 404), (17, 17)]
VALUES = [0.9, 0.1, -0.6, 0.2, 0.4]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("largest", {400: 0.9, 401: -0.6, 404: 0.2, 17: 0.4, 403: 0.0}),
        ("mean", {400: (0.9 + 0.1 - 0.6) / 3, 401: (-0.6 + 0.2) / 2, 404: 0.2, 17: 0.4, 403: 0.0}),
        # 402-400 is 0.5 in both directions, less than the 0.6 of 400-401.
        ("undirected", {400: -0.6, 401: -0.6, 404: 0.2, 17: 0.4, 403: 0.0}),
    ],
)
def test_nodes_are_scored_by_the_rule(rule, expected: dict[int, float]):
    scores = with_node_scores(with_edges(ENDS, VALUES), rule).nodes
    assert 402 not in scores
    for node, score in expected.items():
        assert scores[node] == pytest.approx(score)


def test_nodes_with_scores_of_their_own_keep_them():
    assert with_node_scores(house(), "mean") is not None
    assert with_node_scores(house(), "mean").nodes == house().nodes
    # Another rule replaces what a rule gave.
    once = with_node_scores(with_edges(ENDS, VALUES), "largest")
    assert with_node_scores(once, "mean").nodes[404] == pytest.approx(0.2)
    assert with_node_scores(once, "mean").nodes[400] == pytest.approx(0.4 / 3)


def test_an_edge_that_plays_for_both_directions_is_named_in_both():
    doubled = both_directions(with_edges([(1, 2), (5, 6), (7, 7)], [3.0, 2.0, 1.0]))
    assert doubled.edges == {(1, 2): 3.0, (2, 1): 3.0, (5, 6): 2.0, (6, 5): 2.0, (7, 7): 1.0}
    together = Setting(GraphSVX(players="edges")).read(with_edges([(1, 2)], [3.0]))
    apart = Setting(GraphSVX(players="edges", directions="apart")).read(with_edges([(1, 2)], [3.0]))
    assert set(together.edges) == {(1, 2), (2, 1)}
    assert set(apart.edges) == {(1, 2)}


def test_no_credit_is_exactly_chance():
    trained = trained_on("tree-cycles")
    node = int(trained.dataset.node_truth.attached[1])
    drawn = explain(trained.model, trained.dataset.graph, node=node, method=Random(players="nodes"))
    truth = trained.dataset.node_truth.motif(node) - {node}
    # The model looks one hop far: players that are true, among all players.
    seen = truth.intersection(drawn.node_ids.tolist())
    taken = min(len(truth), len(drawn.node_ids))
    expected = taken * len(seen) / len(drawn.node_ids) / len(truth)
    assert accuracy(without_credit(drawn), truth) == pytest.approx(expected)
    assert auroc(without_credit(drawn), truth) <= 0.5


def test_a_setting_is_told_by_what_differs_from_the_defaults():
    assert Setting(GNNExplainer(lr=0.1)).words() == "`GNNExplainer(lr=0.1)`"
    words = Setting(GraphSVX.paper("ba-shapes", hops=2), "log_odds", "absolute", "mean").words()
    assert "samples=400, hops=2, mask=SmarterSeparate()" in words
    assert words.endswith("log-odds, ranked by magnitude, edges to nodes: mean")


def test_a_quick_setting_differs_in_effort_alone():
    paper = Setting(GraphSVX.paper("tree-grid"), "log_odds")
    assert paper.quick() == replace(paper, method=replace(paper.method, samples=150))
    assert Setting(GNNExplainer(lr=0.1)).quick().method == GNNExplainer(epochs=2, lr=0.1)
    assert Setting(Random()).quick() == Setting(Random())


def test_pgexplainer_learns_from_training_nodes_that_are_not_scored():
    trained = trained_on("tree-cycles")
    scored = trained.dataset.node_truth.nodes().tolist()[:200]
    questions = training_questions(trained, scored, 20)
    assert len(set(questions)) == 20
    assert not set(questions) & set(scored)
    assert set(questions) <= set(trained.dataset.split.train.tolist())


def test_pgexplainer_is_trained_once(context: StudyContext, monkeypatch: pytest.MonkeyPatch):
    trained = context.trained_model("tree-cycles")
    first = fitted(context, trained, PGExplainer(epochs=1), [511])
    monkeypatch.setattr(PGExplainer, "fit", lambda *_, **__: 1 / 0)
    again = fitted(context, trained, PGExplainer(epochs=1), [511])
    assert first.trained is not None
    assert again.trained is not None
    assert all(torch.equal(v, again.trained.weights[k]) for k, v in first.trained.weights.items())
    with pytest.raises(ZeroDivisionError):
        fitted(context, trained, PGExplainer(epochs=2), [511])


def test_explanations_come_by_query_and_are_kept(
    context: StudyContext, monkeypatch: pytest.MonkeyPatch
):
    trained = context.trained_model("ba-shapes")
    setting = Setting(GraphSVX(samples=50))
    first = setting.explanations(context, trained, [402, 401])
    assert list(first) == [401, 402]
    monkeypatch.setattr(GraphSVX, "__call__", lambda *_: 1 / 0)
    again = setting.explanations(context, trained, [401, 402])
    assert [e.nodes for e in again.values()] == [e.nodes for e in first.values()]
    assert not context.failures
    # Other settings are another run, and what fails is noted.
    assert Setting(GraphSVX(samples=60)).explanations(context, trained, [401]) == {}
    assert "ZeroDivisionError" in "".join(context.failures.values())
    assert list(Path(context.runs).rglob("*.parquet"))
    assert setting.explanations(context, trained, []) == {}
