"""Whether a model is message passing with row-wise operations in between, seen in one call.

The engine's shortcuts (a cut-out field, many perturbed graphs in one batch) are right for every
model whose forward pass consists of layers that read the edges into a node only and of operations
that treat each node by itself. `read_structure` calls the model once under a `TorchFunctionMode`
and looks at each operation on what comes from the graph. Anything else (a maximum over all nodes,
degrees counted by hand, a branch on the number of edges) makes the structure *unknown*: then the
evaluator has to prove itself on many replayed coalitions (`engine/replay.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import aggr
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.pool import glob

from graphsvx.core.arrays import allclose
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model, call_on
from graphsvx.engine.rowwise import (
    COMBINES_ROWS,
    is_metadata,
    is_row_wise,
    leaves,
    name_of,
    tensors,
)
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back


@dataclass(frozen=True)
class Structure:
    """Structure of a model, as traced in one call."""

    known: bool
    reason: str = ""
    """Why it is not known."""
    combines_nodes: bool = False
    """Whether something was computed from all nodes together, so that no shortcut can hold."""
    failed: bool = False
    """Whether an error ended the call, so that the rest of the model was not seen."""
    precision: torch.dtype | None = None
    """A floating type below single precision that was seen."""


LOW_PRECISION = (torch.bfloat16, torch.float16)


# Aggregations over the messages of one node (or the nodes of one graph) alone. Others pad to the
# longest sequence of the batch (LSTM, GRU, sort).
LOCAL_AGGREGATIONS = frozenset({
    aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation,
    aggr.MulAggregation, aggr.VarAggregation, aggr.StdAggregation, aggr.SoftmaxAggregation,
    aggr.PowerMeanAggregation, aggr.MedianAggregation, aggr.QuantileAggregation,
})  # fmt: skip


def aggregates_locally(module: Any) -> bool:
    """Whether an aggregation reads one set of messages at a time."""
    if type(module) is aggr.MultiAggregation:
        return module.mode in ("cat", "sum", "mean", "max", "min", "std", "var") and all(
            map(aggregates_locally, module.aggrs)
        )
    if type(module) is aggr.DegreeScalerAggregation:
        return aggregates_locally(module.aggr)
    return type(module) in LOCAL_AGGREGATIONS


class _UnknownError(Exception):
    """An operation on a traced tensor is not known to be row-wise."""


class _CombinedError(_UnknownError):
    """Something is computed from all nodes together."""


class _Count(int):
    """The number of nodes or edges: during a trace it may be passed on as a shape only."""


def _refused_in_trace(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if _Trace.active:
            raise _UnknownError("the model computes with the number of nodes or edges")
        return method(*args)

    return call


for _name, _method in vars(int).items():
    # Torch asks for the index of sizes; a key of a dictionary is a branch on the number.
    if callable(_method) and _name not in ("__new__", "__getattribute__", "__index__"):
        setattr(_Count, _name, _refused_in_trace(_method))


_SHAPE = Tensor.shape.__get__  # type: ignore[attr-defined]  # a descriptor


class _Trace(TorchFunctionMode):
    """Follows what is computed from the graph row by row; raises where rows are mixed."""

    active = False
    """Whether a model is being traced (one at a time: explanations exclude each other)."""

    def __init__(self) -> None:
        super().__init__()
        self._traced: dict[int, tuple[Tensor, str]] = {}
        """Tensors by id, which keeps them alive, and what their rows are."""
        self.nodes = 0
        """Number of nodes of the traced graph."""
        self.precision: torch.dtype | None = None

    def tag(self, value: Any, kind: str) -> Any:
        """The rows of all tensors in `value` are of a kind: nodes, edges, graphs, pairs."""
        for tensor in tensors(value):
            self._traced[id(tensor)] = (tensor, kind)
            if tensor.dtype in LOW_PRECISION:
                self.precision = tensor.dtype
        return value

    def kind(self, value: Any) -> str | None:
        """What the rows of a tensor are; None: it does not come from the graph."""
        return self._traced.get(id(value), (None, None))[1]

    def comes_from_graph(self, value: Any) -> bool:
        """Whether a tensor was computed from the graph."""
        return id(value) in self._traced

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kinds = {kind for kind in map(self.kind, tensors(args, kwargs)) if kind is not None}
        name = name_of(func)
        if kinds and (is_metadata(func, name) or name == "size"):
            return self._about(func, name, args, kwargs)
        counts = [value for value in leaves(args, kwargs) if type(value) is _Count]
        if counts and name not in ("view", "reshape"):
            raise _UnknownError(
                f"the model's operation {name!r} is given the number of nodes or edges"
            )
        if not kinds:
            return func(*args, **kwargs)
        if kinds <= {"pair ends", "nodes"} and "pair ends" in kinds:
            return self.tag(self._pick_pairs(func, name, args, kwargs), "pairs")
        if kinds == {"edge_label_index"} and name == "__getitem__" and type(args[1]) is int:
            return self.tag(func(*args, **kwargs), "pair ends")
        plain = name if name.endswith("__") else name.rstrip("_")
        row_wise = len(kinds) == 1 and not kinds & {
            "edge_index",
            "edge_label_index",
            "batch",
            "ptr",
        }
        if not row_wise or not is_row_wise(plain, args, kwargs, self.comes_from_graph):
            alone = len(tensors(args, kwargs)) == 1
            combined = alone and kinds == {"nodes"} and plain in COMBINES_ROWS
            kind_of_error = _CombinedError if combined else _UnknownError
            raise kind_of_error(
                f"the model's operation {name!r} on {' and '.join(sorted(kinds))} may combine "
                "several nodes or graphs"
            )
        return self.tag(func(*args, **kwargs), next(iter(kinds)))

    def _about(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if func != _SHAPE and name != "size":  # a new wrapper each time: not the same object
            return func(*args, **kwargs)
        x = args[0]
        sizes: list[int] = [*Tensor.size(x)]
        counted = 1 if self.kind(x) in ("edge_index", "edge_label_index") else 0
        if counted < len(sizes):
            sizes[counted] = _Count(sizes[counted])
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        return tuple(sizes) if dim is None else sizes[dim]

    def pool(self, pool: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        """Nodes added up over the graphs of `batch`: the result has a row for each graph."""
        kinds = [self.kind(tensor) for tensor in tensors(args, kwargs)]
        if all(kind is None for kind in kinds):
            return pool(*args, **kwargs)
        if kinds != ["nodes", "batch"]:
            raise _UnknownError("a pooling is given something else than nodes and their batch")
        if any(type(value) is _Count for value in leaves(args, kwargs)):
            raise _UnknownError("a pooling is given the number of nodes or edges")
        with torch._C.DisableTorchFunction():
            return self.tag(pool(*args, **kwargs), "graphs")

    def _pick_pairs(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Rows of nodes picked by the ends of the links that are asked about."""
        picks = name == "__getitem__" or (name == "index_select" and args[1] == 0)
        if not picks or self.kind(args[0]) != "nodes" or self.kind(args[-1]) != "pair ends":
            raise _UnknownError(f"the model's operation {name!r} combines nodes and pairs of nodes")
        return func(*args, **kwargs)


