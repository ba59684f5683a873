"""The explained model as PyG's algorithms read it, and learned masks that nothing depends on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphsvx.masks.learned import Learned, Reader, model_config

LOGITS = torch.tensor([[-2.0], [0.5], [3.0]])
EDGES = torch.tensor([[0, 1], [1, 2]])


def read(output: str, returned: Tensor, column: int | None = None) -> Tensor:
    reader = Reader(object(), lambda x, edge_index: returned, output, column)
    return reader(torch.ones(3, 2), EDGES)


def test_a_single_output_is_that_of_the_second_of_two_classes() -> None:
    probabilities = LOGITS.sigmoid()
    both_classes = torch.cat([1 - probabilities, probabilities], 1)
    torch.testing.assert_close(read("raw", LOGITS).softmax(-1), both_classes)
    torch.testing.assert_close(read("probs", probabilities), both_classes)
    torch.testing.assert_close(read("log_probs", probabilities.log()).exp(), both_classes)


@pytest.mark.parametrize("output", ["raw", "probs", "log_probs"])
def test_several_outputs_are_read_as_they_are_and_one_of_a_regression(output: str) -> None:
    returned = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(read(output, returned), returned)
    assert torch.equal(read(output, returned, column=1), returned[:, 1:])


def test_masks_that_the_output_does_not_depend_on_are_zero() -> None:
    """A model of features alone: with and without edges, and one that reads nothing at all."""

    def model(x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.cat([x, -x], 1)

    x, config = torch.tensor([[1.0], [2.0]]), model_config("raw", False, False)
    target = torch.tensor([0, 0])
    for edge_index in (torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 0, dtype=torch.long)):
        reader = Reader(object(), model, "raw", None)
        masks = Learned(epochs=3)(reader, config, x, edge_index, target=target, seed=0)
        assert masks.edges is not None
        assert masks.features is not None
        assert not masks.edges.any()
        assert masks.edges.shape == edge_index.shape[1:]
        assert masks.features.shape == (1,)
        assert masks.features.all()
        alone = Learned(epochs=3, features=False)(
            reader, config, x, edge_index[:, :0], target=target, seed=0
        )
        assert alone.features is None
        assert alone.edges is not None
        assert alone.edges.shape == (0,)
