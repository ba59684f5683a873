"""Studies `masks`, `budget` and `time`: which coalitions are played, how many, how long it takes.

Two things are judged: whether the motif is found, and how far credit is from the Shapley values
that it stands for (`error`, against a reference with many more calls).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import truediv
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from graphsvx.api import explain
from graphsvx.estimators import WLS
from graphsvx.masks import Auto, Mask, Random, Smart, SmarterSeparate, SmartSeparate
from graphsvx.methods import GNNExplainer, GraphSVX
from graphsvx.utils.console import message
from graphsvx.utils.exclusive import single_thread
from graphsvx_lab.datasets.catalogue import NODE_SETS, NODE_TITLES, data_title
from graphsvx_lab.metrics.measurements import (
    Estimate,
    Measurements,
    Value,
    is_close,
    is_positive,
    reaches,
)
from graphsvx_lab.studies import motifs, settings
from graphsvx_lab.studies.context import CHANCE, Setting
from graphsvx_lab.studies.page import Cell, Claim, Figure, Page, Table, dots, from_paper, pivots
from graphsvx_lab.studies.study import Case, Grid, study_of
from graphsvx_lab.studies.variants import REFERENCE, paper_game, reference

FLOOR, OURS, ALL, MOST = "Random explainer", "ours", "All", "ours, 20x the calls"
SMARTER, LETTER = "SmarterSeparate", "SmarterSeparate, indirect effect"
TUNED = "SmarterSeparate, selected settings"
MASKS: dict[str, Mask] = {"Random": Random(), "Smart": Smart(), "SmartSeparate": SmartSeparate()}
PAPER = from_paper(
    {
        "Random": (0.84, 0.75, 0.74, 0.64),
        "Smart": (0.93, 0.91, 0.81, 0.79),
        "SmartSeparate": (0.94, 0.92, 0.85, 0.83),
        **dict.fromkeys((SMARTER, LETTER, TUNED), (0.99, 0.93, 0.97, 0.93)),
        ALL: (0.80, 0.79, 0.87, 0.77),
    },
    NODE_SETS,
)
"""The paper's accuracies (appendix, table on MASK)."""


# --- masks ----------------------------------------------------------------------------------


def mask_methods(dataset: str) -> dict[str, Setting]:
    """The same samples and the same game; only the coalitions differ."""
    game = paper_game(dataset)
    return {
        FLOOR: CHANCE,
        **{name: Setting(replace(game, mask=mask)) for name, mask in MASKS.items()},
        SMARTER: Setting(game),
        LETTER: Setting(GraphSVX.paper(dataset)),
        TUNED: settings.selected_setting(dataset, settings.OURS),
        OURS: Setting(replace(game, mask=Auto())),
        # Where no feature plays, the joint game is the game of the nodes.
        ALL: reference(game, separate=dataset != "ba-community"),
        MOST: reference(game),
    }


MASK_REFERENCES = {
    **dict.fromkeys(("Random", "Smart", ALL), ALL),
    **dict.fromkeys(("SmartSeparate", SMARTER, OURS, MOST), MOST),
}
"""Joint masks are judged by the joint game, separate ones by the separate games."""
MASK_GRID = Grid(
    NODE_SETS,
    mask_methods,
    motifs.scoring(10, 10),
    quick=("ba-community",),
    measures=(motifs.accuracy, motifs.certificate, motifs.error_against(MASK_REFERENCES)),
)


@study_of(MASK_GRID)
def masks(results: Measurements) -> Page:
    """All, Random, Smart, SmartSeparate, SmarterSeparate and ours at equal budgets"""
    measures = ("paper", "strict", "AUROC", "error", "own error", "calls", "exact")
    tables = pivots(results, measures, paper=PAPER)
    return Page(
        "Mask generators at equal budgets",
        [
            *Claim.each("SmarterSeparate's accuracy", PAPER[SMARTER],
                        results.by("data", "paper", method=SMARTER), reaches),
            *(Claim.first("SmarterSeparate is ahead of the paper's other masks", "first",
                          results.tests("strict", SMARTER, [*MASKS, ALL], data=s), s)
              for s in NODE_TITLES),
            *Claim.each("Accuracy of all coalitions, within 0.05", PAPER[ALL],
                        results.by("data", "paper", method=ALL), is_close),
        ],
        dots("accuracy", "Accuracy (`paper`; diamonds: the paper's figures) and relative squared "
             "error.", {"accuracy (paper)": tables[0], "error": tables[3]}, log=("error",)),
        {"Details": tables},
        "Every mask generator gets the paper's number of samples in the same game.",
        "The game is that of `GraphSVX()` without the indirect effect. The paper's masks end in "
        "weighted least squares, ours (`Auto()`) in its own regression. `Random`, `Smart` and "
        f"`All` play features and nodes in one joint game; their error is that to `{ALL}`, of "
        f"others to `{MOST}`: both exact where {REFERENCE} times the samples are "
        "enough.")  # fmt: skip


