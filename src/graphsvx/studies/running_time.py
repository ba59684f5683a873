"""The study `time`: seconds for a node, as ratios of contenders that take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isnan
from typing import Any

from torch import Tensor

from graphsvx import baselines
from graphsvx.api import explain
from graphsvx.engine.threads import one_thread
from graphsvx.explain import WLS
from graphsvx.explanation import Explanation
from graphsvx.masks import Masks
from graphsvx.methods import GraphSVX, Method
from graphsvx.metrics.truth import PAPER_PROTOCOLS
from graphsvx.studies import scoring
from graphsvx.studies.chosen import NODE_SETS, TITLES
from graphsvx.studies.desk import Desk
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.page import Beside, Cell, Page, Part, Picture, Table
from graphsvx.studies.scoring import Plan, Score
from graphsvx.studies.stopwatch import Kept, machine, one_call_a_row, take_turns
from graphsvx.studies.study import Study
from graphsvx.zoo import Trained

OURS, RIGHT, ROWS, PLAIN, GNN, FLOOR = (
    "ours",
    "paper's method",
    "paper's rows, no indirect effect",
    "the same, one call a row",
    "GNNExplainer",
    "Random explainer",
)
Key = tuple[str, int]
"""Contender and hops; hops 0 where they are no setting of it."""
HOPS = (3, 2)
# The paper's samples and seconds (appendix, both tables), in the order of NODE_SETS.
SAMPLES = {3: (400, 800, 1400, 1500), 2: (65, 100, 300, 400)}
PAPER_SECONDS = {3: (2.12, 8.31, 3.65, 6.22), 2: (0.30, 1.09, 1.21, 1.87)}
PAPER_GNN = (6.63, 7.08, 6.89, 7.31)
EPOCHS = 100


def paper_method(dataset: str, hops: int, divisor: int = 1) -> GraphSVX:
    """To the letter, with the samples of the paper's tables on running times."""
    samples = SAMPLES[hops][NODE_SETS.index(dataset)] // divisor
    return GraphSVX.paper(dataset, hops=hops, samples=samples, regression=WLS())


@dataclass(eq=False)
class Found:
    """What was measured on one data set."""

    seconds: dict[Key, list[list[float]]] = field(default_factory=dict)
    """By contender, then by seed, one figure a node."""
    scores: dict[Key, list[list[Score]]] = field(default_factory=dict)
    furthest: float = 0.0
    """Largest difference between credit from the engine and from one call a row."""

    def time(self, key: Key) -> Estimate:
        """Median seconds over nodes, averaged over seeds."""
        return scoring.middle(self.seconds[key])

    def ratio(self, slow: Key, fast: Key) -> Estimate:
        """Median over nodes of one contender's time by another's, averaged over seeds."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return scoring.middle(
            [[s / f for s, f in zip(*both, strict=True) if f > 0] for both in pairs]
        )

    def accuracy(self, key: Key, what: str) -> Estimate:
        """Mean over nodes and seeds."""
        return Estimate.of([[float(getattr(one, what)) for one in s] for s in self.scores[key]])


@dataclass(frozen=True)
class Effort:
    """How much is timed."""

    plan: Plan
    nodes: int = 2
    repeats: int = 3
    epochs: int = EPOCHS


def effort_of(desk: Desk) -> Effort:
    """All sets and seeds; one small set for a quick look."""
    if desk.quick:
        return Effort(Plan(("tree-cycles",), (0,), 2, 2, divisor=10), 1, 1, epochs=3)
    return Effort(Plan(NODE_SETS, strict=20))


def measure(desk: Desk, dataset: str, effort: Effort) -> Found:
    """Time all contenders on the same nodes, and score what GraphSVX says with these settings."""
    found, plan = Found(), effort.plan
    for seed in plan.seeds:
        world = desk.world(dataset, seed)
        asked = plan.asked(world)
        methods: dict[Key, Method] = {}
        for hops in HOPS:
            told = paper_method(dataset, hops, plan.divisor)
            methods[RIGHT, hops] = told
            methods[OURS, hops] = GraphSVX(samples=told.samples, hops=hops)
        chance = scoring.at_random(desk, world, asked)
        found.scores.setdefault((FLOOR, 0), []).append(
            scoring.scores(chance, None, world, asked, "value")
        )
        for key, method in methods.items():
            made = desk.explanations(
                world, method, asked.all,
                label=f"{key[0]}, {key[1]} hops" if key[1] else key[0], scale="probability",
            )  # fmt: skip
            rows = scoring.scores(made, None, world, asked, "value")
            found.scores.setdefault(key, []).append(rows)
        here: dict[Key, list[float]] = {}
        for node in timed_nodes(dataset, seed, effort.nodes):
            desk.say(f"{world.card.name}: timing node {node}")
            for key, seconds in _time(world, dataset, node, effort, found).items():
                here.setdefault(key, []).append(seconds)
        for key, each in here.items():
            found.seconds.setdefault(key, []).append(each)
    return found


def timed_nodes(dataset: str, seed: int, count: int) -> list[int]:
    """Other nodes of the paper's protocol for every seed."""
    nodes = PAPER_PROTOCOLS[dataset].scored
    return [nodes[(seed * count + i) % len(nodes)] for i in range(count)]


