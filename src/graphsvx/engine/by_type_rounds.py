"""Trim each round of a typed model to the nodes that can still influence a centre."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import HeteroConv, HGTConv

from graphsvx.core.arrays import Ids
from graphsvx.core.model import Model
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back

ROUNDS = (HeteroConv, HGTConv)
"""Modules that are one round of message passing for all node types."""

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
def trimmed_rounds(model: Model, levels: Levels, rounds: int, trim_outputs: bool) -> Iterator[None]:
    """Context manager: round k of a call gets the nodes within `rounds` - k + 1 hops only.

    The nodes that a round computes matter to the centres only if they are near enough for the
    rounds that follow: with `trim_outputs`, HeteroConv computes the nodes within `rounds` - k hops.
    """
    trimming, hooks = _Trimming(levels, rounds), ExitStack()

    def add(hook: RemovableHandle) -> None:
        hooks.callback(hook.remove)

    with taking_back(hooks.close):
        for part in model.submodules:
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
