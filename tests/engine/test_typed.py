"""Evaluation of typed graphs: shortcuts of a model, and its inputs, which stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GINConv,
    GraphConv,
    HeteroConv,
    SAGEConv,
    TransformerConv,
)

import graphsvx
from graphsvx.core.query import build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import node_perturbations
from graphsvx.engine.rows import Rows
from graphsvx.methods import GraphSVX
from graphsvx.testing.oracle import algorithm_1, probability_of
from tests.typed_worlds import EDGE_TYPES, WIDTHS, Stack, every_node, typed_graph


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


ENDS = (6, 6)
KERNELS = {
    "sage": lambda: SAGEConv(ENDS, 6),
    "sage, normalised sums": lambda: SAGEConv(ENDS, 6, aggr="sum", normalize=True),
    "graph": lambda: GraphConv(ENDS, 6),
    "gin": lambda: GINConv(nn.Linear(6, 6), eps=0.3),
    "gat": lambda: GATConv(ENDS, 3, heads=2, add_self_loops=False, residual=True),
    "gatv2": lambda: GATv2Conv(ENDS, 3, heads=2, add_self_loops=False),
    "transformer": lambda: TransformerConv(ENDS, 3, heads=2, beta=True),
}


class Projected(nn.Module):
    """Two rounds of one kind of layer between rows of equal width."""

    def __init__(self, conv: Any, aggregation: str) -> None:
        super().__init__()
        self.project = nn.ModuleDict({name: nn.Linear(w, 6) for name, w in WIDTHS.items()})
        self.rounds = nn.ModuleList(
            HeteroConv({name: conv() for name in EDGE_TYPES}, aggr=aggregation) for _ in range(2)
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        hidden = {name: self.project[name](x).tanh() for name, x in x_dict.items()}
        for layer in self.rounds:
            hidden = {name: x.tanh() for name, x in layer(hidden, edge_index_dict).items()}
        return self.head(hidden["paper"])


@pytest.mark.parametrize("aggregation", ["sum", "mean", "max"])
@pytest.mark.parametrize("kind", KERNELS)
@torch.no_grad()
def test_layers_of_edge_types_are_computed_by_kernels(kind: str, aggregation: str) -> None:
    torch.manual_seed(0)
    data = typed_graph(3, counts=(12, 9, 5), chance=0.15)
    model = Projected(KERNELS[kind], aggregation).double().eval()
    query = build_query(model, data, node=("paper", 0), target=0)
    evaluator = choose_evaluator(query, None, 0)
    assert isinstance(evaluator, Rows)
    assert (evaluator.depth, evaluator.shortcuts.rounds) == (2, 2)
    on = np.random.default_rng(0).random((30, evaluator.field.size)) < 0.6
    on[:, 0] = True
    graphs = node_perturbations(query, evaluator.field, on)
    out = evaluator.evaluate(evaluator.field, graphs)
    alone = evaluator.plain(evaluator.field).evaluate(evaluator.field, graphs)
    torch.testing.assert_close(out, alone)
    own_code: list[Any] = []
    for hetero in model.rounds:  # hooks that were seen before would leave the layers as they are
        for layer in hetero.convs.values():
            layer.register_propagate_forward_hook(lambda *_: own_code.append(1))
    evaluator.evaluate(evaluator.field, graphs)
    assert not own_code


class Linear(nn.Module):
    """One round in which each sender adds to the outputs by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = HeteroConv(
            {t: GraphConv((WIDTHS[t[0]], WIDTHS[t[2]]), 3) for t in EDGE_TYPES}, aggr="sum"
        )

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        return self.conv(x_dict, edge_index_dict)["paper"]


@torch.no_grad()
def test_derivatives_by_senders_of_all_types_are_the_differences_that_they_make() -> None:
    torch.manual_seed(0)
    data, model = typed_graph(3, counts=(8, 6, 4)), Linear().double().eval()
    for name in data.edge_types:
        ends, different = data[name].edge_index, name[0] != name[2]
        data[name].clear()  # without weights
        data[name].edge_index = ends[:, different | (ends[0] != ends[1])]
    query = build_query(model, data, node=("paper", 0), target=0)
    evaluator = choose_evaluator(query, None, 0)
    field = evaluator.field
    everyone = np.ones((field.size, field.size), dtype=bool)
    full = node_perturbations(query, field, everyone[:1])
    slopes = evaluator.slopes(field, full, evaluator.hop_counts(field, full), lambda out: out[:, 0])
    assert slopes is not None
    without = node_perturbations(query, field, everyone & ~np.eye(field.size, dtype=bool))
    differences = evaluator.evaluate(field, full) - evaluator.evaluate(field, without)
    torch.testing.assert_close(slopes[0, 1:].double(), differences[1:, 0], atol=1e-6, rtol=1e-5)
