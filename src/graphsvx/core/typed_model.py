"""Models of typed graphs: how they are called, with dictionaries by type or with `edge_type`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch_geometric.data import HeteroData

from graphsvx.core.calling import embedding_method, must_take_a_graph
from graphsvx.core.in_place import call_without_writing
from graphsvx.core.model import (
    Model,
    Output,
    Pick,
    Scale,
    must_be_real,
    no_tensor,
    on_other_device,
    read_outputs,
)
from graphsvx.core.typed_graph import FLAT, EdgeType, TypedGraph
from graphsvx.errors import InputError, ModelError, error_text


@dataclass(frozen=True, eq=False)
class TypedInput:
    """A typed graph as its model gets it: the user's, perturbed, or a batch of copies."""

    x: Mapping[str, Tensor]
    edge_index: Mapping[EdgeType, Tensor]
    """Rows of the two ends within their node types, for each edge type ("" if flat)."""
    node_rows: Mapping[str, Tensor]
    """Id within its type of each node."""
    edge_rows: Mapping[EdgeType, Tensor]
    """Position of each edge in the user's edge_index of its type."""
    batch: Mapping[str, Tensor] | None = None
    """Graphs: the graph of each node."""
    graphs: int = 1
    pairs: Tensor | None = None
    """Links: rows of the two ends, [2, pairs]."""
    relation: int | None = None
    """Links of a relational model: the relation that is scored."""


