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

_PLAIN = {int, float, bool, str, type(None)}
_TENSORS = {Tensor, nn.Parameter, type(None)}
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
    others: tuple[tuple[str, Callable[[Any], Any]], ...]
    """Names of all other attributes, and what is looked at in them."""

    @staticmethod
    def at(one: nn.Module) -> _Look:
        plain: list[str] = []
        empty: list[str] = []
        others: list[tuple[str, Callable[[Any], Any]]] = []
        for name, value in one.__dict__.items():
            if name in _UNREAD:
                continue
            if type(value) in _PLAIN:
                plain.append(name)
            elif not isinstance(value, (dict, list, tuple)):
                others.append((name, _item))
            elif value:
                others.append((name, _weights if _holds_tensors(value) else _contents))
            else:
                empty.append(name)
        return _Look(_getter(plain), _getter(empty), tuple(others))

    def __call__(self, one: nn.Module) -> tuple[Any, ...]:
        own, kind = one.__dict__, type(one)
        return (
            kind,
            getattr(kind, "forward", None),  # scripted modules have none of their class
            len(own),
            self.plain(own),
            any(self.empty(own)),
            [look(own[name]) for name, look in self.others],
        )


@dataclass(frozen=True, eq=False)
class Print:
    """Changes with the weights, layers, hooks, plain attributes and code of a model."""

    looks: list[_Look]
    seen: list[tuple[Any, ...]]
    ids: list[int]

    @staticmethod
    def of(found: list[nn.Module]) -> Print:
        """What a model is now, given all of its modules."""
        looks = [_Look.at(one) for one in found]
        return Print(looks, _seen(looks, found), [id(one) for one in found])

    def holds(self, found: list[nn.Module]) -> bool:
        """Whether the model is still the same."""
        if self.ids != [id(one) for one in found]:
            return False
        try:
            return self.seen == _seen(self.looks, found)
        except (KeyError, TypeError):  # an attribute is gone, or of another kind
            return False


def _seen(looks: list[_Look], found: list[nn.Module]) -> list[tuple[Any, ...]]:
    return [look(one) for look, one in zip(looks, found, strict=True)]


def _holds_tensors(value: Any) -> bool:
    """Whether these are parameters or buffers by name."""
    return isinstance(value, dict) and all(
        type(key) is str and type(one) in _TENSORS for key, one in value.items()
    )


def _getter(names: list[str]) -> _Getter:
    """All values as a tuple; `itemgetter` of a single name would give the value itself."""
    if not names:
        return lambda _: ()
    return itemgetter(*names) if len(names) > 1 else itemgetter(names[0], names[0])


def _weights(held: Any) -> list[Any]:
    """As `_contents`, in a third of the time."""
    try:
        return [*held] + [
            one if one is None else (id(one), one._version, one.data_ptr()) for one in held.values()
        ]
    except (AttributeError, RuntimeError):  # something else by now, made in inference mode, ...
        return _contents(held)


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
