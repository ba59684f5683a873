"""The study `budget`: accuracy and error against the number of rows and against S."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from graphsvx.studies import scoring
from graphsvx.studies.budget_figures import (
    ALL,
    FLOOR,
    OURS,
    PAPER,
    PAPER_SET,
    SMARTER,
    Found,
    Key,
    Steps,
    halves,
    measure,
)
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.page import Beside, Cell, Page, Part, Picture, Table
from graphsvx.studies.scoring import Plan
from graphsvx.studies.study import Study


def plan_of(desk: Desk) -> tuple[Plan, Steps]:
    """All sets and seeds; one set, one seed and two steps for a quick look."""
    if desk.quick:
        plan = Plan((PAPER_SET,), (0,), strict=2, paper=2, divisor=10)
        return plan, Steps((50, 150), (1, 2))
    return Plan(NODE_SETS), Steps()


def make(desk: Desk) -> Page:
    """Measure, and put the page together."""
    plan, steps = plan_of(desk)
    found = {name: measure(desk, name, plan, steps) for name in plan.datasets}
    parts: list[Part] = [
        _INTRODUCTION,
        Picture(
            "samples",
            "Accuracy under both protocols and relative squared error against the number of "
            "samples; bands: 95 % over seeds. Dotted: the reference (`All`). Grey: below the "
            "error that the reference expects of itself. Diamonds: the paper's figures.",
            lambda: draw(found, steps.samples, (SMARTER, OURS), "samples"),
        ),
        _answer(found, steps),
        *_letter(desk, plan, steps),
        *_tables(found, steps),
        "## Against S\n\nSmarterSeparate plays whole orders up to S before it draws others; the "
        "number of samples is the paper's for each data set.",
        Picture(
            "order",
            "The same against S, the largest order that SmarterSeparate favours, at the paper's "
            "number of samples. Dotted: the reference (`All`).",
            lambda: draw(found, steps.orders, ("S",), "S"),
        ),
        *_order_tables(found, steps),
    ]
    return Page(
        "How many samples, and how large an order",
        tuple(parts),
        headline=headline(found, steps),
        settings={
            **plan.words(),
            "S": {TITLES[n]: getattr(plan.choice(n).method.mask, "order", "-") for n in found},
            "samples where S varies": {TITLES[n]: plan.choice(n).method.samples for n in found},
        },
    )


_INTRODUCTION = f"""
The paper says that more samples help until a point, after which accuracy falls towards that of all
coalitions. Here the paper's estimator (SmarterSeparate and weighted least squares) and ours
(`Auto()` and its regression) explain the same nodes in the same game with more and more samples.
`{ALL}` is the reference of the error: exact where {scoring.REFERENCE} times the paper's samples are
enough, our estimator with that many calls elsewhere. Accuracy says whether the motif is found; the
relative squared error says how far the credit is from the Shapley values that it stands for.
`{FLOOR}` is the average over all rankings of the nodes in the model's reach.
"""


def _signed(change: Estimate) -> str:
    reach = "" if isnan(change.reach) else f" ± {change.reach:.2f}"
    return f"{change.mean:+.2f}{reach}"


def moved(change: Estimate) -> str:
    """A change in words that claim no more than its interval allows."""
    if change.low > 0:
        return f"rises ({_signed(change)})"
    if change.high < 0:
        return f"falls ({_signed(change)})"
    return f"does not change measurably ({_signed(change)})"


def _answer(found: dict[str, Found], steps: Steps) -> str:
    """Does accuracy fall with more samples, and because exact values score lower?"""
    few = _anchor(steps)
    lines = [
        "## Does accuracy fall with more samples because exact values score lower?",
        "",
        f"Differences on the same nodes, protocol `paper`, for the paper's estimator from {few:,} "
        f"to the most and from {few:,} samples to `{ALL}`:",
        "",
    ]
    for name, one in found.items():
        near, far = halves(one, (SMARTER, few))
        more = moved(one.change((SMARTER, few), (SMARTER, one.most)))
        every = moved(one.change((SMARTER, few), (ALL, 0)))
        lines.append(
            f"- {TITLES[name]}: accuracy {more} with {one.most:,} samples, and {every} with all "
            f"coalitions. With {few:,} samples the half of the nodes with the smaller error scores "
            f"{_signed(near)} above `{ALL}`, the half with the larger error {_signed(far)}."
        )
    fell = [n for n, f in found.items() if f.change((SMARTER, few), (SMARTER, f.most)).high < 0]
    below = [n for n, f in found.items() if f.change((SMARTER, few), (ALL, 0)).high < 0]
    said = (
        f"Accuracy falls measurably with more samples on {len(fell)} of {len(found)} sets"
        f"{_in_brackets(fell)}, and all coalitions score measurably lower than {few:,} samples on "
        f"{len(below)}{_in_brackets(below)}."
    )
    return "\n".join([*lines, "", said])


def _letter(desk: Desk, plan: Plan, steps: Steps) -> list[Part]:
    """The paper's figures again, in its own game."""
    name = PAPER_SET
    if name not in plan.datasets:
        return []
    few = tuple(n for n in steps.samples if n in PAPER) or steps.samples[:1]
    found = measure(desk, name, plan, Steps(few, ()), letter=True)
    keys: list[Key] = [(SMARTER, n) for n in few]
    rows: list[tuple[Cell, ...]] = []
    for who, count in [*keys, (ALL, 0)]:
        ours = found.estimate((who, count), "paper")
        paper = PAPER.get(count or ALL)
        rows.append((
            who, count or None, ours if paper is None else Beside(ours, paper),
            found.estimate((who, count), "strict"), found.estimate((who, count), "error"),
        ))  # fmt: skip
    chance = found.estimate((FLOOR, 0), "paper"), found.estimate((FLOOR, 0), "strict")
    rows.append((FLOOR, None, *chance, None))
    table = Table(
        f"{TITLES[name]} in the paper's own game (with the indirect effect)",
        ("estimator", "samples", "accuracy, `paper`", "accuracy, `strict`", "error"),
        tuple(rows),
        f"The game of the other tables has no indirect effect. From "
        f"{few[0]:,} samples to `{ALL}` accuracy under the protocol `paper` "
        f"{moved(found.change(keys[0], (ALL, 0)))}, from {few[-1]:,} samples it "
        f"{moved(found.change(keys[-1], (ALL, 0)))}.",
    )
    return [table]


