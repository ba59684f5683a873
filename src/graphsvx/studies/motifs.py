"""Data sets with a known explanation: what is scored, and how (`docs/results/protocols.md`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import nan
from statistics import fmean

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphsvx import metrics, zoo
from graphsvx.data.base import generator
from graphsvx.explanation import Explanation, Ranking
from graphsvx.metrics.select import top_keys
from graphsvx.studies.context import StudyContext
from graphsvx.studies.study import Answer, Case, MakeModel, Questions, Value, of_model
from graphsvx.zoo import Trained

HOUSES = 100
"""BA-2motifs: the authors' script scores this many house graphs, the first ones."""
MOLECULES = slice(100, 120)
"""MUTAG: and these of the mutagens with a group, in the order of the files."""
MATTERS = 0.01
"""A node matters to the model if the score changes by at least this when it is cut off."""
OTHERS = 8
"""Nodes outside the motif that are cut off for comparison, for each explanation."""
PARTS = ("own motif", "other motifs", "base graph", "own features")
PLACE = "strict, explained: "
NEIGHBOURS = "direct neighbours"
"""Where credit goes."""
_HOUSE = ("middle, tied", "middle", "bottom", "bottom", "top")
_GRID = ("corner, tied", "side", "corner", "side", "centre", "side", "corner", "side", "corner")


# --- models and questions -------------------------------------------------------------------


def trained_with(cut_edges: bool) -> MakeModel:
    """The usual settings but for `cut_edges`, which was chosen by looking at explanations."""

    def make(context: StudyContext, dataset: str, seed: int) -> Trained:
        settings = replace(zoo.settings_for(dataset), cut_edges=cut_edges)
        return context.trained_model(dataset, seed, settings=settings)

    return make


def scored_queries(trained: Trained, strict: int, paper: int | None = None) -> Questions:
    """What the paper's protocol scores (or the first `paper`), and `strict` of the strict one.

    The strict ones are drawn from all motif nodes (or graphs with a motif) that the model
    classifies right; the seed of the data fixes the draw.
    """
    data = trained.dataset
    right = classified_right(trained)
    order = torch.randperm(len(right), generator=generator(data.seed, "strict", data.name))
    drawn = sorted(right[i] for i in order[:strict].tolist())
    return {"paper": scored_by_the_paper(trained)[:paper], "strict": tuple(drawn)}


def scoring(strict: int, paper: int | None = None) -> Callable[[Trained], Questions]:
    """`scored_queries` with these counts, for a grid."""
    return lambda trained: scored_queries(trained, strict, paper)


def scored_by_the_paper(trained: Trained) -> tuple[int, ...]:
    """The nodes or graphs of the authors' script, whatever the model predicts for them."""
    data = trained.dataset
    if data.task == "node":
        return tuple(metrics.scored_nodes("paper", dataset=data.name))
    if data.name == "mutag":
        return data.graph_truth.graphs()[MOLECULES]
    return tuple(range(HOUSES))


def classified_right(trained: Trained) -> list[int]:
    """Everything with a known explanation that the model classifies right."""
    data = trained.dataset
    if data.task == "node":
        return metrics.scored_nodes(
            "strict",
            candidates=data.node_truth.nodes(),
            predicted=predicted(trained),
            labels=data.labels,
        )
    known = data.graph_truth.graphs()
    right = predicted(trained, known) == data.labels[list(known)]
    return [graph for graph, is_right in zip(known, right.tolist(), strict=True) if is_right]


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


def true_nodes(trained: Trained, query: int) -> set[int]:
    """The nodes that explain a node (without itself) or a graph."""
    data = trained.dataset
    if data.task == "node":
        return set(data.node_truth.motif(query)) - {query}
    return set(data.graph_truth.graph_nodes(query).nonzero().flatten().tolist())


def true_edges(trained: Trained, query: int) -> set[tuple[int, int]]:
    """The directed edges that explain a node or a graph."""
    data = trained.dataset
    if data.task == "node":
        return set(data.node_truth.motif_edges(query))
    inside = data.graph_truth.graph_edges(query)
    pairs = data.graphs[query].edge_index[:, inside].t().tolist()
    return {(source, target) for source, target in pairs}


# --- measures -------------------------------------------------------------------------------


def accuracy(answer: Answer) -> dict[str, float]:
    """`paper`, `strict` and `AUROC`, with the ranking of the setting."""
    return ranked_accuracy(answer, answer.explanation, answer.setting.by)


def ranked_accuracy(answer: Answer, explanation: Explanation, by: Ranking) -> dict[str, float]:
    """The same of any reading of the explanation; AUROC is about the strict questions."""
    trained, query = answer.trained, answer.question
    name, truth = trained.dataset.name, true_nodes(trained, query)
    values = {}
    if answer.scored_by("paper"):
        # The script's rule for MUTAG is that of `strict`: the top k of k, on nodes.
        values["paper"] = (
            metrics.accuracy(explanation, truth, by=by)
            if name == "mutag"
            else metrics.accuracy(explanation, protocol="paper", dataset=name, by=by)
        )
    if answer.scored_by("strict"):
        values["strict"] = metrics.accuracy(explanation, truth, by=by)
        values["AUROC"] = metrics.auroc(explanation, truth, by=by)
    return values


def edge_accuracy(answer: Answer) -> dict[str, float]:
    """Accuracy and AUROC on edges; a node method's edges have the mean of their ends."""
    if not answer.scored_by("strict"):
        return {}
    truth = true_edges(answer.trained, answer.question)
    return {
        "strict, edges": metrics.accuracy(answer.explanation, truth, level="edges"),
        "AUROC, edges": metrics.auroc(answer.explanation, truth, level="edges"),
    }


