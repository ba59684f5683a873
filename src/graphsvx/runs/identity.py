"""What makes a run this run: hashes of the model and the graph, the settings in words."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphsvx.graph import Ids

# Other versions of these may give other bits, and half a run of each would be neither.
PACKAGES = ("graphsvx", "torch", "torch_geometric", "numpy", "scipy")
_GRAPH = ("x", "edge_index", "edge_weight", "edge_attr", "y")


def versions() -> dict[str, str]:
    """Versions of everything that results depend on."""
    return {name: metadata.version(name) for name in PACKAGES}


def of_graphs(graphs: Iterable[Any]) -> str:
    """One hash of everything in the graphs that a model or an explanation sees."""
    digest = hashlib.sha256()
    for graph in graphs:
        for name in _GRAPH:
            value = getattr(graph, name, None)
            digest.update(f"{name};".encode())
            if isinstance(value, Tensor):
                _feed(digest, value)
    return digest.hexdigest()


def of_model(model: Callable[..., Any]) -> dict[str, str]:
    """The model by name and structure, and a hash of its weights."""
    digest = hashlib.sha256()
    _feed_callable(digest, model, depth=0)
    name = type(model).__name__ if isinstance(model, nn.Module) else _name(model)
    return {"name": name, "weights": digest.hexdigest()}


def of_queries(asked: Ids) -> str:
    """A hash of what is asked."""
    return hashlib.sha256(asked.astype(np.int64).tobytes()).hexdigest()


def settings(options: Mapping[str, Any]) -> dict[str, str]:
    """Options as words, one entry a setting, so that a difference can be named.

    The fields of a record (a method, say) get an entry each: `method.samples`.
    """
    found: dict[str, str] = {}
    for name, value in sorted(options.items()):
        if is_dataclass(value) and not isinstance(value, type):
            found[name] = type(value).__name__
            for field in fields(value):
                found[f"{name}.{field.name}"] = words(getattr(value, field.name))
        else:
            found[name] = words(value)
    return found


def words(value: Any, depth: int = 0) -> str:  # noqa: PLR0911  (one line a kind of value)
    """A value in words that are the same in every process: no addresses, tensors by hash."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, Tensor):
        return f"tensor{list(value.shape)}#{_short(lambda digest: _feed(digest, value))}"
    if isinstance(value, np.ndarray):
        return words(torch.from_numpy(np.ascontiguousarray(value)), depth)
    if isinstance(value, nn.Module) or inspect.isroutine(value) or isinstance(value, partial):
        return f"{_name(value)}#{_short(lambda digest: _feed_callable(digest, value, depth))}"
    if depth > 8:
        return type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        inside = [(field.name, getattr(value, field.name)) for field in fields(value)]
    elif isinstance(value, Mapping):
        inside = sorted((repr(key), one) for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        return f"[{', '.join(words(one, depth + 1) for one in value)}]"
    elif isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(words(one, depth + 1) for one in value))}}}"
    else:
        inside = sorted(getattr(value, "__dict__", {}).items())
    return f"{_name(value)}({', '.join(f'{k}={words(v, depth + 1)}' for k, v in inside)})"


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two nested records of words, one line each."""
    found = []
    for name in sorted({*old, *new}):
        before, now = old.get(name), new.get(name)
        label = f"{prefix}{name}"
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            found += differences(before, now, f"{label} ")
        elif before != now:
            found.append(f"{label} (there: {_cut(before)}, now: {_cut(now)})")
    return found


def _cut(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:12]}…" if " " not in text else f"{text[:77]}…"


def _name(value: Any) -> str:
    return getattr(value, "__qualname__", None) or type(value).__name__


def _short(feed: Callable[[Any], None]) -> str:
    digest = hashlib.sha256()
    feed(digest)
    return str(digest.hexdigest()[:12])


def _feed(digest: Any, tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype}{list(tensor.shape)};".encode())
    plain = tensor.detach().cpu().contiguous()
    # Bytes, whatever the type: numpy has no bfloat16.
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)


def _feed_callable(digest: Any, value: Any, depth: int) -> None:
    digest.update(f"{_name(value)};".encode())
    if isinstance(value, nn.Module):
        digest.update(repr(value).encode())
        for name, tensor in (*value.named_parameters(), *value.named_buffers()):
            digest.update(f"{name};".encode())
            _feed(digest, tensor)
        return
    if isinstance(value, partial):
        inside: list[Any] = [value.func, *value.args, *sorted(value.keywords.items())]
    else:
        code = getattr(value, "__code__", None)
        if code is not None:
            digest.update(code.co_code + repr(code.co_names).encode())
            constants = [one for one in code.co_consts if not inspect.iscode(one)]
            digest.update(repr(constants).encode())
        cells = getattr(value, "__closure__", None) or ()
        inside = [getattr(value, "__self__", None), *(cell.cell_contents for cell in cells)]
    if depth <= 8:
        for one in inside:
            digest.update(words(one, depth + 1).encode())
