"""How a model is called: which attributes of the data go to which of its parameters.

The engine uses tables: x [nodes, features], edge_index [2, edges], weights and attributes of
edges. A `CallPlan` turns them back into what the user's model takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch_geometric.data import Batch, Data, HeteroData

from graphsvx.core.graph import ADJACENCIES, EDGE_SET, DataForm, attribute_names
from graphsvx.errors import InputError
from graphsvx.utils.constraints import shown

Through = Literal["forward", "encode", "encode and decode"]
Parameters = Mapping[str, inspect.Parameter]

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PARAMETERS: WeakKeyDictionary[Any, Parameters] = WeakKeyDictionary()
_OPTIONAL = ("edge_weight", "edge_attr", "batch", "edge_label_index")
_COUNTS = {"batch_size", "num_graphs", "ptr"}
"""What follows from the number of nodes and from `batch`."""
SUPPLIED = {"x", "edge_index", "num_nodes", *_COUNTS, *_OPTIONAL, *ADJACENCIES}
"""Attributes that the engine supplies; all others are sliced from the data."""
_PAIRS = "edge_label_index"
_PLAIN = DataForm()


@dataclass(frozen=True)
class CallPlan:
    """Which attributes a model is given, and in which form."""

    positional: tuple[str, ...] = ("x", "edge_index")
    """Attributes given by position."""
    named: tuple[tuple[str, str], ...] = ()
    """(parameter, attribute) of those given by keyword."""
    as_data: bool = False
    """The model takes one `Data` with all attributes."""
    through: Through = "forward"
    form: DataForm = _PLAIN
    without_sigmoid: bool = False
    """decode() has an argument `sigmoid`, which is switched off: scores are logits."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Parameters with a row for each node of a type without features: parameter to node type."""
    takes_ids: bool = False
    """The model gets integers of the nodes without features, such as `node_id_dict`."""

    @property
    def attributes(self) -> frozenset[str]:
        """All attributes that the model is given."""
        return frozenset((*self.positional, *(attribute for _, attribute in self.named)))

    def __call__(
        self,
        model: Callable[..., Any],
        inputs: Mapping[str, Any],
        parameters: Mapping[str, Tensor] | None = None,
    ) -> Any:
        """The model's output for a graph given by its attributes; those that are None are not
        passed by keyword. `parameters` replace those of a module."""
        values = inputs if self.form == _PLAIN else self._in_form(inputs)
        if self.attributes & _COUNTS:
            values = {**values, **self._counts(values)}
        by_name = {
            parameter: values[attribute]
            for parameter, attribute in self.named
            if values.get(attribute) is not None
        }
        by_position = [values[attribute] for attribute in self.positional]
        if self.as_data:
            by_position, by_name = [self._data(values)], {}
        if parameters and isinstance(model, nn.Module):
            replaced = {f"model.{name}": value for name, value in parameters.items()}
            method = _Method(model, self.through)
            return functional_call(method, replaced, tuple(by_position), by_name)
        if self.through == "forward":
            return model(*by_position, **by_name)
        encoded = model.encode(*by_position, **by_name)  # type: ignore[attr-defined]  # it has one
        if self.through == "encode":
            return encoded
        options = {"sigmoid": False} if self.without_sigmoid else {}
        return model.decode(encoded, values[_PAIRS], **options)  # type: ignore[attr-defined]  # it has one

    def cut(self, model: Callable[..., Any], node_rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters with a row for each node of a type, cut to the nodes that are there."""
        if not isinstance(model, nn.Module):
            return {}
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return {name: tensors[name][node_rows[kind]] for name, kind in self.tables.items()}

    def _data(self, values: Mapping[str, Any]) -> Data | HeteroData:
        """All attributes as one `Data`; as a `Batch`, which knows its graphs, if there is batch."""
        if "x_dict" in values:
            return _hetero_data(values)
        fields = {name: values[name] for name in self.attributes if values.get(name) is not None}
        if "x" not in fields:
            fields["num_nodes"] = values["num_nodes"]
        if "batch" not in fields:
            return Data(**fields)
        fields = {name: value for name, value in fields.items() if name not in _COUNTS}
        counts = self._counts(values)
        data = Batch(_base_cls=Data, ptr=counts["ptr"], **fields)
        data._num_graphs = counts["num_graphs"]
        return data

    def _counts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Number and first nodes of the graphs; a model of nodes returns a row for each of them."""
        x, batch = values["x"], values.get("batch")
        nodes = values["num_nodes"] if x is None else x.shape[0]
        with torch._C.DisableTorchFunction():  # no operation of the model, which may be traced
            counts = torch.tensor([nodes]) if batch is None else torch.bincount(batch).cpu()
            ptr = nn.functional.pad(counts.cumsum(0), (1, 0)).to(values["edge_index"].device)
        graphs = len(counts)
        return {
            "ptr": values.get("ptr", ptr),
            "num_graphs": graphs,
            "batch_size": graphs if "batch" in self.attributes else nodes,
        }

    def _in_form(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        values, form = dict(inputs), self.form
        x = values["x"]
        if form.edge_sets:
            edge_set, edges = values.pop(EDGE_SET), values["edge_index"]
            for number, (name, *attributes) in enumerate(form.edge_sets):
                members = edge_set == number
                values[name] = edges[:, members]
                values |= {of: values[of][members] for of in attributes}
        if not form.has_x:
            values["x"] = None
        elif form.row_shape is not None:
            values["x"] = x.reshape(x.shape[0], *form.row_shape)
        if form.layout is not None:
            matrix = _adjacency(values, x.shape[0], form.layout)
            values |= dict.fromkeys(("edge_index", *ADJACENCIES), matrix)
        return values


USUAL = CallPlan()
"""(x, edge_index)."""


class _Method(nn.Module):
    """A method of a model as a module, for `functional_call`."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.method == "encode":
            return self.model.encode(*args, **kwargs)  # type: ignore[operator]  # a method
        return self.model(*args, **kwargs)


def _hetero_data(values: Mapping[str, Any]) -> HeteroData:
    """Dictionaries by type as the data object that a model takes.

    Models that return `batch_size` rows of a node type return all.
    """
    data = HeteroData()
    data.num_graphs = data.batch_size = values["num_graphs"]
    for kind, count in values["num_nodes_dict"].items():
        data[kind].batch_size = count
    for name, by_type in values.items():
        for kind, value in by_type.items() if isinstance(by_type, Mapping) else ():
            if name != "num_nodes_dict" or kind not in values["x_dict"]:
                data[kind][name.removesuffix("_dict")] = value
    return data


def _adjacency(values: Mapping[str, Any], count: int, layout: torch.layout) -> Tensor:
    """Sparse matrix whose row i holds the edges into node i."""
    entries = values["edge_weight"] if values["edge_attr"] is None else values["edge_attr"]
    size = (count, count, *entries.shape[1:])
    ends = values["edge_index"].flip(0)
    matrix = torch.sparse_coo_tensor(ends, entries, size, check_invariants=False).coalesce()
    if layout == torch.strided:
        return matrix.to_dense()
    if layout == torch.sparse_csr:
        return matrix.to_sparse_csr()
    return matrix.to_sparse_csc() if layout == torch.sparse_csc else matrix


def unwrapped(model: Any) -> Any:
    """The module inside of `torch.compile` and `DataParallel`; anything else as it is."""
    while isinstance(model, nn.Module):
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(
            model, (nn.DataParallel, nn.parallel.DistributedDataParallel)
        ):
            inner = model.module
        if inner is None:
            break
        model = inner
    return model


def plan_call(
    model: Callable[..., Any],
    data: Any,
    *,
    arguments: Mapping[str, str] | None,
    whole_graphs: bool,
    links: bool,
    decoder: bool,
) -> CallPlan:
    """Read from the model's signature which attributes of `data` it takes, and how.

    `arguments` maps parameters to attributes where their names differ.
    """
    through, function = _entry(model, links, decoder)
    parameters = _parameters(function)
    must_take_a_graph(function)
    attributes = attribute_names(data)
    names = {name for name in attributes if getattr(data, name, None) is not None}
    available = (names | {"x", "edge_index", "num_nodes"}) - {"batch", _PAIRS}
    takes_data = through == "forward" and not arguments and _takes_data(parameters, names)
    if whole_graphs or several_graphs(data) or (takes_data and "batch" in names):
        available.add("batch")
    if links:
        available.add(_PAIRS)
    mapped = _checked_arguments(arguments, parameters, available | {"batch"})
    if takes_data:
        # What a model reads of its Data is not known before it is called.
        read = available - {"num_nodes"}
        if not names & {"edge_index", *ADJACENCIES}:
            read -= {"edge_index"}
        return CallPlan((), tuple(sorted((name, name) for name in read)), as_data=True)
    plan = _plan_arguments(parameters, mapped, available)
    sigmoid = through == "encode and decode" and _has_sigmoid(model)
    return CallPlan(*plan, through=through, without_sigmoid=sigmoid)


def must_take_a_graph(function: Callable[..., Any]) -> None:
    """Raise an InputError for a function without parameters, which reads a graph of its own."""
    if isinstance(function, (FunctionType, MethodType)) and not _parameters(function):
        raise InputError(
            "the model takes no arguments, so that it cannot be given another graph than its own; "
            "let it take the graph: def forward(self, x, edge_index)"
        )


def several_graphs(data: Any) -> bool:
    """Whether `data` is a batch of more than one graph."""
    batch = getattr(data, "batch", None)
    return isinstance(batch, Tensor) and batch.numel() > 0 and int(batch.max()) > 0


def _entry(
    model: Callable[..., Any], links: bool, decoder: bool
) -> tuple[Through, Callable[..., Any]]:
    """The called function: the model, or its methods encode and decode."""
    if not isinstance(model, nn.Module):
        return "forward", model
    has_forward = "forward" in _own_methods(model)
    if method_of(model, "encode") is None:
        return "forward", model.forward
    takes_pairs = has_forward and _PAIRS in _parameters(model.forward)
    if links and method_of(model, "decode") is not None and not takes_pairs:
        return "encode and decode", _encoder(model)
    if not has_forward or (decoder and takes_pairs):
        return "encode", _encoder(model)
    return "forward", model.forward


def method_of(model: Any, name: str) -> Callable[..., Any] | None:
    """A method or module of the user's model, such as `decode`; None if it has none."""
    member = getattr(model, name, None)
    return member if callable(member) else None


def _own_methods(model: nn.Module) -> set[str]:
    """Names of methods that the model's own classes define."""
    owners = [kind for kind in type(model).__mro__ if kind is not nn.Module and kind is not object]
    return {name for kind in owners for name in vars(kind)}


def _encoder(model: nn.Module) -> Callable[..., Any]:
    """encode(), or the encoder whose arguments it passes on (GAE)."""
    encode: Callable[..., Any] = model.encode  # type: ignore[assignment]  # a method
    kinds = {parameter.kind for parameter in _parameters(encode).values()}
    inner = method_of(model, "encoder")
    return inner.forward if kinds <= {*_VARIADIC} and isinstance(inner, nn.Module) else encode


def _has_sigmoid(model: Any) -> bool:
    inner = method_of(model, "decoder")
    functions = [model.decode, *([inner.forward] if isinstance(inner, nn.Module) else [])]
    return any("sigmoid" in _parameters(function) for function in functions)


def _takes_data(parameters: Parameters, names: set[str]) -> bool:
    """Whether the only argument that must be given is a `Data`."""
    usual = [p for p in parameters.values() if p.kind not in _VARIADIC]
    required = [p for p in usual if p.default is p.empty]
    if len(required) != 1 or usual[0] is not required[0]:
        return False
    parameter = required[0]
    hint = parameter.annotation
    if isinstance(hint, type) and hint is not parameter.empty:
        return issubclass(hint, Data)
    if isinstance(hint, str) and hint.rpartition(".")[2] in ("Data", "Batch"):
        return True
    return parameter.name not in (names | {"x", "edge_index"}) - {"batch", "data"}


def _checked_arguments(
    arguments: Any, parameters: Parameters, available: set[str]
) -> dict[str, str]:
    if arguments is None:
        return {}
    expected = "arguments must map parameters of the model to attributes of data"
    if not isinstance(arguments, Mapping):
        raise InputError(f"{expected}, such as {{'h': 'x'}}, got {shown(arguments)}")
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for parameter, attribute in arguments.items():
        if parameter not in parameters and not open_ended:
            raise InputError(
                f"{expected}; the model has no parameter {parameter!r}, only {list(parameters)}"
            )
        if attribute not in available:
            raise InputError(f"{expected}; data has no {attribute!r}, only {sorted(available)}")
    return dict(arguments)


def _plan_arguments(
    parameters: Parameters, mapped: dict[str, str], available: set[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Attributes given by position, and those given by keyword."""
    usual = [p for p in parameters.values() if p.kind not in _VARIADIC]
    if not usual and not mapped:  # (*args), or no signature that Python knows
        return ("x", "edge_index"), ()
    attribute_of = _choose_attributes(usual, mapped, available)
    order = [parameter.name for parameter in usual]
    # By position where x and edge_index come first: every callable understands that.
    positional = 0
    for at, parameter in enumerate(usual):
        leading = at == positional < 2 and attribute_of.get(parameter.name) in ("x", "edge_index")
        by_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if (leading and not by_keyword) or (
            parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in attribute_of
        ):
            positional = at + 1
    extra = [name for name in mapped if name not in order]  # through **kwargs
    return (
        tuple(attribute_of[name] for name in order[:positional]),
        tuple(
            (name, attribute_of[name])
            for name in [*order[positional:], *extra]
            if name in attribute_of
        ),
    )


def _choose_attributes(
    usual: list[inspect.Parameter], mapped: dict[str, str], available: set[str]
) -> dict[str, str]:
    """The attribute of each parameter: the one of its name, or x and edge_index in this order."""
    attribute_of: dict[str, str] = dict(mapped)
    unnamed: list[str] = []
    for parameter in usual:
        name, required = parameter.name, parameter.default is parameter.empty
        if name in attribute_of:
            continue
        # A model of nodes may need batch too: it is one graph.
        optional = available - _COUNTS - {"y", "num_nodes"}
        candidates = available | {"batch", *_COUNTS} if required else optional
        if name in candidates:
            attribute_of[name] = name
        elif required and name in SUPPLIED:
            raise InputError(_missing(name))
        elif required:
            unnamed.append(name)
    used = {*attribute_of.values()}
    left = [
        name for name in ("x", "edge_index") if name not in used and not used & _STANDS_FOR[name]
    ]
    if len(unnamed) > len(left):
        raise InputError(_missing(unnamed[len(left)]))
    return attribute_of | dict(zip(unnamed, left, strict=False))


_STANDS_FOR: dict[str, set[str]] = {"x": set(), "edge_index": {*ADJACENCIES}}
"""Attributes in place of which x or edge_index is not looked for."""


def _missing(name: str) -> str:
    return (
        f"the model needs {name!r}, which data does not have; set data.{name} (a row for each "
        f"node or edge), or say which attribute it is with arguments={{{name!r}: ...}}"
    )


def adjacency_for(model: Callable[..., Any], data: Any, arguments: Any) -> str | None:
    """The sparse matrix of `data` that the model takes by name, if any."""
    names = {*attribute_names(data)}
    present = [name for name in ADJACENCIES if name in names]
    if not present:
        return None
    function = model.forward if isinstance(model, nn.Module) else model
    requested = {*_parameters(function)}
    if "edge_index" in names and _takes_data(_parameters(function), names):
        raise InputError(
            f"data has an edge_index and {present[0]}, and forward(data) may read either; delete "
            f"the one that it does not read"
        )
    if isinstance(arguments, Mapping):
        requested |= {*arguments.values()}
    return next((name for name in present if name in requested), None)


def signature_of(model: Callable[..., Any]) -> Parameters:
    """Parameters of a model's forward, by name; empty where Python cannot tell."""
    return _parameters(model.forward if isinstance(model, nn.Module) else model)


def embedding_method(
    model: Callable[..., Any], links: bool = False
) -> tuple[Literal["forward", "encode"], Parameters]:
    """The method that gives the outputs of nodes, and its parameters.

    `encode` where the model has no forward of its own, or only one that passes its arguments on
    (GAE), and for links if there is also `decode` and forward takes no pairs.
    """
    parameters = signature_of(model)
    if not isinstance(model, nn.Module) or method_of(model, "encode") is None:
        return "forward", parameters
    passes_on = all(parameter.kind in _VARIADIC for parameter in parameters.values())
    decodes = links and method_of(model, "decode") is not None and _PAIRS not in parameters
    if passes_on or decodes:
        return "encode", _parameters(_encoder(model))
    return "forward", parameters


def _parameters(function: Callable[..., Any]) -> Parameters:
    """Parameters of a function; cached for methods."""
    code = function.__func__ if isinstance(function, MethodType) else None
    if code in _PARAMETERS:
        return _PARAMETERS[code]
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}
    if isinstance(code, FunctionType):
        _PARAMETERS[code] = parameters
    return parameters
