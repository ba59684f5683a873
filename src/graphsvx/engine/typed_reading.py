"""What the outputs of a typed model are, and of which node type, found out from one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import as_tensor
from graphsvx.core.typed_graph import TypedGraph
from graphsvx.core.typed_query import TypedQuery
from graphsvx.engine.reading import (
    Assumption,
    LastOperation,
    apply_reading,
    assumption,
)
from graphsvx.engine.typed import profile_of
from graphsvx.engine.typed_batches import whole_input
from graphsvx.errors import InputError, ModelError


def with_typed_reading(query: TypedQuery) -> TypedQuery:
    """The query with `model.output` and `model.scale` inferred where the user did not give them.

    Raises:
        InputError: the model's outputs are those of another node type.

    """
    readings = profile_of(query).readings
    key = (query.kind, *(int(kind) for kind in query.typed_graph.node_type[query.centres]))
    if key not in readings:
        readings[key] = _ends(query) if query.decoder is not None else _read(query)
    # Embeddings are kept, not what one decoder makes of them.
    assumed = readings[key] if query.decoder is None else _read_link(query, readings[key])
    read = apply_reading(query, assumed)
    return read if isinstance(read, TypedQuery) else query


def _ends(query: TypedQuery) -> tuple[Tensor, Tensor] | None:
    """Embeddings of the two ends of a link, [1, width] each; None if the model fails."""
    graph = query.typed_graph
    ends = as_tensor(graph.local(query.centres), graph.x.device)
    kinds = [graph.node_types[kind] for kind in graph.node_type[query.centres]]
    try:
        out = query.typed_model.run(graph, whole_input(graph))
    except ModelError:  # the model fails: later calls raise its error
        return None
    first, second = (out.get(kind) if isinstance(out, Mapping) else out for kind in kinds)
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return None
    return first[ends[:1]], second[ends[1:]]


def _read_link(query: TypedQuery, ends: tuple[Tensor, Tensor] | None) -> Assumption:
    call = LastOperation()
    if ends is None or query.decoder is None:
        return Assumption()
    try:
        with call:
            out = query.decoder(*ends)
        if not isinstance(out, Tensor) or not 1 <= out.dim() <= 2:
            return Assumption()
    except Exception:  # the decoder fails: later calls raise its error
        return Assumption()
    rows = out[:, None] if out.dim() == 1 else out
    return assumption(query, rows, call.of(out), None, lambda: False)


def _read(query: TypedQuery) -> Assumption:
    call, graph = LastOperation(), query.typed_graph
    try:
        with call:
            out = _output(query, graph)
    except ModelError:  # the model fails: later calls raise its error
        return Assumption()
    if not isinstance(out, Tensor):
        return Assumption()
    last = call.of(out)
    rows = out[:, None] if out.dim() == 1 else out
    if rows.dim() != 2:
        return Assumption()

    def stays_between_0_and_1() -> bool:
        for factor in (1000, -1000):
            features = {
                name: factor * x if x.is_floating_point() else x
                for name, x in graph.features.items()
            }
            scaled = _output(query, replace(graph, features=features))
            if bool(((scaled < 0) | (scaled > 1)).any()):
                return False
        return True

    return assumption(query, rows, last, _labels(query), stays_between_0_and_1)


def _output(query: TypedQuery, graph: TypedGraph) -> Any:
    """The model's output for the whole graph: of the asked node type, the graph, or the link."""
    model, inputs = query.typed_model, whole_input(graph)
    if query.kind == "graph":
        batch = {name: torch.zeros_like(rows) for name, rows in inputs.node_rows.items()}
        return model.run(graph, replace(inputs, batch=batch))
    if model.scores_pairs:
        ends = as_tensor(graph.local(query.centres), graph.x.device)
        return model.run(graph, replace(inputs, pairs=ends[:, None], relation=query.relation))
    out = model.run(graph, inputs)
    kinds = [graph.node_types[kind] for kind in graph.node_type[query.centres]]
    if isinstance(out, Mapping):
        return out.get(kinds[0])
    if isinstance(out, Tensor) and out.dim():
        _check_type(query, out, kinds[0])
    return out


def _check_type(query: TypedQuery, out: Tensor, node_type: str) -> None:
    """Raise if a tensor has a row for each node of another type than the asked one.

    Where several types have as many nodes, a node of the asked type is left out to see whether a
    row goes with it.
    """
    graph = query.typed_graph
    counts = dict(zip(graph.node_types, np.diff(graph.node_starts).tolist(), strict=True))
    fitting = [name for name, count in counts.items() if count == len(out)]
    others = [name for name in fitting if name != node_type]
    if node_type in fitting:
        if not others or not _keeps_rows(query, len(out), node_type):
            return
    elif not others:
        return  # later calls raise the error
    example = f'node=("{others[0]}", 0)'
    raise InputError(
        f"the model returns a row for each node of type {' or '.join(map(repr, others))}, not of "
        f"{node_type!r}; ask about one of these, such as {example}, or return a dictionary with an "
        "output for each type"
    )


def _keeps_rows(query: TypedQuery, rows: int, node_type: str) -> bool:
    """Whether as many rows are returned without the last node of a type."""
    graph, model = query.typed_graph, query.typed_model
    last = int(graph.node_starts[graph.type_id(node_type) + 1]) - 1
    try:
        out = model.run(graph, whole_input(graph, left_out=last), bool(model.tables))
    except ModelError:  # it takes whole graphs only
        return False
    return isinstance(out, Tensor) and out.dim() > 0 and len(out) == rows


def _labels(query: TypedQuery) -> Tensor | None:
    """`y` of the asked node type as [nodes, labels]."""
    if query.kind not in ("node", "nodes"):
        return None
    graph = query.typed_graph
    name = graph.node_types[graph.node_type[query.centres[0]]]
    labels = graph.node_values.get("y", {}).get(name)
    if labels is None or labels.is_complex() or not labels.numel() or labels.dim() > 2:
        return None
    return labels[:, None] if labels.dim() == 1 else labels