def _in_brackets(names: list[str]) -> str:
    return f" ({', '.join(TITLES[name] for name in names)})" if names else ""


def _anchor(steps: Steps) -> int:
    """The paper's best number of samples, where it is among the steps."""
    return 1500 if 1500 in steps.samples else steps.samples[0]


def _tables(found: dict[str, Found], steps: Steps) -> list[Part]:
    keys: list[Key] = [(who, n) for who in (SMARTER, OURS) for n in steps.samples]
    ends: list[Key] = [(ALL, 0), (FLOOR, 0)]
    columns = ("estimator", "samples", *(TITLES[name] for name in found))

    def cell(key: Key, name: str, what: str) -> Cell:
        ours = found[name].estimate(key, what)
        paper = PAPER.get(ALL if key[0] == ALL else key[1])
        if what != "paper" or name != PAPER_SET or key[0] not in (SMARTER, ALL) or paper is None:
            return ours
        return Beside(ours, paper)

    def table(title: str, what: str, rows: list[Key], note: str, digits: int = 2) -> Table:
        lines = tuple(
            (who, count or None, *(cell((who, count), name, what) for name in found))
            for who, count in rows
        )
        return Table(title, columns, lines, note, digits)

    counts = {
        what: ", ".join(f"{TITLES[n]} {f.estimate(keys[0], what).count}" for n, f in found.items())
        for what in ("paper", "strict", "error")
    }
    bars = ", ".join(f"{TITLES[n]} {scoring.middle(f.bars).mean:.1e}" for n, f in found.items())
    return [
        table("Accuracy, protocol `paper`", "paper", keys + ends,
              f"In brackets the paper's figure, which it gives for Tree-Cycles only. A dash where "
              f"half the calls of the reference are fewer than the samples. Explanations "
              f"in a row: {counts['paper']}."),
        table("Accuracy, protocol `strict`", "strict", keys + ends,
              f"Explanations in a row: {counts['strict']}."),
        table("AUROC on the nodes of `strict`", "auroc", keys + ends, ""),
        table("Relative squared error of the credit", "error", keys,
              f"Against `{ALL}`, median over nodes, mean over seeds. Nodes in a row: "
              f"{counts['error']}. By its error bars the reference's own error is, as the median "
              f"over nodes, {bars} (0: exact); errors of that size are not told apart from 0.", 4),
    ]  # fmt: skip


def _order_tables(found: dict[str, Found], steps: Steps) -> list[Part]:
    columns = ("S", *(TITLES[name] for name in found))
    kinds = (
        ("Accuracy against S, protocol `paper`", "paper", 2),
        ("Accuracy against S, protocol `strict`", "strict", 2),
        ("Relative squared error against S", "error", 4),
    )
    tables: list[Part] = []
    for title, what, digits in kinds:
        rows: list[tuple[Cell, ...]] = [
            (s, *(one.estimate(("S", s), what) for one in found.values())) for s in steps.orders
        ]
        if what != "error":
            rows.append((FLOOR, *(one.estimate((FLOOR, 0), what) for one in found.values())))
        tables.append(Table(title, columns, tuple(rows), "", digits))
    return tables


