"""How a model is called: which attributes of the data go to which of its parameters.

The engine uses tables: x [nodes, features], edge_index [2, edges], weights and attributes of
edges. A `CallPlan` turns them back into what the user's model takes; models of graphs with types
are given `Inputs`, as dictionaries by type or with `edge_type`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from graphsvx.core.arrays import Ids, as_tensors, shape_of
from graphsvx.core.graph import EDGE_SET, DataForm, Graph
from graphsvx.core.names import ADJACENCIES, attribute_names, attribute_of
from graphsvx.core.types import FLAT, EdgeType
from graphsvx.errors import InputError
from graphsvx.utils.constraints import shown

Through = Literal["forward", "encode", "encode and decode"]
Parameters = Mapping[str, inspect.Parameter]

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
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
    ) -> Any:
        """The model's output for a graph given by its attributes; those that are None are not
        passed by keyword."""
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
        if self.through == "forward":
            return model(*by_position, **by_name)
        encoded = model.encode(*by_position, **by_name)  # type: ignore[attr-defined]  # it has one
        if self.through == "encode":
            return encoded
        options = {"sigmoid": False} if self.without_sigmoid else {}
        return model.decode(encoded, values[_PAIRS], **options)  # type: ignore[attr-defined]  # it has one

    def cut_tables(self, model: nn.Module, node_rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters (of `model.`) with a row for each node of a type, cut to the nodes there."""
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return {f"model.{n}": tensors[n][node_rows[kind]] for n, kind in self.tables.items()}

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
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(model, nn.Module) and hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def plan_call(
    model: Callable[..., Any],
    data: Any,
    graph: Graph,
    *,
    arguments: Mapping[str, str] | None,
    whole_graphs: bool,
    links: bool,
    decoder: bool,
    relation: bool,
) -> CallPlan:
    """Read from the model's signature which attributes of the data it takes, and how.

    `arguments` maps parameters to attributes where their names differ. Attributes of HeteroData
    are dictionaries by type, such as `x_dict`.
    """
    by_type, hetero = graph.has_types, not graph.types.flat
    through, function = entry(model, links=links, decoder=decoder, by_type=by_type)
    parameters = signature_of(function)
    if not parameters and inspect.isroutine(function) and not inspect.isbuiltin(function):
        raise InputError(
            "the model takes no arguments; let it take the graph: def forward(self, x, edge_index)"
        )
    names = {name for name in attribute_names(data) if attribute_of(data, name) is not None}
    if by_type:
        names = {*graph.types.node_values, *graph.types.edge_values}
    if hetero:
        names = {f"{name}_dict" for name in (*names, "num_nodes")}
    takes_data = not arguments and _takes_data(parameters, names)
    takes_data &= (hetero and not links) if by_type else through == "forward"
    batch, leading = "batch", ("x", "edge_index")
    if hetero:
        batch, leading = "batch_dict", ("x_dict", "edge_index_dict")
    available = names.union(leading, () if hetero else ("num_nodes",)) - {batch, _PAIRS}
    several = not by_type and (several_graphs(data) or (takes_data and batch in names))
    if whole_graphs or several:
        available.add(batch)
    if links:
        available |= {_PAIRS, "edge_label_type"} if relation else {_PAIRS}
    mapped = _checked_arguments(arguments, parameters, available | {batch})
    positional: tuple[str, ...] = ()
    if takes_data:
        # What a model reads of its Data is not known before it is called.
        read = available - {"num_nodes"}
        if not by_type and not names & {"edge_index", *ADJACENCIES}:
            read -= {"edge_index"}
        named = tuple((name, name) for name in sorted(read))
    else:
        positional, named = _plan_arguments(parameters, mapped, available, leading)
    by_keyword = {attribute for _, attribute in named}
    return CallPlan(
        positional,
        named,
        takes_data,
        through,
        without_sigmoid=through == "encode and decode"
        and any("sigmoid" in signature_of(method) for method in _decoders(model)),
        tables=_tables(model, graph),
        takes_ids=any(
            kind not in graph.types.features and not value.is_floating_point()
            for name, values in graph.types.node_values.items()
            if {name, f"{name}_dict"} & by_keyword
            for kind, value in values.items()
        ),
    )