@dataclass(frozen=True, eq=False)
class TypedModel(Model):
    """A model of (x_dict, edge_index_dict), or of (x, edge_index, edge_type)."""

    argument_names: frozenset[str] = frozenset()
    """Arguments that are passed by name."""
    flat: bool = False
    arguments: tuple[str, ...] = ()
    """Arguments in the order in which they are passed; those in `takes` go by name."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Parameters with a row for each node of a type without features: parameter to node type."""

    takes_ids: bool = False
    """Whether it gets integers of the nodes without features, such as `node_id_dict`."""
    method: Literal["forward", "encode"] = "forward"
    """The method that is called."""
    as_data: bool = False
    """The model takes one `HeteroData`."""

    @property
    def takes(self) -> frozenset[str]:
        """Arguments that are passed by name."""
        return self.argument_names

    def run(self, graph: TypedGraph, inputs: TypedInput, rows_of_tables: bool = False) -> Any:
        """The model's raw output: a tensor, or one for each node type.

        `rows_of_tables`: parameters with a row for each node of a type are cut to the rows of the
        nodes that are there.
        """
        gather = _flat_values if self.flat else _dictionaries
        values = gather(graph, inputs, self.takes)

        def run(values: dict[str, Any]) -> Any:
            if self.as_data:
                values = {"data": _hetero_data(values, inputs.graphs)}
            positional = tuple(values[name] for name in self.arguments)
            named = {} if self.as_data else {name: values[name] for name in self.takes}
            if not rows_of_tables or not isinstance(self.call, nn.Module):
                return _called(self.call, self.method)(*positional, **named)
            tensors = {**dict(self.call.named_parameters()), **dict(self.call.named_buffers())}
            cut = {
                f"model.{name}": tensors[name][inputs.node_rows[at]]
                for name, at in self.tables.items()
            }
            return functional_call(_Method(self.call, self.method), cut, positional, named)

        try:
            with torch.set_grad_enabled(torch.is_grad_enabled()):  # which the model may change
                out = call_without_writing(self.call, run, values)
            return out if self.pick is None else self.pick(out)
        except (KeyboardInterrupt, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            counts = {name: len(rows) for name, rows in inputs.node_rows.items()}
            raise ModelError(
                f"the model failed on a graph with {counts} nodes: {error_text(error)}"
                f"{self._hint(inputs)}"
            ) from error

    def _hint(self, inputs: TypedInput) -> str:
        """Advice where features and weights have different floating types."""
        device = next((x.device for x in inputs.edge_index.values()), None)
        if device is not None and (advice := on_other_device(self.submodules, device)):
            return f"; {advice}"
        weights = {w.dtype for m in self.submodules for w in m._parameters.values()
                   if w is not None and w.is_floating_point()}  # fmt: skip
        features = {x.dtype for x in inputs.x.values() if x.is_floating_point()}
        if not weights or not features or weights == features:
            return ""
        return (
            f"; features are {_listed(features)}, weights {_listed(weights)}: convert the model "
            f"(model.double()) or x of each type (data[type].x.float())"
        )


def _listed(dtypes: set[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


class _Method(nn.Module):
    """A method of a model as a module, for `functional_call`."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _called(self.model, self.method)(*args, **kwargs)


def _called(model: Callable[..., Any], method: str) -> Callable[..., Any]:
    call: Callable[..., Any] = model if method == "forward" else getattr(model, method)
    return call


def rows_of(out: Any, node_type: str, rows: int) -> Tensor:
    """The outputs of the nodes of one type, [nodes, outputs]."""
    if isinstance(out, Mapping):
        if node_type not in out:
            example = (
                f"; if these are no node types, say output=lambda out: out[{next(iter(out))!r}]"
            )
            raise ModelError(
                f"the model returns outputs for the node types {sorted(map(str, out))}, "
                f"not for {node_type!r}{example}"
            )
        out = out[node_type]
    if not isinstance(out, Tensor):
        raise ModelError(no_tensor(out, picked=False))
    must_be_real(out)
    if out.dim() == 1 and out.shape[0] == rows:
        out = out[:, None]
    if out.dim() != 2 or out.shape[0] != rows or out.shape[1] == 0:
        raise ModelError(
            f"the model must return a tensor of shape [{rows}, outputs] for the {rows} nodes of "
            f"type {node_type!r}, got {list(out.shape)}"
        )
    return out


def check_typed_model(
    model: Callable[..., Any],
    graph: TypedGraph,
    output: Output | Pick | None,
    scale: Scale | None,
    *,
    whole_graphs: bool,
    links: bool,
    relation: bool,
) -> TypedModel:
    """Validate the model, and read from its signature which parts of the graph it takes."""
    if not callable(model):
        raise InputError(f"model must be a module or a callable, got {type(model).__name__}")
    must_take_a_graph(model.forward if isinstance(model, nn.Module) else model)
    method, parameters = embedding_method(model, links)
    available = _available(graph, whole_graphs, links, relation)
    first = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    usual = ("x", "edge_index", "edge_type") if graph.flat else ("x_dict", "edge_index_dict")
    # The first arguments may have any name; of a flat graph those with known names are taken so.
    positional: tuple[str, ...] = usual[:2]
    if graph.flat and first and first[0] in ("edge_index", "edge_type"):
        positional = ()
    required = [name for name in first if parameters[name].default is parameters[name].empty]
    if not graph.flat and len(required) == 1 and not links:
        # What it reads of its data is not known before it is called.
        return TypedModel(
            model, whole_graphs=whole_graphs, argument_names=frozenset(available),
            arguments=("data",), tables=_tables(model, graph), method=method, as_data=True,
            takes_ids=_takes_ids(graph, frozenset(available)), **read_outputs(output, scale),
        )  # fmt: skip
    rest = first[len(positional) :] + [
        name for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY
    ]
    for name in rest:
        if parameters[name].default is parameters[name].empty and name not in available:
            raise InputError(
                f"the model needs {name!r}, which the data does not give; it gives "
                f"{sorted(available)}"
            )
    takes = frozenset(name for name in rest if name in available)
    return TypedModel(
        model, whole_graphs=whole_graphs, argument_names=takes, flat=graph.flat,
        arguments=tuple(positional), tables=_tables(model, graph),
        takes_ids=_takes_ids(graph, takes), method=method, **read_outputs(output, scale),
    )  # fmt: skip


def _available(graph: TypedGraph, whole_graphs: bool, links: bool, relation: bool) -> set[str]:
    names = {*graph.node_values, *graph.edge_values}
    if not graph.flat:
        names = {f"{name}_dict" for name in names} | {"num_nodes_dict"}
    else:
        names |= {"edge_index", "edge_type"} | ({"x"} if FLAT in graph.features else set())
    names -= {"batch", "batch_dict"}
    if whole_graphs:
        names.add("batch" if graph.flat else "batch_dict")
    if links:
        names.add("edge_label_index")
    if links and relation:
        names.add("edge_label_type")
    return names


def _takes_ids(graph: TypedGraph, takes: frozenset[str]) -> bool:
    return any(
        not value.is_floating_point()
        for name, by_type in graph.node_values.items()
        if name in takes or f"{name}_dict" in takes
        for kind, value in by_type.items()
        if kind not in graph.features
    )


def _tables(model: Any, graph: TypedGraph) -> dict[str, str]:
    """Parameters and buffers with as many rows as a node type without features has nodes."""
    if not isinstance(model, nn.Module):
        return {}
    counts = {
        name: int(graph.node_starts[at + 1] - graph.node_starts[at])
        for at, name in enumerate(graph.node_types)
        if name not in graph.features
    }
    tables = {}
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        matching = [kind for kind, count in counts.items() if value.dim() and len(value) == count]
        named = [kind for kind in matching if kind in name]
        if len(named or matching) == 1:
            tables[name] = (named or matching)[0]
    return tables


def _dictionaries(graph: TypedGraph, inputs: TypedInput, names: frozenset[str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "x_dict": dict(inputs.x),
        "edge_index_dict": dict(inputs.edge_index),
        "num_nodes_dict": {name: len(rows) for name, rows in inputs.node_rows.items()},
    }
    sides: tuple[tuple[Mapping[str, Mapping[Any, Tensor]], Mapping[Any, Tensor]], ...] = (
        (graph.node_values, inputs.node_rows),
        (graph.edge_values, inputs.edge_rows),
    )
    for stores, rows in sides:
        for name, by_type in stores.items():
            if f"{name}_dict" not in names:
                continue
            parts = {kind: value[rows[kind]] for kind, value in by_type.items()}
            values.setdefault(f"{name}_dict", {}).update(parts)
    if inputs.batch is not None:
        values["batch_dict"] = dict(inputs.batch)
    if inputs.pairs is not None:
        values["edge_label_index"] = inputs.pairs
    return values


def _hetero_data(values: Mapping[str, Any], graphs: int) -> HeteroData:
    """Dictionaries by type as the data object that a model takes.

    Models that return `batch_size` rows of a node type return all.
    """
    data = HeteroData()
    data.num_graphs = data.batch_size = graphs
    for kind, count in values["num_nodes_dict"].items():
        data[kind].batch_size = count
    for name, by_type in values.items():
        for kind, value in by_type.items() if isinstance(by_type, Mapping) else ():
            if name != "num_nodes_dict" or kind not in values["x_dict"]:
                data[kind][name.removesuffix("_dict")] = value
    return data


def _flat_values(graph: TypedGraph, inputs: TypedInput, names: frozenset[str]) -> dict[str, Any]:
    (edges,) = inputs.edge_index.values()
    (edge_rows,) = inputs.edge_rows.values()
    rows = inputs.node_rows[FLAT]
    values: dict[str, Any] = {"x": inputs.x.get(FLAT), "edge_index": edges}
    for name, by_node in graph.node_values.items():
        if name in names:
            values[name] = by_node[FLAT][rows]
    for name, by_edge in graph.edge_values.items():
        if name in names:
            (value,) = by_edge.values()
            values[name] = value[edge_rows]
    if inputs.batch is not None:
        values["batch"] = inputs.batch[FLAT]
    if inputs.pairs is not None:
        values["edge_label_index"] = inputs.pairs
        if inputs.relation is not None:
            values["edge_label_type"] = torch.full_like(inputs.pairs[0], inputs.relation)
    return values
