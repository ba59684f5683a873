"""What one call shows of a model's structure, and what follows for its explanations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    ClusterGCNConv,
    EGConv,
    GCNConv,
    GINConv,
    GraphNorm,
    LEConv,
    MessagePassing,
    SAGEConv,
    global_max_pool,
)
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE, GraphUNet
from torch_geometric.utils import degree

from graphsvx import GraphSVX, explain
from graphsvx.core.model import evaluation_mode
from graphsvx.core.query import build_query
from graphsvx.engine.kernels import is_known
from graphsvx.engine.structure import read_structure
from graphsvx.testing.oracle import credit_of
from tests.worlds import random_graph

Forward = Callable[[Any, Tensor, Tensor], Tensor]


class Net(nn.Module):
    """Two convolutions with a function of one's own around them."""

    def __init__(self, forward: Forward, **layers: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = GCNConv(3, 4), GCNConv(4, 3)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.body = forward

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.body(self, x, edge_index)

    def plain(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def _mlp(**settings: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, **settings), nn.ReLU(), nn.Linear(4, 3))


KNOWN: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: GCN(3, 4, 2, 3, norm="batch", dropout=0.5, jk="cat"),
    "GAT": lambda: GAT(3, 4, 2, 3, jk="max"),
    "GIN": lambda: GIN(3, 4, 2, 3, norm="batch"),
    "SAGE": lambda: GraphSAGE(3, 4, 2, 3),
    "views": lambda: Net(lambda m, x, e: m.plain(x.view(x.size(0), -1), e).view(-1, 1, 3).sum(1)),
    "own head": lambda: Net(lambda m, x, e: torch.cat([m.plain(x, e), x], -1)[:, :3] * x.shape[1]),
    "larger of two": lambda: Net(lambda m, x, e: torch.max(m.plain(x, e), -m.plain(x, e))),
    "sorted columns": lambda: Net(lambda m, x, e: m.plain(x, e).sort(dim=1).values),
    "network inside": lambda: Net(lambda m, x, e: m.third(x, e), third=GINConv(_mlp())),
}

UNKNOWN: dict[str, Forward] = {
    "largest degree": lambda m, x, e: m.plain(x, e) / (1 + degree(e[1], len(x)).max()),
    "out-degrees": lambda m, x, e: m.plain(x * degree(e[0], len(x))[:, None], e),
    "branch on edges": lambda m, x, e: m.plain(x, e) if e.shape[1] % 2 else x,
    "number of nodes": lambda m, x, e: m.plain(x, e) * x.size(0) ** -0.5,
    "number of nodes, hidden": lambda m, x, e: m.plain(x, e) * math.log(1 + len(range(x.shape[0]))),
    "number of edges as a key": lambda m, x, e: m.plain(x, e) * {15: 2.0}.get(e.shape[1], 1.0),
    "mean over nodes": lambda m, x, e: m.plain(x - x.mean(0), e),
    "softmax over nodes": lambda m, x, e: m.plain(x.softmax(0), e),
    "a node by its position": lambda m, x, e: m.plain(x, e) + x[0],
    "hand-written messages": lambda m, x, e: m.plain(x.index_add(0, e[1], x[e[0]]), e),
    "other edges": lambda m, x, e: m.plain(x, e.flip(0)),
    "sorted nodes": lambda m, x, e: m.plain(x.sort(dim=0).values, e),
    "values read": lambda m, x, e: m.plain(x, e) * float(x.max()),
    "numpy": lambda m, x, e: m.plain(x, e) + torch.from_numpy(np.sort(x.numpy(), axis=0)),
    "graph norm": lambda m, x, e: m.plain(GraphNorm(3).double()(x), e),
    "batch statistics": lambda m, x, e: m.plain(
        nn.functional.batch_norm(x, None, None, training=True), e
    ),
}


def _structure(model: nn.Module, seed: int = 0) -> Any:
    query = build_query(model, random_graph(seed, nodes=12, chance=0.3), node=0)
    checked, graph = query.model, query.graph
    with evaluation_mode(checked.submodules):
        return read_structure(checked, graph, is_known)


@pytest.mark.parametrize("name", list(KNOWN))
def test_message_passing_with_row_wise_operations_is_known(name: str) -> None:
    assert _structure(KNOWN[name]().double().eval()).known


