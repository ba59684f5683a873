"""Fingerprint of a model: its code, attributes and weights, the same in every process.

A resumed run must use the same model. Comparing weights is not enough: a changed attribute or an
edited `forward` changes the outputs too. Memory addresses, hash seeds, line numbers, docstrings,
train/eval mode and the caches of layers with `cached=True` are left out: they do not change the
outputs.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from dis import get_instructions
from functools import cached_property, partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch_geometric.data.data import BaseData

_DEEPEST = 8
_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis),
    torch.dtype, torch.device, torch.Size, torch.layout, np.generic, range, slice,
)  # fmt: skip
# Attributes of every module. Of these, only the forward hooks change the output.
_OF_MODULES = frozenset(vars(nn.Module()))
_LIBRARIES = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


@dataclass
class Contents:
    """Everything that a callable's results depend on, collected recursively."""

    code: dict[str, str] = field(default_factory=dict)
    """Hash of each function by name; one hash for each class of an installed package."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Every other value by the path to it, such as `convs.0.heads`."""
    weights: Any = field(default_factory=hashlib.sha256)
    """Hash of all parameters and buffers."""
    _seen: dict[int, Any] = field(default_factory=dict)
    """Visited objects by id; referenced here so that their ids are not reused."""
    _classes: set[type] = field(default_factory=set)

    @staticmethod
    def of(model: Callable[..., Any]) -> Contents:
        """The contents of a module or any other callable."""
        contents = Contents()
        # torch.compile wraps a module in a module with attributes of the compiler.
        inner = getattr(model, "_orig_mod", None)
        contents._value("", inner if isinstance(inner, nn.Module) else model, 0)
        return contents

    def _value(self, path: str, value: Any, depth: int) -> None:
        """Collect a value of any type; objects that are not plain only once."""
        if _plain_inside(value):
            self.attributes[path] = words(value)
            return
        if id(value) in self._seen or depth > _DEEPEST:
            return
        self._seen[id(value)] = value
        if isinstance(value, nn.Module):
            self._module(path, value, depth)
        elif isinstance(value, type):
            self.attributes[path] = value.__qualname__
            self._class(value, depth)
        elif isinstance(value, (list, tuple, set, frozenset, Mapping)):
            self._container(path, value, depth)
        elif isinstance(value, BaseData):
            self._container(path, value.to_dict(), depth)
        elif inspect.isroutine(value) or isinstance(value, partial) or _wrapped(value):
            self._routine(path, value, depth)
        elif not isinstance(value, RemovableHandle):  # holds only the id of a hook
            self._object(path, value, depth)

    def _routine(self, path: str, value: Any, depth: int) -> None:
        """Collect a function, a method or a partial with its arguments."""
        if isinstance(value, FunctionType):
            self._function(value.__qualname__, value, depth)
        elif isinstance(value, MethodType):
            self._value(path, value.__func__, depth)
            self._value(_joined(path, "__self__"), value.__self__, depth + 1)
        elif isinstance(value, partial):
            self._value(path, value.func, depth + 1)
            self._value(_joined(path, "args"), list(value.args), depth + 1)
            self._value(_joined(path, "keywords"), value.keywords, depth + 1)
        elif _wrapped(value):
            self._value(path, value.__wrapped__, depth)
        else:
            self.attributes[path] = name_of(value)

    def _object(self, path: str, value: Any, depth: int) -> None:
        """Collect any other object: its class and its attributes.

        Of an object of an installed package (a logger, a scaler) only the public plain values are
        collected: private state may change with every use.
        """
        self.attributes[path] = name_of(value)
        self._class(type(value), depth)
        installed = _installed(type(value).__module__)
        for name, attribute in sorted(_attributes(value).items()):
            if not installed or (not name.startswith("_") and _plain_inside(attribute)):
                self._value(_joined(path, name), attribute, depth + 1)

    def _container(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, (set, frozenset)):
            self.attributes[path] = words(value)
            return
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            name = key if isinstance(key, str) else words(key)
            self._value(_joined(path, name), item, depth + 1)

    def _module(self, path: str, module: nn.Module, depth: int) -> None:
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            self.weights.update(f"{_joined(path, name)};".encode())
            if tensor is not None:
                feed(self.weights, tensor)
        if isinstance(module, torch.jit.ScriptModule):
            text = module.code if hasattr(module, "forward") else ""
            self.code[_joined(path, "forward")] = _short(text)
        else:
            self._class(type(module), depth)
            for name, value in sorted(vars(module).items()):
                if name.endswith("_hooks") and "forward" in name:
                    if value:  # the keys are ids from a counter of the process
                        self._value(_joined(path, name), list(value.values()), depth + 1)
                elif name not in _OF_MODULES and not _derived(name, value):
                    self._value(_joined(path, name), value, depth + 1)
        for name, child in module._modules.items():
            if child is None:
                self.attributes[_joined(path, name)] = "None"
            else:
                self._seen[id(child)] = child  # no depth limit for submodules
                self._module(_joined(path, name), child, depth)

    def _class(self, kind: type, depth: int) -> None:
        """Collect the code of a class and of its base classes."""
        for base in kind.__mro__:
            if base in self._classes or base is nn.Module or base.__module__ == "builtins":
                continue
            self._classes.add(base)
            functions = {
                name: f for name, value in sorted(vars(base).items()) if (f := _code(value))
            }
            if _installed(base.__module__):
                self.code[base.__qualname__] = _short(*(_digest(f) for f in functions.values()))
                continue
            for name, function in functions.items():
                self._function(f"{base.__qualname__}.{name}", function, depth)
            for name, value in sorted(vars(base).items()):
                if isinstance(value, (*_PLAIN, tuple, list, dict)) and not name.startswith("__"):
                    self._value(f"{base.__qualname__}.{name}", value, depth + 1)

    def _function(self, name: str, function: FunctionType, depth: int) -> None:
        """Collect a function's code, closure, defaults, and the globals that it uses."""
        # A decorated function and the wrapper have the same name: combine their hashes.
        previous = self.code.get(name)
        digest = _digest(function)
        self.code[name] = digest if previous is None else _short(previous, digest)
        if depth > _DEEPEST or _installed(function.__module__):
            return
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for variable, cell in cells:
            try:
                self._value(f"{name}.{variable}", cell.cell_contents, depth + 1)
            except ValueError:  # not set yet
                continue
        for position, value in enumerate(function.__defaults__ or ()):
            self._value(f"{name}.default{position}", value, depth + 1)
        for variable, value in (function.__kwdefaults__ or {}).items():
            self._value(f"{name}.{variable}", value, depth + 1)
        for variable in sorted(_names(function.__code__)):
            value = function.__globals__.get(variable)
            path = f"{function.__module__}.{variable}"
            if isinstance(value, (FunctionType, type)):
                if not _installed(value.__module__):
                    self._value(path, value, depth + 1)
            elif value is not None and _plain_inside(value):
                self.attributes[path] = words(value)


