"""Shared rows and trimmed rounds give what plain tensors give, for every kind of layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    TransformerConv,
)

from graphsvx import GraphSVX, explain
from graphsvx.core.field import Perturbations
from graphsvx.core.query import build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.lazy import MixedRows, PatchedRows, PrefixRows, SharedRows, plain
from graphsvx.engine.rows import Rows, Shortcuts

WIDE = 300


def _gin(ins: int, outs: int) -> nn.Module:
    return GINConv(nn.Sequential(nn.Linear(ins, outs), nn.ReLU(), nn.Linear(outs, outs)))


LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": GCNConv,
    "gat": lambda ins, outs: GATConv(ins, outs, heads=2, concat=False),
    "gatv2": lambda ins, outs: GATv2Conv(ins, outs, heads=2, concat=False),
    "gin": _gin,
    "graphconv": GraphConv,
    "sage": SAGEConv,
    "sage-max": lambda ins, outs: SAGEConv(ins, outs, aggr="max"),
    "transformer": lambda ins, outs: TransformerConv(ins, outs, heads=2, concat=False),
}


class Two(nn.Module):
    """Two layers, with what models put between them."""

    def __init__(self, make: Callable[[int, int], nn.Module], features: int, joined: bool) -> None:
        super().__init__()
        self.first, self.second = make(features, 8), make(8, 8)
        self.norm, self.joined = nn.LayerNorm(8), joined
        self.out = nn.Linear(16 if joined else 8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = functional.dropout(self.norm(self.first(x, edge_index)).relu(), training=False)
        second = functional.elu(self.second(first, edge_index))
        return self.out(torch.cat([first, second], -1) if self.joined else second)


def make_graph(features: int = WIDE, nodes: int = 60, seed: int = 0) -> Data:
    rng = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, 90), generator=rng)
    ends = ends[:, ends[0] != ends[1]].unique(dim=1)
    x = torch.randn(nodes, features, generator=rng)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


@torch.no_grad()
def outputs(model: nn.Module, data: Data, shortcuts: Shortcuts, count: int = 40) -> Tensor:
    query = build_query(model, data, node=1)
    evaluator = choose_evaluator(query, None, 0)
    rng = np.random.default_rng(0)
    on = rng.random((count, evaluator.field.size)) < 0.6
    on[:, 0] = True
    table = data.x[torch.from_numpy(evaluator.field.ids)]
    perturbations = Perturbations(on, None, table)
    layers = ModelLayers.of(query.model.submodules)
    rows = Rows(
        query, evaluator.field, None, shortcuts.reach, True,
        shortcuts=shortcuts, layers=layers,
    )  # fmt: skip
    return rows.evaluate(evaluator.field, perturbations)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_all_shortcuts_together_change_nothing(kind: str, joined: bool) -> None:
    torch.manual_seed(0)
    model, data = Two(LAYERS[kind], WIDE, joined).eval(), make_graph()
    plain = outputs(model, data, Shortcuts(3, shared_rows=False))
    reach = 3 if kind == "gcn" else 2
    quick = outputs(model, data, Shortcuts(reach, rounds=2))
    torch.testing.assert_close(quick, plain, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
def test_no_fallback_and_no_wide_copy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known layer never turns the wide rows of a batch into a plain tensor."""
    torch.manual_seed(0)
    model, data = Two(LAYERS[kind], WIDE, False).eval(), make_graph()
    wide = []
    for sort in (SharedRows, MixedRows, PrefixRows):
        before = sort.plain

        def watched(self: Tensor, before: Callable = before) -> Tensor:
            if self.shape[-1] == WIDE:
                wide.append(self.shape)
            return before(self)

        monkeypatch.setattr(sort, "plain", watched)
    outputs(model, data, Shortcuts(3, rounds=2))
    assert bool(wide) == (kind == "sage-max")  # a maximum is of rows themselves
    monkeypatch.undo()
    assert explain(model, data, node=1).certificate.fallback is None


class Odd(MessagePassing):
    """A layer that nobody knows: products of neighbours, sorting, in-place changes of copies."""

    def __init__(self) -> None:
        super().__init__(aggr="mul")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        y = x.sort(dim=-1).values.cumsum(-1)
        z = x.clone()
        z = z * 2
        return self.propagate(edge_index, x=torch.sigmoid(y) + z.flip(-1)) + x.std(
            dim=1, keepdim=True
        )


class OddModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.odd, self.out = Odd(), nn.Linear(12, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.odd(x, edge_index))


def test_unknown_operations_fall_back_to_plain_tensors() -> None:
    torch.manual_seed(0)
    model, data = OddModel().eval(), make_graph(12)
    plain = outputs(model, data, Shortcuts(2, shared_rows=False))
    torch.testing.assert_close(outputs(model, data, Shortcuts(2, rounds=1)), plain)
    # A layer of one's own may do anything, so nothing is left out.
    assert "not known" in str(explain(model, data, node=1).certificate.fallback)


