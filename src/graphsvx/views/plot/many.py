"""Plots of many explanations: beeswarm, heat map, shares, convergence and noise densities."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike
from scipy.stats import norm

from graphsvx.core.arrays import Floats
from graphsvx.errors import InputError
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import feature_inputs
from graphsvx.results.ranking import Entry, Player, Players, entries, listed, scale_of
from graphsvx.results.summary import Summary
from graphsvx.utils.constraints import Converted, Positive, shown
from graphsvx.views import palette
from graphsvx.views.plot import canvas
from graphsvx.views.plot.charts import CONFIDENCE

STYLES = ("-", "--", "-.", ":")
INKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8F99", "#1F2430")
"""Okabe and Ito's colours for lines on white, those of high contrast first."""
PARTS = {
    "base": palette.PALE,
    "motif": "#009E73",
    "other nodes": "#E69F00",
    "features": "#CC79A7",
    "edges": "#56B4E9",
}
"""What a prediction consists of, and its colours."""
LEVELS = LinearSegmentedColormap.from_list("levels", ["#3B4CC0", "#B9A7D6", "#E66101"])


def _listed(explanations: Any, name: str) -> Sequence[Explanation]:
    if isinstance(explanations, Summary):
        raise InputError(
            "expected a list of explanations, got a Summary of them; give the explanations "
            "themselves"
        )
    many = isinstance(explanations, Sequence)
    if not many or not all(isinstance(entry, Explanation) for entry in explanations):
        raise InputError(f"{name} must be a list of explanations, got {shown(explanations)}")
    if not explanations:
        raise InputError("expected at least one explanation, got none")
    return explanations


Many = Annotated[Sequence[Explanation], Converted(_listed)]


def _matrix(
    explanations: Sequence[Explanation], players: Players, top: int
) -> tuple[list[Player], Floats]:
    """Players and credit [players, explanations], by decreasing sum of absolute credit."""
    columns = [_by_player(explanation, players) for explanation in explanations]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    rows = [[column[key].credit if key in column else np.nan for column in columns] for key in keys]
    credit = np.array(rows).reshape(len(keys), len(explanations))
    order = np.argsort(-np.nansum(np.abs(credit), axis=1), kind="stable")[:top]
    return [keys[i] for i in order], credit[order]


def _by_player(explanation: Explanation, players: Players) -> dict[Player, Entry]:
    return {entry.player: entry for entry in entries(explanation, players)}


def _labels(labels: Sequence[str] | None, default: Sequence[str]) -> Sequence[str]:
    """One for each explanation."""
    if labels is not None and len(labels) != len(default):
        raise InputError(f"expected {len(default)} labels, got {len(labels)}")
    return labels or default


@canvas.plot(
    inputs="values that colour a feature's dots from low to high, [explanations, columns of x].",
    data="the explained graph, or a list of graphs, to take these values from.",
)
def beeswarm(
    explanations: Many,
    ax: canvas.GivenAxes = None,
    *,
    players: Players = "features",
    top: canvas.Top = 12,
    inputs: ArrayLike | None = None,
    data: Any = None,
    colorbar: bool = True,
) -> Axes:
    """Beeswarm plot: one dot per explanation and player, at its credit.

    Raises:
        InputError: `inputs` does not have a row for each explanation.

    """
    if data is not None:
        inputs = feature_inputs(explanations, data)
    levels = None if inputs is None else canvas.numbers(inputs, "inputs")
    if levels is not None and (levels.ndim != 2 or len(levels) != len(explanations)):
        raise InputError(
            f"inputs must be [explanations, features] with {len(explanations)} rows, "
            f"got {list(levels.shape)}"
        )
    keys, credit = _matrix(explanations, players, top)
    ax = canvas.axes(ax, 5.6, 1.3 + 0.34 * max(2, len(keys)), grid="x")
    ax.axvline(0, color=palette.GREY, lw=0.9)
    for i, ((kind, key, _), row) in enumerate(zip(keys, credit, strict=True)):
        present = np.isfinite(row)
        heights = i + _spread(row[present])
        colours: Any = [palette.FOR if v > 0 else palette.AGAINST for v in row[present]]
        if levels is not None and kind == "feature":
            column = levels[:, key[0]]
            colours = LEVELS((column[present] - column.min()) / (np.ptp(column) or 1.0))
        ax.scatter(row[present], heights, s=11, c=colours, linewidths=0, alpha=0.85, zorder=3)
    canvas.tick_names(ax, [name for _, _, name in keys])
    ax.set_ylim(len(keys) - 0.5, -0.5)
    canvas.axis_label(ax, canvas.credit_label(explanations[0]))
    if levels is not None and colorbar:
        shades = ScalarMappable(Normalize(0, 1), LEVELS)
        bar = canvas.colorbar(ax, shades, "the feature's value", shrink=0.6, aspect=22)
        bar.set_ticks([0, 1], labels=["low", "high"])
        bar.ax.yaxis.labelpad = -8
    return ax


