"""The study `masks`: the paper's mask generators and ours at equal budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from graphsvx.explanation import Explanation, Ranking
from graphsvx.masks import Auto, Mask, Random, Smart, SmartSeparate
from graphsvx.metrics.select import scores as credit_of
from graphsvx.metrics.select import top_keys
from graphsvx.studies import chosen as choices
from graphsvx.studies import scoring
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk, query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.motifs import Asked
from graphsvx.studies.page import Beside, Cell, Page, Part, Picture, Table
from graphsvx.studies.scoring import Plan, Score
from graphsvx.studies.study import Study
from graphsvx.zoo import Trained

FLOOR, OURS, ALL, MOST = "Random explainer", "ours", "All", "ours, 20x the calls"
LETTER, TUNED = "SmarterSeparate, indirect effect", "SmarterSeparate, chosen settings"
# The paper's accuracies (appendix, table on MASK), in the order of NODE_SETS.
PAPER: dict[str, tuple[float, ...]] = {
    "Random": (0.84, 0.75, 0.74, 0.64),
    "Smart": (0.93, 0.91, 0.81, 0.79),
    "SmartSeparate": (0.94, 0.92, 0.85, 0.83),
    "SmarterSeparate": (0.99, 0.93, 0.97, 0.93),
    LETTER: (0.99, 0.93, 0.97, 0.93),
    TUNED: (0.99, 0.93, 0.97, 0.93),
    ALL: (0.80, 0.79, 0.87, 0.77),
}
ROWS = (
    FLOOR,
    "Random",
    "Smart",
    "SmartSeparate",
    "SmarterSeparate",
    LETTER,
    TUNED,
    OURS,
    ALL,
    MOST,
)
SMARTER = "SmarterSeparate"
WHY: tuple[str, ...] = ("found", "beyond reach", "no credit, or credit against", "outranked")
"""What becomes of a node of the truth."""
LEAST_ERROR = 1e-4
"""The picture's axis begins here; what is smaller is drawn at its left end."""


@dataclass(eq=False)
class Found:
    """What was measured on one data set."""

    scores: dict[str, list[list[Score]]] = field(default_factory=lambda: {row: [] for row in ROWS})
    """By row, then by seed."""
    bars: list[list[float]] = field(default_factory=list)
    """What the reference expects its own error to be."""
    missed: dict[str, list[list[float]]] = field(default_factory=lambda: {why: [] for why in WHY})
    worst: tuple[float, Explanation, Explanation, frozenset[int]] | None = None
    """Accuracy, SmarterSeparate's and the reference's explanation of its worst node, the truth."""

    def estimate(self, row: str, what: str) -> Estimate:
        """Mean over nodes and seeds; errors and calls as medians over nodes."""
        groups = [[float(getattr(one, what)) for one in seed] for seed in self.scores[row]]
        return (scoring.middle if what in ("error", "calls") else Estimate.of)(groups)

    def exact(self, row: str) -> str:
        """For how many nodes the values are the Shapley values themselves."""
        every = [one.exact for seed in self.scores[row] for one in seed]
        return f"{sum(every)} of {len(every)}"


def fates(explanation: Explanation, truth: frozenset[int], by: Ranking) -> dict[str, float]:
    """Shares of the truth that the top k holds, that do not play, have no credit, or too little."""
    wanted = truth - set(explanation.centres)
    keys, values = credit_of(explanation, "nodes")
    credit = dict(zip(keys, values.tolist(), strict=True))
    best = set(top_keys(explanation, len(wanted), by, "nodes"))
    counts = dict.fromkeys(WHY, 0)
    for node in wanted:
        if node in best:
            counts["found"] += 1
        elif node not in credit:
            counts["beyond reach"] += 1
        else:
            counts[WHY[2] if credit[node] <= 0 else WHY[3]] += 1
    return {why: count / len(wanted) for why, count in counts.items()}


def plan_of(desk: Desk) -> Plan:
    """All sets and seeds; one set and one seed for a quick look."""
    quick = Plan(("ba-community",), (0,), strict=2, paper=2, divisor=10)
    return quick if desk.quick else Plan(NODE_SETS)


