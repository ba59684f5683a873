"""Number of message-passing rounds of a typed model, from its autograd graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from graphsvx.core.arrays import as_tensor
from graphsvx.core.typed_graph import TypedGraph
from graphsvx.core.typed_model import TypedInput
from graphsvx.core.typed_query import TypedQuery
from graphsvx.engine.typed_batches import (
    TypedRows,
    edges_by_type,
)
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back


def message_passing_chain(query: TypedQuery) -> int | None:
    """The longest chain of message-passing rounds from the input to the outputs.

    Layers of one round for several edge types run side by side, so calls are not counted but
    followed through torch's record of the computation. Without such a record all calls are
    counted, which is never too few. None if the model has no layers of PyG.
    """
    model = query.typed_model
    layers = [layer for layer in model.submodules if isinstance(layer, MessagePassing)]
    if not layers:
        return None
    for small, rows_of_tables in ((True, False), (True, True), (False, False)):
        if rows_of_tables and not model.tables:
            continue
        try:
            return _chain(query, layers, small, rows_of_tables)
        except ModelError:
            if not small:
                raise
    return None


def _chain(
    query: TypedQuery, layers: list[MessagePassing], small: bool, rows_of_tables: bool
) -> int | None:
    graph, model = query.typed_graph, query.typed_model
    marked: list[Any] = []
    calls = 0

    def mark(_: Any, __: Any, out: Any) -> None:
        nonlocal calls
        calls += 1
        tensors = out if isinstance(out, tuple) else (out,)
        marked.extend(t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None)

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    inputs = _sample(graph, small)
    pairs = torch.zeros(2, 1, dtype=torch.long, device=graph.x.device)
    batch = {name: torch.zeros_like(rows) for name, rows in inputs.node_rows.items()}
    inputs = replace(inputs, batch=batch, pairs=pairs, relation=query.relation)
    with taking_back(remove), torch.inference_mode(False), torch.enable_grad():
        hooks += [layer.register_propagate_forward_hook(mark) for layer in layers]
        # Fresh tensors that record what is computed with them.
        x = {
            name: value.clone().requires_grad_() if value.is_floating_point() else value.clone()
            for name, value in inputs.x.items()
        }
        out = model.run(graph, replace(inputs, x=x), rows_of_tables)
        tensors = list(out.values()) if isinstance(out, Mapping) else [out]
        ends = [t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None]
        longest = _longest_chain(ends, marked)
    return longest or calls or None


def _sample(graph: TypedGraph, small: bool, per_type: int = 3) -> TypedInput:
    """The whole graph, or a few edges of each type."""
    order = np.argsort(graph.edge_type, kind="stable")
    edges = np.arange(graph.num_edges)
    nodes = np.arange(graph.num_nodes)
    ends = graph.edge_index.cpu().numpy()
    if small:
        starts = np.searchsorted(graph.edge_type[order], np.arange(len(graph.edge_types)))
        few = starts[:, None] + np.arange(per_type)
        inside = few < np.append(starts[1:], graph.num_edges)[:, None]
        edges = np.sort(order[few[inside]])
        first = graph.node_starts[:-1][np.diff(graph.node_starts) > 0]
        nodes = np.unique(np.concatenate([first, ends[:, edges].reshape(-1)]))
    local = np.searchsorted(nodes, ends[:, edges])
    rows = TypedRows(graph, nodes, local, edges, np.zeros((2, 0), dtype=np.int64), graph.x, 0,
                 np.zeros(len(nodes), dtype=np.int64))  # fmt: skip
    kinds = graph.node_type[nodes]
    starts = np.searchsorted(kinds, np.arange(len(graph.node_types) + 1))
    within = np.arange(len(nodes)) - starts[kinds]
    device = graph.x.device
    node_rows, x = {}, {}
    for at, name in enumerate(graph.node_types):
        ids = nodes[starts[at] : starts[at + 1]] - graph.node_starts[at]
        node_rows[name] = as_tensor(ids, device)
        if name in graph.features:
            x[name] = graph.features[name][node_rows[name]]
    edge_index, edge_rows = edges_by_type(rows, within)
    return TypedInput(x, edge_index, node_rows, edge_rows)


def _longest_chain(ends: list[Any], marked: list[Any]) -> int:
    """Largest number of marked steps on a path through the autograd graph."""
    is_marked = set(marked)
    length: dict[Any, int] = {}
    stack = [(step, False) for step in ends]
    while stack:
        step, done = stack.pop()
        before = [following for following, _ in step.next_functions if following is not None]
        if done:
            most = max((length[following] for following in before), default=0)
            length[step] = most + (step in is_marked)
        elif step not in length:
            stack.append((step, True))
            stack += [(following, False) for following in before if following not in length]
    return max((length[step] for step in ends), default=0)
