"""Imports at first use: attributes of packages, and optional dependencies."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from graphsvx.errors import MissingExtraError


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` (PEP 562) of a package whose attributes come from other modules.

    modules: the module of each attribute; a module that is called like its attribute is the
    attribute itself.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        value = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        vars(sys.modules[package])[name] = value  # so that this is not asked again
        return value

    return get


def require_extra(
    name: str, extra: str = "baselines", quiet: tuple[type[Warning], ...] = ()
) -> Any:
    """Import an optional package; `MissingExtraError` names the extra to install if that fails.

    quiet: warning classes to ignore during the import. An installed package may also fail to
    import, because of another package's version (`ImportError`, `ValueError`, ...) or a module
    that its own version lacks.
    """
    top = name.partition(".")[0]
    try:
        with warnings.catch_warnings():
            for kind in quiet:
                warnings.simplefilter("ignore", kind)
            return importlib.import_module(name)
    except Exception as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == top
        raise MissingExtraError(top, extra, None if is_absent else error) from error
