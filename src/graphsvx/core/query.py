"""The query: which prediction of which model on which graph is explained."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core import data as graphs
from graphsvx.core.arrays import Ids, must_be_readable, shape_of
from graphsvx.core.calling import plan_call, several_graphs, unwrapped
from graphsvx.core.graph import Graph, converted
from graphsvx.core.model import (
    Decoder,
    Model,
    Output,
    Pick,
    Scale,
    call_on,
    decode,
    described_model,
    evaluation_mode,
    link_decoder,
    with_relation,
)
from graphsvx.core.names import NUMBERS, Names, as_data, find_names, node_positions
from graphsvx.core.types import FLAT, Types, node_number
from graphsvx.errors import InputError, ModelError, TargetError
from graphsvx.utils.constraints import Range, as_int, checked, shown
from graphsvx.utils.printable import one_line

Kind = Literal["node", "nodes", "graph", "edge", "model"]
Target = int | None
Bytes = Annotated[int, Range(1)]
NodeOfType = tuple[str, int]
"""A node of a typed graph: its type and its id within the type."""
LINK_CLASSES = ("no link", "link")
"""Classes of a link that has one score."""


@dataclass(frozen=True, eq=False)
class Query:
    """A prediction to be explained: the score of a node, several nodes, a link or a graph."""

    model: Model
    graph: Graph
    kind: Kind
    centres: Ids
    """The explained nodes U; the two ends of a link; empty for a graph."""
    target: Target = None
    """The explained output; None: the predicted one."""
    all_outputs: bool = False
    memory: int = 512 * 2**20
    """Bytes that a batch of perturbed graphs may take."""
    decoder: Decoder | None = None
    """Links: what turns the embeddings of the two ends into a score."""
    names: Names = NUMBERS
    removes_rows: bool = False
    """Whether switched-off nodes are removed from the graph: then any node may have influence, and
    each perturbed graph is one plain call."""
    relation: int | None = None
    """Links of a relational model: the relation that is scored."""

    def scores(self, out: Tensor) -> Tensor:
        """Outputs at the centres [states, centres, outputs] to scores [states, outputs].

        For a group U the score is the average over its nodes, for a link the decoder's.
        """
        if self.decoder is None:
            scores = self.model.scores(out)
            return scores[:, 0] if scores.shape[1] == 1 else scores.mean(1)
        return self.model.scores(decode(self.decoder, out))

    def choose_outputs(self, prediction: Tensor) -> tuple[tuple[int, ...], int]:
        """The explained outputs and the target, given the full prediction, [outputs]."""
        outputs = prediction.shape[0]
        classes = self.names.classes
        if classes is not None and len(classes) != outputs:
            raise InputError(
                f"class_names must name each of the {outputs} outputs, got {len(classes)}: "
                f"{', '.join(map(one_line, classes[:10]))}"
            )
        target = self.target
        if target is None:
            if self.model.scale != "value":
                target = int(prediction.argmax())
            elif outputs == 1 or self.all_outputs:
                target = 0
            else:
                raise TargetError(
                    f"the model has {outputs} outputs; say which one to explain with "
                    f'target=0..{outputs - 1}, or ask for targets="all"'
                )
        if not 0 <= target < outputs:
            raise TargetError(f"target must be from 0 to {outputs - 1}, got {target}")
        return (tuple(range(outputs)) if self.all_outputs else (target,)), target


def build_query(
    model: Callable[..., Any],
    data: Any,
    *,
    node: Any = None,
    nodes: Any = None,
    graph: bool = False,
    edge: Any = None,
    relation: Any = None,
    decoder: Callable[..., Tensor] | None = None,
    target: int | str | None = None,
    targets: Literal["all"] | None = None,
    output: Output | Pick | None = None,
    scale: Scale | None = None,
    arguments: Mapping[str, str] | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    memory: int = 512 * 2**20,
) -> Query:
    """Validate all arguments and build the query.

    The graph has types if `data` is HeteroData, or Data with `edge_type` that the model takes.
    """
    model, given_data, data = unwrapped(model), data, as_data(data)
    if not callable(model):
        raise InputError(f"model must be a module or a callable, got {type(model).__name__}")
    about = graphs.check_graph_of(model, data, arguments)
    has_types, flat = about.has_types, about.types.flat
    kind = _question_kind(node, nodes, graph, edge, decoder)
    number = _relation(about, kind, relation)
    if not flat and (feature_names is not None or node_names is not None):
        raise InputError(
            "feature_names and node_names are for graphs of one node type; leave them out"
        )
    if graph and not has_types and several_graphs(data):
        raise InputError(
            f"graph=True explains one graph, got a batch of {int(data.batch.max()) + 1}; "
            "use explain_many(model, batch.to_data_list())"
        )
    all_outputs = checked(targets, Literal["all"] | None, "targets") == "all"
    memory = checked(memory, Bytes, "memory")
    names = find_names(
        data,
        feature_names=feature_names,
        node_names=node_names,
        class_names=class_names,
        positions=None if has_types else node_positions(given_data),
    )
    if edge is not None and class_names is None:
        names = replace(names, classes=None)  # the data names classes of nodes, not of links
    if flat:
        names.check(about.num_nodes, about.num_features, about.form.row_shape)
        node, nodes = names.node(node), names.node_group(nodes)
        edge = names.node_group(edge)
    else:
        names = replace(names, features=None, nodes=None)
    links = kind == "edge" and decoder is None
    plan = plan_call(
        model,
        data,
        about,
        arguments=arguments,
        whole_graphs=graph,
        links=links,
        decoder=decoder is not None,
        relation=relation is not None,
    )
    called = described_model(model, output, scale, plan, graph)
    if not has_types:
        about = graphs.with_attributes(about, data, plan)
        called = replace(called, plan=replace(plan, form=about.form))
        called, about = _in_type_of_model(called, about)
        _refuse_uncut(called, about)
    centres = _centres(about.types, node, nodes, edge)
    if number is not None and decoder is not None:
        decoder = with_relation(decoder, number)
    elif links and not called.scores_pairs:
        decoder = link_decoder(model, about, centres, number)
    if kind == "edge" and names.classes is None and isinstance(target, str):
        names = replace(names, classes=LINK_CLASSES)
    target = names.target(target)
    return Query(
        model=called,
        graph=about,
        kind=kind,
        centres=centres,
        target=None if target is None else as_int(target, "target"),
        all_outputs=all_outputs,
        names=names,
        memory=memory,
        decoder=decoder,
        relation=number,
    )


def _refuse_uncut(model: Model, graph: Graph) -> None:
    """Raise an InputError if the model reads what refers to nodes and is not cut with them."""
    for name, attribute in graph.attributes.items():
        value = attribute.value
        if attribute.owner != "graph" or not graphs.names_nodes(name, value):
            continue
        nothing = value[..., :0] if shape_of(value) else type(value)()
        without = {**graph.attributes, name: replace(attribute, value=nothing)}
        outputs = _output(model, graph), _output(model, replace(graph, attributes=without))
        if outputs[0] is None or outputs[1] is None or not torch.equal(outputs[0], outputs[1]):
            raise InputError(graphs.uncut(name, f"{[*shape_of(value)] or type(value).__name__}"))


def _question_kind(node: Any, nodes: Any, graph: bool, edge: Any, decoder: Any) -> Kind:
    """Which of node=, nodes=, edge= and graph=True was given; an InputError unless it is one."""
    is_given: dict[Kind, bool] = {
        "node": node is not None,
        "nodes": nodes is not None,
        "graph": checked(graph, bool, "graph"),
        "edge": edge is not None,
    }
    kinds = [name for name, is_so in is_given.items() if is_so]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none of them"
        raise InputError(
            f"say what to explain by one of node=, nodes=, edge= or graph=True, got {got}"
        )
    if decoder is not None and edge is None:
        raise InputError("decoder= scores a link; say which one with edge=(u, v)")
    if decoder is not None and not callable(decoder):
        raise InputError(f"decoder must be callable, got {type(decoder).__name__}")
    return kinds[0]


def _in_type_of_model(model: Model, graph: Graph) -> tuple[Model, Graph]:
    """Model and graph, with the graph in the model's floating type if it only works with that."""
    x_dtype, weight = graph.x.dtype, next(model.weights, None)
    if weight is None or weight.dtype == x_dtype:
        return model, graph
    if not graph.form.has_x or not x_dtype.is_floating_point or _output(model, graph) is not None:
        return model, graph
    changed = converted(graph, weight.dtype)
    changed_model = replace(model, plan=replace(model.plan, form=changed.form))
    if _output(changed_model, changed) is None:
        return model, graph
    warnings.warn(
        f"data.x is {x_dtype} and the model's weights are {weight.dtype}: x is converted; use "
        f"data.x.to({weight.dtype})",
        stacklevel=4,
    )
    return changed_model, changed


