"""The identity of a run: hashes of model and graph, torch's state, and the settings as text."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import platform
import re
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from dis import get_instructions
from functools import cache, cached_property, partial
from importlib import metadata
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.utils.hooks import RemovableHandle
from torch_geometric.data.data import BaseData

from graphsvx.core.arrays import Ids

__all__ = [
    "PACKAGES",
    "differing",
    "of_graphs",
    "of_inputs",
    "of_members",
    "of_model",
    "of_queries",
    "package_versions",
    "settings_as_text",
    "short_hash",
    "stable_repr",
]

# Packages whose version may change results in the last bits; a run must not mix versions.
PACKAGES = ("graphsvx", "torch", "torch_geometric", "numpy", "scipy")


_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class TorchState:
    """Default type, precision and autocast of a thread."""

    default_dtype: torch.dtype
    matmul_precision: str
    deterministic: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    """Devices on which autocast is enabled, and its type."""

    @staticmethod
    def current() -> TorchState:
        """The state of this thread."""
        return TorchState(
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            tuple(
                (device, torch.get_autocast_dtype(device))
                for device in _DEVICES
                if torch.is_autocast_enabled(device)
            ),
        )

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Work in this state, whatever that of the thread is."""
        before = TorchState.current()
        if before == self:
            yield
            return
        self._set()
        try:
            with ExitStack() as stack:
                for device, dtype in {**dict.fromkeys(_DEVICES), **dict(self.autocast)}.items():
                    stack.enter_context(torch.autocast(device, dtype, dtype is not None))
                yield
        finally:
            before._set()

    def _set(self) -> None:
        torch.set_default_dtype(self.default_dtype)
        torch.set_float32_matmul_precision(self.matmul_precision)
        torch.use_deterministic_algorithms(self.deterministic)


@cache
def _version(package: str) -> str:
    """The version of an installed package; reading it parses a file."""
    return metadata.version(package)


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    # Python compiles the code of a model to different bytecode in different versions.
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: _version(name) for name in PACKAGES}}


def short_hash(value: Any) -> str:
    """Twelve digits that name settings, the same in every process."""
    return hashlib.sha256(stable_repr(value).encode()).hexdigest()[:12]


def of_graphs(graphs: Sequence[Any]) -> dict[str, Any]:
    """SHA-256 of all attributes of the graphs; of a single graph each attribute by name too."""
    digest = hashlib.sha256()
    unseen: list[str] = []
    classes = set[type]()
    for graph in graphs:
        contents = Contents.of(graph, classes)
        digest.update(repr((contents.attributes, contents.code)).encode())
        digest.update(contents.weights.digest())
        unseen += contents.unseen
    return {
        "sha256": digest.hexdigest(),
        "graphs": len(graphs),
        "nodes": sum(int(getattr(graph, "num_nodes", None) or 0) for graph in graphs),
        "edges": sum(int(getattr(graph, "num_edges", None) or 0) for graph in graphs),
        **({"attribute": contents.attributes} if len(graphs) == 1 else {}),
        **({"unseen": unseen} if unseen else {}),
    }


def of_model(model: Callable[..., Any]) -> dict[str, Any]:
    """The model by name, code and plain attributes, and a hash of its weights."""
    contents = Contents.of(model)
    return {
        "name": type(model).__name__ if isinstance(model, nn.Module) else name_of(model),
        "code": contents.code,
        "attribute": contents.attributes,
        "weights": contents.weights.hexdigest(),
        **({"unseen": contents.unseen} if contents.unseen else {}),
    }


def of_inputs(model: Callable[..., Any], graphs: Sequence[Any]) -> dict[str, Any]:
    """Everything that outputs depend on: model, graphs, and the state of torch."""
    hooks = (*modules._global_forward_pre_hooks.values(), *modules._global_forward_hooks.values())
    return {
        "model": of_model(model),
        "graph": of_graphs(graphs),
        "torch": settings_as_text({**vars(TorchState.current()), "hooks": hooks}),
    }


def of_queries(query_ids: Ids) -> str:
    """SHA-256 of the query ids."""
    return hashlib.sha256(query_ids.astype(np.int64).tobytes()).hexdigest()


def of_members(members: Iterable[Iterable[int]]) -> str:
    """SHA-256 of the nodes of each link or group, in order."""
    text = ";".join(",".join(map(str, nodes)) for nodes in members)
    return hashlib.sha256(text.encode()).hexdigest()


