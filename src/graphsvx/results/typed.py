"""Credit on typed graphs by node type and by relation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from graphsvx.utils.constraints import Array

EdgeType = tuple[str, str, str]
"""(node type of the source, relation, node type of the target)."""


@dataclass(frozen=True, eq=False)
class GraphTypes:
    """Types of the nodes and edges of an explained graph.

    Ids in an explanation count the nodes of all types, one type after the other, and so the columns
    of their features and the edges; `starts` say where each type begins, and end with the total.
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
