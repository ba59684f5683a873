"""HTML report in a single file that works offline and loads no external resources."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import re
import zlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from graphsvx.errors import InputError
from graphsvx.results.describe import describe
from graphsvx.results.explanation import Explanation
from graphsvx.utils.files import atomic_write
from graphsvx.views.html.page_data import FEW_ROWS, page_data, plan_of

__all__ = ["notebook", "render", "write"]

MANY = 24
"""Pages of more explanations are compressed and have shorter tables."""
SCRIPTS = ("tools.js", "graph.js", "tables.js", "page.js")


def render(
    explanations: Explanation | Sequence[Explanation],
    title: str = "Why the model said that",
    *,
    data: Any = None,
    embedded: bool = False,
) -> str:
    """The HTML report of one explanation, or of several with a list and a search box.

    With `data` (the explained graph, with its features `x`) a click on a node also shows its
    largest features. Data is embedded as JSON without `<`, so it is never interpreted as markup or
    code, and the content security policy allows only this page's script and style (by hash) and no
    network connections. The data of many explanations is compressed. `embedded`: for a frame
    in a notebook, without a heading of its own.
    """
    listed = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not listed:
        raise InputError("a report needs at least one explanation, got none")
    style = _part("page.css")
    scripts = "\n".join(map(_script, SCRIPTS))
    script = "(async () => {\n'use strict';\n" + scripts + "})();\n"
    many = len(listed) > MANY
    records = [
        page_data(explanation, data, plan_of(explanation, starts=1), FEW_ROWS)
        if many
        else page_data(explanation, data)
        for explanation in listed
    ]
    text = _safe_json({"title": title, "explanations": records})
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"img-src data:; base-uri 'none'; form-action 'none'"
    )
    fields = {
        "title": markup.escape(title),
        "policy": markup.escape(policy, quote=True),
        "style": style,
        "script": script,
        "body": "embedded" if embedded else "page",
        "type": "text/plain" if many else "application/json",
        "data": _compressed(text) if many else text,
        "plain": "".join(_without_script(explanation) for explanation in listed[:MANY]),
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


def notebook(explanations: Explanation | Sequence[Explanation], height: int = 760) -> str:
    """The report in a sandboxed iframe for notebooks, which isolates its style and script.

    The page tells its height to the notebook, whose frame then fits; where notebooks run no
    scripts, the frame has `height` pixels and scrolls.
    """
    page = render(explanations, embedded=True)
    name = "graphsvx-" + hashlib.sha256(page.encode("utf-8")).hexdigest()[:16]
    return (
        f'<iframe class="{name}" srcdoc="{markup.escape(page, quote=True)}" '
        f'sandbox="allow-scripts" title="Explanation" width="100%" height="{height}" '
        f'style="border:0"></iframe>'
        f"<script>{FIT.replace('NAME', name)}</script>"
    )


FIT = """
window.addEventListener('message', (event) => {
  const tall = event.data && event.data.graphsvxHeight;
  if (!Number.isFinite(tall)) return;
  document.querySelectorAll('iframe.NAME').forEach((frame) => {
    if (frame.contentWindow === event.source) frame.style.height = Math.min(tall, 6000) + 'px';
  });
});
"""
"""Script of the notebook: the frame becomes as tall as its page says."""


def _compressed(text: str) -> str:
    """Text as base64 of its zlib compression, which browsers can undo themselves."""
    return base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")


def _part(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    """A module without its imports and exports, to be joined with the others in one scope."""
    return re.sub(r"^(import .*\n|export )", "", _part(name), flags=re.MULTILINE)


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
