"""Study `properties`: what the paper claims of its explanations, measured beside others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan

import numpy as np
import torch

from graphsvx import metrics
from graphsvx.datasets.base import draw
from graphsvx.datasets.titles import NODE_SETS, NODE_TITLES
from graphsvx.estimators import WLS
from graphsvx.estimators.ends import WithEnds
from graphsvx.masks import Paired
from graphsvx.methods import GNNExplainer, GraphSVX, Random
from graphsvx.metrics.comparison import is_close, reaches
from graphsvx.metrics.reading import with_features
from graphsvx.metrics.select import Level
from graphsvx.metrics.truth import PARTS
from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Page, dots, pivots
from graphsvx.studies.sampling import paper_game
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.settings import selected_setting
from graphsvx.studies.study import CITATION_MODELS, SEEDS, Answer, Case, Grid, Study, Value
from graphsvx.zoo import Trained
from graphsvx.zoo.training import predicted_classes

OURS, PAPERS, GNN, RANDOM = "GraphSVX", "GraphSVX, the paper's rows", "GNNExplainer", "Random"
PAPER_SHARES = {"Tree-Cycles": 0.85, "Tree-Grid": 0.85, "BA-Community": 0.20}


def explainers(dataset: str) -> dict[str, Setting]:
    """On the probability: shares need a score with a scale."""
    return {
        OURS: Setting(GraphSVX(samples=1000)), PAPERS: Setting(GraphSVX.paper(dataset)),
        GNN: selected_setting(dataset, GNN), RANDOM: Setting(Random()),
        "Random, on average": CHANCE,
    }  # fmt: skip


FITS = ("the paper's rows", "our rows", "the paper's rows, ends counted")


def fits(dataset: str) -> dict[str, Setting]:
    """The same budget, other rows, or another R²."""
    usual = paper_game(dataset, estimator=WLS())
    variants = (usual, replace(usual, mask=Paired()), replace(usual, estimator=WithEnds()))
    return {name: Setting(method) for name, method in zip(FITS, variants, strict=True)}


def r_squared(answer: Answer) -> dict[str, float]:
    """R² by game, where there is more than one player to fit."""
    games = answer.explanation.certificate.games
    r2 = {f"R², {g.name}": g.r2 for g in games if g.players > 1 and g.r2 is not None}
    return {**r2, **{f"{name} above 0.90": float(value > 0.9) for name, value in r2.items()}}


MODEL_PAIRS = {"GCN and GAT": (0, 1), "GCN, two seeds": (0, 2), "GAT, two seeds": (1, 3)}
TOPS: dict[str, tuple[float, tuple[Level, ...]]] = {
    "features, top 20 %": (0.2, ("features",)), "nodes, top 20 %": (0.2, ("nodes",)),
    "both, top 20 %": (0.2, ("features", "nodes")), "both, top 10": (10, ("features", "nodes")),
}  # fmt: skip
COMPARED = {
    OURS: Setting(GraphSVX(samples=1000)), GNN: Setting(GNNExplainer()), RANDOM: Setting(Random()),
}  # fmt: skip


def agreed(models: Sequence[Trained], count: int) -> list[int]:
    """Test nodes of the first model's data for which all models predict the same class."""
    classes, data = torch.stack([predicted_classes(m) for m in models]), models[0].dataset
    same = data.split.test[(classes == classes[0]).all(0)[data.split.test]]
    return sorted(draw(same.tolist(), count, data.seed, "consistency"))


def consistency(case: Case) -> Iterator[Value]:
    """Overlap of what explanations of two models name, on nodes where all models agree."""
    context, dataset = case.context, case.trained.dataset.name
    seeds = (case.seed, case.seed if context.quick else (case.seed + 1) % len(SEEDS))
    models = [context.trained_model(dataset, s, kind) for s in seeds for kind in ("gcn", "gat")]
    nodes, playing = agreed(models, 3 if context.quick else 12), dict[int, list[int]]()
    for method, setting in COMPARED.items():
        explain = (setting.quick() if context.quick else setting).method
        # Another seed for another model: random numbers are not to agree.
        explained = [{e.centres[0]: e for e in context.explanations(m, explain, nodes, seed=place)}
                     for place, m in enumerate(models)]  # fmt: skip
        playing = playing or {node: list(e.features) for node, e in explained[0].items()}
        for pair, (i, j) in MODEL_PAIRS.items():
            for node in explained[i].keys() & explained[j].keys() & playing.keys():
                first, second = (with_features(explained[k][node], playing[node]) for k in (i, j))
                for name, (top, level) in TOPS.items():
                    overlap = metrics.consistency(first, second, top=top, level=level)
                    yield f"{method}: {pair}", node, name, overlap


