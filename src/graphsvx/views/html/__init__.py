"""A report in one file: opens offline in any browser, loads nothing, runs nothing foreign."""

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
    """The report as text: one explanation, or several with a list to choose from.

    With `data` (the graph that was explained, with its features `x`) a click on a node also shows
    its largest features. Whatever comes from data is text in the page, never markup or code: it
    is embedded as JSON without `<`, and a content security policy allows this page's own script
    and style only, by their hashes, and no connection to anywhere.
    """
    several = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not several:
        raise InputError("a report needs at least one explanation, got none")
    style = _part("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_part(name) for name in SCRIPTS) + "})();\n"
    records = [page_data(explanation, data) for explanation in several]
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )
    words = {
        "title": markup.escape(title),
        "policy": markup.escape(policy, quote=True),
        "style": style,
        "script": script,
        "data": _safe_json({"title": title, "explanations": records}),
        "plain": "".join(_plainly(explanation) for explanation in several),
    }
    # One pass: text that came in is never looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: words[match[1]], _part("page.html"))


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
    """The report in a frame of its own, for notebooks: its style and script stay inside."""
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
    """JSON that cannot end the element it stands in: ASCII only, and no `<`, `>` or `&`."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plainly(explanation: Explanation) -> str:
    title, words = markup.escape(explanation.title), markup.escape(describe(explanation))
    return f"<h2>{title}</h2><p>{words}</p>"
