"""Tables and pictures of the studies of noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, isnan
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from graphsvx import palette, plot
from graphsvx.explanation import Explanation
from graphsvx.plot import canvas
from graphsvx.plot.study import INKS, STYLES
from graphsvx.studies.noise import SHARES, TITLES, By, Tally
from graphsvx.studies.noise_use import Effects
from graphsvx.studies.page import Beside, Cell, Table

PAPER, OURS = "GraphSVX (as in the paper)", "GraphSVX (our default)"
CHANCE = "chance (share of the candidates)"
MISSING = "files missing"
Place = tuple[str, str]
"""A data set and a model."""


def places(datasets: Sequence[str], models: Sequence[str]) -> list[Place]:
    """Every data set with every model."""
    return [(dataset, model) for dataset in datasets for model in models]


def with_attention(here: Sequence[Place]) -> Place:
    """The first GAT, which the paper's pictures are about, else the first model."""
    return next((place for place in here if place[1] == "gat"), here[0])


def place_title(place: Place) -> str:
    """`Cora, GAT`."""
    return ", ".join(TITLES[one] for one in place)


def share_table(
    title: str,
    tally: Tally,
    where: Sequence[Place],
    methods: Sequence[str],
    *,
    by: By,
    numbers: bool = False,
    claim: str | None = None,
    note: str = "",
) -> Table:
    """Methods by data sets and models; the share of noise among the top k, or its number.

    `claim`: what the paper says about GraphSVX, beside the row of its own method.
    """

    def cell(method: str, place: Place) -> Cell:
        if not tally.groups(*place, method):
            return None if tally.methods(*place) else MISSING
        found = tally.count if numbers else tally.share
        ours = found(*place, method, by=by)
        return Beside(ours, claim) if claim is not None and method == PAPER else ours

    def extra(name: str, place: Place) -> Cell:
        here = [one for one in methods if tally.groups(*place, one)]
        if not here:
            return MISSING
        if name == CHANCE:
            return tally.base(*place, here[0])
        return tally.mean("candidates" if name == "candidates" else "k", *place, here[0])

    rows: list[tuple[Cell, ...]] = [
        (method, *(cell(method, place) for place in where)) for method in methods
    ]
    below = ("k", "candidates") if numbers else (CHANCE,)
    rows += [(name, *(extra(name, place) for place in where)) for name in below]
    return Table(title, ("method", *map(place_title, where)), tuple(rows), note)


