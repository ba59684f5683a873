"""Heat maps of cells (features of nodes) and of interactions, and interactions as a network."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from graphsvx.core.arrays import Floats
from graphsvx.errors import InputError
from graphsvx.results.credit import Interactions
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import cell_table, signed
from graphsvx.utils.constraints import Range
from graphsvx.views import palette
from graphsvx.views.plot import canvas

# Pairs with a smaller share of the strongest interaction are not drawn as curves.
_WEAK = 0.08
Pairs = Annotated[int, Range(2)]
"""How many players are shown."""


@canvas.plot()
def interaction_heatmap(
    explanation: Explanation, ax: canvas.GivenAxes = None, *, top: Pairs = 12, title: bool = True
) -> Axes:
    """Matrix of the interactions of pairs among the `top` players with the strongest ones."""
    record, players, names, values = _strongest(explanation, top)
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    np.fill_diagonal(values, np.nan)
    side = 1.6 + 0.34 * len(players)
    ax = canvas.axes(ax, side + 1.0, side, **_heading(explanation, record, title))
    canvas.matrix(ax, values, largest, names, names, f"{record.index} of pairs")
    return ax


@canvas.plot()
def network(
    explanation: Explanation, ax: canvas.GivenAxes = None, *, top: Pairs = 12, title: bool = True
) -> Axes:
    """Players on a circle, coloured by their own value, and curves between those that interact."""
    record, players, names, pairs = _strongest(explanation, top)
    single, alone = np.zeros(len(explanation.player_names)), record.sizes == 1
    single[record.members[0, alone].numpy()] = record.values[explanation.row, alone].numpy()
    ax = canvas.axes(ax, 5.2, 5.0, **_heading(explanation, record, title))
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(players)) / max(1, len(players))
    places = np.stack([np.cos(angles), np.sin(angles)], 1)
    largest = float(np.abs(pairs).max(initial=0.0)) or 1.0
    order = np.argsort(np.abs(pairs), axis=None)
    for i, j in zip(*np.unravel_index(order, pairs.shape), strict=True):
        if i < j and abs(pairs[i, j]) > _WEAK * largest:
            curve(ax, places[i], places[j], float(pairs[i, j]), largest, bend=0.12)
    weight = np.abs(single[players])
    most = float(weight.max(initial=0.0)) or 1.0
    colours = [palette.of_credit(float(single[player]), most) for player in players]
    style: dict[str, Any] = {"edgecolors": palette.EDGE, "linewidths": 0.7, "zorder": 3}
    ax.scatter(places[:, 0], places[:, 1], s=60 + 260 * weight / most, c=colours, **style)
    for name, (x, y) in zip(names, places, strict=True):
        side = "center" if abs(x) < 0.2 else "left" if x > 0 else "right"
        height = "center" if abs(x) >= 0.2 else "bottom" if y > 0 else "top"
        canvas.text(ax, 1.14 * x, 1.14 * y, name, ha=side, va=height, fontsize=canvas.SMALL)
    ax.set(xlim=(-1.7, 1.7), ylim=(-1.3, 1.3), aspect="equal")
    ax.set_axis_off()
    return ax


def curve(
    ax: Axes, a: np.ndarray, b: np.ndarray, value: float, largest: float, bend: float = 0.3
) -> None:
    """A curve between two players, coloured and wide by their interaction."""
    share = min(1.0, abs(value) / largest) if largest else 0.0
    strong = palette.FOR if value > 0 else palette.AGAINST
    style: dict[str, Any] = {"arrowstyle": "-", "connectionstyle": f"arc3,rad={bend}"}
    style |= {"lw": 0.6 + 4.4 * share, "alpha": 0.85, "zorder": 2, "capstyle": "round"}
    colour = palette.mixed(palette.PALE, strong, 0.3 + 0.7 * share)
    ax.add_patch(FancyArrowPatch(tuple(a), tuple(b), color=colour, gid="interaction", **style))


def _heading(explanation: Explanation, record: Interactions, title: bool) -> dict[str, str]:
    status = "exact" if record.exact else "estimated"
    left = f", {record.left_out} players left out" if record.left_out else ""
    below = f"{record.index} of pairs, {status}{left}: red adds, blue takes away"
    return {"title": explanation.title, "below": below} if title else {}


def _strongest(
    explanation: Explanation, top: int
) -> tuple[Interactions, list[int], list[str], Floats]:
    """Players of the strongest pairs, by position, their names and values [players, players]."""
    record = explanation.interactions
    if record is None or not bool((record.sizes == 2).any()):
        raise InputError(
            "this explanation has no interactions of pairs; explain with method=GraphSVX(order=2)"
        )
    by_strength = [player for pair in explanation.together() for player in pair.positions]
    players = sorted([*dict.fromkeys(by_strength)][:top])
    names = explanation.player_names
    values = record.matrix(explanation.row, len(names)).numpy()[np.ix_(players, players)]
    return record, players, [canvas.short(names[player], 18) for player in players], values


@canvas.plot(features="number of columns.")
def cell_heatmap(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    features: canvas.Top = 12,
    title: bool = True,
) -> Axes:
    """Matrix of the credit of features of nodes: rows are nodes, columns presence and features.

    The first row is the explained node's own features. Columns are the `features` with the largest
    credit; all others of a node are summed in the last one. Cells whose interval holds 0 are pale
    and without a number; a node has no cell where the square is empty.

    Raises:
        InputError: no cells play; explain with `players="cells"`.

    """
    table = cell_table(explanation, features)
    values, sure, largest = table.values, table.sure, table.largest
    rows, columns = values.shape
    title_words = explanation.title if title else ""
    ax = canvas.axes(ax, 2.6 + 0.5 * columns, 1.7 + 0.3 * rows, title=title_words)
    shown = np.where(sure, values, 0.15 * values)
    names, label = (table.row_names, table.column_names), canvas.credit_label(explanation)
    canvas.matrix(ax, shown, largest, *names, label, aspect="auto", gid="cells")
    for i, j in zip(*np.nonzero(sure & (np.abs(values) >= 0.1 * largest)), strict=True):
        value = float(values[i, j])
        words = signed(value, 2 if largest >= 0.1 else 3)
        ink = palette.ink_on(palette.of_credit(value, largest))
        canvas.text(ax, float(j), float(i), words, ha="center", va="center", color=ink)
    ax.set_facecolor("#FFFFFF")
    ax.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#FFFFFF", lw=1.5)
    ax.tick_params(which="minor", length=0)
    return ax
