"""Fingerprints of models, graphs and tensors: whether they are what they were.

`Contents` is the same in every process: its text says what differs between two runs. A changed
attribute, global variable or `forward` changes the outputs as weights do, so everything is followed
that is reached from a value: attributes, closures, the globals that code of the user reads. Left
out is what changes no output: memory addresses, hash seeds, line numbers, docstrings, train/eval
mode and the caches of layers with `cached=True`. What cannot be compared between processes (an open
file, an iterator) is listed by name in `Contents.unseen`.

`Watched` is the cheap variant of the same parts (modules and their attributes, the code of their
classes, the globals that it uses), compared by identity before each explanation. `stamp` is of one
tensor.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import re
import sys
import sysconfig
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from dis import get_instructions
from functools import cached_property, lru_cache, partial
from time import perf_counter
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data.data import BaseData

_DEEPEST = 8
"""Nested containers that count as one plain value."""
_FARTHEST = 60
"""References that are followed one after the other."""
_LONGEST = 200
"""Characters of a value that are stored; of longer ones the start and a hash."""
_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis),
    torch.dtype, torch.device, torch.Size, torch.layout, np.generic, range, slice,
)  # fmt: skip
# Attributes of every module. Of these, only the forward hooks change the output.
_OF_MODULES = frozenset(vars(nn.Module()))
# Values that change no output: locks, loggers, handles that hold only the id of a hook.
_IRRELEVANT = (type(threading.Lock()), type(threading.RLock()), logging.Logger, RemovableHandle)
_NAMED = (FunctionType, BuiltinFunctionType, type)
_LIBRARIES = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_UNSTABLE_SCRIPT = re.compile(r"___torch_mangle_\d+\.| at 0x[0-9a-f]+| *training = .*")


@dataclass
class Contents:
    """Everything that a callable's results depend on, collected recursively."""

    code: dict[str, str] = field(default_factory=dict)
    """Hash of each function by name; one hash for each class of an installed package."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Every other value by the path to it, such as `convs.0.heads`."""
    weights: Any = field(default_factory=hashlib.sha256)
    """Hash of all parameters and buffers."""
    unseen: list[str] = field(default_factory=list)
    """Values that cannot be compared between processes, by path."""
    _seen: dict[int, tuple[Any, str]] = field(default_factory=dict)
    """Visited objects by id, with their path; referenced so that their ids are not reused."""
    _classes: set[type] = field(default_factory=set)

    @staticmethod
    def of(value: Any, classes: set[type] | None = None) -> Contents:
        """The contents of a module, any other callable, or a graph, but for known `classes`."""
        contents = Contents(_classes=set() if classes is None else classes)
        # torch.compile wraps a module or function; the wrapper has attributes of the compiler.
        for name in ("_orig_mod", "_torchdynamo_orig_callable"):
            value = getattr(value, name, value)
        contents._value("", value, 0)
        return contents

    def _note(self, path: str, text: str, table: dict[str, str] | None = None) -> None:
        """Store a text; if there is one of this name already, both count."""
        table = self.attributes if table is None else table
        if len(text) > _LONGEST:
            text = f"{text[:60]}…#{_short(text)}"
        table[path] = text if path not in table else _short(table[path], text)

    def _value(self, path: str, value: Any, depth: int) -> None:
        """Collect a value of any type; of objects that were seen before only where."""
        if isinstance(value, _IRRELEVANT):
            return
        if _plain_inside(value) or isinstance(value, (set, frozenset)):
            self._note(path, stable_repr(value))
            return
        if id(value) in self._seen:
            self._note(path, f"the same as {self._seen[id(value)][1] or 'all'}")
            return
        if depth > _FARTHEST:
            self.unseen.append(f"{path} (nested too deep)")
            return
        self._seen[id(value)] = value, path
        if isinstance(value, nn.Module):
            self._module(path, value, depth)
            return
        for name, part in self._parts(path, value, depth):
            self._value(_joined(path, name), part, depth + 1)

    def _parts(  # noqa: PLR0911  (one return per type of value)
        self, path: str, value: Any, depth: int
    ) -> Iterable[tuple[str, Any]]:
        """What an object consists of, by name: items, attributes, what it is pickled by."""
        if isinstance(value, BaseData):
            self._class(type(value), depth)
            value = value.to_dict()
        match value:
            case list() | tuple() | Mapping():
                items = value.items() if isinstance(value, Mapping) else enumerate(value)
                named = [(key if type(key) is str else stable_repr(key), x) for key, x in items]
                return [*named, *_attributes(value).items()]
            case MethodType():
                return [("", value.__func__), ("__self__", value.__self__)]
            case partial():
                return [("", value.func), ("args", list(value.args)), ("keywords", value.keywords)]
            case ModuleType():
                self._note(path, value.__name__)
                if not _installed(value.__name__):
                    for name, part in sorted(vars(value).items()):
                        self._variable(vars(value), name, part, depth + 1)
                return []
            case _ if _wrapped(value) and type(value) is not FunctionType:
                return [("", value.__wrapped__)]
        self._note(path, name_of(value))
        if type(value) is FunctionType:
            self._function(value.__qualname__, value, depth, path)
            return []
        if not inspect.isroutine(value):
            self._class(value if isinstance(value, type) else type(value), depth)
            return [] if isinstance(value, type) else self._state(path, value)
        owner = getattr(value, "__self__", None)  # as of `table.get`
        return [] if isinstance(owner, (type(None), ModuleType, type)) else [("__self__", owner)]

    def _state(self, path: str, value: Any) -> list[tuple[str, Any]]:
        """Attributes of an object, or what it is pickled by."""
        if not _installed(type(value).__module__):
            return sorted(_attributes(value).items())
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # whatever the class raises for what cannot be pickled
            self.unseen.append(f"{path} ({type(value).__name__})")
            return []
        state = (reduced,) if isinstance(reduced, str) else reduced[1:]
        return [
            (f"{number}", list(part) if number > 1 and isinstance(part, Iterable) else part)
            for number, part in enumerate(state)
            if part is not None
        ]

    def _module(self, path: str, module: nn.Module, depth: int) -> None:
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            self.weights.update(f"{_joined(path, name)};".encode())
            if tensor is not None:
                feed(self.weights, tensor)
        if isinstance(module, torch.jit.ScriptModule):
            script: Any = module._c
            texts = [getattr(module, name).code for name in script._method_names()]
            texts.append(script.dump_to_str(False, True, False))  # attributes
            self._note(
                _joined(path, "forward"),
                _short(_UNSTABLE_SCRIPT.sub("", "\n".join(texts))),
                self.code,
            )
        else:
            self._class(type(module), depth)
            for name, value in sorted(vars(module).items()):
                if name.endswith("_hooks") and "forward" in name and value:
                    # The keys are ids from a counter of the process.
                    self._value(_joined(path, name), list(value.values()), depth + 1)
                elif not (
                    name in _OF_MODULES
                    or name.startswith("_cached")
                    or type(value).__module__ == "torch_geometric.inspector"
                ):
                    self._value(_joined(path, name), value, depth + 1)
        for name, child in module._modules.items():
            if child is None:
                self._note(_joined(path, name), "None")
            else:  # no depth limit for submodules
                self._seen[id(child)] = child, _joined(path, name)
                self._module(_joined(path, name), child, depth)

    def _class(self, kind: type, depth: int) -> None:
        for base in kind.__mro__:
            if base in self._classes or base is nn.Module or base.__module__ == "builtins":
                continue
            self._classes.add(base)
            installed, texts = _installed(base.__module__), list[str]()
            for name, value in sorted(vars(base).items()):
                if _is_generated(name, value):
                    continue
                label, function = f"{base.__qualname__}.{name}", _code(value)
                if function and installed:
                    texts.append(_digest(function))
                    self._globals(label, function, depth)
                elif function:
                    self._function(label, function, depth)
                elif name.startswith("__"):  # caches of Python (`__slotnames__` of `copyreg`)
                    continue
                elif not installed:
                    self._value(label, value, depth + 1)
                elif _plain_inside(value):
                    texts.append(f"{name}={stable_repr(value)}")
            if installed:
                self._note(base.__qualname__, _short(*texts), self.code)

    def _function(self, name: str, function: FunctionType, depth: int, path: str = "") -> None:
        """Collect a function's code, closure, defaults, and the globals that it uses."""
        # A decorated function and the wrapper have the same name: both count.
        self._note(name, _digest(function), self.code)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        values = {
            variable: cell.cell_contents
            for variable, cell in cells
            if cell != CellType()  # set already
        }
        values |= {f"default{at}": value for at, value in enumerate(function.__defaults__ or ())}
        for variable, value in (values | (function.__kwdefaults__ or {})).items():
            self._value(f"{path or name}.{variable}", value, depth + 1)
        self._globals(name, function, depth)

    def _globals(self, name: str, function: FunctionType, depth: int) -> None:
        """Collect the globals that a function reads; of an installed one only users' functions."""
        read, named, constants = _names(function.__code__)
        library = _installed(function.__module__)
        if not library and "open" in read and "open" not in function.__globals__:
            self.unseen.append(f"{name} (reads or writes a file)")
        if not library and named & {"environ", "getenv"}:
            for variable in sorted(constants & os.environ.keys()):
                self._note(f"environment.{variable}", repr(os.environ[variable]))
        used = _used(function.__globals__, sorted(read), sorted(named), levels=3)
        for namespace, variable, value in used:
            if variable in namespace:
                self._variable(namespace, variable, value, depth + 1)

    def _variable(self, namespace: Mapping[str, Any], name: str, value: Any, depth: int) -> None:
        """Collect a variable of a module; of libraries only functions of users that are there."""
        module = namespace.get("__name__")
        library, label = _installed(module), f"{module}.{name}"
        if name.startswith("__"):
            return
        if not isinstance(value, _NAMED) or not _installed(value.__module__):
            if not library or type(value) is FunctionType:
                self._value(label, value, depth)
        elif not library:
            self._note(label, f"{value.__module__}.{name_of(value)}")


