"""Which nodes and graphs of a data set with ground truth are scored, and how.

`docs/results/protocols.md` says the same in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch

from graphsvx import metrics
from graphsvx.data.base import generator
from graphsvx.explanation import Credit, Explanation, Ranking
from graphsvx.studies.desk import query_of
from graphsvx.studies.estimate import Estimate
from graphsvx.zoo import Trained

HOUSES = 100
"""BA-2motifs: the authors' script scores this many house graphs, the first ones."""
MOLECULES = slice(100, 120)
"""MUTAG: and these of the mutagens with a group, in the order of the files."""


@dataclass(frozen=True)
class Asked:
    """Nodes (or graphs, by position) that the two protocols score."""

    paper: tuple[int, ...]
    strict: tuple[int, ...]

    @property
    def all(self) -> list[int]:
        """Each once, in order."""
        return sorted({*self.paper, *self.strict})

    @classmethod
    def of(cls, world: Trained, strict: int, paper: int | None = None) -> Asked:
        """What the paper's protocol scores (or the first `paper`), and `strict` of the strict one.

        The strict ones are drawn from all motif nodes (or graphs with a motif) that the model
        classifies right; the seed of the data fixes the draw.
        """
        data = world.dataset
        right = classified_right(world)
        order = torch.randperm(len(right), generator=generator(data.seed, "strict", data.name))
        drawn = sorted(right[i] for i in order[:strict].tolist())
        return cls(scored_by_the_paper(world)[:paper], tuple(drawn))


def scored_by_the_paper(world: Trained) -> tuple[int, ...]:
    """The nodes or graphs of the authors' script, whatever the model predicts for them."""
    data = world.dataset
    if data.task == "node":
        return tuple(metrics.scored_nodes("paper", dataset=data.name))
    if data.name == "mutag":
        return data.graph_truth.graphs()[MOLECULES]
    return tuple(range(HOUSES))


def classified_right(world: Trained) -> list[int]:
    """Everything with a known explanation that the model classifies right."""
    data = world.dataset
    if data.task == "node":
        return metrics.scored_nodes(
            "strict",
            candidates=data.node_truth.nodes(),
            predicted=predicted(world),
            labels=data.labels,
        )
    known = data.graph_truth.graphs()
    right = predicted(world, known) == data.labels[list(known)]
    return [graph for graph, is_so in zip(known, right.tolist(), strict=True) if is_so]


@torch.no_grad()
def predicted(world: Trained, graphs: Sequence[int] = ()) -> Tensor:
    """The predicted class of every node, or of the given graphs."""
    data = world.dataset
    if data.task == "node":
        logits: Tensor = world.model(data.graph.x, data.graph.edge_index)
    else:
        many = Batch.from_data_list([data.graphs[graph] for graph in graphs])
        logits = world.model(many.x, many.edge_index, many.batch)
    return logits.argmax(-1)


def true_nodes(world: Trained, query: int) -> set[int]:
    """The nodes that explain a node (without itself) or a graph."""
    data = world.dataset
    if data.task == "node":
        return set(data.node_truth.motif(query)) - {query}
    return set(data.graph_truth.graph_nodes(query).nonzero().flatten().tolist())


def true_edges(world: Trained, query: int) -> set[tuple[int, int]]:
    """The directed edges that explain a node or a graph."""
    data = world.dataset
    if data.task == "node":
        return set(data.node_truth.motif_edges(query))
    inside = data.graph_truth.graph_edges(query)
    pairs = data.graphs[query].edge_index[:, inside].t().tolist()
    return {(source, target) for source, target in pairs}


@dataclass(frozen=True)
class Measure:
    """One figure that an explanation is given."""

    what: Literal["paper", "strict", "auroc"]
    by: Ranking = "value"
    level: Literal["nodes", "edges"] = "nodes"

    def __call__(self, world: Trained, explanation: Explanation) -> float:
        """For one explanation."""
        query, name = query_of(explanation), world.dataset.name
        if self.what == "paper" and name != "mutag":
            return metrics.accuracy(explanation, protocol="paper", dataset=name, by=self.by)
        # The script's rule for MUTAG is that of "strict": the top k of k, on nodes.
        truth = true_nodes(world, query) if self.level == "nodes" else true_edges(world, query)
        score = metrics.auroc if self.what == "auroc" else metrics.accuracy
        return score(explanation, truth, by=self.by, level=self.level)

    def samples(
        self, world: Trained, explanations: Iterable[Explanation], asked: Asked
    ) -> dict[int, float]:
        """By query, for those that the protocol scores; AUROC is about the strict ones."""
        scored = set(asked.paper if self.what == "paper" else asked.strict)
        return {query_of(one): self(world, one) for one in explanations if query_of(one) in scored}


def without_credit(explanation: Explanation) -> Explanation:
    """All players alike: scores as an explainer does that ranks at random, on average.

    Ties count as the average over all orders, so this is exactly what chance gives.
    """

    def nothing(credit: Credit) -> Credit:
        return replace(credit, values=torch.zeros_like(credit.values))

    return replace(
        explanation,
        node_credit=nothing(explanation.node_credit),
        feature_credit=nothing(explanation.feature_credit),
        edge_credit=nothing(explanation.edge_credit),
    )


def both_ways(explanation: Explanation) -> Explanation:
    """Edges that play as one player for both directions, named in both: the truth has both."""
    credit = explanation.edge_credit
    ends = {(u, v) for u, v in credit.ids.reshape(2, -1).t().tolist()}
    if not ends:
        return explanation
    alone = torch.tensor([(v, u) not in ends and u != v for u, v in credit.ids.t().tolist()])
    if not bool(alone.any()):
        return explanation
    more = credit.ids[:, alone].flip(0)
    grown = replace(
        credit,
        ids=torch.cat([credit.ids, more], 1),
        values=torch.cat([credit.values, credit.values[:, alone]], 1),
        errors=torch.cat([credit.errors, credit.errors[:, alone]], 1),
        names=None,
    )
    return replace(explanation, edge_credit=grown)


def over_seeds(samples: Iterable[Iterable[float]]) -> Estimate:
    """An estimate from the samples of each seed."""
    return Estimate.of([list(group) for group in samples])