def measure(desk: Desk, dataset: str, plan: Plan) -> Found:
    """Explain the same nodes with every mask, and score them."""
    found, chosen = Found(), plan.choice(dataset)
    method = chosen.method
    masks: dict[str, Mask] = {
        "Random": Random(),
        "Smart": Smart(),
        "SmartSeparate": SmartSeparate(),
        SMARTER: method.mask,
        OURS: Auto(),
    }
    for seed in plan.seeds:
        world = desk.world(dataset, seed)
        asked = plan.asked(world)
        known = scoring.references(desk, world, chosen, asked)
        # Where no feature plays the joint game is the game of the nodes.
        joint = known
        if any(one.feature_credit.players for one in known):
            joint = scoring.references(desk, world, chosen, asked, separate=False)
        made = {FLOOR: scoring.at_random(desk, world, asked)}
        for row, mask in masks.items():
            made[row] = desk.explanations(
                world, replace(method, mask=mask), asked.all,
                label=f"{row}, {method.samples}", scale=chosen.scale,
            )  # fmt: skip
        for row, other in ((LETTER, plan.letter(dataset)), (TUNED, plan.tuned(dataset))):
            made[row] = desk.explanations(
                world, other.method, asked.all,
                label=f"{row}, {other.method.samples}", scale=other.scale,
            )  # fmt: skip
        made[ALL], made[MOST] = joint, known
        for row, explanations in made.items():
            # With the indirect effect, fewer hops or log-odds the values are those of other games.
            unknown = row in (FLOOR, LETTER, TUNED, ALL, MOST)
            against = None if unknown else joint if row in ("Random", "Smart") else known
            by = plan.tuned(dataset).by if row == TUNED else chosen.by
            found.scores[row].append(scoring.scores(explanations, against, world, asked, by))
        found.bars.append([scoring.own_error(one) for one in known])
        _account(found, world, asked, known, chosen.by)
        _worst(found, world, asked, made[SMARTER], known)
    return found


def _account(
    found: Found, world: Trained, asked: Asked, known: list[Explanation], by: Ranking
) -> None:
    truth = world.dataset.node_truth
    told = [
        fates(one, truth.motif(query_of(one)), by) for one in known if query_of(one) in asked.strict
    ]
    for why in WHY:
        found.missed[why].append([one[why] for one in told])


def _worst(
    found: Found, world: Trained, asked: Asked, smarter: list[Explanation], known: list[Explanation]
) -> None:
    exact = {query_of(one): one for one in known}
    for row, one in zip(found.scores[SMARTER][-1], smarter, strict=True):
        scored = row.node in asked.paper and row.node in exact
        if scored and (found.worst is None or row.paper < found.worst[0]):
            truth = world.dataset.node_truth.motif(row.node)
            found.worst = (row.paper, one, exact[row.node], truth)


def make(desk: Desk) -> Page:
    """Measure, and put the page together."""
    plan = plan_of(desk)
    found = {name: measure(desk, name, plan) for name in plan.datasets}
    parts: list[Part] = [_INTRODUCTION, *_tables(found), _pictures(found)]
    parts += _why(found)
    return Page(
        "Mask generators at equal budgets",
        tuple(parts),
        headline=headline(found),
        settings={
            **plan.words(),
            "chosen settings": {TITLES[n]: choices.words(plan.tuned(n)) for n in found},
            "samples": {TITLES[n]: plan.choice(n).method.samples for n in found},
            "S": {TITLES[n]: getattr(plan.choice(n).method.mask, "order", "-") for n in found},
        },
    )


_INTRODUCTION = f"""
Every mask generator gets the same number of samples (the paper's, for each data set) and plays the
same game; only the rows differ. The paper's masks end in weighted least squares; ours (`Auto()`:
exact where that fits the budget, complementary pairs elsewhere) ends in the regression that goes
with it. `Random`, `Smart` and `All` play features and nodes in one joint game, as in the paper; the
others play the two separate games of relative efficiency. Only BA-Community has features that play.
The game is that of `GraphSVX()`, without the indirect effect, so that more values can be had
exactly; probabilities are explained and nodes ranked by signed value. `{LETTER}` is the paper's own
game, for its accuracy, and `{TUNED}` has the settings of the study `ground-truth`, which were
chosen on validation seeds (below).

`All` stands for all coalitions: exact where {scoring.REFERENCE} times the samples are enough (every
coalition, or every connected one, is played), and our estimator with that many calls elsewhere.
`{MOST}` is the same in the separate games. `{FLOOR}` is the
average over all rankings of the nodes in the model's reach.
"""


