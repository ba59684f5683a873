"""Evaluators that may be chosen give the outputs of plain calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import ChebConv, GCNConv, global_mean_pool

from graphsvx.core.query import Query, build_query
from graphsvx.engine import states
from graphsvx.engine.choose import Trial, any_accepted, choose_evaluator
from graphsvx.engine.evaluator import Evaluator, node_perturbations
from graphsvx.engine.lazy import plain
from tests.worlds import random_graph


class Chebyshev(nn.Module):
    """A layer whose messages are not known to follow the edges only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = ChebConv(3, 2, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, edge_index).tanh()


class Pooled(nn.Module):
    """A model of whole graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = GCNConv(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.layer(x, edge_index).relu(), batch))


class Convolutions(nn.Module):
    """A model with kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(3, 4), GCNConv(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def evaluators_of(kind: type[nn.Module]) -> tuple[Query, list[Evaluator]]:
    torch.manual_seed(0)
    question = {"graph": True} if kind is Pooled else {"node": 1}
    query = build_query(kind().double().eval(), random_graph(3, nodes=12), **question)
    with torch.no_grad():
        cached = choose_evaluator(query, None, 0)
        others: list[Evaluator] = []

        def none_holds(evaluator: Evaluator, _: object) -> bool:
            others.append(evaluator)
            return False

        any_accepted(query, None, 0, Trial(lambda evaluator: evaluator, none_holds))
        return query, [cached, *others]


@pytest.mark.parametrize("kind", [Convolutions, Chebyshev, Pooled])
def test_all_evaluators_give_the_outputs_of_plain_calls(
    kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "FEWEST_GRAPHS", 1)
    query, evaluators = evaluators_of(kind)
    assert len(evaluators) > 2
    for evaluator in evaluators:
        field = evaluator.field
        active = np.random.default_rng(0).random((40, field.size)) < 0.6
        active[:, : field.centres] = True
        perturbations = node_perturbations(query, field, active)
        with torch.no_grad():
            outputs = plain(evaluator.evaluate(field, perturbations))
            truth = evaluator.plain(field).evaluate(field, perturbations)
        torch.testing.assert_close(outputs, truth, atol=1e-10, rtol=1e-10)


def test_each_kind_of_evaluator_is_among_them() -> None:
    kinds = [
        evaluator
        for kind in (Convolutions, Chebyshev, Pooled)
        for evaluator in evaluators_of(kind)[1]
    ]
    assert {type(evaluator).__name__ for evaluator in kinds} == {
        "Plain", "Copies", "Rows", "States"
    }  # fmt: skip
