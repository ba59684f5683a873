"""Plot of the receptive field as a graph, with the credit of its nodes and edges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator

from graphsvx.errors import InputError
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import decimal, scale_of, signed
from graphsvx.utils.constraints import Range, Seed, checks_arguments
from graphsvx.views import drawing as drawings
from graphsvx.views import layout as placing
from graphsvx.views import palette
from graphsvx.views.drawing import Dot, GraphDrawing, Stroke
from graphsvx.views.plot import canvas
from graphsvx.views.plot.matrices import curve

Atoms = Mapping[int, str] | Sequence[str]
Bonds = Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class PlacedDrawing:
    """A drawing with positions and sizes of its nodes."""

    drawing: GraphDrawing
    where: placing.Places
    radius: float
    """Radius of a dot of average credit, in points."""
    bold: frozenset[int]
    largest: float
    atoms: tuple[str, ...] | None
    bonds: Bonds

    def size(self, i: int) -> float:
        """Radius of a dot in points: larger with more credit."""
        dot = self.drawing.dots[i]
        if dot.count > 1:
            return max(6.5, self.radius * min(1.7, 0.9 + 0.2 * math.log10(dot.count)))
        if self.atoms is not None:
            return self.radius * (0.72 if self.atoms[i] == "H" else 1.0)
        if dot.centre:
            return self.radius * (1.5 if self.crowded else 1.1)
        growth = 1.25 if self.crowded else 0.62
        return self.radius * (0.62 + growth * math.sqrt(self.strength(i)))

    @property
    def crowded(self) -> bool:
        """Whether there are too many dots to show all at the same size."""
        return len(self.drawing.dots) > placing.CROWD

    def strength(self, i: int) -> float:
        """Absolute credit as a share of the largest."""
        return min(1.0, abs(self.drawing.dots[i].credit) / self.largest) if self.largest else 0.0

    def faded(self, i: int) -> bool:
        """Whether the dot is drawn pale: it has little credit, or credit that may be 0."""
        dot = self.drawing.dots[i]
        weak = dot.count > 1 or self.strength(i) < 0.04 or not dot.sure
        return dot.plays and not dot.centre and weak and i not in self.bold


@checks_arguments
def graph(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    layout: placing.Layout | None = None,
    seed: Seed = 0,
    top: Annotated[int | None, Range(0)] = None,
    max_nodes: Annotated[int, Range(1)] = 30,
    labels: bool = True,
    legend: bool = True,
    colorbar: bool = True,
    title: bool = True,
    atoms: Atoms | None = None,
    bonds: Bonds | None = None,
    largest: Annotated[float | None, Range(0)] = None,
    together: Annotated[int, Range(0)] = 5,
) -> Axes:
    """Draw the receptive field with the explained node marked and the important part in bold.

    Fill shows a node's class, where the data has one; ring and size show its signed credit. With
    more than `max_nodes` nodes, those with little credit are merged into grey bubbles, labelled
    `+12` for twelve nodes. `atoms` (symbol by node id) and `bonds` (order by edge; 1.5 if aromatic)
    draw a molecule. `top` is the number of important nodes, `largest` the end of the colour scale.
    Where there are interactions, curves join the `together` strongest pairs of nodes.

    Args:
        explanation: what is shown.
        ax: axes to draw on; new ones by default.
        layout: "force", "hops" (rings around the explained node) or "molecule"; by default
            what fits.
        seed: of the force layout.
        top: number of important nodes.
        max_nodes: beyond it, nodes with little credit are merged.
        labels: names or numbers at the nodes.
        legend, colorbar, title: whether they are drawn.
        atoms: symbol by node id.
        bonds: order by edge (u, v).
        largest: the credit at the end of the colour scale.
        together: number of interacting pairs.

    Returns:
        The axes.

    """
    full = drawings.drawing_of(explanation)
    symbols = _symbols(full, atoms)
    shown = (
        full
        if symbols is not None
        else drawings.with_groups(full, drawings.find_groups(full, max_nodes))
    )
    kind = layout or ("molecule" if symbols is not None else "force")
    bold = drawings.important(shown, top)
    places = placing.places(shown, kind, seed, bonds, bold)
    ax = canvas.axes(ax, 5.4, height_for(places, 5.4))
    scale = full.largest if largest is None else largest
    drawing = PlacedDrawing(shown, places, _fit(ax, places), bold, scale, symbols, bonds or {})
    _draw_lines(ax, drawing)
    _draw_together(ax, drawing, explanation, together)
    _draw_dots(ax, drawing)
    if symbols is not None:
        _write_symbols(ax, drawing)
    else:
        _write_labels(ax, drawing, labels)
    if title:
        below = (
            f"prediction {decimal(explanation.prediction)} = base {decimal(explanation.base)}"
            f" {'+' if explanation.total >= 0 else '−'} credit {decimal(abs(explanation.total))}"
        )
        adds_up = abs(explanation.certificate.residual) < 5e-4
        canvas.heading(ax, explanation.title, below if adds_up else "")
    if colorbar and scale > 0:
        draw_colorbar(ax, explanation, scale)
    if legend:
        draw_legend(ax, explanation, drawing)
    return ax


def _symbols(drawing: GraphDrawing, atoms: Atoms | None) -> tuple[str, ...] | None:
    if atoms is None:
        return None
    try:
        return tuple(str(atoms[dot.id]) for dot in drawing.dots)
    except (KeyError, IndexError) as error:
        raise InputError(
            f"atoms must give a symbol for every node of the neighbourhood, but not for {error}; "
            f"the nodes are {[dot.id for dot in drawing.dots]}"
        ) from error


def height_for(places: placing.Places, width: float) -> float:
    """Figure height in inches for which a figure of this width has no empty margins."""
    left, right, bottom, top = placing.extent(places)
    share = (top - bottom + 1.0) / (right - left + 1.0)
    return float(np.clip(0.8 * width * share + 1.2, 2.7, 1.1 * width))


def _fit(ax: Axes, places: placing.Places) -> float:
    """Set limits with a margin; return the radius in points at which dots do not touch."""
    left, right, bottom, top = placing.extent(places)
    margin = 0.03 * max(right - left, top - bottom) + 0.35
    ax.update_datalim([(left - margin, bottom - margin), (right + margin, top + margin)])
    ax.margins(0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    figure = ax.get_figure(root=True)
    # The axes' box before the layout engine runs; colour bar and legend take about a quarter.
    box = ax.get_window_extent()
    dpi = figure.dpi if figure is not None else 72.0
    width = 0.8 * box.width / dpi * 72
    height = 0.8 * box.height / dpi * 72
    scale = min(width / (right - left + 2 * margin), height / (top - bottom + 2 * margin))
    return float(np.clip(0.36 * placing.nearest_gap(places) * scale, 2.2, 13.0))


def _draw_lines(ax: Axes, drawing: PlacedDrawing) -> None:
    by_credit = any(line.plays for line in drawing.drawing.lines)
    thin: list[Any] = []
    widths, colours = [], []
    for line in sorted(drawing.drawing.lines, key=lambda line: abs(line.credit)):
        style = _line_style(drawing, line, by_credit)
        a, b = drawing.where[line.a], drawing.where[line.b]
        if line.one_way:
            ax.add_patch(
                FancyArrowPatch(
                    a,
                    b,
                    arrowstyle="-|>",
                    mutation_scale=5 + 2 * style[0],
                    lw=style[0],
                    color=style[1],
                    shrinkA=drawing.size(line.a) + 1,
                    shrinkB=drawing.size(line.b) + 1.5,
                    zorder=1,
                )
            )
            continue
        for start, end in _strokes(drawing, line, a, b):
            thin.append((start, end))
            widths.append(style[0])
            colours.append(style[1])
    strokes = LineCollection(thin, linewidths=widths, colors=colours, zorder=1, gid="edges")
    strokes.set_capstyle("round")
    ax.add_collection(strokes, autolim=False)


def _draw_together(ax: Axes, drawing: PlacedDrawing, explanation: Explanation, most: int) -> None:
    """Curves between nodes that interact; pairs of merged nodes have none."""
    record = explanation.interactions
    grouped = explanation.groups is not None and bool(explanation.groups.nodes)
    if record is None or not most or grouped:
        return
    first = explanation.feature_credit.players
    ids = explanation.node_ids.tolist()
    place = {dot.id: i for i, dot in enumerate(drawing.drawing.dots) if dot.count == 1}
    lines: list[tuple[int, int, float]] = []
    for pair in [pair for pair in explanation.together() if pair.sure]:
        nodes = [position - first for position in pair.positions]
        if all(0 <= node < len(ids) and ids[node] in place for node in nodes):
            lines.append((place[ids[nodes[0]]], place[ids[nodes[1]]], pair.value))
        if len(lines) == most:
            break
    largest = max((abs(value) for _, _, value in lines), default=0.0)
    for a, b, value in reversed(lines):
        curve(ax, drawing.where[a], drawing.where[b], value, largest)


def _line_style(drawing: PlacedDrawing, line: Stroke, by_credit: bool) -> tuple[float, str]:
    if by_credit:
        share = min(1.0, abs(line.credit) / drawing.largest) if drawing.largest else 0.0
        if not line.plays or share < 0.03:
            return 0.7, palette.PALE
        strong = palette.FOR if line.credit > 0 else palette.AGAINST
        return 0.8 + 4.0 * share, palette.mixed(palette.PALE, strong, 0.25 + 0.75 * share)
    if line.a in drawing.bold and line.b in drawing.bold:
        return 2.4, palette.INK
    if drawing.atoms is not None:
        return 1.0, palette.INK
    if drawing.faded(line.a) or drawing.faded(line.b):
        return 0.5, palette.PALE
    return 0.8, "#B4B8C0"


def _strokes(drawing: PlacedDrawing, line: Stroke, a: Any, b: Any) -> list[tuple[Any, Any]]:
    """One stroke for a single bond, two or three parallel ones for double and triple bonds."""
    if drawing.atoms is None:
        return [(a, b)]
    dots = drawing.drawing.dots
    order = placing.bond_order(drawing.bonds, dots[line.a].id, dots[line.b].id)
    aside = np.array([a[1] - b[1], b[0] - a[0]])
    aside = aside / (np.linalg.norm(aside) or 1.0) * 0.085
    if order == 2:
        return [(a + aside, b + aside), (a - aside, b - aside)]
    if order == 3:
        return [(a, b), (a + 1.6 * aside, b + 1.6 * aside), (a - 1.6 * aside, b - 1.6 * aside)]
    if order == 1.5:
        inner = [a + 1.7 * aside + t * (b - a) for t in (0.2, 0.32, 0.44, 0.56, 0.68, 0.8)]
        return [(a, b), *zip(inner[::2], inner[1::2], strict=True)]
    return [(a, b)]


def _fill(drawing: PlacedDrawing, dot: Dot, i: int) -> str:
    if dot.count > 1:
        return "#E9EAED"
    if drawing.atoms is not None or (dot.category is None and dot.plays):
        credit = dot.credit if dot.sure else 0.15 * dot.credit
        return palette.of_credit(credit, drawing.largest)
    if dot.category is None:
        return "#FFFFFF"
    colour = palette.of_class(dot.category)
    return palette.mixed(colour, "#FFFFFF", 0.72 if drawing.faded(i) else 0.15)


def _draw_dots(ax: Axes, drawing: PlacedDrawing) -> None:
    dots, places = drawing.drawing.dots, drawing.where
    sizes = [drawing.size(i) for i in range(len(dots))]
    fills, rings, widths = [], [], []
    for i, dot in enumerate(dots):
        fills.append(_fill(drawing, dot, i))
        shows_credit = dot.plays and dot.category is not None and not drawing.faded(i)
        if shows_credit and drawing.atoms is None and dot.count == 1:
            rings.append(palette.of_credit(dot.credit, 0.6 * drawing.largest))
            widths.append(0.7 + 0.34 * drawing.radius * drawing.strength(i))
        else:
            rings.append(palette.PALE if drawing.faded(i) else "#6B7280")
            widths.append(0.6)
    # The explained node has a second ring, separated by a white gap.
    wide = min(4.4, max(2.2, 0.4 * drawing.radius))
    for shape in sorted({dot.shape for dot in dots}):
        same = [i for i, dot in enumerate(dots) if dot.shape == shape]
        marked = [i for i in same if dots[i].centre]
        marker = palette.shape_of(shape)
        for size, colour in ((wide, palette.INK), (wide - 1.6, "#FFFFFF")):
            ax.scatter(
                places[marked, 0],
                places[marked, 1],
                s=[(2 * (sizes[i] + size)) ** 2 for i in marked],
                c=colour,
                linewidths=0,
                zorder=2,
                gid="explained" if size == wide else "gap",
                marker=marker,
            )
        ax.scatter(
            places[same, 0],
            places[same, 1],
            s=[(2 * sizes[i]) ** 2 for i in same],
            c=[fills[i] for i in same],
            edgecolors=[rings[i] for i in same],
            linewidths=[widths[i] for i in same],
            zorder=3,
            gid="nodes",
            marker=marker,
        )


def _write_labels(ax: Axes, drawing: PlacedDrawing, node_labels: bool) -> None:
    for i, dot in enumerate(drawing.drawing.dots):
        if not node_labels and dot.count == 1:
            continue
        radius = drawing.size(i)
        label = canvas.short(dot.label, 14)
        fits = min(8.5, 2 * radius * 0.86 / (0.62 * max(1, len(label))))
        fits = min(fits, 6.0) if dot.count > 1 else fits
        unlabelled = drawing.faded(i) and drawing.crowded and dot.count == 1
        if fits >= 4.2 and not unlabelled:
            canvas.text(
                ax,
                drawing.where[i, 0],
                drawing.where[i, 1],
                label,
                fontsize=fits,
                ha="center",
                va="center_baseline",
                color=palette.GREY if drawing.faded(i) else palette.ink_on(_fill(drawing, dot, i)),
                zorder=4,
                fontweight="bold" if dot.centre else "normal",
            )
        elif i in drawing.bold or dot.count > 1:
            note = ax.annotate(
                label,
                drawing.where[i],
                xytext=(0, -radius - 2.5),
                textcoords="offset points",
                fontsize=6.5,
                ha="center",
                va="top",
                color=palette.INK,
                zorder=5,
            )
            note.set_parse_math(False)
            note.set_path_effects([withStroke(linewidth=2, foreground="white")])


def _write_symbols(ax: Axes, drawing: PlacedDrawing) -> None:
    for i, symbol in enumerate(drawing.atoms or ()):
        fill = _fill(drawing, drawing.drawing.dots[i], i)
        canvas.text(
            ax,
            drawing.where[i, 0],
            drawing.where[i, 1],
            canvas.short(symbol, 4),
            fontsize=max(4.2, 1.12 * drawing.size(i)),
            ha="center",
            va="center_baseline",
            color=palette.ink_on(fill),
            zorder=4,
        )


# Legend and colour bar of the plot of a receptive field.


def draw_colorbar(ax: Axes, explanation: Explanation, scale: float) -> None:
    """Add a colour bar of credit, from -scale to scale."""
    shades = ScalarMappable(Normalize(-scale, scale), canvas.DIVERGING)
    label = f"credit ({scale_of(explanation)})"
    bar = canvas.colorbar(ax, shades, label, location="right", shrink=0.62, aspect=24)
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
            "explained",
            marker="o",
            markersize=6,
            markerfacecolor="white",
            markeredgecolor=palette.INK,
            markeredgewidth=1.6,
        )
    if drawing.atoms is None:
        for category in sorted({dot.category for dot in dots if dot.category is not None}):
            typed = explanation.types is not None and not explanation.types.flat
            mark(
                class_label(explanation, category),
                marker=palette.shape_of(category if typed else 0),
                markersize=6.5,
                markerfacecolor=palette.mixed(palette.of_class(category), "#FFFFFF", 0.15),
                markeredgecolor="#6B7280",
                markeredgewidth=0.6,
            )
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
            marker="o",
            markersize=7,
            markerfacecolor="#E9EAED",
            markeredgecolor="#6B7280",
            markeredgewidth=0.6,
        )
    if not handles:
        return
    box = ax.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.01),
        ncols=min(3, len(handles)),
        fontsize=canvas.TINY,
        frameon=False,
        handletextpad=0.7,
        handlelength=1.5,
        columnspacing=1.3,
        borderaxespad=0.0,
    )
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
