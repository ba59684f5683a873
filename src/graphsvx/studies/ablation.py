"""Study `ablation`: what each piece of GraphSVX is good for (the paper's appendix)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphsvx import graph as graphs
from graphsvx import metrics, players
from graphsvx.baselines import Random
from graphsvx.data.base import generator
from graphsvx.explain.regression import WLR, WLS, Fit, Regression, surrogate
from graphsvx.explain.selective import Lasso
from graphsvx.explain.smooth import Smooth
from graphsvx.explanation import Explanation
from graphsvx.masks import Auto, Masks, Paired
from graphsvx.methods import GraphSVX
from graphsvx.studies import motifs
from graphsvx.studies.figures import dots
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import (
    Claim,
    Figure,
    Page,
    Section,
    by,
    is_close,
    is_positive,
    pivots,
    reaches,
)
from graphsvx.studies.setting import CHANCE, Setting, without_credit
from graphsvx.studies.shapley_error import paper_game, relative_error
from graphsvx.studies.statistics import Estimate
from graphsvx.studies.study import Answer, Case, Grid, Questions, Study, Value, of_model, zoo_models
from graphsvx.studies.titles import NODE_SETS, data_title
from graphsvx.zoo import Trained

PAPER_ROWS, OUR_ROWS = "the paper's rows", "our rows"
RANDOM, FIT_RANDOM = "Random", "Random, the same nodes"


def test_nodes(count: int) -> Callable[[Trained], Questions]:
    """Some of the test nodes; the seed of the data fixes which."""

    def draw(trained: Trained) -> Questions:
        test = trained.dataset.split.test
        order = torch.randperm(len(test), generator=generator(trained.dataset.seed, "ablation"))
        return {"test": tuple(sorted(test[order[:count]].tolist()))}

    return draw


# --- player reduction -----------------------------------------------------------------------

LAMBDA = 0.25
DROPPED, FAR = "features inside mu ± 0.25 sigma", "nodes beyond {} hops"
ALL_FEATURES, DEFAULT = "all features play", "default"


def dropped_features(trained: Trained, node: int) -> list[int]:
    """Columns in which the node lies inside mu +- lambda sigma."""
    graph = graphs.check(trained.dataset.graph)
    kept = players.choose_features(graph, torch.tensor([node]).numpy(), LAMBDA)
    return sorted(set(range(graph.num_features)) - set(kept.tolist()))


def left_out(answer: Answer) -> dict[str, float]:
    """Credit of the players that a rule leaves out, in an explanation in which they played."""
    explanation, field = answer.explanation, answer.explanation.neighbourhood
    features, nodes = explanation.features, explanation.nodes
    distance = dict(zip(field.ids.tolist(), field.hops.tolist(), strict=True))
    if answer.method == ALL_FEATURES:
        columns = dropped_features(answer.trained, answer.question)
        dropped = {DROPPED: [features[column] for column in columns]}
    else:
        dropped = {FAR.format(hops): [c for node, c in nodes.items() if distance[node] > hops]
                   for hops in range(1, answer.trained.card.settings.layers)}  # fmt: skip
    size = sum(map(abs, [*features.values(), *nodes.values()]))
    found = {"explainable": explanation.prediction - explanation.base}
    for rule, credit in dropped.items():
        absolute = sum(map(abs, credit)) / size if size else 0.0
        found |= {rule: sum(credit), f"{rule}, number": len(credit), f"{rule}, absolute": absolute}
    return found


def left_out_as_one(case: Case) -> Iterator[Value]:
    """Where there are too many features to tell apart, those left out play as one player."""
    for node in case.questions["test"]:
        columns = dropped_features(case.trained, node)
        method = GraphSVX(feature_groups={DROPPED: columns}, samples=2000)
        for explanation in case.context.explanations(case.trained, method, [node]):
            names = explanation.feature_credit.names or ()
            credit = dict(zip(names, explanation.feature_values.tolist(), strict=True))
            explainable = explanation.prediction - explanation.base
            yield ALL_FEATURES, node, DROPPED, credit[DROPPED]
            yield ALL_FEATURES, node, f"{DROPPED}, number", len(columns)
            yield ALL_FEATURES, node, "explainable", explainable


# --- indirect effect, features of the subgraph ----------------------------------------------

WAYS = {"off": False, "on, path nodes at the mean": "mean", "on, path nodes like v": "target"}
OWN, AROUND = "the node's own features", "features of the subgraph"
FEATURE_METHODS = {
    OWN: Setting(GraphSVX()),
    "the node's own, all of them play": Setting(GraphSVX(features="all")),
    AROUND: Setting(GraphSVX(features_of="subgraph")),
    RANDOM: Setting(Random(players="features", features="all"), change=without_credit),
}


def with_and_without(dataset: str) -> dict[str, Setting]:
    """The indirect effect off and on, with the paper's coalitions and with ours."""
    found = {RANDOM: CHANCE}
    for words, indirect in WAYS.items():
        found[f"{PAPER_ROWS}, {words}"] = Setting(GraphSVX.paper(dataset, indirect=indirect))
        found[f"{OUR_ROWS}, {words}"] = Setting(GraphSVX(indirect=indirect))  # type: ignore[arg-type]
    return found