def _spread(values: Floats, bins: int = 60, width: float = 0.38) -> Floats:
    """Vertical offsets that separate dots of similar value, symmetric about 0."""
    if len(values) == 0:
        return values
    span = float(np.ptp(values)) or 1.0
    box = np.floor((values - values.min()) / span * (bins - 1)).astype(int)
    height = np.zeros(len(values))
    deepest = int(np.bincount(box).max())
    for b in np.unique(box):
        inside = np.flatnonzero(box == b)
        step = np.arange(len(inside))
        height[inside] = (step + 1) // 2 * np.where(step % 2, 1, -1)
    return height * min(0.12, width / max(1, deepest / 2))


@canvas.plot()
def heatmap(
    explanations: Many,
    ax: canvas.GivenAxes = None,
    *,
    players: Players = "features",
    top: canvas.Top = 15,
    labels: Sequence[str] | None = None,
    colorbar: bool = True,
) -> Axes:
    """Credit of the most important players (rows) in every explanation (columns).

    Raises:
        InputError: there is not one label for each explanation.

    """
    keys, credit = _matrix(explanations, players, top)
    columns = len(explanations)
    centres = enumerate(explanation.centres for explanation in explanations)
    words = _labels(labels, [str(ids[0] if len(ids) == 1 else i) for i, ids in centres])
    ax = canvas.axes(ax, 2.2 + min(7.0, max(3.0, 0.22 * columns)), 1.3 + 0.26 * len(keys))
    # Hatched where an explanation does not have the player, which differs from credit 0.
    ax.patch.set(facecolor="#FFFFFF", edgecolor=palette.PALE, hatch="//////", linewidth=0)
    scale = (float(np.nanmax(np.abs(credit))) if np.isfinite(credit).any() else 0.0) or 1.0
    image = canvas.shades(ax, credit, scale, aspect="auto", interpolation="nearest")
    canvas.tick_names(ax, [name for _, _, name in keys])
    step = max(1, math.ceil(columns / 24))
    canvas.tick_names(ax, words, "x", 14, step)
    long = max(map(len, words[::step]), default=0) > 2
    ax.tick_params(length=0, labelsize=canvas.TINY)
    ax.tick_params(axis="x", labelrotation=90 if long and columns > 14 * step else 0)
    ax.spines[:].set_visible(False)
    canvas.axis_label(ax, "explanation")
    if colorbar:
        canvas.colorbar(ax, image, canvas.credit_label(explanations[0]), shrink=0.8, aspect=24)
    return ax


@canvas.plot(motif="node ids, for all explanations or one collection for each.")
def share(
    explanations: Many,
    motif: Collection[int] | Sequence[Collection[int]],
    ax: canvas.GivenAxes = None,
    *,
    labels: Sequence[str] | None = None,
) -> Axes:
    """Stacked bars of the prediction: base value, motif nodes, other nodes, features, edges.

    Parts with negative credit extend to the left of 0.

    Raises:
        InputError: there is no explanation, or not one label for each.

    """
    motifs = _motifs(explanations, motif)
    words = _labels(labels, [explanation.title for explanation in explanations])
    parts = [_parts(e, nodes) for e, nodes in zip(explanations, motifs, strict=True)]
    rows = range(len(parts))
    ax = canvas.axes(ax, 6.0, 1.35 + 0.34 * len(parts), grid="x")
    left, right = np.zeros(len(parts)), np.zeros(len(parts))
    for part, colour in PARTS.items():
        sizes = np.array([row[part] for row in parts])
        if not np.abs(sizes).any():
            continue
        start = np.where(sizes >= 0, right, left)
        ax.barh(rows, sizes, left=start, color=colour, height=0.62, label=part)
        right += np.maximum(sizes, 0)
        left += np.minimum(sizes, 0)
    predictions = [explanation.prediction for explanation in explanations]
    style: dict[str, Any] = {"marker": "|", "s": 160, "linewidths": 2, "color": palette.INK}
    ax.scatter(predictions, rows, label="prediction", zorder=4, **style)
    ax.axvline(0, color=palette.INK, lw=0.8)
    canvas.tick_names(ax, words)
    ax.set_ylim(len(parts) - 0.45, -0.55)
    canvas.axis_label(ax, scale_of(explanations[0]))
    handles, _ = ax.get_legend_handles_labels()
    handles = sorted(handles, key=lambda handle: handle.get_label() == "prediction")
    style = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 6, "borderaxespad": 0.2}
    canvas.legend(ax, handles=handles, handlelength=1.1, columnspacing=1.2, **style)
    return ax


