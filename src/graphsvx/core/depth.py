"""Number of message-passing rounds of a model, which is the radius of the receptive field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from graphsvx.core.callers import Inputs, part_of, whole
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back


def message_passing_depth(model: Model, graph: Graph) -> int | None:
    """Number of message-passing rounds in one call: the radius of the receptive field.

    Counted by running the model once on a graph of one node, which also sees layers that pass
    messages several times (APPNP, SGC). None if no round was counted (not a PyG model). A
    ModelError where that graph is too small for the model.
    """
    layers = [layer for layer in model.submodules if isinstance(layer, MessagePassing)]
    if not layers:
        return None
    if graph.has_types:
        return _depth_by_type(model, graph, layers)
    rounds = 0

    def count(*_: Any) -> None:
        nonlocal rounds
        rounds += 1

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    none = slice(0, 0)
    with taking_back(remove):
        hooks += [layer.register_propagate_forward_pre_hook(count) for layer in layers]
        model(
            graph.x[:1],
            graph.edge_index[:, none],
            None if graph.edge_weight is None else graph.edge_weight[none],
            None if graph.edge_attr is None else graph.edge_attr[none],
            torch.zeros(1, dtype=torch.long, device=graph.x.device),
            torch.zeros(2, 1, dtype=torch.long, device=graph.x.device),
            graph.attributes_at(
                torch.zeros(1, dtype=torch.long, device=graph.x.device),
                torch.zeros(0, dtype=torch.long, device=graph.x.device),
            ),
        )
    return rounds or None


def _depth_by_type(model: Model, graph: Graph, layers: list[MessagePassing]) -> int | None:
    """The longest chain of message-passing rounds from the input to the outputs.

    Layers of one round for several edge types run side by side, so calls are not counted but
    followed through torch's record of the computation. Without such a record all calls are
    counted, which is never too few.
    """
    for small, rows_of_tables in ((True, False), (True, True), (False, False)):
        if rows_of_tables and not model.plan.tables:
            continue
        try:
            return _chain(model, graph, layers, small, rows_of_tables)
        except ModelError:
            if not small:
                raise
    return None


def _chain(
    model: Model, graph: Graph, layers: list[MessagePassing], small: bool, rows_of_tables: bool
) -> int | None:
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

    inputs = sample_by_type(graph) if small else whole(graph)
    pairs = torch.zeros(2, 1, dtype=torch.long, device=graph.x.device)
    batch = {name: torch.zeros_like(rows) for name, rows in inputs.node_rows.items()}
    inputs = replace(inputs, batch=batch, pairs=pairs, relation=0)
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


def sample_by_type(graph: Graph, per_type: int = 3) -> Inputs:
    """A small part of a graph: the first edges of each type, with a node of each type."""
    types = graph.types
    order = np.argsort(types.edge_type, kind="stable")
    starts = np.searchsorted(types.edge_type[order], np.arange(len(types.edge_types)))
    few = starts[:, None] + np.arange(per_type)
    edges = np.sort(order[few[few < np.append(starts[1:], graph.num_edges)[:, None]]])
    first = types.node_starts[:-1][np.diff(types.node_starts) > 0]
    ends = graph.edge_index.cpu().numpy()[:, edges]
    return part_of(graph, np.unique(np.concatenate([first, ends.reshape(-1)])), edges)


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