def words(value: Any, depth: int = 0) -> str:  # noqa: PLR0911  (one return per type of value)
    """A repr that is the same in every process: without addresses, tensors by hash."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        digest = hashlib.sha256()
        feed(digest, value)
        return f"tensor{list(value.shape)}#{digest.hexdigest()[:12]}"
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return words(value.tolist(), depth)
        digest = hashlib.sha256(f"{value.dtype}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
        return f"array{list(value.shape)}#{digest.hexdigest()[:12]}"
    if depth > _DEEPEST:
        return type(value).__name__
    if isinstance(value, nn.Module) or inspect.isroutine(value) or isinstance(value, partial):
        contents = Contents.of(value)
        parts = (*contents.code.items(), *contents.attributes.items(), contents.weights.hexdigest())
        return f"{name_of(value)}#{_short(*map(repr, parts))}"
    if isinstance(value, type):
        return value.__qualname__
    if is_dataclass(value):
        items = [(item.name, getattr(value, item.name)) for item in fields(value)]
    elif isinstance(value, Mapping):
        items = sorted((words(key, depth + 1), item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        return f"[{', '.join(words(item, depth + 1) for item in value)}]"
    elif isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(words(item, depth + 1) for item in value))}}}"
    else:
        items = sorted(_attributes(value).items())
    return f"{name_of(value)}({', '.join(f'{k}={words(v, depth + 1)}' for k, v in items)})"


def name_of(value: Any) -> str:
    """The name of a function or class, or of the class of anything else."""
    return getattr(value, "__qualname__", None) or type(value).__name__


def feed(digest: Any, tensor: Tensor) -> None:
    """Add dtype, shape and values of a tensor to a hash."""
    if nn.parameter.is_lazy(tensor):
        digest.update(b"lazy;")
        return
    digest.update(f"{tensor.dtype}{list(tensor.shape)};".encode())
    dense = tensor.detach().cpu()
    if dense.layout != torch.strided:
        dense = dense.to_dense()
    # As bytes, because numpy has no bfloat16.
    digest.update(dense.contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _derived(name: str, value: Any) -> bool:
    """Whether an attribute is derived from the code (PyG's inspector) or is a cache."""
    return name.startswith("_cached") or type(value).__module__ == "torch_geometric.inspector"


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, from its `__dict__` and `__slots__`."""
    attributes = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(name, str) and hasattr(value, name):
                attributes.setdefault(name, getattr(value, name))
    return {name: item for name, item in attributes.items() if not name.startswith("__")}


def _plain_inside(value: Any, depth: int = 0) -> bool:
    """Whether a value is plain, or a nested container of plain values."""
    if isinstance(value, (*_PLAIN, Tensor, np.ndarray)):
        return True
    if depth > _DEEPEST or not isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return False
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    return all(_plain_inside(item, depth + 1) for item in value)


def _code(value: Any) -> FunctionType | None:
    """The function of a class attribute (a method, a property, ...), or None."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    value = value.__wrapped__ if not isinstance(value, FunctionType) and _wrapped(value) else value
    return value if isinstance(value, FunctionType) else None


def _wrapped(value: Any) -> bool:
    """Whether a value wraps a function, as `lru_cache` does."""
    return isinstance(getattr(value, "__wrapped__", None), FunctionType)


def _installed(module: str | None) -> bool:
    """Whether a module is part of Python or of an installed package (identified by version)."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return module == "builtins" or (file is not None and file.startswith(_LIBRARIES))


def _digest(function: FunctionType) -> str:
    return _short(_instructions(function.__code__, function.__doc__))


def _instructions(code: CodeType, doc: str | None = None) -> str:
    """Bytecode, names and constants of a code object, nested functions included."""
    constants = [
        _instructions(constant) if isinstance(constant, CodeType) else words(constant)
        for constant in code.co_consts
        if constant is not doc or doc is None
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))


def _names(code: CodeType) -> set[str]:
    """Global names used by a code object, nested functions included."""
    # Not co_names, which has the names of attributes too.
    names = {
        instruction.argval
        for instruction in get_instructions(code)
        if instruction.opname == "LOAD_GLOBAL"
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _short(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
