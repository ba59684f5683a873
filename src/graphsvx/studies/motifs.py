"""Data sets with a known explanation: what is scored, and how (`docs/results/protocols.md`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from statistics import fmean

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphsvx import metrics
from graphsvx.datasets.base import draw
from graphsvx.metrics.effects import score_without
from graphsvx.metrics.select import top_keys
from graphsvx.results.explanation import Explanation, Ranking
from graphsvx.studies.study import Answer, Case, Measure, Questions, Value, of_model
from graphsvx.zoo import Trained

HOUSES = 100
"""BA-2motifs: the authors' script scores this many house graphs, the first ones."""
MOLECULES = slice(100, 120)
"""MUTAG: and these of the mutagens with a group, in the order of the files."""
MATTERS = 0.01
"""A node matters to the model if the score changes by at least this when it is cut off."""
OTHERS = 8
"""Nodes outside the motif that are cut off for comparison, for each explanation."""
ROLE, MOTIF = "strict, explained: ", "motif: "
"""What the names of the measures of `accuracy_by_role` and `use_of_motif` begin with."""
PARTS = ("own motif", "other motifs", "base graph", "own features")
NEIGHBOURS = "direct neighbours"
"""Where credit goes."""
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
        return metrics.scored_nodes("strict", candidates=data.node_truth.nodes(),
                                    predicted=predicted(trained), labels=data.labels)  # fmt: skip
    return graphs_right(trained, data.graph_truth.graphs())


def graphs_right(trained: Trained, graphs: Sequence[int]) -> list[int]:
    """Those of the graphs that the model classifies right."""
    right = predicted(trained, graphs) == trained.dataset.labels[list(graphs)]
    return [graph for graph, is_right in zip(graphs, right.tolist(), strict=True) if is_right]


@torch.no_grad()
def predicted(trained: Trained, graphs: Sequence[int] = ()) -> Tensor:
    """The predicted class of every node, or of the given graphs."""
    data = trained.dataset
    if data.task == "node":
        logits: Tensor = trained.model(data.graph.x, data.graph.edge_index)
    else:
        batch = Batch.from_data_list([data.graphs[graph] for graph in graphs])
        logits = trained.model(batch.x, batch.edge_index, batch.batch)
    return logits.argmax(-1)


def accuracy(answer: Answer) -> dict[str, float]:
    """`paper`, `strict` and `AUROC`, with the ranking of the setting."""
    return ranked_accuracy(answer, answer.explanation, answer.setting.by)


def ranked_accuracy(answer: Answer, explanation: Explanation, by: Ranking) -> dict[str, float]:
    """The same of any reading of the explanation; AUROC is about the strict questions."""
    name, values = answer.trained.dataset.name, {}
    truth = answer.trained.dataset.true_nodes(answer.question)
    if answer.scored_by("paper") and name != "mutag":
        values["paper"] = metrics.accuracy(explanation, protocol="paper", dataset=name, by=by)
    elif answer.scored_by("paper"):
        # The script's rule for MUTAG is that of `strict`: the top k of k, on nodes.
        values["paper"] = metrics.accuracy(explanation, truth, by=by)
    if answer.scored_by("strict"):
        values["strict"] = metrics.accuracy(explanation, truth, by=by)
        values["AUROC"] = metrics.auroc(explanation, truth, by=by)
    return values


def edge_accuracy(answer: Answer) -> dict[str, float]:
    """Accuracy and AUROC on edges; a node method's edges have the mean of their ends."""
    if not answer.scored_by("strict"):
        return {}
    truth = answer.trained.dataset.true_edges(answer.question)
    return {
        "strict, edges": metrics.accuracy(answer.explanation, truth, level="edges"),
        "AUROC, edges": metrics.auroc(answer.explanation, truth, level="edges"),
    }


def accuracy_by_role(answer: Answer) -> dict[str, float]:
    """`strict` again, by the explained class, which is a node's role in its motif."""
    scores, data = accuracy(answer), answer.trained.dataset
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


