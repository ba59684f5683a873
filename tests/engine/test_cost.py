"""What calls cost is counted, the same each time; costly models get fewer calls, and say so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    ChebConv,
    EdgeConv,
    GENConv,
    MessagePassing,
    PNAConv,
    SGConv,
    TAGConv,
    TopKPooling,
)

from graphsvx import GraphSVX, explain
from graphsvx.core.query import build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import full_reference, node_perturbations
from graphsvx.engine.lazy import plain
from graphsvx.engine.profile import counted_seconds
from graphsvx.engine.rows import Copies
from graphsvx.methods import increments, playing
from graphsvx.methods.increments import FIRST_CALLS

FEATURES = 1433


def sparse_world(nodes: int = 300, features: int = FEATURES) -> Data:
    """A sparse undirected graph with sparse features, as citation graphs are."""
    rng = np.random.default_rng(0)
    ends = np.stack(
        [np.arange(1, nodes), (rng.random(nodes - 1) * np.arange(1, nodes)).astype(int)]
    )
    more = rng.integers(0, nodes, (2, nodes // 2))
    ends = np.concatenate([ends, more[:, more[0] != more[1]]], 1)
    edge_index = torch.from_numpy(np.concatenate([ends, ends[::-1]], 1)).unique(dim=1)
    x = torch.from_numpy(rng.random((nodes, features)) < 0.02).double()
    return Data(x=x, edge_index=edge_index)


class Own(MessagePassing):
    """A layer of one's own: messages of both ends of an edge."""

    def __init__(self, ins: int, outs: int) -> None:
        super().__init__(aggr="mean")
        self.network = nn.Linear(2 * ins, outs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=x)
        return out

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        out: Tensor = self.network(torch.cat([x_i, x_j], -1)).tanh()
        return out


