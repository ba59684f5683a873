"""What a model is made of, in words that are the same in every process: code, attributes, weights.

A run that goes on must be of the same model. Weights alone do not tell: a plain attribute or an
edited `forward` changes every answer too. Addresses, hash seeds, line numbers, docstrings,
train/eval mode and what layers with `cached=True` remember are left out: they change no answer.
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
# What every module has. Of these, only the forward hooks change an answer.
_OF_MODULES = frozenset(vars(nn.Module()))
_LIBRARIES = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


@dataclass
class Contents:
    """Everything that a callable's answers depend on, collected from it and all inside it."""

    code: dict[str, str] = field(default_factory=dict)
    """Hash of each function, by name; of each class of an installed package as a whole."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Every other value by the path to it, such as `convs.0.heads`."""
    weights: Any = field(default_factory=hashlib.sha256)
    """Hash of all parameters and buffers."""
    _seen: dict[int, Any] = field(default_factory=dict)
    """What has been looked at; kept alive, so that no other object gets its id."""
    _classes: set[type] = field(default_factory=set)

    @staticmethod
    def of(model: Callable[..., Any]) -> Contents:
        """Of a module or any other callable."""
        found = Contents()
        # torch.compile wraps a module in one of its own, whose attributes are the compiler's.
        inner = getattr(model, "_orig_mod", None)
        found._value("", inner if isinstance(inner, nn.Module) else model, 0)
        return found

    def _value(self, path: str, value: Any, depth: int) -> None:
        """Take a value in, whatever it is; each object that is not plain once."""
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
        elif not isinstance(value, RemovableHandle):  # the number of a hook
            self._object(path, value, depth)

    def _routine(self, path: str, value: Any, depth: int) -> None:
        """A function, a method or a partial, with what it holds."""
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
        """Any other object: its class and its attributes.

        Of an object of an installed package (a logger, a scaler) only its public plain values:
        the rest may be anything, and may change with every use.
        """
        self.attributes[path] = name_of(value)
        self._class(type(value), depth)
        installed = _installed(type(value).__module__)
        for name, inside in sorted(_inside(value).items()):
            if not installed or (not name.startswith("_") and _plain_inside(inside)):
                self._value(_joined(path, name), inside, depth + 1)

    def _container(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, (set, frozenset)):
            self.attributes[path] = words(value)
            return
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inside in items:
            name = key if isinstance(key, str) else words(key)
            self._value(_joined(path, name), inside, depth + 1)

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
                    if value:  # their keys are numbers that a process counts up
                        self._value(_joined(path, name), list(value.values()), depth + 1)
                elif name not in _OF_MODULES and not _derived(name, value):
                    self._value(_joined(path, name), value, depth + 1)
        for name, child in module._modules.items():
            if child is None:
                self.attributes[_joined(path, name)] = "None"
            else:
                self._seen[id(child)] = child  # not a cut at the greatest depth: layers nest
                self._module(_joined(path, name), child, depth)

    def _class(self, kind: type, depth: int) -> None:
        """The code of a class and of those that it inherits from."""
        for one in kind.__mro__:
            if one in self._classes or one is nn.Module or one.__module__ == "builtins":
                continue
            self._classes.add(one)
            functions = {
                name: f for name, value in sorted(vars(one).items()) if (f := _code(value))
            }
            if _installed(one.__module__):
                self.code[one.__qualname__] = _short(*(_digest(f) for f in functions.values()))
                continue
            for name, function in functions.items():
                self._function(f"{one.__qualname__}.{name}", function, depth)
            for name, value in sorted(vars(one).items()):
                if isinstance(value, (*_PLAIN, tuple, list, dict)) and not name.startswith("__"):
                    self._value(f"{one.__qualname__}.{name}", value, depth + 1)

    def _function(self, name: str, function: FunctionType, depth: int) -> None:
        """Its code, and the values and functions that the code names."""
        # A decorated function and its decorator's have the same name.
        known = self.code.get(name)
        self.code[name] = _digest(function) if known is None else _short(known, _digest(function))
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
            where = f"{function.__module__}.{variable}"
            if isinstance(value, (FunctionType, type)):
                if not _installed(value.__module__):
                    self._value(where, value, depth + 1)
            elif value is not None and _plain_inside(value):
                self.attributes[where] = words(value)


