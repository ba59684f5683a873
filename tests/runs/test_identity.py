"""A run goes on with the same model only: code, plain attributes and weights, in every process."""

from __future__ import annotations

import copyreg
import json
import os
import subprocess
import sys
import types
from functools import lru_cache, partial, wraps
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GATConv, GCNConv, SAGEConv

from graphsvx import GraphSVX, runs
from graphsvx.core import fingerprints
from graphsvx.core.fingerprints import Contents
from graphsvx.errors import DataError
from graphsvx.runs import identity
from tests.runs.helpers import ThisProcess
from tests.worlds import random_graph, random_model

FACTOR = 2.0


def scaled(out: Tensor) -> Tensor:
    return FACTOR * out


class Options:
    def __init__(self) -> None:
        self.power = 1


class Net(nn.Module):
    """A model whose answers depend on much besides its weights."""

    shift = 0.5

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer = GCNConv(3, 3).double()
        self.temperature = 1.0
        self.names = {"b", "a", "c"}
        self.options = Options()
        self.offset = torch.zeros(3, dtype=torch.float64)
        self.act = torch.tanh

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        out = scaled(self.layer(x, edge_index)) / self.temperature + self.shift + self.offset
        return self.act(out) ** self.options.power


def _other_forward(self: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return -self.layer(x, edge_index)


def _doubled(module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
    return 2 * out


CHANGES: dict[str, tuple[Any, str]] = {
    "an attribute": (lambda net: setattr(net, "temperature", 2.0),
                     r"model attribute temperature \(there: 1.0, now: 2.0\)"),
    "a layer's attribute": (lambda net: setattr(net.layer, "improved", True),
                            r"model attribute layer.improved \(there: False, now: True\)"),
    "an object's attribute": (lambda net: setattr(net.options, "power", 2),
                              r"model attribute options.power \(there: 1, now: 2\)"),
    "a tensor that is no buffer": (lambda net: net.offset.add_(1), "model attribute offset"),
    "a function": (lambda net: setattr(net, "act", torch.relu), "model attribute act"),
    "an own forward": (
        lambda net: setattr(net, "forward", types.MethodType(_other_forward, net)),
        "model attribute forward .*model code _other_forward"),
    "a hook": (lambda net: net.layer.register_forward_hook(_doubled),
               "model attribute layer._forward_hooks.*model code _doubled"),
    "a weight": (lambda net: net.layer.bias.data.add_(1), "model weights"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_is_refused_and_what_changed_is_named(tmp_path, change) -> None:
    data, options = random_graph(1), {"method": GraphSVX(samples=20), "backend": ThisProcess()}
    runs.start(Net(), data, [1, 2], out=tmp_path / "run", **options)
    runs.start(Net(), data, [1, 2], out=tmp_path / "run", **options)  # the same one goes on
    net = Net()
    change, message = CHANGES[change]
    change(net)
    with pytest.raises(DataError, match=f"holds another run; what differs: {message}"):
        runs.start(net, data, [1, 2], out=tmp_path / "run", **options)


def differs(before: dict[str, Any], net: Any) -> list[str]:
    differences = identity.differing(before, identity.of_model(net))
    return [line.partition(" (")[0] for line in differences]


def test_changed_code_is_reported_by_function_name(monkeypatch) -> None:
    net = Net()
    before = identity.of_model(net)
    assert differs(before, net) == []
    with monkeypatch.context() as patch:
        patch.setattr(Net, "forward", _other_forward)
        assert "code Net.forward" in differs(before, net)
    with monkeypatch.context() as patch:  # a function that forward calls, and what that one reads
        patch.setitem(globals(), "scaled", lambda out: out)
        assert differs(before, net) != []
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "FACTOR", 3.0)
        assert differs(before, net) == [f"attribute {__name__}.FACTOR"]
    with monkeypatch.context() as patch:
        patch.setattr(Net, "shift", 0.0)
        assert differs(before, net) == ["attribute Net.shift"]
    with monkeypatch.context() as patch:  # of an installed package
        patch.setattr(GCNConv, "message", lambda self, x_j, edge_weight: x_j)
        assert differs(before, net) == ["code GCNConv"]


def test_functions_are_identified_by_their_code() -> None:
    def made(text: str) -> Any:
        space: dict[str, Any] = {"__name__": "made"}
        exec(text, space)
        return identity.of_model(space["f"])

    plain = "def f(x, edge_index):\n    return [i * 2 for i in x]\n"
    assert made(plain) == made("\n\n" + plain)  # line numbers do not count
    assert made(plain) != made(plain.replace("* 2", "* 3"))  # in a function inside it
    assert made(plain) != made(plain.replace("x, edge_index", "edge_index, x"))
    said = 'def f(x, edge_index):\n    """One."""\n    return x\n'
    assert made(said) == made(said.replace("One", "Two"))
    many = "def f(x, edge_index):\n    return x in {'a', 'b', 'c', 'd'}\n"
    assert made(many) == made(many)


def test_changes_inside_decorators_partials_and_objects_are_detected() -> None:
    def times(by: float) -> Any:
        def decorate(function: Any) -> Any:
            @wraps(function)
            def call(*args: Any) -> Any:
                return by * function(*args)

            return call

        return decorate

    class Model:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.by * x

    def plain(x: Tensor, edge_index: Tensor, by: float = 1.0) -> Tensor:
        return by * x

    for make in (
        lambda by: times(by)(plain),
        lambda by: partial(plain, by=by),
        Model,
        lambda by: Model(by).__call__,
        lambda by: lru_cache(times(by)(plain)),
    ):
        assert identity.of_model(make(2.0)) == identity.of_model(make(2.0))
        assert identity.of_model(make(2.0)) != identity.of_model(make(3.0))


def test_what_changes_no_answer_does_not_count() -> None:
    model, data = GCN(3, 8, 2, 3, cached=True, dropout=0.5), random_graph(1)
    before = identity.of_model(model)
    model(data.x.float(), data.edge_index)  # cached layers remember the graph
    assert differs(before, model.eval()) == []
    assert differs(before, model.train()) == []


def test_what_python_caches_of_a_class_that_was_copied_does_not_count() -> None:
    for value in (Data(x=torch.zeros(2, 1)), SAGEConv(2, 2)):
        before = Contents.of(value).code
        for base in type(value).__mro__[:-1]:
            copyreg._slotnames(base)  # as copy and pickle do
        assert Contents.of(value).code == before


def test_what_pyg_generates_for_the_first_layer_of_a_class_does_not_count() -> None:
    class Own(GATConv):
        pass

    unpickled = Own.__new__(Own)  # a layer that was not made in this process
    nn.Module.__init__(unpickled)
    before = Contents.of(unpickled).code
    Own(2, 2)
    assert Contents.of(unpickled).code == before


def test_models_with_circular_or_large_references_have_an_identity() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.myself = [self]
            self.again = {"layer": self.layer, "myself": self}
            self.lock = __import__("threading").Lock()
            self.log = __import__("logging").getLogger("odd")
            self.data = random_graph(1)
            self.lazy = nn.LazyLinear(3)
            self.none = nn.ModuleDict()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.log.debug("called")
            return self.layer(x)

    torch.manual_seed(0)
    first = Odd()
    torch.manual_seed(0)
    second = Odd()
    before = identity.of_model(first)
    second.log.debug("once")
    assert differs(before, second) == []
    second.data.x[0, 0] += 1
    assert differs(before, second) == ["attribute data.x"]
    assert len(json.dumps(before)) < 10_000


def letters(x: Tensor, edge_index: Tensor) -> Tensor:
    return x if "a" in {"a", "b", "c", "d"} else edge_index


_OTHER_PROCESS = """
import json, torch
from graphsvx.runs import identity
from graphsvx.core.fingerprints import Contents
from tests.runs.test_identity import GAT, Net, letters, random_model
torch.manual_seed(0)
models = [Net(), GAT(3, 8, 2, 3, heads=2), random_model("gin", 1), letters]
print(json.dumps([identity.of_model(model) for model in models]))
"""


def test_the_same_words_in_every_process() -> None:
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"  # sets in another order
    in_child = subprocess.run(
        [sys.executable, "-c", _OTHER_PROCESS], capture_output=True, check=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    ).stdout  # fmt: skip
    torch.manual_seed(0)
    models = (Net(), GAT(3, 8, 2, 3, heads=2), random_model("gin", 1), letters)
    assert json.loads(in_child) == json.loads(json.dumps(list(map(identity.of_model, models))))


def test_the_class_of_many_graphs_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, names = [], fingerprints._names
    monkeypatch.setattr(fingerprints, "_names", lambda code: read.append(code) or names(code))
    identity.of_graphs([random_graph(1)])
    of_one = len(read)
    assert of_one > 0
    identity.of_graphs([random_graph(seed) for seed in range(4)])
    assert len(read) == 2 * of_one
