"""Training of a relational encoder on the facts of a knowledge graph, and its rank metrics."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphsvx_lab.datasets import DataSet
from graphsvx_lab.zoo.settings import Settings
from graphsvx_lab.zoo.typed_models import RelationalEncoder

# Share of the facts that are edges in a training step; some of the others are asked.
EDGES = 0.25
# Entities among which an answer is to be found in a training step, besides all other answers.
CANDIDATES = 512
_RANKED = 2048
"""Facts that are ranked for the metrics of a part; all of them if there are fewer."""


def fit_links(
    net: RelationalEncoder,
    dataset: DataSet,
    settings: Settings,
    progress: Callable[[int, float, float | None], None],
) -> int:
    """Train by finding the tail (and the head) of facts among other entities; the best epoch.

    An epoch is one step: a part of the facts is the graph, `batch_size` of the others are asked.
    """
    facts = dataset.graph.triples[:, dataset.split.train]
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    relations = net.decoder.relation.shape[0] // 2
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for epoch in range(1, settings.epochs + 1):
        net.train()
        order = torch.randperm(facts.shape[1])
        cut = int(EDGES * len(order))
        edge_index, edge_type = as_edges(facts[:, order[:cut]], relations)
        batch = facts[:, order[cut : cut + settings.batch_size]]
        entities = net(edge_index, edge_type)
        head, relation, tail = batch
        start = torch.cat([head, tail])
        kind = torch.cat([relation, relation + relations])
        candidates, answer = torch.unique(torch.cat([tail, head]), return_inverse=True)
        others = torch.randint(len(entities), (CANDIDATES,))
        among = entities[torch.cat([candidates, others])]
        loss = cross_entropy((entities[start] * net.decoder.relation[kind]) @ among.t(), answer)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch leaves it without types
        optimizer.step()
        if epoch % 50 == 0 or epoch == settings.epochs:
            value = mean_reciprocal_rank(net, dataset, dataset.split.val)
            if best is None or value > best[0]:
                best = (value, epoch, {k: v.clone() for k, v in net.state_dict().items()})
        progress(epoch, float(loss.detach()), None if best is None else best[0])
    if best is None:
        return 0
    net.load_state_dict(best[2])
    net.eval()
    return best[1]


def as_edges(facts: Tensor, relations: int) -> tuple[Tensor, Tensor]:
    """Facts [3, facts] as edges in both directions; relation r + `relations` is r turned round."""
    head, relation, tail = facts
    ends = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    return ends, torch.cat([relation, relation + relations])


@torch.no_grad()
def mean_reciprocal_rank(net: RelationalEncoder, dataset: DataSet, part: Tensor) -> float:
    """Filtered MRR of tails and heads: other known facts do not count as mistakes."""
    net.eval()
    graph = dataset.graph
    relations = net.decoder.relation.shape[0] // 2
    entities = net(graph.edge_index, graph.edge_type)
    step = max(1, len(part) // _RANKED)
    head, relation, tail = graph.triples[:, part[::step]]
    true_answers = _answers(graph.triples, relations)
    ranks = []
    starts = torch.cat([head, tail])
    kinds, answers = torch.cat([relation, relation + relations]), torch.cat([tail, head])
    for first in range(0, len(starts), 512):
        rows = slice(first, first + 512)
        scores = (entities[starts[rows]] * net.decoder.relation[kinds[rows]]) @ entities.t()
        answer_scores = scores.gather(1, answers[rows, None])
        for row, (start, kind) in enumerate(
            zip(starts[rows].tolist(), kinds[rows].tolist(), strict=True)
        ):
            scores[row, true_answers[(start, kind)]] = -torch.inf
        ranks.append(1 + (scores > answer_scores).sum(1))
    return float((1 / torch.cat(ranks).double()).mean())


def _answers(triples: Tensor, relations: int) -> dict[tuple[int, int], list[int]]:
    """All known answers (entities) of each question (entity, relation)."""
    answers: dict[tuple[int, int], list[int]] = {}
    for head, relation, tail in triples.t().tolist():
        answers.setdefault((head, relation), []).append(tail)
        answers.setdefault((tail, relation + relations), []).append(head)
    return answers