def settings_as_text(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as text, one entry per setting, so that differences can be listed.

    The fields of a dataclass have an entry each: `method.budget.samples`.
    """
    described: dict[str, str] = {}
    for name, value in sorted(options.items()):
        if is_dataclass(value) and not isinstance(value, type):
            described[name] = type(value).__name__
            parts = {f"{name}.{field.name}": getattr(value, field.name) for field in fields(value)}
            described.update(settings_as_text(parts))
        else:
            described[name] = stable_repr(value)
    return described


def differing(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Differences between two nested mappings of text, one line each."""
    lines = []
    for name in sorted({*old, *new}):
        before, now = old.get(name), new.get(name)
        label = f"{prefix}{name}"
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            lines += differing(before, now, f"{label} ")
        elif before != now:
            lines.append(f"{label} (there: {_cut(before)}, now: {_cut(now)})")
    return lines


def _cut(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:12]}…" if " " not in text else f"{text[:77]}…"


# Fingerprint of models and graphs: code, attributes and tensors, the same in every process.
#
# A resumed run must use the same model and data. Comparing weights is not enough: a changed
# attribute, global variable or `forward` changes the outputs too. So everything is followed that is
# reached from a value: attributes, closures, the globals that code of the user reads. Memory
# addresses, hash seeds, line numbers, docstrings, train/eval mode and the caches of layers with
# `cached=True` are left out: they do not change the outputs. What cannot be compared between
# processes (an open file, an iterator) is listed by name in `Contents.unseen`.


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
# Class attributes that are no values: caches of `abc`, and what stands for instance attributes.
_OF_CLASSES = {"_abc_impl"}
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType)
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
        if _plain_inside(value):
            self._note(path, stable_repr(value))
            return
        if isinstance(value, _IRRELEVANT):
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
        elif isinstance(value, type):
            self._note(path, value.__qualname__)
            self._class(value, depth)
        elif isinstance(value, ModuleType):
            self._note(path, value.__name__)
            if not _installed(value.__name__):
                self._scope(path, vars(value), vars(value), depth, library=False)
        elif isinstance(value, (list, tuple, set, frozenset, Mapping)):
            self._container(path, value, depth)
        elif isinstance(value, BaseData):
            self._class(type(value), depth)
            self._container(path, value.to_dict(), depth)
        elif inspect.isroutine(value) or isinstance(value, partial) or _wrapped(value):
            self._routine(path, value, depth)
        else:
            self._object(path, value, depth)

    def _routine(self, path: str, value: Any, depth: int) -> None:
        """Collect a function, a method or a partial with its arguments."""
        owner = getattr(value, "__self__", None)
        if isinstance(value, FunctionType):
            self._note(path, value.__qualname__)
            self._function(value.__qualname__, value, depth, path)
        elif isinstance(value, MethodType):
            self._value(path, value.__func__, depth)
            self._value(_joined(path, "__self__"), owner, depth + 1)
        elif isinstance(value, partial):
            self._value(path, value.func, depth + 1)
            self._value(_joined(path, "args"), list(value.args), depth + 1)
            self._value(_joined(path, "keywords"), value.keywords, depth + 1)
        elif _wrapped(value):
            self._value(path, value.__wrapped__, depth)
        else:
            self._note(path, name_of(value))
            if owner is not None and not isinstance(owner, (ModuleType, type)):
                self._value(_joined(path, "__self__"), owner, depth + 1)  # as of `table.get`

    def _object(self, path: str, value: Any, depth: int) -> None:
        """Collect any other object: its class, and its attributes or what it is pickled by."""
        self._note(path, name_of(value))
        self._class(type(value), depth)
        if not _installed(type(value).__module__):
            state = _attributes(value)
        else:
            try:
                reduced = value.__reduce_ex__(4)
            except Exception:  # whatever the class raises for what cannot be pickled
                self.unseen.append(f"{path} ({type(value).__name__})")
                return
            parts = (reduced,) if isinstance(reduced, str) else reduced[1:]
            state = {
                f"{number}": list(part) if number > 1 and isinstance(part, Iterable) else part
                for number, part in enumerate(parts)
                if part is not None
            }
        for name, attribute in sorted(state.items()):
            self._value(_joined(path, name), attribute, depth + 1)

    def _container(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, (set, frozenset)):
            self._note(path, stable_repr(value))
            return
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in [*items, *_attributes(value).items()]:
            name = key if isinstance(key, str) else stable_repr(key)
            self._value(_joined(path, name), item, depth + 1)

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
                if name.endswith("_hooks") and "forward" in name:
                    if value:  # the keys are ids from a counter of the process
                        self._value(_joined(path, name), list(value.values()), depth + 1)
                elif name not in _OF_MODULES and not _derived(name, value):
                    self._value(_joined(path, name), value, depth + 1)
        for name, child in module._modules.items():
            if child is None:
                self._note(_joined(path, name), "None")
            else:  # no depth limit for submodules
                self._seen[id(child)] = child, _joined(path, name)
                self._module(_joined(path, name), child, depth)

    def _class(self, kind: type, depth: int) -> None:
        """Collect code and attributes of a class and of its base classes."""
        for base in kind.__mro__:
            if base in self._classes or base is nn.Module or base.__module__ == "builtins":
                continue
            self._classes.add(base)
            members = {
                name: value
                for name, value in sorted(vars(base).items())
                if name not in _OF_CLASSES
                and not isinstance(value, _DESCRIPTORS)
                and not _is_generated(name, value)
            }
            functions = {name: f for name, value in members.items() if (f := _code(value))}
            if _installed(base.__module__):
                texts = [_digest(f) for f in functions.values()]
                texts += [
                    f"{name}={stable_repr(value)}"
                    for name, value in members.items()
                    # Names with two underscores: caches of Python (`__slotnames__` of `copyreg`).
                    if not name.startswith("__") and _plain_inside(value)
                ]
                self._note(base.__qualname__, _short(*texts), self.code)
                for name, function in functions.items():
                    self._globals(f"{base.__qualname__}.{name}", function, depth)
                continue
            for name, function in functions.items():
                self._function(f"{base.__qualname__}.{name}", function, depth)
            for name, value in members.items():
                if name not in functions and not name.startswith("__"):
                    self._value(f"{base.__qualname__}.{name}", value, depth + 1)

    def _function(self, name: str, function: FunctionType, depth: int, path: str = "") -> None:
        """Collect a function's code, closure, defaults, and the globals that it uses."""
        # A decorated function and the wrapper have the same name: both count.
        self._note(name, _digest(function), self.code)
        inside = path or name
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for variable, cell in cells:
            if cell != CellType():  # set already
                self._value(f"{inside}.{variable}", cell.cell_contents, depth + 1)
        for position, value in enumerate(function.__defaults__ or ()):
            self._value(f"{inside}.default{position}", value, depth + 1)
        for variable, value in (function.__kwdefaults__ or {}).items():
            self._value(f"{inside}.{variable}", value, depth + 1)
        self._globals(name, function, depth)

    def _globals(self, name: str, function: FunctionType, depth: int) -> None:
        """Collect the globals that a function reads; of an installed one only users' functions."""
        read, named, constants = _names(function.__code__)
        library, scope = _installed(function.__module__), function.__globals__
        if not library and "open" in read and "open" not in scope:
            self.unseen.append(f"{name} (reads or writes a file)")
        if not library and named & {"environ", "getenv"}:
            for variable in sorted(constants & os.environ.keys()):
                self._note(f"environment.{variable}", repr(os.environ[variable]))
        variables = {variable: scope[variable] for variable in read if variable in scope}
        self._scope(function.__module__, variables, named, depth, library)

    def _scope(
        self,
        path: str,
        scope: Mapping[str, Any],
        named: Iterable[str],
        depth: int,
        library: bool,
        levels: int = 3,
    ) -> None:
        """Collect variables of a module, and `named` attributes of modules among them.

        Of a module of a library only functions of users are collected, which were put there.
        """
        for variable, value in sorted(scope.items()):
            label = f"{path}.{variable}"
            if variable.startswith("__"):
                continue
            if isinstance(value, ModuleType):
                inside = {name: vars(value)[name] for name in named if name in vars(value)}
                if levels:
                    of_library = _installed(value.__name__)
                    self._scope(value.__name__, inside, named, depth + 1, of_library, levels - 1)
            elif _is_named(value) and _installed(value.__module__):
                if not library:
                    self._note(label, f"{value.__module__}.{name_of(value)}")
            elif not library or isinstance(value, FunctionType):
                self._value(label, value, depth + 1)