def stable_repr(value: Any, depth: int = 0) -> str:  # noqa: PLR0911  (one return per type of value)
    """A repr that is the same in every process: without addresses, tensors by hash."""
    within = partial(stable_repr, depth=depth + 1)
    match value:
        case _ if isinstance(value, _PLAIN):
            return repr(value)
        case Tensor():
            digest = hashlib.sha256()
            feed(digest, value)
            return f"tensor{list(value.shape)}#{digest.hexdigest()[:12]}"
        case np.ndarray() if value.dtype == object:
            return stable_repr(value.tolist(), depth)
        case np.ndarray():
            content = f"{value.dtype}".encode() + np.ascontiguousarray(value).tobytes()
            return f"array{list(value.shape)}#{hashlib.sha256(content).hexdigest()[:12]}"
        case _ if depth > _DEEPEST:
            return type(value).__name__
        case type():
            return value.__qualname__
        case list() | tuple():
            return f"[{', '.join(map(within, value))}]"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(within, value)))}}}"
        case _ if isinstance(value, (nn.Module, partial)) or inspect.isroutine(value):
            inside = Contents.of(value)
            parts = (*inside.code.items(), *inside.attributes.items(), inside.weights.hexdigest())
            return f"{name_of(value)}#{_short(*map(repr, parts))}"
        case Mapping():
            items = sorted((within(key), item) for key, item in value.items())
        case _ if is_dataclass(value):
            items = [(item.name, getattr(value, item.name)) for item in fields(value)]
        case _:
            items = sorted(_attributes(value).items())
    return f"{name_of(value)}({', '.join(f'{key}={within(item)}' for key, item in items)})"


