"""Plots of the studies: convergence, dots with intervals, curves with bands, noise densities."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gaussian_kde

from graphsvx.errors import InputError
from graphsvx.results.ranking import Players, entries, scale_of
from graphsvx.utils.constraints import Positive, checks_arguments
from graphsvx.views import palette
from graphsvx.views.plot import canvas
from graphsvx.views.plot.bars import CONFIDENCE
from graphsvx.views.plot.many import Many

STYLES = ("-", "--", "-.", ":")
INKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8F99", "#1F2430")
"""Okabe and Ito's colours for lines on white, those of high contrast first."""
SMALLEST = 1e-4
"""Lower end of logarithmic axes of `dots` and `curves`; smaller values are drawn there."""
Band = tuple[float, float, float]
"""A value and the lower and upper end of its interval."""


@checks_arguments
def convergence(
    explanations: Many,
    ax: canvas.GivenAxes = None,
    *,
    players: Players = "all",
    top: canvas.Top = 6,
) -> Axes:
    """Credit against the number of model calls, with 95 % bands.

    `explanations` are of the same prediction with different budgets; shown are the `top` players
    of the one with the most calls.

    Raises:
        InputError: there are fewer than two explanations.

    """
    if len(explanations) < 2:
        raise InputError(f"expected two or more explanations, got {len(explanations)}")
    runs = sorted(explanations, key=lambda explanation: explanation.certificate.calls)
    calls = np.array([explanation.certificate.calls for explanation in runs], dtype=float)
    ax = canvas.axes(ax, 5.6, 3.6)
    canvas.quiet(ax, "both")
    tables = [{(e.kind, e.key): e for e in entries(explanation, players)} for explanation in runs]
    ends: list[tuple[float, str, str]] = []
    for i, best in enumerate(entries(runs[-1], players)[:top]):
        by_budget = [table.get((best.kind, best.key)) for table in tables]
        values = np.array([np.nan if e is None else e.credit for e in by_budget])
        errors = np.array([np.nan if e is None else e.error for e in by_budget]) * CONFIDENCE
        errors = np.nan_to_num(errors)
        colour = INKS[i % len(INKS)]
        ax.fill_between(calls, values - errors, values + errors, color=colour, alpha=0.16, lw=0)
        ax.plot(
            calls, values, color=colour, marker="o", ms=3, lw=1.5,
            linestyle=STYLES[i // len(INKS) % len(STYLES)], gid=best.name,
        )  # fmt: skip
        ends.append((float(values[-1]), best.name, colour))
    if calls[0] > 0 and calls[-1] / calls[0] > 4:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        if len(set(calls.tolist())) <= 8:
            ticks = sorted(set(calls.tolist()))
            ax.set_xticks(ticks, [f"{int(tick):,}" for tick in ticks])
    ax.axhline(0, color=palette.GREY, lw=0.8)
    _label_curves(ax, float(calls[-1]), ends)
    ax.set_xlabel("model calls", fontsize=canvas.SMALL)
    ax.set_ylabel(f"credit ({scale_of(runs[0])})", fontsize=canvas.SMALL)
    return ax


def _label_curves(ax: Axes, x: float, ends: list[tuple[float, str, str]]) -> None:
    """Write the names of curves next to their last points, moved apart where they overlap."""
    low, high = ax.get_ylim()
    least = (high - low) * 0.055
    order = sorted(ends)
    heights = [value for value, _, _ in order]
    for _ in range(200):
        for i, (below, above) in enumerate(pairwise(heights)):
            push = max(0.0, least - (above - below)) / 2
            heights[i] -= push
            heights[i + 1] += push
    for height, (_, name, colour) in zip(heights, order, strict=True):
        note = ax.annotate(
            canvas.short(name, 18), (x, height), xytext=(7, 0), textcoords="offset points",
            va="center", fontsize=canvas.TINY, color=colour, annotation_clip=False,
        )  # fmt: skip
        note.set_parse_math(False)


@checks_arguments
def noise_kde(
    counts: Mapping[str, ArrayLike],
    ax: canvas.GivenAxes = None,
    *,
    players: str = "features",
    bandwidth: Positive = 0.4,
) -> Axes:
    """Kernel density of the number of noisy `players` among each method's most important players.

    `counts` has, by method, one number for each explained sample. The bandwidth of the Gaussian
    kernel is at least `bandwidth`, so that a constant count is drawn as a narrow peak.

    Raises:
        InputError: there are no counts, or some are not finite.

    """
    if not counts:
        raise InputError("expected counts of at least one method, got none")
    ax = canvas.axes(ax, 5.2, 3.2)
    canvas.quiet(ax, "y")
    numbers = {
        name: canvas.numbers(samples, f"counts of {name!r}").ravel()
        for name, samples in counts.items()
    }
    for name, samples in numbers.items():
        if not len(samples) or not np.isfinite(samples).all():
            raise InputError(f"counts of {name!r} must be finite numbers, at least one")
    most = max(float(samples.max()) for samples in numbers.values())
    grid = np.linspace(-3 * bandwidth, most + 1 + 3 * bandwidth, 400)
    for i, (name, samples) in enumerate(numbers.items()):
        density = _density(samples, grid, bandwidth)
        colour = INKS[i % len(INKS)]
        ax.fill_between(grid, density, color=colour, alpha=0.12, lw=0)
        ax.plot(grid, density, color=colour, lw=1.7, linestyle=STYLES[i % len(STYLES)], label=name)
    ax.set_ylim(bottom=0)
    ax.set_xlim(grid[0], grid[-1])
    ax.set_xlabel(f"noisy {players} among the most important ones", fontsize=canvas.SMALL)
    ax.set_ylabel("density", fontsize=canvas.SMALL)
    box = ax.legend(frameon=False, fontsize=canvas.SMALL, handlelength=2.4)
    for entry in box.get_texts():
        entry.set_parse_math(False)
    return ax


def _density(
    samples: NDArray[np.float64], grid: NDArray[np.float64], least: float
) -> NDArray[np.float64]:
    """Gaussian kernel density of `samples` on `grid` with a bandwidth of at least `least`."""
    deviation = float(samples.std(ddof=1)) if len(samples) > 1 else 0.0
    if deviation > 0:
        kernel = gaussian_kde(samples)
        if kernel.factor * deviation < least:
            kernel = gaussian_kde(samples, bw_method=least / deviation)
        return np.asarray(kernel(grid))
    steps = (grid - samples[0]) / least
    return np.asarray(np.exp(-0.5 * steps**2) / (least * np.sqrt(2 * np.pi)))


def dots(
    lines: Mapping[str, Mapping[str, Mapping[str, Band]]],
    paper: Mapping[tuple[str, str, str], float] | None = None,
    log: Collection[str] = (),
) -> Figure:
    """A row of panels for each measure; each panel has a dot with its interval for each row.

    Args:
        lines: figures by measure, panel (a data set, say) and row (a method, say).
        paper: figures to compare with, by the same three, as diamonds.
        log: measures on a logarithmic axis.

    """
    rows = list(
        dict.fromkeys(r for line in lines.values() for panel in line.values() for r in panel)
    )
    figure, axes = _panels(lines, 1.8, 0.22 * len(rows) + 0.75, sharey=True, sharex="row")
    for (measure, name), (ax, panel) in axes.items():
        least = SMALLEST if measure in log else -np.inf
        for y, row in enumerate(reversed(rows)):
            colour = INKS[(len(rows) - 1 - y) % len(INKS)]
            if row in panel:
                middle, *ends = np.maximum(panel[row], least)
                ax.plot(ends, [y, y], color=colour, lw=1.6)
                ax.plot(middle, y, "o", color=colour, ms=5)
            if paper and (measure, name, row) in paper:
                ax.plot(paper[measure, name, row], y, "D", mfc="none", mec=INKS[7], ms=6)
        canvas.quiet(ax, "x")
        canvas.plain_ticks(ax, "y", [float(y) for y in range(len(rows))], rows[::-1])
        ax.set_ylim(-0.6, len(rows) - 0.4)
        ax.set(xscale="log" if measure in log else "linear")
        ax.set_xlabel(measure, fontsize=canvas.SMALL)
    return figure


def curves(
    lines: Mapping[str, Mapping[str, Mapping[str, Mapping[float, Band]]]],
    x_label: str,
    paper: Mapping[tuple[str, str], Mapping[float, float]] | None = None,
    log: Collection[str] = (),
) -> Figure:
    """A row of panels for each measure; each panel has curves with bands for their intervals.

    Args:
        lines: points by measure, panel, name of the curve and x.
        x_label: what the x axis shows; logarithmic if it is in `log`, as measures are.
        paper: points to compare with, by measure and panel, as diamonds.
        log: axes that are logarithmic.

    """
    figure, axes = _panels(lines, 2.5, 2.2, sharex=True, sharey="row")
    for (measure, name), (ax, panel) in axes.items():
        least = SMALLEST if measure in log else -np.inf
        for i, (label, points) in enumerate(panel.items()):
            middle, low, high = np.maximum(np.array(list(points.values())).reshape(-1, 3).T, least)
            ax.fill_between(list(points), low, high, color=INKS[i % 6], alpha=0.15, lw=0)
            ax.plot(list(points), middle, color=INKS[i % 6], marker="o", ms=3, lw=1.6,
                    linestyle=STYLES[i % 4], label=label)  # fmt: skip
        for x, y in ((paper or {}).get((measure, name)) or {}).items():
            ax.plot(x, y, "D", mfc="none", mec=INKS[7], ms=6)
        canvas.quiet(ax, "both")
        ax.set(xscale="log" if x_label in log else "linear",
               yscale="log" if measure in log else "linear")  # fmt: skip
        ax.set_xlabel(x_label, fontsize=canvas.SMALL)
        ax.set_ylabel(measure, fontsize=canvas.SMALL)
        ax.label_outer()
    return _with_legend(figure, axes)


def noise_panels(panels: Mapping[str, Mapping[str, ArrayLike]], players: str) -> Figure:
    """`noise_kde` in panels side by side, with one legend."""
    figure, axes = _panels({"": panels}, 3.4, 3.0)
    for ax, counts in axes.values():
        noise_kde(counts, ax, players=players)
        ax.get_legend().remove()
    return _with_legend(figure, axes)


_Axes = dict[tuple[str, str], tuple[Any, Any]]


def _panels(
    lines: Mapping[str, Mapping[str, Any]], width: float, height: float, **shared: Any
) -> tuple[Figure, _Axes]:
    """A figure, and its axes with the data to draw in them, by measure and panel.

    A row for each measure, or a single row where no two measures have a panel in common; what is
    shared by "row" is shared by the panels of a measure.
    """
    rows = [[(measure, name) for name in line if line[name]] for measure, line in lines.items()]
    names = [name for row in rows for _, name in row]
    if len(rows) > 1 and len(set(names)) == len(names):
        rows = [[panel for row in rows for panel in row]]
    by_measure = [axis for axis, sharing in shared.items() if sharing == "row"]
    shared |= dict.fromkeys(by_measure, False)
    columns = max(1, *map(len, rows))
    size = (width * columns + 2.2, height * len(rows) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False, **shared)
    panels: _Axes = {}
    titles: list[str] = []
    for line, row in zip(axes, rows, strict=True):
        for ax in line[len(row) :]:
            ax.set_visible(False)
        above, titles = titles, [name for _, name in row]
        for ax, (measure, name) in zip(line, row, strict=False):
            if titles != above:
                canvas.heading(ax, fill(name, int(10 * width)))
            panels[measure, name] = ax, lines[measure][name]
    for (measure, name), (ax, _) in panels.items():
        first = next(panel for panel in panels if panel[0] == measure)
        for axis in by_measure if name != first[1] else ():
            getattr(ax, axis)(panels[first][0])
    return figure, panels


def _with_legend(figure: Figure, axes: _Axes) -> Figure:
    by_label: dict[str, Any] = {}
    for ax, _ in axes.values():
        handles, labels = ax.get_legend_handles_labels()
        by_label |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(by_label.values()), list(by_label), loc="outside lower center",
        ncols=min(4, len(by_label)),
        frameon=False, fontsize=canvas.SMALL,
    )  # fmt: skip
    return figure
