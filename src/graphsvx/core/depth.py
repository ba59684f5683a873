"""Number of message-passing rounds of a model, which is the radius of the receptive field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from graphsvx.core.calling import Inputs, part_of, whole
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
    rounds: list[Any] = []
    first, no_edges, pair = (
        torch.zeros(size, dtype=torch.long, device=graph.x.device) for size in (1, 0, (2, 1))
    )
    weight, attr = graph.edge_rows(no_edges)
    further = graph.attributes_at(first, no_edges)
    with _after_each_round(layers, rounds.append):
        model(graph.x[:1], graph.edge_index[:, :0], weight, attr, first, pair, further)
    return len(rounds) or None


@contextmanager
def _after_each_round(
    layers: list[MessagePassing], add: Callable[[list[Any]], object]
) -> Iterator[None]:
    """Call `add` after each round of message passing, with the steps that computed its outputs."""
    hooks: list[Any] = []

    def see(_: Any, __: Any, out: Any) -> None:
        add(_steps(out if isinstance(out, tuple) else (out,)))

    def remove() -> None:
        while hooks:
            hooks.pop().remove()

    with taking_back(remove):
        hooks += [layer.register_propagate_forward_hook(see) for layer in layers]
        yield


def _depth_by_type(model: Model, graph: Graph, layers: list[MessagePassing]) -> int | None:
    """The longest chain of message-passing rounds from the input to the outputs.

    Layers of one round for several edge types run side by side, so calls are not counted but
    followed through torch's record of the computation. Without such a record all calls are
    counted, which is never too few.
    """
    sample = sample_by_type(graph)
    for rows_of_tables in (False, True) if model.plan.tables else (False,):
        with suppress(ModelError):
            return _chain(model, graph, layers, sample, rows_of_tables)
    return _chain(model, graph, layers, whole(graph))


def _chain(
    model: Model,
    graph: Graph,
    layers: list[MessagePassing],
    inputs: Inputs,
    rows_of_tables: bool = False,
) -> int | None:
    pairs = torch.zeros(2, 1, dtype=torch.long, device=graph.x.device)
    batch = {name: torch.zeros_like(rows) for name, rows in inputs.node_rows.items()}
    rounds: list[list[Any]] = []
    with (
        _after_each_round(layers, rounds.append),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        # Fresh tensors that record what is computed with them.
        x = {
            name: value.clone().requires_grad_(value.is_floating_point())
            for name, value in inputs.x.items()
        }
        inputs = replace(inputs, x=x, batch=batch, pairs=pairs, relation=0)
        out = model.run(graph, inputs, rows_of_tables)
    ends = _steps(out.values() if isinstance(out, Mapping) else [out])
    return _longest_chain(ends, set(chain(*rounds))) or len(rounds) or None


def _steps(tensors: Iterable[Any]) -> list[Any]:
    """The steps in torch's record that computed these tensors."""
    return [t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None]


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


def _longest_chain(ends: list[Any], marked: set[Any]) -> int:
    """Largest number of marked steps on a path through the autograd graph."""
    length: dict[Any, int] = {}
    stack = [(step, False) for step in ends]
    while stack:
        step, done = stack.pop()
        before = [following for following, _ in step.next_functions if following is not None]
        if done:
            most = max((length[following] for following in before), default=0)
            length[step] = most + (step in marked)
        elif step not in length:
            stack += [(step, True), *((following, False) for following in before)]
    return max((length[step] for step in ends), default=0)
