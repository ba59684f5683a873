"""Changes of a model, a graph or code between two explanations, some of them past torch's eyes."""

# ruff: noqa: ARG001  (functions that are called alike have the same arguments)

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn.aggr import base as aggr_base
from torch_geometric.nn.conv import gat_conv, gcn_conv

from benchmarks.soundness.judge import UnplayableError, World
from benchmarks.soundness.models import Built

Apply = Callable[[World, random.Random], Callable[[], None] | None]


@dataclass(frozen=True)
class Change:
    """Something that is changed between two explanations."""

    apply: Apply
    """Changes the world; returns what undoes a change of code."""
    prepare: Callable[[Data], Data] = lambda data: data
    """How the graph must have been made for this change."""
    model: Callable[[random.Random, int, int, int], Built] | None = None
    """The kind of model that this change is about."""
    undone: bool = False
    """Whether the change ends with its context."""

    def __call__(self, world: World, draw: random.Random) -> AbstractContextManager[None]:
        """The change, undone at the end if it is one of code."""
        return _during(self.apply, world, draw)


@contextmanager
def _during(apply: Apply, world: World, draw: random.Random) -> Iterator[None]:
    undo = apply(world, draw)
    try:
        yield
    finally:
        if undo is not None:
            undo()


# --- graphs ------------------------------------------------------------------------------------


def _own_memory(data: Data) -> Data:
    """The tensors share memory with numpy arrays that the user keeps."""
    for name in ("x", "edge_index", "edge_weight", "edge_attr"):
        values = getattr(data, name, None)
        if values is not None:
            data[name] = torch.from_numpy(values.numpy().copy())
    return data


def _in_inference_mode(data: Data) -> Data:
    with torch.inference_mode():
        for name in ("x", "edge_index", "edge_weight", "edge_attr"):
            values = getattr(data, name, None)
            if values is not None:
                data[name] = values.clone()
    return data


def _new_features(x: Tensor, draw: random.Random) -> Tensor:
    rng = torch.Generator().manual_seed(draw.randrange(2**31))
    new = x.clone()
    count = draw.choice([1, len(x)])
    chosen = draw.sample(range(len(x)), count)
    new[chosen] = torch.randn(count, x.shape[1], generator=rng, dtype=torch.float64).to(x)
    return new


def _new_edges(edge_index: Tensor, nodes: int, draw: random.Random) -> Tensor:
    """A few edges begin somewhere else; their order by target stays."""
    new = edge_index.clone()
    if not new.shape[1] or nodes < 2:
        raise UnplayableError("the graph has no edges to be changed")
    for position in draw.sample(range(new.shape[1]), min(new.shape[1], draw.randint(1, 4))):
        new[0, position] = draw.randrange(nodes)
    return new


def _features_by(write: Callable[[Tensor, Tensor], None]) -> Apply:
    def apply(world: World, draw: random.Random) -> None:
        write(world.data.x, _new_features(world.data.x, draw))

    return apply


def _edges_by(write: Callable[[Tensor, Tensor], None]) -> Apply:
    def apply(world: World, draw: random.Random) -> None:
        edges = world.data.edge_index
        write(edges, _new_edges(edges, world.data.num_nodes, draw))

    return apply


def _by_data(tensor: Tensor, new: Tensor) -> None:
    tensor.data.copy_(new)


def _by_numpy(tensor: Tensor, new: Tensor) -> None:
    tensor.numpy()[:] = new.numpy()


def _in_place(tensor: Tensor, new: Tensor) -> None:
    tensor.copy_(new)


def _by_inference(tensor: Tensor, new: Tensor) -> None:
    with torch.inference_mode():
        tensor.copy_(new)


def _by_set_data(tensor: Tensor, new: Tensor) -> None:
    tensor.data = new


def _new_tensor(world: World, draw: random.Random) -> None:
    world.data.x = _new_features(world.data.x, draw)


def _edge_values(write: Callable[[Tensor, Tensor], None]) -> Apply:
    def apply(world: World, draw: random.Random) -> None:
        rng = torch.Generator().manual_seed(draw.randrange(2**31))
        for name in ("edge_weight", "edge_attr"):
            values = getattr(world.data, name, None)
            if values is not None:
                new = torch.rand(values.shape, generator=rng, dtype=torch.float64) + 0.2
                write(values, new.to(values))
                return
        raise UnplayableError("the graph has no values on edges")

    return apply


