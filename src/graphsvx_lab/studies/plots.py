"""Pictures of the studies: dots with intervals, curves with bands, panels of noise densities."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from graphsvx.views.plot import canvas, noise_kde
from graphsvx.views.plot.many import INKS, STYLES

SMALLEST = 1e-4
"""Lower end of logarithmic axes of `dots` and `curves`; smaller values are drawn there."""
Band = tuple[float, float, float]
"""A value and the lower and upper end of its interval."""


def dots(
    lines: Mapping[str, Mapping[str, Mapping[str, Band]]],
    paper: Mapping[tuple[str, str, str], float] | None = None,
    log: Collection[str] = (),
) -> Figure:
    """A row of panels for each measure; each panel has a dot with its interval for each row.

    Args:
        lines: figures by measure, panel (a data set, say) and row (a method, say).
        paper: figures to compare with, by the same three, as diamonds.
        log: measures on a logarithmic axis.

    """
    rows = list(
        dict.fromkeys(r for line in lines.values() for panel in line.values() for r in panel)
    )
    figure, axes = _panels(lines, 1.8, 0.22 * len(rows) + 0.75, sharey=True, sharex="row")
    for (measure, name), (ax, panel) in axes.items():
        least = SMALLEST if measure in log else -np.inf
        for y, row in enumerate(reversed(rows)):
            colour = INKS[(len(rows) - 1 - y) % len(INKS)]
            if row in panel:
                middle, *ends = np.maximum(panel[row], least)
                ax.plot(ends, [y, y], color=colour, lw=1.6)
                ax.plot(middle, y, "o", color=colour, ms=5)
            if paper and (measure, name, row) in paper:
                ax.plot(paper[measure, name, row], y, "D", mfc="none", mec=INKS[7], ms=6)
        canvas.axes(ax, grid="x")
        canvas.tick_names(ax, rows[::-1], most=1000)
        ax.set_ylim(-0.6, len(rows) - 0.4)
        ax.set(xscale="log" if measure in log else "linear")
        canvas.axis_label(ax, measure)
    return figure


def curves(
    lines: Mapping[str, Mapping[str, Mapping[str, Mapping[float, Band]]]],
    x_label: str,
    paper: Mapping[tuple[str, str], Mapping[float, float]] | None = None,
    log: Collection[str] = (),
) -> Figure:
    """A row of panels for each measure; each panel has curves with bands for their intervals.

    Args:
        lines: points by measure, panel, name of the curve and x.
        x_label: what the x axis shows; logarithmic if it is in `log`, as measures are.
        paper: points to compare with, by measure and panel, as diamonds.
        log: axes that are logarithmic.

    """
    figure, axes = _panels(lines, 2.5, 2.2, sharex=True, sharey="row")
    for (measure, name), (ax, panel) in axes.items():
        least = SMALLEST if measure in log else -np.inf
        for i, (label, points) in enumerate(panel.items()):
            middle, low, high = np.maximum(np.array(list(points.values())).reshape(-1, 3).T, least)
            ax.fill_between(list(points), low, high, color=INKS[i % 6], alpha=0.15, lw=0)
            ax.plot(list(points), middle, color=INKS[i % 6], marker="o", ms=3, lw=1.6,
                    linestyle=STYLES[i % 4], label=label)  # fmt: skip
        for x, y in ((paper or {}).get((measure, name)) or {}).items():
            ax.plot(x, y, "D", mfc="none", mec=INKS[7], ms=6)
        canvas.axes(ax, grid="both")
        ax.set(
            xscale="log" if x_label in log else "linear",
            yscale="log" if measure in log else "linear",
        )
        canvas.axis_label(ax, x_label)
        canvas.axis_label(ax, measure, "y")
        ax.label_outer()
    return _with_legend(figure, axes)


def noise_panels(panels: Mapping[str, Mapping[str, ArrayLike]], players: str) -> Figure:
    """`noise_kde` in panels side by side, with one legend."""
    figure, axes = _panels({"": panels}, 3.4, 3.0)
    for ax, counts in axes.values():
        noise_kde(counts, ax, players=players)
        ax.get_legend().remove()
    return _with_legend(figure, axes)


_Axes = dict[tuple[str, str], tuple[Any, Any]]


def _panels(
    lines: Mapping[str, Mapping[str, Any]], width: float, height: float, **shared: Any
) -> tuple[Figure, _Axes]:
    """A figure, and its axes with the data to draw in them, by measure and panel.

    A row for each measure, or a single row where no two measures have a panel in common; what is
    shared by "row" is shared by the panels of a measure.
    """
    rows = [[(measure, name) for name in line if line[name]] for measure, line in lines.items()]
    names = [name for row in rows for _, name in row]
    if len(rows) > 1 and len(set(names)) == len(names):
        rows = [[panel for row in rows for panel in row]]
    by_measure = [axis for axis, sharing in shared.items() if sharing == "row"]
    shared |= dict.fromkeys(by_measure, False)
    columns = max(1, *map(len, rows))
    size = (width * columns + 2.2, height * len(rows) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False, **shared)
    panels: _Axes = {}
    titles: list[str] = []
    for line, row in zip(axes, rows, strict=True):
        for ax in line[len(row) :]:
            ax.set_visible(False)
        above, titles = titles, [name for _, name in row]
        for ax, (measure, name) in zip(line, row, strict=False):
            if titles != above:
                canvas.axes(ax, title=fill(name, int(10 * width)))
            panels[measure, name] = ax, lines[measure][name]
    for (measure, name), (ax, _) in panels.items():
        first = next(panel for panel in panels if panel[0] == measure)
        for axis in by_measure if name != first[1] else ():
            getattr(ax, axis)(panels[first][0])
    return figure, panels


def _with_legend(figure: Figure, axes: _Axes) -> Figure:
    shown = [zip(*ax.get_legend_handles_labels(), strict=True) for ax, _ in axes.values()]
    by_label = {label: handle for pairs in shown for handle, label in pairs}
    place, columns = "outside lower center", min(4, len(by_label))
    look: dict[str, Any] = {
        "loc": place,
        "ncols": columns,
        "frameon": False,
        "fontsize": canvas.SMALL,
    }
    figure.legend(list(by_label.values()), list(by_label), **look)
    return figure
