"""Tables, plots and HTML pages of explanations.

Importing this package registers them as methods of `Explanation`: `table`, `plot`, `to_html`.
"""

from __future__ import annotations

from typing import Any

from graphsvx.results.explanation import Explanation
from graphsvx.results.view_registry import register_view
from graphsvx.views import html, terminal


def _plot(explanation: Explanation, **options: Any) -> Any:
    from graphsvx.views import plot  # noqa: PLC0415  (needs matplotlib, an extra)

    return plot.explanation(explanation, **options)


register_view("table", terminal.table)
register_view("text", terminal.text)
register_view("plot", _plot)
register_view("html", html.write)
register_view("notebook", html.notebook)