# --- weights and attributes ----------------------------------------------------------------------


def _module(world: World) -> nn.Module:
    if not isinstance(world.model, nn.Module):
        raise UnplayableError("the model is no module")
    return world.model


def _parameter(world: World, draw: random.Random) -> nn.Parameter:
    parameters = [p for p in _module(world).parameters() if p.numel()]
    if not parameters:
        raise UnplayableError("the model has no parameters")
    return draw.choice(parameters)


def _weights_by(write: Callable[[nn.Parameter], None]) -> Apply:
    def apply(world: World, draw: random.Random) -> None:
        write(_parameter(world, draw))

    return apply


def _data_times(parameter: nn.Parameter) -> None:
    parameter.data.mul_(1.7).add_(0.1)


def _no_grad_times(parameter: nn.Parameter) -> None:
    with torch.no_grad():
        parameter.mul_(1.7).add_(0.1)


def _numpy_times(parameter: nn.Parameter) -> None:
    array = parameter.detach().numpy()
    array[...] = 1.7 * array + 0.1


def _one_entry(parameter: nn.Parameter) -> None:
    parameter.data.view(-1)[-1] += 1.0


def _new_data(parameter: nn.Parameter) -> None:
    parameter.data = 1.7 * parameter.data + 0.1


def _optimizer_step(world: World, draw: random.Random) -> None:
    model = _module(world)
    parameter = _parameter(world, draw)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def _buffer(world: World, draw: random.Random) -> None:
    buffers = [b for b in _module(world).buffers() if b.is_floating_point() and b.numel()]
    if not buffers:
        raise UnplayableError("the model has no buffers")
    draw.choice(buffers).data.mul_(1.7).add_(0.2)


def _forward_hook(world: World, draw: random.Random) -> Callable[[], None]:
    layer = draw.choice(
        [m for m in _module(world).modules() if isinstance(m, pyg.MessagePassing | nn.Linear)]
        or [_module(world)]
    )
    handle = layer.register_forward_hook(lambda *given: given[-1] * 0.5)
    return handle.remove


def _layer_replaced(world: World, draw: random.Random) -> None:
    model = _module(world)
    for name, child in model.named_modules():
        if isinstance(child, nn.Linear) and "." in name:
            owner = model.get_submodule(name.rpartition(".")[0])
            new = nn.Linear(child.in_features, child.out_features, child.bias is not None)
            with torch.no_grad():
                for parameter in new.parameters():
                    parameter.fill_(draw.uniform(-0.5, 0.5))
            setattr(owner, name.rpartition(".")[2], new.to(world.data.x.dtype))
            return
    raise UnplayableError("the model has no linear layer")


# A model whose behaviour hangs on things other than weights.

FACTOR = 1.0
TABLE = {"factor": 1.0}


def helper(x: Tensor) -> Tensor:
    """A function of this module that the model below calls."""
    return x.tanh()


