"""Plots of one explanation: bars, a waterfall, heat maps of cells and interactions, a network."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import MaxNLocator

from graphsvx.core.arrays import Floats
from graphsvx.errors import InputError
from graphsvx.results import ranking
from graphsvx.results.credit import Interactions
from graphsvx.results.describe import adds_up
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Range
from graphsvx.views import palette
from graphsvx.views.plot import canvas

CONFIDENCE = 1.96
"""Half width of error bars in standard errors (95 % interval of a normal distribution)."""
# Pairs with a smaller share of the strongest interaction are not drawn as curves.
_WEAK = 0.08
Pairs = Annotated[int, Range(2)]
"""How many players are shown."""


@canvas.plot()
def bars(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    players: ranking.Players = "all",
    top: canvas.Top = 12,
    title: bool = True,
) -> Axes:
    """Bars of the `top` players by absolute credit, largest first, with 95 % intervals.

    Of more than 30 players the groups (rings or branches of nodes, features) come first, above a
    line. Players whose interval holds 0 are summed; if that is so for all, bars are pale.
    """
    ranked = ranking.entries(explanation, players)
    groups = ranking.folds(explanation, players)
    alone = [group.members[0] for group in groups if len(group.members) == 1]
    leaders, rest = ranking.leading(ranking.without(ranked, alone), max(1, top - len(groups)))
    rest = [] if groups else rest
    shown: list[ranking.Entry] = [*groups, *leaders]
    rows = [(e.name, e.credit, e.error, _colour(e.credit, e.sure)) for e in shown]
    if rest:
        total = math.fsum(entry.credit for entry in rest)
        rows.append((f"{len(rest)} more together", total, 0.0, palette.GREY))
    height = 1.3 + 0.28 * max(2, len(rows))
    ax = canvas.axes(ax, 5.2, height, grid="x", title=explanation.title if title else "")
    if not ranked:
        ax.set_axis_off()
        place: dict[str, Any] = {"transform": ax.transAxes, "ha": "center", "va": "center"}
        words = "no players: nothing to share out"
        canvas.text(ax, 0.5, 0.5, words, fontsize=9, color=palette.GREY, **place)
        return ax
    names, credits, standard_errors, colours = zip(*rows, strict=True)
    values = np.array(credits)
    errors = np.nan_to_num(CONFIDENCE * np.array(standard_errors), posinf=0.0)
    if groups:
        ax.axhline(len(groups) - 0.5, color=palette.PALE, lw=0.8, gid="groups")
    ax.barh(range(len(values)), values, color=colours, height=0.68)
    estimated = bool(errors.any())
    if estimated:
        style: dict[str, Any] = {"fmt": "none", "ecolor": palette.INK, "gid": "errors"}
        style |= {"elinewidth": 1.1, "capsize": 2.5, "capthick": 1.1}
        several = slice(len(shown))
        ax.errorbar(values[several], range(len(shown)), xerr=errors[several], **style)
    ax.axvline(0, color=palette.INK, lw=0.8)
    canvas.tick_names(ax, names, most=34)
    ax.set_ylim(len(values) - 0.4, -0.6)
    _numbers(ax, values, errors)
    label = canvas.credit_label(explanation)
    canvas.axis_label(ax, f"{label}, bars: 95 % interval" if estimated else label)
    return ax


def _colour(credit: float, sure: bool) -> str:
    """Red or blue; pale where the credit may be 0."""
    colour = palette.FOR if credit >= 0 else palette.AGAINST
    return colour if sure else palette.mixed(colour, "#FFFFFF", 0.7)


def _numbers(ax: Axes, values: Floats, reach: Floats) -> None:
    """Write the value at the end of each bar, and widen the axis to fit it."""
    low, high = min(0.0, (values - reach).min()), max(0.0, (values + reach).max())
    span = (high - low) or 1.0
    # A number is about 32 points long; names take up to 40 % of the width after layout.
    room = span * min(0.6, 36 / (0.6 * canvas.size_in_points(ax)[0]))
    ax.set_xlim(low - (room if values.min() < 0 else 0.02 * span), high + room)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    for i, (value, error) in enumerate(zip(values.tolist(), reach.tolist(), strict=True)):
        side, align = (1, "left") if value >= 0 else (-1, "right")
        end = value + side * (error + 0.02 * span)
        canvas.text(ax, end, i, ranking.signed(value), va="center", ha=align)


@canvas.plot()
def waterfall(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    players: ranking.Players = "all",
    top: canvas.Top = 10,
    title: bool = True,
) -> Axes:
    """Waterfall plot from the base value to the prediction, one step per player.

    The largest steps come first; players beyond `top`, those whose interval holds 0, and those of
    a kind that is not shown are summed, by group where there are many, so that the steps end at the
    prediction if credit adds up.
    """
    shown, _ = ranking.leading(ranking.entries(explanation, players), top)
    steps = [(entry.name, entry.credit) for entry in shown]
    hidden = ranking.without(ranking.entries(explanation), shown)
    groups = ranking.folds(explanation)
    for group in groups:
        members = ranking.without([*group.members], shown)
        name = group.name if len(members) == len(group.members) else f"others of {group.name}"
        if members:
            steps.append((name, math.fsum(entry.credit for entry in members)))
    if hidden and not groups:
        steps.append((f"{len(hidden)} more together", math.fsum(e.credit for e in hidden)))
    base, prediction = explanation.base, explanation.prediction
    if not adds_up(explanation):
        steps.append(("not accounted for", prediction - base - explanation.total))
    height = 1.6 + 0.3 * (len(steps) + 2)
    ax = canvas.axes(ax, 5.6, height, grid="x", title=explanation.title if title else "")
    credits = [credit for _, credit in steps]
    stops = [*accumulate(credits, initial=base)]
    last = len(steps) + 1
    low, high = min(stops), max(stops)
    span = (high - low) or abs(high) or 1.0
    # Base and prediction are drawn from the left border; only the steps between them have a scale.
    floor = 0.0 if low >= 0 and low < 2 * span else low - 0.25 * span
    colours = [
        palette.GREY if name == "not accounted for" else _colour(credit, sure=True)
        for name, credit in steps
    ]
    ends = [base - floor, prediction - floor]
    ax.barh(range(1, last), credits, left=stops[:-1], color=colours, height=0.66)
    ax.barh([0, last], ends, left=floor, color=[palette.PALE, palette.GREY], height=0.66)
    starts = np.arange(last) - 0.33
    style: dict[str, Any] = {"lw": 0.7, "zorder": 0, "capstyle": "projecting"}
    ax.vlines(stops, starts, starts + 1.66, palette.GREY, **style)
    right = high + 0.2 * (high - floor)
    ax.set_xlim(floor, right)
    canvas.tick_names(ax, ["base", *(name for name, _ in steps), "prediction"], most=34)
    for side in (0, -1):
        ax.get_yticklabels()[side].set_fontweight("bold")
    ax.set_ylim(last + 0.6, -0.6)
    pad = 0.015 * (right - floor)
    ends = [base, *map(max, stops, stops[1:]), prediction]
    numbers = [ranking.decimal(base), *map(ranking.signed, credits), ranking.decimal(prediction)]
    for i, (end, number) in enumerate(zip(ends, numbers, strict=True)):
        canvas.text(ax, end + pad, i, number, va="center")
    canvas.axis_label(ax, ranking.scale_of(explanation))
    return ax


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
    table = ranking.cell_table(explanation, features)
    values, sure, largest = table.values, table.sure, table.largest
    rows, columns = values.shape
    title_words = explanation.title if title else ""
    ax = canvas.axes(ax, 2.6 + 0.5 * columns, 1.7 + 0.3 * rows, title=title_words)
    shown = np.where(sure, values, 0.15 * values)
    names, label = (table.row_names, table.column_names), canvas.credit_label(explanation)
    canvas.matrix(ax, shown, largest, *names, label, aspect="auto", gid="cells")
    for i, j in zip(*np.nonzero(sure & (np.abs(values) >= 0.1 * largest)), strict=True):
        value = float(values[i, j])
        words = ranking.signed(value, 2 if largest >= 0.1 else 3)
        ink = palette.ink_on(palette.of_credit(value, largest))
        canvas.text(ax, float(j), float(i), words, ha="center", va="center", color=ink)
    ax.set_facecolor("#FFFFFF")
    ax.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#FFFFFF", lw=1.5)
    ax.tick_params(which="minor", length=0)
    return ax
