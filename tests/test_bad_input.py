"""Wrong questions get a clear answer, odd but valid ones the right result."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCN, GATConv

from graphsvx import GraphSVX, explain, runs
from graphsvx.errors import BudgetError, GraphSVXError, InputError, ModelError, TargetError
from graphsvx.results.summary import Explanations
from tests.worlds import random_graph, random_model


@pytest.fixture
def data() -> Data:
    return random_graph(1)


@pytest.fixture
def model() -> nn.Module:
    return random_model("gcn", 1)


@pytest.mark.parametrize("node", [-1, 9, 10**9, 1.0, "1", None, True, [1], math.nan])
def test_a_node_must_be_an_integer_of_the_graph(model, data, node) -> None:
    with pytest.raises(InputError, match=r"node"):
        explain(model, data, node=node)


def test_a_node_may_come_from_numpy_or_torch(model, data) -> None:
    plain = explain(model, data, node=3)
    for node in (np.int32(3), torch.tensor(3), torch.tensor([3])[0]):
        assert explain(model, data, node=node).nodes == plain.nodes


def test_exactly_one_question_at_a_time(model, data) -> None:
    with pytest.raises(InputError, match="one of node=, nodes=, edge= or graph"):
        explain(model, data)
    with pytest.raises(InputError, match="node and nodes"):
        explain(model, data, node=1, nodes=[1, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "data has no x"),
        ({"x": None, "y": None}, "data.num_nodes"),
        ({"x": [[1.0]] * 9}, "x must be a tensor"),
        ({"x": torch.randn(9, dtype=torch.float64)}, r"shape \[nodes\]"),
        ({"x": torch.ones(9, 3, dtype=torch.long)}, r"use data.x.float\(\)"),
        ({"x": torch.ones(9, 3, dtype=torch.complex64)}, "floating"),
        ({"x": torch.zeros(0, 3)}, "empty"),
        ({"edge_index": None}, "edge_index"),
        ({"edge_index": torch.zeros(3, 4, dtype=torch.long)}, r"\[2, edges\]"),
        ({"edge_index": torch.zeros(2, 4)}, "torch.long"),
        ({"edge_index": torch.tensor([[0, 99], [1, 2]])}, "0 to 8"),
        ({"edge_index": torch.tensor([[0, -1], [1, 2]])}, "0 to 8"),
        ({"edge_attr": torch.ones(3, 2)}, "edge_attr must have one row"),
        ({"edge_weight": torch.ones(3)}, "edge_weight must have one row"),
    ],
)
def test_a_malformed_graph_is_refused(model, data, change, message) -> None:
    for name, value in change.items():
        setattr(data, name, value)
    with pytest.raises((InputError, ModelError), match=message):
        explain(model, data, node=1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_features_must_be_finite(model, data, value) -> None:
    data.x[4, 2] = value
    with pytest.raises(InputError, match="node 4, feature 2"):
        explain(model, data, node=1)


def test_a_change_in_place_is_noticed(model, data) -> None:
    explain(model, data, node=1)
    data.x[0, 0] = math.nan
    with pytest.raises(InputError, match="finite"):
        explain(model, data, node=1)
    data.x[0, 0] = 0
    explain(model, data, node=1)
    data.edge_index[0, 0] = 99
    with pytest.raises(InputError, match="99"):
        explain(model, data, node=1)


def test_an_isolated_node_is_explained_by_its_features(model, data) -> None:
    data.edge_index = data.edge_index[:, (data.edge_index != 5).all(0)]
    e = explain(model, data, node=5)
    assert e.node_credit.players == 0
    assert e.feature_credit.players > 0
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_without_any_edge_there_are_only_features(model, data) -> None:
    data.edge_index = torch.zeros(2, 0, dtype=torch.long)
    e = explain(model, data, node=5)
    assert e.node_credit.players == 0
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_constant_features_leave_only_nodes(model, data) -> None:
    data.x = torch.full_like(data.x, 0.1)
    e = explain(model, data, node=1)
    assert e.feature_credit.players == 0
    assert e.node_credit.players > 0
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_with_no_player_at_all_the_prediction_is_the_base(model, data) -> None:
    data.x = torch.full_like(data.x, 0.1)
    data.edge_index = torch.zeros(2, 0, dtype=torch.long)
    e = explain(model, data, node=1)
    assert e.total == 0
    assert e.base == e.prediction > 0
    assert e.certificate.exact
    assert "no players" in e.certificate.line()


def test_a_graph_of_one_node(model) -> None:
    data = Data(x=torch.ones(1, 3, dtype=torch.float64), edge_index=torch.zeros(2, 0).long())
    e = explain(model, data, node=0)
    assert e.base == e.prediction


def test_no_features_at_all() -> None:
    def model(x, edge_index):
        ones = torch.ones(x.shape[0], 1)
        total = ones.clone().index_add_(0, edge_index[1], ones[edge_index[0]])
        return torch.cat([total, -total], 1)

    data = Data(x=torch.zeros(3, 0), edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
    e = explain(model, data, node=0, method=GraphSVX(hops=1))
    assert e.nodes[1] == pytest.approx(e.nodes[2])


class _Returns(nn.Module):
    def __init__(self, make) -> None:
        super().__init__()
        self.make = make

    def forward(self, x, edge_index):
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x[:2], r"shape \[\d+, outputs\], got \[2, 3\]"),
        (lambda x: x[None], "shape"),
        (lambda x: x[:, :0], "shape"),
        (lambda x: (x, x), "one tensor, got tuple"),
        (lambda x: x * math.nan, "NaN"),
        (lambda x: torch.full_like(x, math.inf), "NaN or infinite"),
        (lambda x: x @ torch.ones(7, 1), "failed on a graph with"),
    ],
)
def test_a_model_that_returns_nonsense(data, make, message) -> None:
    with pytest.raises(ModelError, match=message):
        explain(_Returns(make), data, node=1)


def test_a_model_is_something_to_call(data) -> None:
    with pytest.raises(InputError, match="callable, got str"):
        explain("gcn", data, node=1)


def test_a_random_model_is_refused(data) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = random_model("gcn", 1)

        def forward(self, x, edge_index):
            return self.inner(nn.functional.dropout(x, 0.5, training=True), edge_index)

    with pytest.raises(ModelError, match="random layers"):
        explain(Noisy(), data, node=1)


@pytest.mark.parametrize("samples", [1, 0, -5, 2.5, "many", True, 10**14])
def test_the_budget_is_an_integer_within_bounds(samples) -> None:
    with pytest.raises(BudgetError, match=r"at least 2|at most 10,000,000"):
        GraphSVX(samples=samples)


def test_a_budget_of_two_still_adds_up(model, data) -> None:
    e = explain(model, data, node=1, method=GraphSVX(samples=2))
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


@pytest.mark.parametrize("target", [3, -1, 1.5, "a"])
def test_a_target_must_exist(model, data, target) -> None:
    with pytest.raises(InputError, match="target"):
        explain(model, data, node=1, target=target)


def test_what_the_model_returns_must_be_what_output_says(model, data) -> None:
    for output in ("probs", "log_probs"):
        with pytest.raises(ModelError, match="say what it returns by"):
            explain(model, data, node=1, output=output)

    def squashed(x, edge_index):
        return model(x, edge_index).softmax(-1)

    with pytest.warns(UserWarning, match="seems to return probabilities"):
        explain(squashed, data, node=1, output="raw", method=GraphSVX(hops=2))
    for output in ("probs", None):  # None: it is seen in the model's last operation
        e = explain(squashed, data, node=1, output=output, method=GraphSVX(hops=2))
        assert e.nodes == pytest.approx(explain(model, data, node=1).nodes, abs=1e-9)


def test_a_batch_of_graphs_is_not_one_graph(data) -> None:
    batch = Batch.from_data_list([data, data])
    with pytest.raises(InputError, match="explain_many"):
        explain(lambda x, edge_index, batch: x, batch, graph=True)


def test_nodes_may_be_a_mask(model, data) -> None:
    mask = torch.zeros(9, dtype=torch.bool)
    mask[[2, 5]] = True
    assert explain(model, data, nodes=mask).centres == (2, 5)
    with pytest.raises(InputError, match="9 entries"):
        explain(model, data, nodes=mask[:4])


@pytest.mark.parametrize("method", ["graphsvx", GraphSVX, 3])
def test_a_method_is_an_object_with_its_settings(model, data, method) -> None:
    with pytest.raises(InputError, match="such as GraphSVX"):
        explain(model, data, node=1, method=method)


def test_several_regression_outputs_need_a_choice(model, data) -> None:
    with pytest.raises(TargetError, match="say which one"):
        explain(model, data, node=1, scale="value")
    assert explain(model, data, node=1, scale="value", target=2).target == 2
    assert explain(model, data, node=1, scale="value", targets="all").outputs == (0, 1, 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"hops": -1}, {"hops": 1.5}, {"indirect": "sometimes"}, {"players": "edge"},
        {"tolerance": 0}, {"tolerance": -1},
    ],
)  # fmt: skip
def test_settings_are_checked_when_they_are_made(settings) -> None:
    with pytest.raises(InputError):
        GraphSVX(**settings)


@pytest.mark.parametrize("features", ["most", -1, None, True])
def test_a_feature_choice_must_be_known(model, data, features) -> None:
    with pytest.raises(InputError, match="features must be"):
        explain(model, data, node=1, method=GraphSVX(features=features))


@pytest.mark.parametrize(
    "options", [{"output": "softmax"}, {"scale": "percent"}, {"seed": 1.5}, {"seed": "x"},
                {"seed": -1},
                {"memory": 0}, {"targets": "some"}],
)  # fmt: skip
def test_options_are_checked(model, data, options) -> None:
    with pytest.raises(InputError):
        explain(model, data, node=1, **options)


def test_an_edge_attribute_that_the_model_needs_must_be_there(data) -> None:
    class Needs(nn.Module):
        def forward(self, x, edge_index, edge_attr):
            return x

    with pytest.raises(InputError, match=r"edge_attr.*data does not have"):
        explain(Needs(), data, node=1)

    class Strange(nn.Module):
        def forward(self, x, edge_index, temperature):
            return x

    with pytest.raises(InputError, match=r"temperature.*data does not have.*arguments="):
        explain(Strange(), data, node=1)


def test_edge_attributes_reach_the_model(data) -> None:
    class WithAttributes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv = GATConv(3, 2, edge_dim=4).double()

        def forward(self, x, edge_index, edge_attr):
            return self.conv(x, edge_index, edge_attr)

    data.edge_attr = torch.randn(data.num_edges, 4, dtype=torch.float64)
    model = WithAttributes()
    e = explain(model, data, node=1)
    with torch.no_grad():
        expected = model(data.x, data.edge_index, data.edge_attr)[1].softmax(-1)
    assert e.prediction == pytest.approx(float(expected[e.target]), abs=1e-9)


def test_every_error_is_ours(model, data) -> None:
    with pytest.raises(GraphSVXError):
        explain(model, data, node=99)
    with pytest.raises(ValueError, match="node"):
        explain(model, data, node=99)


def test_the_model_is_left_as_it_was(data) -> None:
    model = GCN(3, 8, 2, 3, dropout=0.5).double()
    model.convs[0].eval()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    explain(model, data, node=1)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_model_is_left_as_it_was_after_an_error(data, error) -> None:
    class Fails(nn.Module):
        def forward(self, x, edge_index):
            torch.rand(3)
            raise error("no")

    model = Fails().train()
    before = torch.get_rng_state()
    with pytest.raises((ModelError, KeyboardInterrupt)):
        explain(model, data, node=1)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c", "d")])
def test_every_output_has_a_name_or_none_has(model, data, names) -> None:
    with pytest.raises(InputError, match=r"each of the 3 outputs, got \d: a"):
        explain(model, data, node=1, class_names=names)
    assert explain(model, data, node=1, class_names=("a", "b", "c")).class_names == ("a", "b", "c")


def test_the_papers_setting_for_a_set_that_does_not_exist() -> None:
    with pytest.raises(GraphSVXError, match=r"did you mean 'tree-cycles'\? got 'tree-cycle'"):
        GraphSVX.paper("tree-cycle")


def test_what_is_no_name_no_explanation_and_no_choice_is_refused(model, data, tmp_path) -> None:
    explanation = explain(model, data, node=1)
    with pytest.raises(InputError, match="names must be Names, got 3"):
        explanation.with_names(3)
    with pytest.raises(InputError, match="must be made of explanations, got None"):
        Explanations(None)
    with pytest.raises(InputError, match=r"progress must be .*got 'x'"):
        runs.start(model, data, [0], out=tmp_path / "run", progress="x")
