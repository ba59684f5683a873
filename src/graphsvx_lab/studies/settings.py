"""Study `settings`: how the explainers are asked, chosen on seeds that no other study scores.

Every explainer has as many candidates on every data set, asked the same questions about the same
models of validation seeds (100 and up): a few settings, each read in several ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import nan
from statistics import fmean
from typing import Any

from graphsvx.core.model import Scale
from graphsvx.errors import InputError
from graphsvx.masks import SmarterSeparate
from graphsvx.methods import GNNExplainer, GraphSVX, PGExplainer, PGMExplainer
from graphsvx.results.explanation import Ranking
from graphsvx_lab.datasets.catalogue import GRAPH_SETS, TRUTH_SETS
from graphsvx_lab.metrics.measurements import Measurements
from graphsvx_lab.studies import motifs
from graphsvx_lab.studies.context import CHANCE, CLOSE, SPARSE, EdgeRule, Setting, with_node_scores
from graphsvx_lab.studies.page import Claim, Page, Table, pivot
from graphsvx_lab.studies.study import Answer, Grid, study_of

OURS, DEFAULT, EDGES = GRAPHSVX = (
    "GraphSVX, the paper's method",
    "GraphSVX, our estimator",
    "GraphSVX, edges play",
)
RIVALS = ("GNNExplainer", "PGM-Explainer", "PGExplainer")
EXPLAINERS = (*GRAPHSVX, *RIVALS)
RANDOM = "Random"
CANDIDATES, STRICT, PAPER = 12, 4, 4
"""Settings times readings of each explainer on each data set; and questions a seed."""
Reading = tuple[Ranking, EdgeRule]
"""A way to read an answer: the ranking, and the rule from edges to nodes."""
_SIGNED: tuple[Reading, ...] = (("value", "largest"), ("absolute", "largest"))
_MASK: tuple[Reading, ...] = (("value", "largest"), ("value", "mean"), ("value", "undirected"))
READINGS: dict[str, tuple[Reading, ...]] = {
    OURS: _SIGNED,
    DEFAULT: _SIGNED,
    EDGES: (*_SIGNED, ("value", "mean")),
    "GNNExplainer": _MASK,
    "PGM-Explainer": _SIGNED,
    "PGExplainer": _MASK,
}
_ZERO = PGMExplainer(by="zero")
_RIVALS: dict[str, Sequence[Any]] = {
    "GNNExplainer": (GNNExplainer(), GNNExplainer(lr=0.1), GNNExplainer(epochs=300), SPARSE),
    "PGExplainer": (PGExplainer(), PGExplainer(temperature=(5.0, 1.0)), PGExplainer(size=0.005),
                    PGExplainer(size=0.005, entropy=0.1)),
    "PGM-Explainer": (_ZERO, PGMExplainer(), replace(_ZERO, drop=0.1), PGMExplainer(drop=0.1),
                      replace(_ZERO, rate=0.25), replace(_ZERO, blanket=12))}  # fmt: skip
"""Usual settings first, then those of the explainers' own papers and others."""
_SELECTED: dict[str, tuple[tuple[int, int], ...]] = {
    OURS: ((1, 0), (1, 0), (1, 0), (0, 1), (2, 0), (3, 0)),
    DEFAULT: ((0, 0), (0, 1), (0, 1), (0, 0), (1, 0), (4, 0)),
    EDGES: ((0, 0), (0, 1), (1, 2), (0, 0), (3, 2), (1, 2)),
    "GNNExplainer": ((3, 1), (0, 1), (3, 0), (1, 1), (0, 0), (3, 1)),
    "PGM-Explainer": ((2, 0), (4, 1), (4, 0), (2, 0), (4, 0), (0, 0)),
    "PGExplainer": ((3, 0), (3, 1), (0, 1), (1, 1), (2, 1), (1, 0)),
}
"""Numbers of candidate and reading on each of `TRUTH_SETS`: the first within `CLOSE` of the
best, in the order in which they are declared, whatever the explainer."""


def tried_settings(dataset: str, explainer: str) -> list[Setting]:
    """The settings that are tried, each with its first reading."""
    if explainer in _RIVALS:
        return [Setting(method) for method in _RIVALS[explainer]]
    whole_graphs = dataset in GRAPH_SETS
    other: dict[str, Any] = {"erase": True} if whole_graphs else {"hops": 2}
    scales: tuple[Scale, ...] = ("probability", "logit", "log_odds")
    if explainer == EDGES:
        other = {"directions": "apart"} if whole_graphs else other
        methods = [GraphSVX(samples=1000, players="edges", **also) for also in ({}, other)]
        return [Setting(method, scale) for method in methods for scale in scales[::2]]
    if explainer == DEFAULT:
        methods = [GraphSVX(samples=1000, **also) for also in ({}, other)]
        return [Setting(method, scale) for method in methods for scale in scales]
    methods = [GraphSVX.paper(dataset), GraphSVX.paper(dataset, **other)]
    plain = methods if whole_graphs else [replace(method, generator=None) for method in methods]
    if whole_graphs:  # which have no indirect effect: another S instead
        methods = [replace(method, mask=SmarterSeparate(order=2)) for method in plain]
    elif dataset.startswith("tree"):  # where S is above 1, the authors' code has another effect
        methods[1] = GraphSVX.paper(dataset, variant="released")
    return [Setting(m) for m in (*methods, *plain)] + [Setting(m, "log_odds") for m in plain]


