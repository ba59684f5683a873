"""Optional dependencies, imported when first needed."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from graphsvx.errors import MissingExtraError


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
    except ModuleNotFoundError as error:
        raise MissingExtraError(top, extra, None if error.name == top else error) from error
    except Exception as error:
        raise MissingExtraError(top, extra, error) from error
