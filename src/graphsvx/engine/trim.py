"""Trim each round of message passing to the nodes that can still influence a centre.

Of k rounds, the output of round l at nodes more than k - l hops from the centres has no influence.
The nodes of a batch are sorted by hops, so the nodes that matter are a prefix: edges into later
nodes are left out of the round, and `PrefixRows` restricts what follows (projections,
activations) to the prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import HeteroConv, HGTConv

from graphsvx.core.arrays import Ids
from graphsvx.engine.kernels import BatchEdges, LayerKernel, ModelLayers, is_plain_call
from graphsvx.engine.lazy import PrefixRows
from graphsvx.errors import ModelError
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
    kernel: LayerKernel
    rounds: _Rounds
    edges: BatchEdges

    def __call__(self, x: Any, edge_index: Any, *rest: Any, **named: Any) -> Any:
        layer, rounds, edges = self.layer, self.rounds, self.edges
        if get_ident() != rounds.owner:
            return type(layer).forward(layer, x, edge_index, *rest, **named)
        limit = rounds.limit(layer) if rounds.prefix else edges.rows
        if limit is not None and is_plain_call(x, edge_index, rest, named, edges):
            out = self._computed(x, limit)
            if out is not None:
                rounds.done += 1
                return out if limit == edges.rows else PrefixRows(out, edges.rows)
        if edges.degree is not None or edges.first_round is not None:
            raise RuntimeError("a layer was called in a way that needs all edges of the batch")
        with rounds.hooked(layer):
            return type(layer).forward(layer, x, edge_index, *rest, **named)

    def _computed(self, x: Any, rows: int) -> Any:
        """The first `rows` rows of the output; None: the kernel does not apply."""
        first_round = None if self.rounds.done else self.edges.first_round
        if self.kernel.forward is None or not (first_round is None or first_round.takes(x)):
            return None
        return self.kernel.forward(self.layer, x, first_round or self.edges, rows)


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
    changed: list[nn.Module] = []

    def restore() -> None:
        for layer in changed:
            layer.__dict__.pop("forward", None)

    with ExitStack() as hooks, taking_back(restore):
        for at, kernel in layers.layers:
            layer = parts[at]
            if kernel is not None and edges is not None:
                changed.append(layer)
                layer.__dict__["forward"] = _KernelForward(layer, kernel, rounds, edges)
            else:
                hooks.enter_context(rounds.hooked(layer))
        yield


# Rounds of models that take nodes and edges by type.


ROUNDS = (HeteroConv, HGTConv)
"""Modules that are one round of message passing for all node types."""

Trim = Literal["inputs", "outputs"]
"""What each round of HeteroConv or HGTConv gets of the nodes, those that still matter; HeteroConv
also computes no others."""

Levels = dict[Any, Ids]
"""By node type the number of nodes, and by edge type that of edges into nodes, within 0, 1, ...
hops of a centre; these come first among those of their type."""


@dataclass(eq=False)
class _Trimming:
    """Counts the rounds of one call and trims what each of them gets and computes."""

    levels: Levels
    rounds: int
    done: int = 0

    def cut(self, name: Any, value: Any, hops: int) -> Any:
        """The rows of a node type within so many hops, or the edges into nodes nearer by one."""
        if name not in self.levels or not isinstance(value, Tensor):
            return value
        edges = isinstance(name, tuple)
        count = int(self.levels[name][hops - 1 if edges else hops])
        if edges and value.dim() == 2 and value.shape[0] == 2 and not value.is_floating_point():
            return value[:, :count]
        return value if len(value) == count else value[:count]

    def before_round(self, _: Any, args: Any, kwargs: Any) -> Any:
        """Forward pre-hook of a round: dictionaries by type are trimmed."""
        self.done += 1
        hops = self.rounds - self.done + 1
        if hops < 1:
            raise ModelError(f"the model has more than {self.rounds} rounds")

        def trim(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            return {name: self.cut(name, part, hops) for name, part in value.items()}

        return tuple(map(trim, args)), {name: trim(value) for name, value in kwargs.items()}

    def before_layer(self, target: str, _: Any, args: Any, kwargs: Any) -> Any:
        """Forward pre-hook of a convolution: features of the targets, second of a pair."""

        def trim(value: Any) -> Any:
            if not isinstance(value, tuple) or len(value) != 2:
                return value
            return value[0], self.cut(target, value[1], self.rounds - self.done)

        return tuple(map(trim, args)), {name: trim(value) for name, value in kwargs.items()}

    def after_layer(self, target: str, _: Any, __: Any, out: Any) -> Any:
        """Forward hook of a convolution: its output at the targets."""
        return self.cut(target, out, self.rounds - self.done)


@contextmanager
def trimmed_by_type(
    parts: list[nn.Module], levels: Levels, rounds: int, trim_outputs: bool
) -> Iterator[None]:
    """Context manager: round k of a call gets the nodes within `rounds` - k + 1 hops only.

    The nodes that a round computes matter to the centres only if they are near enough for the
    rounds that follow: with `trim_outputs`, HeteroConv computes the nodes within `rounds` - k hops.
    """
    trimming, hooks = _Trimming(levels, rounds), ExitStack()

    def add(hook: RemovableHandle) -> None:
        hooks.callback(hook.remove)

    with taking_back(hooks.close):
        for part in parts:
            if isinstance(part, ROUNDS):
                add(part.register_forward_pre_hook(trimming.before_round, with_kwargs=True))
            if trim_outputs and isinstance(part, HeteroConv):
                if len({id(layer) for layer in part.convs.values()}) < len(part.convs):
                    raise ModelError("a convolution of several edge types")
                for (_, _, target), layer in part.convs.items():
                    before = partial(trimming.before_layer, target)
                    add(layer.register_forward_pre_hook(before, with_kwargs=True))
                    add(layer.register_forward_hook(partial(trimming.after_layer, target)))
        yield
    if trimming.done != rounds:
        raise ModelError(f"the model has {trimming.done} rounds for all node types, not {rounds}")
