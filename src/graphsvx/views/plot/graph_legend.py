"""Legend and colour bar of the plot of a receptive field."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import scale_of, signed
from graphsvx.views import palette
from graphsvx.views.plot import canvas
from graphsvx.views.plot.placed_drawing import PlacedDrawing


def draw_colorbar(ax: Axes, explanation: Explanation, scale: float) -> None:
    """Add a colour bar of credit, from -scale to scale."""
    figure = ax.get_figure()
    if figure is None:
        return
    shades = ScalarMappable(Normalize(-scale, scale), canvas.DIVERGING)
    bar = figure.colorbar(shades, ax=ax, location="right", shrink=0.62, aspect=24, pad=0.02)
    bar.set_label(f"credit ({scale_of(explanation)})", fontsize=canvas.SMALL, color=palette.INK)
    bar.ax.tick_params(labelsize=canvas.TINY, length=2, color=palette.GREY)
    bar.outline.set_visible(False)
    bar.locator = _colorbar_ticks(scale)
    bar.update_ticks()


def _colorbar_ticks(scale: float) -> Any:
    step = 10 ** math.floor(math.log10(scale))
    step *= max(s for s in (1, 2, 5) if s * step <= scale)
    half = step / 2 if step * 2 > scale else step
    count = int(scale / half + 1e-9)
    return FixedLocator([half * i for i in range(-count, count + 1)])


def draw_legend(ax: Axes, explanation: Explanation, drawing: PlacedDrawing) -> None:
    """Add a legend below the axes: marks, classes, merged nodes."""
    handles: list[Line2D] = []

    def mark(label: str, **style: Any) -> None:
        handles.append(Line2D([], [], linestyle="none", label=label, **style))

    dots = drawing.drawing.dots
    if any(dot.centre for dot in dots):
        mark(
            "explained", marker="o", markersize=6, markerfacecolor="white",
            markeredgecolor=palette.INK, markeredgewidth=1.6,
        )  # fmt: skip
    if drawing.atoms is None:
        for category in sorted({dot.category for dot in dots if dot.category is not None}):
            typed = explanation.types is not None and not explanation.types.flat
            mark(
                class_label(explanation, category),
                marker=palette.shape_of(category if typed else 0), markersize=6.5,
                markerfacecolor=palette.mixed(palette.of_class(category), "#FFFFFF", 0.15),
                markeredgecolor="#6B7280", markeredgewidth=0.6,
            )  # fmt: skip
    lines = drawing.drawing.lines
    bold = any(line.a in drawing.bold and line.b in drawing.bold for line in lines)
    if bold and not any(line.plays for line in lines):
        handles.append(Line2D([], [], color=palette.INK, lw=2.4, label="important part"))
    if any(patch.get_gid() == "interaction" for patch in ax.patches):
        for color, label in ((palette.FOR, "together more"), (palette.AGAINST, "together less")):
            handles.append(Line2D([], [], color=color, lw=3.2, alpha=0.85, label=label))
    groups = [dot for dot in dots if dot.count > 1]
    if groups:
        total = math.fsum(dot.credit for dot in groups)
        mark(
            f"+{sum(dot.count for dot in groups)} more nodes, together {signed(total)}",
            marker="o", markersize=7, markerfacecolor="#E9EAED", markeredgecolor="#6B7280",
            markeredgewidth=0.6,
        )  # fmt: skip
    if not handles:
        return
    box = ax.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.01),
        ncols=min(3, len(handles)),
        fontsize=canvas.TINY, frameon=False, handletextpad=0.7, handlelength=1.5,
        columnspacing=1.3,
        borderaxespad=0.0,
    )  # fmt: skip
    for entry in box.get_texts():
        entry.set_parse_math(False)


def class_label(explanation: Explanation, category: int) -> str:
    """Legend entry of a node class or node type; `class_names` are those of classified nodes."""
    types = explanation.types
    if types is not None and not types.flat:
        return canvas.short(types.node_types[category], 24)
    if explanation.kind in ("node", "nodes"):
        return canvas.short(explanation.class_name(category), 24)
    return f"type {category}"
