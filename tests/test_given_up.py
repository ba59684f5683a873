"""What fails on the way to an explanation is in its certificate, and values are as without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv
from torch_geometric.utils import remove_self_loops

import graphsvx
from graphsvx import GraphSVX
from graphsvx.engine.rows import Rows
from graphsvx.engine.state_graph import StateGraphs
from graphsvx.errors import ModelError
from tests import typed_worlds
from tests.games.test_derivatives import TwoLayers, far_players
from tests.worlds import random_graph, random_model


def wide_gcn() -> tuple[nn.Module, Any]:
    data = random_graph(3, nodes=60, chance=0.08)
    data.edge_index = remove_self_loops(data.edge_index)[0]
    return random_model("gcn", 2), data


def far_sage() -> tuple[nn.Module, Any]:
    return TwoLayers(SAGEConv, bent=True).double().eval(), far_players().apply(
        lambda values: values.double() if values.is_floating_point() else values
    )


def tree() -> tuple[nn.Module, Any]:
    """Four neighbours with five leaves each: nodes have few states."""
    edges = [(child, (child - 5) // 5 + 1 if child > 4 else 0) for child in range(1, 25)]
    ends = torch.tensor(edges).t()
    x = torch.randn(25, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = TwoLayers(GraphConv, bent=True).double().eval()
    return model, Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


@pytest.mark.parametrize(
    ("world", "owner", "method", "samples", "sentence"),
    [
        (wide_gcn, Rows, "_degrees", 300, "edges that count for degrees only"),
        (tree, StateGraphs, "evaluate", 4000, "evaluated in batches, not looked up"),
        (far_sage, Rows, "_differentiated", 1000, "derivatives of the model were not"),
    ],
)
def test_a_shortcut_that_fails_is_named(
    monkeypatch, world, owner, method, samples, sentence
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ModelError("made to fail")

    def explained() -> graphsvx.Explanation:
        model, data = world()
        return graphsvx.explain(
            model, data, node=0, method=GraphSVX(players="nodes", samples=samples)
        )

    usual = explained()
    assert usual.certificate.given_up == ()
    monkeypatch.setattr(owner, method, fail)
    slower = explained()
    (line,) = [line for line in slower.certificate.given_up if sentence in line]
    assert "made to fail" in line
    assert line in str(slower.certificate)
    assert line in slower.certificate.line()
    if "derivatives" not in sentence:  # they change the estimate
        torch.testing.assert_close(slower.node_values, usual.node_values)


class Unfollowed(nn.Module):
    """A model that fails where it is traced."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(3, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if type(x.shape[0]) is not int:
            raise TypeError("a plain integer is expected")
        return self.conv(x, edge_index)


def test_a_model_that_cannot_be_followed_is_said_to_be() -> None:
    model = Unfollowed().double().eval()
    explanation = graphsvx.explain(model, random_graph(3), node=1)
    assert any("a plain integer is expected" in line for line in explanation.certificate.given_up)


class PlainTensors(typed_worlds.Stack):
    """A typed model that takes no rows which are stored once."""

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        if type(x_dict["paper"]) is not Tensor:
            raise TypeError("plain tensors only")
        return super().forward(x_dict, edge_index_dict)


def test_every_explanation_of_a_model_names_what_failed_at_its_first() -> None:
    data = typed_worlds.typed_graph(3)
    torch.manual_seed(0)
    widths = typed_worlds.WIDTHS
    model = (
        PlainTensors(lambda s, t, w: SAGEConv((w or widths[s], w or widths[t]), 6)).double().eval()
    )
    explanations = [
        graphsvx.explain(model, data, node=("paper", 1), method=GraphSVX(samples=60))
        for _ in range(2)
    ]
    for explanation in explanations:
        assert "plain tensors only" in str(explanation.certificate)
    assert explanations[0].certificate.given_up == explanations[1].certificate.given_up


def test_what_was_given_up_is_saved() -> None:
    model = Unfollowed().double().eval()
    explanation = graphsvx.explain(model, random_graph(3), node=1)
    again = graphsvx.Explanation.from_dict(explanation.to_dict())
    assert again.certificate == explanation.certificate
    assert again.certificate.given_up