def _output(model: Model, graph: Graph) -> Tensor | None:
    """The model's output for a whole graph; None where it fails."""
    try:
        with evaluation_mode(model.submodules):
            return call_on(model, graph)
    except ModelError:
        return None


def node_list(nodes: Any, count: int, name: str = "nodes") -> list[int]:
    """Node ids; a boolean mask over all nodes is converted to ids."""
    if isinstance(nodes, Tensor):
        must_be_readable(nodes, name)
        if nodes.layout != torch.strided or nodes.dtype.is_floating_point:
            raise InputError(f"{name} must be integers or a mask, got {shown(nodes)}; use .long()")
        nodes = nodes.detach().cpu().numpy()
    if isinstance(nodes, np.ndarray):
        if nodes.dtype == np.bool_ and nodes.shape != (count,):
            raise InputError(f"a mask of {name} must have {count} entries, got {list(nodes.shape)}")
        nodes = np.flatnonzero(nodes) if nodes.dtype == np.bool_ else nodes
        nodes = list(nodes) if nodes.ndim == 1 else nodes
    if isinstance(nodes, (str, bytes, np.ndarray)) or not isinstance(nodes, Iterable):
        raise InputError(f"{name} must be a list of numbers, or a mask, got {shown(nodes)}")
    return [as_int(node, f"each of {name}") for node in nodes]


