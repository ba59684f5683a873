"""Selective explanations: few players, chosen by a Lasso, that carry the whole prediction."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphsvx import GraphSVX, explain
from graphsvx.estimators import Lasso
from graphsvx.estimators.lasso import kernel_gram
from graphsvx.masks import All, Auto, Paired, Random
from graphsvx.testing.oracle import coalitions, cut, kernel_weight, probability_of, replace_features
from tests.worlds import node_world

SPARSE_MASKS = [Auto(), Paired(), All(separate=True), All(), Random()]


@pytest.mark.parametrize("mask", SPARSE_MASKS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_at_most_k_players_carry_the_whole_prediction(mask, k: int) -> None:
    for seed in range(3):
        model, data = node_world("gcn", seed, nodes=9, chance=0.3)
        method = GraphSVX(estimator=Lasso(k=k), mask=mask, samples=200)
        e = explain(model, data, node=1, method=method, targets="all")
        for target in e.outputs:
            explanation = e.for_target(target)
            credit = torch.cat([explanation.node_values, explanation.feature_values])
            assert 1 <= int((credit != 0).sum()) <= k
            assert explanation.base + explanation.total == pytest.approx(
                explanation.prediction, abs=1e-9
            )
        assert not e.certificate.exact, "few players are not the Shapley values"
        assert e.selection.chosen <= k


@pytest.mark.parametrize("mask", [Auto(), Paired(), All(separate=True)])
def test_a_lasso_with_room_for_all_players_keeps_all(mask) -> None:
    model, data = node_world("sage", 2, nodes=8)
    plain = explain(model, data, node=1, method=GraphSVX(mask=mask, samples=4000))
    e = explain(
        model, data, node=1, method=GraphSVX(mask=mask, samples=4000, estimator=Lasso(k=50))
    )
    assert e.nodes == pytest.approx(plain.nodes, abs=1e-7)
    assert e.features == pytest.approx(plain.features, abs=1e-7)
    assert e.selection.carried == pytest.approx(1, abs=1e-9)
    assert e.selection.alone == pytest.approx(e.prediction, abs=1e-9)


def test_the_selection_reports_its_share_of_the_credit() -> None:
    model, data = node_world("gin", 4, nodes=9, chance=0.3)
    plain = explain(model, data, node=1, method=GraphSVX(features="all"))
    e = explain(model, data, node=1, method=GraphSVX(features="all", estimator=Lasso(k=3)))
    nodes = [i for i, value in e.nodes.items() if value != 0]
    features = [j for j, value in e.features.items() if value != 0]
    chosen_credit = sum(plain.nodes[i] for i in nodes) + sum(plain.features[j] for j in features)
    selection = e.selection
    assert selection.carried == pytest.approx(chosen_credit / plain.total, abs=1e-9)
    assert selection.players == len(plain.nodes) + len(plain.features)
    # Alone: the chosen features with no neighbour, then the chosen neighbours with all features.
    off = [i for i in e.nodes if i not in nodes]
    score, isolated = probability_of(model, 1, target=e.target), cut(data, e.nodes)
    few = replace_features(isolated, [1], set(e.features) - {*features})
    alone = score(few) + score(cut(data, off)) - score(isolated)
    assert selection.alone == pytest.approx(alone, abs=1e-9)


def test_the_players_that_matter_are_the_chosen_ones() -> None:
    """Two of many neighbours send anything: two are chosen, with the right credit."""

    class Adds(nn.Module):
        def forward(self, x, edge_index):
            return x + torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])

    x = torch.zeros(12, 1, dtype=torch.float64)
    x[4], x[9] = 2.0, -1.0
    data = Data(x=x, edge_index=torch.stack([torch.arange(1, 12), torch.zeros(11).long()]))
    for mask in (Auto(), Paired()):
        for k in (2, None):
            method = GraphSVX(estimator=Lasso(k=k), mask=mask, samples=300, players="nodes", hops=1)
            e = explain(Adds(), data, node=0, method=method, scale="value")
            chosen = {i: v for i, v in e.nodes.items() if v != 0}
            assert chosen == pytest.approx({4: 2.0, 9: -1.0}, abs=1e-9)


@pytest.mark.parametrize("players", [1, 2, 3, 6])
def test_the_closed_form_of_the_kernels_second_moments(players: int) -> None:
    """E[z z'] over all coalitions, each with its kernel weight."""
    if players == 1:
        assert kernel_gram(1).tolist() == [[0.5]]
        return
    total, moments = 0.0, torch.zeros(players, players, dtype=torch.float64)
    for chosen in coalitions(range(players))[1:-1]:
        weight = kernel_weight(len(chosen), players)
        z = torch.zeros(players, dtype=torch.float64)
        z[list(chosen)] = 1
        moments += weight * z[:, None] * z
        total += weight
    torch.testing.assert_close(torch.from_numpy(kernel_gram(players)), moments / total)


def test_validation_chooses_few_of_many_noisy_rows() -> None:
    model, data = node_world("gcn", 1, nodes=14, chance=0.3)
    method = GraphSVX(estimator=Lasso(), mask=Paired(), samples=200)
    e = explain(model, data, node=1, method=method)
    assert 1 <= e.selection.chosen <= e.selection.players
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