class Net(nn.Module):
    """Two layers of a kind."""

    def __init__(self, layer: Callable[[int, int], nn.Module], features: int = FEATURES) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = layer(features, 8), layer(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return out


class Propagated(nn.Module):
    """A network on features, and then rounds of message passing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network, self.rounds = nn.Linear(FEATURES, 3), APPNP(K=4, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.rounds(self.network(x), edge_index)
        return out


def _pna(ins: int, outs: int) -> nn.Module:
    aggregations, scalers = ["mean", "max", "std"], ["identity", "amplification"]
    return PNAConv(ins, outs, aggregations, scalers, deg=torch.tensor([1, 4, 6, 3, 1]), towers=1)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "chebyshev": lambda: Net(lambda ins, outs: ChebConv(ins, outs, K=3)),
    "edge": lambda: Net(lambda ins, outs: EdgeConv(nn.Linear(2 * ins, outs))),
    "own": lambda: Net(Own),
    "gen": lambda: Net(GENConv),
    "sgc": lambda: Net(lambda ins, outs: SGConv(ins, outs, K=2)),
    "tag": lambda: Net(TAGConv),
    "pna": lambda: Net(_pna),
    "appnp": Propagated,
}


@pytest.mark.parametrize("name", LAYERS)
def test_trimmed_batches_are_plain_calls_at_a_fraction_of_the_cost(name: str) -> None:
    data, model = sparse_world(), LAYERS[name]().double().eval()
    query = build_query(model, data, node=5)
    with torch.no_grad():
        evaluator = choose_evaluator(query, None, 0)
        field, rng = evaluator.field, np.random.default_rng(1)
        on = rng.random((40, field.size)) < rng.random((40, 1))
        on[:, : field.centres] = True
        perturbations = node_perturbations(query, field, on)
        alone = evaluator.plain(field)
        copies = Copies(query, field, None, reference=full_reference(query.graph, field))
        outputs: list[Tensor] = []
        batched, untrimmed, single = (
            counted_seconds(lambda by=by: outputs.append(plain(by.evaluate(field, perturbations))))
            for by in (evaluator, copies, alone)
        )
    for output in outputs[:2]:
        torch.testing.assert_close(output, outputs[2], atol=1e-10, rtol=1e-10)
    assert 5 * batched < single
    assert 1.5 * batched < untrimmed


def test_a_count_is_the_same_each_time_and_grows_with_the_work() -> None:
    layer = nn.Linear(200, 300)
    few, more = (counted_seconds(lambda n=n: layer(torch.ones(n, 200))) for n in (100, 1000))
    assert few == counted_seconds(lambda: layer(torch.ones(100, 200)))
    assert 5 * few < more < 10 * few
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    with torch.no_grad():
        short, long = (
            counted_seconds(lambda n=n: attention(*[torch.ones(1, n, 8)] * 3, need_weights=False))
            for n in (500, 2000)
        )
    assert long > 8 * short  # scores of all pairs of rows


class Costly(nn.Module):
    """Reads the mean of all nodes, after a wide layer: one call a coalition, each of them slow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.head = nn.Linear(16, width), nn.Linear(width, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.wide(x).tanh()
        sums = torch.zeros_like(hidden).index_add_(0, edge_index[1], hidden[edge_index[0]])
        out: Tensor = self.head(sums + hidden.mean(0))
        return out


@pytest.mark.parametrize("width", [4, 20_000])
def test_costly_models_get_fewer_calls_and_say_so(width: int) -> None:
    data = sparse_world(120, 16)
    data.x = data.x.float() + torch.rand(120, 16)
    model = Costly(width).eval()
    explanation, again = (explain(model, data, node=3) for _ in range(2))
    certificate = explanation.certificate
    costly = width > 100
    assert certificate.by_cost == costly
    assert ("samples=" in certificate.line()) == costly
    assert (certificate.calls < FIRST_CALLS / 4) == costly
    assert torch.equal(explanation.node_credit.values, again.node_credit.values)
    asked = explain(model, data, node=3, method=GraphSVX(samples=200)).certificate
    assert asked.calls > 150
    assert not asked.by_cost


def test_a_limit_by_the_clock_holds_before_the_first_look_at_it() -> None:
    data = sparse_world(120, 16)
    data.x = data.x.float() + torch.rand(120, 16)
    model = Costly(20_000).eval()
    certificate = explain(model, data, node=3, method=GraphSVX(seconds=0.01)).certificate
    assert certificate.by_clock
    assert certificate.calls < 30


class Pooled(nn.Module):
    """Keeps half of the nodes, those with the best scores of all: graphs in a batch compete."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.head = nn.Linear(16, width), nn.Linear(width, 3)
        self.pool = TopKPooling(width, ratio=0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.wide(x).tanh()
        sums = torch.zeros_like(hidden).index_add_(0, edge_index[1], hidden[edge_index[0]])
        best, *_, places, _ = self.pool(sums, edge_index)
        out: Tensor = self.head(sums.index_copy(0, places, best))
        return out


class Attending(nn.Module):
    """Every node attends to all others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.head = nn.Linear(16, width), nn.Linear(width, 3)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.wide(x)
        sums = torch.zeros_like(hidden).index_add_(0, edge_index[1], hidden[edge_index[0]])
        rows = sums.view(1, *sums.shape)
        out: Tensor = self.head(self.attention(rows, rows, rows, need_weights=False)[0][0])
        return out


@pytest.mark.parametrize(
    ("model", "width"), [(Costly, 20_000), (Pooled, 20_000), (Attending, 2_000)]
)
def test_costly_models_that_mix_nodes_take_about_a_hundred_calls_in_all(
    model: Callable[[int], nn.Module], width: int
) -> None:
    data = sparse_world(120, 16)
    data.x = data.x.float() + torch.rand(120, 16)
    mixing, sizes = model(width).eval(), []
    mixing.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    certificate = explain(mixing, data, node=3).certificate
    assert certificate.by_cost
    assert 70 < certificate.calls <= sum(size >= 120 for size in sizes) < 120


def test_an_evaluator_that_fails_is_left_before_a_game_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = sparse_world(60, 16)
    model = Net(lambda ins, outs: ChebConv(ins, outs, K=2), features=16).double().eval()
    evaluate, wrong = Copies.evaluate, []

    def wrong_copies(*args: object) -> Tensor:
        out: Tensor = evaluate(*args)  # type: ignore[arg-type]  # passed on
        wrong.extend(out)
        return out + 1

    method = GraphSVX(players="nodes", samples=600)
    right = explain(model, data, node=5, method=method)
    monkeypatch.setattr(Copies, "evaluate", wrong_copies)
    other = explain(model, data, node=5, method=method)
    assert other.certificate.fallback != right.certificate.fallback
    assert 0 < len(wrong) <= 8
    torch.testing.assert_close(other.node_credit.values, right.node_credit.values)


def test_a_limit_by_the_clock_is_kept_from_the_third_explanation_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=0.0)
    time = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(increments, "time", time)
    monkeypatch.setattr(playing, "time", time)

    def slow(*_: object) -> None:
        clock.now += 0.03

    data = sparse_world(120, 16)
    data.x = data.x + torch.rand(120, 16).double()
    chebyshev = Net(lambda ins, outs: ChebConv(ins, outs, K=2), features=16)
    for model in (Costly(4).double().eval(), chebyshev.double().eval()):
        model.register_forward_pre_hook(slow)
        for k in range(6):
            start = clock.now
            certificate = explain(model, data, node=k, method=GraphSVX(seconds=2)).certificate
            assert certificate.by_clock
            if k >= 2:
                assert 0.5 < clock.now - start <= 2.2