_ROWS = {"x": "nodes", "edge_index": "edge_index", "edge_weight": "edges", "edge_attr": "edges"}
"""What the rows of the tensors of a graph are."""


def read_structure(model: Model, graph: Graph, is_known_layer: Callable[[Any], bool]) -> Structure:
    """Structure of a model, traced in one call on a graph, which should be small."""
    trace = _Trace()
    structure = _followed(model, graph, is_known_layer, trace)
    return replace(structure, precision=trace.precision)


def _followed(
    model: Model, graph: Graph, is_known_layer: Callable[[Any], bool], trace: _Trace
) -> Structure:
    layers = [part for part in model.submodules if isinstance(part, MessagePassing)]
    known_layers = [layer for layer in layers if is_known_layer(layer)]
    own_layers = [layer for layer in layers if not is_known_layer(layer)]
    unusual = [layer for layer in own_layers if not _has_usual_propagate(layer)]
    if unusual:
        # Whether something else combines all nodes is seen where no layer is looked into.
        known_layers, own_layers = layers, []
    count, device, attributes = graph.num_nodes, graph.x.device, graph.attributes
    inputs: dict[str, Any] = {
        **{name: attribute.value for name, attribute in attributes.items()},
        **{name: getattr(graph, name) for name in _ROWS},
        "batch": torch.zeros(count, dtype=torch.long, device=device),
        "edge_label_index": torch.zeros(2, 1, dtype=torch.long, device=device),
        "ptr": torch.tensor([0, count], device=device),
    }
    kinds = {name: attribute.owner for name, attribute in attributes.items()} | _ROWS
    for name, value in inputs.items():
        kind = kinds.get(name, name)
        if kind != "graph" and value is not None:
            inputs[name] = trace.tag(value.detach().clone(), kind)
    if "num_nodes" in model.plan.attributes:
        inputs["num_nodes"] = _Count(count)
    trace.nodes, edge_index = count, inputs["edge_index"]
    if model.whole_graphs and "graph" in kinds.values():
        return Structure(False, "it is given attributes of the graph")
    changed = f"{type(unusual[0]).__name__} is no known layer, or was changed" if unusual else ""
    try:
        with _known_calls(model.submodules, known_layers, own_layers, trace, edge_index), trace:
            out = model.returned_for(inputs)
    except Exception as error:
        # What a model raises may have been caused by the trace, or by the model itself: calls on
        # the user's graph show which.
        cause = _cause(error)
        combined = isinstance(cause, _CombinedError) or not _independent(model, graph)
        failure = f"the model could not be followed ({type(error).__name__}: {error})"
        reason = changed or (failure if cause is None else str(cause))
        return Structure(False, reason, combined, failed=cause is None and not unusual)
    if unusual:
        return Structure(False, changed, not _independent(model, graph))
    expected = "pairs" if model.scores_pairs else "graphs" if model.whole_graphs else "nodes"
    if trace.kind(out) != expected:
        return Structure(False, f"its output is not known to have a row for each of the {expected}")
    reason = "another graph in the same batch changes its output"
    try:
        same = all(_same_beside(model, graph, out.detach(), extra) for extra in (1, 6))
    except ModelError:
        same = False
    return Structure(same, "" if same else reason)


