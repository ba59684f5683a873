"""Helpers of all plots: axes, the diverging colour map, text without mathtext parsing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ParamSpec, TypeVar

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from graphsvx.core.arrays import Floats
from graphsvx.errors import InputError
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import scale_of
from graphsvx.utils.constraints import Converted, Range, describes_arguments, shown
from graphsvx.utils.printable import one_line
from graphsvx.views import palette

DIVERGING = LinearSegmentedColormap.from_list(
    "graphsvx", [palette.AGAINST, palette.NEUTRAL, palette.FOR]
)
SMALL = 8.0
TINY = 7.0


P = ParamSpec("P")
T = TypeVar("T")
_ARGUMENTS = {
    "explanation": "what is shown.",
    "explanations": "what is shown.",
    "ax": "axes to draw on; new ones by default.",
    "players": '"all", "nodes", "features" or "edges".',
    "top": "number of players that are shown.",
    "labels": "one for each explanation.",
    "title": "whether it is drawn.",
    "legend": "whether it is drawn.",
    "colorbar": "whether it is drawn.",
}
"""What plots have in common, in the words of their docstrings."""


def plot(
    returns: str = "The axes.", **described: str
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a plot: its arguments are checked by annotations and listed in its docstring."""
    return describes_arguments(_ARGUMENTS | described, returns)


def _given_axes(ax: Any, name: str) -> Axes | None:
    if ax is None or isinstance(ax, Axes):
        return ax
    kind = f"; a kind of plot is chosen by kind={ax!r}" if isinstance(ax, str) else ""
    raise InputError(f"{name} must be matplotlib axes or None, got {shown(ax)}{kind}")


GivenAxes = Annotated[Axes | None, Converted(_given_axes)]
"""Axes to draw on; None: new ones."""
Top = Annotated[int, Range(1)]
"""How many players are shown."""


def size_in_points(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes' box, before names and legends take a part of it."""
    figure, box = ax.get_figure(root=True), ax.get_window_extent()
    scale = 72 / (72.0 if figure is None else figure.dpi)
    return box.width * scale, box.height * scale


def numbers(values: Any, name: str) -> Floats:
    """The values as an array of floats."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers, got {shown(values)}") from error


def axes(
    ax: Axes | None,
    width: float = 5.2,
    height: float = 4.0,
    *,
    grid: str = "",
    title: str = "",
    below: str = "",
) -> Axes:
    """The given axes, or those of a new figure of `width` x `height` inches.

    `grid` ("x", "y" or "both"): a minimal style with pale lines in the background. `title` is
    written at the left, with an optional smaller line `below` it.
    """
    if ax is None:
        ax = plt.figure(figsize=(width, height), layout="constrained").add_subplot()
    if grid:
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(palette.PALE)
        ax.tick_params(length=0, labelsize=SMALL, labelcolor=palette.INK)
        ax.grid(axis=grid, color="#ECEDF0", lw=0.8)  # type: ignore[arg-type]  # a Literal there
        ax.set_axisbelow(True)
    if title:
        style: dict[str, Any] = {"fontsize": 10, "fontweight": "bold", "color": palette.INK}
        ax.set_title(title, loc="left", pad=20 if below else 8, parse_math=False, **style)
    if title and below:
        style = {"xycoords": "axes fraction", "ha": "left", "va": "bottom"}
        note_at(ax, below, (0, 1), (0, 7), fontsize=SMALL, color=palette.GREY, **style)
    return ax


def text(ax: Axes, x: float, y: float, words: str, **style: Any) -> Any:
    """Small text from data, without mathtext: `$` and `_` are printed literally."""
    style = {"fontsize": TINY, "color": palette.INK, **style}
    return ax.text(x, y, words, parse_math=False, **style)


def note_at(ax: Axes, words: str, at: Any, offset: tuple[float, float], **style: Any) -> Any:
    """The same `offset` points away from a place."""
    style = {"fontsize": TINY, "color": palette.INK, **style}
    written = ax.annotate(words, at, xytext=offset, textcoords="offset points", **style)
    written.set_parse_math(False)
    return written


def tick_names(
    ax: Axes, names: Sequence[str], axis: str = "y", most: int = 28, step: int = 1
) -> None:
    """Every `step`-th name from data along an axis, of at most `most` characters, no mathtext."""
    places = range(0, len(names), step)
    side = ax.yaxis if axis == "y" else ax.xaxis
    side.set_ticks(places, [short(names[i], most) for i in places], parse_math=False)


def axis_label(ax: Axes, words: str, axis: str = "x") -> None:
    """What an axis shows."""
    side = ax.yaxis if axis == "y" else ax.xaxis
    side.set_label_text(words, fontsize=SMALL, color=palette.INK)


def credit_label(explanation: Explanation) -> str:
    """What an axis or a bar of colours shows, with the scale of the scores."""
    return f"credit ({scale_of(explanation)})"


def legend(ax: Axes, **style: Any) -> None:
    """A legend without a frame and without mathtext."""
    for entry in ax.legend(frameon=False, **{"fontsize": TINY, **style}).get_texts():
        entry.set_parse_math(False)


def shades(ax: Axes, values: Any, largest: float, **style: Any) -> Any:
    """A matrix of credit as colours, from -largest to largest."""
    return ax.imshow(values, cmap=DIVERGING, vmin=-largest, vmax=largest, **style)


def matrix(
    ax: Axes,
    values: Any,
    largest: float,
    rows: Sequence[str],
    columns: Sequence[str],
    label: str,
    **style: Any,
) -> None:
    """A matrix of colours with names along it, and a bar beside it that says what they mean."""
    image = shades(ax, values, largest, **style)
    tick_names(ax, columns, "x", 18)
    tick_names(ax, rows, "y", 22)
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