def _tables(model: Any, graph: Graph) -> dict[str, str]:
    """Parameters and buffers with as many rows as a node type without features has nodes."""
    types = graph.types
    counts = {name: types.count(name) for name in types.node_types if name not in types.features}
    if not counts or not isinstance(model, nn.Module):
        return {}
    tables = {}
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        matching = [kind for kind, count in counts.items() if value.dim() and len(value) == count]
        named = [kind for kind in matching if kind in name]
        if len(named or matching) == 1:
            tables[name] = (named or matching)[0]
    return tables


def several_graphs(data: Any) -> bool:
    """Whether `data` is a batch of more than one graph."""
    batch = attribute_of(data, "batch")
    return shape_of(batch) > (0,) and int(batch.max()) > 0


def entry(
    model: Callable[..., Any],
    *,
    links: bool = False,
    decoder: bool = False,
    by_type: bool = False,
) -> tuple[Through, Callable[..., Any]]:
    """The called function: the model, or its methods encode and decode.

    `by_type`: the model's own decoder is not called by the plan, and the arguments of `encode` are
    known where forward only passes its own on (GAE).
    """
    if not isinstance(model, nn.Module):
        return "forward", model
    if method_of(model, "encode") is None:
        return "forward", model.forward
    is_own = any("forward" in vars(kind) for kind in type(model).__mro__ if kind is not nn.Module)
    forward = signature_of(model.forward)
    takes_pairs = _PAIRS in forward
    if links and method_of(model, "decode") is not None and not takes_pairs:
        return "encode" if by_type else "encode and decode", _encoder(model)
    passes_on = all(parameter.kind in _VARIADIC for parameter in forward.values())
    if not is_own or (passes_on if by_type else decoder and takes_pairs):
        return "encode", _encoder(model)
    return "forward", model.forward


def method_of(model: Any, name: str) -> Callable[..., Any] | None:
    """A method or module of the user's model, such as `decode`; None if it has none."""
    member = getattr(model, name, None)
    return member if callable(member) else None


def _encoder(model: nn.Module) -> Callable[..., Any]:
    """encode(), or the encoder whose arguments it passes on (GAE)."""
    encode: Callable[..., Any] = model.encode  # type: ignore[assignment]  # a method
    passes_on = all(p.kind in _VARIADIC for p in signature_of(encode).values())
    inner = method_of(model, "encoder")
    return inner.forward if passes_on and isinstance(inner, nn.Module) else encode


def _decoders(model: Any) -> list[Callable[..., Any]]:
    """decode(), and the decoder that it may pass its arguments on to (GAE)."""
    inner = method_of(model, "decoder")
    return [model.decode, *([inner] if isinstance(inner, nn.Module) else [])]


