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
from graphsvx.core.field import subgraph
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model, call_on
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back


def rounds_left(model: Model, graph: Graph) -> tuple[int, ...] | None:
    """For each round of message passing in one call, in order: how many follow it.

    Counted by running the model once on a graph of one node, which also sees layers that pass
    messages several times (APPNP, SGC). None if no round was counted. A ModelError where that graph
    is too small for the model.
    """
    layers = [layer for layer in model.submodules if isinstance(layer, MessagePassing)]
    if not layers:
        return None
    if graph.has_types:
        return _rounds_by_type(model, graph, layers)
    rounds: list[Any] = []
    with _after_each_round(layers, rounds.append):
        call_on(model, subgraph(graph, np.zeros(1, dtype=np.int64)))
    return _one_after_the_other(rounds)


def _one_after_the_other(rounds: list[Any]) -> tuple[int, ...] | None:
    return tuple(reversed(range(len(rounds)))) or None


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


def _rounds_by_type(
    model: Model, graph: Graph, layers: list[MessagePassing]
) -> tuple[int, ...] | None:
    """How many rounds follow each one on the longest way from its output to those of the model.

    Layers of one round for several edge types run side by side, so calls are not counted but
    followed through torch's record of the computation. Without such a record all calls are
    counted, which is never too few.
    """
    for rows_of_tables in (False, True) if model.plan.tables else (False,):
        with suppress(ModelError):
            return _followed(model, sample_by_type(graph), graph, layers, rows_of_tables)
    return _followed(model, whole(graph), graph, layers, False)


def _followed(
    model: Model, inputs: Inputs, graph: Graph, layers: list[MessagePassing], rows_of_tables: bool
) -> tuple[int, ...] | None:
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
    after = _marked_after(ends, set(chain(*rounds)))
    reached = [after[step] for step in chain(*rounds) if step in after]
    if not reached:
        return _one_after_the_other(rounds)
    # What is computed and not used has nothing after it; what is not recorded may have all.
    return tuple(max((after.get(s, 0) for s in steps), default=max(reached)) for steps in rounds)


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


def _marked_after(ends: list[Any], marked: set[Any]) -> dict[Any, int]:
    """For each step that `ends` come from: the most marked ones on a way from it to an end."""
    order: dict[Any, bool] = {}
    stack = [(step, False) for step in ends]
    while stack:
        step, done = stack.pop()
        if done:
            order[step] = order.pop(step)  # after all that it was computed from
        elif step not in order:
            order[step] = True
            stack += [(step, True), *((before, False) for before in _inputs(step))]
    after = dict.fromkeys(order, 0)
    for step in reversed(order):
        for before in _inputs(step):
            after[before] = max(after[before], after[step] + (step in marked))
    return after


def _inputs(step: Any) -> list[Any]:
    return [before for before, _ in step.next_functions if before is not None]
