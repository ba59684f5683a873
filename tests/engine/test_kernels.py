"""Layers that are computed fast give what PyG's own code gives, and hand over where they cannot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    SAGEConv,
    TransformerConv,
)
from torch_geometric.utils import degree

from graphsvx import GraphSVX, explain
from graphsvx.engine import kernels
from graphsvx.engine.rows import Rows, Shortcuts
from graphsvx.testing.oracle import credit_of
from tests.engine.test_lazy import make_graph, outputs
from tests.worlds import random_graph


def _mlp(ins: int, outs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(ins, outs), nn.ReLU(), nn.Linear(outs, outs))


KINDS = {
    "gcn": GCNConv,
    "gcn improved": lambda a, b: GCNConv(a, b, improved=True),
    "gcn without loops": lambda a, b: GCNConv(a, b, add_self_loops=False),
    "gcn as given": lambda a, b: GCNConv(a, b, normalize=False),
    "gcn without bias": lambda a, b: GCNConv(a, b, bias=False),
    "graphconv": GraphConv,
    "graphconv mean": lambda a, b: GraphConv(a, b, aggr="mean"),
    "graphconv max": lambda a, b: GraphConv(a, b, aggr="max"),
    "sage": SAGEConv,
    "sage sum": lambda a, b: SAGEConv(a, b, aggr="sum", normalize=True, root_weight=False),
    "sage project": lambda a, b: SAGEConv(a, b, project=True),
    "gin": lambda a, b: GINConv(_mlp(a, b), eps=0.3),
    "gat": lambda a, b: GATConv(a, b, heads=3, concat=False),
    "gat without loops": lambda a, b: GATConv(a, b, heads=2, concat=False, add_self_loops=False),
    "gat residual": lambda a, b: GATConv(a, b, heads=1, residual=True),
    "gatv2": lambda a, b: GATv2Conv(a, b, heads=3, concat=False),
    "gatv2 without loops": lambda a, b: GATv2Conv(a, b, heads=1, add_self_loops=False),
    "gatv2 shared": lambda a, b: GATv2Conv(a, b, share_weights=True, residual=True, bias=False),
    "transformer": lambda a, b: TransformerConv(a, b, heads=2, concat=False),
    "transformer gated": lambda a, b: TransformerConv(a, b, heads=1, beta=True),
    "transformer alone": lambda a, b: TransformerConv(a, b, heads=1, root_weight=False),
}


class Stack(nn.Module):
    def __init__(self, kind: str, features: int, weighted: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        make = KINDS[kind]
        self.first, self.second, self.weighted = make(features, 8), make(8, 4), weighted

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        rest = (edge_weight,) if self.weighted else ()
        return self.second(self.first(x, edge_index, *rest).relu(), edge_index, *rest)


@pytest.mark.parametrize("features", [5, 300])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_fast_layers_equal_their_own_code(kind: str, loops: bool, features: int) -> None:
    model, data = Stack(kind, features).eval(), make_graph(features)
    if loops:
        own = torch.arange(0, data.num_nodes, 2)
        data.edge_index = torch.cat([data.edge_index, own.repeat(2, 1), own[:5].repeat(2, 1)], 1)
    slow = outputs(model, data, Shortcuts(3, shared_rows=False))
    reach = 3 if kind.startswith("gcn") else 2
    for degrees_only in (True, False):
        quick = outputs(model, data, Shortcuts(reach, rounds=2, degrees_only=degrees_only))
        torch.testing.assert_close(quick, slow, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["gcn", "gcn improved", "gcn without loops", "graphconv"])
def test_edge_weights_and_loops_of_the_graph_count(kind: str) -> None:
    for loops in (False, True):
        data = make_graph(5)
        if loops:
            own = torch.arange(0, data.num_nodes, 2)
            data.edge_index = torch.cat([data.edge_index, own.repeat(2, 1)], 1)
        rng = torch.Generator().manual_seed(1)
        data.edge_weight = torch.rand(data.num_edges, generator=rng) + 0.5
        model = Stack(kind, 5, weighted=True).eval()
        slow = outputs(model, data, Shortcuts(3, shared_rows=False))
        for degrees_only in (True, False):
            quick = outputs(model, data, Shortcuts(3, rounds=2, degrees_only=degrees_only))
            torch.testing.assert_close(quick, slow, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("steepness", [30, 1000])
@pytest.mark.parametrize("kind", ["gat", "gatv2", "transformer"])
def test_steep_attention_equals_the_layers_own_code(kind: str, steepness: float) -> None:
    model, data = Stack(kind, 5).eval(), make_graph(5)
    with torch.no_grad():
        for name, parameter in model.first.named_parameters():
            if name in ("att_src", "att", "lin_query.weight"):
                parameter.mul_(steepness)
    slow = outputs(model, data, Shortcuts(3, shared_rows=False))
    quick = outputs(model, data, Shortcuts(2, rounds=2))
    torch.testing.assert_close(quick, slow, atol=1e-4, rtol=1e-4)


def test_only_layers_as_they_were_made_are_fast() -> None:
    layer = GCNConv(3, 4)
    assert kernels.fast_kernel(layer) is not None
    hook = layer.register_propagate_forward_hook(lambda *_: None)
    assert kernels.fast_kernel(layer) is None
    hook.remove()
    assert kernels.fast_kernel(layer) is not None
    layer.message = lambda x_j, edge_weight: x_j
    assert kernels.fast_kernel(layer) is None
    assert kernels.fast_kernel(type("Mine", (GCNConv,), {})(3, 4)) is None
    assert kernels.fast_kernel(GraphConv(3, 4, flow="target_to_source")) is None
    assert kernels.fast_kernel(GraphConv(3, 4, aggr="max")) is None


def test_the_model_has_its_own_forward_again() -> None:
    model, data = Stack("gcn", 5), make_graph(5)
    explain(model, data, node=1)
    assert all("forward" not in vars(layer) for layer in model.modules())

    def broken(*_: Tensor) -> Tensor:
        raise RuntimeError("stop")

    model.second.lin.forward = broken
    with pytest.raises(Exception, match="stop"):
        explain(model, data, node=1)
    assert all("forward" not in vars(layer) for layer in (model, model.first, model.second))


class OwnDegrees(nn.Module):
    """Reads degrees by itself, next to a layer that is known."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = GCNConv(3, 8), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        own = degree(edge_index[1], x.shape[0], x.dtype)[:, None]
        return self.second((self.first(x / (1 + own), edge_index)).tanh(), edge_index)


def test_degrees_that_the_model_reads_itself_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    model = OwnDegrees().double()
    ways: list[Shortcuts] = []
    plain = Rows._in_batches

    def watched(self: Rows, *args) -> Tensor:
        ways.append(self.shortcuts)
        return plain(self, *args)

    monkeypatch.setattr(Rows, "_in_batches", watched)
    for seed in range(4):
        data: Data = random_graph(seed, nodes=9, chance=0.25)
        e = explain(model, data, node=1, method=GraphSVX(samples=4000))
        assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)
        assert e.certificate.fallback is None
    assert any(not shortcuts.degrees_only for shortcuts in ways), (
        "counting edges does not do for this model"
    )
