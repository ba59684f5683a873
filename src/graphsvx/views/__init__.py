"""Tables, plots and HTML pages of explanations, which `Explanation` has as methods."""

from __future__ import annotations

from typing import Any

from graphsvx.results.explanation import Explanation
from graphsvx.views.html import notebook, write
from graphsvx.views.terminal import printed, table

__all__ = ["notebook", "plotted", "printed", "table", "write"]


def plotted(explanation: Explanation, **options: Any) -> Any:
    """Draw an explanation with matplotlib, an extra."""
    from graphsvx.views import plot  # noqa: PLC0415  (needs matplotlib, an extra)

    return plot.explanation(explanation, **options)
