"""HTML report in a single file that works offline and loads no external resources."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from graphsvx.errors import InputError
from graphsvx.results.describe import describe
from graphsvx.results.explanation import Explanation
from graphsvx.utils.files import atomic_write
from graphsvx.views.html.page_data import page_data

__all__ = ["notebook", "render", "write"]

SCRIPTS = ("tools.js", "graph.js", "tables.js", "page.js")


def render(
    explanations: Explanation | Sequence[Explanation],
    title: str = "Why the model said that",
    *,
    data: Any = None,
) -> str:
    """The HTML report of one explanation, or of several with a list to select from.

    With `data` (the explained graph, with its features `x`) a click on a node also shows its
    largest features. Data is embedded as JSON without `<`, so it is never interpreted as markup or
    code, and the content security policy allows only this page's script and style (by hash) and no
    network connections.
    """
    listed = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not listed:
        raise InputError("a report needs at least one explanation, got none")
    style = _part("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_part(name) for name in SCRIPTS) + "})();\n"
    records = [page_data(explanation, data) for explanation in listed]
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )
    fields = {
        "title": markup.escape(title),
        "policy": markup.escape(policy, quote=True),
        "style": style,
        "script": script,
        "data": _safe_json({"title": title, "explanations": records}),
        "plain": "".join(_without_script(explanation) for explanation in listed),
    }
    # A single pass, so that placeholders inside inserted text are not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], _part("page.html"))


def write(
    explanations: Explanation | Sequence[Explanation],
    path: str | Path,
    title: str = "Why the model said that",
    *,
    data: Any = None,
) -> None:
    """Write the report atomically."""
    text = render(explanations, title, data=data)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def notebook(explanation: Explanation, height: int = 760) -> str:
    """The report in a sandboxed iframe for notebooks, which isolates its style and script."""
    page = markup.escape(render(explanation, explanation.title), quote=True)
    return (
        f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Explanation" '
        f'width="100%" height="{height}" style="border:0"></iframe>'
    )


def _part(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _safe_json(value: Any) -> str:
    """JSON that cannot close the enclosing HTML element: ASCII without `<`, `>` and `&`."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _without_script(explanation: Explanation) -> str:
    """Title and description for browsers without JavaScript."""
    title, description = markup.escape(explanation.title), markup.escape(describe(explanation))
    return f"<h2>{title}</h2><p>{description}</p>"