def selected_setting(dataset: str, explainer: str) -> Setting:
    """The setting of an explainer that the studies use on a data set with ground truth."""
    if dataset not in TRUTH_SETS:
        raise InputError(f"dataset must be one of {', '.join(TRUTH_SETS)}, got {dataset!r}")
    number, reading = _SELECTED[explainer][TRUTH_SETS.index(dataset)]
    by, rule = READINGS[explainer][reading]
    return replace(tried_settings(dataset, explainer)[number], by=by, edge_rule=rule)


def compared_methods(dataset: str, explainers: Sequence[str] = EXPLAINERS) -> dict[str, Setting]:
    """The explainers with their selected settings, and chance."""
    return {**{name: selected_setting(dataset, name) for name in explainers}, RANDOM: CHANCE}


def label(explainer: str, setting: Setting) -> str:
    """A candidate in words, without its reading."""
    return f"{explainer}: {replace(setting, by='value', edge_rule='largest').words()}"


def words(reading: Reading) -> str:
    """`signed, largest`."""
    return f"{'signed' if reading[0] == 'value' else 'absolute'}, {reading[1]}"


def accuracy_of_readings(answer: Answer) -> dict[str, float]:
    """Accuracy under each protocol that scores the question, for every reading."""
    values: dict[str, float] = {}
    for by, rule in READINGS[answer.method.split(":")[0]]:
        explanation = with_node_scores(answer.explanation, rule)
        scores = motifs.ranked_accuracy(answer, explanation, by)
        values |= {
            f"{protocol}, {words((by, rule))}": scores[protocol]
            for protocol in ("paper", "strict")
            if protocol in scores
        }
    return values


GRID = Grid(
    TRUTH_SETS,
    lambda data: {
        label(name, setting): setting
        for name in EXPLAINERS
        for setting in tried_settings(data, name)
    },
    motifs.scoring(STRICT, PAPER),
    measures=(accuracy_of_readings,),
    seeds=(100, 101),
)


@study_of(GRID)
def settings(results: Measurements) -> Page:
    """how the explainers are asked, chosen on validation seeds"""
    titles, claims, better = results.names("data"), [], list[list[str]]()
    for name in EXPLAINERS:
        gaps, best_names = list[float](), [name]
        for dataset in results.names("dataset"):
            scores = worth(results, dataset, name)
            best, used = max(scores, key=scores.__getitem__), selected_setting(dataset, name)
            gaps.append(scores[best] - scores[label(name, used), words((used.by, used.edge_rule))])
            best_names.append(", ".join(best) if gaps[-1] > CLOSE else "selected")
        better.append(best_names)
        furthest, close = max(gaps, default=nan), sum(gap <= CLOSE for gap in gaps)
        beyond = "" if close == len(gaps) else f", furthest {furthest:.3f}"
        statement = f"On these seeds the selected settings are within {CLOSE} of the best candidate"
        ours, holds = f"{close} of {len(gaps)} sets{beyond}", furthest <= CLOSE if gaps else None
        claims.append(Claim(statement, "", ours, holds=holds, on=name))
    title = "The best candidate, where it is not (nearly) the selected one"
    tables = [Table(title, ["", *titles], better)]
    tables += [pivot(results, f"{title}: accuracy of all candidates", results.names("measure"),
                     columns="measure", data=title, digits=3) for title in titles]  # fmt: skip
    return Page(
        "Settings, chosen on validation seeds",
        claims,
        None,
        {"Details": tables},
        f"Every explainer has {CANDIDATES} candidates on every set, and the same questions about "
        "models of seeds that no other page scores.",
        "Candidates are settings times readings: ranking by signed or absolute value, rule from "
        f"edges to nodes. Judged by {STRICT} questions of `strict` and {PAPER} of `paper` a seed: "
        "the mean of the accuracies under the two protocols ([protocols.md](protocols.md)).",
    )


def worth(results: Measurements, dataset: str, explainer: str) -> dict[tuple[str, str], float]:
    """The mean of the accuracies under both protocols, by candidate and reading."""
    labels = [label(explainer, setting) for setting in tried_settings(dataset, explainer)]
    return {
        (name, reading): fmean(
            results.estimate(f"{protocol}, {reading}", dataset=dataset, method=name).mean
            for protocol in ("paper", "strict")
        )
        for name, reading in product(labels, map(words, READINGS[explainer]))
    }