@pytest.mark.parametrize("name", list(UNKNOWN))
def test_models_that_mix_nodes_have_unknown_structure(name: str) -> None:
    structure = _structure(Net(UNKNOWN[name]).double().eval())
    assert not structure.known
    assert structure.reason


class Own(MessagePassing):
    """A layer of one's own, whose message is a function of both ends of an edge."""

    def __init__(self, message: Callable[..., Tensor], **settings: Any) -> None:
        super().__init__(**settings)
        self.sent = message

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=x)
        return out

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.sent(x_i, x_j)


class OwnUpdate(Own):
    """Normalises what was received over all nodes."""

    def update(self, inputs: Tensor) -> Tensor:
        return inputs - inputs.mean(0)


class OwnPropagate(Own):
    """Sends something else than it was given."""

    def propagate(self, edge_index: Tensor, **kwargs: Any) -> Tensor:
        out: Tensor = super().propagate(edge_index, **kwargs)
        return out - out.mean(0)


class OwnIndex(Own):
    """Reads which nodes edges go to."""

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor) -> Tensor:
        return self.sent(x_i, x_j) * (1 + index[:1].sum())


def _hooked() -> Own:
    layer = Own(torch.add)
    layer.register_message_forward_hook(lambda _, __, out: out - out.mean(0))
    return layer


OWN: dict[str, Callable[[], nn.Module]] = {
    "row-wise": lambda: Own(lambda x_i, x_j: torch.cat([x_i, x_j], -1).tanh()[:, 1:4]),
    "largest": lambda: Own(torch.sub, aggr="max"),
    "mean over edges": lambda: Own(lambda x_i, x_j: x_i - x_j.mean(0)),
    "number of edges": lambda: Own(lambda x_i, x_j: x_i * len(x_j)),
    "against the edges": lambda: Own(torch.add, flow="target_to_source"),
    "update": lambda: OwnUpdate(torch.add),
    "propagate": lambda: OwnPropagate(torch.add),
    "index": lambda: OwnIndex(torch.add),
    "hook": _hooked,
}  # fmt: skip


@pytest.mark.parametrize("name", list(OWN))
def test_layers_of_ones_own_are_known_if_each_message_is_a_function_of_its_edge(name: str) -> None:
    model = Net(lambda m, x, e: m.plain(m.third(x, e), e), third=OWN[name]()).double().eval()
    assert _structure(model).known == (name in ("row-wise", "largest"))
    data = random_graph(3, nodes=7)
    explanation = explain(model, data, node=1, method=GraphSVX(players="nodes", samples=4000))
    truth = credit_of(explanation, model, data)
    assert explanation.nodes == pytest.approx(truth.nodes, abs=1e-9)


@pytest.mark.parametrize("layer", [SAGEConv(3, 3, aggr="lstm"), GINConv(_mlp(momentum=None))])
def test_a_layer_that_pads_or_a_network_in_it_is_looked_into(layer: nn.Module) -> None:
    if isinstance(layer, GINConv):
        layer.nn[1].track_running_stats = False
        layer.nn[1].running_mean = layer.nn[1].running_var = None
    model = Net(lambda m, x, e: m.third(x, e), third=layer).double().eval()
    assert not _structure(model).known


def test_pooling_by_batch_is_known_and_without_it_is_not() -> None:
    class Pooled(nn.Module):
        def __init__(self, batched: bool) -> None:
            super().__init__()
            self.conv, self.batched = GCNConv(3, 2), batched

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            hidden = self.conv(x, edge_index)
            return global_max_pool(hidden, batch if self.batched else torch.zeros_like(batch))

    for batched in (True, False):
        model = Pooled(batched).double().eval()
        query = build_query(model, random_graph(1, nodes=8), graph=True)
        checked, graph = query.model, query.graph
        with evaluation_mode(checked.submodules):
            assert read_structure(checked, graph, is_known).known is batched


def test_reading_leaves_the_model_as_it_was() -> None:
    model = KNOWN["network inside"]().double().eval()
    before = [dict(vars(part)) for part in model.modules()]
    _structure(model)
    assert [dict(vars(part)) for part in model.modules()] == before


class Embedded(nn.Module):
    """A table with a row for each node of one graph."""

    def __init__(self, layer: type[nn.Module], nodes: int = 8) -> None:
        super().__init__()
        self.table, self.conv = nn.Embedding(nodes, 3), layer(3, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x + self.table.weight, edge_index)