class Settings:
    """Options that a model keeps in an object of its own."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.steps = [1.0, 1.0]


class Adjustable(nn.Module):
    """Reads attributes, objects, lists, globals and functions that can be changed from outside."""

    shared = 1.0

    def __init__(self, kind: str, inputs: int, outputs: int) -> None:
        super().__init__()
        layers = {"gcn": pyg.GCNConv, "sage": pyg.SAGEConv, "graph": pyg.GraphConv,
                  "gat": pyg.GATConv}  # fmt: skip
        self.first, self.second = layers[kind](inputs, 8), layers[kind](8, outputs)
        self.factor = 1.0
        self.settings = Settings()
        self.nested = {"inner": {"factor": 1.0}, "list": [1.0]}
        self.held = [torch.ones(8)]
        self.array = torch.ones(8).numpy()
        self.act = torch.tanh
        self.act_module = nn.ELU(1.0)
        self.call_count = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x, edge_index) * self.held[0].to(x)
        x = self.act(x) * self.factor * self.settings.factor * self.settings.steps[0]
        x = x * self.nested["inner"]["factor"] * self.nested["list"][0] * FACTOR * TABLE["factor"]
        x = self.act_module(x) * self.shared * torch.from_numpy(self.array).to(x)
        return self.second(helper(x), edge_index)


def adjustable(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """A model that can be adjusted in all the ways below."""
    kind = draw.choice(["gcn", "sage", "graph", "gat"])
    return Built(Adjustable(kind, inputs, outputs), f"adjustable {kind}")


def _adjust(change: Callable[[Any], Any]) -> Change:
    """A change of the model `Adjustable`; what it returns undoes it."""

    def apply(world: World, draw: random.Random) -> Callable[[], None] | None:
        undo = change(world.model)
        return undo if callable(undo) else None

    return Change(apply, model=adjustable, undone=True)


def _global_factor(_: Any) -> Callable[[], None]:
    globals()["FACTOR"] = 1.8
    return lambda: globals().update(FACTOR=1.0)


def _global_table(_: Any) -> Callable[[], None]:
    TABLE["factor"] = 1.8
    return lambda: TABLE.update(factor=1.0)


def _global_helper(_: Any) -> Callable[[], None]:
    old = helper
    globals()["helper"] = torch.sigmoid
    return lambda: globals().update(helper=old)


def _class_attribute(model: Any) -> Callable[[], None]:
    type(model).shared = 1.8
    return lambda: setattr(type(model), "shared", 1.0)


def _code_of_forward(model: Any) -> Callable[[], None]:
    def forward(self: Any, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index), edge_index)

    function = type(model).forward
    old = function.__code__
    function.__code__ = forward.__code__
    return lambda: setattr(function, "__code__", old)


def _bound_forward(model: Any) -> None:
    def forward(self: Any, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)

    model.forward = MethodType(forward, model)


def _set(model: Any, path: str, value: Any) -> None:
    *owners, name = path.split(".")
    for owner in owners:
        model = getattr(model, owner)
    setattr(model, name, value)


# --- code of classes and functions ---------------------------------------------------------------


def _named(name: str) -> Callable[[random.Random, int, int, int], Built]:
    kinds = {"GAT": pyg.GAT, "GraphSAGE": pyg.GraphSAGE, "GIN": pyg.GIN, "GCN": pyg.GCN,
             "max": partial(pyg.GraphSAGE, aggr="max"), "relu": pyg.GraphSAGE}  # fmt: skip

    def build(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
        act = "relu" if name == "relu" else "tanh"
        return Built(kinds[name](inputs, 8, draw.choice([1, 2]), outputs, act=act), name)

    return build


def _code(
    owner: Any, name: str, factor: float, model: Callable[[random.Random, int, int, int], Built]
) -> Change:
    """A function of a class or module whose result is multiplied from now on."""

    def apply(world: World, draw: random.Random) -> Callable[[], None]:
        inherited = name not in vars(owner)
        function = getattr(owner, name)
        setattr(owner, name, _times(function, factor))

        def undo() -> None:
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, function)

        return undo

    return Change(apply, model=model, undone=True)


def _times(function: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """The function with its result (the last one of a tuple) multiplied."""

    def wrapped(*given: Any, **named: Any) -> Any:
        out = function(*given, **named)
        if isinstance(out, tuple):
            return (*out[:-1], None if out[-1] is None else out[-1] * factor)
        return out * factor

    return wrapped


CHANGES: dict[str, Change] = {
    "x in place": Change(_features_by(_in_place)),
    "x.data": Change(_features_by(_by_data)),
    "x.data replaced": Change(_features_by(_by_set_data)),
    "x by numpy": Change(_features_by(_by_numpy), _own_memory),
    "x in inference mode": Change(_features_by(_by_inference), _in_inference_mode),
    "x a new tensor": Change(_new_tensor),
    "edge_index in place": Change(_edges_by(_in_place)),
    "edge_index.data": Change(_edges_by(_by_data)),
    "edge_index.data replaced": Change(_edges_by(_by_set_data)),
    "edge_index by numpy": Change(_edges_by(_by_numpy), _own_memory),
    "edge_index in inference mode": Change(_edges_by(_by_inference), _in_inference_mode),
    "edge values.data": Change(_edge_values(_by_data)),
    "edge values by numpy": Change(_edge_values(_by_numpy), _own_memory),
    "parameter.data": Change(_weights_by(_data_times)),
    "parameter.data, one entry": Change(_weights_by(_one_entry)),
    "parameter.data replaced": Change(_weights_by(_new_data)),
    "parameter by numpy": Change(_weights_by(_numpy_times)),
    "parameter in no_grad": Change(_weights_by(_no_grad_times)),
    "optimizer step": Change(_optimizer_step),
    "buffer.data": Change(_buffer),
    "forward hook": Change(_forward_hook),
    "layer replaced": Change(_layer_replaced),
    "attribute": _adjust(lambda m: _set(m, "factor", 1.8)),
    "attribute of an object": _adjust(lambda m: _set(m, "settings.factor", 1.8)),
    "list in an object": _adjust(lambda m: m.settings.steps.__setitem__(0, 1.8)),
    "nested dictionary": _adjust(lambda m: m.nested["inner"].update(factor=1.8)),
    "nested list": _adjust(lambda m: m.nested["list"].__setitem__(0, 1.8)),
    "tensor in a list": _adjust(lambda m: m.held[0].data.mul_(1.8)),
    "array": _adjust(lambda m: m.array.__setitem__(slice(None), 1.8)),
    "activation": _adjust(lambda m: _set(m, "act", torch.relu)),
    "activation's setting": _adjust(lambda m: _set(m, "act_module.alpha", 0.2)),
    "layer's setting": _adjust(
        lambda m: _set(m, "first.improved" if isinstance(m.first, pyg.GCNConv) else "factor", 1.5)),
    "class attribute": _adjust(_class_attribute),
    "global number": _adjust(_global_factor),
    "global dictionary": _adjust(_global_table),
    "global function": _adjust(_global_helper),
    "code of forward": _adjust(_code_of_forward),
    "forward of the object": _adjust(_bound_forward),
    "GCNConv.message": _code(pyg.GCNConv, "message", 1.6, _named("GCN")),
    "GCNConv.propagate": _code(pyg.GCNConv, "propagate", 1.6, _named("GCN")),
    "GCNConv.forward": _code(pyg.GCNConv, "forward", 1.6, _named("GCN")),
    "gcn_norm": _code(gcn_conv, "gcn_norm", 1.6, _named("GCN")),
    "MessagePassing.propagate": _code(pyg.MessagePassing, "propagate", 1.6, _named("GIN")),
    "MessagePassing.aggregate": _code(pyg.MessagePassing, "aggregate", 1.6, _named("GraphSAGE")),
    "SAGEConv.message": _code(pyg.SAGEConv, "message", 1.6, _named("GraphSAGE")),
    "GATConv.edge_update": _code(pyg.GATConv, "edge_update", 0.5, _named("GAT")),
    "GINConv.message": _code(pyg.GINConv, "message", 1.6, _named("GIN")),
    "MeanAggregation.forward": _code(pyg.MeanAggregation, "forward", 1.6, _named("GraphSAGE")),
    "Linear.forward": _code(pyg.Linear, "forward", 1.6, _named("GAT")),
    "functional.linear": _code(nn.functional, "linear", 1.2, _named("GraphSAGE")),
    "MaxAggregation.forward": _code(pyg.MaxAggregation, "forward", 1.6, _named("max")),
    "Aggregation.reduce": _code(pyg.Aggregation, "reduce", 1.6, _named("GraphSAGE")),
    "SumAggregation.forward": _code(pyg.SumAggregation, "forward", 1.6, _named("GIN")),
    "scatter of aggregations": _code(aggr_base, "scatter", 1.6, _named("GIN")),
    "softmax of GATConv": _code(gat_conv, "softmax", 1.6, _named("GAT")),
    "add_remaining_self_loops": _code(
        gcn_conv, "add_remaining_self_loops", 1.6, _named("GCN")),
    "MessagePassing._lift": _code(pyg.MessagePassing, "_lift", 1.6, _named("GIN")),
    "Module.__call__": _code(nn.Linear, "__call__", 1.6, _named("GIN")),
    "relu of modules": _code(nn.ReLU, "forward", 1.6, _named("relu")),
    "torch.tanh": _code(torch, "tanh", 1.3, _named("GCN")),
}  # fmt: skip
