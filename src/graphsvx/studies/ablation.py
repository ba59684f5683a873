"""Study `ablation`: what each piece of GraphSVX is good for (the paper's appendix)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphsvx import metrics
from graphsvx.core import graph as graphs
from graphsvx.core import players
from graphsvx.estimators.lasso import Lasso
from graphsvx.estimators.least_squares import WLR, WLS, Estimator, Fit, surrogate
from graphsvx.masks import Masks, Paired
from graphsvx.methods import GraphSVX, Random
from graphsvx.metrics.comparison import Estimate, is_close, is_positive, reaches
from graphsvx.metrics.reading import without_credit
from graphsvx.studies import motifs
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Page, dots, pivots
from graphsvx.studies.sampling import paper_game
from graphsvx.studies.setting import CHANCE, Setting
from graphsvx.studies.study import CITATION_MODELS, Answer, Case, Grid, Study, Value, of_model
from graphsvx.studies.titles import NODE_SETS, NODE_TITLES
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
    size = sum(map(abs, [*e.features.values(), *e.nodes.values()])) or 1.0
    values = {"explainable": e.prediction - e.base}
    for rule, credit in dropped.items():
        values |= {rule: sum(credit), f"{rule}, number": len(credit),
                   f"{rule}, absolute": sum(map(abs, credit)) / size}  # fmt: skip
    return values


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
    paper = {f"{PAPER_ROWS}, {words}": Setting(GraphSVX.paper(dataset, indirect=effect))
             for words, effect in WAYS.items()}  # fmt: skip
    paper[f"{PAPER_ROWS}, {RELEASED}"] = Setting(GraphSVX.paper(dataset, variant="released"))
    ours = {
        f"{OUR_ROWS}, {words}": Setting(GraphSVX(samples=1000, indirect=effect))
        for words, effect in WAYS.items()
    }
    return {RANDOM: CHANCE, **paper, **ours}


def informative_found(answer: Answer) -> dict[str, float]:
    """Share of the informative columns among as many with the most credit, and that play."""
    informative = set(answer.trained.dataset.node_truth.informative_features or ())
    return {
        "signed": metrics.accuracy(answer.explanation, informative, level="features"),
        "magnitude": metrics.accuracy(
            answer.explanation, informative, by="absolute", level="features"
        ),
        "playing": len(informative & set(answer.explanation.features)) / len(informative),
    }


@dataclass(frozen=True)
class NoEnds:
    """Weighted least squares with a free constant, and neither the empty nor the full row.

    So neither g(0) nor g(1) is tied to the model: efficiency holds by luck only.
    """

    def __call__(self, masks: Masks, values: Tensor, empty: Tensor, full: Tensor) -> Fit:
        """Least squares of least norm; a single player has no other rows, and keeps its own."""
        count = len(masks.rows)
        if count == 0 or masks.credit is not None:
            return WLS()(masks, values, empty, full)
        z = torch.from_numpy(masks.rows).double()
        design = torch.cat([torch.ones(count, 1, dtype=torch.float64), z], 1)
        root = torch.from_numpy(masks.weights).sqrt()[:, None]
        fit = torch.linalg.lstsq(design * root, values * root, driver="gelsd").solution
        phi = fit[1:].t().contiguous()
        return surrogate(masks, values, fit[0], phi, torch.full_like(phi, torch.nan))


ENDS, NO_ENDS = "WLS, ends exact", "WLS, without the ends"
FITS: dict[str, Estimator] = {ENDS: WLS(), NO_ENDS: NoEnds(), "WLR": WLR(), "Lasso": Lasso()}


def fits(dataset: str) -> dict[str, Setting]:
    """Every fit on the paper's rows and on ours."""
    games = {name: paper_game(dataset, estimator=fit) for name, fit in FITS.items()}
    paper = {f"{PAPER_ROWS}, {name}": Setting(game) for name, game in games.items()}
    ours = {f"{OUR_ROWS}, {name}": Setting(replace(game, mask=Paired()))
            for name, game in games.items()}  # fmt: skip
    return {FIT_RANDOM: CHANCE, **paper, **ours}


def same_top(answer: Answer) -> dict[str, float]:
    """Overlap of the top nodes with those of the usual fit, as many as the motif has."""
    usual = answer.of(f"{answer.method.split(', ')[0]}, {ENDS}")
    top = len(answer.trained.dataset.true_nodes(answer.question))
    return {} if usual is None else {"same top": metrics.consistency(
        answer.explanation, usual, top=top, by="value", level="nodes")}  # fmt: skip


PAPER_BASE = torch.tensor([0.12, 0.10, 0.15, 0.27, 0.15, 0.12, 0.08])
PAPER_BALANCE = torch.tensor([0.13, 0.09, 0.15, 0.29, 0.15, 0.11, 0.07])
"""Cora's classes in the order of its files, which is that of the paper's list."""
# The base value is the score of the empty coalition: it needs no more rows than that.
BASE = {"base value": Setting(GraphSVX(samples=50, estimator=WLS()), targets="all")}


