"""Readings of an explanation: node scores from those of edges, fewer features, no credit at all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

import torch

from graphsvx.estimators.direct import edges_to_nodes
from graphsvx.results.explanation import Credit, Explanation

EdgeRule = Literal["largest", "mean", "undirected"]
"""A node's score from those of its edges: the one of largest magnitude, their mean, or the largest
after the two directions of an edge have been averaged."""


def both_directions(explanation: Explanation) -> Explanation:
    """Edges that play once for both directions, named in both, as the truth names them."""
    edges = explanation.edge_credit
    reversible = (edges.ids[0] != edges.ids[1]).nonzero()[:, 0]
    ids = torch.cat([edges.ids, edges.ids[:, reversible].flip(0)], 1)
    places = torch.cat([torch.arange(edges.players), reversible])
    credit = Credit(ids, edges.values[:, places], edges.errors[:, places])
    return replace(explanation, edge_credit=credit)


def with_node_scores(explanation: Explanation, rule: EdgeRule) -> Explanation:
    """Node credit from that of edges; unchanged if edges have none."""
    edges, ids = explanation.edge_credit, explanation.field.ids
    if not edges.players:
        return explanation
    ids = ids[~torch.isin(ids, torch.tensor(explanation.centres, dtype=torch.long))]
    if rule == "mean":
        is_end = (edges.ids[:, None, :] == ids[None, :, None]).any(0).to(edges.values)
        values = edges.values @ is_end.t() / is_end.sum(1).clamp(min=1)
    else:
        scores = edges.values if rule == "largest" else _undirected(edges)
        values = edges_to_nodes(edges.ids, scores, ids)
    credit = Credit(ids, values, torch.full_like(values, torch.nan))
    return replace(explanation, node_credit=credit)


def _undirected(edges: Credit) -> torch.Tensor:
    """Each edge with the mean of its two directions; a direction alone keeps its value."""
    pairs = torch.stack([edges.ids.min(0).values, edges.ids.max(0).values])
    _, group = torch.unique(pairs, dim=1, return_inverse=True)
    total = torch.zeros(edges.values.shape[0], int(group.max()) + 1, dtype=edges.values.dtype)
    total = total.index_add(1, group, edges.values) / torch.bincount(group).to(total)
    return total[:, group]


def without_credit(explanation: Explanation) -> Explanation:
    """All players tied: scores what random rankings score on average, since ties are averaged."""
    kinds = ("node_credit", "feature_credit", "edge_credit")
    credits = {kind: getattr(explanation, kind) for kind in kinds}
    zeros: Any = {k: replace(c, values=torch.zeros_like(c.values)) for k, c in credits.items()}
    return replace(explanation, **zeros)


def with_features(explanation: Explanation, features: Collection[int]) -> Explanation:
    """Only these of the features, so that all explainers choose from the same ones."""
    credit = explanation.feature_credit
    mask = torch.isin(credit.ids, torch.tensor(sorted(features), dtype=credit.ids.dtype))
    restricted = Credit(credit.ids[mask], credit.values[:, mask], credit.errors[:, mask])
    return replace(explanation, feature_credit=restricted)
