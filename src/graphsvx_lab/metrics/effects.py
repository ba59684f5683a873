"""What nodes do to a model's score, measured by removing them: what explanations are compared with.

score_without      the score as a function of the nodes that are cut off from everything
use_of_nodes       what a model sees and uses of some nodes, of a planted motif say
leave_one_out      the fall of the score without each node, everything else in place
largest_changes    how much each node changes the score at most, whatever else is there
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from math import nan
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.engine.choose import choose_evaluator
from graphsvx.methods import GraphSVX
from graphsvx.methods.greedy import one_less
from graphsvx.metrics import question
from graphsvx.results.explanation import Explanation
from graphsvx_lab.datasets.base import generator
from graphsvx_lab.zoo import Trained

MATTERS = 0.01
"""A node matters to the model if the score changes by at least this when it is cut off."""
TRIED = 64
"""Random sets of the other nodes that a node is added to, to see whether it has an effect."""


def score_without(trained: Trained, query: int, target: int) -> Callable[[Collection[int]], float]:
    """The explained probability as a function of the nodes that are cut off from everything.

    `query` is a node, or the position of a graph in its data set.
    """
    data = trained.dataset
    is_graph = data.task == "graph"
    graph = data.graphs[query if is_graph else 0]

    @torch.no_grad()
    def score(cut: Collection[int]) -> float:
        removed = torch.zeros(int(graph.num_nodes), dtype=torch.bool)
        removed[list(cut)] = True
        logits = trained.model(graph.x, graph.edge_index[:, ~removed[graph.edge_index].any(0)])
        return float(logits[0 if is_graph else query].softmax(-1)[target])

    return score


def use_of_nodes(
    trained: Trained, query: int, target: int, nodes: Collection[int], others: Collection[int]
) -> dict[str, float]:
    """What a model uses of `nodes`, and of `others` for comparison, each cut off from everything.

    score, score alone: with everything, and without any edge of the node (or graph);
    fall without it: when all `nodes` are cut off; fall without a node, without another node: mean
    over `nodes` and over `others`, one by one;
    unused, against: share of `nodes` that change the score by less than `MATTERS`, or whose absence
    raises it; others used: share of `others` that change it by `MATTERS` or more.
    """
    data, score = trained.dataset, score_without(trained, query, target)
    full = score(())
    everything = range(int(data.graphs[query].num_nodes)) if data.task == "graph" else (query,)
    falls, other_falls = ([full - score((v,)) for v in sorted(ids)] for ids in (nodes, others))

    def mean(values: Sequence[float]) -> float:
        return fmean(values) if values else nan

    return {
        "score": full,
        "score alone": score(everything),
        "fall without it": full - score(nodes),
        "fall without a node": mean(falls),
        "fall without another node": mean(other_falls),
        "unused": mean([abs(fall) < MATTERS for fall in falls]),
        "against": mean([fall <= -MATTERS for fall in falls]),
        "others used": mean([abs(fall) >= MATTERS for fall in other_falls]),
    }


def leave_one_out(explanation: Explanation, model: Callable[..., Any], data: Any) -> Tensor:
    """The fall of the explained score without each node of an explanation of nodes, in its order.

    Nodes are removed as GraphSVX removes them (Eq. 2).
    """
    query = question(explanation, model, data, "raw")
    game = GraphSVX(players="nodes").plan(query, 0).games(choose_evaluator(query, None, 0))[-1]
    everyone = np.ones(game.players, dtype=bool)
    full, less = (
        game.values(game.states(coalitions))
        for coalitions in (everyone[None], one_less(everyone)[0])
    )
    return (full - less).detach()[:, explanation.target]


@lru_cache(maxsize=64)
def largest_changes(trained: Trained, number: int, target: int) -> Tensor:
    """By node of a graph, how much it changes the score at most when it is added to others.

    To all others, to none of them, and to `TRIED` random sets of all sizes.
    """
    nodes = int(trained.dataset.graphs[number].num_nodes)
    rng = generator(number, "sets of atoms")
    rates = torch.cat([torch.tensor([0.0, 1.0]), torch.rand(TRIED, generator=rng)])
    sets = torch.rand(TRIED + 2, nodes, generator=rng) < rates[:, None]

    def change(node: int) -> Tensor:
        is_node = torch.arange(nodes) == node
        scores = [
            _scores_of_parts(trained, number, target, present)
            for present in (sets | is_node, sets & ~is_node)
        ]
        return (scores[0] - scores[1]).abs().max()

    return torch.stack([change(node) for node in range(nodes)])


@torch.no_grad()
def _scores_of_parts(trained: Trained, number: int, target: int, present: Tensor) -> Tensor:
    """The explained probability of a graph for each row of `present` (row, node), both ways.

    Absent nodes are cut off from everything (Eq. 2), or have the mean features of the graph.
    """
    graph, (rows, nodes) = trained.dataset.graphs[number], present.shape
    edges, batch = graph.edge_index, torch.arange(rows).repeat_interleave(nodes)
    row, edge = present[:, edges].all(1).nonzero().t()
    every_row = torch.arange(rows).repeat_interleave(edges.shape[1])
    all_edges = edges.repeat(1, rows) + nodes * every_row
    replaced = torch.where(present[..., None], graph.x, graph.x.mean(0)).flatten(0, 1)
    inputs = ((graph.x.repeat(rows, 1), edges[:, edge] + nodes * row), (replaced, all_edges))
    return torch.stack([trained.model(*x, batch).softmax(-1)[:, target] for x in inputs])