# --- budget ---------------------------------------------------------------------------------

ORDER, INDIRECT, CYCLES = "S = {}", "with the indirect effect: ", "tree-cycles"
SAMPLES, ORDERS = (50, 150, 500, 1500, 3000, 6000), (1, 2, 3, 4, 5)
BY_SAMPLES = {500: 0.83, 1500: 0.95, 3000: 0.88}
"""The paper's accuracies on that set by number of samples (appendix); of all coalitions: 0.87."""


def varied(game: GraphSVX) -> dict[str, Setting]:
    """Both estimators with more and more samples, and the reference."""
    settings = {ALL: reference(game)}
    for count in SAMPLES:
        # A reference has to have far more calls than what it judges.
        if count <= REFERENCE * (game.budget.samples or 1000) // 2:
            settings[f"{SMARTER}, {count}"] = Setting(game.with_settings(samples=count))
            settings[f"{OURS}, {count}"] = Setting(game.with_settings(samples=count, mask=Auto()))
    return settings


def budgets(dataset: str) -> dict[str, Setting]:
    """More and more samples; and larger and larger S with the paper's number of samples."""
    game = paper_game(dataset)
    orders = {
        ORDER.format(order): Setting(replace(game, mask=SmarterSeparate(order=order)))
        for order in ORDERS
    }
    return {FLOOR: CHANCE, **varied(game), **orders}


def in_the_papers_game(dataset: str) -> dict[str, Setting]:
    """The paper's numbers of samples in its own game."""
    settings = varied(GraphSVX.paper(dataset))
    names = (*(f"{SMARTER}, {count}" for count in BY_SAMPLES), ALL)
    return {f"{INDIRECT}{name}": settings[name] for name in names}


BUDGET_REFERENCES = {
    name: (INDIRECT if name.startswith(INDIRECT) else "") + ALL
    for name in (
        *varied(paper_game(CYCLES)),
        *map(ORDER.format, ORDERS),
        *in_the_papers_game(CYCLES),
    )
}
"""`All` of the same game; this set has all numbers of samples."""
BUDGET_GRID = Grid(
    NODE_SETS,
    budgets,
    motifs.scoring(10, 10),
    measures=(motifs.accuracy, motifs.error_against(BUDGET_REFERENCES)),
)
PAPERS_GAME = replace(BUDGET_GRID, datasets=(CYCLES,), methods=in_the_papers_game)


@study_of(BUDGET_GRID, PAPERS_GAME)
def budget(results: Measurements) -> Page:
    """accuracy and error against the number of samples and against S"""
    cycles, many = data_title(CYCLES), f"{SMARTER}, 1500"

    def gains(before: str, after: str) -> dict[str, Estimate]:
        pair = (after, "paper"), (before, "paper")
        return {title: results.paired(*pair, data=title) for title in NODE_TITLES}

    claims = [
        *Claim.each(
            f"SmarterSeparate's accuracy in the paper's game on {cycles}, within 0.05",
            {f"{n:,} samples": figure for n, figure in BY_SAMPLES.items()},
            {f"{n:,} samples": results.estimate("paper", method=f"{INDIRECT}{SMARTER}, {n}")
             for n in BY_SAMPLES}, is_close),
        Claim.of(f"Accuracy falls from 1,500 to 3,000 samples on {cycles}: by", 0.95 - 0.88,
                 gains(f"{SMARTER}, 3000", many)[cycles], is_positive),
        *Claim.each("1,500 samples score more than all coalitions, by",
                    {**dict.fromkeys(NODE_TITLES, "more"), cycles: 0.95 - 0.87}, gains(ALL, many),
                    is_positive),
        *Claim.each("S = 4 in place of 1 raises accuracy, by",
                    dict.fromkeys(NODE_TITLES[2:], "raises"),
                    gains(ORDER.format(1), ORDER.format(4)), is_positive)]  # fmt: skip
    axes = {"accuracy (paper)": "paper", "accuracy (strict)": "strict", "error": "error"}
    points = {axis: {title: {name: {
        n: e.band for n in SAMPLES
        if (e := results.estimate(measure, method=f"{name}, {n}", data=title)).seeds}
        for name in (SMARTER, OURS)} for title in results.names("data")}
        for axis, measure in axes.items()}  # fmt: skip
    in_paper, log = {("accuracy (paper)", cycles): BY_SAMPLES}, ("error", "samples")
    caption = "Accuracy under both protocols and relative squared error against the number of "
    caption += "samples. Diamonds: the paper's."
    return Page(
        "How many samples, and how large an order",
        claims,
        Figure("samples", caption, lambda plots: plots.curves(points, "samples", in_paper, log)),
        {"Details": pivots(results, ("paper", "strict", "AUROC", "error", "own error"))},
        "The paper says that more samples help until a point, after which accuracy falls towards "
        "that of all coalitions.",
        "The paper's estimator (SmarterSeparate, weighted least squares) and ours explain the same "
        "nodes in the same game, without the indirect effect unless it is named. Errors are those "
        f"to `{ALL}`, exact where {REFERENCE} times the samples are enough.",
    )


