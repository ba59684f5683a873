"""Pictures for pages: parts of a whole, estimates and graphs side by side (needs matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from graphsvx import palette, plot
from graphsvx.explanation import Explanation
from graphsvx.plot import canvas
from graphsvx.plot.study import INKS
from graphsvx.studies.estimate import Estimate

_REST = "#C9CDD4"


def stacked(
    parts: Mapping[str, Mapping[str, float]], label: str, first_is_rest: bool = False
) -> Figure:
    """One bar a row, its parts one after the other; parts below 0 go to the left.

    `first_is_rest`: the first part is drawn in grey.
    """
    figure = Figure(figsize=(6.6, 0.42 * len(parts) + 1.1), layout="constrained")
    ax = figure.add_subplot()
    canvas.quiet(ax, "x")
    names = list(dict.fromkeys(name for row in parts.values() for name in row))
    colours = dict(zip(names, (_REST, *INKS) if first_is_rest else INKS, strict=False))
    for place, row in enumerate(parts.values()):
        ends = {True: 0.0, False: 0.0}
        for name, part in row.items():
            up = part >= 0
            ax.barh(place, part, left=ends[up], height=0.64, color=colours[name], lw=0)
            if abs(part) > 0.05:
                ax.text(
                    ends[up] + part / 2, place, f"{100 * part:.0f} %", ha="center", va="center",
                    fontsize=canvas.TINY, color=palette.INK if colours[name] == _REST else "white",
                )  # fmt: skip
            ends[up] += part
    for name in names:
        ax.barh(0, 0, color=colours[name], label=name)
    canvas.plain_ticks(ax, "y", [float(i) for i in range(len(parts))], list(parts))
    ax.invert_yaxis()
    ax.axvline(0, color=palette.GREY, lw=0.8)
    ax.set_xlabel(label, fontsize=canvas.SMALL)
    figure.legend(
        loc="outside upper center", ncols=min(len(names), 5), frameon=False, fontsize=canvas.SMALL
    )
    return figure


def grouped(
    values: Mapping[str, Mapping[str, Estimate | float]],
    label: str,
    paper: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Groups of bars with their intervals; the paper's figure of a group as a dashed line."""
    names = list(dict.fromkeys(name for row in values.values() for name in row))
    figure = Figure(
        figsize=(min(7.6, max(4.6, 1.7 * len(values) + 0.8)), 3.3), layout="constrained"
    )
    ax = figure.add_subplot()
    canvas.quiet(ax, "y")
    width = 0.8 / len(names)
    for which, name in enumerate(names):
        places = [i for i, row in enumerate(values.values()) if name in row]
        found = [row[name] for row in values.values() if name in row]
        heights = [one.mean if isinstance(one, Estimate) else one for one in found]
        reach = [one.reach if isinstance(one, Estimate) else 0.0 for one in found]
        ax.bar(
            np.asarray(places) - 0.4 + width * (which + 0.5), heights, width * 0.92,
            color=INKS[which % len(INKS)], label=name, lw=0,
            yerr=np.nan_to_num(reach), error_kw={"ecolor": palette.INK, "elinewidth": 0.9},
        )  # fmt: skip
    for i, title in enumerate(values):
        if paper and title in paper:
            ax.hlines(
                paper[title], i - 0.45, i + 0.45, color=palette.INK, ls="--", lw=1.1,
                label="the paper" if title == next(iter(paper)) else "",
            )  # fmt: skip
    canvas.plain_ticks(ax, "x", [float(i) for i in range(len(values))], list(values))
    ax.set_ylabel(label, fontsize=canvas.SMALL)
    if limits is not None:
        ax.set_ylim(*limits)
    figure.legend(
        loc="outside upper center", ncols=min(len(names) + bool(paper), 4), frameon=False,
        fontsize=canvas.SMALL,
    )  # fmt: skip
    return figure


def side_by_side(explanations: Mapping[str, Explanation]) -> Figure:
    """Explanation graphs with one colour scale."""
    figure = Figure(figsize=(5 * len(explanations), 4.4), layout="constrained")
    largest = max(float(one.node_values.abs().max()) for one in explanations.values())
    places = figure.subplots(1, len(explanations), squeeze=False)[0]
    for ax, (words, one) in zip(places, explanations.items(), strict=True):
        last = ax is places[-1]
        plot.graph(one, ax, title=False, largest=largest, legend=False, colorbar=last)
        canvas.heading(ax, words)
    # Twice: where the graphs' boxes end is known only after they have been laid out once.
    figure.draw_without_rendering()
    return figure
