"""Trim each round of a typed model to the nodes that can still influence a centre."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
def trimmed_rounds(model: TypedModel, levels: Levels, rounds: int) -> Iterator[None]:
    """Context manager: round k of a call gets the nodes within `rounds` - k + 1 hops only.

    The nodes that a round computes matter to the centres only if they are near enough for the
    rounds that follow.
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

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    with taking_back(remove):
        hooks += [
            part.register_forward_pre_hook(before, with_kwargs=True)
            for part in model.submodules
            if isinstance(part, ROUNDS)
        ]
        yield
    if done != rounds:
        raise ModelError(f"the model has {done} rounds for all node types, not {rounds}")