def _tables(found: dict[str, Found]) -> list[Part]:
    def grid(
        title: str, cell: Callable[[str, str], Cell], rows: tuple[str, ...], note: str,
        digits: int = 2,
    ) -> Table:  # fmt: skip
        columns = ("mask", *(TITLES[name] for name in found))
        lines = tuple((row, *(cell(row, name) for name in found)) for row in rows)
        return Table(title, columns, lines, note, digits)

    def plain(what: str) -> Callable[[str, str], Cell]:
        return lambda row, name: found[name].estimate(row, what)

    def beside(row: str, name: str) -> Cell:
        ours = found[name].estimate(row, "paper")
        return Beside(ours, PAPER[row][NODE_SETS.index(name)]) if row in PAPER else ours

    judged = tuple(row for row in ROWS if row not in (FLOOR, LETTER, TUNED, ALL, MOST))
    any_one = next(iter(found.values()))
    seeds = any_one.estimate(OURS, "paper").seeds
    counts = {
        what: ", ".join(f"{TITLES[n]} {f.estimate(OURS, what).count}" for n, f in found.items())
        for what in ("paper", "strict", "error")
    }
    bars = ", ".join(f"{TITLES[n]} {scoring.middle(f.bars).mean:.1e}" for n, f in found.items())
    return [
        grid("Accuracy, protocol `paper`", beside, ROWS,
             f"In brackets the paper's figure. Seeds: {seeds}; explanations: {counts['paper']}."),
        grid("Accuracy, protocol `strict`", plain("strict"), ROWS,
             f"Explanations: {counts['strict']}. Not to be compared with the table above."),
        grid("AUROC on the nodes of `strict`", plain("auroc"), ROWS, ""),
        grid("Relative squared error of the credit", plain("error"), judged,
             f"Against `{MOST}` (joint masks: against `All`), median over nodes, mean over seeds. "
             f"Nodes: {counts['error']}. Where the reference is an estimate it has an error of its "
             f"own; by its error bars, the median over all nodes is {bars} (0: exact).", 4),
        grid("Distinct model calls", plain("calls"), tuple(r for r in ROWS if r != FLOOR),
             "Median over nodes. Coalitions that give the same perturbed graph cost one call; our "
             "rows are drawn until the calls are spent, the paper's until the rows are.", 0),
        grid("Nodes with exact values", lambda row, name: found[name].exact(row),
             (OURS, ALL, MOST), "The masks of the paper never claim to be exact."),
    ]  # fmt: skip


def _pictures(found: dict[str, Found]) -> Picture:
    return Picture(
        "accuracy",
        "Accuracy and error of the mask generators, mean and 95 % interval over seeds. "
        "Diamonds: the paper's figures. Errors on a logarithmic axis.",
        lambda: draw(found),
    )


