"""Study `time`: seconds for a node with 3 and 2 hops, beside GNNExplainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import truediv
from statistics import median
from typing import Any

import numpy as np

from graphsvx.api import explain
from graphsvx.estimators import WLS
from graphsvx.methods import GNNExplainer, GraphSVX
from graphsvx.metrics import PAPER_PROTOCOLS
from graphsvx.metrics.comparison import is_close
from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Page, Table, WithPaper, dots, from_paper, pivots
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.study import Case, Grid, Study, Value
from graphsvx.studies.titles import NODE_SETS, NODE_TITLES
from graphsvx.utils.console import message
from graphsvx.utils.threads import single_thread

OURS, PAPERS, GNN, FLOOR = "ours", "paper's method", "GNNExplainer", "Random explainer"
HOPS = (3, 2)
# The paper's samples and seconds (appendix, both tables), in the order of NODE_SETS.
SAMPLES = {3: (400, 800, 1400, 1500), 2: (65, 100, 300, 400)}
PAPER = from_paper({
    f"{PAPERS}, 3 hops": (2.12, 8.31, 3.65, 6.22), f"{PAPERS}, 2 hops": (0.30, 1.09, 1.21, 1.87),
    GNN: (6.63, 7.08, 6.89, 7.31),
}, NODE_SETS)  # fmt: skip
NODES, REPEATS = 2, 3
"""Timed nodes of a seed, and turns of each."""


def methods(dataset: str) -> dict[str, Setting]:
    """With the samples of the paper's tables on running times; all but chance are timed."""
    settings = {FLOOR: CHANCE}
    for hops in HOPS:
        samples = SAMPLES[hops][NODE_SETS.index(dataset)]
        theirs = GraphSVX.paper(dataset, hops=hops, samples=samples, estimator=WLS())
        settings[f"{OURS}, {hops} hops"] = Setting(GraphSVX(samples=samples, hops=hops))
        settings[f"{PAPERS}, {hops} hops"] = Setting(theirs)
    return settings


def take_turns(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median processor seconds; contenders in turn, so that a busy machine slows all."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: median(times) for name, times in seconds.items()}


def seconds(case: Case) -> Iterator[Value]:
    """All contenders on the same nodes, with one thread."""
    trained, (nodes, repeats) = case.trained, (1, 1) if case.context.quick else (NODES, REPEATS)
    timed = {name: setting.method for name, setting in case.settings.items() if name != FLOOR}
    timed[GNN] = GNNExplainer(epochs=3 if case.context.quick else 100)
    scored = PAPER_PROTOCOLS[trained.dataset.name].scored
    for place in range(case.seed * nodes, (case.seed + 1) * nodes):  # other nodes for every seed
        node = scored[place % len(scored)]
        message(f"{trained.card.name}: timing node {node}")
        ask = partial(explain, trained.model, trained.dataset.graph, node=node)
        ask()  # indexes the graph, before the clock runs
        with single_thread():
            median_times = take_turns(
                {k: partial(ask, method=m) for k, m in timed.items()}, repeats
            )
        yield from ((name, node, "seconds", value) for name, value in median_times.items())


GRID = Grid(NODE_SETS, methods, motifs.scoring(10, 10), measures=(motifs.accuracy,),
            case_measures=(seconds,), quick=("tree-cycles",))  # fmt: skip


def page(results: Measurements) -> Page:
    """Ratios first: absolute times are those of one machine."""
    sets = results.names("data")

    def ratio(fast: str, title: str) -> WithPaper:
        ours = results.paired((GNN, "seconds"), (fast, "seconds"), combine=truediv,
                              statistic=np.median, data=title)  # fmt: skip
        theirs = PAPER(fast, title)
        return WithPaper(ours, (PAPER(GNN, title) or 0.0) / theirs if theirs else "-")

    claims = []
    for s in NODE_TITLES:
        for hops in HOPS:
            times = ratio(f"{PAPERS}, {hops} hops", s)
            statement = f"GNNExplainer takes so many times as long, {hops} hops"
            claims.append(
                Claim.of(statement, times.paper, times.ours, lambda e, p: e.mean >= p, 1, s)
            )
        pair = (f"{PAPERS}, 2 hops", "paper"), (f"{PAPERS}, 3 hops", "paper")
        claims.append(Claim.of("2 hops keep the accuracy of 3, within 0.05", 0.0,
                               results.paired(*pair, data=s), is_close, on=s))  # fmt: skip
    ratios = Table(
        "GNNExplainer's time over that of GraphSVX", ["", *sets],
        [[name, *(ratio(name, s) for s in sets)]
         for name in results.names("method", measure="seconds") if name != GNN],
        "Median over nodes of the ratio, mean over seeds; in brackets that of the paper.", 1,
    )  # fmt: skip
    tables = pivots(results, {
        "Processor seconds for a node": {
            "measure": "seconds", "paper": PAPER, "digits": 3},
        "Accuracy with these settings, protocol `paper`": "paper",
        "Accuracy with these settings, protocol `strict`": "strict",
    })  # fmt: skip
    return Page(
        "Running times",
        claims,
        dots(results, "seconds", "Processor seconds for a node. Diamonds: the paper's, elsewhere.",
             ("seconds",), paper=PAPER, log=("seconds",)),
        {"Details": (ratios, *tables)},
        f"Absolute times are those of this machine; only ratios count. All explain the same node "
        f"of the same model and take turns in one process with one thread; processor time is "
        f"counted. `{OURS}`: `GraphSVX()` with the paper's samples and hops. `{PAPERS}`: "
        f"SmarterSeparate, indirect effect, weighted least squares, on our engine. `{GNN}`: 100 "
        f"epochs, on the receptive field alone. One model call a coalition is in "
        f"[speed.md](speed.md).",
    )  # fmt: skip


ABOUT = "seconds for a node with 3 and 2 hops, as ratios to GNNExplainer"
STUDY = Study("time", ABOUT, (GRID,), page)
