"""Studies `properties` and `ablation`: the paper's claims about explanations and each piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from graphsvx.estimators import WLR, WLS, Estimator, Lasso
from graphsvx.masks import Paired
from graphsvx.methods import GNNExplainer, GraphSVX, Random
from graphsvx.metrics import Level, consistency
from graphsvx_lab.datasets.catalogue import NODE_SETS, NODE_TITLES
from graphsvx_lab.metrics.measurements import (
    Measurements,
    Value,
    is_close,
    is_positive,
    model_values,
    reaches,
    sample_variance,
    total_variation,
)
from graphsvx_lab.metrics.truth import NEIGHBOURS, PARTS, accuracy, classified_alike
from graphsvx_lab.studies import motifs
from graphsvx_lab.studies.context import CHANCE, Setting, with_features, without_credit
from graphsvx_lab.studies.page import Claim, Page, dots, pivots
from graphsvx_lab.studies.settings import selected_setting
from graphsvx_lab.studies.study import CITATION_MODELS, SEEDS, Answer, Case, Grid, study_of
from graphsvx_lab.studies.variants import NoEnds, WithEnds, dropped_features, paper_game

CORA_TITLES = ("Cora, GCN", "Cora, GAT")
OURS, PAPERS, GNN, RANDOM = "GraphSVX", "GraphSVX, the paper's rows", "GNNExplainer", "Random"
PAPER_SHARES = {"Tree-Cycles": 0.85, "Tree-Grid": 0.85, "BA-Community": 0.20}


def explainers(dataset: str) -> dict[str, Setting]:
    """On the probability: shares need a score with a scale."""
    return {
        OURS: Setting(GraphSVX(samples=1000)),
        PAPERS: Setting(GraphSVX.paper(dataset)),
        GNN: selected_setting(dataset, GNN),
        RANDOM: Setting(Random()),
        "Random, on average": CHANCE,
    }


SURROGATES = ("the paper's rows", "our rows", "the paper's rows, ends counted")


def surrogates(dataset: str) -> dict[str, Setting]:
    """The same budget, other rows, or another R²."""
    usual = paper_game(dataset, estimator=WLS())
    variants = (usual, replace(usual, mask=Paired()), replace(usual, estimator=WithEnds()))
    return {name: Setting(method) for name, method in zip(SURROGATES, variants, strict=True)}


def r_squared(answer: Answer) -> dict[str, float]:
    """R² by game, where there is more than one player to fit."""
    games = answer.explanation.certificate.games
    r2 = {f"R², {g.name}": g.r2 for g in games if g.players > 1 and g.r2 is not None}
    return {**r2, **{f"{name} above 0.90": float(value > 0.9) for name, value in r2.items()}}


MODEL_PAIRS = {"GCN and GAT": (0, 1), "GCN, two seeds": (0, 2), "GAT, two seeds": (1, 3)}
TOPS: dict[str, tuple[float, tuple[Level, ...]]] = {
    "features, top 20 %": (0.2, ("features",)),
    "nodes, top 20 %": (0.2, ("nodes",)),
    "both, top 20 %": (0.2, ("features", "nodes")),
    "both, top 10": (10, ("features", "nodes")),
}
COMPARED = {
    OURS: Setting(GraphSVX(samples=1000)),
    GNN: Setting(GNNExplainer()),
    RANDOM: Setting(Random()),
}


def consistency_of_models(case: Case) -> Iterator[Value]:
    """Overlap of what explanations of two models name, on nodes where all models agree."""
    context, dataset = case.context, case.trained.dataset.name
    seeds = (case.seed, case.seed if context.quick else (case.seed + 1) % len(SEEDS))
    models = [context.trained_model(dataset, s, kind) for s in seeds for kind in ("gcn", "gat")]
    nodes, playing = classified_alike(models, 3 if context.quick else 12), dict[int, list[int]]()
    for method, setting in COMPARED.items():
        explain = (setting.quick() if context.quick else setting).method
        # Another seed for another model: random numbers are not to agree.
        seeded = enumerate(models)
        explained = [context.explanations(m, explain, nodes, seed=place) for place, m in seeded]
        playing = playing or {node: list(e.features) for node, e in explained[0].items()}
        for pair, (i, j) in MODEL_PAIRS.items():
            for node in explained[i].keys() & explained[j].keys() & playing.keys():
                first, second = (with_features(explained[k][node], playing[node]) for k in (i, j))
                for name, (top, level) in TOPS.items():
                    overlap = consistency(first, second, top=top, level=level)
                    yield f"{method}: {pair}", node, name, overlap


MOTIFS = Grid(
    NODE_SETS,
    explainers,
    motifs.scoring(24, 0),
    measures=(motifs.certificate, motifs.accuracy, motifs.accuracy_by_role, motifs.credit_shares),
)
GRIDS = (
    MOTIFS, replace(MOTIFS, methods=surrogates, measures=(r_squared,)),
    replace(MOTIFS, datasets=("cora",), methods=surrogates, questions=motifs.test_nodes(20),
            measures=(r_squared,), models=CITATION_MODELS, quick=()),
    # A quick look needs no files.
    Grid(("cora",), lambda _: {}, lambda _: {}, case_measures=(consistency_of_models,),
         models={"gcn": CITATION_MODELS["gcn"]}, quick=("ba-community",),
         other_seeds=True))  # fmt: skip


@study_of(*GRIDS)
def properties(results: Measurements) -> Page:
    """R², efficiency, the motif's share, stability, consistency, beside other explainers"""
    roles = results.names("measure", motifs.ROLE)
    shares = pivots(results, {
        "Where the explainable part goes: GraphSVX, our default": {
            "measure": PARTS, "rows": "measure", "method": OURS},
        **{f"Share of the explainable part: {part}": part for part in PARTS},
    }, over="explainable")  # fmt: skip
    stability = pivots(results, {
        "strict": {},
        "Variance of accuracy in the same role of a motif": {
            "measure": roles, "statistic": sample_variance, "digits": 3},
        "Efficiency: largest |prediction - base - sum of credit|": {
            "measure": "residual", "statistic": max}})  # fmt: skip
    claims = [
        *(claim for rows in SURROGATES[::2] for claim in Claim.each(
            f"R² of the surrogate, {rows}", dict.fromkeys((*NODE_TITLES, *CORA_TITLES), 0.90),
            results.by("data", "R², nodes", method=rows, statistic=np.median), reaches)),
        *Claim.each("The motif's share of the explainable part, within 0.05", PAPER_SHARES,
                    results.by("data", PARTS[0], method=OURS, over="explainable"), is_close),
        *Claim.each("Variance of accuracy in the same role of a motif",
                    dict.fromkeys(NODE_TITLES, "< 0.1"),
                    results.by("data", roles, method=OURS, statistic=sample_variance),
                    lambda ours, _: ours.band[2] < 0.1, digits=3),
        Claim.of("Overlap of the top 20 % of explanations of a GCN and a GAT", 0.76,
                 results.estimate("both, top 20 %", method=f"{OURS}: GCN and GAT"), reaches),
        Claim.of("Credit adds up to the prediction: largest gap", 0.0,
                 results.estimate("residual", method=OURS, statistic=max),
                 lambda ours, _: ours.band[2] < 1e-6)]  # fmt: skip
    return Page(
        "Properties: what the paper claims of its explanations", claims,
        dots("shares", shares[0].title, {"share": shares[0]}),
        {
            "R² of the surrogate (medians)": pivots(results, {
                name: {"measure": name, "statistic": None if "above" in name else np.median}
                for name in results.names("measure", method=SURROGATES)}),
            "Shares and stability": (*shares, *stability),
            "Consistency": pivots(results, {
                "Intersection over union of what the explanations of two models name": {
                    "measure": list(TOPS), "columns": "measure", "note": "*Two seeds*: another "
                    "start and split of the same kind of model, the most that two can agree."}}),
        },
        "The explained score is the probability of the predicted class: of motif nodes that the "
        "model classifies right, or of test nodes of Cora.",
        "*Ends counted*: the empty and the full row count with the weight that "
        "the authors' code gives them; g meets them exactly. GNNExplainer and Random have no "
        "explainable part: their shares are of the sum of their masks.")  # fmt: skip