def draw(found: dict[str, Found], steps: Sequence[int], lines: Sequence[str], along: str) -> Any:
    """Curves with bands: protocols and error below each other, data sets side by side."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra)
    from matplotlib.ticker import NullFormatter, NullLocator  # noqa: PLC0415  (the same)

    from graphsvx.plot import canvas  # noqa: PLC0415  (the same)
    from graphsvx.plot.study import INKS, STYLES  # noqa: PLC0415  (the same)

    kinds = (("paper", "accuracy (paper)"), ("strict", "accuracy (strict)"),
             ("error", "relative squared error"))  # fmt: skip
    names = {SMARTER: "SmarterSeparate + WLS", OURS: "ours", "S": "SmarterSeparate + WLS"}
    figure = Figure(figsize=(2.5 * len(found) + 1.0, 6.6), layout="constrained")
    grid = figure.subplots(3, len(found), squeeze=False, sharex=True, sharey="row")
    for line, (what, words) in zip(grid, kinds, strict=True):
        for ax, (name, one) in zip(line, found.items(), strict=True):
            canvas.quiet(ax, "both")
            for i, who in enumerate(lines):
                tried = [step for step in steps if (who, step) in one.scores]
                points = [one.estimate((who, step), what) for step in tried]
                least = LEAST_ERROR if what == "error" else -1.0
                mean = [max(least, p.mean) for p in points]
                low = [max(least, p.mean if isnan(p.low) else p.low) for p in points]
                high = [max(least, p.mean if isnan(p.high) else p.high) for p in points]
                ax.fill_between(tried, low, high, color=INKS[i], alpha=0.15, lw=0)
                ax.plot(tried, mean, color=INKS[i], marker="o", ms=3.5, lw=1.6,
                        linestyle=STYLES[i], label=names[who])  # fmt: skip
            if what != "error":
                level = one.estimate((ALL, 0), what).mean
                ax.axhline(level, color=INKS[7], lw=1.1, linestyle=":", label=ALL)
                ax.set_ylim(0, 1.22)
            else:
                own = scoring.middle(one.bars).mean
                if own > LEAST_ERROR:
                    ax.axhspan(LEAST_ERROR / 2, own, color=INKS[6], alpha=0.18, lw=0)
                ax.set_yscale("log")
                ax.yaxis.set_minor_formatter(NullFormatter())
            if what == "paper":
                canvas.heading(ax, TITLES[name])
                if name == PAPER_SET and along == "samples":
                    told = [n for n in PAPER if isinstance(n, int) and n in steps]
                    ax.plot(told, [PAPER[n] for n in told], "D", mfc="none", mec=INKS[7], ms=6,
                            label="the paper")  # fmt: skip
            ax.tick_params(which="minor", length=0)
            if along == "samples":
                ax.set_xscale("log")
                ax.xaxis.set_minor_locator(NullLocator())
                ax.set_xticks(list(steps), [f"{n:,}" for n in steps], rotation=45)
            else:
                ax.set_xticks(list(steps))
        line[0].set_ylabel(words, fontsize=canvas.SMALL)
    for ax in grid[-1]:
        ax.set_xlabel(along, fontsize=canvas.SMALL)
    shown = grid[0, list(found).index(PAPER_SET) if PAPER_SET in found else 0]
    shown.legend(frameon=False, fontsize=canvas.TINY, loc="lower right")
    return figure


LEAST_ERROR = 1e-4
"""The picture's axis begins here; what is smaller is drawn at its lower end."""


def headline(found: dict[str, Found], steps: Steps) -> str:
    """What of the paper's remarks on P and S holds."""
    few = _anchor(steps)
    told = found.get(PAPER_SET) or next(iter(found.values()))
    title = TITLES[PAPER_SET if PAPER_SET in found else next(iter(found))]
    points = [n for n in steps.samples if n in PAPER] or list(steps.samples)
    measured = ", ".join(
        f"{told.estimate((SMARTER, n), 'paper').mean:.2f} with {n:,}" for n in points
    )
    paper = ", ".join(f"{value:.2f}" for value in PAPER.values())
    low, high = steps.orders[0], min(4, steps.orders[-1])
    helped = [n for n, f in found.items() if f.change(("S", low), ("S", high)).low > 0]
    errors = ", ".join(
        f"{f.estimate((SMARTER, f.most), 'error').mean:.2g} against "
        f"{f.estimate((OURS, f.most), 'error').mean:.2g}"
        for f in found.values()
    )
    more = moved(told.change((SMARTER, few), (SMARTER, told.most)))
    every = moved(told.change((SMARTER, told.most), (ALL, 0)))
    below = [n for n, f in found.items() if f.change((SMARTER, few), (ALL, 0)).high < 0]
    return (
        f"On {title} the paper's estimator scores {measured} samples and all coalitions "
        f"{told.estimate((ALL, 0), 'paper').mean:.2f} (paper: {paper}): from {few:,} to "
        f"{told.most:,} samples accuracy {more}, from there to all coalitions it {every}. All "
        f"coalitions score measurably lower than {few:,} samples on {len(below)} of {len(found)} "
        f"sets{_in_brackets(below)}. S = {high} in place of {low} helps measurably on "
        f"{len(helped)} of {len(found)} sets{_in_brackets(helped)} (paper: on the "
        f"tree sets). With the most samples the relative squared error is, SmarterSeparate "
        f"against ours, {errors} ({', '.join(TITLES[n] for n in found)})."
    )


STUDY = Study(
    "budget",
    "accuracy and error against the number of samples and against S",
    make,
)