def words(value: Any, depth: int = 0) -> str:  # noqa: PLR0911  (one line a kind of value)
    """A value in words that are the same in every process: no addresses, tensors by hash."""
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
        found = Contents.of(value)
        parts = (*found.code.items(), *found.attributes.items(), found.weights.hexdigest())
        return f"{name_of(value)}#{_short(*map(repr, parts))}"
    if isinstance(value, type):
        return value.__qualname__
    if is_dataclass(value):
        inside = [(one.name, getattr(value, one.name)) for one in fields(value)]
    elif isinstance(value, Mapping):
        inside = sorted((words(key, depth + 1), one) for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        return f"[{', '.join(words(one, depth + 1) for one in value)}]"
    elif isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(words(one, depth + 1) for one in value))}}}"
    else:
        inside = sorted(_inside(value).items())
    return f"{name_of(value)}({', '.join(f'{k}={words(v, depth + 1)}' for k, v in inside)})"


def name_of(value: Any) -> str:
    """The name of a function or class, or of the class of anything else."""
    return getattr(value, "__qualname__", None) or type(value).__name__


def feed(digest: Any, tensor: Tensor) -> None:
    """Add type, shape and numbers of a tensor to a hash."""
    if nn.parameter.is_lazy(tensor):
        digest.update(b"lazy;")
        return
    digest.update(f"{tensor.dtype}{list(tensor.shape)};".encode())
    plain = tensor.detach().cpu()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    # Bytes, whatever the type: numpy has no bfloat16.
    digest.update(plain.contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _derived(name: str, value: Any) -> bool:
    """Made from the code (PyG's inspector), or of no importance for an answer."""
    return name.startswith("_cached") or type(value).__module__ == "torch_geometric.inspector"


def _inside(value: Any) -> dict[str, Any]:
    """The attributes of an object, with or without a dictionary of its own."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(name, str) and hasattr(value, name):
                found.setdefault(name, getattr(value, name))
    return {name: one for name, one in found.items() if not name.startswith("__")}


def _plain_inside(value: Any, depth: int = 0) -> bool:
    """Whether a container holds plain values only, in containers or not."""
    if isinstance(value, (*_PLAIN, Tensor, np.ndarray)):
        return True
    if depth > _DEEPEST or not isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return False
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    return all(_plain_inside(one, depth + 1) for one in value)


def _code(value: Any) -> FunctionType | None:
    """The function behind what a class has: a method, a property, ..."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    value = value.__wrapped__ if not isinstance(value, FunctionType) and _wrapped(value) else value
    return value if isinstance(value, FunctionType) else None


def _wrapped(value: Any) -> bool:
    """Whether it stands for a function that it holds, as with `lru_cache`."""
    return isinstance(getattr(value, "__wrapped__", None), FunctionType)


def _installed(module: str | None) -> bool:
    """Whether a module is of Python or of an installed package: its version says what it is."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return module == "builtins" or (file is not None and file.startswith(_LIBRARIES))


def _digest(function: FunctionType) -> str:
    return _short(_instructions(function.__code__, function.__doc__))


def _instructions(code: CodeType, doc: str | None = None) -> str:
    """What code does, in words; functions inside it too."""
    constants = [
        _instructions(one) if isinstance(one, CodeType) else words(one)
        for one in code.co_consts
        if one is not doc or doc is None
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))


def _names(code: CodeType) -> set[str]:
    """Global names that code, or a function inside it, uses."""
    # Not co_names, which has the names of attributes, too.
    found = {one.argval for one in get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= _names(one)
    return found


def _short(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
