"""What nodes do to the score of a model whose score is its number of neighbours."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest
import torch

from graphsvx import explain
from graphsvx.methods import Random
from graphsvx.results.credit import Credit
from graphsvx_lab.metrics.effects import leave_one_out, score_without
from graphsvx_lab.studies import faithfulness as retraining
from tests.studies.conftest import trained_on


def score(edges: int) -> float:
    return 1 / (1 + exp(-edges))


def test_only_neighbours_have_an_effect_and_each_the_same(monkeypatch: pytest.MonkeyPatch):
    trained = trained_on("tree-cycles")
    graph, node = trained.dataset.graph, int(trained.dataset.node_truth.attached[0]) + 2
    near = set(graph.edge_index[0, graph.edge_index[1] == node].tolist())
    drawn = explain(trained.model, graph, node=node, method=Random(players="nodes"), target=1)
    falls = dict(
        zip(drawn.node_ids.tolist(), leave_one_out(drawn, trained.model, graph), strict=True)
    )
    fall = score(len(near)) - score(len(near) - 1)
    for player, value in falls.items():
        assert float(value) == pytest.approx(fall if player in near else 0, abs=1e-6)
    without = score_without(trained, node, 1)
    assert without(()) == pytest.approx(score(len(near)), abs=1e-6)
    assert without(near) == pytest.approx(0.5)
    # All of the explanation is cut, or all others: one neighbour is the explanation.
    ids = torch.tensor([*sorted(near), max(near) + 1])
    values = torch.zeros(1, len(ids)).double()
    values[0, 0] = 1
    explanation = replace(drawn, node_credit=Credit(ids, values, values))
    monkeypatch.setattr(retraining, "fine_tuned", lambda trained, *_: trained.model)
    plus, minus = retraining.robust_fidelity(explanation, trained, node, top=1, part=1.0)
    assert plus == pytest.approx(fall, abs=1e-6)
    assert minus == pytest.approx(score(len(near)) - score(1), abs=1e-6)
    # Half of them: between nothing and all.
    _, half = retraining.robust_fidelity(explanation, trained, node, top=1, part=0.5)
    assert 0 <= half <= minus