def stable_repr(value: Any, depth: int = 0) -> str:  # noqa: PLR0911  (one return per type of value)
    """A repr that is the same in every process: without addresses, tensors by hash."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        digest = hashlib.sha256()
        feed(digest, value)
        return f"tensor{list(value.shape)}#{digest.hexdigest()[:12]}"
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return stable_repr(value.tolist(), depth)
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
        items = sorted((stable_repr(key, depth + 1), item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        return f"[{', '.join(stable_repr(item, depth + 1) for item in value)}]"
    elif isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(stable_repr(item, depth + 1) for item in value))}}}"
    else:
        items = sorted(_attributes(value).items())
    return f"{name_of(value)}({', '.join(f'{k}={stable_repr(v, depth + 1)}' for k, v in items)})"


def name_of(value: Any) -> str:
    """The name of a function or class, or of the class of anything else."""
    return getattr(value, "__qualname__", None) or type(value).__name__


def feed(digest: Any, tensor: Tensor) -> None:
    """Add dtype, shape and values of a tensor to a hash."""
    if nn.parameter.is_lazy(tensor):
        digest.update(b"lazy;")
        return
    shape = "nested" if tensor.is_nested else list(tensor.shape)
    digest.update(f"{tensor.dtype}{shape};".encode())
    for part in _parts(tensor.detach()):
        if isinstance(part, str):
            digest.update(part.encode())
            continue
        # Of rows that are one row in memory only that one is read.
        narrow = part[tuple(slice(1) if step == 0 else slice(None) for step in part.stride())]
        # As bytes, because numpy has no bfloat16.
        dense = narrow.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        digest.update(dense.view(torch.uint8).numpy().data)


def _parts(tensor: Tensor) -> list[Any]:  # noqa: PLR0911  (one return per kind of tensor)
    """Dense tensors, and text, that a tensor of any layout consists of."""
    if tensor.is_meta:
        return ["meta"]
    if tensor.is_nested:
        return [part for inner in tensor.unbind() for part in (f"{list(inner.shape)}", inner)]
    if tensor.is_quantized:
        scales = (
            [str(tensor.q_scale()), str(tensor.q_zero_point())]
            if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
            else [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
        )
        return [tensor.int_repr(), *scales]
    match tensor.layout:
        case torch.strided:
            return [tensor]
        case torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        case torch.sparse_csr | torch.sparse_bsr:
            return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        case torch.sparse_csc | torch.sparse_bsc:
            return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
        case _:
            return [tensor.to_dense()]


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


def _is_generated(name: str, value: Any) -> bool:
    """Whether PyG wrote this member of a layer's class when the first layer of it was made.

    It is a function of the class's own code, and missing where a layer was only unpickled.
    """
    module = getattr(value, "__module__", None) or ""
    by_template = module.endswith(("_propagate", "_edge_updater"))
    return name.startswith(("_jinja_", "_orig_")) or by_template


def _wrapped(value: Any) -> bool:
    """Whether a value wraps a function, as `lru_cache` does."""
    return isinstance(getattr(value, "__wrapped__", None), FunctionType)


def _is_named(value: Any) -> bool:
    """Whether a value is identified by its module and name: a function or a class."""
    return isinstance(value, (FunctionType, BuiltinFunctionType, type))


def _installed(module: str | None) -> bool:
    """Whether a module is part of Python or of an installed package (identified by version)."""
    module = module or ""
    if module.partition(".")[0] in ("builtins", "graphsvx", "graphsvx_lab", "__main__"):
        return module != "__main__"
    file = getattr(sys.modules.get(module), "__file__", None)
    return module in sys.builtin_module_names or (file or "").startswith(_LIBRARIES)


def _digest(function: FunctionType) -> str:
    return _short(_instructions(function.__code__, function.__doc__))


def _instructions(code: CodeType, doc: str | None = None) -> str:
    """Bytecode, names and constants of a code object, nested functions included."""
    constants = [
        _instructions(constant) if isinstance(constant, CodeType) else stable_repr(constant)
        for constant in code.co_consts
        if constant is not doc or doc is None
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))


def _names(code: CodeType) -> tuple[set[str], set[str], set[str]]:
    """Globals read by a code object, all names and the texts in it, nested functions included."""
    # co_names has the names of attributes too.
    read = {item.argval for item in get_instructions(code) if item.opname == "LOAD_GLOBAL"}
    named, texts = set(code.co_names), {text for text in code.co_consts if isinstance(text, str)}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            for names, inside in zip((read, named, texts), _names(constant), strict=True):
                names.update(inside)
    return read, named, texts


def _short(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