def _takes_data(parameters: Parameters, names: set[str]) -> bool:
    """Whether the only argument that must be given is a `Data`."""
    usual = [p for p in parameters.values() if p.kind not in _VARIADIC]
    required = [p for p in usual if p.default is p.empty]
    if len(required) != 1 or usual[0] is not required[0]:
        return False
    parameter = required[0]
    hint = parameter.annotation
    if isinstance(hint, type) and hint not in (parameter.empty, Any):
        return issubclass(hint, (Data, HeteroData))
    if str(hint).rpartition(".")[2] in ("Data", "Batch", "HeteroData"):
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
    parameters: Parameters, mapped: dict[str, str], available: set[str], leading: tuple[str, str]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    usual = [p for p in parameters.values() if p.kind not in _VARIADIC]
    if not usual and not mapped:  # (*args), or no signature that Python knows
        return leading, ()
    attribute_of = _choose_attributes(usual, mapped, available, leading)
    order = [parameter.name for parameter in usual]
    # By position where x and edge_index come first: every callable understands that.
    positional = 0
    for at, parameter in enumerate(usual):
        is_leading = at == positional < 2 and attribute_of.get(parameter.name) in leading
        by_keyword = parameter.kind is parameter.KEYWORD_ONLY
        if (is_leading and not by_keyword) or (
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
    usual: list[inspect.Parameter],
    mapped: dict[str, str],
    available: set[str],
    leading: tuple[str, str],
) -> dict[str, str]:
    """The attribute of each parameter: the one of its name, or x and edge_index in this order."""
    attribute_of: dict[str, str] = dict(mapped)
    unnamed: list[str] = []
    supplied = SUPPLIED if leading[0] == "x" else set()
    # A model of nodes may need batch too: it is one graph.
    candidates = available | (supplied & {"batch", *_COUNTS})
    for parameter in usual:
        name, required = parameter.name, parameter.default is parameter.empty
        if name in attribute_of:
            continue
        if name in (candidates if required else available - _COUNTS - {"y", "num_nodes"}):
            attribute_of[name] = name
        elif required and name in supplied:
            raise InputError(_missing(name, available))
        elif required:
            unnamed.append(name)
    used = {*attribute_of.values()}
    if used & {*ADJACENCIES}:  # which stand for edge_index
        used.add("edge_index")
    left = [name for name in leading if name not in used]
    if len(unnamed) > len(left):
        raise InputError(_missing(unnamed[len(left)], available))
    return attribute_of | dict(zip(unnamed, left, strict=False))


def _missing(name: str, available: set[str]) -> str:
    if "x_dict" in available:
        return (
            f"the model needs {name!r}, which the data does not give; it gives "
            f"{sorted(available)}; give a function of some of these that calls the model"
        )
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
    parameters = signature_of(model)
    if "edge_index" in names and _takes_data(parameters, names):
        raise InputError(
            f"forward(data) may read edge_index or {present[0]}; delete the one it does not read"
        )
    requested = [*parameters, *(arguments.values() if isinstance(arguments, Mapping) else ())]
    return next((name for name in present if name in requested), None)


def signature_of(model: Callable[..., Any]) -> Parameters:
    """Parameters of a function or of a module's forward, by name; {} where Python cannot tell."""
    try:
        return inspect.signature(
            model.forward if isinstance(model, nn.Module) else model
        ).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


# --- parts of graphs with types ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Inputs:
    """A graph as its model gets it by type: the user's, perturbed, or a batch of copies."""

    x: Mapping[str, Tensor]
    edge_index: Mapping[EdgeType, Tensor]
    """Rows of the two ends within their node types, for each edge type ("" if flat)."""
    edge_rows: Mapping[EdgeType, Tensor]
    """Position of each edge in the user's edge_index of its type."""
    node_rows: Mapping[str, Tensor]
    """Id within its type of each node."""
    batch: Mapping[str, Tensor] | None = None
    """Graphs: the graph of each node."""
    graphs: int = 1
    pairs: Tensor | None = None
    """Links: rows of the two ends, [2, pairs]."""
    relation: int | None = None
    """Links of a relational model: the relation that is scored."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some nodes and edges of a graph, or of copies of it side by side, sorted by type."""

    graph: Graph
    ids: Ids
    """Number in the graph of each node."""
    ends: Ids
    """Ends of the edges among these nodes, [2, edges]."""
    edges: Ids
    """Position of each edge among those of the graph."""

    @cached_property
    def _sorted(self) -> tuple[list[Ids], Ids]:
        types = self.graph.types
        if len(types.node_types) == 1:
            nodes = np.arange(len(self.ids))
            return [nodes], nodes
        return _by_kind(types.node_type[self.ids], len(types.node_types))

    @property
    def nodes(self) -> dict[str, Ids]:
        """The nodes of each type, in their order."""
        return dict(zip(self.graph.types.node_types, self._sorted[0], strict=True))

    @property
    def at(self) -> Ids:
        """Position of each node among those of its type."""
        return self._sorted[1]

    @cached_property
    def edges_by_type(self) -> dict[EdgeType, tuple[Ids, Ids]]:
        """Ends of the edges of each type, as positions among the nodes of their types, and ids."""
        types = self.graph.types
        ends = self.ends if len(types.node_types) == 1 else self.at[self.ends]
        if types.flat:
            return {(FLAT, "", FLAT): (ends, self.edges)}
        parts, _ = _by_kind(types.edge_type[self.edges], len(types.edge_types))
        return {
            name: (ends[:, mine], self.edges[mine] - start)
            for name, mine, start in zip(
                types.edge_types, parts, types.edge_starts[:-1], strict=True
            )
        }

    def inputs(self, x: Mapping[str, Tensor] | None = None, **further: Any) -> Inputs:
        """What a model gets; `x`: features, if they are not those of the graph."""
        types, nodes, edges = self.graph.types, self.nodes, self.edges_by_type
        if x is None:
            x = {name: types.rows(name, self.ids[nodes[name]]) for name in types.features}
        count, tensors = (
            len(edges),
            as_tensors(
                self.graph.x.device,
                *(ends for ends, _ in edges.values()),
                *(ids for _, ids in edges.values()),
                *(self.ids[mine] - types.node_starts[at] for at, mine in enumerate(nodes.values())),
            ),
        )
        return Inputs(
            x,
            dict(zip(edges, tensors[:count], strict=True)),
            dict(zip(edges, tensors[count : 2 * count], strict=True)),
            dict(zip(nodes, tensors[2 * count :], strict=True)),
            **further,
        )


