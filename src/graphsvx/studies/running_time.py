"""Study `time`: seconds for a node with 3 and 2 hops, beside GNNExplainer."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from graphsvx.api import explain
from graphsvx.baselines import GNNExplainer
from graphsvx.engine.threads import one_thread
from graphsvx.explain import WLS
from graphsvx.methods import GraphSVX
from graphsvx.metrics import PAPER_PROTOCOLS
from graphsvx.studies import motifs
from graphsvx.studies.figures import dots
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import (
    Claim,
    Figure,
    Page,
    Section,
    Table,
    WithPaper,
    by,
    is_close,
    pivots,
)
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.statistics import Estimate
from graphsvx.studies.study import Case, Grid, Study, Value
from graphsvx.studies.titles import NODE_SETS, data_title

OURS, PAPERS, GNN, FLOOR = "ours", "paper's method", "GNNExplainer", "Random explainer"
HOPS = (3, 2)
# The paper's samples and seconds (appendix, both tables), in the order of NODE_SETS.
SAMPLES = {3: (400, 800, 1400, 1500), 2: (65, 100, 300, 400)}
PAPER_SECONDS = {3: (2.12, 8.31, 3.65, 6.22), 2: (0.30, 1.09, 1.21, 1.87)}
PAPER_GNN = (6.63, 7.08, 6.89, 7.31)
NODES, REPEATS = 2, 3
"""Timed nodes of a seed, and turns of each."""


def label(method: str, hops: int) -> str:
    """`ours, 3 hops`."""
    return f"{method}, {hops} hops"


CONTENDERS = [*(label(method, hops) for hops in HOPS for method in (OURS, PAPERS)), GNN]


def methods(dataset: str) -> dict[str, Setting]:
    """With the samples of the paper's tables on running times; all but chance are timed."""
    found = {FLOOR: CHANCE}
    for hops in HOPS:
        samples = SAMPLES[hops][NODE_SETS.index(dataset)]
        theirs = GraphSVX.paper(dataset, hops=hops, samples=samples, regression=WLS())
        found[label(OURS, hops)] = Setting(GraphSVX(samples=samples, hops=hops))
        found[label(PAPERS, hops)] = Setting(theirs)
    return found


def take_turns(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median processor seconds; contenders in turn, so that a busy machine slows all."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: median(each) for name, each in seconds.items()}


def timed_nodes(dataset: str, seed: int, count: int) -> list[int]:
    """Other nodes of the paper's protocol for every seed."""
    nodes = PAPER_PROTOCOLS[dataset].scored
    return [nodes[(seed * count + i) % len(nodes)] for i in range(count)]


def seconds(case: Case) -> Iterator[Value]:
    """All contenders on the same nodes, with one thread."""
    quick, trained = case.context.quick, case.trained
    timed = {name: setting.method for name, setting in case.settings.items() if name != FLOOR}
    timed[GNN] = GNNExplainer(epochs=3 if quick else 100)
    for node in timed_nodes(trained.dataset.name, case.seed, 1 if quick else NODES):
        case.context.say(f"{trained.card.name}: timing node {node}")
        ask = partial(explain, trained.model, trained.dataset.graph, node=node)
        ask()  # indexes the graph, before the clock runs
        with one_thread():
            taken = take_turns({name: partial(ask, method=method) for name, method in timed.items()},
                               1 if quick else REPEATS)  # fmt: skip
        yield from ((name, node, "seconds", value) for name, value in taken.items())


GRIDS = (
    Grid(
        NODE_SETS,
        methods,
        motifs.scoring(20),
        measures=(motifs.accuracy,),
        case_measures=(seconds,),
        quick=("tree-cycles",),
    ),
)


def page(results: Measurements) -> Page:
    """Ratios first: absolute times are those of one machine."""
    sets = {data_title(name): place for place, name in enumerate(NODE_SETS)
            if results.keys(dataset=name)}  # fmt: skip

    def paper_seconds(name: str, title: str) -> float | None:
        known = {GNN: PAPER_GNN, **{label(PAPERS, hops): PAPER_SECONDS[hops] for hops in HOPS}}
        return known[name][sets[title]] if name in known else None

    def ratio(fast: str, title: str) -> WithPaper:
        ours = results.paired((GNN, "seconds"), (fast, "seconds"), combine=truediv,
                              statistic=np.median, data=title)  # fmt: skip
        theirs = paper_seconds(fast, title)
        return WithPaper(ours, PAPER_GNN[sets[title]] / theirs if theirs else "-")

    def faster(ours: Estimate, paper: float) -> bool:
        return ours.mean >= paper

    times = Table(
        "GNNExplainer's time over that of GraphSVX", ("", *sets),
        tuple((name, *(ratio(name, s) for s in sets)) for name in CONTENDERS[:-1]),
        "Median over nodes of the ratio, mean over seeds; in brackets that of the paper.", 1,
    )  # fmt: skip
    tables = pivots(results, by("method", [*CONTENDERS, FLOOR]), by("data", sets), {
        "Processor seconds for a node": {"measure": "seconds", "paper": paper_seconds, "digits": 3},
        "Accuracy with these settings, protocol `paper`": "paper",
        "Accuracy with these settings, protocol `strict`": "strict",
    })  # fmt: skip
    figure = Figure(
        "seconds", "Processor seconds for a node. Diamonds: the paper's, on another machine.",
        lambda: dots(
            {"seconds": {s: {m: results.estimate("seconds", method=m, data=s) for m in CONTENDERS}
                         for s in sets}},
            {("seconds", s, m): figure for s in sets for m in CONTENDERS
             if (figure := paper_seconds(m, s)) is not None},
            log=("seconds",),
        ),
    )  # fmt: skip
    claims = []
    for s, place in sets.items():
        for hops in HOPS:
            paper = PAPER_GNN[place] / PAPER_SECONDS[hops][place]
            claims.append(Claim.of(f"GNNExplainer takes this many times as long, {s}, {hops} hops",
                                   paper, ratio(label(PAPERS, hops), s).ours, faster, 1))  # fmt: skip
        kept = results.paired((label(PAPERS, 2), "paper"), (label(PAPERS, 3), "paper"), data=s)
        claims.append(Claim.of(f"Accuracy with 2 hops minus 3 hops on {s}, within 0.05", 0.0, kept,
                               is_close))  # fmt: skip
    return Page(
        "Running times",
        tuple(claims),
        figure,
        (Section("Details", (times, *tables)),),
        f"Absolute times are those of this machine; only ratios count. All explain the same node "
        f"of the same model and take turns in one process with one thread; processor time is "
        f"counted. `{OURS}`: `GraphSVX()` with the paper's samples and hops. `{PAPERS}`: "
        f"SmarterSeparate, indirect effect, weighted least squares, on our engine. `{GNN}`: 100 "
        f"epochs, on the receptive field alone. One model call a coalition is in "
        f"[speed.md](speed.md).",
    )


def machine() -> dict[str, str]:
    """What the times were measured on; nothing that names it or its owner."""
    name, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return {"machine": f"{name}, {os.cpu_count()} cores, one thread; {system}"}


STUDY = Study(
    "time", "seconds for a node with 3 and 2 hops, as ratios to GNNExplainer", GRIDS, page, machine
)
