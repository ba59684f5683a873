"""Study `settings`: how the explainers are asked, chosen on seeds that no other study scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Cell, Claim, Page, Section, Table
from graphsvx.studies.selected_settings import (
    CANDIDATES,
    EXPLAINERS,
    Reading,
    candidates,
    readings,
    selected_setting,
)
from graphsvx.studies.setting import Setting, with_node_scores
from graphsvx.studies.statistics import Estimate
from graphsvx.studies.study import Answer, Grid, Study
from graphsvx.studies.titles import TRUTH_SETS, data_title

SEEDS = (100, 101)
STRICT, PAPER = 10, 6
"""Questions a seed, the same for every explainer."""
CLOSE = 0.01
"""A selected setting may be this far from the best: then the plainer one is taken."""


def label(explainer: str, setting: Setting) -> str:
    """A candidate in words, without its reading."""
    return f"{explainer}: {replace(setting, by='value', edge_rule='largest').words()}"


def methods(dataset: str) -> dict[str, Setting]:
    """All candidates of all explainers."""
    return {label(name, one): one for name in EXPLAINERS for one in candidates(dataset, name)}


def words(reading: Reading) -> str:
    """`signed, largest`."""
    return f"{'signed' if reading[0] == 'value' else 'absolute'}, {reading[1]}"


def accuracy_of_readings(answer: Answer) -> dict[str, float]:
    """Accuracy under each protocol that scores the question, for every reading."""
    found = {}
    for by, rule in readings(answer.method.split(":")[0]):
        explanation = with_node_scores(answer.explanation, rule)
        scores = motifs.ranked_accuracy(answer, explanation, by)
        found |= {f"{protocol}, {words((by, rule))}": scores[protocol]
                  for protocol in ("paper", "strict") if protocol in scores}  # fmt: skip
    return found


GRIDS = (
    Grid(
        TRUTH_SETS,
        methods,
        motifs.scoring(STRICT, PAPER),
        measures=(accuracy_of_readings,),
        models={"": motifs.trained_with(cut_edges=False)},
        seeds=SEEDS,
        quick=("tree-cycles",),
    ),
)


def mean_accuracy(results: Measurements, dataset: str, method: str, reading: Reading) -> Estimate:
    """What settings are judged by: the mean of the accuracies under both protocols."""
    both = [results.estimate(f"{protocol}, {words(reading)}", dataset=dataset, method=method)
            for protocol in ("paper", "strict")]  # fmt: skip
    pairs = zip(*(one.by_seed for one in both), strict=True)
    return Estimate(tuple(float(np.mean(pair)) for pair in pairs))


def page(results: Measurements) -> Page:
    """A table for each data set; claims say how near the selected settings are to the best."""
    sections = []
    gaps: dict[str, list[float]] = {name: [] for name in EXPLAINERS}
    for dataset in [name for name in TRUTH_SETS if results.keys(dataset=name)]:
        rows: list[tuple[Cell, ...]] = []
        for name in EXPLAINERS:
            chosen = selected_setting(dataset, name)
            tried = [label(name, one) for one in candidates(dataset, name)]
            found = {(method, reading): mean_accuracy(results, dataset, method, reading)
                     for method in tried for reading in readings(name)}  # fmt: skip
            mine = label(name, chosen)
            best = max(estimate.mean for estimate in found.values())
            gaps[name].append(best - found[mine, (chosen.by, chosen.edge_rule)].mean)
            for method in tried:
                top = max(readings(name), key=lambda r: found[method, r].mean)
                mark = f"selected, {words((chosen.by, chosen.edge_rule))}" if method == mine else ""
                rows.append((method, words(top), found[method, top], mark))
        title = f"{data_title(dataset)}: mean accuracy of both protocols, best reading"
        table = Table(title, ("candidate", "reading", "accuracy", ""), tuple(rows), digits=3)
        sections.append(Section(data_title(dataset), (table,)))
    claims = [
        Claim(f"{name}: selected settings within {CLOSE} of the best of {CANDIDATES} candidates",
              "", f"{sum(gap <= CLOSE for gap in found)} of {len(found)} sets, furthest "
              f"{max(found, default=0):.3f}", holds=max(found, default=0) <= CLOSE)
        for name, found in gaps.items()
    ]  # fmt: skip
    return Page(
        "Settings, chosen on validation seeds",
        tuple(claims),
        sections=tuple(sections),
        about=f"Validation seeds have graphs, splits and models of their own. Every explainer has "
        f"{CANDIDATES} candidates on every set (settings times readings: ranking by signed or "
        f"absolute value, rule from edges to nodes), the same {STRICT} questions of `strict` and "
        f"{PAPER} of `paper` a seed, and is judged by the mean of its accuracies under the two "
        f"protocols ([protocols.md](protocols.md)).",
    )


STUDY = Study("settings", "how the explainers are asked, chosen on validation seeds", GRIDS, page)
