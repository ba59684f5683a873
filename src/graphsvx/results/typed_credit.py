"""Credit in a typed graph, by node type and by edge type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.results.typed import EdgeType, GraphTypes, RelationCredit, TypeCredit

if TYPE_CHECKING:
    from graphsvx.results.record import ExplanationRecord


def types_of(explanation: ExplanationRecord) -> GraphTypes:
    """The types of an explained graph; an InputError if it has none."""
    if explanation.types is None:
        raise InputError("the explained graph has no types: it is no HeteroData")
    return explanation.types


def nodes_by_type(explanation: ExplanationRecord) -> dict[str, TypeCredit]:
    """Node credit of each node type that plays."""
    types = types_of(explanation)
    numbers = explanation.node_ids
    credits = {}
    for at, name in enumerate(types.node_types):
        first, last = types.node_starts[at : at + 2]
        positions = ((numbers >= first) & (numbers < last)).nonzero()[:, 0]
        if len(positions):
            credits[name] = _credit(explanation, "node", positions, numbers[positions] - first)
    return credits


def features_by_type(explanation: ExplanationRecord) -> dict[str, TypeCredit]:
    """Feature credit of each node type whose features play."""
    types = types_of(explanation)
    columns = explanation.feature_ids
    credits = {}
    for at, name in enumerate(types.node_types):
        first, last = types.feature_starts[at : at + 2]
        positions = ((columns >= first) & (columns < last)).nonzero()[:, 0]
        if len(positions):
            credits[name] = _credit(explanation, "feature", positions, columns[positions] - first)
    return credits


def edges_by_relation(explanation: ExplanationRecord) -> dict[EdgeType, RelationCredit]:
    """Edge credit of each edge type that plays; a group counts where its first edge does."""
    types = types_of(explanation)
    first_type = torch.full((explanation.edge_credit.players,), -1)
    # The last assignment stays, so the first member of each player comes last.
    order = torch.arange(len(types.edge_owners) - 1, -1, -1)
    first_type[types.edge_owners[order]] = types.edge_member_types[order]
    starts = torch.tensor(types.node_starts)
    credits = {}
    for at, name in enumerate(types.edge_types):
        positions = (first_type == at).nonzero()[:, 0]
        if not len(positions):
            continue
        ends = explanation.edge_ids[:, positions]
        ends = ends - starts[torch.bucketize(ends, starts, right=True) - 1]
        credit = _credit(explanation, "edge", positions, positions)
        credits[name] = RelationCredit(credit.ids, credit.values, credit.errors, credit.names, ends)
    return credits


def _credit(
    explanation: ExplanationRecord, kind: str, positions: Tensor, ids: Tensor
) -> TypeCredit:
    credit = getattr(explanation, f"{kind}_credit")
    values, errors = getattr(explanation, f"{kind}_values"), getattr(explanation, f"{kind}_errors")
    names = credit.names or tuple(f"{kind} {i}" for i in range(credit.players))
    return TypeCredit(
        ids, values[positions], errors[positions], tuple(names[i] for i in positions.tolist())
    )


def by_type(explanation: ExplanationRecord) -> dict[str, float]:
    """Credit of all nodes of each type; of their features where no nodes play."""
    groups = nodes_by_type(explanation) or features_by_type(explanation)
    return {name: credit.total for name, credit in groups.items()}


def by_relation(explanation: ExplanationRecord) -> dict[EdgeType, float]:
    """Credit of all edges of each type."""
    return {name: credit.total for name, credit in edges_by_relation(explanation).items()}