def name_of(value: Any) -> str:
    """The name of a function or class, or of the class of anything else."""
    return value.__qualname__ if hasattr(value, "__qualname__") else type(value).__name__


def feed(digest: Any, values: Tensor) -> None:
    """Add dtype, shape and values of a tensor of any layout to a hash."""
    if nn.parameter.is_lazy(values):
        digest.update(b"lazy;")
        return
    tensor: Any = values.detach()
    digest.update(f"{tensor.dtype}{'nested' if tensor.is_nested else [*tensor.shape]};".encode())
    if tensor.is_meta:
        digest.update(b"meta")
    elif tensor.is_quantized:
        feed(digest, tensor.int_repr())
        feed(digest, tensor.dequantize())
    elif tensor.is_nested or tensor.layout != torch.strided:
        for part in tree_leaves(tensor.__reduce_ex__(4)[1]):
            feed(digest, part) if isinstance(part, Tensor) else digest.update(repr(part).encode())
    else:
        # Of rows that are one row in memory only that one is read.
        narrow = tensor[tuple(slice(1) if step == 0 else slice(None) for step in tensor.stride())]
        # As bytes, because numpy has no bfloat16.
        dense = narrow.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        digest.update(dense.view(torch.uint8).numpy().data)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _attributes(value: Any) -> dict[str, Any]:
    attributes = {**vars(value)} if hasattr(value, "__dict__") else {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(name, str) and hasattr(value, name):
                attributes.setdefault(name, getattr(value, name))
    return {name: item for name, item in attributes.items() if not name.startswith("__")}


def _plain_inside(value: Any, depth: int = 0) -> bool:
    """Whether a value, or everything in nested containers, has a text of its own."""
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):  # which may contain itself
        return depth <= _DEEPEST and all(_plain_inside(item, depth + 1) for item in value)
    return isinstance(value, (*_PLAIN, Tensor, np.ndarray))