def _time(
    world: Trained, dataset: str, node: int, effort: Effort, found: Found
) -> dict[Key, float]:
    contenders: dict[Key, Callable[[], Any]] = {}
    asked = partial(explain, world.model, world.dataset.graph, node=node)
    drawn: dict[int, dict[str, Masks]] = {}
    for hops in HOPS:
        told = paper_method(dataset, hops, effort.plan.divisor)
        kept = Kept(told.mask)
        contenders[OURS, hops] = partial(asked, method=GraphSVX(samples=told.samples, hops=hops))
        contenders[RIGHT, hops] = partial(asked, method=told)
        contenders[ROWS, hops] = partial(asked, method=replace(told, indirect=False, mask=kept))
        # Once before the clock runs: it draws the rows, and indexes the graph.
        like = contenders[ROWS, hops]()
        drawn[hops] = dict(kept.drawn)
        contenders[PLAIN, hops] = partial(one_call_a_row, world, node, drawn[hops], like)
    contenders[GNN, 0] = partial(asked, method=baselines.GNNExplainer(epochs=effort.epochs))
    with one_thread():
        seconds, results = take_turns(contenders, effort.repeats)
    for hops in HOPS:
        found.furthest = max(found.furthest, _apart(results[ROWS, hops], results[PLAIN, hops]))
    return seconds


def _apart(engine: Explanation, plain: dict[str, Tensor]) -> float:
    pairs = [
        (engine.node_values, plain.get("nodes")),
        (engine.feature_values, plain.get("features")),
    ]
    return max(
        (float((a - b).abs().max()) for a, b in pairs if b is not None and len(b)), default=0.0
    )


def make(desk: Desk) -> Page:
    """Measure, and put the page together."""
    effort = effort_of(desk)
    found = {name: measure(desk, name, effort) for name in effort.plan.datasets}
    parts: list[Part] = [
        _INTRODUCTION,
        *_tables(found),
        Picture(
            "seconds",
            "Processor seconds for a node on a logarithmic axis, mean over seeds of the median "
            "over nodes: 3 hops (filled) and 2 hops (hollow). Diamonds: the paper's, on another "
            "machine.",
            lambda: draw(found),
        ),
    ]
    return Page(
        "Running times",
        tuple(parts),
        headline=headline(found),
        settings={
            "machine": machine(),
            "seeds": effort.plan.seeds,
            "timed nodes": f"{effort.nodes} of the paper's protocol a seed, the median of "
            f"{effort.repeats} turns each",
            "accuracy": "probabilities are explained, nodes ranked by signed value",
            "nodes for accuracy": effort.plan.words()["nodes"],
            "GNNExplainer": f"PyG's, {effort.epochs} epochs, on the receptive field alone",
            "samples": {
                f"{hops} hops": [paper_method(n, hops, effort.plan.divisor).samples for n in found]
                for hops in HOPS
            },
        },
    )


_INTRODUCTION = f"""
**Absolute times are those of this machine; only ratios count.** All contenders explain the same
node of the same model and take turns in one process with one thread; what is counted is processor
time. The paper's seconds stand beside ours although its machine was another one.

- `{OURS}`: the default of the library (`GraphSVX()`), with the paper's samples and hops.
- `{RIGHT}`: SmarterSeparate, indirect effect, weighted least squares, on our engine.
- `{ROWS}`: the same without the indirect effect, on our engine.
- `{PLAIN}`: the very rows of the line above, written plainly: the perturbed graph is built and the
  model called once for every row; drawing the rows is not counted.
- `{GNN}`: {EPOCHS} epochs, on the receptive field alone.
"""


def _name(key: Key) -> str:
    return f"{key[0]}, {key[1]} hops" if key[1] else key[0]


def _paper_seconds(key: Key, name: str) -> float | None:
    place = NODE_SETS.index(name)
    if key[0] == GNN:
        return PAPER_GNN[place]
    return PAPER_SECONDS[key[1]][place] if key[0] == RIGHT else None


