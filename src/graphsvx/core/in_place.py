"""Calls of models that may change their inputs in place: they get copies of the user's tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

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
