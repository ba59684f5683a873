"""Fingerprints of models, to detect changes before each explanation.

A fingerprint holds numbers, strings, classes and code objects, but no module, tensor or hook, so
that it does not keep a model alive. Attributes are read by getters that are built once, so that
most of a comparison runs in C.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

_PLAIN = {int, float, bool, str, type(None)}
_EMPTY = {dict, OrderedDict, list, tuple, set}
_TENSORS = {Tensor, nn.Parameter, type(None)}
# Attributes of every module that no forward pass reads.
_UNREAD = {
    "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
    "_is_full_backward_hook", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ModuleSnapshot:
    """Snapshot of a module's attributes, to detect later changes."""

    kind: type
    size: int
    """Number of attributes."""
    names: Callable[[dict[str, Any]], Any]
    """Reads the plain attributes: numbers, strings, and containers (of hooks) that were empty."""
    values: Any
    others: tuple[tuple[str, Callable[[Any], Any], Any], ...]
    """(name, reader, value) of the other attributes."""

    @staticmethod
    def of(module: nn.Module) -> ModuleSnapshot:
        """Snapshot of a module."""
        plain: dict[str, Any] = {}
        others: list[tuple[str, Callable[[Any], Any], Any]] = []
        for name, value in module.__dict__.items():
            if name in _UNREAD:
                continue
            if type(value) in _PLAIN:
                plain[name] = value
            elif type(value) in _EMPTY and not value:
                plain[name] = type(value)()
            else:
                reader = _reader_of(name, value)
                others.append((name, reader, reader(value)))
        names = itemgetter(*plain) if plain else _nothing
        return ModuleSnapshot(
            type(module), len(module.__dict__), names, names(plain), tuple(others)
        )

    def matches(self, module: nn.Module) -> bool:
        """Whether the module's attributes are unchanged."""
        attributes = module.__dict__
        if (
            type(module) is not self.kind
            or len(attributes) != self.size
            or self.names(attributes) != self.values
        ):
            return False
        for name, reader, seen in self.others:  # noqa: SIM110  (`all` takes twice as long)
            if reader(attributes[name]) != seen:
                return False
        return True


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Fingerprint of the weights, layers, hooks, plain attributes and code of a model."""

    snapshots: list[ModuleSnapshot]
    ids: list[int]
    code: list[ClassCode]
    """Of the classes of its modules, each once."""

    @staticmethod
    def of(modules: list[nn.Module]) -> Fingerprint:
        """Fingerprint of a model, given all of its modules."""
        kinds = dict.fromkeys(map(type, modules))
        code = [ClassCode.of(kind) for kind in kinds]
        return Fingerprint(
            [ModuleSnapshot.of(module) for module in modules], [*map(id, modules)], code
        )

    def matches(self, modules: list[nn.Module]) -> bool:
        """Whether the model is unchanged."""
        if self.ids != [*map(id, modules)]:
            return False
        try:
            if not all(code.unchanged() for code in self.code):
                return False
            return all(
                snapshot.matches(module)
                for snapshot, module in zip(self.snapshots, modules, strict=True)
            )
        except (KeyError, TypeError, ValueError, RuntimeError):
            return False  # an attribute is missing or has another type


def _nothing(attributes: dict[str, Any]) -> None:  # noqa: ARG001  (a getter's argument)
    return None


def _reader_of(name: str, value: Any) -> Callable[[Any], Any]:
    """The function that reads an attribute for comparison."""
    if not isinstance(value, (dict, list, tuple)):
        return _item
    if name == "_modules":
        return _children
    return _weights if _holds_tensors(value) else _contents


def _children(modules: dict[str, Any]) -> list[Any]:
    """Names and identities of child modules; a fast version of `_contents`."""
    return [*modules, *map(id, modules.values())]


def _holds_tensors(value: Any) -> bool:
    """Whether a value is a dictionary of parameters or buffers."""
    return isinstance(value, dict) and all(
        type(key) is str and type(tensor) in _TENSORS for key, tensor in value.items()
    )


def _weights(tensors: Any) -> list[Any]:
    """Identity, version and address of each tensor; a fast version of `_contents`."""
    try:
        return [*tensors] + [
            tensor if tensor is None else (id(tensor), tensor._version, tensor.data_ptr())
            for tensor in tensors.values()
        ]
    except (AttributeError, RuntimeError, ValueError):  # something else by now, lazily made, ...
        return _contents(tensors)


def _contents(values: Any, depth: int = 4) -> list[Any]:
    if isinstance(values, dict):
        values = [*values, *values.values()]
    return [_item(value, depth) for value in values]


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


_LIBRARIES = ("torch.", "numpy.", "scipy.", "builtins", "typing", "abc")
_DEPTH = 3
"""How many functions deep globals are followed: forward -> gcn_norm -> add_remaining_self_loops."""


@dataclass(frozen=True, eq=False)
class ClassCode:
    """Identities of the attributes of a class and its bases, and of the globals they use."""

    kinds: tuple[type, ...]
    ids: tuple[list[int], ...]
    globals: tuple[tuple[dict[str, Any], tuple[str, ...], list[int]], ...]

    @staticmethod
    def of(kind: type) -> ClassCode:
        """Snapshot of the class."""
        kinds = tuple(base for base in kind.__mro__ if not _is_library(base.__module__))
        names: dict[int, tuple[dict[str, Any], set[str]]] = {}
        functions = {function for base in kinds for function in _functions(base)}
        seen: set[Any] = set()
        for _ in range(_DEPTH):
            seen |= functions
            used: set[Any] = set()
            for function in functions:
                scope = function.__globals__
                for name in _names(function.__code__):
                    value = scope.get(name)
                    if value is None or isinstance(value, ModuleType):
                        continue
                    names.setdefault(id(scope), (scope, set()))[1].add(name)
                    if isinstance(value, FunctionType) and not _is_library(value.__module__):
                        used.add(value)
            functions = used - seen
        globals_read = tuple(
            (scope, ordered := tuple(sorted(globals_of)), [id(scope[name]) for name in ordered])
            for scope, globals_of in names.values()
        )
        return ClassCode(kinds, tuple(_ids(base) for base in kinds), globals_read)

    def unchanged(self) -> bool:
        """Whether everything is still the same object."""
        if any(_ids(kind) != ids for kind, ids in zip(self.kinds, self.ids, strict=True)):
            return False
        return all(
            [*map(id, map(scope.get, names))] == ids for scope, names, ids in self.globals
        )  # fmt: skip


def _is_library(module: str | None) -> bool:
    return module is None or (module + ".").startswith(_LIBRARIES)


def _ids(kind: type) -> list[int]:
    return [*map(id, vars(kind).values())]


def _functions(kind: type) -> Iterator[FunctionType]:
    for value in vars(kind).values():
        inner = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(inner, FunctionType):
            yield inner


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, type(code)):  # a function inside of the function
            yield from _names(constant)
