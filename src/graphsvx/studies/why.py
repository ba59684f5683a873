"""Why an explanation cannot find a whole motif: what the model sees of it, and what it uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from graphsvx.data.base import generator
from graphsvx.explanation import Explanation, Ranking
from graphsvx.metrics.select import top_keys
from graphsvx.studies.desk import query_of
from graphsvx.studies.motifs import true_nodes
from graphsvx.zoo import Trained

MATTERS = 0.01
"""A node matters to the model if the score changes by at least this when it is cut off."""
OTHERS = 8
"""Nodes outside the motif that are cut off for comparison, for each explanation."""
_HOUSE = ("middle, tied", "middle", "bottom", "bottom", "top")
_GRID = ("corner, tied", "side", "corner", "side", "centre", "side", "corner", "side", "corner")


def role_of(world: Trained, query: int) -> str:
    """The place of a node in its motif ("tied": to the base graph), or the kind of a graph."""
    data = world.dataset
    if data.task == "graph":
        if data.name != "mutag":
            return data.class_names[int(data.labels[query])]
        atoms = data.graphs[query].x.argmax(1)[sorted(true_nodes(world, query))].tolist()
        names = {(data.feature_names or ())[atom] for atom in atoms}
        return " and ".join(group for group, atom in (("NO2", "O"), ("NH2", "H")) if atom in names)
    truth = data.node_truth
    place = query - int(truth.attached[truth.motif_of[query]])
    if truth.kind == "house":
        return _HOUSE[place]
    if truth.kind == "grid":
        return _GRID[place]
    steps = min(place, len(truth.motif(query)) - place)
    return "tied" if steps == 0 else f"{steps} from the tied one"


def is_disturbed(world: Trained, query: int) -> bool:
    """Whether a random edge touches the motif: one edge more than its tie leaves it."""
    data = world.dataset
    if data.task == "graph":
        inside = data.graph_truth.graph_nodes(query)
        edge_index = data.graphs[query].edge_index
    else:
        inside, edge_index = data.node_truth.motif_mask(query), data.graph.edge_index
    leaving = int((inside[edge_index[0]] & ~inside[edge_index[1]]).sum())
    return leaving > 1


def reach(world: Trained, explanation: Explanation) -> float:
    """Share of the motif among the players: no ranking can find more of it."""
    truth = true_nodes(world, query_of(explanation))
    return len(truth.intersection(explanation.node_ids.tolist())) / len(truth)


@dataclass(frozen=True)
class Use:
    """What the model does with a motif when its nodes are cut off one by one.

    whole, alone: the score of the predicted class in the whole graph, and with the node isolated
        (of a graph: all edges cut).
    motif, others: how much the score falls without one node of the motif, without another one.
    """

    whole: float
    alone: float
    motif: tuple[float, ...]
    others: tuple[float, ...]

    @property
    def idle(self) -> float:
        """Share of the motif's nodes that do not matter to the model."""
        return fmean(abs(fall) < MATTERS for fall in self.motif)

    @property
    def against(self) -> float:
        """Share of the motif's nodes without which the score is higher."""
        return fmean(fall <= -MATTERS for fall in self.motif)

    @property
    def strangers(self) -> float:
        """Share of the other nodes that matter; NaN if there are none."""
        if not self.others:
            return float("nan")
        return fmean(abs(fall) >= MATTERS for fall in self.others)


def use(world: Trained, explanation: Explanation) -> Use:
    """Cut off each node of the motif, and a few of the other players, from everything."""
    query, target = query_of(explanation), explanation.target
    truth = sorted(true_nodes(world, query))
    strangers = sorted(set(explanation.node_ids.tolist()) - set(truth))
    rng = generator(query, "why", world.dataset.name)
    picked = torch.randperm(len(strangers), generator=rng)[:OTHERS].tolist()

    def score(cut: Sequence[int]) -> float:
        return _score(world, query, target, cut)

    whole = score(())
    here = world.dataset.graphs[query if world.dataset.task == "graph" else 0]
    everything = range(int(here.num_nodes)) if world.dataset.task == "graph" else (query,)
    return Use(
        whole,
        alone=score(everything),
        motif=tuple(whole - score((node,)) for node in truth),
        others=tuple(whole - score((strangers[i],)) for i in picked),
    )


def fall(world: Trained, explanation: Explanation, by: Ranking) -> float:
    """How much the score falls when the k best-ranked nodes are cut off together (fidelity+).

    k is the size of the motif; a node with value 0 is not taken.
    """
    query = query_of(explanation)
    count = len(true_nodes(world, query))
    taken = top_keys(explanation, count, by, "nodes")
    return _fall(world, explanation, [node for node in taken if isinstance(node, int)])


def motif_fall(world: Trained, explanation: Explanation) -> float:
    """The same for the motif itself."""
    return _fall(world, explanation, sorted(true_nodes(world, query_of(explanation))))


def _fall(world: Trained, explanation: Explanation, nodes: Sequence[int]) -> float:
    query, target = query_of(explanation), explanation.target
    return _score(world, query, target, ()) - _score(world, query, target, nodes)


@torch.no_grad()
def _score(world: Trained, query: int, target: int, cut: Iterable[int]) -> float:
    data = world.dataset
    graph = data.graphs[query if data.task == "graph" else 0]
    gone = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
    gone[list(cut)] = True
    kept = graph.edge_index[:, ~gone[graph.edge_index].any(0)]
    logits: Tensor = world.model(graph.x, kept)
    row = logits[0 if data.task == "graph" else query]
    return float(row.softmax(-1)[target])
