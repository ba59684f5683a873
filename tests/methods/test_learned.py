"""The explained model as PyG's algorithms read it, and learned masks that nothing depends on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx.core.query import build_query
from graphsvx.methods import GNNExplainer
from graphsvx.methods.baseline import local_graph_of
from graphsvx.methods.learned import PyGQuestion, as_classes

LOGITS = torch.tensor([[-2.0], [0.5], [3.0]])


def test_a_single_output_is_that_of_the_second_of_two_classes() -> None:
    probabilities = LOGITS.sigmoid()
    both_classes = torch.cat([1 - probabilities, probabilities], 1)
    torch.testing.assert_close(as_classes(LOGITS, "raw", None).softmax(-1), both_classes)
    torch.testing.assert_close(as_classes(probabilities, "probs", None), both_classes)
    torch.testing.assert_close(
        as_classes(probabilities.log(), "log_probs", None).exp(), both_classes
    )


@pytest.mark.parametrize("output", ["raw", "probs", "log_probs"])
def test_several_outputs_are_read_as_they_are_and_one_of_a_regression(output: str) -> None:
    returned = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(as_classes(returned, output, None), returned)
    assert torch.equal(as_classes(returned, output, 1), returned[:, 1:])


def test_masks_that_the_output_does_not_depend_on_are_zero() -> None:
    """A model of features alone: with and without edges, and one that reads nothing at all."""

    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.cat([x, -x], 1)

    x = torch.tensor([[1.0], [2.0]])
    for edge_index in (torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 0, dtype=torch.long)):
        query = build_query(model, Data(x=x, edge_index=edge_index), nodes=[0, 1])
        question = PyGQuestion(local_graph_of(query, 0), 0)
        with torch.enable_grad():
            edges, features = GNNExplainer(epochs=3).learn(question, 0)
            alone, _ = GNNExplainer(epochs=3, features=False).learn(question, 0)
        assert edges.shape == alone.shape == edge_index.shape[1:]
        assert not edges.any()
        assert not alone.any()
        assert features.shape == (1,)
        assert features.all()
