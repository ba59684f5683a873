"""Figures of the study `ground-truth`, before they are put in tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan

from graphsvx.studies import chosen, why
from graphsvx.studies.chosen import TRUTH_SETS
from graphsvx.studies.estimate import Estimate
from graphsvx.studies.ground_truth_pictures import Example
from graphsvx.studies.motifs import Measure, over_seeds
from graphsvx.studies.rivals import KINDS, NAMES, OURS
from graphsvx.zoo import Card

PAPER: Mapping[str, Mapping[str, float]] = {
    name: dict(zip(TRUTH_SETS, figures, strict=True))
    for name, figures in {
        "GraphSVX": (0.99, 0.93, 0.97, 0.93, 0.99, 0.77),
        "GNNExplainer": (0.83, 0.75, 0.86, 0.84, 0.68, 0.65),
        "PGM-Explainer": (0.96, 0.92, 0.95, 0.87, 0.91, 0.72),
        "PGExplainer": (0.92, 0.81, 0.96, 0.88, 0.85, 0.79),
    }.items()
}
"""The paper's table of accuracies."""

PAPER_BY, STRICT_BY, AUROC_BY = (
    {by: Measure(what, by) for by in ("value", "absolute")} for what in ("paper", "strict", "auroc")
)
EDGES, EDGES_AUROC = Measure("strict", level="edges"), Measure("auroc", level="edges")
MEASURES = (
    *PAPER_BY.values(), *STRICT_BY.values(), *AUROC_BY.values(), EDGES, EDGES_AUROC,
)  # fmt: skip


@dataclass(frozen=True)
class One:
    """All figures of one data set and seed."""

    card: Card
    samples: Mapping[tuple[str, Measure], Mapping[int, float]]
    """By explainer and measure, then by node or graph."""
    roles: Mapping[int, str]
    disturbed: Mapping[int, bool]
    reach: Mapping[int, float]
    use: Mapping[int, why.Use]
    falls: Mapping[str, Mapping[int, float]]
    """By explainer: how much the score falls without its k best-ranked nodes; "" is the motif."""
    exact: Mapping[str, float]
    """Share of explanations that are exact, by explainer."""
    first: Example
    worst: Example


Results = Mapping[str, list[One]]


def figure(ones: Iterable[One], explainer: str, measure: Measure) -> Estimate:
    """One explainer, one measure, over seeds."""
    return over_seeds(one.samples[explainer, measure].values() for one in ones)


def ranked(dataset: str, explainer: str, measures: Mapping[str, Measure]) -> Measure:
    """The measure with the explainer's own ranking."""
    if explainer in KINDS:
        return measures[chosen.choice(dataset, KINDS[explainer]).by]
    return measures[chosen.rival_ranking(explainer, dataset)]


def papers_figure(explainer: str, dataset: str) -> float | None:
    """What the paper's table says; its GraphSVX is beside all of ours."""
    row = "GraphSVX" if explainer in KINDS else explainer
    return PAPER.get(row, {}).get(dataset)


def best(results: Results, dataset: str) -> str:
    """The explainer with the highest mean under the strict protocol."""
    means = {
        name: figure(results[dataset], name, ranked(dataset, name, STRICT_BY)).mean
        for name in NAMES
    }
    return max(means, key=lambda name: -1.0 if isnan(means[name]) else means[name])


def short_of_the_paper(results: Results) -> dict[str, tuple[float, float]]:
    """Data sets where GraphSVX's mean, to two digits, is below the paper's: (ours, paper's)."""
    found = {}
    for name, ones in results.items():
        ours = figure(ones, OURS, ranked(name, OURS, PAPER_BY)).mean
        paper = PAPER["GraphSVX"][name]
        if round(ours, 2) < paper:
            found[name] = (ours, paper)
    return found
