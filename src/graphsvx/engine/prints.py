"""Whether a model is still what it was: asked before every explanation, so it must cost little.

A print holds numbers only, nothing that would keep a model alive. Attributes are looked at by
kind, with getters that are made once: most of the looking is done by C code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from torch import Tensor, nn

from graphsvx.graph import version
from graphsvx.model import modules

_PLAIN = {int, float, bool, str, type(None)}
# What every module has and no forward pass reads. Children are found by walking.
_UNREAD = {
    "_modules", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
    "_is_full_backward_hook", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
}  # fmt: skip

_Getter = Callable[[dict[str, Any]], tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class _Look:
    """How to look at one module."""

    plain: _Getter
    """Numbers, strings and the like: by value."""
    empty: _Getter
    """Dictionaries and lists (of hooks, say) that held nothing."""
    full: _Getter
    """Those that held something."""
    other: _Getter
    """Everything else, by identity."""

    @staticmethod
    def at(one: nn.Module) -> _Look:
        kinds: tuple[list[str], ...] = ([], [], [], [])
        for name, value in one.__dict__.items():
            if name not in _UNREAD:
                kinds[_kind(value)].append(name)
        return _Look(*map(_getter, kinds))

    def __call__(self, one: nn.Module) -> tuple[Any, ...]:
        own, kind = one.__dict__, type(one)
        return (
            kind,
            getattr(kind, "forward", None),  # scripted modules have none of their class
            len(own),
            self.plain(own),
            any(self.empty(own)),
            [_contents(held) for held in self.full(own)],
            [_item(value) for value in self.other(own)],
        )


@dataclass(frozen=True, eq=False)
class Print:
    """Changes with the weights, layers, hooks, plain attributes and code of a model."""

    looks: list[_Look]
    seen: list[tuple[Any, ...]]
    ids: list[int]

    @staticmethod
    def of(model: nn.Module) -> Print:
        """What the model is now."""
        found = modules(model)
        looks = [_Look.at(one) for one in found]
        return Print(looks, _seen(looks, found), [id(one) for one in found])

    def holds(self, model: nn.Module) -> bool:
        """Whether the model is still the same."""
        found = modules(model)
        if self.ids != [id(one) for one in found]:
            return False
        try:
            return self.seen == _seen(self.looks, found)
        except (KeyError, TypeError):  # an attribute is gone, or of another kind
            return False


def _seen(looks: list[_Look], found: list[nn.Module]) -> list[tuple[Any, ...]]:
    return [look(one) for look, one in zip(looks, found, strict=True)]


def _kind(value: Any) -> int:
    """The position of the getter that an attribute belongs to."""
    if type(value) in _PLAIN:
        return 0
    if isinstance(value, (dict, list, tuple)):
        return 2 if value else 1
    return 3


def _getter(names: list[str]) -> _Getter:
    """All values as a tuple; `itemgetter` of a single name would give the value itself."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda own: tuple([own[name] for name in names])


def _contents(held: Any) -> list[Any]:
    if isinstance(held, dict):
        return [*map(_item, held), *map(_item, held.values())]
    return [*map(_item, held)]


def _item(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if not isinstance(value, Tensor):
        return id(value)
    try:
        return id(value), version(value), value.data_ptr()
    except RuntimeError:  # lazily made, or without storage
        return id(value), version(value), 0
