"""Data sets with a known explanation: what is scored, and how (`docs/results/protocols.md`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import torch

from graphsvx import metrics
from graphsvx.datasets.base import draw
from graphsvx.metrics.effects import use_of_nodes
from graphsvx.results.explanation import Explanation, Ranking
from graphsvx.studies.study import Answer, Case, Measure, Questions, Value, of_model
from graphsvx.zoo import Trained
from graphsvx.zoo.training import predicted_classes

HOUSES, MOLECULES = 100, slice(100, 120)
"""The authors' script scores the first houses of BA-2motifs, and these of MUTAG's mutagens with a
group, in the order of the files."""
OTHERS = 8
"""Nodes outside the motif that are cut off for comparison, for each explanation."""
ROLE, MOTIF = "strict, explained: ", "motif: "
"""What the names of the measures of `accuracy_by_role` and `use_of_motif` begin with."""
PLUS, MINUS, BOTH = "fidelity+, top ", "fidelity-, top ", "characterization"
"""Measures of `fidelity_curves`: the first two are followed by a share."""


def scoring(strict: int, paper: int | None = None) -> Callable[[Trained], Questions]:
    """What the paper's protocol scores (or the first `paper`), and `strict` of the strict one.

    The strict ones are drawn from all motif nodes (or graphs with a motif) that the model
    classifies right; the seed of the data fixes the draw.
    """

    def questions(trained: Trained) -> Questions:
        data = trained.dataset
        drawn = draw(classified_right(trained), strict, data.seed, "strict", data.name)
        return {"paper": scored_by_the_paper(trained)[:paper], "strict": tuple(sorted(drawn))}

    return questions


def test_nodes(count: int, **counts: int) -> Callable[[Trained], Questions]:
    """For data without a known explanation: test nodes with a neighbour, drawn by the data's seed.

    counts: how many of data sets whose names begin so; `count` of all others.
    """

    def questions(trained: Trained) -> Questions:
        data = trained.dataset
        test = data.split.test[torch.isin(data.split.test, data.graph.edge_index[1])]
        most = next((n for name, n in counts.items() if data.name.startswith(name)), count)
        nodes = draw(test.tolist(), most, data.seed, data.name, "test nodes")
        return {"test": tuple(sorted(nodes))}

    return questions


def scored_by_the_paper(trained: Trained) -> tuple[int, ...]:
    """The nodes or graphs of the authors' script, whatever the model predicts for them."""
    data = trained.dataset
    if data.task == "node":
        return tuple(metrics.scored_nodes("paper", dataset=data.name))
    return data.graph_truth.graphs()[MOLECULES] if data.name == "mutag" else tuple(range(HOUSES))


def classified_right(trained: Trained) -> list[int]:
    """Everything with a known explanation that the model classifies right."""
    data = trained.dataset
    if data.task == "node":
        return metrics.scored_nodes(
            "strict", candidates=data.node_truth.nodes(), predicted=predicted_classes(trained),
            labels=data.labels)  # fmt: skip
    return graphs_right(trained, data.graph_truth.graphs())


def graphs_right(trained: Trained, graphs: Sequence[int]) -> list[int]:
    """Those of the graphs that the model classifies right."""
    right = predicted_classes(trained, graphs) == trained.dataset.labels[list(graphs)]
    return [graph for graph, is_right in zip(graphs, right.tolist(), strict=True) if is_right]


def accuracy(answer: Answer) -> dict[str, float]:
    """`paper`, `strict` and `AUROC`, with the ranking of the setting."""
    return ranked_accuracy(answer, answer.explanation, answer.setting.by)


def ranked_accuracy(answer: Answer, explanation: Explanation, by: Ranking) -> dict[str, float]:
    """The same of any reading of the explanation; AUROC is about the strict questions."""
    name, truth, values = answer.data.name, answer.true_nodes, dict[str, float]()
    if answer.scored_by("paper"):
        # The script's rule for MUTAG is that of `strict`: the top k of k, on nodes.
        values["paper"] = (
            metrics.accuracy(explanation, truth, by=by) if name == "mutag" else
            metrics.accuracy(explanation, protocol="paper", dataset=name, by=by)
        )  # fmt: skip
    if answer.scored_by("strict"):
        values["strict"] = metrics.accuracy(explanation, truth, by=by)
        values["AUROC"] = metrics.auroc(explanation, truth, by=by)
    return values


def edge_accuracy(answer: Answer) -> dict[str, float]:
    """Accuracy and AUROC on edges; a node method's edges have the mean of their ends."""
    if not answer.scored_by("strict"):
        return {}
    e, truth = answer.explanation, answer.data.true_edges(answer.question)
    return {"strict, edges": metrics.accuracy(e, truth, level="edges"),
            "AUROC, edges": metrics.auroc(e, truth, level="edges")}  # fmt: skip


def accuracy_by_role(answer: Answer) -> dict[str, float]:
    """`strict` again, by the explained class, which is a node's role in its motif."""
    scores, data = accuracy(answer), answer.data
    role = data.class_names[int(data.labels[answer.question])]
    if data.task == "node" and answer.question in data.node_truth.attached.tolist():
        role += ", tied to the base graph"
    return {f"{ROLE}{role}": scores["strict"]} if "strict" in scores else {}


def certificate(answer: Answer) -> dict[str, float]:
    """Model calls, whether values are the Shapley values, and |prediction - base - credit|."""
    calls, exact = answer.explanation.certificate.calls, answer.explanation.certificate.exact
    residual = metrics.efficiency_residual(answer.explanation)
    return {"calls": calls, "exact": float(exact), "residual": residual}


def model_accuracy(case: Case) -> list[Value]:
    """Of the model, on the test part of its data."""
    return of_model({"test accuracy": case.trained.card.accuracy["test"]})


def fidelity_curves(shares: Sequence[float]) -> Measure:
    """fidelity+ and - on nodes at every share, and the mean of their characterizations."""

    def measure(answer: Answer) -> dict[str, float]:
        graph = answer.data.graphs[answer.question if answer.data.task == "graph" else 0]
        values, scores = dict[str, float](), list[float]()
        for share in shares:
            plus, minus = metrics.fidelity(
                answer.explanation, answer.trained.model, graph, top=share, by=answer.setting.by,
                level="nodes")  # fmt: skip
            values |= {f"{PLUS}{share:.0%}": plus, f"{MINUS}{share:.0%}": minus}
            scores.append(metrics.characterization(plus, minus))
        return {**values, BOTH: fmean(scores)}

    return measure


def use_of_motif(method: str) -> Measure:
    """What the model sees and uses of the motif; players are those of one method."""

    def measure(answer: Answer) -> dict[str, float]:
        if answer.method != method or not answer.scored_by("strict"):
            return {}
        truth, players = answer.true_nodes, set(answer.explanation.node_ids.tolist())
        others = draw(sorted(players - truth), OTHERS, answer.question, "why", answer.data.name)
        target, reached = answer.explanation.target, len(players & truth) / len(truth)
        use = use_of_nodes(answer.trained, answer.question, target, truth, others)
        return {f"{MOTIF}{k}": value for k, value in {"within reach": reached, **use}.items()}

    return measure


def credit_shares(answer: Answer) -> dict[str, float]:
    """Credit by where it goes, and `explainable`, what these are parts of."""
    if not answer.scored_by("strict"):
        return {}
    return metrics.credit_shares(answer.explanation, answer.data.node_truth)
