"""Evaluation of typed graphs: shortcuts of a model, and its inputs, which stay as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv

import graphsvx
from graphsvx.core.query import build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.rows import Rows
from graphsvx.methods import GraphSVX
from graphsvx.testing.oracle import algorithm_1, probability_of
from tests.typed_worlds import WIDTHS, Stack, every_node, typed_graph


class Residual(Stack):
    """Adds the hidden states of all nodes to the output of the second round."""

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        hidden = {k: v.tanh() for k, v in self.first(x_dict, edge_index_dict).items()}
        return self.head(hidden["paper"] + self.second(hidden, edge_index_dict)["paper"])


class Shared(Stack):
    """One convolution for all edge types of the second round."""

    def __init__(self, conv: Any) -> None:
        super().__init__(conv)
        layer = conv("paper", "paper", 6)
        for edge_type in self.second.convs:
            self.second.convs[edge_type] = layer


class Writes(Stack):
    """Scales the features of papers in place."""

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        x_dict["paper"].mul_(2.0)
        return super().forward(x_dict, edge_index_dict)


def sage(source: str, target: str, width: int | None) -> SAGEConv:
    return SAGEConv((width or WIDTHS[source], width or WIDTHS[target]), 6)


@pytest.mark.parametrize("network", [Stack, Residual, Shared])
def test_batches_hold_only_the_nodes_that_matter(network) -> None:
    torch.manual_seed(0)
    data = typed_graph(2, counts=(3, 2, 2))
    model = network(sage).double().eval()
    query = build_query(model, data, node=("paper", 0), target=0)
    with torch.no_grad():
        evaluator = choose_evaluator(query, None, 0)
    assert isinstance(evaluator, Rows)
    assert evaluator.shortcuts.reach == 2
    explanation = graphsvx.explain(
        model, data, node=("paper", 0), target=0, method=GraphSVX(players="nodes")
    )
    score, centre = probability_of(model, ("paper", 0), target=0), ("paper", 0)
    credit = algorithm_1(score, data, centre, every_node(data)[1:], []).nodes
    for kind, by_id in explanation.nodes.items():
        for i, got in by_id.by_id().items():
            assert got == pytest.approx(credit[(kind, i)], abs=1e-9)


def test_a_model_that_writes_to_its_inputs_leaves_the_users_data_as_they_are() -> None:
    torch.manual_seed(0)
    data = typed_graph(2, counts=(3, 2, 2))
    before = data["paper"].x.clone()
    model = Writes(sage).double().eval()
    explanation = graphsvx.explain(model, data, node=("paper", 0), target=0)
    assert torch.equal(data["paper"].x, before)
    with torch.no_grad():
        copies = {name: x.clone() for name, x in data.x_dict.items()}
        expected = model(copies, data.edge_index_dict)[0].softmax(-1)
    assert explanation.prediction == pytest.approx(float(expected[0]), abs=1e-9)


def test_shortcuts_that_games_have_shown_to_fail_are_not_kept(monkeypatch) -> None:
    torch.manual_seed(0)
    data, model = typed_graph(2, counts=(9, 8, 7)), Stack(sage).double().eval()
    method = GraphSVX(players="nodes", samples=100)
    right = graphsvx.explain(Stack(sage).double().eval(), data, node=("paper", 0), method=method)
    evaluate = Rows.evaluate

    def wrong_for_many(self: Rows, field: Any, perturbations: Any, hops: Any = None) -> Tensor:
        out = evaluate(self, field, perturbations, hops)
        return out + torch.arange(len(out)).reshape(-1, 1, 1) if len(out) > 6 else out

    monkeypatch.setattr(Rows, "evaluate", wrong_for_many)
    for paper in (0, 0, 1):
        explanation = graphsvx.explain(model, data, node=("paper", paper), method=method)
        assert "one call a coalition" in str(explanation.certificate.fallback)
    assert right.certificate.fallback is None
