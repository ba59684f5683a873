"""graphsvx as an algorithm of torch_geometric.explain."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.explain import Explainer, fidelity, unfaithfulness
from torch_geometric.nn import AttentiveFP, SimpleConv

import graphsvx
from graphsvx import GraphSVX, explain
from graphsvx.errors import UnsupportedError
from graphsvx.integrations.pyg import GraphSVXAlgorithm
from graphsvx.results.export import mask
from tests.worlds import pooled, random_graph, random_model

NODE = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def explainer(model, config=None, **options) -> Explainer:
    options = {"explanation_type": "model", "node_mask_type": "object", **options}
    return Explainer(model, algorithm=GraphSVXAlgorithm(), model_config=config or NODE, **options)


@pytest.fixture
def model() -> nn.Module:
    return random_model("gcn", 1)


def test_the_credit_has_the_shape_of_the_mask_and_orders_it(model) -> None:
    data = random_graph(1)
    pyg_explanation = explainer(model)(data.x, data.edge_index, index=1)
    e = explain(model, data, node=1)
    credit = pyg_explanation.node_credit
    assert credit.shape == pyg_explanation.node_mask.shape == (9, 1)
    for node, value in e.nodes.items():
        assert float(credit[node]) == pytest.approx(value, abs=1e-6)
    assert float(credit[1]) == pytest.approx(float(e.feature_values.sum()), abs=1e-6)
    assert pyg_explanation.graphsvx.nodes == e.nodes
    assert pyg_explanation.validate()
    assert "\n" not in repr(pyg_explanation)
    assert float(pyg_explanation.node_mask[1]) == 1  # the explained node stays
    others = [node for node in range(9) if node != 1]
    torch.testing.assert_close(pyg_explanation.node_mask[others], mask(credit)[others])


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        ([0.2, -0.5, 0.0, 0.1], [0.994, 1.0, 0.0, 0.992]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([], []),
    ],
)
def test_masks_are_in_the_range_that_pyg_expects(credit, expected) -> None:
    torch.testing.assert_close(mask(torch.tensor(credit)), torch.tensor(expected))


def test_common_attributes_are_the_features_of_the_neighbourhood(model) -> None:
    data = random_graph(1)
    pyg_explanation = explainer(model, node_mask_type="common_attributes")(
        data.x, data.edge_index, index=1
    )
    e = explain(model, data, node=1, method=GraphSVX(players="subgraph_features"))
    assert pyg_explanation.node_mask.shape == (1, 3)
    for column, value in e.features.items():
        assert float(pyg_explanation.node_credit[0, column]) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("returns", ["raw", "probs", "log_probs"])
def test_what_the_model_returns_is_respected(model, returns) -> None:
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x, edge_index):
            out = self.inner(x, edge_index)
            return {"raw": out, "probs": out.softmax(-1), "log_probs": out.log_softmax(-1)}[returns]

    data = random_graph(1)
    pyg_explanation = explainer(Returns(), {**NODE, "return_type": returns})(
        data.x, data.edge_index, index=1
    )
    assert pyg_explanation.graphsvx.nodes == pytest.approx(
        explain(model, data, node=1).nodes, abs=1e-9
    )


def test_a_phenomenon_is_explained_for_its_label(model) -> None:
    data = random_graph(1)
    pyg_explanation = explainer(model, explanation_type="phenomenon")(
        data.x, data.edge_index, target=torch.full((9,), 2), index=1
    )
    assert pyg_explanation.graphsvx.target == 2


def test_regression(model) -> None:
    data = random_graph(1)
    single_output = random_model("gcn", 1, classes=1)
    pyg_explanation = explainer(single_output, {"mode": "regression", "task_level": "node"})(
        data.x, data.edge_index, index=1
    )
    with torch.no_grad():
        assert pyg_explanation.graphsvx.prediction == pytest.approx(
            float(single_output(data.x, data.edge_index)[1])
        )


def test_binary_classification_with_one_output() -> None:
    data = random_graph(1)
    single_output = random_model("gcn", 1, classes=1)
    config = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
    pyg_explanation = explainer(single_output, config)(data.x, data.edge_index, index=1)
    with torch.no_grad():
        p = float(single_output(data.x, data.edge_index)[1].sigmoid())
    assert pyg_explanation.graphsvx.prediction == pytest.approx(max(p, 1 - p))


def test_whole_graphs() -> None:
    data = random_graph(1)
    batch = torch.zeros(9, dtype=torch.long)
    pyg_explanation = explainer(pooled("gcn", "add", 0), {**NODE, "task_level": "graph"})(
        data.x, data.edge_index, batch=batch
    )
    assert pyg_explanation.node_mask.shape == (9, 1)
    e = pyg_explanation.graphsvx
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
    batch[5:] = 1
    inside = (data.edge_index[0] < 5) == (data.edge_index[1] < 5)
    pyg_explanation = explainer(pooled("gcn", "add", 0), {**NODE, "task_level": "graph"})(
        data.x, data.edge_index[:, inside], batch=batch
    )
    first, second = pyg_explanation.graphsvx
    for node, value in first.nodes.items():
        assert float(pyg_explanation.node_credit[node]) == pytest.approx(value / 2, abs=1e-6)
    for node, value in second.nodes.items():
        assert float(pyg_explanation.node_credit[node + 5]) == pytest.approx(value / 2, abs=1e-6)


class Votes(nn.Module):
    """Neighbours with x = 1 vote for class 0, those with x = -1 for class 1."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = SimpleConv(aggr="sum")

    def forward(self, x, edge_index, words=None):
        votes = 2 * self.sum(x, edge_index)[:, :1]
        return torch.cat([votes, -votes], 1)


