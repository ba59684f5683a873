"""Explainers by name: for the command line and the web, where a choice is a string."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphsvx.errors import InputError
from graphsvx.methods import GraphSVX, Method

_METHODS: dict[str, Callable[..., Method]] = {
    "graphsvx": GraphSVX,
    "graphsvx-paper": GraphSVX.paper,
}


def names() -> tuple[str, ...]:
    """All known explainers."""
    return tuple(_METHODS)


def method(name: str, **settings: Any) -> Method:
    """The explainer of that name with these settings."""
    if name not in _METHODS:
        raise InputError(f"method must be one of {', '.join(_METHODS)}, got {name!r}")
    try:
        return _METHODS[name](**settings)
    except TypeError as error:
        wrong = ", ".join(settings)
        raise InputError(f"the method {name!r} does not take {wrong}: {error}") from error