def nodes_of_one_type(data: Any, nodes: Any) -> tuple[str | None, Any, int]:
    """The type of many nodes, their ids within it (None: all), and how many the type has.

    Of HeteroData nodes are given as ("paper", ids), or "paper" for all; of Data with `edge_type`
    as ids.
    """
    types = graphs.check_graph_with_types(data).types
    if types.flat:
        return None, nodes, int(types.node_starts[-1])
    match nodes:
        case str():
            return nodes, None, types.count(nodes)
        case (str() as node_type, ids):
            return node_type, ids, types.count(node_type)
    raise InputError(
        f'nodes must be a node type, or one with its ids, such as ("{types.node_types[0]}", '
        f"[1, 2]), got {shown(nodes)}"
    )


def _relation(graph: Graph, kind: Kind, relation: Any) -> int | None:
    if relation is None:
        return None
    if not graph.has_types:
        raise InputError(
            "relation= needs edge types: HeteroData, or Data with edge_type that the model takes"
        )
    if kind != "edge":
        raise InputError("relation= is that of a link; say which link with edge=(u, v)")
    types = graph.types
    if isinstance(relation, (str, tuple, list)):
        return types.edge_type_id(relation)
    number = as_int(relation, "relation")
    if not 0 <= number < len(types.edge_types):
        raise InputError(f"relation must be from 0 to {len(types.edge_types) - 1}, got {number}")
    return number


def _centres(types: Types, node: Any, nodes: Any, edge: Any) -> Ids:
    numbers: list[int] = []
    if node is not None:
        numbers = [node_number(types, node)]
    elif nodes is not None:
        numbers = _group(types, nodes)
    elif edge is not None:
        try:
            ends = list(edge)
        except TypeError:  # a number
            ends = []
        if len(ends) != 2:
            raise InputError(f"edge must be a pair of nodes (u, v), got {shown(edge)}")
        numbers = [node_number(types, end, "each end of edge") for end in ends]
        if numbers[0] == numbers[1]:
            raise InputError(f"edge must join two different nodes, got {shown(edge)}")
    return np.asarray(numbers, dtype=np.int64)


def _group(types: Types, nodes: Any) -> list[int]:
    """Numbers of several nodes: ids or a mask; ("paper", ids or a mask), or a list of pairs."""
    match nodes:
        case (str() as node_type, ids):
            numbers = [types.number(node_type, n) for n in node_list(ids, types.count(node_type))]
        case _ if types.flat:
            numbers = [types.number(FLAT, node) for node in node_list(nodes, types.count(FLAT))]
        case list() | tuple():
            numbers = [node_number(types, node, "each of nodes") for node in nodes]
        case _:
            raise InputError(
                'nodes must be a node type with its ids, such as ("paper", [1, 2]), got '
                f"{shown(nodes)}"
            )
    if not numbers:
        raise InputError("nodes must name at least one node, got none")
    if len(set(numbers)) < len(numbers):
        raise InputError("nodes must name each node once, got a node twice")
    if len(np.unique(types.kinds(np.asarray(numbers)))) > 1:
        raise InputError("nodes must be of one node type")
    return numbers
