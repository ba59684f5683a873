"""Whole graphs whose score is a sum over nodes are exact, however many coalitions there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GCNConv,
    GraphConv,
)

from graphsvx import GraphSVX, explain
from graphsvx.estimators import WLS
from graphsvx.masks import Paired
from graphsvx.methods import additive
from tests.engine.test_lookup import POOLS
from tests.worlds import seeded


class Linear(nn.Module):
    """Two layers, one pooling or two side by side, and a linear head."""

    def __init__(
        self, pools: tuple[str, ...] = ("sum",), layer: Callable[..., nn.Module] = GraphConv
    ) -> None:
        super().__init__()
        self.first, self.second = layer(3, 6), layer(6, 5)
        self.pools = [POOLS[pool] for pool in pools]
        self.head = nn.Linear(5 * len(pools), 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.second(self.first(x, edge_index).relu(), edge_index).tanh()
        return self.head(torch.cat([pool(x, batch) for pool in self.pools], -1))


class Bent(Linear):
    """The same with a head that is not linear."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        out = super().forward(x, edge_index, batch)
        return out + 0.01 * out.abs()


def molecule(nodes: int, seed: int = 0, directed: bool = False) -> Data:
    """A tree of degree at most 3 with one ring."""
    rng = np.random.default_rng(seed)
    degree, edges = np.zeros(nodes), []
    for node in range(1, nodes):
        parent = int(rng.choice(np.flatnonzero(degree[:node] < 3)[-3:]))
        edges.append((parent, node))
        degree[[parent, node]] += 1
    edges.append((0, 4))
    index = torch.tensor(edges).t()
    both = index if directed else torch.cat([index, index.flip(0)], 1)
    x = torch.from_numpy(rng.normal(size=(nodes, 3)))
    return Data(x=x, edge_index=both)


def raw(model: Any, data: Data, **settings: Any) -> Any:
    return explain(
        model, data, graph=True, output="raw", scale="value", targets="all",
        method=GraphSVX(**settings),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pools", "layer", "settings", "directed"),
    [
        (("sum",), GraphConv, {}, False),
        (("mean",), GraphConv, {"erase": True}, False),
        (("sum", "mean"), GraphConv, {"groups": {"a": [0, 5], "b": [2, 3]}}, False),
        (("mean",), GCNConv, {}, True),
    ],
    ids=["sum", "erased mean", "groups", "degrees"],
)
def test_sums_over_nodes_equal_brute_force(
    pools: tuple[str, ...], layer: Any, settings: dict[str, Any], directed: bool
) -> None:
    data = molecule(14, directed=directed)
    model = seeded(lambda: Linear(pools, layer), 1)

    def opaque(x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return model(x, edge_index, batch)

    samples = 30 if "groups" in settings else 100  # of 2^12 and 2^14 coalitions
    explanation = raw(model, data, samples=samples, order=3, **settings)
    expected = raw(opaque, data, samples=1 << 14, order=3, **settings)
    assert explanation.certificate.exact
    assert explanation.certificate.calls <= samples
    assert torch.allclose(explanation.node_credit.values, expected.node_credit.values, atol=1e-12)
    assert torch.equal(explanation.interactions.members, expected.interactions.members)
    assert torch.allclose(explanation.interactions.values, expected.interactions.values, atol=1e-11)


def test_sums_over_many_nodes_equal_many_look_ups() -> None:
    data, model = molecule(40, seed=3), seeded(Linear, 2)
    explanation = raw(model, data)
    assert explanation.certificate.exact
    assert explanation.certificate.residual == pytest.approx(0, abs=1e-12)
    sampled = raw(model, data, samples=3000, mask=Paired(), estimator=WLS())
    assert not sampled.certificate.exact
    credit, estimated = explanation.node_credit.values[0], sampled.node_credit.values[0]
    missed = (credit - estimated) / sampled.errors
    assert 0.5 < float(missed.square().mean().sqrt()) < 1.5


@pytest.mark.parametrize(
    "make", [Bent, lambda: Linear(("max",)), lambda: Linear(("sum", "max"))],
    ids=["head", "max", "one of two poolings"],
)  # fmt: skip
def test_scores_that_are_no_sums_are_estimated(make: Callable[[], nn.Module]) -> None:
    assert not raw(seeded(make, 2), molecule(24)).certificate.exact


def test_probabilities_are_no_sums() -> None:
    explanation = explain(seeded(Linear, 2), molecule(24), graph=True)
    assert not explanation.certificate.exact


def test_states_that_do_not_add_up_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = additive._listed_states

    def one_less(*args: Any) -> Any:
        node, subcubes = listed(*args)
        subcubes.members[len(node) // 2, 0] ^= True
        return node, subcubes

    monkeypatch.setattr(additive, "_listed_states", one_less)
    assert not raw(seeded(Linear, 2), molecule(24)).certificate.exact