def accuracy_by_place(answer: Answer) -> dict[str, float]:
    """`strict` again, by the place of the node in its motif."""
    found = accuracy(answer)
    place = place_of(answer.trained, answer.question) if "strict" in found else ""
    return {f"{PLACE}{place}": found["strict"]} if place else {}


def certificate(answer: Answer) -> dict[str, float]:
    """Model calls, and whether the values are the Shapley values themselves."""
    known = answer.explanation.certificate
    return {"calls": known.calls, "exact": float(known.exact)}


def fidelity(answer: Answer) -> dict[str, float]:
    """How much the score falls when the k best-ranked nodes are cut off together (fidelity+).

    k is the size of the motif; a node with value 0 is not taken.
    """
    if not answer.scored_by("strict"):
        return {}
    count = len(true_nodes(answer.trained, answer.question))
    taken = top_keys(answer.explanation, count, answer.setting.by, "nodes")
    nodes = [node for node in taken if isinstance(node, int)]
    score = _scores(answer.trained, answer.question, answer.explanation.target)
    return {"fidelity": score(()) - score(nodes)}


def model_accuracy(case: Case) -> list[Value]:
    """Of the model, on the test part of its data."""
    return of_model({"test accuracy": case.trained.card.accuracy["test"]})


def motif_use(method: str, label: str) -> Callable[[Case], Iterator[Value]]:
    """What the model sees and uses of the motif: for `method`'s strict questions, as `label`."""

    def measure(case: Case) -> Iterator[Value]:
        for query, explanation in case.explanations[method].items():
            if query in case.questions["strict"]:
                for name, value in use_of_motif(case.trained, query, explanation).items():
                    yield label, query, name, value

    return measure


def use_of_motif(trained: Trained, query: int, explanation: Explanation) -> dict[str, float]:
    """Cut off each node of the motif, and a few of the other players, from everything."""
    truth, players = sorted(true_nodes(trained, query)), set(explanation.node_ids.tolist())
    others = sorted(players - set(truth))
    picked = torch.randperm(len(others), generator=generator(query, "why", trained.dataset.name))[
        :OTHERS
    ].tolist()
    score = _scores(trained, query, explanation.target)
    is_graph = trained.dataset.task == "graph"
    everything = range(int(trained.dataset.graphs[query].num_nodes)) if is_graph else (query,)
    whole = score(())
    inside = [whole - score((node,)) for node in truth]
    outside = [whole - score((others[i],)) for i in picked]
    return {
        "within reach": len(players & set(truth)) / len(truth),
        "score": whole,
        "score alone": score(everything),
        "fidelity": whole - score(truth),
        "fall, motif node": fmean(inside),
        "fall, other node": fmean(outside) if outside else nan,
        "unused": fmean(abs(fall) < MATTERS for fall in inside),
        "against": fmean(fall <= -MATTERS for fall in inside),
        "others used": fmean(abs(fall) >= MATTERS for fall in outside) if outside else nan,
    }


def _scores(trained: Trained, query: int, target: int) -> Callable[[Sequence[int] | range], float]:
    """The explained probability with some nodes cut off from everything."""
    data = trained.dataset
    graph = data.graphs[query if data.task == "graph" else 0]

    @torch.no_grad()
    def score(cut: Sequence[int] | range) -> float:
        gone = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
        gone[list(cut)] = True
        logits = trained.model(graph.x, graph.edge_index[:, ~gone[graph.edge_index].any(0)])
        return float(logits[0 if data.task == "graph" else query].softmax(-1)[target])

    return score


def place_of(trained: Trained, query: int) -> str:
    """The place of a node in its motif ("tied": to the base graph), or the kind of a graph."""
    data = trained.dataset
    if data.task == "graph":
        if data.name != "mutag":
            return data.class_names[int(data.labels[query])]
        atoms = data.graphs[query].x.argmax(1)[sorted(true_nodes(trained, query))].tolist()
        names = {(data.feature_names or ())[atom] for atom in atoms}
        return " and ".join(group for group, atom in (("NO2", "O"), ("NH2", "H")) if atom in names)
    truth = data.node_truth
    place = query - int(truth.attached[truth.motif_of[query]])
    if truth.kind in ("house", "grid"):
        return (_HOUSE if truth.kind == "house" else _GRID)[place]
    steps = min(place, len(truth.motif(query)) - place)
    return "tied" if steps == 0 else f"{steps} from the tied one"


def credit_shares(answer: Answer) -> dict[str, float]:
    """Credit by where it goes, and `explainable`, what these are parts of.

    That is prediction - base, or the sum of a mask's entries, which has no base value.
    """
    if not answer.scored_by("strict"):
        return {}
    explanation, field = answer.explanation, answer.explanation.neighbourhood
    mine = true_nodes(answer.trained, answer.question)
    planted = answer.trained.dataset.node_truth.motif_of >= 0
    distance = dict(zip(field.ids.tolist(), field.hops.tolist(), strict=True))
    found = dict.fromkeys((*PARTS, NEIGHBOURS), 0.0)
    for node, credit in explanation.nodes.items():
        found[PARTS[0 if node in mine else 1 if bool(planted[node]) else 2]] += credit
        found[NEIGHBOURS] += credit if distance[node] == 1 else 0.0
    # A mask over edges and features: only its nodes say where credit goes.
    if not explanation.edge_credit.players:
        found[PARTS[3]] = float(explanation.feature_values.sum())
    games = explanation.certificate.games
    total = explanation.prediction - explanation.base
    if not games or games[0].r2 is None:
        total = sum(found[part] for part in PARTS)
    return {**found, "explainable": total}
