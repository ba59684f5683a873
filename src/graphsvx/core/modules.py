"""Models while they are called: their modules, eval mode, and inputs that they change in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from graphsvx.utils.exclusive import exclusive, taking_back


def modules(module: object) -> list[nn.Module]:
    """A module and all its submodules, each once; empty for anything that is not a module."""
    return [*module.modules()] if isinstance(module, nn.Module) else []


@contextmanager
def evaluation_mode(modules: list[nn.Module]) -> Iterator[None]:
    """Context manager: eval mode without gradients; restores all modules on exit.

    Only one thread can hold it at a time. Restored: each submodule's train/eval mode and
    `compile()`, gradient mode, torch's random state and number of threads (one in between:
    another number would round differently), and what layers with `cached=True` have cached for
    the user's graph, which must not be used for perturbed graphs.
    """
    with exclusive():
        training = [module for module in modules if module.training]
        compiled = [m for m in modules if m._compiled_call_impl is not None]
        caching = [m for m in modules if m.__dict__.get("cached") is True]
        states = [{n: v for n, v in vars(m).items() if n.startswith("_cached")} for m in caching]
        compilations = [module._compiled_call_impl for module in compiled]
        state = torch.get_rng_state()

        def restore() -> None:
            for module, memory in zip(caching, states, strict=True):
                vars(module).update(memory, cached=True)
            for module in training:
                module.training = True
            for module, call in zip(compiled, compilations, strict=True):
                module._compiled_call_impl = call
            torch.set_rng_state(state)

        with taking_back(restore):
            for module in training:
                module.training = False
            for module in compiled:  # it would be compiled again for each size of a batch
                module._compiled_call_impl = None
            for module, memory in zip(caching, states, strict=True):
                vars(module).update(dict.fromkeys(memory), cached=False)
            yield


_WRITES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Whether a model changed an input in its first call, which got copies."""


def call_without_writing(
    model: Callable[..., Any], run: Callable[[dict[str, Any]], Any], inputs: dict[str, Any]
) -> Any:
    """`run(inputs)`, with copies in the first call of a model and wherever that changed them."""
    try:
        writes = _WRITES.get(model)
    except TypeError:  # a callable without weak references or hash
        writes = None
    if writes is False:
        return run(inputs)
    copies = {name: _copied(value) for name, value in inputs.items()}
    versions = [(value, value._version) for value in _tensors(copies) if _is_plain(value)]
    out = run(copies)
    if writes is None:
        changed = any(value._version != version for value, version in versions)
        with suppress(TypeError):
            _WRITES[model] = changed
    return out


def _is_plain(value: Any) -> bool:
    return type(value) is Tensor and not value.is_inference()


def _tensors(inputs: Mapping[Any, Any]) -> Iterator[Any]:
    """All values; of dictionaries by node or edge type, theirs."""
    for value in inputs.values():
        yield from value.values() if isinstance(value, Mapping) else (value,)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(part) for name, part in value.items()}
    return value.clone() if _is_plain(value) else value
