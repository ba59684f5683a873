"""Helpers of all plots: axes, the diverging colour map, text without mathtext parsing."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from graphsvx.errors import InputError
from graphsvx.utils.constraints import Converted, Range, shown
from graphsvx.utils.printable import one_line
from graphsvx.views import palette

DIVERGING = LinearSegmentedColormap.from_list(
    "graphsvx", [palette.AGAINST, palette.NEUTRAL, palette.FOR]
)
SMALL = 8.0
TINY = 7.0


def _given_axes(ax: Any, name: str) -> Axes | None:
    if ax is None or isinstance(ax, Axes):
        return ax
    kind = f"; a kind of plot is chosen by kind={ax!r}" if isinstance(ax, str) else ""
    raise InputError(f"{name} must be matplotlib axes or None, got {shown(ax)}{kind}")


GivenAxes = Annotated[Axes | None, Converted(_given_axes)]
"""Axes to draw on; None: new ones."""
Top = Annotated[int, Range(1)]
"""How many players are shown."""


def numbers(values: Any, name: str) -> NDArray[np.float64]:
    """The values as an array of floats."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers, got {shown(values)}") from error


def axes(ax: Axes | None, width: float = 5.2, height: float = 4.0) -> Axes:
    """The given axes, or those of a new figure of `width` x `height` inches."""
    if ax is not None:
        return ax
    return plt.figure(figsize=(width, height), layout="constrained").add_subplot()


def text(ax: Axes, x: float, y: float, words: str, **style: Any) -> Any:
    """Text from data, without mathtext: `$` and `_` are printed literally."""
    return ax.text(x, y, words, parse_math=False, **style)


def heading(ax: Axes, words: str, below: str = "") -> None:
    """A title at the left, with an optional smaller second line."""
    title = ax.set_title(
        words, loc="left", fontsize=10, fontweight="bold", color=palette.INK, pad=20 if below else 8
    )
    title.set_parse_math(False)
    if below:
        note = ax.annotate(
            below,
            (0, 1),
            xytext=(0, 7),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=SMALL,
            color=palette.GREY,
            ha="left",
            va="bottom",
        )
        note.set_parse_math(False)


def quiet(ax: Axes, grid: str = "x") -> None:
    """Minimal style: no frame, and a pale grid in the background."""
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color(palette.PALE)
    ax.tick_params(length=0, labelsize=SMALL, labelcolor=palette.INK)
    ax.grid(axis="both" if grid == "both" else "x" if grid == "x" else "y", color="#ECEDF0", lw=0.8)
    ax.set_axisbelow(True)


def plain_ticks(ax: Axes, axis: str, places: list[float], names: list[str]) -> None:
    """Tick labels from data, without mathtext."""
    side = ax.yaxis if axis == "y" else ax.xaxis
    side.set_ticks(places, names, parse_math=False)


def matrix(ax: Axes, image: Any, rows: list[str], columns: list[str], label: str) -> None:
    """Names along a matrix of colours, and a bar beside it that says what they mean."""
    for axis, names in (("x", columns), ("y", rows)):
        plain_ticks(ax, axis, [float(place) for place in range(len(names))], names)
    ax.tick_params(length=0, labelsize=SMALL, labelcolor=palette.INK)
    ax.tick_params(axis="x", rotation=90)
    ax.spines[:].set_visible(False)
    colorbar(ax, image, label, shrink=0.8)


def colorbar(ax: Axes, image: Any, label: str, **style: Any) -> Any:
    """A bar beside a plot that says what its colours mean; None without a figure."""
    figure = ax.get_figure()
    if figure is None:
        return None
    bar = figure.colorbar(image, ax=ax, pad=0.02, **style)
    bar.set_label(label, fontsize=SMALL, color=palette.INK)
    bar.ax.tick_params(labelsize=TINY, length=2, color=palette.GREY)
    bar.outline.set_visible(False)
    return bar


def short(name: str, most: int = 28) -> str:
    """The name on one line, shortened in the middle to `most` characters."""
    name = one_line(name)
    if len(name) <= most:
        return name
    half = (most - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