def _independent(model: Model, graph: Graph) -> bool:
    """Whether other graphs in a batch leave the output as it is; also if that cannot be told."""
    try:
        out, again = (call_on(model, graph) for _ in range(2))
        if not allclose(out, again):  # a random model, which is refused in these words later
            return True
        return all(_same_beside(model, graph, out, extra) for extra in (1, 6))
    except ModelError:  # it takes the whole graph only
        return True


def _same_beside(model: Model, graph: Graph, out: Tensor, extra: int) -> bool:
    """Whether another graph of `extra` nodes in the same batch leaves the output as it is.

    What the trace cannot see (the number of nodes as an integer in `math.log`, a maximum computed
    in another thread, rounds until all nodes hardly change) shows here: the other graph has a node
    of higher degree than all others, and features that are larger.
    """
    count, device = graph.num_nodes, graph.x.device
    path = count + torch.arange(extra, device=device)
    most = int(graph.edge_index.flatten().bincount(minlength=1).max())
    hub = path.repeat(1 + most // extra)
    edges = torch.stack([path, path.roll(1)])
    edges = torch.cat([edges, torch.stack([hub, torch.full_like(hub, count)])], 1)
    edges = torch.cat([edges, edges.flip(0)], 1)
    weight, attr = (
        None
        if values is None
        else torch.cat([values, values.new_ones(edges.shape[1], *values.shape[1:])])
        for values in (graph.edge_weight, graph.edge_attr)
    )
    batch = None
    if model.whole_graphs:  # nodes of a batch are those of one graph to a model of nodes
        batch = torch.zeros(count + extra, dtype=torch.long, device=device)
        batch[count:] = 1
    rows = graph.x[:1].repeat(extra, 1)
    if graph.x.is_floating_point() and graph.x.numel():
        # Graphs are compared by the size of both outputs, which must not become too different.
        larger = (graph.x.abs().max() + 1) * (1 if model.whole_graphs else 100)
        rows += larger * torch.arange(1, extra + 1, device=device)[:, None]
    wider = model(
        torch.cat([graph.x, rows]),
        torch.cat([graph.edge_index, edges], 1),
        weight,
        attr,
        batch,
        torch.zeros(2, 1, dtype=torch.long, device=device),
        {
            name: a.extended(extra if a.owner == "nodes" else edges.shape[1]).value
            for name, a in graph.attributes.items()
        },
    )
    # One graph has one row, whose outputs may be near 0: the other graph tells how large they are.
    like = wider.detach() if model.whole_graphs else None
    alone = out[:, None] if out.dim() == 1 else out
    first_rows = wider[: len(out)]
    return first_rows.shape == alone.shape and allclose(first_rows, alone, like)


def _cause(error: BaseException) -> _UnknownError | None:
    """What the trace raised, if it did."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, _UnknownError):
        cause = cause.__cause__ or cause.__context__
    return cause


@contextmanager
def _known_calls(
    parts: list[nn.Module],
    layers: list[Any],
    own_layers: list[Any],
    trace: _Trace,
    edge_index: Tensor,
) -> Iterator[None]:
    """Within it, known layers and aggregations count as one operation each.

    Of other layers (`own_layers`) all that they compute is followed, messages row by row.
    """
    calls: list[tuple[nn.Module, str, Callable[..., Any]]] = []
    for layer in layers:
        children = _called_children(layer)
        calls += [(child, "forward", _inner_call(trace, child.forward)) for child in children]
        calls.append((layer, "forward", _layer_call(trace, layer.forward, edge_index)))
    calls += [
        (layer, "propagate", _propagate_call(trace, layer, edge_index)) for layer in own_layers
    ]

    def restore() -> None:
        _Trace.active = False

    with replaced_calls(calls), replaced_poolings(parts, trace.pool), taking_back(restore):
        _Trace.active = True
        yield


@contextmanager
def replaced_calls(calls: Iterable[tuple[nn.Module, str, Callable[..., Any]]]) -> Iterator[None]:
    """Context manager: these methods of modules are other functions."""
    calls = [*calls]

    def restore() -> None:
        for module, method, _ in calls:
            vars(module).pop(method, None)

    with taking_back(restore):
        for module, method, call in calls:
            vars(module)[method] = call
        yield


@contextmanager
def replaced_poolings(
    parts: list[nn.Module], handle: Callable[[Callable[..., Any], Any, Any, Any], Any]
) -> Iterator[None]:
    """Within it, `handle` gives the result of each pooling over the nodes of a graph.

    It gets the pooling itself, its class or the name of its reduction, and the arguments.
    """
    layers = [part for part in parts if isinstance(part, MessagePassing)]
    inside = {id(child) for layer in layers for child in layer.modules()}
    poolings = {id(part) for part in parts if id(part) not in inside and aggregates_locally(part)}
    scatter, aggregate = glob.scatter, aggr.Aggregation.__call__
    nested = False

    def handled(pool: Callable[..., Any], kind: Any, args: Any, kwargs: Any) -> Any:
        nonlocal nested
        if nested:  # an aggregation that consists of others
            return pool(*args, **kwargs)
        nested = True
        try:
            return handle(pool, kind, args, kwargs)
        finally:
            nested = False

    def scattered(*args: Any, **kwargs: Any) -> Any:
        return handled(scatter, kwargs.get("reduce", "sum"), args, kwargs)

    def aggregated(module: Any, *args: Any, **kwargs: Any) -> Any:
        pool = partial(aggregate, module)
        if id(module) not in poolings:
            return pool(*args, **kwargs)
        return handled(pool, type(module), args, kwargs)

    def restore() -> None:
        glob.scatter = scatter
        aggr.Aggregation.__call__ = aggregate

    with taking_back(restore):
        glob.scatter = scattered
        aggr.Aggregation.__call__ = aggregated
        yield


def _called_children(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that a layer calls by itself, those in lists too."""
    for child in module.children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from _called_children(child)
        elif not isinstance(child, aggr.Aggregation):
            yield child


def _layer_call(
    trace: _Trace, forward: Callable[..., Any], edge_index: Tensor
) -> Callable[..., Any]:
    """A layer on the graph's own edges: its output has a row for each node."""

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = tensors(args, kwargs)
        kinds = {trace.kind(tensor) for tensor in arguments}
        if not kinds <= {"nodes", "edges", "edge_index"}:
            raise _UnknownError("a layer is given something that does not come from the graph")
        if any(trace.kind(t) == "edge_index" and t is not edge_index for t in arguments):
            raise _UnknownError("a layer is given other edges than the graph's")
        if any(type(value) is _Count for value in leaves(args, kwargs)):
            raise _UnknownError("a layer is given the number of nodes or edges")
        with torch._C.DisableTorchFunction():
            out = forward(*args, **kwargs)
        if not isinstance(out, Tensor):
            raise _UnknownError("a layer returns more than one tensor")
        return trace.tag(out, "nodes")

    return call


_USUAL = ("aggregate", "update", "_collect", "_lift")


def _has_usual_propagate(layer: Any) -> bool:
    """Whether a layer sends messages along the edges as PyG does, and aggregates each node's alone.

    Of its own it has `forward` and `message` only, those of its class, without hooks.
    """
    kind, attributes = type(layer), vars(layer)
    # PyG writes a `propagate` for each class, and keeps the one that the class had.
    usual = getattr(kind, "_orig_propagate", None) is MessagePassing.propagate
    as_written = kind.propagate in (MessagePassing.propagate, getattr(kind, "_jinja_propagate", 0))
    replaced = {"forward", "message", "propagate", *_USUAL} & attributes.keys()
    hooks = any(value for name, value in attributes.items() if name.endswith("_hooks"))
    return (
        usual
        and as_written
        and not replaced
        and not hooks
        and not attributes.get("_explain")
        and all(getattr(kind, name) is getattr(MessagePassing, name) for name in _USUAL)
        and attributes.get("_decomposed_layers", 1) == 1
        and attributes["flow"] == "source_to_target"
        and aggregates_locally(layer.aggr_module)
    )


def _propagate_call(trace: _Trace, layer: Any, edge_index: Tensor) -> Callable[..., Any]:
    """`propagate` on the graph's own edges, with the layer's `message` followed row by row."""

    def call(edges: Any, size: Any = None, **kwargs: Any) -> Any:
        if edges is not edge_index or size is not None:
            raise _UnknownError("a layer is given other edges than the graph's")
        messages: dict[str, Any] = {}
        for name in layer.inspector.get_param_names("message"):
            argument = name[:-2] if name[-2:] in ("_i", "_j") else name
            if argument not in kwargs:
                raise _UnknownError(f"messages of {type(layer).__name__} read {name}")
            value = kwargs[argument]
            if argument != name and isinstance(value, Tensor):
                if trace.kind(value) != "nodes" or layer.node_dim % value.dim():
                    raise _UnknownError("messages are made of something else than rows of nodes")
                with torch._C.DisableTorchFunction():
                    value = value.index_select(0, edge_index[int(name.endswith("_i"))])
                trace.tag(value, "edges")
            elif argument != name and value is not None:
                raise _UnknownError("messages are made of something else than rows of nodes")
            messages[name] = value
        sent = layer.message(**messages)
        if trace.kind(sent) != "edges":
            raise _UnknownError("messages are not known to have a row for each edge")
        with torch._C.DisableTorchFunction():
            out = layer.aggregate(sent, edge_index[1], None, trace.nodes)
        return trace.tag(out, "nodes")

    return call


def _inner_call(trace: _Trace, forward: Callable[..., Any]) -> Callable[..., Any]:
    """A module inside of a layer (the network of a GINConv): what it is given must stay rows."""

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = tensors(args, kwargs)
        if len({tensor.shape[0] for tensor in arguments if tensor.dim()}) > 1:
            raise _UnknownError("a module inside of a layer is given rows of different kinds")
        before = [trace.kind(tensor) for tensor in arguments]
        trace.tag(arguments, "rows of a layer")
        with torch._C._EnableTorchFunction():
            out = forward(*args, **kwargs)
        if trace.kind(out) != "rows of a layer":
            raise _UnknownError("a module inside of a layer does not return its rows")
        for tensor, kind in zip(arguments, before, strict=True):
            if kind is not None:  # the layer's own input
                trace.tag(tensor, kind)
        return out

    return call