def part_of(graph: Graph, ids: Ids, edges: Ids) -> Inputs:
    """The part of a graph with the nodes `ids`, in this order, and edges between these."""
    order = np.argsort(ids)
    ends = graph.edge_index.cpu().numpy()[:, edges]
    return Part(graph, ids, order[np.searchsorted(ids, ends, sorter=order)], edges).inputs()


def whole(graph: Graph) -> Inputs:
    """The whole graph."""
    nodes, edges = np.arange(graph.num_nodes), np.arange(graph.num_edges)
    part = Part(graph, nodes, graph.edge_index.cpu().numpy(), edges)
    return part.inputs(graph.types.features)


def _by_kind(kinds: Ids, count: int) -> tuple[list[Ids], Ids]:
    """The rows of each kind, and the position of each row among those of its kind."""
    order = np.argsort(kinds, kind="stable")
    starts = np.searchsorted(kinds[order], np.arange(count + 1))
    within = np.empty(len(order), dtype=np.int64)
    within[order] = np.arange(len(order)) - starts[kinds[order]]
    return np.split(order, starts[1:-1]), within


def values_by_type(graph: Graph, inputs: Inputs, names: frozenset[str]) -> dict[str, Any]:
    """What a model may be given: x, edges, and of other attributes those with these names."""
    types = graph.types
    suffix = "" if types.flat else "_dict"
    by_type: dict[str, dict[Any, Any]] = {
        "x": dict(inputs.x),
        "edge_index": dict(inputs.edge_index),
        "num_nodes": {name: len(rows) for name, rows in inputs.node_rows.items()},
    }
    rows: dict[Any, Tensor] = {**inputs.node_rows, **inputs.edge_rows}
    stored: list[tuple[str, Any]] = [*types.node_values.items(), *types.edge_values.items()]
    for name, values in stored:
        if f"{name}{suffix}" in names:
            parts = {kind: value[rows[kind]] for kind, value in values.items()}
            by_type.setdefault(name, {}).update(parts)
    if inputs.batch is not None:
        by_type["batch"] = dict(inputs.batch)
    inputs_by_name: dict[str, Any] = {f"{name}{suffix}": parts for name, parts in by_type.items()}
    if types.flat:
        inputs_by_name = {name: next(iter(parts.values()), None) for name, parts in by_type.items()}
    inputs_by_name["num_graphs"] = inputs.graphs
    if inputs.pairs is not None:
        inputs_by_name["edge_label_index"] = inputs.pairs
        if inputs.relation is not None:
            inputs_by_name["edge_label_type"] = torch.full_like(inputs.pairs[0], inputs.relation)
    return inputs_by_name