def fidelity(answer: Answer) -> dict[str, float]:
    """How much the score falls when the k best-ranked nodes are cut off together (fidelity+).

    k is the size of the motif; a node with value 0 is not taken.
    """
    if not answer.scored_by("strict"):
        return {}
    count = len(answer.trained.dataset.true_nodes(answer.question))
    top = top_keys(answer.explanation, count, answer.setting.by, "nodes")
    score = score_without(answer.trained, answer.question, answer.explanation.target)
    return {"fidelity": score(()) - score([node for node in top if isinstance(node, int)])}


def fidelity_curves(shares: Sequence[float]) -> Measure:
    """fidelity+ and - on nodes at every share, and the mean of their characterizations."""

    def measure(answer: Answer) -> dict[str, float]:
        data, values, scores = answer.trained.dataset, dict[str, float](), list[float]()
        graph = data.graphs[answer.question if data.task == "graph" else 0]
        for share in shares:
            plus, minus = metrics.fidelity(
                answer.explanation, answer.trained.model, graph, top=share, by=answer.setting.by,
                level="nodes",
            )  # fmt: skip
            values |= {f"{PLUS}{share:.0%}": plus, f"{MINUS}{share:.0%}": minus}
            scores.append(metrics.characterization(plus, minus))
        return {**values, BOTH: fmean(scores)}

    return measure


def use_of_motif(method: str) -> Measure:
    """What the model sees and uses of the motif; players are those of one method.

    Each node of the motif, and a few of the other players, are cut off from everything.
    """

    def measure(answer: Answer) -> dict[str, float]:
        if answer.method != method or not answer.scored_by("strict"):
            return {}
        data = answer.trained.dataset
        truth = sorted(data.true_nodes(answer.question))
        players = set(answer.explanation.node_ids.tolist())
        others = sorted(players - set(truth))
        compared = draw(others, OTHERS, answer.question, "why", data.name)
        score = score_without(answer.trained, answer.question, answer.explanation.target)
        is_graph, full = data.task == "graph", score(())
        all_nodes = range(int(data.graphs[answer.question].num_nodes)) if is_graph else ()
        falls, other_falls = ([full - score((v,)) for v in nodes] for nodes in (truth, compared))
        values = {
            "within reach": len(players & set(truth)) / len(truth),
            "score": full,
            "score alone": score(all_nodes or (answer.question,)),
            "score of it alone": score(others),
            "fall without it": full - score(truth),
            "fall without a node": _mean(falls),
            "fall without another node": _mean(other_falls),
            "unused": _mean([abs(fall) < MATTERS for fall in falls]),
            "against": _mean([fall <= -MATTERS for fall in falls]),
            "others used": _mean([abs(fall) >= MATTERS for fall in other_falls]),
        }
        return {f"{MOTIF}{name}": value for name, value in values.items()}

    return measure


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else nan


def credit_shares(answer: Answer) -> dict[str, float]:
    """Credit by where it goes, and `explainable`, what these are parts of.

    That is prediction - base, or the sum of a mask's entries, which has no base value.
    """
    if not answer.scored_by("strict"):
        return {}
    explanation, distance = answer.explanation, answer.explanation.field.distances
    motif = answer.trained.dataset.true_nodes(answer.question)
    planted = answer.trained.dataset.node_truth.motif_of >= 0
    shares = dict.fromkeys((*PARTS, NEIGHBOURS), 0.0)
    for node, credit in explanation.nodes.items():
        shares[PARTS[0 if node in motif else 1 if bool(planted[node]) else 2]] += credit
        shares[NEIGHBOURS] += credit if distance[node] == 1 else 0.0
    # A mask over edges and features: only its nodes say where credit goes.
    if not explanation.edge_credit.players:
        shares[PARTS[3]] = float(explanation.feature_values.sum())
    games = explanation.certificate.games
    has_base = bool(games) and games[0].r2 is not None
    total = explanation.prediction - explanation.base if has_base else sum(shares[p] for p in PARTS)
    return {**shares, "explainable": total}