def _code(value: Any) -> FunctionType | None:
    """The function of a class attribute (a method, a property, ...), or None."""
    match value:
        case staticmethod() | classmethod():
            value = value.__func__
        case property():
            value = value.fget
        case cached_property():
            value = value.func
    if _wrapped(value) and type(value) is not FunctionType:
        value = value.__wrapped__
    return value if type(value) is FunctionType else None


def _is_generated(name: str, value: Any) -> bool:
    """Whether this is a cache of `abc`, or PyG wrote it when the first layer of a class was made.

    It is a function of the class's own code, and missing where a layer was only unpickled.
    """
    module = str(value.__module__) if hasattr(value, "__module__") else ""
    by_template = module.endswith(("_propagate", "_edge_updater"))
    return name.startswith(("_jinja_", "_orig_", "_abc_impl")) or by_template


def _wrapped(value: Any) -> bool:
    return hasattr(value, "__wrapped__") and type(value.__wrapped__) is FunctionType


def _installed(module: str | None) -> bool:
    """Whether a module is part of Python or of an installed package (identified by version)."""
    module = module or ""
    if module.partition(".")[0] in ("builtins", "graphsvx", "graphsvx_lab", "__main__"):
        return module != "__main__"
    file = vars(sys.modules[module]).get("__file__") if module in sys.modules else None
    return module in sys.builtin_module_names or (file or "").startswith(_LIBRARIES)


def _digest(function: FunctionType) -> str:
    return _short(_instructions(function.__code__, function.__doc__))


def _instructions(code: CodeType, doc: str | None = None) -> str:
    """Bytecode, names and constants of a code object, nested functions included."""
    constants = [
        _instructions(constant) if type(constant) is CodeType else stable_repr(constant)
        for constant in code.co_consts
        if constant is not doc or doc is None
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))


_READING = ("LOAD_GLOBAL", "LOAD_NAME")


@lru_cache(maxsize=1 << 12)
def _names(code: CodeType) -> tuple[set[str], set[str], set[str]]:
    """Globals read by a code object, all names and the texts in it, nested functions included."""
    # co_names has the names of attributes too.
    read = {item.argval for item in get_instructions(code) if item.opname in _READING}
    named, texts = set(code.co_names), {text for text in code.co_consts if isinstance(text, str)}
    for constant in code.co_consts:
        if type(constant) is CodeType:
            for names, inside in zip((read, named, texts), _names(constant), strict=True):
                names.update(inside)
    return read, named, texts


def _used(
    scope: Mapping[str, Any], read: Iterable[str], named: Iterable[str], levels: int
) -> Iterator[tuple[Mapping[str, Any], str, Any]]:
    """Variables that code reads, and `named` attributes of the modules among them."""
    for name in read:
        value = scope.get(name)  # None: not yet there
        if not isinstance(value, ModuleType):
            yield scope, name, value
        elif levels:
            inside = [part for part in named if part in vars(value)]
            yield from _used(vars(value), inside, named, levels - 1)


