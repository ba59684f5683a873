"""Bar plot of credit with error bars, and waterfall plot from base value to prediction."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import (
    Entry,
    Fold,
    Players,
    decimal,
    entries,
    folds,
    leading,
    scale_of,
    signed,
)
from graphsvx.utils.constraints import checks_arguments
from graphsvx.views import palette
from graphsvx.views.plot import canvas

CONFIDENCE = 1.96
"""Half width of error bars in standard errors (95 % interval of a normal distribution)."""


@checks_arguments
def bars(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    players: Players = "all",
    top: canvas.Top = 12,
    title: bool = True,
) -> Axes:
    """Bars of the `top` players by absolute credit, largest first, with 95 % intervals.

    Of more than 30 players the groups (rings or branches of nodes, features) come first, above a
    line. Players whose interval holds 0 are summed; if that is so for all, bars are pale.

    Args:
        explanation: what is shown.
        ax: axes to draw on; new ones by default.
        players: "all", "nodes", "features" or "edges".
        top: number of players that are shown.
        title: whether it is drawn.

    Returns:
        The axes.

    """
    ranked = entries(explanation, players)
    groups = folds(explanation, players)
    shown: list[Entry | Fold] = [*groups]
    alone = [group.entries[0] for group in groups if len(group.entries) == 1]
    others = [entry for entry in ranked if entry not in alone]
    leaders, rest = leading(others, max(1, top - len(groups)))
    shown += leaders
    rest = [] if groups else rest
    ax = canvas.axes(ax, 5.2, 1.3 + 0.28 * max(2, len(shown) + bool(rest)))
    canvas.quiet(ax)
    if title:
        canvas.heading(ax, explanation.title)
    if not ranked:
        return _no_players(ax)
    values = [entry.credit for entry in shown]
    names = [canvas.short(entry.name, 34) for entry in shown]
    colours = [_colour(entry.credit, entry.sure) for entry in shown]
    if rest:
        values.append(math.fsum(entry.credit for entry in rest))
        names.append(f"{len(rest)} more together")
        colours.append(palette.GREY)
    if groups:
        ax.axhline(len(groups) - 0.5, color=palette.PALE, lw=0.8, gid="groups")
    places = [float(i) for i in range(len(values))]
    ax.barh(places, values, color=colours, height=0.68)
    errors = [CONFIDENCE * entry.error for entry in shown]
    estimated = any(math.isfinite(error) and error > 0 for error in errors)
    if estimated:
        sizes = [error if math.isfinite(error) else 0.0 for error in errors]
        ax.errorbar(
            values[: len(shown)],
            places[: len(shown)],
            xerr=sizes,
            fmt="none",
            ecolor=palette.INK,
            elinewidth=1.1,
            capsize=2.5,
            capthick=1.1,
            gid="errors",
        )
    else:
        errors = [0.0] * len(shown)
    ax.axvline(0, color=palette.INK, lw=0.8)
    canvas.plain_ticks(ax, "y", places, names)
    ax.set_ylim(len(values) - 0.4, -0.6)
    reach = [*errors, *([0.0] * (len(values) - len(shown)))]
    _numbers(ax, values, [e if math.isfinite(e) else 0.0 for e in reach])
    ax.set_xlabel(_axis_label(explanation, estimated), fontsize=canvas.SMALL, color=palette.INK)
    return ax


def _colour(credit: float, sure: bool) -> str:
    """Red or blue; pale where the credit may be 0."""
    colour = palette.FOR if credit > 0 else palette.AGAINST
    return colour if sure else palette.mixed(colour, "#FFFFFF", 0.7)


def _numbers(ax: Axes, values: list[float], reach: list[float]) -> None:
    """Write the value at the end of each bar, and widen the axis to fit it."""
    low = min(0.0, *(v - r for v, r in zip(values, reach, strict=True)))
    high = max(0.0, *(v + r for v, r in zip(values, reach, strict=True)))
    span = (high - low) or 1.0
    figure = ax.get_figure(root=True)
    width = ax.get_window_extent().width / (figure.dpi if figure is not None else 72.0) * 72
    # A number is about 32 points long; names take up to 40 % of the width after layout.
    room = span * min(0.6, 36 / (0.6 * width))
    ax.set_xlim(low - (room if min(values) < 0 else 0.02 * span), high + room)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    for i, (value, error) in enumerate(zip(values, reach, strict=True)):
        right = value >= 0
        end = value + error if right else value - error
        canvas.text(
            ax,
            end + (0.02 if right else -0.02) * span,
            i,
            signed(value),
            va="center",
            ha="left" if right else "right",
            fontsize=canvas.TINY,
            color=palette.INK,
        )


def _axis_label(explanation: Explanation, estimated: bool) -> str:
    label = f"credit ({scale_of(explanation)})"
    return label + ", bars: 95 % interval" if estimated else label


def _no_players(ax: Axes) -> Axes:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
    canvas.text(
        ax,
        0.5,
        0.5,
        "no players: nothing to share out",
        transform=ax.transAxes,
        ha="center",
        va="center",
        fontsize=9,
        color=palette.GREY,
    )
    return ax


@checks_arguments
def waterfall(
    explanation: Explanation,
    ax: canvas.GivenAxes = None,
    *,
    players: Players = "all",
    top: canvas.Top = 10,
    title: bool = True,
) -> Axes:
    """Waterfall plot from the base value to the prediction, one step per player.

    The largest steps come first; players beyond `top`, those whose interval holds 0, and those of
    a kind that is not shown are summed, by group where there are many, so that the steps end at the
    prediction if credit adds up.

    Args:
        explanation: what is shown.
        ax: axes to draw on; new ones by default.
        players: "all", "nodes", "features" or "edges".
        top: number of players that are shown.
        title: whether it is drawn.

    Returns:
        The axes.

    """
    shown, _ = leading(entries(explanation, players), top)
    steps = [(entry.name, entry.credit) for entry in shown]
    hidden = _hidden(entries(explanation), shown)
    groups, summed = folds(explanation), set(hidden)
    for group in groups:
        members = [entry for entry in group.entries if entry in summed]
        name = group.name if len(members) == len(group.entries) else f"others of {group.name}"
        if members:
            steps.append((name, math.fsum(entry.credit for entry in members)))
    if hidden and not groups:
        steps.append((f"{len(hidden)} more together", math.fsum(e.credit for e in hidden)))
    residual = explanation.prediction - explanation.base - explanation.total
    scale = max(abs(explanation.prediction), abs(explanation.base), 1e-12)
    if abs(residual) > 1e-4 * scale:
        steps.append(("not accounted for", residual))
    ax = canvas.axes(ax, 5.6, 1.6 + 0.3 * (len(steps) + 2))
    canvas.quiet(ax)
    if title:
        canvas.heading(ax, explanation.title)
    level = explanation.base
    stops = [level]
    for i, (name, credit) in enumerate(steps, start=1):
        colour = palette.FOR if credit >= 0 else palette.AGAINST
        colour = palette.GREY if name == "not accounted for" else colour
        ax.barh(i, credit, left=level, color=colour, height=0.66)
        level += credit
        ax.plot([level, level], [i - 0.33, i + 1.33], color=palette.GREY, lw=0.7, zorder=0)
        stops.append(level)
    last = len(steps) + 1
    low, high = min(stops), max(stops)
    span = (high - low) or abs(high) or 1.0
    # Base and prediction are drawn from the left border; only the steps between them have a scale.
    floor = 0.0 if low >= 0 and low < 2 * span else low - 0.25 * span
    ax.barh(
        [0, last],
        [explanation.base - floor, explanation.prediction - floor],
        left=floor,
        color=[palette.PALE, palette.GREY],
        height=0.66,
    )
    ax.plot([explanation.base] * 2, [-0.33, 1.33], color=palette.GREY, lw=0.7, zorder=0)
    right = high + 0.2 * (high - floor)
    ax.set_xlim(floor, right)
    labels = ["base", *(canvas.short(name, 34) for name, _ in steps), "prediction"]
    canvas.plain_ticks(ax, "y", [float(i) for i in range(last + 1)], labels)
    for side in (0, -1):
        ax.get_yticklabels()[side].set_fontweight("bold")
    ax.set_ylim(last + 0.6, -0.6)
    pad = 0.015 * (right - floor)
    ends = [explanation.base, *map(max, stops, stops[1:]), explanation.prediction]
    numbers = [
        decimal(explanation.base),
        *(signed(c) for _, c in steps),
        decimal(explanation.prediction),
    ]
    for i, (end, number) in enumerate(zip(ends, numbers, strict=True)):
        canvas.text(ax, end + pad, i, number, va="center", fontsize=canvas.TINY, color=palette.INK)
    ax.set_xlabel(scale_of(explanation), fontsize=canvas.SMALL, color=palette.INK)
    return ax


def _hidden(entries: list[Entry], shown: list[Entry]) -> list[Entry]:
    seen = {(entry.kind, entry.key) for entry in shown}
    return [entry for entry in entries if (entry.kind, entry.key) not in seen]
