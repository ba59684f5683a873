"""Baselines take the evaluator that is cached for a model, and leave it where it fails."""

from __future__ import annotations

import pytest
import torch

from graphsvx import explain
from graphsvx.core.query import build_query
from graphsvx.engine import choose as evaluators
from graphsvx.games.graph_game import GraphGame
from graphsvx.methods import GNNExplainer, Greedy, Random, Saliency
from tests.worlds import random_graph, random_model


def test_baselines_do_not_check_a_known_model_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    explain(model, data, node=1)
    monkeypatch.setattr(evaluators._Checked, "of", None)
    # GNNExplainer first: PyG changes the layers, which are as they were afterwards.
    for method in (GNNExplainer(epochs=2), Saliency(), Random(), Greedy(rounds=1)):
        assert explain(model, data, node=2, method=method).certificate.fallback is None


def test_a_cached_evaluator_that_gives_another_output_is_left() -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    query = build_query(model, data, node=1)
    evaluators.choose_evaluator(query, None, 0)
    profile = evaluators.profile_for(query.model, query.graph)
    assert profile.full_output is not None
    right, profile.full_output = profile.full_output, profile.full_output + 1
    evaluators.choose_evaluator(query, None, 0)
    assert torch.equal(evaluators.profile_for(query.model, query.graph).full_output, right)


def test_greedy_replays_what_it_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = random_model("gcn", 1), random_graph(1)
    right = explain(random_model("gcn", 1), random_graph(1), node=1, method=Greedy(rounds=2))
    store = GraphGame._store

    def wrong_for_the_fastest(self, states, out, *rest):
        if self.evaluator.checks.fallback is None:
            out = out + 0.1 * torch.randn_like(out) * (torch.arange(len(out)) > 1)[:, None, None]
        return store(self, states, out, *rest)

    monkeypatch.setattr(GraphGame, "_store", wrong_for_the_fastest)
    replayed = explain(model, data, node=1, method=Greedy(rounds=2))
    assert replayed.certificate.fallback is not None
    assert torch.allclose(replayed.node_values, right.node_values, atol=1e-9)
    assert torch.allclose(replayed.feature_values, right.feature_values, atol=1e-9)