def informative_found(answer: Answer) -> dict[str, float]:
    """Share of the informative columns among as many with the most credit, and that play."""
    wanted = set(answer.trained.dataset.node_truth.informative_features or ())
    one = answer.explanation
    return {
        "signed": metrics.accuracy(one, wanted, level="features"),
        "magnitude": metrics.accuracy(one, wanted, by="absolute", level="features"),
        "playing": len(wanted & set(one.features)) / len(wanted),
    }


# --- how values become credit ---------------------------------------------------------------


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
        found = torch.linalg.lstsq(design * root, values * root, driver="gelsd").solution
        phi = found[1:].t().contiguous()
        return surrogate(masks, values, found[0], phi, torch.full_like(phi, torch.nan))


ENDS, NO_ENDS, SMOOTH, EXACT = "WLS, ends exact", "WLS, without the ends", "Smooth", "exact values"
FITS: dict[str, Regression] = {
    ENDS: WLS(), NO_ENDS: NoEnds(), "WLR": WLR(), "Lasso": Lasso(), SMOOTH: Smooth(),
}  # fmt: skip
EXACT_CALLS = 5_000
"""Model calls within which a game may be enumerated for the exact values."""


def fits(dataset: str) -> dict[str, Setting]:
    """Every fit on the paper's rows and on ours; Smooth needs pairs of rows, which only ours are."""
    exact = paper_game(dataset, mask=Auto(), samples=EXACT_CALLS)
    found = {FIT_RANDOM: CHANCE, EXACT: Setting(exact)}
    for name, regression in FITS.items():
        game = paper_game(dataset, regression=regression)
        if name != SMOOTH:
            found[f"{PAPER_ROWS}, {name}"] = Setting(game)
        found[f"{OUR_ROWS}, {name}"] = Setting(replace(game, mask=Paired()))
    return found


def fitted_well(answer: Answer) -> dict[str, float]:
    """Error against exact values, residual of efficiency, and whether the same nodes are on top."""
    exact = answer.of(EXACT)
    usual = answer.of(f"{answer.method.split(', ')[0]}, {ENDS}")
    if usual is None:
        return {}
    count = len(motifs.true_nodes(answer.trained, answer.question))
    known = exact is not None and exact.certificate.exact
    return {
        **({"error": relative_error(answer.explanation, exact)} if exact and known else {}),
        "residual": metrics.efficiency_residual(answer.explanation),
        "same top": same_top(answer.explanation, usual, count),
    }


def same_top(explanation: Explanation, usual: Explanation, count: int) -> float:
    """1 if the top nodes are those of the usual fit, or others to which that gives as much.

    Within 1 % of all absolute credit: ties are no difference.
    """
    credit = usual.nodes
    best, mine = (
        sum(credit[one.id] for one in each.top_nodes(count)) for each in (usual, explanation)
    )
    return float(mine >= best - 0.01 * sum(map(abs, credit.values())))


# --- base value -----------------------------------------------------------------------------

