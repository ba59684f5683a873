"""Trim each round of message passing to the nodes that can still influence a centre.

Of k rounds, the output of round l at nodes more than k - l hops from the centres has no influence.
The nodes of a batch are sorted by hops, so the nodes that matter are a prefix: edges into later
nodes are left out of the round, and `PrefixRows` restricts what follows (projections,
activations) to the prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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

    def __init__(self, prefix: Sequence[int]) -> None:
        self.prefix = prefix
        """Nodes within 0, 1, ... k hops of a centre; k rounds."""
        self.owner = get_ident()
        self.done = 0

    def limit(self, layer: Any) -> int | None:
        """Number of rows that the next round must compute; None if unknown."""
        left = len(self.prefix) - 2 - self.done
        if get_ident() != self.owner or left < 0 or layer.flow != "source_to_target":
            return None
        return self.prefix[left]

    @contextmanager
    def hooked(self, layer: Any) -> Iterator[None]:
        """Context manager: messages of the layer are trimmed."""
        hooks = []
        if self.prefix:
            hooks = [
                layer.register_propagate_forward_pre_hook(self.before),
                layer.register_propagate_forward_hook(self.after),
                layer.register_edge_update_forward_pre_hook(self.before_update),
            ]

        def remove() -> None:
            for hook in hooks:
                hook.remove()

        with taking_back(remove):
            yield

    def before_update(self, layer: Any, inputs: Any) -> Any:
        """Trim `edge_updater` (attention), whose arguments have one row per edge."""
        return self._trimmed(layer, inputs, set())

    def before(self, layer: Any, inputs: Any) -> Any:
        """Trim `propagate`: x_i and x_j have one row per node, other arguments one per edge."""
        of_nodes = {name[:-2] for name in layer._user_args if name.endswith(("_i", "_j"))}
        return self._trimmed(layer, inputs, of_nodes)

    def after(self, layer: Any, inputs: Any, out: Any) -> Any:  # noqa: ARG002  (a hook's arguments)
        limit = self.limit(layer)
        if get_ident() == self.owner:
            self.done += 1
        if limit is None or not isinstance(out, Tensor) or out.shape[0] <= limit:
            return None
        if isinstance(out, PrefixRows) or layer.node_dim not in (0, -out.dim()):
            return None
        return PrefixRows(out[:limit], out.shape[0])

    def _trimmed(self, layer: Any, inputs: Any, of_nodes: set[str]) -> Any:
        edge_index, size, kwargs = inputs
        limit = self.limit(layer)
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


@dataclass(frozen=True, eq=False)
class _KernelForward:
    """Replaces a layer's `forward` during one call of the model."""

    layer: Any
    kernel: Forward
    rounds: _Rounds
    edges: BatchEdges

    def __call__(self, x: Any, edge_index: Any, *rest: Any, **named: Any) -> Any:
        layer, rounds, edges = self.layer, self.rounds, self.edges
        if get_ident() != rounds.owner:
            return type(layer).forward(layer, x, edge_index, *rest, **named)
        limit = rounds.limit(layer) if rounds.prefix else edges.rows
        if limit is not None and is_plain_call(x, edge_index, rest, named, edges):
            out = self.kernel(layer, x, edges, limit)
            if out is not None:
                rounds.done += 1
                return out if limit == edges.rows else PrefixRows(out, edges.rows)
        if edges.degree is not None or edges.activity is not None:
            raise RuntimeError("a layer was called in a way that needs all edges of the batch")
        with rounds.hooked(layer):
            return type(layer).forward(layer, x, edge_index, *rest, **named)


@contextmanager
def trimmed(
    parts: list[nn.Module],
    layers: ModelLayers,
    prefix: Sequence[int] | None,
    edges: BatchEdges | None,
) -> Iterator[None]:
    """Context manager: calls of the model with these modules take shortcuts.

    `prefix`: numbers of nodes to which rounds are trimmed (None: no trimming). `edges`: the
    batch's edges, on which layers with a kernel are computed (None: no kernels).
    """
    if prefix is None and edges is None:
        yield
        return
    rounds = _Rounds(prefix or ())
    calls, trimmed_layers = [], []
    for at, kernel in layers.layers:
        if kernel is not None and edges is not None:
            calls.append((parts[at], "forward", _KernelForward(parts[at], kernel, rounds, edges)))
        else:
            trimmed_layers.append(parts[at])
    with replaced_calls(calls), ExitStack() as hooks:
        for layer in trimmed_layers:
            hooks.enter_context(rounds.hooked(layer))
        yield
