"""Plots of many explanations: beeswarm, heat map, and shares of base value and motif."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from numpy.typing import ArrayLike, NDArray

from graphsvx.errors import InputError
from graphsvx.results.explanation import Explanation
from graphsvx.results.export_shap import feature_inputs
from graphsvx.results.ranking import Players, entries, scale_of
from graphsvx.results.summary import Summary
from graphsvx.utils.constraints import Converted, checks_arguments, shown
from graphsvx.views import palette
from graphsvx.views.plot import canvas

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
) -> tuple[list[str], list[tuple[str, tuple[int, ...]]], NDArray[np.float64]]:
    """Names, keys and credit [players, explanations], by decreasing sum of absolute credit."""
    names: dict[tuple[str, tuple[int, ...]], str] = {}
    columns: list[dict[tuple[str, tuple[int, ...]], float]] = []
    for explanation in explanations:
        column: dict[tuple[str, tuple[int, ...]], float] = {}
        for entry in entries(explanation, players):
            names.setdefault((entry.kind, entry.key), entry.name)
            column[entry.kind, entry.key] = entry.credit
        columns.append(column)
    keys = list(names)
    credit = np.array([[column.get(key, np.nan) for column in columns] for key in keys])
    credit = credit.reshape(len(keys), len(explanations))
    mass = np.nansum(np.abs(credit), axis=1)
    order = np.argsort(-mass, kind="stable")[:top]
    return [names[keys[i]] for i in order], [keys[i] for i in order], credit[order]


@checks_arguments
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

    `data` (the graph that was explained, or the list of graphs) colours a feature's dots by its
    value, from low to high; so does `inputs`, the values as [explanations, columns of x].

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
    names, keys, credit = _matrix(explanations, players, top)
    ax = canvas.axes(ax, 5.6, 1.3 + 0.34 * max(2, len(names)))
    canvas.quiet(ax)
    ax.axvline(0, color=palette.GREY, lw=0.9)
    for i, ((kind, key), row) in enumerate(zip(keys, credit, strict=True)):
        present = np.isfinite(row)
        heights = i + _spread(row[present])
        if levels is not None and kind == "feature":
            column = levels[present, key[0]]
            width = (np.ptp(levels[:, key[0]])) or 1.0
            colours: object = LEVELS((column - levels[:, key[0]].min()) / width)
        else:
            colours = [palette.FOR if v > 0 else palette.AGAINST for v in row[present]]
        ax.scatter(row[present], heights, s=11, c=colours, linewidths=0, alpha=0.85, zorder=3)  # type: ignore[arg-type]  # a list of colour names is fine, the stubs say float
    canvas.plain_ticks(
        ax, "y", [float(i) for i in range(len(names))], [canvas.short(n) for n in names]
    )
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel(f"credit ({scale_of(explanations[0])})", fontsize=canvas.SMALL)
    figure = ax.get_figure()
    if levels is not None and colorbar and figure is not None:
        bar = figure.colorbar(
            ScalarMappable(Normalize(0, 1), LEVELS), ax=ax, shrink=0.6, aspect=22, pad=0.02
        )
        bar.set_ticks([0, 1], labels=["low", "high"])
        bar.set_label("the feature's value", fontsize=canvas.SMALL, labelpad=-8)
        bar.ax.tick_params(labelsize=canvas.TINY, length=0)
        bar.outline.set_visible(False)
    return ax


def _spread(
    values: NDArray[np.float64], bins: int = 60, width: float = 0.38
) -> NDArray[np.float64]:
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


@checks_arguments
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
    names, _, credit = _matrix(explanations, players, top)
    if labels is not None and len(labels) != len(explanations):
        raise InputError(f"expected {len(explanations)} labels, got {len(labels)}")
    ax = canvas.axes(
        ax, 2.2 + min(7.0, max(3.0, 0.22 * len(explanations))), 1.3 + 0.26 * len(names)
    )
    scale = float(np.nanmax(np.abs(credit))) if np.isfinite(credit).any() else 1.0
    # Hatched where an explanation does not have the player, which differs from credit 0.
    ax.patch.set(facecolor="#FFFFFF", edgecolor=palette.PALE, hatch="//////", linewidth=0)
    image = ax.imshow(
        credit, cmap=canvas.DIVERGING, vmin=-scale or -1.0, vmax=scale or 1.0, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    canvas.plain_ticks(
        ax, "y", [float(i) for i in range(len(names))], [canvas.short(n) for n in names]
    )
    columns = len(explanations)
    step = max(1, math.ceil(columns / 24))
    shown = list(range(0, columns, step))
    words = labels or [_column(explanation, i) for i, explanation in enumerate(explanations)]
    canvas.plain_ticks(
        ax, "x", [float(i) for i in shown], [canvas.short(words[i], 14) for i in shown]
    )
    long = max((len(words[i]) for i in shown), default=0) > 2
    ax.tick_params(length=0, labelsize=canvas.TINY)
    ax.tick_params(axis="x", labelrotation=90 if long and len(shown) > 14 else 0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("explanation", fontsize=canvas.SMALL)
    figure = ax.get_figure()
    if colorbar and figure is not None:
        bar = figure.colorbar(image, ax=ax, shrink=0.8, aspect=24, pad=0.02)
        bar.set_label(f"credit ({scale_of(explanations[0])})", fontsize=canvas.SMALL)
        bar.ax.tick_params(labelsize=canvas.TINY, length=2)
        bar.outline.set_visible(False)
    return ax


def _column(explanation: Explanation, i: int) -> str:
    return str(explanation.centres[0]) if len(explanation.centres) == 1 else str(i)


@checks_arguments
def share(
    explanations: Many,
    motif: Collection[int] | Sequence[Collection[int]],
    ax: canvas.GivenAxes = None,
    *,
    labels: Sequence[str] | None = None,
) -> Axes:
    """Stacked bars of the prediction: base value, motif nodes, other nodes, features, edges.

    `motif` are the node ids of the motif, for all explanations or one collection for each. Parts
    with negative credit extend to the left of 0.

    Raises:
        InputError: there is no explanation, or not one label for each.

    """
    motifs = _motifs(explanations, motif)
    words = labels or [explanation.title for explanation in explanations]
    if len(words) != len(explanations):
        raise InputError(f"expected {len(explanations)} labels, got {len(words)}")
    ax = canvas.axes(ax, 6.0, 1.35 + 0.34 * len(explanations))
    canvas.quiet(ax)
    rows = [
        _parts(explanation, node_ids)
        for explanation, node_ids in zip(explanations, motifs, strict=True)
    ]
    colours = {
        "base": palette.PALE,
        "motif": "#009E73",
        "other nodes": "#E69F00",
        "features": "#CC79A7",
        "edges": "#56B4E9",
    }
    left, right = np.zeros(len(rows)), np.zeros(len(rows))
    for part, colour in colours.items():
        sizes = np.array([row[part] for row in rows])
        if not np.abs(sizes).any():
            continue
        start = np.where(sizes >= 0, right, left)
        ax.barh(range(len(rows)), sizes, left=start, color=colour, height=0.62, label=part)
        right += np.maximum(sizes, 0)
        left += np.minimum(sizes, 0)
    ax.scatter(
        [explanation.prediction for explanation in explanations],
        range(len(rows)),
        marker="|",
        s=160,
        linewidths=2,
        color=palette.INK,
        label="prediction",
        zorder=4,
    )
    ax.axvline(0, color=palette.INK, lw=0.8)
    canvas.plain_ticks(
        ax, "y", [float(i) for i in range(len(rows))], [canvas.short(word) for word in words]
    )
    ax.set_ylim(len(rows) - 0.45, -0.55)
    ax.set_xlabel(scale_of(explanations[0]), fontsize=canvas.SMALL)
    handles, names = ax.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda i: names[i] == "prediction")
    ax.legend(
        [handles[i] for i in order], [names[i] for i in order],
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=6, frameon=False, fontsize=canvas.TINY,
        handlelength=1.1, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip
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
    return {
        "base": explanation.base,
        "motif": math.fsum(value for node, value in explanation.nodes.items() if node in motif),
        "other nodes": math.fsum(
            value for node, value in explanation.nodes.items() if node not in motif
        ),
        "features": math.fsum(explanation.feature_values.tolist()),
        "edges": math.fsum(explanation.edge_values.tolist()),
    }
