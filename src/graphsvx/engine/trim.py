"""Trim each round of message passing to the nodes that can still influence a centre.

Of k rounds, the output of round l at nodes more than k - l hops from the centres has no influence.
The nodes of a batch are sorted by hops, so the nodes that matter are a prefix: edges into later
nodes are left out of the round, and `PrefixRows` restricts what follows (projections,
activations) to the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from graphsvx.engine.kernels import BatchEdges, Forward, ModelLayers, is_plain_call
from graphsvx.engine.lazy import PrefixRows
from graphsvx.engine.structure import replaced_calls
from graphsvx.utils.exclusive import taking_back


class _Rounds:
    """Counts the rounds of one model call and trims each of them."""

    def __init__(self, edges: Sequence[BatchEdges], left: Sequence[int] | None) -> None:
        self.edges = {id(part.index): part for part in edges}
        self.only = edges[0] if len(edges) == 1 else None
        self.left = left
        self.trims = any(part.prefix for part in edges)
        self.owner = get_ident()
        self.done = 0
        self.now: int | None = None
        """Number of rows that the current round must compute."""

    def limit(self, layer: Any, edge_index: Any) -> int | None:
        """Number of rows that the next round must compute on some edges; None if unknown."""
        edges = self.edges.get(id(edge_index), self.only)
        if edges is None or not edges.prefix:
            return None
        rounds = range(len(edges.prefix) - 2, -1, -1) if self.left is None else self.left
        if get_ident() != self.owner or self.done >= len(rounds):
            return None
        return edges.prefix[rounds[self.done]] if layer.flow == "source_to_target" else None

    @contextmanager
    def hooked(self, layer: Any) -> Iterator[None]:
        """Context manager: messages of the layer are trimmed."""
        hooks = []
        if self.trims:
            hooks = [
                layer.register_propagate_forward_pre_hook(self.before),
                layer.register_propagate_forward_hook(self.after),
                # Attention: arguments of `edge_updater` have one row per edge.
                layer.register_edge_update_forward_pre_hook(partial(self._trimmed, of_nodes=())),
            ]

        def remove() -> None:
            for hook in hooks:
                hook.remove()

        with taking_back(remove):
            yield

    def before(self, layer: Any, inputs: Any) -> Any:
        """Trim `propagate`: x_i and x_j have one row per node, other arguments one per edge."""
        self.now = self.limit(layer, inputs[0])
        of_nodes = {name[:-2] for name in layer._user_args if name.endswith(("_i", "_j"))}
        return self._trimmed(layer, inputs, of_nodes)

    def after(self, layer: Any, inputs: Any, out: Any) -> Any:  # noqa: ARG002  (a hook's arguments)
        limit = self.now
        if get_ident() == self.owner:
            self.done += 1
        if limit is None or not isinstance(out, Tensor) or out.shape[0] <= limit:
            return None
        if isinstance(out, PrefixRows) or layer.node_dim not in (0, -out.dim()):
            return None
        return PrefixRows(out[:limit], out.shape[0])

    def _trimmed(self, layer: Any, inputs: Any, of_nodes: Collection[str]) -> Any:
        edge_index, size, kwargs = inputs
        limit = self.limit(layer, edge_index)
        if limit is None or type(edge_index) is not Tensor or edge_index.layout != torch.strided:
            return None
        edges = edge_index.shape[1]
        keep = (edge_index[1] < limit).nonzero()[:, 0]
        if len(keep) == edges:
            return None
        trimmed = {}
        for name, value in kwargs.items():
            untrimmed = name in of_nodes or not isinstance(value, Tensor) or value.dim() == 0
            trim = not untrimmed and value.shape[0] == edges
            trimmed[name] = value.index_select(0, keep) if trim else value
        return edge_index.index_select(1, keep), size, trimmed


def _by_kernel(layer: Any, kernel: Forward, rounds: _Rounds) -> Callable[..., Any]:
    """Replaces a layer's `forward` during one call of the model."""

    def forward(x: Any, edge_index: Any, *rest: Any, **named: Any) -> Any:
        edges = rounds.edges.get(id(edge_index))
        if get_ident() != rounds.owner:
            return type(layer).forward(layer, x, edge_index, *rest, **named)
        if edges is not None and is_plain_call(x, rest, named, edges):
            limit = rounds.limit(layer, edge_index) if rounds.trims else edges.rows
            out = None if limit is None else kernel(layer, x, edges, limit)
            if out is not None:
                rounds.done += 1
                return out if limit == edges.rows else PrefixRows(out, edges.rows)
        if any(e.degree is not None or e.activity is not None for e in rounds.edges.values()):
            raise RuntimeError("a layer was called in a way that needs all edges of the batch")
        with rounds.hooked(layer):
            return type(layer).forward(layer, x, edge_index, *rest, **named)

    return forward


@contextmanager
def trimmed(
    parts: list[nn.Module],
    layers: ModelLayers,
    edges: Sequence[BatchEdges],
    kernels: bool = True,
) -> Iterator[None]:
    """Context manager: calls of the model with these modules take shortcuts.

    Rounds are trimmed to the `prefix` of the edges' targets. `kernels`: edges are sorted by target,
    and layers with a kernel are computed by it.
    """
    rounds = _Rounds(edges, layers.rounds_left)
    if not kernels and not rounds.trims:
        yield
        return
    calls, trimmed_layers = [], []
    for at, kernel in layers.layers:
        if kernel is not None and kernels:
            calls.append((parts[at], "forward", _by_kernel(parts[at], kernel, rounds)))
        else:
            trimmed_layers.append(parts[at])
    with replaced_calls(calls), ExitStack() as hooks:
        for layer in trimmed_layers:
            hooks.enter_context(rounds.hooked(layer))
        yield
