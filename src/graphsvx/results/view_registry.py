"""Views of explanations (tables, plots, pages), registered by `graphsvx.views`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal

_VIEWS: dict[str, Callable[..., Any]] = {}


def register_view(
    name: Literal["table", "text", "plot", "html", "notebook"], view: Callable[..., Any]
) -> None:
    """Provide one of the views that `Explanation` has as methods.

    Views are built on explanations, so `graphsvx.views` registers its functions here; it is
    imported when the first of them is used.
    """
    _VIEWS[name] = view


def registered_view(name: str) -> Callable[..., Any]:
    """The view of that name: a function of an explanation, or of a list of them."""
    if name not in _VIEWS:
        importlib.import_module("graphsvx.views")
    return _VIEWS[name]
