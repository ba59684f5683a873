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
from graphsvx.studies.page import Claim, Page, Table, dots, from_paper, pivots
from graphsvx.studies.setting import Setting
from graphsvx.studies.study import Case, Grid, Study, Value
from graphsvx.studies.titles import NODE_SETS, NODE_TITLES
from graphsvx.utils.console import message
from graphsvx.utils.threads import single_thread

OURS, PAPERS, GNN = "ours", "paper's method", "GNNExplainer"
SAMPLES = {3: (400, 800, 1400, 1500), 2: (65, 100, 300, 400)}
"""The paper's, by hops and in the order of `NODE_SETS`; below its seconds (appendix)."""
PAPER = from_paper({
    f"{PAPERS}, 3 hops": (2.12, 8.31, 3.65, 6.22), f"{PAPERS}, 2 hops": (0.30, 1.09, 1.21, 1.87),
    GNN: (6.63, 7.08, 6.89, 7.31),
}, NODE_SETS)  # fmt: skip
NODES, REPEATS = 2, 3
"""Timed nodes of a seed, and turns of each."""


def methods(dataset: str) -> dict[str, Setting]:
    """With the samples of the paper's tables on running times."""
    settings = {}
    for hops, counts in SAMPLES.items():
        samples = counts[NODE_SETS.index(dataset)]
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
    timed = {name: setting.method for name, setting in case.settings.items()}
    timed[GNN] = GNNExplainer(epochs=3 if case.context.quick else 100)
    scored = PAPER_PROTOCOLS[trained.dataset.name].scored
    for place in range(case.seed * nodes, (case.seed + 1) * nodes):  # other nodes for every seed
        node = scored[place % len(scored)]
        message(f"{trained.card.name}: timing node {node}")
        ask = partial(explain, trained.model, trained.dataset.graph, node=node)
        ask()  # indexes the graph, before the clock runs
        with single_thread():
            times = take_turns({k: partial(ask, method=m) for k, m in timed.items()}, repeats)
        yield from ((name, node, "seconds", value) for name, value in times.items())


GRID = Grid(NODE_SETS, methods, motifs.scoring(10, 10), measures=(motifs.accuracy,),
            case_measures=(seconds,), quick=("tree-cycles",))  # fmt: skip


def page(results: Measurements) -> Page:
    """Ratios first: absolute times are those of one machine."""
    ratios = {name: {
        title: results.paired((GNN, "seconds"), (name, "seconds"), combine=truediv,
                              statistic=np.median, data=title) for title in NODE_TITLES}
        for name in results.names("method", measure="seconds") if name != GNN}  # fmt: skip
    claims = [claim for hops in SAMPLES for claim in Claim.each(
        f"GNNExplainer takes so many times as long, {hops} hops",
        {s: PAPER[GNN][s] / figure for s, figure in PAPER[f"{PAPERS}, {hops} hops"].items()},
        ratios.get(f"{PAPERS}, {hops} hops", {}), lambda e, p: e.mean >= p, digits=1)]  # fmt: skip
    pair = (f"{PAPERS}, 2 hops", "paper"), (f"{PAPERS}, 3 hops", "paper")
    claims += Claim.each(
        "2 hops keep the accuracy of 3, within 0.05", dict.fromkeys(NODE_TITLES, 0.0),
        {s: results.paired(*pair, data=s) for s in NODE_TITLES}, is_close)  # fmt: skip
    tables = pivots(results, ("seconds", "paper", "strict"), paper=PAPER)
    tables.insert(0, Table(
        "GNNExplainer's time over that of GraphSVX", ["", *NODE_TITLES],
        [[name, *by_set.values()] for name, by_set in ratios.items()],
        "Median over nodes of the ratio, mean over seeds.", digits=1))  # fmt: skip
    return Page(
        "Running times",
        claims,
        dots("seconds", "Processor seconds for a node. Diamonds: the paper's, elsewhere.",
             {"seconds": tables[1]}, log=("seconds",)),
        {"Details": tables},
        "Absolute times are those of this machine; only ratios count. All explain the same node "
        "of the same model and take turns in one process with one thread; processor time is "
        f"counted. `{OURS}`: `GraphSVX()` with the paper's samples and hops. `{PAPERS}`: "
        f"SmarterSeparate, indirect effect, weighted least squares, on our engine. `{GNN}`: 100 "
        "epochs, on the receptive field alone. One model call a coalition is in "
        "[speed.md](speed.md).",
    )  # fmt: skip


ABOUT = "seconds for a node with 3 and 2 hops, as ratios to GNNExplainer"
STUDY = Study("time", ABOUT, (GRID,), page)
