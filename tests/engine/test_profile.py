"""What is kept of a model and a graph is found out again when either changes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GraphConv

from graphsvx import GraphSVX, explain
from graphsvx.core.fingerprints import Watched
from graphsvx.core.model import Model, modules
from graphsvx.engine.choose import CHECKS
from graphsvx.results import serialize
from graphsvx.testing.oracle import credit_of
from tests.worlds import random_graph

METHOD = GraphSVX(samples=4000)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([GraphConv(3, 8), GraphConv(8, 3)])
        self.share = 0.0
        self.double()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return x + self.share * x.mean(0) if self.share else x


def _in_place(model: Net, data: Data) -> None:
    with torch.no_grad():
        model.layers[0].lin_rel.weight.mul_(-2)


def _behind_the_back(model: Net, data: Data) -> None:
    model.layers[0].lin_rel.weight.data.mul_(-2)


def _another_layer(model: Net, data: Data) -> None:
    torch.manual_seed(1)
    model.layers[1] = GCNConv(8, 3).double()


def _one_more_layer(model: Net, data: Data) -> None:
    torch.manual_seed(1)
    model.layers.append(GraphConv(3, 3).double())


def _attribute(model: Net, data: Data) -> None:
    model.share = 0.5


def _hook(model: Net, data: Data) -> None:
    model.layers[1].register_forward_hook(lambda _layer, _given, out: out + out.mean(0))


def _features(model: Net, data: Data) -> None:
    data.x.mul_(-1)


def _edges(model: Net, data: Data) -> None:
    data.edge_index = data.edge_index[:, 2:]


CHANGES = {
    f.__name__[1:]: f
    for f in (_in_place, _behind_the_back, _another_layer, _one_more_layer, _attribute, _hook,
              _features, _edges)
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(name: str) -> None:
    change: Callable[[Net, Data], None] = CHANGES[name]
    model, data = Net(), random_graph(3, nodes=8)
    before = explain(model, data, node=1, method=METHOD)
    change(model, data)
    after = explain(model, data, node=1, method=METHOD)
    assert after.nodes != before.nodes
    # A copy has no past.
    fresh = explain(copy.deepcopy(model), data, node=1, method=METHOD)
    assert serialize.same(after, fresh)
    assert after.nodes == pytest.approx(credit_of(after, model, data).nodes, abs=1e-9)
    assert (after.certificate.fallback is not None) == (name in ("attribute", "hook"))


def test_the_order_of_questions_changes_nothing() -> None:
    model, data = Net(), random_graph(5, nodes=12)
    first = {node: explain(model, data, node=node) for node in range(6)}
    other = copy.deepcopy(model)
    for node in reversed(range(6)):
        assert serialize.same(first[node], explain(other, data, node=node))


def test_later_queries_need_no_additional_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = Net(), random_graph(5, nodes=12)
    explain(model, data, node=1)
    calls, plain = [], Model.__call__

    def counted(self: Model, *args, **kwargs) -> Tensor:
        calls.append(args[0].shape[0])
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(Model, "__call__", counted)
    e = explain(model, data, node=2, method=GraphSVX(players="nodes"))
    assert len(calls) == 1, "one batch"
    assert e.certificate.checks == CHECKS


def test_no_model_or_graph_is_kept_alive() -> None:
    import gc  # noqa: PLC0415  (only here)
    import weakref  # noqa: PLC0415  (only here)

    model, data = Net(), random_graph(5)
    explain(model, data, node=1)
    ends = [weakref.ref(model), weakref.ref(data.x)]
    del model, data
    gc.collect()
    assert [end() for end in ends] == [None, None]


@pytest.mark.parametrize("name", [n for n in CHANGES if n not in ("features", "edges")])
def test_a_fingerprint_detects_the_changes_that_torch_can_see(name: str) -> None:
    model, data = Net(), random_graph(3)
    before = Watched.of(modules(model))
    assert before.matches(modules(model))
    CHANGES[name](model, data)
    assert before.matches(modules(model)) == (name == "behind_the_back")


class Plain(nn.Module):
    """No layer of PyG, so that it can be scripted."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.drop = nn.Linear(3, 8), nn.Linear(8, 3), nn.Dropout(0.5)
        self.double()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.drop(self.first(x))
        h = torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]]) + h
        return self.second(h.tanh())


@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_scripted_models_are_explained_and_left_as_found() -> None:
    model, data = Plain(), random_graph(1)
    scripted = torch.jit.script(model)
    method = GraphSVX(hops=1)
    e = explain(scripted.train(), data, node=1, method=method)
    assert e.nodes == pytest.approx(explain(model, data, node=1, method=method).nodes, abs=1e-12)
    assert scripted.training
    assert scripted.drop.training


class AtLeast(Net):
    """Fails on graphs with few nodes, such as samples of a graph are."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if x.shape[0] < 41:
            raise ValueError("too few nodes")
        return super().forward(x, edge_index)


def test_a_model_that_fails_on_a_sample_gets_the_full_checks() -> None:
    data = random_graph(3, nodes=120, chance=0.15)
    model = AtLeast()
    with torch.no_grad():
        count = len(explain(Net(), data, node=1).nodes)
    assert count > 60
    e = explain(model, data, node=1, method=GraphSVX(players="nodes", samples=100))
    assert e.certificate.fallback is None


class Chain(nn.Module):
    """As many rounds as `layers` says, which may be the same layer again and again."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([GraphConv(3, 3), GraphConv(3, 3)])
        self.settings = {"more": [0]}
        self.double()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in [*self.layers, *self.settings["more"][0] * [self.layers[0]]]:
            x = layer(x, edge_index).tanh()
        return x


def _again(model: Chain) -> None:
    model.layers.append(model.layers[0])


def _deep_down(model: Chain) -> None:
    model.settings["more"][0] = 1


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("change", [_again, _deep_down])
def test_an_added_round_of_message_passing_widens_the_field(
    change: Callable[[Chain], None], both_ways: bool
) -> None:
    path = torch.tensor([[1, 2, 3, 4, 5], [0, 1, 2, 3, 4]])
    edge_index = torch.cat([path, path.flip(0)], 1) if both_ways else path
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)).double()
    model, data = Chain(), Data(x=x, edge_index=edge_index)
    assert explain(model, data, node=0).node_ids.tolist() == [1, 2]
    change(model)
    e = explain(model, data, node=0)
    assert e.node_ids.tolist() == [1, 2, 3]
    assert e.nodes == pytest.approx(credit_of(e, model, data).nodes, abs=1e-9)


class Whole(Net):
    """Says whole numbers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return (10 * super().forward(x, edge_index)).round().long()


def test_integer_outputs_are_explained() -> None:
    model, data = Whole(), random_graph(3, nodes=8)
    e = explain(model, data, node=1, scale="value", target=0)
    assert e.prediction == float(model(data.x, data.edge_index)[1, 0])
    assert e.prediction == pytest.approx(e.base + e.total)


def test_a_lazily_initialised_model_is_explained() -> None:
    torch.manual_seed(0)
    model, data = nn.ModuleList([GCNConv(-1, 3)])[0].double(), random_graph(3, nodes=8)
    e = explain(model, data, node=1)
    assert serialize.same(e, explain(copy.deepcopy(model), data, node=1))


def test_a_fingerprint_detects_a_layer_that_is_used_again() -> None:
    model = Chain()
    before = Watched.of(modules(model))
    _again(model)
    assert not before.matches(modules(model))