MOTIFS = Grid(
    NODE_SETS, explainers, motifs.scoring(24, 0), quick=("tree-cycles",),
    measures=(motifs.certificate, motifs.accuracy, motifs.accuracy_by_role, motifs.credit_shares),
)  # fmt: skip
GRIDS = (
    MOTIFS,
    replace(MOTIFS, methods=fits, measures=(r_squared,)),
    replace(MOTIFS, datasets=("cora",), methods=fits, questions=motifs.test_nodes(20),
            measures=(r_squared,), models=CITATION_MODELS, quick=()),
    # A quick look needs no files.
    Grid(("cora",), lambda _: {}, lambda _: {}, case_measures=(consistency,),
         models={"gcn": CITATION_MODELS["gcn"]}, quick=("ba-community",)),
)  # fmt: skip


def variance(values: Sequence[float]) -> float:
    """Of a sample, without bias; NaN of a single value."""
    return float(np.var(values, ddof=1)) if len(values) > 1 else nan


def page(results: Measurements) -> Page:
    """Fit, shares of the motif, stability and consistency."""
    roles, cora = results.names("measure", motifs.ROLE), ("Cora, GCN", "Cora, GAT")
    shares = pivots(results, {
        "Where the explainable part goes: GraphSVX, our default": {
            "measure": PARTS, "rows": "measure", "method": OURS},
        **{f"Share of the explainable part: {part}": part for part in PARTS},
    }, over="explainable")  # fmt: skip
    stability = pivots(results, {
        "strict": {},
        "Variance of accuracy in the same role of a motif": {
            "measure": roles, "statistic": variance, "digits": 3},
        "Efficiency: largest |prediction - base - sum of credit|": {
            "measure": "residual", "statistic": max},
    })  # fmt: skip
    claims = [
        *(claim for rows in FITS[::2] for claim in Claim.each(
            f"R² of the surrogate, {rows}", dict.fromkeys((*NODE_TITLES, *cora), 0.90),
            results.by("data", "R², nodes", method=rows, statistic=np.median), reaches)),
        *Claim.each("The motif's share of the explainable part, within 0.05", PAPER_SHARES,
                    results.by("data", PARTS[0], method=OURS, over="explainable"), is_close),
        *Claim.each("Variance of accuracy in the same role of a motif",
                    dict.fromkeys(NODE_TITLES, "< 0.1"),
                    results.by("data", roles, method=OURS, statistic=variance),
                    lambda ours, _: ours.band[2] < 0.1, digits=3),
        Claim.of("Overlap of the top 20 % of explanations of a GCN and a GAT", 0.76,
                 results.estimate("both, top 20 %", method=f"{OURS}: GCN and GAT"), reaches),
        Claim.of("Credit adds up to the prediction: largest gap", 0.0,
                 results.estimate("residual", method=OURS, statistic=max),
                 lambda ours, _: ours.band[2] < 1e-6),
    ]  # fmt: skip
    return Page(
        "Properties: what the paper claims of its explanations",
        claims,
        dots("shares", shares[0].title, {"share": shares[0]}),
        {
            "R² of the surrogate (medians)": pivots(results, {
                name: {"measure": name, "statistic": None if "above" in name else np.median}
                for name in results.names("measure", method=FITS)}),
            "Shares and stability": (*shares, *stability),
            "Consistency": pivots(results, {
                "Intersection over union of what the explanations of two models name": {
                    "measure": list(TOPS), "columns": "measure", "note": "*Two seeds*: another "
                    "start and split of the same kind of model, the most that two can agree."}}),
        },
        "Motif nodes that the model classifies right, or test nodes of Cora; probability of the "
        "predicted class. *Ends counted*: the empty and the full row count with the weight that "
        "the authors' code gives them; g meets them exactly. GNNExplainer and Random have no "
        "explainable part: their shares are of the sum of their masks.",
    )  # fmt: skip


ABOUT = "R², efficiency, the motif's share, stability, consistency, beside other explainers"
STUDY = Study("properties", ABOUT, GRIDS, page)
