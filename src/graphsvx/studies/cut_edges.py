"""Study `cut-edges`: what it does to explanations that models are also shown cut edges.

Explainers ask a model about graphs without some of their edges. A model that never saw one may
answer anything there, and training with cut edges (`Settings.cut_edges`) changes that.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from graphsvx.baselines import GNNExplainer, PGMExplainer, Saliency
from graphsvx.methods import GraphSVX
from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Page, dots, is_positive, pivots
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.statistics import Estimate
from graphsvx.studies.study import Case, Grid, Study, Value

WHOLE, CUT = "whole graphs only", "with cut edges"
METHODS = {
    "GraphSVX": Setting(GraphSVX()),
    "GNNExplainer": Setting(GNNExplainer()),
    "PGM-Explainer": Setting(PGMExplainer(by="zero")),
    "Saliency": Setting(Saliency()),
    "Random": CHANCE,
}


@torch.no_grad()
def without_edges(case: Case) -> Iterator[Value]:
    """Probability of each explained class when no edge is left."""
    graph = case.trained.dataset.graphs[0]
    # All nodes have the same features in these sets, so one row stands for any of them.
    scores = case.trained.model(graph.x[:1], torch.empty(2, 0, dtype=torch.long)).softmax(-1)[0]
    for question, explanation in case.explanations["GraphSVX"].items():
        yield "", question, "score without edges", float(scores[explanation.target])


GRIDS = (
    Grid(
        ("ba-shapes", "tree-cycles", "ba-2motifs"),
        lambda _: METHODS,
        motifs.scoring(20, 0),
        measures=(motifs.accuracy,),
        case_measures=(motifs.model_accuracy, without_edges),
        models={WHOLE: motifs.trained_with(False), CUT: motifs.trained_with(True)},
        seeds=(100, 101, 102, 103, 104),  # the choice was made on validation seeds
        quick=("tree-cycles",),
    ),
)


def page(results: Measurements) -> Page:
    """Both ways of training, and the change for each explainer."""

    def change(method: str) -> Estimate:
        both = [results.estimate("strict", method=method, model=m).by_seed for m in (CUT, WHOLE)]
        return Estimate(tuple(a - b for a, b in zip(*both, strict=True)))

    tables = pivots(results, {
        "Accuracy under `strict`, signed; GraphSVX with its defaults": "strict",
        "The models": {
            "measure": ("test accuracy", "score without edges"), "rows": "measure",
            "note": "Score without edges: the probability of the explained class when every edge "
            "is cut; where it is high, nothing is left to share out."},
    })  # fmt: skip
    return Page(
        "What training with cut edges changes",
        [Claim.of(f"Cut edges in training raise the accuracy of {name} (mean of all sets)", "",
                  change(name), is_positive) for name in METHODS if name != "Random"],
        dots(results, "accuracy", "Accuracy (`strict`) by the way of training.", ("strict",)),
        {"Details": tables},
        "In each step of training, models of these sets can also be shown a copy of the graph with "
        "edges cut at a rate between 0 and 1. This was chosen by the accuracy of GraphSVX on these "
        "validation seeds: a choice of the model, made in our favour. The main table of "
        "[ground-truth.md](ground-truth.md) is therefore about models without it.",
    )  # fmt: skip


STUDY = Study("cut-edges", "what models that also saw cut edges change for explainers", GRIDS, page)
