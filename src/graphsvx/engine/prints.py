"""Whether a model is still what it was: asked before every explanation, so it must cost little.

A print holds no module, tensor or hook, so that it does not keep a model alive: numbers, strings,
classes and their code. Attributes are looked at by kind, with getters that are made once: most of
the looking is done by C code.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from torch import Tensor, nn

from graphsvx.engine.code import ClassCode

_PLAIN = {int, float, bool, str, type(None)}
_EMPTY = {dict, OrderedDict, list, tuple, set}
_TENSORS = {Tensor, nn.Parameter, type(None)}
# What every module has and no forward pass reads.
_UNREAD = {
    "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
    "_is_full_backward_hook", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Look:
    """What one module was."""

    kind: type
    size: int
    """Attributes that it had."""
    names: Callable[[dict[str, Any]], Any]
    """Gets numbers, strings and the like, and dictionaries and lists (of hooks) that were empty."""
    values: Any
    others: tuple[tuple[str, Callable[[Any], Any], Any], ...]
    """Names of all other attributes, what is looked at in them, and what was seen."""

    @staticmethod
    def at(one: nn.Module) -> _Look:
        plain: dict[str, Any] = {}
        others: list[tuple[str, Callable[[Any], Any], Any]] = []
        for name, value in one.__dict__.items():
            if name in _UNREAD:
                continue
            if type(value) in _PLAIN:
                plain[name] = value
            elif type(value) in _EMPTY and not value:
                plain[name] = type(value)()
            else:
                look = _way(name, value)
                others.append((name, look, look(value)))
        names = itemgetter(*plain) if plain else _nothing
        return _Look(type(one), len(one.__dict__), names, names(plain), tuple(others))

    def same(self, one: nn.Module) -> bool:
        """Whether it still is."""
        own = one.__dict__
        if type(one) is not self.kind or len(own) != self.size or self.names(own) != self.values:
            return False
        for name, look, seen in self.others:  # noqa: SIM110  (`all` takes twice as long)
            if look(own[name]) != seen:
                return False
        return True


@dataclass(frozen=True, eq=False)
class Print:
    """Changes with the weights, layers, hooks, plain attributes and code of a model."""

    looks: list[_Look]
    ids: list[int]
    code: list[ClassCode]
    """Of the classes of its modules, each once."""

    @staticmethod
    def of(found: list[nn.Module]) -> Print:
        """What a model is now, given all of its modules."""
        kinds = dict.fromkeys(map(type, found))
        code = [ClassCode.of(kind) for kind in kinds]
        return Print([_Look.at(one) for one in found], [*map(id, found)], code)

    def holds(self, found: list[nn.Module]) -> bool:
        """Whether the model is still the same."""
        if self.ids != [*map(id, found)]:
            return False
        try:
            if not all(code.unchanged() for code in self.code):
                return False
            return all(look.same(one) for look, one in zip(self.looks, found, strict=True))
        except (KeyError, TypeError, ValueError, RuntimeError):
            return False  # an attribute is gone, or of another kind


def _nothing(own: dict[str, Any]) -> None:  # noqa: ARG001  (a getter's argument)
    return None


def _way(name: str, value: Any) -> Callable[[Any], Any]:
    """What is looked at in an attribute."""
    if not isinstance(value, (dict, list, tuple)):
        return _item
    if name == "_modules":
        return _children
    return _weights if _holds_tensors(value) else _contents


def _children(held: dict[str, Any]) -> list[Any]:
    """As `_contents`, in a fraction of the time: names, and who they are."""
    return [*held, *map(id, held.values())]


def _holds_tensors(value: Any) -> bool:
    """Whether these are parameters or buffers by name."""
    return isinstance(value, dict) and all(
        type(key) is str and type(one) in _TENSORS for key, one in value.items()
    )


def _weights(held: Any) -> list[Any]:
    """As `_contents`, in a third of the time."""
    try:
        return [*held] + [
            one if one is None else (id(one), one._version, one.data_ptr()) for one in held.values()
        ]
    except (AttributeError, RuntimeError, ValueError):  # something else by now, lazily made, ...
        return _contents(held)


def _contents(held: Any, depth: int = 4) -> list[Any]:
    if isinstance(held, dict):
        held = [*held, *held.values()]
    return [_item(value, depth) for value in held]


def _item(value: Any, depth: int = 4) -> Any:
    if type(value) in _PLAIN:
        return value
    if depth and type(value) in (dict, list, tuple):
        return _contents(value, depth - 1)
    if not isinstance(value, Tensor):
        return id(value)
    try:
        return id(value), None if value.is_inference() else value._version, value.data_ptr()
    except (RuntimeError, ValueError):  # lazily made, or without storage
        return id(value)
