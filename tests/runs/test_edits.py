"""A stopped run is not resumed after any edit of an input: rows of two models never mix."""

from __future__ import annotations

import os
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv import gcn_conv

from graphsvx import runs
from graphsvx.errors import DataError
from graphsvx.utils import processes
from tests.typed_worlds import hetero_model, typed_graph
from tests.worlds import random_graph, random_model

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

NET = random_model("gcn", 3)
ACTIVATION = torch.tanh
TABLE = {"scale": deque([1.0])}
SETTINGS = types.SimpleNamespace(inner=types.SimpleNamespace(scale=1.0))
OWN = types.ModuleType("own_module_of_the_user")
exec("SCALE = 1.0\ndef scaled(x): return SCALE * x", vars(OWN))


class Stopped:
    """A backend that is stopped before the first answer."""

    def answers(self, job: Any, take: Callable[[], Any]) -> Iterator[Any]:
        yield from ()


class Net(nn.Module):
    shift = torch.zeros(3, dtype=torch.float64)

    def __init__(self) -> None:
        super().__init__()
        self.net = random_model("gcn", 3)
        self.act, self.last = torch.tanh, torch.relu
        self.steps = [scaling(1.0), scaling(2.0)]
        self.first = self.chosen = types.SimpleNamespace(scale=2.0)
        self.second = types.SimpleNamespace(scale=2.0)
        self.nested: Any = [1.0]
        for _ in range(12):
            self.nested = types.SimpleNamespace(inside=[self.nested])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = nn.functional.relu(self.act(self.net(x, edge_index)))
        for step in self.steps:
            out = step(out)
        return OWN.scaled(out) * SETTINGS.inner.scale * TABLE["scale"][0] + self.shift


def scaling(by: float) -> Any:
    def scaled(x: Tensor) -> Tensor:
        return by * x

    return scaled


def over_global(x: Tensor, edge_index: Tensor) -> Tensor:
    return ACTIVATION(NET(x, edge_index))


def over_environment(x: Tensor, edge_index: Tensor) -> Tensor:
    return NET(x, edge_index) * float(os.environ["SCALE_OF_MY_MODEL"])


class OwnData(Data):
    def factor(self) -> float:
        return 1.0