def _short(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


_UNWATCHED = ("torch.", "numpy.", "scipy.", "builtins", "typing", "abc")
_DEEP = 3
"""How many functions deep globals are followed: forward -> gcn_norm -> add_remaining_self_loops."""
_NUMBERS = {int, float, bool, str, type(None)}


@dataclass(frozen=True, eq=False)
class Watched:
    """Weights, layers, hooks, attributes and code of a model, by identity.

    It holds numbers, strings, classes and namespaces of code, but no module, tensor or hook, so
    that it does not keep a model alive. A function whose `__code__` is replaced in place is not
    noticed.
    """

    namespaces: Sequence[tuple[Mapping[str, Any], Iterable[str] | None]]
    """Classes (None: all of their attributes) and globals that code uses."""
    identities: list[Any]

    @staticmethod
    def of(modules: list[nn.Module]) -> Watched:
        """Those of a model, given all of its modules."""
        kinds = dict.fromkeys(
            base
            for module in modules
            for base in type(module).__mro__
            if not _unwatched(base.__module__)
        )
        functions = {
            code for kind in kinds for value in vars(kind).values() if (code := _code(value))
        }
        seen = {*functions}
        names: dict[int, tuple[Mapping[str, Any], set[str]]] = {}
        for _ in range(_DEEP):
            used: set[FunctionType] = set()
            for function in functions:
                read, named, _ = _names(function.__code__)
                for scope, name, value in _used(function.__globals__, read, named, levels=1):
                    if not _unwatched(scope.get("__name__", "")):
                        names.setdefault(id(scope), (scope, set()))[1].add(name)
                        if type(value) is FunctionType and not _unwatched(value.__module__):
                            used.add(value)
            functions = used - seen
            seen |= used
        namespaces = [*((vars(kind), None) for kind in kinds), *names.values()]
        return Watched(namespaces, _identities(modules, namespaces))

    def matches(self, modules: list[nn.Module]) -> bool:
        """Whether the model is unchanged."""
        return self.identities == _identities(modules, self.namespaces)


def _unwatched(module: str | None) -> bool:
    return module is None or f"{module}.".startswith(_UNWATCHED)


def _identities(
    modules: list[nn.Module],
    namespaces: Iterable[tuple[Mapping[str, Any], Iterable[str] | None]],
) -> list[Any]:
    parts: list[Any] = []
    for module in modules:
        attributes = vars(module)
        parts += [id(module), type(module), *attributes, *map(_identity, attributes.values())]
    for space, names in namespaces:
        parts += map(id, space.values() if names is None else map(space.get, names))
    return parts


def _identity(value: Any, depth: int = 4) -> Any:
    """A number or text itself; of tensors where they are, of containers what is in them."""
    kind = type(value)
    if kind in _NUMBERS:
        return value
    if depth and kind in (dict, OrderedDict, list, tuple):
        items = value if kind in (list, tuple) else [*value, *value.values()]
        return [_identity(item, depth - 1) for item in items]
    with suppress(RuntimeError, ValueError):  # tensors lazily made, or without storage
        if isinstance(value, Tensor):
            version = None if value.is_inference() else value._version
            return id(value), version, value.data_ptr()
    return id(value)


# Whether a tensor still holds what it held when something was cached for it.
#
# Torch counts in-place changes, but not those through `tensor.data`, through a numpy array that
# shares the memory, or of tensors made in inference mode. So a stamp holds a checksum of the
# content beside torch's version. Small tensors are read each time. Of large ones a sample is read
# each time and everything at most for a twentieth of the time: within 20 times the cost of the last
# full checksum, a change of a few numbers behind torch's back can go unnoticed.

Stamp = tuple[int, int]
"""Torch's version of a tensor and a checksum of its content."""

_SMALL_BYTES = 1 << 20
_SAMPLE = 512
_PAUSE = 20.0
"""A full checksum of a large tensor is followed by a pause of this many times its cost."""


_SEEN: Any = WeakTensorKeyDictionary()
"""Of large tensors: version and sample, the full checksum, and up to when the sample is enough."""


def stamp(tensor: Tensor) -> Stamp:
    """Changes with the content of a tensor, however it was changed (see above)."""
    version = -1 if tensor.is_inference() else tensor._version
    values = tensor.detach()
    if values.numel() * values.element_size() <= _SMALL_BYTES:
        return version, _checksum(values)
    flat = values.reshape(-1) if values.is_contiguous() else values
    step = max(1, flat.shape[0] // _SAMPLE)
    sample = _bytes_checksum(flat[::step])
    stamped, checksum, until = _SEEN.get(tensor, (None, 0, 0.0))
    start = perf_counter()
    if stamped != (version, sample) or start >= until:
        checksum = _checksum(values)
        end = perf_counter()
        _SEEN[tensor] = (version, sample), checksum, end + _PAUSE * (end - start)
    return version, checksum


def _checksum(values: Tensor) -> int:
    if values.dim() != 2 or not values.is_floating_point() or values.numel() == 0:
        return _bytes_checksum(values)
    # A random projection reads memory at full speed; changes below its rounding are too small to
    # change means and predictions.
    return _bytes_checksum(_projection(len(values), values.dtype, values.device) @ values)


@lru_cache(maxsize=8)
def _projection(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    draws = np.random.default_rng(0).random(count) + 0.5
    return torch.from_numpy(draws).to(device=device, dtype=dtype)


def _bytes_checksum(values: Tensor) -> int:
    plain = values.cpu()
    array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return zlib.crc32(np.ascontiguousarray(array).data) if array.size else 0