# --- ablation: each piece on and off ------------------------------------------------------------

PAPER_ROWS, OUR_ROWS = "the paper's rows", "our rows"
FIT_RANDOM = "Random, the same nodes"
DROPPED, FAR = "features inside mu ± 0.25 sigma", "nodes beyond {} hops"
ALL_FEATURES, DEFAULT = "all features play", "default"
RELEASED = "on, as in the authors' code"
WAYS: dict[str, Any] = {
    "off": False,
    "on, path nodes at the mean": "mean",
    "on, path nodes like v": "target",
}
OWN, AROUND = "the node's own features", "features of the subgraph"
FEATURE_METHODS = {
    OWN: Setting(GraphSVX(samples=1000)),
    AROUND: Setting(GraphSVX(samples=1000, players="subgraph_features")),
    "the node's own, all of them play": Setting(GraphSVX(samples=1000, features="all")),
    RANDOM: Setting(Random(players="features", features="all"), change=without_credit),
}


def left_out(answer: Answer) -> dict[str, float]:
    """Credit of the players that a rule leaves out, in an explanation in which they played."""
    e, distance = answer.explanation, answer.explanation.field.distances
    if answer.method == ALL_FEATURES:
        columns = dropped_features(answer.data, answer.question)
        dropped = {DROPPED: [e.features[column] for column in columns]}
    else:
        dropped = {
            FAR.format(hops): [c for node, c in e.nodes.items() if distance[node] > hops]
            for hops in range(1, answer.trained.card.settings.layers)
        }
    numbers = {f"{rule}, number": len(credit) for rule, credit in dropped.items()}
    credits = {rule: sum(credit) for rule, credit in dropped.items()}
    return {"explainable": e.prediction - e.base, **credits, **numbers}