@pytest.mark.parametrize(("nodes", "edges"), [("object", None), (None, "object"), ("object",) * 2])
def test_pygs_metrics_find_the_masks_faithful(nodes, edges) -> None:
    x = torch.tensor([[0.0], [1], [1], [1], [1], [-1], [1], [-1]])
    edge_index = torch.stack([torch.arange(1, 8), torch.zeros(7, dtype=torch.long)])
    pyg_explainer = explainer(Votes(), node_mask_type=nodes, edge_mask_type=edges)
    pyg_explanation = pyg_explainer(x, edge_index, index=0)
    assert fidelity(pyg_explainer, pyg_explanation)[1] == 0  # what the mask keeps is sufficient
    ours = unfaithfulness(pyg_explainer, pyg_explanation)
    assert ours < 0.01
    for name in ("node", "edge"):
        if f"{name}_mask" in pyg_explanation:
            pyg_explanation[f"{name}_mask"] = pyg_explanation[f"{name}_credit"]
    # Signed credit is no mask.
    assert unfaithfulness(pyg_explainer, pyg_explanation) > 5 * ours


def test_pygs_own_metrics_take_it(model) -> None:
    data = random_graph(1)
    pyg_explainer = explainer(model, threshold_config=("topk", 3))
    pyg_explanation = pyg_explainer(data.x, data.edge_index, index=1)
    plus, minus = fidelity(pyg_explainer, pyg_explanation)
    assert 0 <= plus <= 1
    assert 0 <= minus <= 1
    assert 0 <= unfaithfulness(pyg_explainer, pyg_explanation) <= 1


def test_what_is_not_supported_is_named(model) -> None:
    data = random_graph(1)
    with pytest.raises(UnsupportedError, match="takes edge_label_index"):
        explainer(model, {**NODE, "task_level": "edge"})(data.x, data.edge_index, index=1)
    with pytest.raises(UnsupportedError, match="passes tensors on"):
        explainer(Votes())(data.x, data.edge_index, index=1, words="some")