PAPER_BASE = torch.tensor([0.12, 0.10, 0.15, 0.27, 0.15, 0.12, 0.08])
PAPER_BALANCE = torch.tensor([0.13, 0.09, 0.15, 0.29, 0.15, 0.11, 0.07])
"""Cora's classes in the order of its files, which is that of the paper's list."""
BASE, AT_MEAN = "base value", "base value, all features at the mean"
# The base value is the score of the empty coalition: it needs no more rows than that.
FEW_ROWS = GraphSVX(samples=50, regression=WLS())
BASES = {
    BASE: Setting(FEW_ROWS, targets="all"),
    AT_MEAN: Setting(replace(FEW_ROWS, features="all"), targets="all"),
}


def distance(p: Tensor, q: Tensor) -> float:
    """Total variation: half the sum of |p - q|; 0 for equal distributions, at most 1."""
    return 0.5 * float((p - q).abs().sum())


@torch.no_grad()
def base_values(case: Case) -> list[Value]:
    """Distances between distributions over classes."""
    data, nodes = case.trained.dataset, list(case.questions["test"])
    scores = case.trained.model(data.graph.x, data.graph.edge_index)[nodes].softmax(-1)
    balance = torch.bincount(data.labels, minlength=data.classes).double() / len(data.labels)
    base, at_mean = (torch.stack([one.bases for one in case.explanations[name].values()]).mean(0)
                     for name in BASES)  # fmt: skip
    return of_model({
        "base value to mean prediction": distance(base, scores.double().mean(0)),
        "base value to class balance": distance(base, balance),
        "base value at the mean to class balance": distance(at_mean, balance),
        "equal classes to class balance": distance(torch.full_like(base, 1 / len(base)), balance),
    })  # fmt: skip


REDUCED = Grid(
    NODE_SETS,
    lambda _: {DEFAULT: Setting(GraphSVX())},
    motifs.scoring(20, 0),
    measures=(left_out,),
    quick=("tree-cycles",),
)
CORA = replace(REDUCED, datasets=("cora",), questions=test_nodes(20), models=zoo_models("gcn"),
               quick=())  # fmt: skip
GRIDS = (
    REDUCED,
    replace(REDUCED, datasets=("ba-community",), quick=None,
            methods=lambda _: {ALL_FEATURES: Setting(GraphSVX(features="all"))}),
    CORA,
    replace(CORA, methods=lambda _: {}, questions=test_nodes(10), measures=(),
            case_measures=(left_out_as_one,), models=zoo_models("gcn", "gat")),
    Grid(NODE_SETS, with_and_without, motifs.scoring(20),
         measures=(motifs.accuracy, motifs.credit_shares), quick=("ba-shapes", "tree-cycles")),
    Grid(("ba-community",), lambda _: FEATURE_METHODS, motifs.scoring(30),
         measures=(informative_found,)),
    Grid(NODE_SETS, fits, motifs.scoring(20, 10), measures=(motifs.accuracy, fitted_well),
         quick=("tree-cycles",)),
    Grid(NODE_SETS, lambda _: BASES, test_nodes(40), case_measures=(base_values,),
         quick=("tree-cycles",)),
    Grid(("cora",), lambda _: BASES, test_nodes(40), case_measures=(base_values,),
         models=zoo_models("gcn", "gat"), quick=()),
)  # fmt: skip


