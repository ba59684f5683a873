"""Signatures show types without what `Annotated` adds to them: `int | None`, not also its limits.

To stand before `sphinx.ext.autodoc` among the extensions, which imports a function replaced here.
"""

from __future__ import annotations

import ast
import re
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import sphinx.util.inspect
import sphinx.util.typing
from sphinx.application import Sphinx


def without_extras(get_type_hints: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """`get_type_hints` that leaves out what `Annotated` adds, whatever is asked."""

    def hints(subject: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        options["include_extras"] = False
        try:
            return get_type_hints(subject, *arguments, **options)
        except (
            NameError
        ):  # an inherited dataclass's fields, in the module of the class that inherits
            owner = getattr(sys.modules[subject.__module__], subject.__qualname__.split(".")[0])
            names = [vars(sys.modules[base.__module__]) for base in owner.__mro__]
            return get_type_hints(subject, dict(ChainMap(*names)), **options)

    return hints


def short_names(*event: Any) -> tuple[str, str | None] | None:
    """The last names of types in a signature that is not Python's (defaults such as `<object>`).

    Sphinx shows such a signature as it is, with the `~` that stands for "the last name only".
    """
    arguments, returned = event[-2:]
    try:
        ast.parse(f"def signature{arguments or '()'}: ...")
    except SyntaxError:
        return re.sub(r"~(?:\w+\.)*", "", arguments), returned
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """In Sphinx alone: the library reads the limits at run time, in this process too."""
    app.connect(
        "config-inited", lambda app, _: app.connect("autodoc-process-signature", short_names)
    )
    plain = types.SimpleNamespace(**vars(typing))
    plain.get_type_hints = without_extras(typing.get_type_hints)
    sphinx.util.inspect.typing = plain  # type: ignore[assignment]  # has what Sphinx uses of it
    sphinx.util.typing.get_type_hints = without_extras(sphinx.util.typing.get_type_hints)
    return {"parallel_read_safe": True}
