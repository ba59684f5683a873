"""Whether the code of a class is what it was: its methods, and the globals that they use.

A user may replace `GCNConv.message`, or `gcn_norm` in the module of `GCNConv`, between two
explanations. Identities are compared, which takes some microseconds a class; a function whose
`__code__` is replaced in place is not noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

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
