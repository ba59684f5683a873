"""Matplotlib plots of explanations (needs the `plot` extra).

Every function draws on the given `ax`, or on a new one, and returns it. The global random state
is neither read nor changed; the same seed gives the same plot.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from graphsvx.utils.imports import require_extra

require_extra("matplotlib", "plot")

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from graphsvx.errors import InputError
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Range, checked
from graphsvx.utils.files import as_path, atomic_write
from graphsvx.views.plot import canvas
from graphsvx.views.plot.charts import (
    bars,
    cell_heatmap,
    interaction_heatmap,
    network,
    waterfall,
)
from graphsvx.views.plot.graph import graph
from graphsvx.views.plot.many import beeswarm, convergence, heatmap, noise_kde, share

__all__ = [
    "bars",
    "beeswarm",
    "cell_heatmap",
    "convergence",
    "explanation",
    "figure",
    "graph",
    "heatmap",
    "interaction_heatmap",
    "network",
    "noise_kde",
    "save",
    "share",
    "waterfall",
]

SUFFIXES = (".png", ".svg", ".pdf")
KINDS: dict[str, Callable[..., Axes]] = {
    "graph": graph,
    "bars": bars,
    "waterfall": waterfall,
    "heatmap": interaction_heatmap,
    "network": network,
    "cells": cell_heatmap,
}


@canvas.plot(kind="of the plot.", options="of that plot.")
def explanation(
    explanation: Explanation, ax: canvas.GivenAxes = None, kind: str | None = None, **options: Any
) -> Axes:
    """Plot an explanation; by default its cells, its graph if nodes or edges play, or bars.

    `kind` is "graph", "bars" or "waterfall"; of interactions "heatmap" or "network"; of
    `players="cells"` "cells". `options` go to `plot.graph`, `plot.bars` and so on.

    Raises:
        InputError: `kind` is unknown.

    """
    if kind is None:
        kind = "graph" if has_graph(explanation) else "bars"
        kind = "cells" if explanation.cells is not None and explanation.cells.nodes else kind
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind](explanation, ax=ax, **options)


def has_graph(explanation: Explanation) -> bool:
    """Whether nodes or edges are players and the receptive field has more than one node."""
    players = explanation.node_credit.players + explanation.edge_credit.players
    return players > 0 and explanation.field.ids.numel() > 1


@canvas.plot("A matplotlib figure.", rows="number of bars.", options="of `plot.graph`.")
def figure(explanation: Explanation, *, rows: canvas.Top = 10, **options: Any) -> Figure:
    """A figure with the graph and the bars side by side, or the bars if there is no graph.

    The figure is not registered with pyplot.
    """
    shows_graph = has_graph(explanation)
    fig = Figure(figsize=(9.2, 4.0) if shows_graph else (5.4, 3.4), layout="constrained")
    FigureCanvasAgg(fig)
    if not shows_graph:
        bars(explanation, fig.add_subplot(), top=rows)
        return fig
    graph_ax, bars_ax = fig.subplots(1, 2, width_ratios=(1.45, 1), gridspec_kw={"wspace": 0.06})
    graph(explanation, graph_ax, **options)
    bars(explanation, bars_ax, top=rows, title=False)
    # The extent of the graph's axes is known only after a first layout, and settles in a second.
    for _ in range(2):
        fig.draw_without_rendering()
    return fig


def save(
    explanation: Explanation, path: str | Path, *, dpi: int = 200, rows: int = 10, **options: Any
) -> None:
    """Write the figure as .png, .svg or .pdf, by the path's suffix, atomically.

    The same explanation gives the same bytes: no dates, fixed ids.

    Args:
        explanation: what is shown.
        path: of the file.
        dpi: dots per inch of a .png.
        rows: number of bars.
        options: of `plot.graph`.

    Raises:
        InputError: the path does not end in .png, .svg or .pdf.

    """
    path, dpi = as_path(path), checked(dpi, Annotated[int, Range(1, 10_000)], "dpi")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"pictures can be written as {', '.join(SUFFIXES)}, got {path.suffix or 'no suffix'!r} "
            f"in {path.name!r}; give the file one of these endings"
        )
    stamp = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
    # Text instead of outlines in vector files: searchable, selectable, accessible.
    with (
        rc_context({"svg.hashsalt": "graphsvx", "svg.fonttype": "none", "pdf.fonttype": 42}),
        atomic_write(path) as part,
    ):
        fig = figure(explanation, rows=rows, **options)
        fig.savefig(part, dpi=dpi, format=path.suffix.lower()[1:], metadata=stamp)