def _motifs(
    explanations: Sequence[Explanation], motif: Collection[int] | Sequence[Collection[int]]
) -> list[set[int]]:
    entries: list[Any] = list(motif)
    if all(isinstance(node, int) for node in entries):
        return [set(entries)] * len(explanations)
    if len(entries) != len(explanations):
        raise InputError(
            f"motif must be node ids, or one collection of node ids for each of the "
            f"{len(explanations)} explanations; got {len(entries)} collections"
        )
    try:
        return [set(node_ids) for node_ids in entries]
    except TypeError as error:
        raise InputError(f"motif must be node ids, got {shown(motif)}") from error


def _parts(explanation: Explanation, motif: set[int]) -> dict[str, float]:
    sums = dict.fromkeys(PARTS, 0.0) | {"base": explanation.base}
    for entry in listed(explanation):
        part = f"{entry.kind}s"
        if entry.kind == "node":
            part = "motif" if entry.key[0] in motif else "other nodes"
        sums[part] += entry.credit
    return sums


@canvas.plot()
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
    ax = canvas.axes(ax, 5.6, 3.6, grid="both")
    tables = [_by_player(explanation, players) for explanation in runs]
    ends: list[tuple[float, str, str]] = []
    for i, (key, best) in enumerate(list(tables[-1].items())[:top]):
        by_budget = [table.get(key) for table in tables]
        points = [(np.nan, np.nan) if e is None else (e.credit, e.error) for e in by_budget]
        values, errors = np.array(points).T
        errors = np.nan_to_num(errors) * CONFIDENCE
        colour, style = INKS[i % len(INKS)], STYLES[i // len(INKS) % len(STYLES)]
        ax.fill_between(calls, values - errors, values + errors, color=colour, alpha=0.16, lw=0)
        ax.plot(
            calls, values, color=colour, marker="o", ms=3, lw=1.5, linestyle=style, gid=best.name
        )
        ends.append((float(values[-1]), best.name, colour))
    if calls[0] > 0 and calls[-1] / calls[0] > 4:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
        ticks = sorted(set(calls.tolist()))
        if len(ticks) <= 8:
            ax.set_xticks(ticks, [f"{int(tick):,}" for tick in ticks])
    ax.axhline(0, color=palette.GREY, lw=0.8)
    _label_curves(ax, float(calls[-1]), ends)
    canvas.axis_label(ax, "model calls")
    canvas.axis_label(ax, canvas.credit_label(runs[0]), "y")
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
        style = {"va": "center", "color": colour, "annotation_clip": False}
        canvas.note_at(ax, canvas.short(name, 18), (x, height), (7, 0), **style)


@canvas.plot(
    counts="by method, one number for each explained sample.",
    players="their name, for the label of the axis.",
    bandwidth="in players.",
)
def noise_kde(
    counts: Mapping[str, ArrayLike],
    ax: canvas.GivenAxes = None,
    *,
    players: str = "features",
    bandwidth: Positive = 0.4,
) -> Axes:
    """Kernel density of the number of noisy `players` among each method's most important players.

    The bandwidth of the Gaussian kernel is at least `bandwidth`, so that a constant count is drawn
    as a narrow peak.

    Raises:
        InputError: there are no counts, or some are not finite.

    """
    if not counts:
        raise InputError("expected counts of at least one method, got none")
    ax = canvas.axes(ax, 5.2, 3.2, grid="y")
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
        deviation = float(samples.std(ddof=1)) if len(samples) > 1 else 0.0
        width = max(bandwidth, deviation * len(samples) ** -0.2)  # Scott's rule
        density = norm.pdf(grid[:, None], samples, width).mean(1)
        colour = INKS[i % len(INKS)]
        ax.fill_between(grid, density, color=colour, alpha=0.12, lw=0)
        ax.plot(grid, density, color=colour, lw=1.7, linestyle=STYLES[i % len(STYLES)], label=name)
    ax.set_ylim(bottom=0)
    ax.set_xlim(grid[0], grid[-1])
    canvas.axis_label(ax, f"noisy {players} among the most important ones")
    canvas.axis_label(ax, "density", "y")
    canvas.legend(ax, fontsize=canvas.SMALL, handlelength=2.4)
    return ax