def page(results: Measurements) -> Page:
    """One section a piece."""
    sets = [data_title(name) for name in NODE_SETS if results.keys(dataset=name)]
    columns, everywhere = by("data", sets), by("data", results.names("data"))
    families = {"tree": NODE_SETS[2:], "BA": NODE_SETS[:2]}
    lines = [f"{rows}, {way}" for rows in (PAPER_ROWS, OUR_ROWS) for way in WAYS]
    off, on = lines[:2]
    fit_lines = [name for name in fits(NODE_SETS[0]) if name != EXACT]
    rules = [DROPPED, *(FAR.format(hops) for hops in (1, 2))]

    def gain(before: str, after: str, protocol: str, datasets: tuple[str, ...]) -> Estimate:
        return results.paired((after, protocol), (before, protocol), dataset=datasets)

    def share(rule: str, title: str) -> Estimate:
        return results.estimate(rule, over="explainable", data=title)

    claims = [
        *(Claim.of(f"Share of the explainable part of {rule} ({title}), within 0.05", figure,
                   share(rule, title), is_close)
          for rule, figure in ((DROPPED, 0.05), (FAR.format(2), 0.08)) for title in everywhere
          if share(rule, title).seeds),
        *(Claim.of(f"The indirect effect raises accuracy on the tree sets (`{protocol}`)", 0.19,
                   gain(off, on, protocol, families["tree"]), is_positive)
          for protocol in ("paper", "strict")),
        Claim.of("The indirect effect changes nothing on the BA sets (`paper`), within 0.05", 0.0,
                 gain(off, on, "paper", families["BA"]), is_close),
        *(Claim.of(f"Informative features named by {name} (BA-Community)", figure,
                   results.estimate("signed", method=name), reaches)
          for name, figure in ((OWN, 0.65), (AROUND, 1.0))),
        *(Claim.of(f"{name} in place of {ENDS} changes nothing (`strict`), within 0.05", 0.0,
                   gain(f"{PAPER_ROWS}, {ENDS}", f"{PAPER_ROWS}, {name}", "strict", NODE_SETS),
                   is_close) for name in (NO_ENDS, "WLR", "Lasso")),
        *(Claim.of(f"Base value and class balance ({title}): distance, within 0.05",
                   distance(PAPER_BASE, PAPER_BALANCE),
                   results.estimate("base value to class balance", data=title), is_close)
          for title in everywhere if title.startswith("Cora")),
    ]  # fmt: skip
    reduction = pivots(results, by("measure", rules), everywhere, {
        "Share of the explainable part": {"over": "explainable"},
    }) + pivots(results, by("measure", [f"{rule}, {what}" for what in ("number", "absolute")
                                        for rule in rules]), everywhere, {
        "How many, and their share of all absolute credit": {}})  # fmt: skip
    indirect = pivots(results, by("method", [*lines, RANDOM]), columns, {
        "Accuracy, protocol `paper`": "paper", "Accuracy, protocol `strict`": "strict",
        **{f"Share of the explainable part: {part}": {"measure": part, "over": "explainable"}
           for part in (motifs.PARTS[0], motifs.NEIGHBOURS)},
    })  # fmt: skip
    subgraph = pivots(results, by("method", FEATURE_METHODS),
                      by("measure", ("signed", "magnitude", "playing")), {
        "BA-Community: the two informative features among the two with the most credit": {}})  # fmt: skip
    fitting = pivots(results, by("method", [*fit_lines, FIT_RANDOM]), columns, {
        "Accuracy, protocol `paper`": "paper", "Accuracy, protocol `strict`": "strict",
        "Relative squared error, median": {
            "measure": "error", "digits": 3,
            "note": f"Where exact values fit {EXACT_CALLS:,} model calls."},
        "Same nodes on top as with WLS and both ends": "same top",
        "Residual of efficiency, median": "residual",
    })  # fmt: skip
    bases = pivots(results, everywhere, by("measure", results.names("measure", method="")), {
        "Distance between distributions over classes": {"method": "", "note": "Total variation."}})  # fmt: skip
    figure = Figure(
        "indirect", "Accuracy (`strict`) with the indirect effect off and on.",
        lambda: dots({"strict": {s: {m: results.estimate("strict", method=m, data=s)
                                     for m in [*lines, RANDOM]} for s in sets}}),
    )  # fmt: skip
    return Page(
        "Ablation: what each piece is good for",
        tuple(claims),
        figure,
        (Section("Player reduction", (
            "The players that a rule leaves out play for once. Their credit is summed over the "
            "nodes of a seed and divided by the sum of prediction - base; on Cora the features "
            "that are left out are one player.", *reduction)),
         Section("Indirect effect", indirect),
         Section("Features of the node or of its subgraph", subgraph),
         Section("Empty and full row; WLS, WLR, Lasso", fitting),
         Section("Base value", bases)),
        "Each piece on and off, on the same nodes; probability of the predicted class, signed "
        "credit, all hops.",
    )  # fmt: skip


STUDY = Study(
    "ablation",
    "player reduction, indirect effect, subgraph features, fits, base value: each on and off",
    GRIDS,
    page,
)