def left_out_as_one(case: Case) -> Iterator[Value]:
    """Where there are too many features to tell apart, those left out play as one player."""
    for node in case.questions["test"]:
        columns = dropped_features(case.trained.dataset, node)
        method = GraphSVX(feature_groups={DROPPED: columns}, samples=2000)
        for e in case.context.explanations(case.trained, method, [node]).values():
            names, values = e.feature_credit.names or (), e.feature_values.tolist()
            yield ALL_FEATURES, node, DROPPED, values[names.index(DROPPED)]
            yield ALL_FEATURES, node, f"{DROPPED}, number", len(columns)
            yield ALL_FEATURES, node, "explainable", e.prediction - e.base


def with_and_without(dataset: str) -> dict[str, Setting]:
    """The indirect effect off and on, with the paper's coalitions and with ours."""
    paper, ours = partial(GraphSVX.paper, dataset), partial(GraphSVX, samples=1000)
    games = {f"{PAPER_ROWS}, {words}": paper(indirect=effect) for words, effect in WAYS.items()}
    games[f"{PAPER_ROWS}, {RELEASED}"] = paper(variant="released")
    games |= {f"{OUR_ROWS}, {words}": ours(indirect=effect) for words, effect in WAYS.items()}
    return {RANDOM: CHANCE, **{name: Setting(game) for name, game in games.items()}}


def informative_found(answer: Answer) -> dict[str, float]:
    """Share of the informative columns among as many with the most credit, and that play."""
    informative = set(answer.data.node_truth.informative_features or ())
    shares = partial(accuracy, answer.explanation, informative, level="features")
    return {
        "signed": shares(by="value"),
        "magnitude": shares(by="absolute"),
        "playing": len(informative & set(answer.explanation.features)) / len(informative),
    }


ENDS, NO_ENDS = "WLS, ends exact", "WLS, without the ends"
FITS: dict[str, Estimator] = {ENDS: WLS(), NO_ENDS: NoEnds(), "WLR": WLR(), "Lasso": Lasso()}


def fits(dataset: str) -> dict[str, Setting]:
    """Every fit on the paper's rows and on ours."""
    game = paper_game(dataset)
    settings = {FIT_RANDOM: CHANCE}
    for rows, mask in ((PAPER_ROWS, game.mask), (OUR_ROWS, Paired())):
        for name, fit in FITS.items():
            settings[f"{rows}, {name}"] = Setting(replace(game, mask=mask, estimator=fit))
    return settings


PAPER_DISTANCE = total_variation(
    torch.tensor([0.12, 0.10, 0.15, 0.27, 0.15, 0.12, 0.08]),
    torch.tensor([0.13, 0.09, 0.15, 0.29, 0.15, 0.11, 0.07]),
)
"""Of base value and class balance: Cora's classes in the order of its files and of the paper."""
# The base value is the score of the empty coalition: it needs no more rows than that.
BASE = {"base value": Setting(GraphSVX(samples=50, estimator=WLS()), targets="all")}


@torch.no_grad()
def base_values(case: Case) -> list[Value]:
    """Distances between distributions over classes."""
    data, explanations = case.trained.dataset, case.explanations["base value"]
    scores = case.trained.model(data.graph.x, data.graph.edge_index)[list(explanations)].softmax(-1)
    balance = torch.bincount(data.labels, minlength=data.classes).double() / len(data.labels)
    base = torch.stack([explanation.bases for explanation in explanations.values()]).mean(0)
    equal = torch.full_like(base, 1 / len(base))
    pairs = {
        "base value to mean prediction": (base, scores.double().mean(0)),
        "base value to class balance": (base, balance),
        "equal classes to class balance": (equal, balance),
    }
    return model_values({name: total_variation(*pair) for name, pair in pairs.items()})


