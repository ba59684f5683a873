"""Pictures of pages: dots with intervals, curves with bands, densities (need matplotlib)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphsvx.studies.statistics import Estimate

Panels = Mapping[str, Mapping[str, Any]]
"""By measure (a line of panels), then by panel (a data set, mostly): what is drawn in it."""
SMALLEST = 1e-4
"""Logarithmic axes begin here; what is smaller is drawn at this end."""


def dots(
    lines: Mapping[str, Mapping[str, Mapping[str, Estimate]]],
    paper: Mapping[tuple[str, str, str], float] | None = None,
    log: Iterable[str] = (),
) -> Any:
    """A dot with its interval for each row of each panel.

    paper: the paper's figures by (measure, panel, row), as diamonds.
    log: measures on a logarithmic axis.
    """
    from graphsvx.plot import canvas  # noqa: PLC0415  (needs matplotlib, an extra)
    from graphsvx.plot.study import INKS  # noqa: PLC0415  (the same)

    known = [panel for line in lines.values() for panel in line.values()]
    rows = list(dict.fromkeys(row for panel in known for row in panel))

    def draw(ax: Any, measure: str, panel: str, estimates: Mapping[str, Estimate]) -> None:
        least = SMALLEST if measure in log else -float("inf")
        for place, row in enumerate(rows):
            y, ink, estimate = len(rows) - 1 - place, INKS[place % 6], estimates.get(row)
            if estimate is not None and estimate.seeds:
                low, high = estimate.interval or (min(estimate.by_seed), max(estimate.by_seed))
                ax.plot([max(least, low), max(least, high)], [y, y], color=ink, lw=1.6)
                ax.plot(max(least, estimate.mean), y, "o", color=ink, ms=5)
            if paper and (measure, panel, row) in paper:
                ax.plot(paper[measure, panel, row], y, "D", mfc="none", mec=INKS[7], ms=6)
        canvas.quiet(ax, "x")
        ax.set_ylim(-0.6, len(rows) - 0.4)
        ax.set(xscale="log" if measure in log else "linear")
        ax.set_xlabel(measure, fontsize=canvas.SMALL)

    figure, axes = _panels(lines, 1.8, 0.22 * len(rows) + 0.75, draw, sharex="row", sharey=True)
    for line in axes:
        canvas.plain_ticks(line[0], "y", [float(i) for i in range(len(rows))], rows[::-1])
    return figure


def curves(
    lines: Mapping[str, Mapping[str, Mapping[str, Sequence[tuple[float, Estimate]]]]],
    along: str,
    paper: Mapping[tuple[str, str], Sequence[tuple[float, float]]] | None = None,
    log: Iterable[str] = (),
) -> Any:
    """Curves of points (x, estimate) with bands for their intervals.

    along: what the x axis shows; logarithmic if it is in `log`, as measures are.
    paper: the paper's points by (measure, panel), as diamonds.
    """
    from graphsvx.plot import canvas  # noqa: PLC0415  (needs matplotlib, an extra)
    from graphsvx.plot.study import INKS, STYLES  # noqa: PLC0415  (the same)

    def draw(ax: Any, measure: str, panel: str, drawn: Mapping[str, Any]) -> None:
        least = SMALLEST if measure in log else -float("inf")
        for i, (name, points) in enumerate(drawn.items()):
            known = [(x, one, one.interval or (one.mean,) * 2) for x, one in points if one.seeds]
            xs, style = [x for x, _, _ in known], {"color": INKS[i % 6]}
            low, high = ([max(least, ends[side]) for _, _, ends in known] for side in (0, 1))
            ax.fill_between(xs, low, high, alpha=0.15, lw=0, **style)
            ax.plot(xs, [max(least, one.mean) for _, one, _ in known], marker="o", ms=3, lw=1.6,
                    linestyle=STYLES[i % 4], label=name, **style)  # fmt: skip
        for x, y in (paper or {}).get((measure, panel), ()):
            ax.plot(x, y, "D", mfc="none", mec=INKS[7], ms=6)
        canvas.quiet(ax, "both")
        ax.set(**{f"{axis}scale": "log" if name in log else "linear"
                  for axis, name in (("x", along), ("y", measure))})  # fmt: skip
        ax.set_xlabel(along, fontsize=canvas.SMALL)

    figure, axes = _panels(lines, 2.5, 2.2, draw, sharex=True, sharey="row")
    for line, measure in zip(axes, lines, strict=True):
        line[0].set_ylabel(measure, fontsize=canvas.SMALL)
    return _with_legend(figure, axes[0][:1])


def densities(panels: Mapping[str, Mapping[str, Sequence[float]]], what: str) -> Any:
    """The paper's picture of noise: how often how many noisy ones are among the top k."""
    from graphsvx import plot  # noqa: PLC0415  (needs matplotlib, an extra)

    def draw(ax: Any, measure: str, panel: str, counts: Mapping[str, Sequence[float]]) -> None:
        plot.noise_kde(counts, ax, what=what)
        ax.get_legend().remove()

    figure, axes = _panels({"": panels}, 3.4, 3.0, draw)
    return _with_legend(figure, axes[0])


def _panels(
    lines: Panels, width: float, height: float, draw: Callable[..., None], **shared: Any
) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra, and slow to import)

    from graphsvx.plot import canvas  # noqa: PLC0415  (the same)

    names = list(dict.fromkeys(name for line in lines.values() for name in line))
    size = (width * len(names) + 2.2, height * len(lines) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(lines), len(names), squeeze=False, **shared)
    for place, (measure, by_panel) in enumerate(lines.items()):
        for ax, name in zip(axes[place], names, strict=True):
            draw(ax, measure, name, by_panel.get(name, {}))
            if place == 0:
                canvas.heading(ax, name)
    return figure, axes


def _with_legend(figure: Any, axes: Sequence[Any]) -> Any:
    handles: dict[str, Any] = {}
    for ax in axes:
        drawn, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center",
                  ncols=min(4, len(handles)), frameon=False, fontsize=8)  # fmt: skip
    return figure