@pytest.mark.parametrize("layer", [GCNConv, LEConv, ClusterGCNConv])
def test_a_model_that_takes_one_graph_only_is_played_on_all_of_it(layer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, data = Embedded(layer).double().eval(), random_graph(5, nodes=8, chance=0.3)
    e = explain(model, data, node=2, method=GraphSVX(samples=4000))
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)
    assert e.certificate.fallback is not None


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [*UNKNOWN, "unet", "lstm"])
def test_models_of_unknown_structure_are_explained_right(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    special = {
        "unet": lambda: GraphUNet(3, 4, 3, 2, pool_ratios=0.6),
        "lstm": lambda: Net(lambda m, x, e: m.third(x, e), third=SAGEConv(3, 3, aggr="lstm")),
    }
    model = (special[name]() if name in special else Net(UNKNOWN[name])).double().eval()
    data = random_graph(seed + 10, nodes=6, chance=0.3)
    if name == "lstm":
        # Without any edge the layer fails, whoever calls it: two nodes beyond the field are joined.
        data.x = torch.cat([data.x, data.x[:2]])
        data.edge_index = torch.cat([data.edge_index, torch.tensor([[6, 7], [7, 6]])], 1)
        order = data.edge_index[1].argsort(stable=True)  # the layer asks for it
        data.edge_index = data.edge_index[:, order]
    e = explain(model, data, node=seed, method=GraphSVX(samples=4000))
    truth = credit_of(e, model, data)
    assert e.prediction == pytest.approx(truth.prediction, abs=1e-9)
    assert e.nodes == pytest.approx(truth.nodes, abs=1e-8), e.certificate.line()


class SignOfMean(nn.Module):
    """All nodes together decide the sign, which only few coalitions change."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(3, 4), SAGEConv(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.first(x, edge_index).tanh()
        return self.second(hidden * hidden.mean().sign(), edge_index)


@pytest.mark.parametrize("seed", range(3))
def test_what_all_nodes_decide_together_is_played_on_the_whole_graph(seed: int) -> None:
    """Replays of some coalitions need not meet those few."""
    torch.manual_seed(seed)
    model, data = SignOfMean().double().eval(), random_graph(seed, nodes=9, chance=0.5)
    e = explain(model, data, node=1, method=GraphSVX(samples=4000))
    assert e.certificate.fallback is not None
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-8), e.certificate.line()


def until_settled(x: Tensor, edge_index: Tensor) -> Tensor:
    """Rounds of averaging until no node changes much any more."""
    start, ends = x, edge_index
    for _ in range(60):
        count = degree(ends[1], len(x), dtype=x.dtype).clamp(min=1)[:, None]
        mean = torch.zeros_like(x).index_add(0, ends[1], x[ends[0]]) / count
        before, x = x, 0.5 * start + 0.25 * (x + mean)
        if float((x - before).abs().max()) < 1e-2:
            break
    return x


COMBINED: dict[str, Forward] = {
    "mean, then a layer": lambda m, x, e: m.third(x - x.mean(0), e),
    "a layer, then largest": lambda m, x, e: m.third(x, e) + x.max(),
    "until all nodes settle": lambda m, x, e: m.third(until_settled(x, e), e),
    "known layers": lambda m, x, e: m.plain(until_settled(x, e), e) + m.third(x, e),
}


@pytest.mark.parametrize("name", list(COMBINED))
def test_what_combines_all_nodes_is_seen_beside_layers_that_are_not_known(name: str) -> None:
    def structure_of(body: Forward) -> Any:
        layer = EGConv(3, 3, num_heads=1, num_bases=2)
        return _structure(Net(body, third=layer).double().eval())

    assert structure_of(COMBINED[name]).combines_nodes
    alone = structure_of(lambda m, x, e: m.third(x, e))
    assert "EGConv" in alone.reason
    assert not alone.combines_nodes


def test_a_check_of_all_values_takes_no_shortcut_away() -> None:
    def checked(m: Any, x: Tensor, e: Tensor) -> Tensor:
        if x.isnan().any():
            raise ValueError("features are missing")
        return m.plain(x, e)

    model, data = Net(checked).double().eval(), random_graph(1, nodes=9, chance=0.3)
    assert explain(model, data, node=1).certificate.fallback is None
