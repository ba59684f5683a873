"""Optional packages: imported when first needed, asked for by name when missing."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from graphsvx.errors import MissingExtraError


def package(name: str, extra: str = "baselines", quiet: tuple[type[Warning], ...] = ()) -> Any:
    """Import an optional package, or say how to install it; `quiet`: warnings of its own making."""
    try:
        with warnings.catch_warnings():
            for kind in quiet:
                warnings.simplefilter("ignore", kind)
            return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(name.partition(".")[0], extra) from error
