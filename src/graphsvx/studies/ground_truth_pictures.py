"""Pictures of the study `ground-truth`: all figures at a glance, and explanations one can judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

import networkx as nx
import torch

from graphsvx.explanation import Explanation, Ranking
from graphsvx.studies.chosen import TITLES
from graphsvx.studies.desk import query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import true_nodes
from graphsvx.zoo import Trained

Rows = Mapping[str, Mapping[str, Sequence[tuple[str, Estimate, float | None]]]]
"""By protocol, then data set: explainer, our figure, the paper's."""
MOST = 25
"""A larger neighbourhood is cut down to the motif, the best-ranked nodes and the ways to them."""
MARKS = {
    (True, True): ("#009E73", "solid", "in the motif, found"),
    (True, False): ("#D55E00", "dashed", "in the motif, missed"),
    (False, True): ("#8A8F99", "dotted", "outside, taken in its place"),
}
"""By (in the motif, among the best-ranked): colour, stroke, words."""


@dataclass(frozen=True)
class Example:
    """An explanation with what it should have found."""

    title: str
    explanation: Explanation
    truth: frozenset[int]
    score: float
    by: Ranking = "value"
    atoms: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls, world: Trained, explanation: Explanation, scores: Mapping[int, float], by: Ranking
    ) -> Example:
        """With its score, and the atoms of a molecule."""
        data, query = world.dataset, query_of(explanation)
        atoms = None
        if data.name == "mutag":
            names = data.feature_names or ()
            atoms = tuple(names[atom] for atom in data.graphs[query].x.argmax(1).tolist())
        what = "graph" if data.task == "graph" else "node"
        ranked = "" if by == "value" else ", by magnitude"
        said = explanation.class_name(explanation.target)
        return cls(
            f"{TITLES[data.name]}: {what} {query}, {said}{ranked}",
            explanation,
            frozenset(true_nodes(world, query)),
            scores[query],
            by,
            atoms,
        )

    @property
    def top(self) -> frozenset[int]:
        """The k best-ranked nodes."""
        ranked = self.explanation.top_nodes(len(self.truth), self.by)
        return frozenset(one.id for one in ranked)

    def shown(self) -> Explanation:
        """Cut down to what is judged: the motif, the best-ranked, and the ways between them."""
        near = self.explanation.neighbourhood
        keep = set(self.truth) | self.top | set(self.explanation.centres)
        if self.atoms is None and len(near.ids) > MOST:
            whole = nx.Graph(near.edge_index.t().tolist())
            start = self.explanation.centres[0] if self.explanation.centres else min(keep)
            paths = nx.single_source_shortest_path(whole, start) if start in whole else {}
            keep |= {node for one in tuple(keep) for node in paths.get(one, ())}
        else:
            keep |= set(near.ids.tolist())
        kept = torch.tensor([node in keep for node in near.ids.tolist()])
        inside = torch.isin(near.edge_index, near.ids[kept]).all(0)
        return replace(
            self.explanation,
            neighbourhood=replace(
                near,
                ids=near.ids[kept],
                hops=near.hops[kept],
                edge_index=near.edge_index[:, inside],
                classes=None if near.classes is None else near.classes[kept],
            ),
        )


def chart(rows: Rows) -> Any:
    """Dots with intervals: protocols below each other, data sets side by side."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra, and slow to import)

    from graphsvx.plot import canvas  # noqa: PLC0415  (the same)
    from graphsvx.plot.study import INKS  # noqa: PLC0415  (the same)

    sets = list(next(iter(rows.values())))
    whole = Figure(figsize=(2.0 + 1.75 * len(sets), 4.6), layout="constrained")
    axes = whole.subplots(len(rows), len(sets), sharey=True, squeeze=False)
    for upper, (protocol, found) in zip(axes, rows.items(), strict=True):
        for ax, (title, lines) in zip(upper, found.items(), strict=True):
            canvas.quiet(ax, "x")
            for place, (_, ours, paper) in enumerate(lines):
                colour = INKS[place % len(INKS)] if place < len(lines) - 1 else INKS[6]
                height = len(lines) - 1 - place
                reach = 0.0 if isnan(ours.reach) else ours.reach
                ax.errorbar(
                    ours.mean, height, xerr=reach, fmt="o", ms=5, color=colour, lw=1.6, capsize=0
                )
                if paper is not None:
                    ax.plot(
                        paper, height, marker="D", ms=6.5, mfc="none", mec="#1F2430", mew=0.9, ls=""
                    )
            names = [name for name, _, _ in lines]
            ax.set_yticks(range(len(names) - 1, -1, -1), names)
            ax.set_ylim(-0.6, len(names) - 0.4)
            ax.set_xlim(0, 1.23)
            ax.set_xticks([0, 0.5, 1.0])
            if protocol == next(iter(rows)):
                ax.set_title(title, fontsize=9.5)
        upper[0].set_ylabel(f"protocol: {protocol}", fontsize=8.5)
    whole.supxlabel(
        "share of the motif among the best-ranked nodes   "
        "(dot: ours, with 95 % interval; diamond: the paper's)",
        fontsize=8.5,
    )
    return whole


def panels(shown: Sequence[Example]) -> Any:
    """Explanations side by side: what was found, what was missed, what was taken in its place."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415  (an extra, slow to import)
    from matplotlib.figure import Figure  # noqa: PLC0415  (the same)
    from matplotlib.lines import Line2D  # noqa: PLC0415  (the same)

    from graphsvx import plot, scene  # noqa: PLC0415  (the same)

    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    whole = Figure(figsize=(3.7 * columns, 3.3 * lines + 0.4), layout="constrained")
    axes = whole.subplots(lines, columns, squeeze=False).ravel()
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    for ax, one in zip(axes, shown, strict=False):
        drawn = one.shown()
        plot.graph(
            drawn, ax, top=0, atoms=one.atoms, max_nodes=10_000,
            labels=False, legend=False, colorbar=False, title=False,
        )  # fmt: skip
        dots = next(c for c in ax.collections if c.get_gid() == "nodes")
        where, sizes = dots.get_offsets(), dots.get_sizes()
        parts = scene.of(drawn)
        bold = one.top | set(drawn.centres)
        inner = [
            (where[line.a], where[line.b])
            for line in parts.lines
            if parts.dots[line.a].id in bold and parts.dots[line.b].id in bold
        ]
        ax.add_collection(LineCollection(inner, linewidths=2.2, colors="#1F2430", zorder=1.5))
        for i, dot in enumerate(parts.dots):
            mark = (dot.id in one.truth, dot.id in one.top)
            if mark in MARKS:
                colour, stroke, _ = MARKS[mark]
                ax.scatter(
                    *where[i], s=(sizes[i % len(sizes)] ** 0.5 + 7) ** 2, facecolors="none",
                    edgecolors=colour, linewidths=1.7, linestyles=stroke, zorder=2.5,
                )  # fmt: skip
        heading = ax.set_title(f"{one.title}\naccuracy {one.score:.2f}", fontsize=8.5)
        heading.set_parse_math(False)
    handles = [
        Line2D([], [], marker="o", ms=9, mfc="none", mec=colour, mew=1.7, ls="", label=label)
        for colour, _, label in MARKS.values()
    ]
    whole.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    return whole
