"""Data sets with a known explanation: what is scored, and how (`docs/results/protocols.md`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from graphsvx.metrics import (
    characterization,
    efficiency_residual,
    expected_error,
    fidelity,
    relative_error,
)
from graphsvx.results.explanation import Explanation, Ranking
from graphsvx_lab import metrics
from graphsvx_lab.datasets.base import draw
from graphsvx_lab.metrics.effects import use_of_nodes
from graphsvx_lab.metrics.measurements import Value, model_values
from graphsvx_lab.metrics.truth import classified_right, scored_by_the_paper
from graphsvx_lab.studies.study import Answer, Case, Questions, with_options
from graphsvx_lab.zoo import Trained

OTHERS = 8  # nodes outside the motif that are cut off for comparison, for each explanation
ROLE, MOTIF = "strict, explained: ", "motif: "
"""What the names of the measures of `accuracy_by_role` and `use_of_motif` begin with."""
PLUS, MINUS, BOTH = "fidelity+, top ", "fidelity-, top ", "characterization"
"""Measures of `fidelity_curves`: the first two are followed by a share."""


@with_options
def scoring(trained: Trained, strict: int, paper: int | None = None) -> Questions:
    """What the paper's protocol scores (or the first `paper`), and `strict` of the strict one.

    The strict ones are drawn from all motif nodes (or graphs with a motif) that the model
    classifies right; the seed of the data fixes the draw.
    """
    data = trained.dataset
    queries = draw(classified_right(trained), strict, data.seed, "strict", data.name)
    return {"paper": scored_by_the_paper(trained)[:paper], "strict": tuple(sorted(queries))}


@with_options
def test_nodes(trained: Trained, /, count: int, **counts: int) -> Questions:
    """For data without a known explanation: test nodes with a neighbour, drawn by the data's seed.

    counts: how many of data sets whose names begin so; `count` of all others.
    """
    data = trained.dataset
    test = data.split.test[torch.isin(data.split.test, data.graph.edge_index[1])]
    most = next((n for name, n in counts.items() if data.name.startswith(name)), count)
    return {"test": tuple(sorted(draw(test.tolist(), most, data.seed, data.name, "test nodes")))}


def accuracy(answer: Answer) -> dict[str, float]:
    """`paper`, `strict` and `AUROC`, with the ranking of the setting."""
    return ranked_accuracy(answer, answer.explanation, answer.setting.by)


def ranked_accuracy(answer: Answer, explanation: Explanation, by: Ranking) -> dict[str, float]:
    """The same of any reading of the explanation; AUROC is about the strict questions."""
    name, truth, values = answer.data.name, answer.true_nodes, dict[str, float]()
    if answer.scored_by("paper"):
        # The script's rule for MUTAG is that of `strict`: the top k of k, on nodes.
        papers: Any = {"protocol": "paper", "dataset": name}
        rule = {"truth": truth} if name == "mutag" else papers
        values["paper"] = metrics.accuracy(explanation, by=by, **rule)
    if answer.scored_by("strict"):
        values["strict"] = metrics.accuracy(explanation, truth, by=by)
        values["AUROC"] = metrics.auroc(explanation, truth, by=by)
    return values


def edge_accuracy(answer: Answer) -> dict[str, float]:
    """Accuracy and AUROC on edges; a node method's edges have the mean of their ends."""
    if not answer.scored_by("strict"):
        return {}
    e, truth = answer.explanation, answer.data.true_edges(answer.question)
    return {
        "strict, edges": metrics.accuracy(e, truth, level="edges"),
        "AUROC, edges": metrics.auroc(e, truth, level="edges"),
    }


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
    residual = efficiency_residual(answer.explanation)
    return {"calls": calls, "exact": float(exact), "residual": residual}


@with_options
def error_against(answer: Answer, references: Mapping[str, str]) -> dict[str, float]:
    """`error` against the reference of a method; what a reference's error bars say: `own error`."""
    name = references.get(answer.method, "")
    if name == answer.method:
        return {"own error": expected_error(answer.explanation)}
    exact = answer.of(name)
    return {} if exact is None else {"error": relative_error(answer.explanation, exact)}


def model_accuracy(case: Case) -> list[Value]:
    """Of the model, on the test part of its data."""
    return model_values({"test accuracy": case.trained.card.accuracy["test"]})


@with_options
def fidelity_curves(answer: Answer, shares: Sequence[float]) -> dict[str, float]:
    """fidelity+ and - on nodes at every share, and the mean of their characterizations."""
    graph = answer.data.graphs[answer.question if answer.data.task == "graph" else 0]
    values, scores = dict[str, float](), list[float]()
    for share in shares:
        plus, minus = fidelity(
            answer.explanation,
            answer.trained.model,
            graph,
            top=share,
            by=answer.setting.by,
            level="nodes",
        )
        values |= {f"{PLUS}{share:.0%}": plus, f"{MINUS}{share:.0%}": minus}
        scores.append(characterization(plus, minus))
    return {**values, BOTH: fmean(scores)}


@with_options
def use_of_motif(answer: Answer, method: str) -> dict[str, float]:
    """What the model sees and uses of the motif; players are those of one method."""
    if answer.method != method or not answer.scored_by("strict"):
        return {}
    truth, players = answer.true_nodes, set(answer.explanation.node_ids.tolist())
    others = draw(sorted(players - truth), OTHERS, answer.question, "why", answer.data.name)
    target, reached = answer.explanation.target, len(players & truth) / len(truth)
    use = use_of_nodes(answer.trained, answer.question, target, truth, others)
    return {f"{MOTIF}{k}": value for k, value in {"within reach": reached, **use}.items()}


def credit_shares(answer: Answer) -> dict[str, float]:
    """Credit by where it goes, and `explainable`, what these are parts of."""
    if not answer.scored_by("strict"):
        return {}
    return metrics.credit_shares(answer.explanation, answer.data.node_truth)