class Scripted(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.scale * x


def graph(**attributes: Any) -> Data:
    data = random_graph(5)
    data.pos, data.w, data.u = torch.ones(9, 2), torch.ones(data.num_edges), torch.ones(1, 4)
    data.charges, data.threshold = np.ones(9), 0.5
    for name, value in attributes.items():
        data[name] = value
    return data


def with_adjacency(weight: float) -> Data:
    data = random_graph(5)
    values = torch.full((data.num_edges,), weight, dtype=torch.float64)
    adjacency = torch.sparse_coo_tensor(data.edge_index.flip(0), values, (9, 9))
    return Data(x=data.x, adj_t=adjacency.coalesce().to_sparse_csr())


def typed(extra: float) -> Any:
    data = typed_graph(3)
    data["paper"].extra = torch.full((data["paper"].num_nodes,), extra)
    return data


@contextmanager
def hooked() -> Iterator[None]:
    double = nn.modules.module.register_module_forward_hook(lambda m, i, out: 2 * out)
    try:
        yield
    finally:
        double.remove()


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def _edit(change: Callable[[Net], None]) -> tuple[Any, Any]:
    def edited() -> Net:
        net = Net()
        change(net)
        return net

    return Net, edited


def same_gcn() -> nn.Module:
    return random_model("gcn", 3)


# name: (model before, model after), or (data before, data after), as functions.
MODELS: dict[str, tuple[Any, Any]] = {
    "the order of two functions": _edit(lambda n: setattr(n, "steps", n.steps[::-1])),
    "the first of two closures": _edit(lambda n: n.steps.__setitem__(0, scaling(3.0))),
    "two functions are swapped": _edit(
        lambda n: (setattr(n, "act", torch.relu), setattr(n, "last", torch.tanh))[0]),
    "another object is chosen": _edit(lambda n: setattr(n, "chosen", n.second)),
    "a number deep inside": _edit(lambda n: _innermost(n.nested).__setitem__(0, 9.0)),
    "an attribute of a scripted module": tuple(
        partial(lambda scale: torch.jit.script(Scripted(scale)), scale) for scale in (1.0, 2.0)),
}  # fmt: skip
GRAPHS: dict[str, tuple[Any, Any]] = {
    "pos": (graph, lambda: graph(pos=torch.zeros(9, 2))),
    "w": (graph, lambda: graph(w=torch.zeros(3))),
    "u": (graph, lambda: graph(u=torch.zeros(1, 4))),
    "a numpy attribute": (graph, lambda: graph(charges=np.zeros(9))),
    "a number": (graph, lambda: graph(threshold=0.6)),
    "a new attribute": (graph, lambda: graph(mask=torch.ones(9))),
    "adj_t": (lambda: with_adjacency(1.0), lambda: with_adjacency(2.0)),
    "a class of data": (graph, lambda: OwnData(**graph().to_dict())),
    "a typed graph": (lambda: typed(1.0), lambda: typed(2.0)),
}
# Changes of what is outside of model and data: (model, function of monkeypatch or a context).
OUTSIDE: dict[str, tuple[Any, Any]] = {
    "weights of a global net": (
        over_global, lambda patch: patch.setitem(globals(), "NET", random_model("gcn", 4))),
    "a lambda over a global net": (
        lambda x, edge_index: NET(x, edge_index).tanh(),
        lambda patch: patch.setitem(globals(), "NET", random_model("gcn", 4))),
    "a global function": (
        over_global, lambda patch: patch.setitem(globals(), "ACTIVATION", torch.relu)),
    "a tensor of the class": (
        Net, lambda patch: patch.setattr(Net, "shift", torch.ones(3, dtype=torch.float64))),
    "an object inside a global": (
        Net, lambda patch: patch.setattr(SETTINGS.inner, "scale", 2.0)),
    "a container of a library": (
        Net, lambda patch: patch.setitem(TABLE, "scale", deque([2.0]))),
    "a variable of another module": (Net, lambda patch: patch.setattr(OWN, "SCALE", 2.0)),
    "a function of another module": (Net, lambda patch: patch.setattr(OWN, "scaled", abs)),
    "a function that a layer uses": (
        same_gcn, lambda patch: patch.setattr(gcn_conv, "gcn_norm", lambda *a, **k: a[:2])),
    "a method of a layer": (
        same_gcn, lambda patch: patch.setattr(GCNConv, "message", lambda self, x_j: x_j)),
    "a function of torch": (
        Net, lambda patch: patch.setattr(nn.functional, "relu", lambda x: x)),
    "the environment": (
        over_environment, lambda patch: patch.setenv("SCALE_OF_MY_MODEL", "2")),
    "autocast": (same_gcn, lambda _: torch.autocast("cpu", torch.bfloat16)),
    "the default type": (same_gcn, lambda _: default_dtype()),
    "a hook of all modules": (same_gcn, lambda _: hooked()),
}  # fmt: skip


def _innermost(value: Any) -> Any:
    while not isinstance(value, list):
        value = value.inside[0]
    return value


def start(out: Any, model: Any, data: Any) -> None:
    nodes = ("paper", [1]) if not isinstance(data, Data) else [1]
    runs.start(model, data, nodes, out=out, backend=Stopped())


def check(out: Any, before: tuple[Any, Any], after: tuple[Any, Any], change: Any) -> None:
    start(out, *before)
    start(out, *before)  # without an edit it goes on
    with change, pytest.raises(DataError, match="holds another run; what differs"):
        start(out, *after)


@pytest.mark.parametrize("edit", MODELS)
def test_an_edited_model(tmp_path, edit) -> None:
    before, after = MODELS[edit]
    check(tmp_path / "run", (before(), graph()), (after(), graph()), nullcontext())


@pytest.mark.parametrize("edit", GRAPHS)
def test_an_edited_graph(tmp_path, edit) -> None:
    before, after = GRAPHS[edit]
    model = hetero_model("sage", before(), 3) if edit == "a typed graph" else same_gcn()
    check(tmp_path / "run", (model, before()), (model, after()), nullcontext())


@pytest.mark.parametrize("edit", OUTSIDE)
def test_an_edit_outside_of_model_and_graph(tmp_path, edit, monkeypatch) -> None:
    model, change = OUTSIDE[edit]
    monkeypatch.setenv("SCALE_OF_MY_MODEL", "1")
    model = model() if isinstance(model, type) or model is same_gcn else model

    @contextmanager
    def changed() -> Iterator[None]:
        with monkeypatch.context() as patch:
            context = change(patch)
            with context if context is not None else nullcontext():
                yield

    check(tmp_path / "run", (model, graph()), (model, graph()), changed())


def test_what_cannot_be_seen_is_named_and_recorded(tmp_path) -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.numbers = random_model("gcn", 3), iter([1.0])

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            with open("/dev/null") as file:  # noqa: PTH123  (what is tested)
                return self.net(x, edge_index) + len(file.read())

    with pytest.warns(UserWarning, match=r"cannot be seen: .*forward \(reads or writes a file\)"):
        start(tmp_path / "run", Reads(), graph())
    stored = runs.open(tmp_path / "run").manifest["identity"]["model"]["unseen"]
    assert any("Reads.forward" in name for name in stored)


def test_a_spawned_worker_with_another_model_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: False)
    # Workers import this module anew, with the activation that is written there.
    monkeypatch.setitem(globals(), "ACTIVATION", torch.relu)
    with pytest.raises(DataError, match=r"the workers have another model or graph: .*ACTIVATION"):
        runs.start(over_global, graph(), [1], out=tmp_path / "run", backend=runs.Local(1))