def distance(p: Tensor, q: Tensor) -> float:
    """Total variation: half the sum of |p - q|; 0 for equal distributions, at most 1."""
    return 0.5 * float((p - q).abs().sum())


@torch.no_grad()
def base_values(case: Case) -> list[Value]:
    """Distances between distributions over classes."""
    data, explanations = case.trained.dataset, case.explanations["base value"]
    scores = case.trained.model(data.graph.x, data.graph.edge_index)[list(explanations)].softmax(-1)
    balance = torch.bincount(data.labels, minlength=data.classes).double() / len(data.labels)
    base = torch.stack([explanation.bases for explanation in explanations.values()]).mean(0)
    return of_model({
        "base value to mean prediction": distance(base, scores.double().mean(0)),
        "base value to class balance": distance(base, balance),
        "equal classes to class balance": distance(torch.full_like(base, 1 / len(base)), balance),
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
    lines = [f"{PAPER_ROWS}, {words}" for words in (*WAYS, RELEASED)]
    lines += [f"{OUR_ROWS}, {words}" for words in WAYS]
    shown = {"algorithm 2": lines[1], "the authors' code": f"{PAPER_ROWS}, {RELEASED}"}
    rules = [DROPPED, *(FAR.format(hops) for hops in (1, 2))]
    to_balance, share = "base value to class balance", {"over": "explainable"}
    accuracy = {"Accuracy, protocol `paper`": "paper", "Accuracy, protocol `strict`": "strict"}

    def gain(before: str, after: str, protocol: str, datasets: Sequence[str]) -> Estimate:
        return results.paired((after, protocol), (before, protocol), dataset=datasets)

    claims = [
        *(Claim.of(f"Share of the explainable part of {rule}, within 0.05", figure,
                   results.estimate(rule, over="explainable", data=title), is_close, on=title)
          for rule, figure, titles in ((DROPPED, 0.05, ("BA-Community", *CORA_TITLES)),
                                       (FAR.format(2), 0.08, NODE_TITLES)) for title in titles),
        *(Claim.of("The indirect effect raises accuracy on the tree sets (`paper`), by", 0.19,
                   gain(lines[0], line, "paper", NODE_SETS[2:]), is_positive, on=words)
          for words, line in shown.items()),
        *(Claim.of("It changes nothing on the BA sets (`paper`), within 0.05", 0.0,
                   gain(lines[0], line, "paper", NODE_SETS[:2]), is_close, on=words)
          for words, line in shown.items()),
        *(Claim.of("Informative features that are named (BA-Community)", figure,
                   results.estimate("signed", method=name), reaches, on=name)
          for name, figure in ((OWN, 0.65), (AROUND, 1.0))),
        *(Claim.of(f"Another fit in place of {ENDS} changes nothing (`strict`), within 0.05", 0.0,
                   gain(f"{PAPER_ROWS}, {ENDS}", f"{PAPER_ROWS}, {name}", "strict", NODE_SETS),
                   is_close, on=name) for name in (NO_ENDS, "WLR", "Lasso")),
        *(Claim.of("Distance of base value and class balance, within 0.05",
                   distance(PAPER_BASE, PAPER_BALANCE),
                   results.estimate(to_balance, data=title), is_close, on=title)
          for title in CORA_TITLES),
    ]  # fmt: skip
    sections: dict[str, Any] = {
        "Player reduction": (
            "The players that a rule leaves out play for once; sums over the nodes of a seed. On "
            "Cora the features that are left out are one player.",
            *pivots(results, {
                "Share of the explainable part": {"measure": rules, "options": share},
                "Number of players, and share of all absolute credit": [
                    f"{rule}, {figure}" for figure in ("number", "absolute") for rule in rules],
            }, rows="measure")),
        "Indirect effect": pivots(results, {**accuracy, **{
            f"Share of the explainable part: {part}": {"measure": part, "options": share}
            for part in (motifs.PARTS[0], motifs.NEIGHBOURS)}}, method=[*lines, RANDOM]),
        "Features of the node or of its subgraph": pivots(results, {
            "The two informative features among the two with the most credit": {
                "measure": ("signed", "magnitude", "playing"), "columns": "measure"}}),
        "Empty and full row; WLS, WLR, Lasso": pivots(results, {
            **accuracy,
            "Overlap of the top nodes with those of WLS and both ends": "same top",
            "Residual of efficiency, median": "residual",
        }, method=list(fits(NODE_SETS[0]))),
        "Base value": pivots(results, {
            "Distance between distributions over classes (total variation)": {
                "measure": results.names("measure", method=""), "rows": "measure"}}),
    }  # fmt: skip
    return Page(
        "Ablation: what each piece is good for",
        claims,
        dots(results, "indirect", "Accuracy (`strict`) with the indirect effect off and on.",
             ("strict",), method=[*lines, RANDOM]),
        sections,
        "Each piece on and off, on the same nodes; probability of the predicted class, signed "
        "credit, all hops.",
    )  # fmt: skip


ABOUT = "player reduction, indirect effect, subgraph features, fits, base value: each on and off"
STUDY = Study("ablation", ABOUT, GRIDS, page)
