"""The query on a typed graph: nodes are pairs of a type and an id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from graphsvx.core.arrays import Ids
from graphsvx.core.calling import signature_of
from graphsvx.core.model import Output, Pick, Scale
from graphsvx.core.names import find_names
from graphsvx.core.query import (
    LINK_CLASSES,
    Bytes,
    Decoder,
    Query,
    build_query,
    inner_product,
    node_list,
    question_kind,
)
from graphsvx.core.typed_data import check_typed_graph, is_typed
from graphsvx.core.typed_graph import FLAT, TypedGraph, node_number
from graphsvx.core.typed_model import TypedModel, check_typed_model
from graphsvx.errors import InputError
from graphsvx.utils.constraints import as_int, checked, shown

TypedNode = tuple[str, int]
"""A node of a typed graph: its type and its id within the type."""


@dataclass(frozen=True, eq=False)
class TypedQuery(Query):
    """A prediction on a typed graph; `centres` are numbers of nodes over all types."""

    relation: int | None = None
    """Links of a relational model: the relation that is scored."""

    @property
    def typed_graph(self) -> TypedGraph:
        """The graph, with its types."""
        return cast(TypedGraph, self.graph)

    @property
    def typed_model(self) -> TypedModel:
        """The model, with its way to be called."""
        return cast(TypedModel, self.model)


def build_typed_query(
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
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    node_names: Sequence[str] | None = None,
    memory: int = 512 * 2**20,
) -> TypedQuery:
    """Validate all arguments and build the query."""
    about = check_typed_graph(data)
    kind = question_kind(node, nodes, graph, edge, decoder)
    number = None
    if relation is not None:
        if kind != "edge":
            raise InputError("relation= is that of a link; say which link with edge=(u, v)")
        number = _relation(about, relation)
    if not about.flat and (feature_names is not None or node_names is not None):
        raise InputError(
            "feature_names and node_names are for graphs of one node type; leave them out"
        )
    names = find_names(
        data, feature_names=feature_names, node_names=node_names, class_names=class_names
    )
    if edge is not None and class_names is None:
        names = replace(names, classes=None)  # the data names classes of nodes, not of links
    if about.flat:
        names.check(about.num_nodes, about.num_features, None)
        node, nodes = names.node(node), names.node_group(nodes)
        edge = None if edge is None else names.node_group(edge)
    else:
        names = replace(names, features=None, nodes=None)
    called = check_typed_model(
        model, about, output, scale, whole_graphs=kind == "graph",
        links=kind == "edge" and decoder is None, relation=relation is not None,
    )  # fmt: skip
    centres = _centres(about, node, nodes, edge)
    score: Decoder | None = None
    if decoder is not None:
        score = with_relation(decoder, number)
    elif kind == "edge" and not called.scores_pairs:
        u, v = (about.node_types[at] for at in about.node_type[centres])
        score = model_decoder(model, None if about.flat else (u, v), number)
        if score is None and relation is not None:
            raise InputError(
                "relation= needs a decoder of (source, target, relation), a model with one as "
                "`decoder` or `decode`, or one that takes edge_label_index and edge_label_type"
            )
        score = score or inner_product
    if kind == "edge" and names.classes is None and isinstance(target, str):
        names = replace(names, classes=LINK_CLASSES)
    target = names.target(target)
    return TypedQuery(
        model=called,
        graph=about,
        kind=kind,
        centres=centres,
        target=None if target is None else as_int(target, "target"),
        all_outputs=checked(targets, Literal["all"] | None, "targets") == "all",
        class_names=names.classes,
        names=names,
        memory=checked(memory, Bytes, "memory"),
        decoder=score,
        relation=number,
    )


def build_any_query(
    model: Callable[..., Any], data: Any, *, relation: Any = None, **options: Any
) -> Query:
    """The query on a graph with or without types."""
    if is_typed(model, data):
        return build_typed_query(model, data, relation=relation, **options)
    if relation is not None:
        raise InputError(
            "relation= needs a graph with edge types: HeteroData, or Data with edge_type and a "
            "model that takes it"
        )
    return build_query(model, data, **options)


def nodes_of_one_type(data: Any, nodes: Any) -> tuple[str | None, Any, int]:
    """The type of many nodes, their ids within it (None: all), and how many the type has.

    Of HeteroData nodes are given as ("paper", ids), or "paper" for all; of Data with `edge_type`
    as ids.
    """
    graph = check_typed_graph(data)
    if graph.flat:
        return None, nodes, graph.num_nodes
    ids = None
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[0], str):
        nodes, ids = nodes
    if not isinstance(nodes, str):
        raise InputError(
            f'nodes must be a node type, or one with its ids, such as ("{graph.node_types[0]}", '
            f"[1, 2]), got {shown(nodes)}"
        )
    at = graph.type_id(nodes)
    return nodes, ids, int(graph.node_starts[at + 1] - graph.node_starts[at])


def _relation(graph: TypedGraph, relation: Any) -> int:
    if isinstance(relation, (str, tuple, list)):
        return graph.edge_type_id(relation)
    number = as_int(relation, "relation")
    if not 0 <= number < len(graph.edge_types):
        raise InputError(f"relation must be from 0 to {len(graph.edge_types) - 1}, got {number}")
    return number


def _centres(graph: TypedGraph, node: Any, nodes: Any, edge: Any) -> Ids:
    if node is not None:
        numbers = [node_number(graph, node)]
    elif edge is not None:
        if not isinstance(edge, (tuple, list)) or len(edge) != 2:
            raise InputError(f"edge must be a pair of nodes, got {shown(edge)}")
        numbers = [node_number(graph, end, "each end of edge") for end in edge]
        if numbers[0] == numbers[1]:
            raise InputError(f"edge must join two different nodes, got {shown(edge)}")
    elif nodes is not None:
        numbers = _group(graph, nodes)
    else:
        numbers = []
    return np.asarray(numbers, dtype=np.int64)


def _group(graph: TypedGraph, nodes: Any) -> list[int]:
    """("paper", [1, 2, 3]), ("paper", mask), or a list of pairs."""
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[0], str):
        first = graph.number(nodes[0], 0)
        at = graph.node_types.index(nodes[0])
        ids = node_list(nodes[1], int(graph.node_starts[at + 1]) - first)
        numbers = [graph.number(nodes[0], node) for node in ids]
    elif graph.flat:
        numbers = [graph.number(FLAT, node) for node in node_list(nodes, graph.num_nodes)]
    elif isinstance(nodes, (list, tuple)):
        numbers = [node_number(graph, node, "each of nodes") for node in nodes]
    else:
        raise InputError(
            f'nodes must be a node type with its ids, such as ("paper", [1, 2]), got {shown(nodes)}'
        )
    if not numbers:
        raise InputError("nodes must name at least one node, got none")
    if len(set(numbers)) < len(numbers):
        raise InputError("nodes must name each node once, got a node twice")
    if len(np.unique(graph.node_type[numbers])) > 1:
        raise InputError("nodes must be of one node type")
    return numbers


# Scores of links by a typed model's own decoder.


def with_relation(decoder: Callable[..., Tensor], relation: int | None) -> Decoder:
    """A decoder of (source, target) from one of (source, target, relation)."""
    if relation is None:
        return decoder

    def score(source: Tensor, target: Tensor) -> Tensor:
        relations = torch.full((len(source),), relation, device=source.device)
        return decoder(source, target, relations)

    return score


def model_decoder(
    model: Any, node_types: tuple[str, str] | None, relation: int | None
) -> Decoder | None:
    """The model's own decoder as one of the embeddings of the two ends; None if it has none.

    `decode` and `decoder` take rows of source and target, or as in PyG's `GAE` all embeddings (of
    HeteroData by node type) and the pairs; then the relation where they take a third argument.
    `decoder` is used only if a relation is asked for.

    Args:
        model: the user's model.
        node_types: of HeteroData, those of the two ends.
        relation: the relation that is scored.

    """
    inner = getattr(model, "decoder", None)
    function = getattr(model, "decode", None) if hasattr(model, "encode") else None
    if not callable(function):
        function = inner if relation is not None else None
    if not callable(function):
        return None
    parameters = _positional(function)
    if not parameters and isinstance(inner, nn.Module):  # decode(*args) of GAE
        parameters = _positional(inner)
    logits = {"sigmoid": False} if "sigmoid" in parameters else {}
    parameters = [name for name in parameters if name != "sigmoid"]
    if relation is not None and len(parameters) < 3:
        raise InputError(
            f"the model's decoder takes {parameters}, not the relation; give "
            "decoder=, a function of (source, target, relation)"
        )
    if len(parameters) < 2 or "edge" not in parameters[1]:
        return with_relation(function, relation)

    def score(source: Tensor, target: Tensor) -> Tensor:
        count = len(source)
        first = torch.arange(count, device=source.device)
        rows = torch.stack([first, first + count])
        embeddings: Any = torch.cat([source, target])
        if node_types is not None:
            embeddings = {node_types[0]: embeddings}
            if node_types[0] != node_types[1]:
                embeddings = {node_types[0]: source, node_types[1]: target}
                rows = torch.stack([first, first])
        arguments = [embeddings, rows]
        if relation is not None:
            arguments.append(torch.full_like(first, relation))
        scores: Tensor = function(*arguments, **logits)
        return scores

    return score


def _positional(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, parameter in signature_of(function).items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
