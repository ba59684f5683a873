"""Study `shortcut`: does an explanation show that a model relies on a planted confounder?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from graphsvx import metrics, zoo
from graphsvx.datasets.changed import marked, with_feature
from graphsvx.methods import GraphSVX, PGExplainer
from graphsvx.metrics.select import expected_hits, scores, strength
from graphsvx.studies import motifs
from graphsvx.studies.context import model_of
from graphsvx.studies.measurements import Measurements
from graphsvx.studies.page import Claim, Page, dots, pivots
from graphsvx.studies.setting import CHANCE, GRAPH_RIVALS, Setting
from graphsvx.studies.study import Answer, Case, Grid, Questions, Study, Value, of_model
from graphsvx.zoo import Trained
from graphsvx.zoo.training import predicted_classes

SHORTCUT, CONTROL = "mark decides", "mark says nothing"
FIRST, RELIANCE = "mark first", "predictions that change without the mark"
EXPOSED, CONTROLLED = 0.9, 0.1
"""An explainer exposes the shortcut if it puts the mark first on this share of graphs, and on at
most so many of the control; at most so many predictions of the control change without the mark."""
GRAPHS, TRAINED_ON = 12, 400
RANDOM, PG = "Random", "PGExplainer"
METHODS = {
    "GraphSVX": Setting(GraphSVX(samples=1000, erase=True)),
    "GNNExplainer": GRAPH_RIVALS["GNNExplainer"], PG: Setting(PGExplainer(), edge_rule="mean"),
    **GRAPH_RIVALS, RANDOM: CHANCE}  # fmt: skip


def marked_graphs(trained: Trained) -> Questions:
    """Marked test graphs of class 1 that are classified right."""
    data = trained.dataset
    of_class, has_mark = data.labels == 1, set(data.graph_truth.graphs())
    usable = [graph for graph in data.split.test.tolist() if of_class[graph] and graph in has_mark]
    return {"test": tuple(motifs.graphs_right(trained, usable)[:GRAPHS])}


def mark_first(answer: Answer) -> dict[str, float]:
    """Whether the marked node is ranked first (ties: with what chance), and its AUROC."""
    mark, by = answer.trained.dataset.true_nodes(answer.question), answer.setting.by
    keys, values = scores(answer.explanation, "nodes")
    return {FIRST: expected_hits(keys, strength(values, by), mark, 1),
            "AUROC of the mark": metrics.auroc(answer.explanation, mark, by=by)}  # fmt: skip


def reliance(case: Case) -> list[Value]:
    """Of the explained graphs: how many predictions change without the mark; test accuracy."""
    data, changed = case.trained.dataset, list(case.trained.dataset.graphs)
    for graph in case.questions["test"]:
        (node,) = case.trained.dataset.true_nodes(graph)
        changed[graph] = with_feature(data.graphs[graph], node, 1.0)
    unmarked = replace(case.trained, dataset=replace(data, graphs=tuple(changed)))
    follows = (predicted_classes(unmarked, case.questions["test"]) != 1).double().mean()
    return [*of_model({RELIANCE: float(follows)}), *motifs.model_accuracy(case)]


SETTINGS = replace(zoo.settings_for("ba-2motifs"), cut_edges=False, epochs=60)
MODELS = {
    name: model_of(partial(marked, count=TRAINED_ON, gives_class_away=decides), SETTINGS, short)
    for name, decides, short in ((SHORTCUT, True, "shortcut"), (CONTROL, False, "control"))
}
GRID = Grid(
    ("ba-2motifs",), lambda _: METHODS, marked_graphs, measures=(mark_first,),
    case_measures=(reliance,), models=MODELS)  # fmt: skip


def page(results: Measurements) -> Page:
    """Who puts the mark first where it decides, and who does not where it says nothing."""
    claims = [
        Claim.of("The model decides by the mark: predictions that change without it", "",
                 results.estimate(RELIANCE, model=SHORTCUT), lambda e, _: e.mean >= EXPOSED),
        Claim.of("The control does not", "",
                 results.estimate(RELIANCE, model=CONTROL), lambda e, _: e.mean <= CONTROLLED),
    ]  # fmt: skip
    for name in list(METHODS)[:-1]:
        decides, control = (results.estimate(FIRST, method=name, model=model) for model in MODELS)
        claim = Claim.of("The mark is first where it decides, and not on the control", "",
                         decides, lambda e, _: e.mean >= EXPOSED, on=name)  # fmt: skip
        holds = claim.holds and control.mean <= CONTROLLED
        ours = f"{decides.text()}; control {control.text()}"
        claims.append(replace(claim, ours=ours, interval=None, holds=holds))
    first, *others = pivots(results, {
        "Share of graphs whose marked node is first": FIRST,
        "AUROC of the marked node": "AUROC of the mark",
        "The models": {"measure": (RELIANCE, "test accuracy"), "rows": "measure"},
    }, columns="model")  # fmt: skip
    return Page(
        "A planted shortcut: does the explanation expose it?",
        claims,
        dots("first", "Share of graphs whose marked node is ranked first.", {FIRST: first}),
        {"Details": (first, *others)},
        "BA-2motifs with a mark (a feature of one random node of the base graph). In one set "
        "exactly the graphs of class 1 are marked and the model decides by it; in the control "
        "marks are drawn by coin and the model has to use the motif. The shortcut is exposed if "
        f"the mark is first on at least {EXPOSED:.0%} of the test graphs ({GRAPHS} a seed, fewer "
        f"where the model is wrong), and on at most {CONTROLLED:.0%} of the control, which became "
        "part of the rule after a first look; without it PGM-Explainer and integrated gradients "
        "pass too.")  # fmt: skip


STUDY = Study(
    "shortcut", "a confounder that decides: do explanations expose it?", (GRID,), page
)  # fmt: skip
