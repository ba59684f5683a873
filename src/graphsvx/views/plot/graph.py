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
from graphsvx.results.describe import adds_up
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import decimal, leading_pairs, signed
from graphsvx.utils.constraints import Range, Seed
from graphsvx.views import drawing as drawings
from graphsvx.views import palette
from graphsvx.views.drawing import Dot, GraphDrawing, Stroke
from graphsvx.views.plot import canvas
from graphsvx.views.plot.charts import curve

_BUBBLE = "#E9EAED"
Atoms = Mapping[int, str] | Sequence[str]
Bonds = Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class PlacedDrawing:
    """A drawing with positions and sizes of its nodes."""

    drawing: GraphDrawing
    where: drawings.Places
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
        return len(self.drawing.dots) > drawings.CROWD

    def strength(self, i: int) -> float:
        """Absolute credit as a share of the largest."""
        return min(1.0, abs(self.drawing.dots[i].credit) / self.largest) if self.largest else 0.0

    def faded(self, i: int) -> bool:
        """Whether the dot is drawn pale: it has little credit, or credit that may be 0."""
        dot = self.drawing.dots[i]
        weak = dot.count > 1 or self.strength(i) < 0.04 or not dot.sure
        return dot.plays and not dot.centre and weak and i not in self.bold


@canvas.plot(
    layout='"force", "hops" (rings around the explained node) or "molecule"; by default what fits.',
    seed="of the force layout.",
    top="number of important nodes.",
    max_nodes="beyond it, nodes with little credit are merged.",
    labels="names or numbers at the nodes.",
    atoms="symbol by node id.",
    bonds="order by edge (u, v); 1.5 if aromatic.",
    largest="the credit at the end of the colour scale.",
    together="number of interacting pairs.",
)
def graph(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    layout: drawings.Layout | None = None,
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
    `+12` for twelve nodes. `atoms` and `bonds` draw a molecule. Where there are interactions,
    curves join the `together` strongest pairs of nodes.
    """
    full = shown = drawings.drawing_of(explanation)
    symbols = None if atoms is None else _symbols(full, atoms)
    if symbols is None:
        shown = drawings.with_groups(full, drawings.find_groups(full, max_nodes))
    bold = drawings.important(shown, top)
    layout = layout or ("molecule" if symbols is not None else "force")
    places = drawings.places(shown, layout, seed, bonds, bold)
    sign = "+" if explanation.total >= 0 else "−"
    equation = (
        f"prediction {decimal(explanation.prediction)} = base {decimal(explanation.base)}"
        f" {sign} credit {decimal(abs(explanation.total))}"
    )
    below = equation if adds_up(explanation) else ""
    words = {"title": explanation.title, "below": below} if title else {}
    ax = canvas.axes(ax, 5.4, height_for(places, 5.4), **words)
    scale = full.largest if largest is None else largest
    drawing = PlacedDrawing(shown, places, _fit(ax, places), bold, scale, symbols, bonds or {})
    _draw_lines(ax, drawing)
    _draw_together(ax, drawing, explanation, together)
    _draw_dots(ax, drawing)
    _write_labels(ax, drawing, labels)
    if colorbar and scale > 0:
        draw_colorbar(ax, explanation, scale)
    if legend:
        draw_legend(ax, explanation, drawing)
    return ax


def _symbols(drawing: GraphDrawing, atoms: Atoms) -> tuple[str, ...]:
    try:
        return tuple(str(atoms[dot.id]) for dot in drawing.dots)
    except (KeyError, IndexError) as error:
        raise InputError(
            f"atoms must give a symbol for every node of the neighbourhood, but not for {error}; "
            f"the nodes are {[dot.id for dot in drawing.dots]}"
        ) from error


def height_for(places: drawings.Places, width: float) -> float:
    """Figure height in inches for which a figure of this width has no empty margins."""
    low, high = drawings.extent(places)
    wide, tall = high - low + 1.0
    return float(np.clip(0.8 * width * (tall / wide) + 1.2, 2.7, 1.1 * width))


def _fit(ax: Axes, places: drawings.Places) -> float:
    """Set limits with a margin; return the radius in points at which dots do not touch."""
    low, high = drawings.extent(places)
    margin = 0.03 * (high - low).max() + 0.35
    ax.update_datalim([low - margin, high + margin])
    ax.margins(0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    # The axes' box before the layout engine runs; colour bar and legend take about a quarter.
    scale = (0.8 * np.array(canvas.size_in_points(ax)) / (high - low + 2 * margin)).min()
    return float(np.clip(0.36 * drawings.nearest_gap(places) * scale, 2.2, 13.0))


def _draw_lines(ax: Axes, drawing: PlacedDrawing) -> None:
    by_credit = any(line.plays for line in drawing.drawing.lines)
    strokes: list[tuple[tuple[Any, Any], float, str]] = []
    for line in sorted(drawing.drawing.lines, key=lambda line: abs(line.credit)):
        width, colour = _line_style(drawing, line, by_credit)
        a, b = drawing.where[line.a], drawing.where[line.b]
        if not line.one_way:
            strokes += [(ends, width, colour) for ends in _strokes(drawing, line, a, b)]
            continue
        gaps = {"shrinkA": drawing.size(line.a) + 1, "shrinkB": drawing.size(line.b) + 1.5}
        style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 5 + 2 * width, **gaps}
        ax.add_patch(FancyArrowPatch(a, b, lw=width, color=colour, zorder=1, **style))
    ends, widths, colours = zip(*strokes, strict=True) if strokes else ((), (), ())
    edges = LineCollection(ends, linewidths=widths, colors=colours, zorder=1, gid="edges")
    edges.set_capstyle("round")
    ax.add_collection(edges, autolim=False)


def _draw_together(ax: Axes, drawing: PlacedDrawing, explanation: Explanation, most: int) -> None:
    """Curves between nodes that interact; pairs of merged nodes have none."""
    dot_of = drawings.dots_of(explanation, drawing.drawing)
    pairs = [
        pair
        for pair in leading_pairs(explanation)
        if all(position in dot_of for position in pair.positions)
    ][:most]
    largest = max((abs(pair.value) for pair in pairs), default=0.0)
    for pair in reversed(pairs):
        a, b = (drawing.where[dot_of[position]] for position in pair.positions)
        curve(ax, a, b, pair.value, largest)


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
    dots = drawing.drawing.dots
    order = drawings.bond_order(drawing.bonds, dots[line.a].id, dots[line.b].id)
    if drawing.atoms is None or order not in (1.5, 2, 3):
        return [(a, b)]
    aside = np.array([a[1] - b[1], b[0] - a[0]])
    aside = aside / (np.linalg.norm(aside) or 1.0) * 0.085
    if order == 1.5:
        inner = [a + 1.7 * aside + t * (b - a) for t in (0.2, 0.32, 0.44, 0.56, 0.68, 0.8)]
        return [(a, b), *zip(inner[::2], inner[1::2], strict=True)]
    shifts = {2: (1, -1), 3: (0, 1.6, -1.6)}[int(order)]
    return [(a + shift * aside, b + shift * aside) for shift in shifts]


def _fill(drawing: PlacedDrawing, dot: Dot, i: int) -> str:
    if dot.count > 1:
        return _BUBBLE
    if drawing.atoms is not None or (dot.category is None and dot.plays):
        credit = dot.credit if dot.sure else 0.15 * dot.credit
        return palette.of_credit(credit, drawing.largest)
    if dot.category is None:
        return "#FFFFFF"
    colour = palette.of_class(dot.category)
    return palette.mixed(colour, "#FFFFFF", 0.72 if drawing.faded(i) else 0.15)


def _draw_dots(ax: Axes, drawing: PlacedDrawing) -> None:
    dots, places = drawing.drawing.dots, drawing.where
    sizes = np.array([drawing.size(i) for i in range(len(dots))])
    fills, rings, widths = [], [], []
    for i, dot in enumerate(dots):
        fills.append(_fill(drawing, dot, i))
        shows_credit = dot.plays and dot.category is not None and not drawing.faded(i)
        if shows_credit and drawing.atoms is None and dot.count == 1:
            rings.append(palette.of_credit(dot.credit, 0.6 * drawing.largest))
            widths.append(0.7 + 0.34 * drawing.radius * drawing.strength(i))
        else:
            rings.append(palette.PALE if drawing.faded(i) else palette.EDGE)
            widths.append(0.6)

    def scatter(shown: list[int], larger: float, **style: Any) -> None:
        x, y = places[shown].T
        ax.scatter(x, y, s=(2 * (sizes[shown] + larger)) ** 2, **style)

    # The explained node has a second ring, separated by a white gap.
    wide = min(4.4, max(2.2, 0.4 * drawing.radius))
    for shape in sorted({dot.shape for dot in dots}):
        same = [i for i, dot in enumerate(dots) if dot.shape == shape]
        marked = [i for i in same if dots[i].centre]
        marker = palette.shape_of(shape)
        below = {"linewidths": 0, "zorder": 2, "marker": marker}
        scatter(marked, wide, c=palette.INK, gid="explained", **below)
        scatter(marked, wide - 1.6, c="#FFFFFF", gid="gap", **below)
        colours = {"c": [fills[i] for i in same], "edgecolors": [rings[i] for i in same]}
        edges = [widths[i] for i in same]
        scatter(same, 0.0, linewidths=edges, zorder=3, gid="nodes", marker=marker, **colours)


def _write_labels(ax: Axes, drawing: PlacedDrawing, node_labels: bool) -> None:
    """Symbols of atoms, or labels of nodes inside or below them, where there is room."""
    for i, dot in enumerate(drawing.drawing.dots):
        (x, y), radius, faded = drawing.where[i], drawing.size(i), drawing.faded(i)
        colour = palette.ink_on(_fill(drawing, dot, i))
        style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "zorder": 4}
        if drawing.atoms is not None:
            label, size = canvas.short(drawing.atoms[i], 4), max(4.2, 1.12 * radius)
            canvas.text(ax, x, y, label, fontsize=size, color=colour, **style)
            continue
        single = dot.count == 1
        if not node_labels and single:
            continue
        label = canvas.short(dot.label, 14)
        size = min(8.5 if single else 6.0, 2 * radius * 0.86 / (0.62 * max(1, len(label))))
        if size >= 4.2 and not (faded and drawing.crowded and single):
            style |= {"color": palette.GREY if faded else colour}
            style |= {"fontweight": "bold" if dot.centre else "normal"}
            canvas.text(ax, x, y, label, fontsize=size, **style)
        elif i in drawing.bold or not single:
            style |= {"va": "top", "zorder": 5, "color": palette.INK, "fontsize": 6.5}
            note = canvas.note_at(ax, label, drawing.where[i], (0, -radius - 2.5), **style)
            note.set_path_effects([withStroke(linewidth=2, foreground="white")])


# Legend and colour bar of the plot of a receptive field.


def draw_colorbar(ax: Axes, explanation: Explanation, scale: float) -> None:
    """Add a colour bar of credit, from -scale to scale."""
    shades = ScalarMappable(Normalize(-scale, scale), canvas.DIVERGING)
    style = {"location": "right", "shrink": 0.62, "aspect": 24}
    bar = canvas.colorbar(ax, shades, canvas.credit_label(explanation), **style)
    step = 10 ** math.floor(math.log10(scale))
    step *= max(s for s in (1, 2, 5) if s * step <= scale)
    half = step / 2 if step * 2 > scale else step
    count = int(scale / half + 1e-9)
    bar.locator = FixedLocator([half * i for i in range(-count, count + 1)])
    bar.update_ticks()


def draw_legend(ax: Axes, explanation: Explanation, drawing: PlacedDrawing) -> None:
    """Add a legend below the axes: marks, classes, merged nodes."""
    handles: list[Line2D] = []

    def mark(
        label: str, size: float, fill: str, edge: str, width: float, marker: str = "o"
    ) -> None:
        style: dict[str, Any] = {"mfc": fill, "mec": edge, "mew": width}
        handles.append(Line2D([], [], ls="none", label=label, marker=marker, ms=size, **style))

    dots, lines = drawing.drawing.dots, drawing.drawing.lines
    if any(dot.centre for dot in dots):
        mark("explained", 6, "white", palette.INK, 1.6)
    categories = {dot.category for dot in dots if dot.category is not None}
    for category in sorted(categories) if drawing.atoms is None else ():
        name = canvas.short(drawings.category_name(explanation, category), 24)
        marker = palette.shape_of(0 if explanation.hetero is None else category)
        fill = palette.mixed(palette.of_class(category), "#FFFFFF", 0.15)
        mark(name, 6.5, fill, palette.EDGE, 0.6, marker)
    bold = any(line.a in drawing.bold and line.b in drawing.bold for line in lines)
    if bold and not any(line.plays for line in lines):
        handles.append(Line2D([], [], color=palette.INK, lw=2.4, label="important part"))
    if any(patch.get_gid() == "interaction" for patch in ax.patches):
        for color, label in ((palette.FOR, "together more"), (palette.AGAINST, "together less")):
            handles.append(Line2D([], [], color=color, lw=3.2, alpha=0.85, label=label))
    groups = [dot for dot in dots if dot.count > 1]
    if groups:
        total = signed(math.fsum(dot.credit for dot in groups))
        count = sum(dot.count for dot in groups)
        mark(f"+{count} more nodes, together {total}", 7, _BUBBLE, palette.EDGE, 0.6)
    if handles:
        style: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01)}
        style |= {"borderaxespad": 0.0, "handletextpad": 0.7}
        style |= {"handlelength": 1.5, "columnspacing": 1.3}
        canvas.legend(ax, handles=handles, ncols=min(3, len(handles)), **style)
