"""Credit on typed graphs by node type and by relation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from graphsvx.errors import InputError
from graphsvx.results.schema import Array

if TYPE_CHECKING:
    from graphsvx.results.explanation import Explanation

EdgeType = tuple[str, str, str]
"""(node type of the source, relation, node type of the target)."""


@dataclass(frozen=True, eq=False)
class GraphTypes:
    """Types of the nodes and edges of an explained graph.

    Ids in an explanation number the nodes of all types through, and so the columns of their
    features and the edges; `starts` say where each type begins, and end with the total.
    """

    flat: bool
    """Data with `edge_type`: one node set and no node types."""
    node_types: tuple[str, ...]
    node_starts: tuple[int, ...]
    feature_starts: tuple[int, ...]
    edge_types: tuple[tuple[str, str, str], ...]
    edge_starts: tuple[int, ...]
    """Of a flat graph (0, number of edges)."""
    labels: tuple[str, ...]
    """Names of the nodes of the receptive field, or their type and id."""
    field_edge_types: Annotated[Tensor, Array("int64", ("edges",))]
    """Position in `edge_types` of the type of each edge of the receptive field."""
    edge_members: Annotated[Tensor, Array("int64", ("members",))]
    """Edges that play, by position among all edges."""
    edge_owners: Annotated[Tensor, Array("int64", ("members",))]
    """The edge player that each of `edge_members` belongs to."""
    edge_member_types: Annotated[Tensor, Array("int64", ("members",))]
    """The type of each of `edge_members`; where a type and its reverse play together, the first."""
    relation: int | None = None
    """Links: the edge type whose score is explained."""

    def type_of(self, number: int) -> int:
        """Position of the type of a node, by its number among all nodes."""
        return _block(self.node_starts, number)

    def node(self, number: int) -> tuple[str, int]:
        """Type and id within the type of a node, by its number among all nodes."""
        at = self.type_of(number)
        return self.node_types[at], number - self.node_starts[at]

    def column(self, number: int) -> tuple[str, int]:
        """Node type and column of a feature, by its number among all columns."""
        at = _block(self.feature_starts, number)
        return self.node_types[at], number - self.feature_starts[at]


def _block(starts: tuple[int, ...], number: int) -> int:
    return max(at for at, start in enumerate(starts[:-1]) if start <= number)


@dataclass(frozen=True, eq=False)
class TypeCredit:
    """Credit of the players of one type: `ids` within the type, `values` and `errors`."""

    ids: Tensor
    values: Tensor
    errors: Tensor
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, player: int) -> float:
        """Credit of the player with this id."""
        return self.by_id()[player]

    def by_id(self) -> dict[int, float]:
        """Credit by id."""
        return dict(zip(self.ids.tolist(), self.values.tolist(), strict=True))

    @property
    def total(self) -> float:
        """Sum of the credit."""
        return float(self.values.sum())


@dataclass(frozen=True, eq=False)
class RelationCredit(TypeCredit):
    """Credit of the edges of one type; `ends` are the ids of source and target, [2, players]."""

    ends: Tensor


def types_of(explanation: Explanation) -> GraphTypes:
    """The types of an explained graph; an InputError if it has none."""
    if explanation.types is None:
        raise InputError("the explained graph has no types: it is no HeteroData")
    return explanation.types


def nodes_by_type(explanation: Explanation) -> dict[str, TypeCredit]:
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


def features_by_type(explanation: Explanation) -> dict[str, TypeCredit]:
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


def edges_by_relation(explanation: Explanation) -> dict[EdgeType, RelationCredit]:
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


def _credit(explanation: Explanation, kind: str, positions: Tensor, ids: Tensor) -> TypeCredit:
    credit = getattr(explanation, f"{kind}_credit")
    values, errors = getattr(explanation, f"{kind}_values"), getattr(explanation, f"{kind}_errors")
    names = credit.names or tuple(f"{kind} {i}" for i in range(credit.players))
    return TypeCredit(
        ids, values[positions], errors[positions], tuple(names[i] for i in positions.tolist())
    )


def by_type(explanation: Explanation) -> dict[str, float]:
    """Credit of all nodes of each type; of their features where no nodes play."""
    groups = nodes_by_type(explanation) or features_by_type(explanation)
    return {name: credit.total for name, credit in groups.items()}


def by_relation(explanation: Explanation) -> dict[EdgeType, float]:
    """Credit of all edges of each type."""
    return {name: credit.total for name, credit in edges_by_relation(explanation).items()}
