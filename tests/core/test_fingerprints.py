"""What changes behind torch's back between two explanations is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv import gcn_conv
from torch_geometric.nn.models import GCN

from graphsvx import explain
from graphsvx.core.fingerprints import _PAUSE, Contents, stamp
from tests.worlds import random_graph


def _graph(seed: int = 3) -> Data:
    return random_graph(seed, nodes=9, chance=0.3)


def _model() -> GCN:
    torch.manual_seed(0)
    return GCN(3, 8, 2, 3).double().eval()


def _replace(data: Data) -> None:
    data.x.data = data.x.data.flip(0).clone()


EDITS: dict[str, Callable[[Data], Any]] = {
    "x.data": lambda data: data.x.data[0].mul_(3),
    "x.data replaced": _replace,
    "x by numpy": lambda data: data.x.numpy().__setitem__((slice(None), 1), 5.0),
    "edges by numpy": lambda data: data.edge_index.numpy().__setitem__((0, 0), 5),
    "edge_index.data": lambda data: data.edge_index.data[:, :2].fill_(7),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", list(EDITS))
def test_an_edited_graph_is_explained_as_it_is(name: str, inference: bool) -> None:
    with torch.inference_mode(inference):
        data = _graph()
        data.x, data.edge_index = data.x.clone(), data.edge_index.clone()
    model = _model()
    explain(model, data, node=1)
    with torch.inference_mode(inference):
        EDITS[name](data)
    fresh = Data(x=data.x.clone(), edge_index=data.edge_index.clone())
    got, wanted = explain(model, data, node=1), explain(_model(), fresh, node=1)
    assert got.base == pytest.approx(wanted.base, abs=1e-12)
    assert got.nodes == pytest.approx(wanted.nodes, abs=1e-12)
    assert got.features == pytest.approx(wanted.features, abs=1e-12)


def test_a_stamp_of_a_large_tensor_sees_one_number_change(monkeypatch: Any) -> None:
    x = torch.randn(1000, 400)
    before = stamp(x)
    assert stamp(x) == before
    monkeypatch.setattr("graphsvx.core.fingerprints.perf_counter", lambda: 1e9 * _PAUSE)
    x.data[503, 77] += 1
    assert stamp(x) != before


@contextmanager
def _patched(owner: Any, name: str) -> Iterator[None]:
    old = getattr(owner, name)

    def new(*args: Any, **kwargs: Any) -> Any:
        out = old(*args, **kwargs)
        return 2 * out if isinstance(out, Tensor) else (out[0], 2 * out[1])

    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


@pytest.mark.parametrize(
    ("owner", "name"), [(GCNConv, "message"), (GCNConv, "propagate"), (gcn_conv, "gcn_norm")]
)
def test_patched_code_is_noticed(owner: Any, name: str) -> None:
    model, data = _model(), _graph()
    before = explain(model, data, node=1)
    with _patched(owner, name):
        with torch.no_grad():
            says = model(data.x, data.edge_index)[1].softmax(-1)
        during = explain(model, data, node=1)
    assert during.prediction == pytest.approx(float(says[during.target]), abs=1e-12)
    assert during.prediction != pytest.approx(before.prediction, abs=1e-6)
    assert explain(model, data, node=1).prediction == pytest.approx(before.prediction, abs=1e-12)


def test_lists_and_dictionaries_that_contain_themselves_are_read() -> None:
    model, listed, named = _model(), [1], {"a": 2}
    listed.append(listed)
    named["b"] = named
    model.listed, model.named = listed, named
    read = Contents.of(model).attributes
    assert (read["listed.0"], read["listed.1"]) == ("1", "the same as listed")
    assert (read["named.a"], read["named.b"]) == ("2", "the same as named")


def test_lists_of_lists_that_are_one_are_read_once() -> None:
    model, listed = _model(), [1]
    for _ in range(40):
        listed = [listed, listed]
    model.listed = listed
    assert not Contents.of(model).unseen
