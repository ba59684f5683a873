"""Trim each round of a typed model to the nodes that can still influence a centre."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch_geometric.nn import HeteroConv, HGTConv

from graphsvx.core.arrays import Ids
from graphsvx.core.typed_model import TypedModel
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back

ROUNDS = (HeteroConv, HGTConv)
"""Modules that are one round of message passing for all node types."""

Levels = dict[Any, Ids]
"""By node type the number of nodes, and by edge type that of edges into nodes, within 0, 1, ...
hops of a centre; these come first among those of their type."""


@contextmanager
def trimmed_rounds(
    model: TypedModel, levels: Levels, rounds: int, trim_outputs: bool
) -> Iterator[None]:
    """Context manager: round k of a call gets the nodes within `rounds` - k + 1 hops only.

    The nodes that a round computes matter to the centres only if they are near enough for the
    rounds that follow: with `trim_outputs`, HeteroConv computes the nodes within `rounds` - k hops.
    """
    done = 0

    def cut(name: Any, value: Any, keep: int) -> Any:
        if name not in levels or not isinstance(value, Tensor):
            return value
        edges = isinstance(name, tuple)
        count = int(levels[name][keep - 1 if edges else keep])
        if edges and value.dim() == 2 and value.shape[0] == 2 and not value.is_floating_point():
            return value[:, :count]
        return value if len(value) == count else value[:count]

    def before(_: Any, args: Any, kwargs: Any) -> Any:
        nonlocal done
        done += 1
        keep = rounds - done + 1
        if keep < 1:
            raise ModelError(f"the model has more than {rounds} rounds")

        def trim(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            return {name: cut(name, part, keep) for name, part in value.items()}

        return tuple(map(trim, args)), {name: trim(value) for name, value in kwargs.items()}

    def trim_target(target: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Hooks of a convolution of an edge type: features of the targets, and the output."""

        def ends(value: Any) -> Any:
            if not isinstance(value, tuple) or len(value) != 2:
                return value
            return value[0], cut(target, value[1], rounds - done)

        def features(_: Any, args: Any, kwargs: Any) -> Any:
            return tuple(map(ends, args)), {name: ends(value) for name, value in kwargs.items()}

        def output(_: Any, __: Any, out: Any) -> Any:
            return cut(target, out, rounds - done)

        return features, output

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    with taking_back(remove):
        for part in model.submodules:
            if isinstance(part, ROUNDS):
                hooks.append(part.register_forward_pre_hook(before, with_kwargs=True))
            if trim_outputs and isinstance(part, HeteroConv):
                if len({id(layer) for layer in part.convs.values()}) < len(part.convs):
                    raise ModelError("a convolution of several edge types")
                for (_, _, target), layer in part.convs.items():
                    features, output = trim_target(target)
                    hooks.append(layer.register_forward_pre_hook(features, with_kwargs=True))
                    hooks.append(layer.register_forward_hook(output))
        yield
    if done != rounds:
        raise ModelError(f"the model has {done} rounds for all node types, not {rounds}")
