"""EXPL of methods whose mask is the explanation, and conversions between edge and node scores.

    node score  =  the score of largest magnitude among the node's edges, in or out
    edge score  =  the mean of the scores of its ends; an end without a score does not count

A node is as important as its most important edge: a mean would penalise nodes that connect a
motif to the rest, a sum would favour hubs. Signs are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation


def mask_as_credit(ids: Tensor, rows: Tensor | Sequence[Tensor]) -> Credit:
    """A mask as credit: one row of values per output, without standard errors."""
    values = torch.stack([row.detach().double().cpu() for row in rows])
    return Credit(ids.cpu(), values, torch.full_like(values, torch.nan))


def edges_to_nodes(ends: Tensor, values: Tensor, nodes: Tensor) -> Tensor:
    """Scores [outputs, nodes] from scores [outputs, edges] of edges with these `ends` [2, edges].

    A node without edges gets 0. Of two edges with equal magnitude and opposite sign the positive
    one counts.
    """
    places, matched = _places(ends.reshape(-1), nodes)
    scores = values.repeat(1, 2)[:, matched]
    none, positions = values.new_zeros(len(values), len(nodes)), places.expand(len(values), -1)
    high = none.scatter_reduce(1, positions, scores, "amax")
    low = none.scatter_reduce(1, positions, scores, "amin")
    return torch.where(-low > high, low, high)


def nodes_to_edges(nodes: Tensor, values: Tensor, ends: Tensor) -> Tensor:
    """Scores [outputs, edges] from scores [outputs, nodes]; edges without scored ends get 0."""
    places, matched = _places(ends.reshape(-1), nodes)
    scores = values.new_zeros(len(values), ends.numel())
    scores[:, matched] = values[:, places]
    count = matched.view(ends.shape).sum(0)
    return scores.view(-1, *ends.shape).sum(1) / count.clamp(min=1)


def _places(ids: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Positions among `nodes` of those `ids` that are there, and which ones these are."""
    if not len(nodes):
        return ids[:0], torch.zeros_like(ids, dtype=torch.bool)
    order = torch.argsort(nodes)
    place = torch.searchsorted(nodes[order], ids).clamp(max=len(nodes) - 1)
    matched = nodes[order][place] == ids
    return order[place[matched]], matched


def as_nodes(explanation: Explanation) -> Explanation:
    """The explanation with node credit: its own, or by the rule from its edges.

    The explained nodes themselves get none, as everywhere.
    """
    if explanation.node_credit.players or not explanation.edge_credit.players:
        return explanation
    ids = explanation.field.ids
    ids = ids[~torch.isin(ids, torch.tensor(explanation.centres, dtype=torch.long))]
    edges = explanation.edge_credit
    values = edges_to_nodes(edges.ids, edges.values, ids)
    return replace(explanation, node_credit=mask_as_credit(ids, values))


def as_edges(explanation: Explanation) -> Explanation:
    """The explanation with edge credit: its own, or by the rule from its nodes."""
    if explanation.edge_credit.players or not explanation.node_credit.players:
        return explanation
    ends, nodes = explanation.field.edge_index, explanation.node_credit
    values = nodes_to_edges(nodes.ids, nodes.values, ends)
    return replace(explanation, edge_credit=mask_as_credit(ends, values))
