"""Bar plot of credit with error bars, and waterfall plot from base value to prediction."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from graphsvx.core.arrays import Floats
from graphsvx.results import ranking
from graphsvx.results.describe import adds_up
from graphsvx.results.explanation import Explanation
from graphsvx.views import palette
from graphsvx.views.plot import canvas

CONFIDENCE = 1.96
"""Half width of error bars in standard errors (95 % interval of a normal distribution)."""


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
    line. ranking.Players whose interval holds 0 are summed; if that is so for all, bars are pale.
    """
    ranked = ranking.entries(explanation, players)
    groups = ranking.folds(explanation, players)
    alone = [group.entries[0] for group in groups if len(group.entries) == 1]
    leaders, rest = ranking.leading(ranking.without(ranked, alone), max(1, top - len(groups)))
    rest = [] if groups else rest
    shown: list[ranking.Entry | ranking.Fold] = [*groups, *leaders]
    rows = [(e.name, e.credit, e.error, _colour(e.credit, e.sure)) for e in shown]
    if rest:
        total = math.fsum(entry.credit for entry in rest)
        rows.append((f"{len(rest)} more together", total, 0.0, palette.GREY))
    height = 1.3 + 0.28 * max(2, len(rows))
    ax = canvas.axes(ax, 5.2, height, grid="x", title=explanation.title if title else "")
    if not ranked:
        ax.set(xticks=[], yticks=[])
        ax.grid(visible=False)
        ax.spines["bottom"].set_visible(False)
        style: dict[str, Any] = {"fontsize": 9, "color": palette.GREY, "transform": ax.transAxes}
        style |= {"ha": "center", "va": "center"}
        canvas.text(ax, 0.5, 0.5, "no players: nothing to share out", **style)
        return ax
    names, credits, standard_errors, colours = zip(*rows, strict=True)
    values = np.array(credits)
    errors = np.nan_to_num(CONFIDENCE * np.array(standard_errors), posinf=0.0)
    if groups:
        ax.axhline(len(groups) - 0.5, color=palette.PALE, lw=0.8, gid="groups")
    ax.barh(range(len(values)), values, color=colours, height=0.68)
    estimated = bool(errors.any())
    if estimated:
        style = {"fmt": "none", "ecolor": palette.INK, "gid": "errors"}
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
        members = ranking.without([*group.entries], shown)
        name = group.name if len(members) == len(group.entries) else f"others of {group.name}"
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