REDUCED = Grid(
    NODE_SETS,
    lambda _: {DEFAULT: Setting(GraphSVX(samples=1000))},
    motifs.scoring(10, 0),
    measures=(left_out,),
)
BASES = Grid(NODE_SETS, lambda _: BASE, motifs.test_nodes(20), case_measures=(base_values,))
CORA: dict[str, Any] = {"datasets": ("cora",), "quick": (), "models": CITATION_MODELS}
ABLATION_GRIDS = (
    REDUCED,
    replace(REDUCED, datasets=("ba-community",),
            methods=lambda _: {ALL_FEATURES: Setting(GraphSVX(samples=1000, features="all"))}),
    replace(REDUCED, methods=lambda _: {}, questions=motifs.test_nodes(10), measures=(),
            case_measures=(left_out_as_one,), **CORA),
    Grid(NODE_SETS, with_and_without, motifs.scoring(10, 10),
         measures=(motifs.accuracy, motifs.credit_shares), quick=("ba-shapes", "tree-cycles")),
    Grid(("ba-community",), lambda _: FEATURE_METHODS, motifs.scoring(20, 0),
         measures=(informative_found,)),
    Grid(NODE_SETS, fits, motifs.scoring(10, 10),
         measures=(motifs.accuracy, motifs.certificate)),
    BASES,
    replace(BASES, **CORA))  # fmt: skip


@study_of(*ABLATION_GRIDS)
def ablation(results: Measurements) -> Page:
    """player reduction, indirect effect, subgraph features, fits, base value"""
    lines = [name for name in with_and_without(NODE_SETS[0]) if name != RANDOM]
    shown = {"algorithm 2": lines[1], "the authors' code": f"{PAPER_ROWS}, {RELEASED}"}
    rules = [DROPPED, *(FAR.format(hops) for hops in (1, 2))]
    share, usual = {"over": "explainable"}, f"{PAPER_ROWS}, {ENDS}"

    def gains(before: str, after: dict[str, str], protocol: str, sets: Sequence[str]) -> Any:
        return {
            name: results.paired((method, protocol), (before, protocol), dataset=sets)
            for name, method in after.items()
        }

    others = {name: f"{PAPER_ROWS}, {name}" for name in (NO_ENDS, "WLR", "Lasso")}
    claims = [
        *(claim for rule, figure, titles in (
            (DROPPED, 0.05, ("BA-Community", *CORA_TITLES)), (FAR.format(2), 0.08, NODE_TITLES))
          for claim in Claim.each(
              f"Share of the explainable part of {rule}, within 0.05",
              dict.fromkeys(titles, figure), results.by("data", rule, **share), is_close)),
        *Claim.each("The indirect effect raises accuracy on the tree sets (`paper`), by",
                    dict.fromkeys(shown, 0.19), gains(lines[0], shown, "paper", NODE_SETS[2:]),
                    is_positive),
        *Claim.each("It changes nothing on the BA sets (`paper`), within 0.05",
                    dict.fromkeys(shown, 0.0), gains(lines[0], shown, "paper", NODE_SETS[:2]),
                    is_close),
        *Claim.each("Informative features that are named (BA-Community)",
                    {OWN: 0.65, AROUND: 1.0}, results.by("method", "signed"), reaches),
        *Claim.each(f"Another fit in place of {ENDS} changes nothing (`strict`), within 0.05",
                    dict.fromkeys(others, 0.0), gains(usual, others, "strict", NODE_SETS),
                    is_close),
        *Claim.each("Distance of base value and class balance, within 0.05",
                    dict.fromkeys(CORA_TITLES, PAPER_DISTANCE),
                    results.by("data", "base value to class balance"), is_close)]  # fmt: skip
    indirect = pivots(results, {"strict": {}, "paper": {}, **{
        f"Share of the explainable part: {part}": {"measure": part, **share}
        for part in (PARTS[0], NEIGHBOURS)}}, method=[*lines, RANDOM])  # fmt: skip
    return Page(
        "Ablation: what each piece is good for", claims,
        dots("indirect", "Accuracy (`strict`) with the indirect effect off and on.",
             {"accuracy (strict)": indirect[0]}),
        {
            "Player reduction": (
                "The players that a rule leaves out play for once; sums over the nodes of a seed. "
                "On Cora the features that are left out are one player.",
                *pivots(results, {
                    "Share of the explainable part": {"measure": rules, **share},
                    "Number of players": [f"{rule}, number" for rule in rules],
                }, rows="measure")),
            "Indirect effect": indirect,
            "Features of the node or of its subgraph": pivots(results, {
                "The two informative features among the two with the most credit": (
                    "signed", "magnitude", "playing")}, columns="measure"),
            "Empty and full row; WLS, WLR, Lasso": pivots(results, {
                "paper": {}, "strict": {}, "Residual of efficiency, median": "residual",
            }, method=list(fits(NODE_SETS[0]))),
            "Base value": pivots(results, {
                "Distance between distributions over classes (total variation)":
                    results.names("measure", method="")}, rows="measure"),
        },
        "Each piece on and off, on the same nodes; probability of the predicted class, signed "
        "credit, all hops.")  # fmt: skip