def _tables(found: dict[str, Found]) -> list[Part]:
    columns = tuple(TITLES[name] for name in found)
    keys: list[Key] = [(who, hops) for hops in HOPS for who in (OURS, RIGHT, ROWS, PLAIN)]
    keys.append((GNN, 0))

    def seconds(key: Key, name: str) -> Cell:
        ours, paper = found[name].time(key), _paper_seconds(key, name)
        return ours if paper is None else Beside(ours, f"{paper:.2f}", 3)

    def ratio(slow: Key, fast: Key, name: str) -> Cell:
        ours = found[name].ratio(slow, fast)
        theirs, those = _paper_seconds(slow, name), _paper_seconds(fast, name)
        return ours if theirs is None or those is None else Beside(ours, theirs / those, 1)

    pairs: list[tuple[Key, Key]] = [
        *(((GNN, 0), (who, hops)) for hops in HOPS for who in (OURS, RIGHT)),
        *(((PLAIN, hops), (ROWS, hops)) for hops in HOPS),
    ]
    one = next(iter(found.values()))
    count = one.time((OURS, 3)).count
    far = max(each.furthest for each in found.values())
    scored: list[Key] = [
        (FLOOR, 0),
        *((who, hops) for who in (OURS, RIGHT) for hops in HOPS),
    ]
    counts = {
        what: ", ".join(
            f"{TITLES[n]} {f.accuracy((OURS, 3), what).count}" for n, f in found.items()
        )
        for what in ("paper", "strict")
    }
    return [
        Table("How many times faster", ("", *columns),
              tuple((f"{_name(slow)} / {_name(fast)}", *(ratio(slow, fast, n) for n in found))
                    for slow, fast in pairs),
              f"Median over nodes of the ratio, mean over seeds; {count} nodes a set. In brackets "
              f"the ratio of the paper's times. One call a row gives the credit of the engine to "
              f"within {far:.0e}.", 1),
        Table("Processor seconds for a node", ("", *columns),
              tuple((_name(key), *(seconds(key, n) for n in found)) for key in keys),
              "In brackets the paper's seconds, measured on another machine.", 3),
        Table("Accuracy with these settings, protocol `paper`", ("", *columns),
              tuple((_name(key), *(found[n].accuracy(key, "paper") for n in found))
                    for key in scored),
              f"The paper says that 2 hops keep the accuracy. Explanations: {counts['paper']}."),
        Table("Accuracy with these settings, protocol `strict`", ("", *columns),
              tuple((_name(key), *(found[n].accuracy(key, "strict") for n in found))
                    for key in scored),
              f"Explanations: {counts['strict']}."),
    ]  # fmt: skip


def draw(found: dict[str, Found]) -> Any:
    """Dots on a logarithmic axis, data sets side by side."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra)
    from matplotlib.ticker import NullFormatter  # noqa: PLC0415  (the same)

    from graphsvx.plot import canvas  # noqa: PLC0415  (the same)
    from graphsvx.plot.study import INKS  # noqa: PLC0415  (the same)

    rows = (OURS, RIGHT, ROWS, PLAIN, GNN)
    figure = Figure(figsize=(2.3 * len(found) + 2.2, 2.7), layout="constrained")
    line: Sequence[Any] = figure.subplots(1, len(found), squeeze=False, sharex=True, sharey=True)[0]
    for ax, (name, one) in zip(line, found.items(), strict=True):
        canvas.quiet(ax, "x")
        for height, row in enumerate(reversed(rows)):
            for key in [(row, hops) for hops in ((0,) if row == GNN else HOPS)]:
                ink = INKS[1] if row == OURS else INKS[6] if row == GNN else INKS[0]
                full = key[1] != 2
                ax.plot(one.time(key).mean, height, "o", ms=6, mec=ink, mfc=ink if full else "none")
                paper = _paper_seconds(key, name)
                if paper is not None:
                    ax.plot(paper, height, "D", ms=5.5, mec=INKS[7],
                            mfc=INKS[7] if full else "none")  # fmt: skip
        ax.set_xscale("log")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.tick_params(which="minor", length=0)
        ax.set_xlabel("processor seconds", fontsize=canvas.SMALL)
        canvas.heading(ax, TITLES[name])
    canvas.plain_ticks(line[0], "y", list(range(len(rows))), list(reversed(rows)))
    return figure


def _range(values: Sequence[float]) -> str:
    known = [value for value in values if not isnan(value)]
    low, high = min(known), max(known)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def headline(found: dict[str, Found]) -> str:
    """What of the paper's remarks on running times holds."""
    each = found.values()
    gnn = {
        key: [one.ratio((GNN, 0), key).mean for one in each]
        for key in ((RIGHT, 3), (RIGHT, 2), (OURS, 3), (OURS, 2))
    }
    paper = {
        hops: [
            PAPER_GNN[NODE_SETS.index(n)] / PAPER_SECONDS[hops][NODE_SETS.index(n)] for n in found
        ]
        for hops in HOPS
    }
    plain = [one.ratio((PLAIN, 3), (ROWS, 3)).mean for one in each]
    lost = [
        one.accuracy((RIGHT, 3), "paper").mean - one.accuracy((RIGHT, 2), "paper").mean
        for one in each
    ]
    return (
        f"On one thread GNNExplainer takes {_range(gnn[RIGHT, 3])} times as long as the paper's "
        f"method on our engine with 3 hops (paper: {_range(paper[3])}) and "
        f"{_range(gnn[RIGHT, 2])} times with 2 hops (paper: {_range(paper[2])}); against our "
        f"default {_range(gnn[OURS, 3])} and {_range(gnn[OURS, 2])} times. One model call a row "
        f"takes {_range(plain)} times as long as our engine on the same rows. From 3 to 2 hops the "
        f"paper's method changes its accuracy by "
        f"{', '.join(f'{-value:+.2f}' for value in lost)} on "
        f"{', '.join(TITLES[name] for name in found)} (paper: none)."
    )


STUDY = Study(
    "time",
    "seconds for a node with 3 and 2 hops, as ratios to GNNExplainer and to one call a row",
    make,
)