def kde(tally: Tally, where: Sequence[Place], methods: Sequence[str], what: str) -> Figure:
    """The paper's picture: how often how many noisy ones are among the top k."""
    figure, axes = _grid(where, 2.7)
    for ax, place in zip(axes, where, strict=False):
        counts = {
            _short(method): [one.value for group in tally.groups(*place, method) for one in group]
            for method in methods
            if tally.groups(*place, method)
        }
        plot.noise_kde(counts, ax, what=what)
        for i, line in enumerate(ax.get_lines()):
            line.set(color=INKS[i % len(INKS)], linestyle=STYLES[i // 2 % len(STYLES)])
        canvas.heading(ax, place_title(place))
    _one_legend(figure, axes)
    return figure


def curves(tallies: Mapping[str, Tally], place: Place, methods: Sequence[str], what: str) -> Figure:
    """Share of noise among the top against k as a share of all candidates."""
    figure, axes = _grid(list(tallies), 3.1)
    for ax, (name, tally) in zip(axes, tallies.items(), strict=False):
        canvas.quiet(ax, "both")
        here = [one for one in methods if tally.groups(*place, one)]
        for i, method in enumerate(here):
            ax.plot(
                SHARES, tally.curve(*place, method), color=INKS[i % len(INKS)], lw=1.7,
                linestyle=STYLES[i // 2 % len(STYLES)], label=_short(method),
            )  # fmt: skip
        ax.axhline(tally.base(*place, here[0]).mean, color=palette.INK, lw=0.9, ls=(0, (1, 2)))
        ax.set_xlabel("k, as a share of all candidates", fontsize=canvas.SMALL)
        ax.set_ylabel(f"noisy {what} among the top k", fontsize=canvas.SMALL)
        ax.set_xlim(0, 1)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        canvas.heading(ax, name, place_title(place))
    _one_legend(figure, axes)
    return figure


def why(example: Explanation, effects: Effects, what: str, noise: set[int], noun: str) -> Figure:
    """An explanation with noise in it, and credit against the effect of deleting."""
    figure = Figure(figsize=(9.4, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    named = _named(example, noise, noun)
    plot.bars(named, left, players="features" if noun == "word" else "nodes", top=12)
    for label in left.get_yticklabels():
        if label.get_text().startswith("noise"):
            label.set(color=INKS[1], fontweight="bold")
    canvas.quiet(right, "both")
    noisy = np.array(effects.noisy, dtype=bool)
    credit, effect = np.array(effects.credit), np.array(effects.effect)
    for mask, colour, label, size in (
        (~noisy, "#9AA0AA", f"other {what}", 6), (noisy, INKS[1], f"noisy {what}", 11),
    ):  # fmt: skip
        right.scatter(
            effect[mask], credit[mask], s=size, color=colour, label=label, alpha=0.55, lw=0
        )
    right.axhline(0, color=palette.GREY, lw=0.8)
    right.axvline(0, color=palette.GREY, lw=0.8)
    right.set_xlabel("probability lost when it is deleted", fontsize=canvas.SMALL)
    right.set_ylabel("credit (GraphSVX)", fontsize=canvas.SMALL)
    right.legend(frameon=False, fontsize=canvas.SMALL)
    canvas.heading(right, "Credit against the effect of deleting")
    return figure


def _named(explanation: Explanation, noise: set[int], noun: str) -> Explanation:
    """With names that tell noise from the rest."""
    kind = "feature_credit" if noun == "word" else "node_credit"
    credit = getattr(explanation, kind)
    names = tuple(f"{'noise' if i in noise else noun} {i}" for i in credit.ids.tolist())
    changes: dict[str, Any] = {kind: replace(credit, names=names)}
    return replace(explanation, **changes)


def _short(method: str) -> str:
    return method.replace("as in the paper", "paper").replace("our default", "ours")


def _grid(cells: Sequence[Any], height: float) -> tuple[Figure, list[Any]]:
    columns = min(2, len(cells))
    rows = ceil(len(cells) / columns)
    figure = Figure(figsize=(4.4 * columns, height * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    flat = [ax for row in axes for ax in row]
    for ax in flat[len(cells) :]:
        ax.set_visible(False)
    return figure, flat


def _one_legend(figure: Figure, axes: Sequence[Any]) -> None:
    lines = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        lines.update(dict(zip(labels, handles, strict=True)))
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    figure.legend(
        lines.values(), lines.keys(), loc="outside lower center", ncols=min(4, len(lines)),
        frameon=False, fontsize=canvas.SMALL, handlelength=2.6,
    )  # fmt: skip


def percent(share: float) -> str:
    """`7 %`, with a decimal below 10."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else f"{100 * share:.1f} %"


def span(shares: Sequence[float]) -> str:
    """`7 to 12 %`, or one figure where both ends read the same."""
    known = [one for one in shares if not isnan(one)]
    if not known:
        return "none"
    low, high = percent(min(known)), percent(max(known))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def wins(
    tally: Tally,
    where: Sequence[Place],
    method: str,
    rivals: Sequence[str],
    by: By = "value",
    or_equal: bool = False,
) -> tuple[int, int]:
    """Comparisons with a baseline in which a method lets in less noise, and how many there are."""
    pairs = [
        (tally.share(*place, method, by=by).mean, tally.share(*place, other, by=by).mean)
        for place in where
        for other in rivals
        if tally.groups(*place, other)
    ]
    return sum(a < b or (or_equal and a == b) for a, b in pairs), len(pairs)


def lower(tally: Tally, where: Sequence[Place], by: By, rivals: Sequence[str]) -> str:
    """Which baselines let in less noise than the paper's method, in words."""
    less = []
    for place in where:
        mine = tally.share(*place, PAPER, by=by).mean
        names = [one for one in rivals if tally.share(*place, one, by=by).mean < mine]
        less.append(f"{place_title(place)}: {', '.join(names) or 'none'}")
    return f"Baselines with less noise than GraphSVX as in the paper: {'; '.join(less)}."