# --- time -----------------------------------------------------------------------------------

PAPERS, GNN = "paper's method", "GNNExplainer"
BY_HOPS = {3: (400, 800, 1400, 1500), 2: (65, 100, 300, 400)}
"""The paper's, by hops and in the order of `NODE_SETS`; below its seconds (appendix)."""
SECONDS = from_paper(
    {
        f"{PAPERS}, 3 hops": (2.12, 8.31, 3.65, 6.22),
        f"{PAPERS}, 2 hops": (0.30, 1.09, 1.21, 1.87),
        GNN: (6.63, 7.08, 6.89, 7.31),
    },
    NODE_SETS,
)
NODES, REPEATS = 2, 3  # timed nodes of a seed, and turns of each


def timed(dataset: str) -> dict[str, Setting]:
    """With the samples of the paper's tables on running times."""
    settings = {}
    for hops, counts in BY_HOPS.items():
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
            start = process_time()
            run()
            seconds[name].append(process_time() - start)
    return {name: median(times) for name, times in seconds.items()}


def seconds(case: Case) -> Iterator[Value]:
    """All contenders on the same nodes, with one thread."""
    trained, (nodes, repeats) = case.trained, (1, 1) if case.context.quick else (NODES, REPEATS)
    methods = {name: setting.method for name, setting in case.settings.items()}
    methods[GNN] = GNNExplainer(epochs=3 if case.context.quick else 100)
    scored = case.questions["paper"]
    for place in range(case.seed * nodes, (case.seed + 1) * nodes):  # other nodes for every seed
        node = scored[place % len(scored)]
        message(f"{trained.card.name}: timing node {node}")
        ask = partial(explain, trained.model, trained.dataset.graph, node=node)
        ask()  # indexes the graph, before the clock runs
        with single_thread():
            times = take_turns({k: partial(ask, method=m) for k, m in methods.items()}, repeats)
        yield from ((name, node, "seconds", value) for name, value in times.items())


TIME_GRID = Grid(
    NODE_SETS, timed, motifs.scoring(10, 10), measures=(motifs.accuracy,), case_measures=(seconds,)
)


@study_of(TIME_GRID, takes_times=True)
def time(results: Measurements) -> Page:
    """seconds for a node with 3 and 2 hops, as ratios to GNNExplainer"""
    ratios = {name: {
        title: results.paired((GNN, "seconds"), (name, "seconds"), combine=truediv,
                              statistic=np.median, data=title) for title in NODE_TITLES}
        for name in results.names("method", measure="seconds") if name != GNN}  # fmt: skip
    claims = [claim for hops in BY_HOPS for claim in Claim.each(
        f"GNNExplainer's time over GraphSVX's, {hops} hops",
        {s: SECONDS[GNN][s] / figure for s, figure in SECONDS[f"{PAPERS}, {hops} hops"].items()},
        ratios.get(f"{PAPERS}, {hops} hops", {}), lambda e, p: e.mean >= p, digits=1)]  # fmt: skip
    pair = (f"{PAPERS}, 2 hops", "paper"), (f"{PAPERS}, 3 hops", "paper")
    statement, gaps = "2 hops keep the accuracy of 3, within 0.05", dict.fromkeys(NODE_TITLES, 0.0)
    changes = {s: results.paired(*pair, data=s) for s in NODE_TITLES}
    claims += Claim.each(statement, gaps, changes, is_close)
    title, note = "GNNExplainer's time over that of GraphSVX", "Median over nodes of the ratio"
    rows: list[list[Cell]] = [[name, *by_set.values()] for name, by_set in ratios.items()]
    by_ratio = Table(title, ["", *NODE_TITLES], rows, f"{note}, mean over seeds.", digits=1)
    tables = [by_ratio, *pivots(results, ("seconds", "paper", "strict"), paper=SECONDS)]
    caption = "Processor seconds for a node. Diamonds: the paper's, elsewhere."
    return Page(
        "Running times",
        claims,
        dots("seconds", caption, {"seconds": tables[1]}, log=("seconds",)),
        {"Details": tables},
        "Only ratios count: absolute times are those of this machine.",
        "All explain the same node and take turns in one process with one thread; processor time "
        f"is counted. `{OURS}`: `GraphSVX()` with the paper's samples and hops. `{PAPERS}`: "
        "SmarterSeparate, indirect effect, weighted least squares, on our engine. "
        f"`{GNN}`: 100 epochs, on the receptive field alone. One model call a coalition is in "
        "[speed.md](speed.md).",
    )
