"""Study `ablation`: what each piece of GraphSVX is good for (the paper's appendix)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from graphsvx import metrics
from graphsvx.core import graph as graphs
from graphsvx.core import players
from graphsvx.datasets.titles import NODE_SETS, NODE_TITLES
from graphsvx.estimators import WLR, WLS, Estimator, Lasso
from graphsvx.estimators.ends import NoEnds
from graphsvx.masks import Paired
from graphsvx.methods import GraphSVX, Random
from graphsvx.metrics.comparison import is_close, is_positive, reaches, total_variation
from graphsvx.metrics.reading import without_credit
from graphsvx.metrics.truth import NEIGHBOURS, PARTS
from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Page, dots, pivots
from graphsvx.studies.sampling import paper_game
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.study import CITATION_MODELS, Answer, Case, Grid, Study, Value, of_model
from graphsvx.zoo import Trained

PAPER_ROWS, OUR_ROWS = "the paper's rows", "our rows"
RANDOM, FIT_RANDOM = "Random", "Random, the same nodes"
LAMBDA = 0.25
DROPPED, FAR = "features inside mu ± 0.25 sigma", "nodes beyond {} hops"
ALL_FEATURES, DEFAULT = "all features play", "default"
RELEASED = "on, as in the authors' code"
WAYS: dict[str, Any] = {
    "off": False, "on, path nodes at the mean": "mean", "on, path nodes like v": "target",
}  # fmt: skip
OWN, AROUND = "the node's own features", "features of the subgraph"
FEATURE_METHODS = {
    OWN: Setting(GraphSVX(samples=1000)),
    AROUND: Setting(GraphSVX(samples=1000, players="subgraph_features")),
    "the node's own, all of them play": Setting(GraphSVX(samples=1000, features="all")),
    RANDOM: Setting(Random(players="features", features="all"), change=without_credit),
}


def dropped_features(trained: Trained, node: int) -> list[int]:
    """Columns in which the node lies inside mu +- lambda sigma."""
    graph = graphs.check_graph(trained.dataset.graph)
    players_columns = players.choose_features(graph, torch.tensor([node]).numpy(), LAMBDA)
    return sorted(set(range(graph.num_features)) - set(players_columns.tolist()))


def left_out(answer: Answer) -> dict[str, float]:
    """Credit of the players that a rule leaves out, in an explanation in which they played."""
    e, distance = answer.explanation, answer.explanation.field.distances
    if answer.method == ALL_FEATURES:
        columns = dropped_features(answer.trained, answer.question)
        dropped = {DROPPED: [e.features[column] for column in columns]}
    else:
        dropped = {FAR.format(hops): [c for node, c in e.nodes.items() if distance[node] > hops]
                   for hops in range(1, answer.trained.card.settings.layers)}  # fmt: skip
    numbers = {f"{rule}, number": len(credit) for rule, credit in dropped.items()}
    credits = {rule: sum(credit) for rule, credit in dropped.items()}
    return {"explainable": e.prediction - e.base, **credits, **numbers}


def left_out_as_one(case: Case) -> Iterator[Value]:
    """Where there are too many features to tell apart, those left out play as one player."""
    for node in case.questions["test"]:
        columns = dropped_features(case.trained, node)
        method = GraphSVX(feature_groups={DROPPED: columns}, samples=2000)
        for e in case.context.explanations(case.trained, method, [node]):
            names, values = e.feature_credit.names or (), e.feature_values.tolist()
            yield ALL_FEATURES, node, DROPPED, values[names.index(DROPPED)]
            yield ALL_FEATURES, node, f"{DROPPED}, number", len(columns)
            yield ALL_FEATURES, node, "explainable", e.prediction - e.base


def with_and_without(dataset: str) -> dict[str, Setting]:
    """The indirect effect off and on, with the paper's coalitions and with ours."""
    games = {f"{PAPER_ROWS}, {words}": GraphSVX.paper(dataset, indirect=effect)
             for words, effect in WAYS.items()}  # fmt: skip
    games[f"{PAPER_ROWS}, {RELEASED}"] = GraphSVX.paper(dataset, variant="released")
    games |= {f"{OUR_ROWS}, {words}": GraphSVX(samples=1000, indirect=effect)
              for words, effect in WAYS.items()}  # fmt: skip
    return {RANDOM: CHANCE, **{name: Setting(game) for name, game in games.items()}}


def informative_found(answer: Answer) -> dict[str, float]:
    """Share of the informative columns among as many with the most credit, and that play."""
    informative = set(answer.data.node_truth.informative_features or ())
    shares = partial(metrics.accuracy, answer.explanation, informative, level="features")
    return {
        "signed": shares(by="value"), "magnitude": shares(by="absolute"),
        "playing": len(informative & set(answer.explanation.features)) / len(informative),
    }  # fmt: skip


ENDS, NO_ENDS = "WLS, ends exact", "WLS, without the ends"
FITS: dict[str, Estimator] = {ENDS: WLS(), NO_ENDS: NoEnds(), "WLR": WLR(), "Lasso": Lasso()}


def fits(dataset: str) -> dict[str, Setting]:
    """Every fit on the paper's rows and on ours."""
    game = paper_game(dataset)
    masks = {PAPER_ROWS: game.mask, OUR_ROWS: Paired()}
    return {FIT_RANDOM: CHANCE, **{
        f"{rows}, {name}": Setting(replace(game, mask=mask, estimator=fit))
        for rows, mask in masks.items() for name, fit in FITS.items()}}  # fmt: skip