def test_a_method_and_a_seed_can_be_given(model) -> None:
    data = random_graph(1)
    algorithm = GraphSVXAlgorithm(GraphSVX(players="nodes"), seed=5)
    pyg_explainer = Explainer(model, algorithm=algorithm, explanation_type="model",
                    node_mask_type="object", model_config=NODE)  # fmt: skip
    pyg_explanation = pyg_explainer(data.x, data.edge_index, index=1)
    assert pyg_explanation.graphsvx.feature_credit.players == 0
    assert pyg_explanation.graphsvx.certificate.seed == 5


def test_an_edge_mask_shares_the_prediction_out_among_edges(model) -> None:
    data = random_graph(1)
    pyg_explainer = explainer(model, node_mask_type=None, edge_mask_type="object")
    pyg_explanation = pyg_explainer(data.x, data.edge_index, index=1)
    e = explain(model, data, node=1, method=GraphSVX(players="edges"))
    assert pyg_explanation.edge_mask.shape == (data.num_edges,)
    assert "node_mask" not in pyg_explanation
    credit = pyg_explanation.edge_credit
    assert float(credit.sum()) == pytest.approx(e.prediction - e.base, abs=1e-5)
    for (u, v), value in e.edges.items():
        same = [
            float(m)
            for m, ends in zip(credit, data.edge_index.t().tolist(), strict=True)
            if set(ends) == {u, v}
        ]
        assert sum(same) == pytest.approx(value, abs=1e-6)
    assert 0 <= unfaithfulness(pyg_explainer, pyg_explanation) <= 1


class Links(nn.Module):
    """A link predictor as PyG's examples have it."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn = random_model("gcn", 1)

    def forward(self, x, edge_index, edge_label_index):
        z = self.gnn(x, edge_index)
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(-1)


def test_links_are_explained() -> None:
    data = random_graph(1)
    pairs = torch.tensor([[0, 3], [5, 7]])
    config = {"mode": "binary_classification", "task_level": "edge", "return_type": "raw"}
    pyg_explanation = explainer(Links(), config)(
        data.x, data.edge_index, index=1, edge_label_index=pairs
    )
    e = pyg_explanation.graphsvx
    assert e.centres == (3, 7)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
    with torch.no_grad():
        p = float(Links()(data.x, data.edge_index, pairs)[1].sigmoid())
    assert e.prediction == pytest.approx(max(p, 1 - p))


def test_a_single_pair_is_explained() -> None:
    data = random_graph(1)
    config = {"mode": "binary_classification", "task_level": "edge", "return_type": "raw"}
    pyg_explanation = explainer(Flat(), config, edge_mask_type="object")(
        data.x, data.edge_index, edge_label_index=torch.tensor([3, 7])
    )
    nodes, edges = pyg_explanation.graphsvx
    assert nodes.centres == edges.centres == (3, 7)
    assert nodes.class_names == ("no link", "link")
    assert pyg_explanation.edge_mask.shape == (data.num_edges,)


class Flat(Links):
    def forward(self, x, edge_index, edge_label_index):
        return super().forward(x, edge_index, edge_label_index).view(-1)


def test_outputs_of_graphs_are_explained_at_the_level_of_nodes() -> None:
    torch.manual_seed(0)
    model = AttentiveFP(3, 4, 1, edge_dim=2, num_layers=1, num_timesteps=1).double()
    data = random_graph(1)
    inside = (data.edge_index[0] < 5) == (data.edge_index[1] < 5)
    edge_index = data.edge_index[:, inside]
    config = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
    batch = torch.tensor([0] * 5 + [1] * 4)
    attributes = torch.ones(edge_index.shape[1], 2, dtype=torch.float64)
    pyg_explanation = explainer(model, config)(data.x, edge_index, edge_attr=attributes,
                                               batch=batch)  # fmt: skip
    assert [record.kind for record in pyg_explanation.graphsvx] == ["graph", "graph"]


def test_the_algorithm_has_a_short_name() -> None:
    assert graphsvx.pyg.GraphSVXAlgorithm is GraphSVXAlgorithm
