"""What the outputs of typed models are read as: classes, labels, numbers; and of which type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from graphsvx import GraphSVX, explain
from graphsvx.errors import GraphSVXError, InputError
from graphsvx.testing.oracle import algorithm_1, call, distances, ends_of
from tests.typed_worlds import hetero_model, typed_graph
from tests.worlds import random_graph, random_model

NODE = ("paper", 1)


class After(nn.Module):
    """A model followed by a function of its outputs."""

    def __init__(self, inner: nn.Module, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        return self.function(self.inner(x_dict, edge_index_dict))


def same(out: Tensor) -> Tensor:
    return out


def graph(labels: Tensor | None = None) -> HeteroData:
    data = typed_graph(1)
    if labels is None:
        del data["paper"].y
    else:
        data["paper"].y = labels
    return data


LABELS = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1]])
CASES = {
    "a sigmoid in the model": (torch.sigmoid, None, same),
    "a softmax in the model": (lambda out: out.softmax(-1), None, same),
    "labels of 0 and 1": (same, LABELS, torch.sigmoid),
    "classes": (same, torch.arange(4) % 3, lambda out: out.softmax(-1)),
    "numbers": (lambda out: out[:, :1], torch.randn(4), same),
    "numbers, several outputs": (same, torch.randn(4, 3), same),
}


@pytest.mark.filterwarnings("ignore:data.y")
@pytest.mark.parametrize("name", CASES)
def test_brute_force_agrees(name: str) -> None:
    function, labels, read = CASES[name]
    data = graph(labels)
    model = After(hetero_model("sage", data, 0), function)
    explanation = explain(model, data, node=NODE, method=GraphSVX(players="nodes"), targets="all")
    steps = distances(ends_of(data), [NODE])
    players = [node for node in steps if 0 < steps[node] <= 2]
    truth = algorithm_1(lambda d: read(call(model, d))[NODE[1]], data, NODE, players, [])
    position = {explanation.types.node(n): i for i, n in enumerate(explanation.node_ids.tolist())}
    assert explanation.bases.tolist() == pytest.approx(truth.base.tolist(), abs=1e-9)
    for player, credit in truth.nodes.items():
        values = explanation.node_credit.values[:, position[player]]
        assert values.tolist() == pytest.approx(credit.tolist(), abs=1e-9)


def test_what_is_assumed_is_said() -> None:
    data = graph()
    one_output = After(hetero_model("sage", data, 0), lambda out: out[:, :1])
    with pytest.warns(UserWarning, match="read as the logit of the second of two classes"):
        explain(one_output, data, node=NODE)
    with pytest.warns(UserWarning, match="read as logits of labels"):
        explain(hetero_model("sage", data, 0), graph(LABELS), node=NODE)
    with pytest.warns(UserWarning, match="read as a regression"):
        numbers = explain(one_output, graph(torch.randn(4)), node=NODE)
    assert numbers.title == "paper 1: output 0"


@pytest.mark.parametrize("counts", [(4, 3, 2), (4, 4, 2), (4, 4, 4)])
def test_outputs_of_another_type_are_not_taken_for_those_of_the_asked_one(counts) -> None:
    data = typed_graph(2, counts=counts)
    model = hetero_model("sage", data, 0)
    explain(model, data, node=("paper", 1), method=GraphSVX(samples=20))
    with pytest.raises(InputError, match=r"a row for each node of type 'paper'.*not of 'author'"):
        explain(model, data, node=("author", 1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda out: (out, None), r"got tuple of 2; say where .* output=lambda out: out\[0\]"),
        (lambda out: {"logits": out}, r"output=lambda out: out\['logits'\]"),
    ],
)
def test_outputs_that_are_no_tensor_say_where_to_point(function, message) -> None:
    data = graph()
    with pytest.raises(GraphSVXError, match=message):
        explain(After(hetero_model("sage", data, 0), function), data, node=NODE)


def test_floating_types_that_differ_and_sparse_edges_say_what_to_do() -> None:
    data = graph()
    with pytest.raises(GraphSVXError, match="features are float64, weights float32: convert"):
        explain(hetero_model("sage", data, 0).float(), data, node=NODE)
    for store in data.edge_stores:
        store.adj_t = store.pop("edge_index")
    with pytest.raises(InputError, match=r"has a sparse adj_t; .*ToSparseTensor"):
        explain(hetero_model("sage", graph(), 0), data, node=NODE)


def test_each_decoder_has_a_reading_of_its_own() -> None:
    data = graph()
    model = hetero_model("encoder", data, 1)
    out = call(model, data)
    logit = float(out["author"][1] @ out["paper"][2])
    link = {"edge": (("author", 1), ("paper", 2)), "method": GraphSVX(samples=20)}
    decoders: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda a, b: (a * b).sum(-1).sigmoid(), lambda a, b: (a * b).sum(-1),
    ]  # fmt: skip
    for decoder in [*decoders, *decoders[::-1], None]:
        explanation = explain(model, data, decoder=decoder, target=1, **link)
        assert explanation.prediction == pytest.approx(torch.tensor(logit).sigmoid().item())


def test_a_model_of_one_node_type_is_read_for_each_kind_of_question() -> None:
    data = random_graph(1, nodes=8)
    model = Sigmoid(random_model("gcn", 1))
    with torch.no_grad():
        out = model(data.x, data.edge_index)
    logit = lambda a, b: (a * b).sum(-1)  # noqa: E731  (a decoder)
    probability = explain(model, data, edge=(0, 3), decoder=logit, target=1).prediction
    assert probability == pytest.approx(float((out[0] @ out[3]).sigmoid()))
    assert explain(model, data, edge=(0, 3), target=1).prediction == pytest.approx(probability)
    labels = explain(model, data, node=2, targets="all")
    assert labels.predictions.tolist() == pytest.approx(out[2].tolist())


class Sigmoid(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index).sigmoid()