def same_top(answer: Answer) -> dict[str, float]:
    """Overlap of the top nodes with those of the usual fit, as many as the motif has."""
    usual, top = answer.of(f"{answer.method.split(', ')[0]}, {ENDS}"), len(answer.true_nodes)
    return {} if usual is None else {"same top": metrics.consistency(
        answer.explanation, usual, top=top, by="value", level="nodes")}  # fmt: skip


PAPER_BASE = torch.tensor([0.12, 0.10, 0.15, 0.27, 0.15, 0.12, 0.08])
PAPER_BALANCE = torch.tensor([0.13, 0.09, 0.15, 0.29, 0.15, 0.11, 0.07])
"""Cora's classes in the order of its files, which is that of the paper's list."""
# The base value is the score of the empty coalition: it needs no more rows than that.
BASE = {"base value": Setting(GraphSVX(samples=50, estimator=WLS()), targets="all")}


@torch.no_grad()
def base_values(case: Case) -> list[Value]:
    """Distances between distributions over classes."""
    data, explanations = case.trained.dataset, case.explanations["base value"]
    scores = case.trained.model(data.graph.x, data.graph.edge_index)[list(explanations)].softmax(-1)
    balance = torch.bincount(data.labels, minlength=data.classes).double() / len(data.labels)
    base = torch.stack([explanation.bases for explanation in explanations.values()]).mean(0)
    return of_model({
        "base value to mean prediction": total_variation(base, scores.double().mean(0)),
        "base value to class balance": total_variation(base, balance),
        "equal classes to class balance": total_variation(torch.full_like(base, 1 / len(base)),
                                                          balance),
    })  # fmt: skip


REDUCED = Grid(NODE_SETS, lambda _: {DEFAULT: Setting(GraphSVX(samples=1000))},
               motifs.scoring(10, 0), measures=(left_out,), quick=("tree-cycles",))  # fmt: skip
BASES = Grid(NODE_SETS, lambda _: BASE, motifs.test_nodes(20), case_measures=(base_values,),
             quick=("tree-cycles",))  # fmt: skip
CORA: dict[str, Any] = {"datasets": ("cora",), "quick": (), "models": CITATION_MODELS}
CORA_TITLES = ("Cora, GCN", "Cora, GAT")
GRIDS = (
    REDUCED,
    replace(REDUCED, datasets=("ba-community",), quick=None,
            methods=lambda _: {ALL_FEATURES: Setting(GraphSVX(samples=1000, features="all"))}),
    replace(REDUCED, methods=lambda _: {}, questions=motifs.test_nodes(10), measures=(),
            case_measures=(left_out_as_one,), **CORA),
    Grid(NODE_SETS, with_and_without, motifs.scoring(10, 10),
         measures=(motifs.accuracy, motifs.credit_shares), quick=("ba-shapes", "tree-cycles")),
    Grid(("ba-community",), lambda _: FEATURE_METHODS, motifs.scoring(20, 0),
         measures=(informative_found,)),
    Grid(NODE_SETS, fits, motifs.scoring(10, 10), quick=("tree-cycles",),
         measures=(motifs.accuracy, motifs.certificate, same_top)),
    BASES,
    replace(BASES, **CORA),
)  # fmt: skip


def page(results: Measurements) -> Page:
    """One section a piece."""
    lines = [name for name in with_and_without(NODE_SETS[0]) if name != RANDOM]
    shown = {"algorithm 2": lines[1], "the authors' code": f"{PAPER_ROWS}, {RELEASED}"}
    rules = [DROPPED, *(FAR.format(hops) for hops in (1, 2))]
    share, usual = {"over": "explainable"}, f"{PAPER_ROWS}, {ENDS}"

    def gains(before: str, after: dict[str, str], protocol: str, sets: Sequence[str]) -> Any:
        return {name: results.paired((method, protocol), (before, protocol), dataset=sets)
                for name, method in after.items()}  # fmt: skip

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
                    dict.fromkeys(CORA_TITLES, total_variation(PAPER_BASE, PAPER_BALANCE)),
                    results.by("data", "base value to class balance"), is_close),
    ]  # fmt: skip
    indirect = pivots(results, {"strict": {}, "paper": {}, **{
        f"Share of the explainable part: {part}": {"measure": part, **share}
        for part in (PARTS[0], NEIGHBOURS)}}, method=[*lines, RANDOM])  # fmt: skip
    return Page(
        "Ablation: what each piece is good for",
        claims,
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
                "paper": {}, "strict": {},
                "Overlap of the top nodes with those of WLS and both ends": "same top",
                "Residual of efficiency, median": "residual",
            }, method=list(fits(NODE_SETS[0]))),
            "Base value": pivots(results, {
                "Distance between distributions over classes (total variation)":
                    results.names("measure", method="")}, rows="measure"),
        },
        "Each piece on and off, on the same nodes; probability of the predicted class, signed "
        "credit, all hops.",
    )  # fmt: skip


ABOUT = "player reduction, indirect effect, subgraph features, fits, base value: each on and off"
STUDY = Study("ablation", ABOUT, GRIDS, page)
