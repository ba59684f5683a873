"""The identity of a run: hashes of model and graph, torch's state, and the settings as text."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as modules

from graphsvx.core.arrays import Ids
from graphsvx.core.fingerprints import Contents, name_of, stable_repr

# Packages whose version may change results in the last bits; a run must not mix versions.
PACKAGES = ("graphsvx", "torch", "torch_geometric", "numpy", "scipy")
_DEVICES = ("cpu", "cuda")


class TorchState(NamedTuple):
    """Default type, precision and autocast of a thread."""

    default_dtype: torch.dtype
    matmul_precision: str
    deterministic: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    """Devices on which autocast is enabled, and its type."""

    @staticmethod
    def current() -> TorchState:
        """The state of this thread."""
        devices = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
        return TorchState(
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
            tuple((device, torch.get_autocast_dtype(device)) for device in devices),
        )

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Work in this state, whatever that of the thread is."""
        before = TorchState.current()
        with ExitStack() as stack:
            if before != self:
                stack.callback(before._set)
                self._set()
                for device, dtype in {**dict.fromkeys(_DEVICES), **dict(self.autocast)}.items():
                    stack.enter_context(torch.autocast(device, dtype, dtype is not None))
            yield

    def _set(self) -> None:
        torch.set_default_dtype(self.default_dtype)
        torch.set_float32_matmul_precision(self.matmul_precision)
        torch.use_deterministic_algorithms(self.deterministic)


@cache
def package_versions() -> Mapping[str, str]:
    """Versions of Python and of the packages that results depend on; to read them parses files."""
    # Python compiles the code of a model to different bytecode in different versions.
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, **{name: metadata.version(name) for name in PACKAGES}}


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
    counts = {
        name: sum(int(getattr(graph, f"num_{name}", None) or 0) for graph in graphs)
        for name in ("nodes", "edges")
    }
    return {
        "sha256": digest.hexdigest(),
        "graphs": len(graphs),
        **counts,
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
        "torch": settings_as_text({**TorchState.current()._asdict(), "hooks": hooks}),
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