def test_changing_shared_rows_in_place_is_refused_not_lost() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(12, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = x.clone()
            x.mul_(2)
            return self.conv(x, edge_index)

    with pytest.raises(TypeError, match="copy of shared rows"):
        SharedRows(torch.ones(2, 3), torch.zeros(4, dtype=torch.long)).mul_(2)
    torch.manual_seed(0)
    data = make_graph(12)
    x = data.x.clone()
    model = InPlace().eval()
    e = explain(model, Data(x=x.clone(), edge_index=data.edge_index), node=1,
                method=GraphSVX(samples=60))  # fmt: skip
    assert "copied" in str(e.certificate.fallback)


def test_propagation_several_times_in_one_layer_is_trimmed_right() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.prop = nn.Linear(WIDE, 3), APPNP(K=3, alpha=0.2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.prop(self.lin(x), edge_index)

    torch.manual_seed(0)
    model, data = Deep().eval(), make_graph()
    plain = outputs(model, data, Shortcuts(4, shared_rows=False))
    torch.testing.assert_close(
        outputs(model, data, Shortcuts(4, rounds=3)), plain, atol=2e-6, rtol=1e-5
    )


def test_rounds_that_are_counted_too_few_are_noticed() -> None:
    """With one round too few the result is another one: the check has something to find."""
    torch.manual_seed(0)
    model, data = Two(GCNConv, WIDE, False).eval(), make_graph()
    plain = outputs(model, data, Shortcuts(3, shared_rows=False))
    short = outputs(model, data, Shortcuts(2, shared_rows=False))
    assert float((plain - short).abs().max()) > 1e-4


def test_hooks_are_gone_afterwards() -> None:
    torch.manual_seed(0)
    model, data = Two(GATConv, WIDE, False).eval(), make_graph()
    explain(model, data, node=1)
    for layer in (model.first, model.second):
        assert not layer._propagate_forward_pre_hooks
        assert not layer._propagate_forward_hooks
        assert not layer._edge_update_forward_pre_hooks


def test_lazy_rows_read_as_the_rows_they_stand_for() -> None:
    base, index = torch.randn(4, 3), torch.tensor([0, 2, 2, 3, 1, 0])
    shared = SharedRows(base, index)
    assert torch.equal(plain(shared[1:4]), base[index[1:4]])
    assert torch.equal(torch.cat([shared, shared]), base[index].repeat(2, 1))
    ones = torch.ones(3)
    mixed = MixedRows(4, torch.tensor([0, 2, 0]), torch.tensor([1, 3, 2]), ones, base)
    assert torch.allclose(plain(mixed[:1]), (base[1] + base[2])[None])
    prefix = PrefixRows(base[:2], 5)
    assert plain(prefix).shape == (5, 3)
    assert torch.equal(plain(prefix + torch.ones(5, 3))[:2], base[:2] + 1)
    with pytest.raises(IndexError):
        plain(prefix.index_select(0, torch.tensor([3])))


@pytest.mark.parametrize("sort", [True, False])
def test_sums_of_many_rows_are_those_of_a_matrix(sort: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    row = torch.randint(5, (200,), generator=rng)
    row[row == 3] = 4  # a sum of nothing
    row = row.sort().values if sort else row
    column = torch.randint(7, (200,), generator=rng)
    weight = torch.rand(200, generator=rng, dtype=torch.float64)
    base = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    matrix = torch.zeros(5, 7, dtype=torch.float64)
    matrix.index_put_((row, column), weight, accumulate=True)
    torch.testing.assert_close(MixedRows(5, row, column, weight, base).plain(), matrix @ base)


def test_rows_picked_of_a_prefix_stay_sums_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    base = torch.randn(4, 100, dtype=torch.float64)
    entries = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 2, 3]), torch.ones(4).double()
    rows = PrefixRows(MixedRows(3, *entries, base), 5)
    with monkeypatch.context() as patch:
        patch.delattr(MixedRows, "plain")  # a copy of each row would be as wide as the base
        picked = rows.index_select(0, torch.tensor([2, 0]))
    torch.testing.assert_close(plain(picked), torch.stack([base[3], base[0] + base[1]]))


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_rows_patched_in_few_columns_are_projected_as_plain_ones(count: int, transposed: bool):
    rng = torch.Generator().manual_seed(count)
    table = torch.randn(9, 30, generator=rng)
    columns = torch.tensor([2, 3, 11, 28])
    off = torch.rand(7, 4, generator=rng) < 0.5
    if transposed:
        off = off.t().contiguous().t()
    rows = PatchedRows(table, count, columns, off, torch.randn(4, generator=rng))
    weight, bias = torch.randn(5, 30, generator=rng), torch.randn(5, generator=rng)
    dense = plain(rows)
    assert torch.allclose(
        functional.linear(rows, weight, bias), functional.linear(dense, weight, bias), atol=1e-5
    )
    assert torch.allclose(rows @ weight.t(), dense @ weight.t(), atol=1e-5)
