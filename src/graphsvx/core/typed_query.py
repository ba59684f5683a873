"""The query on a typed graph: nodes are pairs of a type and an id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from torch import Tensor, full

from graphsvx.core.arrays import Ids
from graphsvx.core.model import Output, Scale
from graphsvx.core.query import Bytes, Decoder, Query, inner_product, node_list, question_kind
from graphsvx.core.typed_graph import (
    FLAT,
    TypedGraph,
    check_typed_graph,
    node_number,
)
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
    target: int | None = None,
    targets: Literal["all"] | None = None,
    output: Output = "raw",
    scale: Scale = "probability",
    class_names: Sequence[str] | None = None,
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
    names = checked(class_names, tuple[str, ...] | None, "class_names")
    called = check_typed_model(
        model, about, output, scale, whole_graphs=kind == "graph",
        links=kind == "edge" and decoder is None, relation=relation is not None,
    )  # fmt: skip
    score: Decoder | None = decoder
    if kind == "edge" and decoder is None and not called.scores_pairs:
        if relation is not None:
            raise InputError(
                "relation= needs a decoder of (source, target, relation), or a model that takes "
                "edge_label_index and edge_label_type"
            )
        score = inner_product
    elif decoder is not None and number is not None:
        score = _with_relation(decoder, number)
    if names is None and score is not None and scale != "value":
        names = ("no link", "link")
    return TypedQuery(
        model=called,
        graph=about,
        kind=kind,
        centres=_centres(about, node, nodes, edge),
        target=None if target is None else as_int(target, "target"),
        all_outputs=checked(targets, Literal["all"] | None, "targets") == "all",
        class_names=names,
        memory=checked(memory, Bytes, "memory"),
        decoder=score,
        relation=number,
    )


def _relation(graph: TypedGraph, relation: Any) -> int:
    if isinstance(relation, (str, tuple, list)):
        return graph.edge_type_id(relation)
    number = as_int(relation, "relation")
    if not 0 <= number < len(graph.edge_types):
        raise InputError(f"relation must be from 0 to {len(graph.edge_types) - 1}, got {number}")
    return number


def _with_relation(decoder: Callable[..., Tensor], relation: int) -> Decoder:
    def score(source: Tensor, target: Tensor) -> Tensor:
        return decoder(source, target, full((len(source),), relation, device=source.device))

    return score


def _centres(graph: TypedGraph, node: Any, nodes: Any, edge: Any) -> Ids:
    if node is not None:
        chosen = [node_number(graph, node)]
    elif edge is not None:
        if not isinstance(edge, (tuple, list)) or len(edge) != 2:
            raise InputError(f"edge must be a pair of nodes, got {shown(edge)}")
        chosen = [node_number(graph, end, "each end of edge") for end in edge]
        if chosen[0] == chosen[1]:
            raise InputError(f"edge must join two different nodes, got {shown(edge)}")
    elif nodes is not None:
        chosen = _group(graph, nodes)
    else:
        chosen = []
    return np.asarray(chosen, dtype=np.int64)


def _group(graph: TypedGraph, nodes: Any) -> list[int]:
    """("paper", [1, 2, 3]), ("paper", mask), or a list of pairs."""
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[0], str):
        first = graph.number(nodes[0], 0)
        at = graph.node_types.index(nodes[0])
        ids = node_list(nodes[1], int(graph.node_starts[at + 1]) - first)
        chosen = [graph.number(nodes[0], node) for node in ids]
    elif graph.flat:
        chosen = [graph.number(FLAT, node) for node in node_list(nodes, graph.num_nodes)]
    elif isinstance(nodes, (list, tuple)):
        chosen = [node_number(graph, node, "each of nodes") for node in nodes]
    else:
        raise InputError(
            f'nodes must be a node type with its ids, such as ("paper", [1, 2]), got {shown(nodes)}'
        )
    if not chosen:
        raise InputError("nodes must name at least one node, got none")
    if len(set(chosen)) < len(chosen):
        raise InputError("nodes must name each node once, got a node twice")
    if len(np.unique(graph.node_type[chosen])) > 1:
        raise InputError("nodes must be of one node type")
    return chosen