def draw(found: dict[str, Found]) -> Any:
    """Dots with intervals: protocols and error below each other, data sets side by side."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra)
    from matplotlib.ticker import NullFormatter  # noqa: PLC0415  (the same)

    from graphsvx.plot import canvas  # noqa: PLC0415  (the same)
    from graphsvx.plot.study import INKS  # noqa: PLC0415  (the same)

    kinds = (
        ("paper", "accuracy, protocol paper"),
        ("strict", "accuracy, protocol strict"),
        ("error", "relative squared error"),
    )
    figure = Figure(figsize=(2.4 * len(found) + 1.4, 7.2), layout="constrained")
    grid = figure.subplots(3, len(found), squeeze=False, sharey=True, sharex="row")
    for line, (what, words) in zip(grid, kinds, strict=True):
        for ax, (name, one) in zip(line, found.items(), strict=True):
            canvas.quiet(ax, "x")
            for height, row in enumerate(reversed(ROWS)):
                estimate = one.estimate(row, what)
                ink = INKS[1] if row in (OURS, MOST) else INKS[6] if row == FLOOR else INKS[0]
                if estimate.seeds:
                    low = estimate.low if estimate.low == estimate.low else estimate.mean
                    high = estimate.high if estimate.high == estimate.high else estimate.mean
                    least = LEAST_ERROR if what == "error" else -1.0
                    ends = [max(least, low), max(least, high)]
                    ax.plot(ends, [height] * 2, color=ink, lw=1.6, alpha=0.55)
                    ax.plot(max(least, estimate.mean), height, "o", color=ink, ms=5)
                if what == "paper" and row in PAPER:
                    paper = PAPER[row][NODE_SETS.index(name)]
                    ax.plot(paper, height, "D", mfc="none", mec=INKS[7], ms=6, mew=1.1)
            if what == "error":
                ax.set_xscale("log")
                ax.xaxis.set_minor_formatter(NullFormatter())
                ax.tick_params(which="minor", length=0)
            else:
                ax.set_xlim(-0.03, 1.23)  # the paper's protocol can pass 1 on Tree-Grid
            ax.set_xlabel(words, fontsize=canvas.SMALL)
            if what == "paper":
                canvas.heading(ax, TITLES[name])
        canvas.plain_ticks(line[0], "y", list(range(len(ROWS))), list(reversed(ROWS)))
    return figure


def _why(found: dict[str, Found]) -> list[Part]:
    """What exact values miss, and an example from the set that is furthest below the paper."""
    table = Table(
        "Where the nodes of the truth are in the reference",
        ("", *(TITLES[name] for name in found)),
        tuple((why, *(Estimate.of(found[name].missed[why]) for name in found)) for why in WHY),
        "Shares of the motif's other nodes, protocol `strict`. *Beyond reach*: further away than "
        "the game or the model looks. *No credit, or credit against*: the Shapley value is 0 or "
        "negative. *Outranked*: positive, but nodes outside the motif have more. These are "
        "properties of the model and of the game, which no choice of rows can mend.",
    )
    short = {
        name: one.estimate(SMARTER, "paper").mean - PAPER[SMARTER][NODE_SETS.index(name)]
        for name, one in found.items()
    }
    name = min(short, key=lambda one: short[one])
    worst = found[name].worst
    if worst is None:
        return [table]
    accuracy, smarter, exact, truth = worst
    kind = "exact values" if exact.certificate.exact else f"{scoring.REFERENCE} times the calls"
    error = scoring.relative_error(smarter, exact)
    hits = fates(exact, truth, "value")
    said = exact.class_name(exact.target)
    if exact.neighbourhood.classes is not None:
        said += f" and the label {exact.class_name(int(exact.neighbourhood.classes[0]))}"
    caption = (
        f"{TITLES[name]}, where SmarterSeparate is furthest from the paper's figure "
        f"({short[name]:+.2f}): its worst node of the paper's protocol, {smarter.centres[0]} "
        f"(accuracy {accuracy:.2f}; the model says {said}). Left: SmarterSeparate; "
        f"right: {kind} (between the two a relative squared error of {error:.2g}). Fill: class; "
        f"ring: credit. The motif is "
        f"{min(truth)} to {max(truth)}; of its other nodes the right-hand values put "
        f"{hits['found']:.0%} into the top "
        f"{len(truth) - 1}."
    )
    return [table, Picture("example", caption, lambda: _example(smarter, exact, kind))]


def _example(smarter: Explanation, exact: Explanation, kind: str) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra)

    from graphsvx import plot  # noqa: PLC0415  (the same)
    from graphsvx.plot import canvas  # noqa: PLC0415  (the same)

    figure = Figure(figsize=(10, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    largest = max(
        float(abs(values).max(initial=0.0))
        for one in (smarter, exact)
        for values in (one.node_values.numpy(), one.edge_values.numpy())
    )
    for ax, one, words in ((left, smarter, SMARTER), (right, exact, kind)):
        plot.graph(one, ax, title=False, largest=largest, legend=False, colorbar=ax is right)
        canvas.heading(ax, words)
    # Twice: where the graphs' boxes end is known only after they have been laid out once.
    figure.draw_without_rendering()
    return figure


def headline(found: dict[str, Found]) -> str:
    """What of the paper's table holds."""
    theirs = ("Random", "Smart", "SmartSeparate", SMARTER, ALL)
    first = [
        name
        for name, one in found.items()
        if max(theirs, key=lambda row: one.estimate(row, "paper").mean) == SMARTER
    ]

    def listed(row: str, what: str, digits: str = ".2f") -> str:
        return ", ".join(f"{one.estimate(row, what).mean:{digits}}" for one in found.values())

    return (
        f"At the paper's budgets SmarterSeparate scores {listed(SMARTER, 'paper')} on "
        f"{', '.join(TITLES[name] for name in found)} (paper: "
        f"{', '.join(f'{PAPER[SMARTER][NODE_SETS.index(n)]:.2f}' for n in found)}; with "
        f"settings chosen on validation seeds {listed(TUNED, 'paper')}) and is first of "
        f"the paper's masks on {len(first)} of {len(found)} sets (paper: all); all coalitions "
        f"score {listed(ALL, 'paper')} (paper: "
        f"{', '.join(f'{PAPER[ALL][NODE_SETS.index(n)]:.2f}' for n in found)}), our rows "
        f"{listed(OURS, 'paper')}. As estimates of Shapley values they differ more: the relative "
        f"squared error is {listed(SMARTER, 'error', '.2g')} for SmarterSeparate and "
        f"{listed(OURS, 'error', '.2g')} for our rows."
    )


STUDY = Study(
    "masks",
    "All, Random, Smart, SmartSeparate, SmarterSeparate and ours at equal budgets",
    make,
)
