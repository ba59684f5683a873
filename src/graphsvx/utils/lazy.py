"""Attributes of packages that are imported at first use, so that importing a package is fast."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` (PEP 562) of a package whose attributes come from other modules.

    modules: the module of each attribute; a module that is called like its attribute is the
    attribute itself.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return get
