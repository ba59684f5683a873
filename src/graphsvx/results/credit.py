"""Credit of players, types, cells, sets of players and regions; rankings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.results.details import FieldRecord, GraphTypes
from graphsvx.utils.constraints import Array, Column, Range, checked
from graphsvx.utils.printable import one_line

if TYPE_CHECKING:
    from graphsvx.results.explanation import Explanation

Ranking = Literal["value", "absolute"]
PlayerKind = Literal["feature", "node", "edge"]
First = Annotated[int | None, Range(0)]
"""How many of a ranking; None: all."""


def is_sure(value: float, error: float) -> bool:
    """Whether a value is exact, of unknown error, or at least two standard errors away from 0."""
    return not abs(value) < 2 * error


class Uncertain:
    """Credit and its standard error."""

    credit: float
    error: float

    @property
    def sure(self) -> bool:
        """Whether the credit is exact, of unknown error, or two standard errors away from 0."""
        return is_sure(self.credit, self.error)


def ranked(values: Tensor, k: int | None, by: Ranking) -> list[int]:
    """Positions of the first `k` values, best first; ties in their order."""
    by, k = checked(by, Ranking, "by"), checked(k, First, "k")
    sizes = values.abs() if by == "absolute" else values
    positions: list[int] = torch.argsort(sizes, descending=True, stable=True)[:k].tolist()
    return positions


# --- of players ----------------------------------------------------------------------------

_CREDIT = Array("float64", ("outputs", "players"))


Id = TypeVar("Id")
Change = Callable[[Tensor], Tensor]


class Ranked(NamedTuple, Generic[Id]):
    """A feature, node or edge (source, target) with its credit and standard error."""

    id: Id
    value: float
    error: float


class _ByOutput:
    """A dataclass with values and standard errors that have a row for each explained output."""

    values: Tensor
    errors: Tensor

    def map(self, change: Change, errors: Change | None = None) -> Self:
        """The same players with changed values and errors (changed by `errors`, if given)."""
        record: Any = self
        changed = {"values": change(self.values), "errors": (errors or change)(self.errors)}
        return replace(record, **changed)


@dataclass(frozen=True, eq=False)
class Credit(_ByOutput):
    """Credit of one kind of players, for all explained outputs.

    `ids` are the players' ids in the user's graph; `values` and `errors` are [outputs, players],
    float64. An error of 0 means exact, NaN means that the method gives no standard error.
    """

    ids: Annotated[Tensor, Array("int64", ("players",))]
    values: Annotated[Tensor, _CREDIT]
    errors: Annotated[Tensor, _CREDIT]
    names: Annotated[tuple[str, ...] | None, Column()] = None

    @staticmethod
    def none(outputs: int) -> Credit:
        """No players of this kind."""
        empty = torch.zeros(outputs, 0, dtype=torch.float64)
        return Credit(torch.zeros(0, dtype=torch.long), empty, empty.clone())

    @property
    def players(self) -> int:
        """How many players there are."""
        return self.values.shape[1]

    def keys(self) -> list[tuple[int, ...]]:
        """The id of each player: (node,), (column,), or the two ends of an edge."""
        keys = self.ids.t() if self.ids.dim() == 2 else self.ids[:, None]
        return [tuple(key) for key in keys.tolist()]

    def default_names(self, kind: PlayerKind) -> list[str]:
        """Each player by its id: "node 7", "edge 1–4"."""
        return [_by_id(kind, key) for key in self.keys()]

    def labels(self, kind: PlayerKind) -> list[str]:
        """The name of each player in one line, or its kind and id."""
        if self.names is None:
            return self.default_names(kind)
        return [one_line(name) or "–" for name in self.names]

    def label(self, player: int) -> str:
        """The name of a player in one line, or its id."""
        if self.names is not None:
            return one_line(self.names[player])
        return "–".join(map(str, self.keys()[player]))

    def named(self, kind: PlayerKind, name: Callable[[int], str]) -> Credit:
        """With names for players that have none: of an edge those of its ends."""
        keys, current_names = self.keys(), self.names or self.default_names(kind)
        names = tuple(
            "–".join(map(name, key))
            if current in (_by_id(kind, key), _by_id(kind, key[::-1]))
            else current
            for key, current in zip(keys, current_names, strict=True)
        )
        return replace(self, names=names)

    def ranked(self, row: int, k: int | None, by: Ranking) -> list[Ranked[Any]]:
        """The first `k` players of one output, best first; ties by id."""
        ids = self.keys() if self.ids.dim() == 2 else self.ids.tolist()
        values, errors = self.values[row].tolist(), self.errors[row].tolist()
        return [Ranked(ids[i], values[i], errors[i]) for i in ranked(self.values[row], k, by)]


def _by_id(kind: PlayerKind, key: tuple[int, ...]) -> str:
    return f"{kind} {'–'.join(map(str, key))}"


# --- by node type and by edge type ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TypeCredit:
    """Credit of the players of one type: `ids` within it (positions of edges), values, errors."""

    ids: Tensor
    values: Tensor
    errors: Tensor
    names: tuple[str, ...]
    ends: Tensor | None = None
    """Of edges: the ids of source and target within their types, [2, players]."""

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


def by_type(credit: Credit, kind: PlayerKind, row: int, types: GraphTypes) -> dict[Any, TypeCredit]:
    """Credit of each node or edge type that plays; a group of edges counts where its first does."""
    starts = torch.tensor(types.feature_starts if kind == "feature" else types.node_starts)
    blocks = torch.bucketize(credit.ids, starts, right=True) - 1
    ids = credit.ids - starts[blocks]
    names: Sequence[Any] = types.node_types
    if kind == "edge":
        names, blocks = types.edge_types, torch.full((credit.players,), -1)
        # The last assignment stays, so the first member of each player comes last.
        blocks[types.edge_owners.flip(0)] = types.edge_member_types.flip(0)
    labels, credits = credit.names or credit.default_names(kind), {}
    for at, name in enumerate(names):
        positions = (blocks == at).nonzero()[:, 0]
        if len(positions):
            credits[name] = TypeCredit(
                positions if kind == "edge" else ids[positions],
                credit.values[row, positions],
                credit.errors[row, positions],
                tuple(labels[i] for i in positions.tolist()),
                ids[:, positions] if kind == "edge" else None,
            )
    return credits


# --- of cells: features of nodes (`players="cells"`) ---------------------------------------

PRESENCE = -1
"""In place of a feature: what a node earns by its edges alone."""
OTHER_FEATURES = -2
"""In place of a feature: all features of a node that have no cell of their own, together."""
NO_FEATURES: dict[int, str] = {PRESENCE: "presence", OTHER_FEATURES: "other features"}
_CELLS = Array("float64", ("outputs", "cells"))


class RankedCell(NamedTuple):
    """A feature of a node with its credit and standard error.

    `feature` is "presence" for what the node earns by its edges alone, and "other features" for
    those that have no cell of their own.
    """

    node: int
    feature: int | str
    value: float
    error: float

    @property
    def sure(self) -> bool:
        """Whether the value is exact or at least two standard errors away from 0."""
        return is_sure(self.value, self.error)


@dataclass(frozen=True, eq=False)
class CellCredit(_ByOutput):
    """Credit by node and feature: rows of a matrix that add up to the credit of their nodes."""

    nodes: tuple[int, ...]
    """Node of each cell."""
    features: tuple[int, ...]
    """Column of x of each cell; -1: the node's presence, -2: its other features together."""
    values: Annotated[Tensor, _CELLS]
    errors: Annotated[Tensor, _CELLS]
    """Standard errors; 0: exact."""
    names: tuple[str, ...] | None = None
    """Name of each cell's feature; None: their numbers."""

    def feature_name(self, feature: int | str) -> str:
        """A feature in words, by its name where there is one."""
        if feature in NO_FEATURES.values():
            return str(feature)
        if self.names is None:
            return f"feature {feature}"
        return one_line(self.names[self.features.index(feature)])

    def ranked(self, row: int, k: int | None, by: Ranking) -> list[RankedCell]:
        """The first `k` cells of one output, best first."""
        features = [NO_FEATURES.get(feature, feature) for feature in self.features]
        values, errors = self.values[row].tolist(), self.errors[row].tolist()
        return [
            RankedCell(self.nodes[i], features[i], values[i], errors[i])
            for i in ranked(self.values[row], k, by)
        ]


# --- of sets of players: what they add to a prediction together ----------------------------

_SETS = Array("float64", ("outputs", "sets"))


class Together(NamedTuple):
    """A set of players with the value of its interaction and standard error."""

    players: tuple[str, ...]
    """Names: "node 5", "feature 2", "edge 1–4", or the name of a group."""
    positions: tuple[int, ...]
    """Positions among all players: features, then nodes, then edges."""
    value: float
    error: float

    @property
    def sure(self) -> bool:
        """Whether the value is exact or at least two standard errors away from 0."""
        return is_sure(self.value, self.error)


@dataclass(frozen=True, eq=False)
class Interactions(_ByOutput):
    """Values of an interaction index for sets of players, for all explained outputs.

    Players are counted over features, then nodes, then edges, as in `Explanation.errors`.
    """

    index: str
    """k-SII, SII, STII, FSII or BII."""
    order: int
    """Players of the largest sets."""
    members: Annotated[Tensor, Array("int64", ("order", "sets"))]
    """Players of each set, a column, ascending; -1 fills the columns of smaller sets."""
    values: Annotated[Tensor, _SETS]
    errors: Annotated[Tensor, _SETS]
    """Standard errors: 0 where exact."""
    left_out: int = 0
    """Players with little credit whose pairs are not listed."""

    @property
    def exact(self) -> bool:
        """Whether all values are exact."""
        return not bool(self.errors.any())

    @property
    def sizes(self) -> Tensor:
        """Players of each set."""
        return (self.members >= 0).sum(0)

    def matrix(self, row: int, players: int) -> Tensor:
        """Values of pairs, [players, players], symmetric with a diagonal of zeros."""
        matrix = torch.zeros(players, players, dtype=torch.float64)
        pairs = self.sizes == 2
        i, j = self.members[:2, pairs]
        matrix[i, j] = matrix[j, i] = self.values[row, pairs]
        return matrix

    def ranked(
        self, row: int, k: int | None, size: int, by: Ranking, names: Sequence[str]
    ) -> list[Together]:
        """The first `k` sets of `size` players of one output, strongest first."""
        size = checked(size, Annotated[int, Range(1, 3)], "size")
        positions = (self.sizes == size).nonzero().flatten()
        values, errors = self.values[row, positions], self.errors[row, positions].tolist()
        sets = [tuple(members) for members in self.members[:size, positions].t().tolist()]
        return [
            Together(
                tuple(names[player] for player in sets[i]), sets[i], float(values[i]), errors[i]
            )
            for i in ranked(values, k, by)
        ]


# --- of nodes by distance and by branch ----------------------------------------------------

SEVERAL = -1
"""Branch of nodes whose messages arrive through several direct neighbours."""
_SUMS = Array("float64", ("outputs", "groups"))


@dataclass(frozen=True, eq=False)
class RegionErrors:
    """Standard errors of sums of node credit, from the covariance of the estimates."""

    by_hop: Annotated[Tensor, _SUMS]
    """In ascending order of hops."""
    by_branch: Annotated[Tensor, _SUMS]
    """In ascending order of the direct neighbour; nodes with several ways (-1) first."""

    def map(self, change: Change, errors: Change | None = None) -> RegionErrors:
        """Changed errors."""
        change = errors or change
        return RegionErrors(change(self.by_hop), change(self.by_branch))


@dataclass(frozen=True)
class Region:
    """A group of nodes and the credit that it has together."""

    name: str
    members: tuple[int, ...]
    """Node ids, those with the most absolute credit first."""
    value: float
    error: float
    """Standard error of the sum: 0 where exact, NaN where it is not known."""
    key: int
    """Hops of a ring, the direct neighbour of a branch; `SEVERAL` for what has neither."""


def hop_of(field: FieldRecord, ids: Tensor) -> Ids:
    """Hops of these nodes, [ids]; -1 for nodes outside the field."""
    return _looked_up(field.distances, ids)


def branch_of(field: FieldRecord, ids: Tensor) -> Ids:
    """The direct neighbour through which alone a node's messages arrive, [ids].

    A direct neighbour is its own branch; `SEVERAL` marks nodes with more than one way within the
    depth of the field.
    """
    nodes, hops = field.ids.numpy(), field.hops.numpy()
    order = np.argsort(nodes)
    source, target = order[np.searchsorted(nodes, field.edge_index.numpy(), sorter=order)]
    low = np.where(hops == 1, nodes, np.iinfo(np.int64).max)
    high = np.where(hops == 1, nodes, -1)
    inward = (hops[source] > 1) & (hops[target] > 0)
    source, target = source[inward], target[inward]
    for _ in range(int(hops.max(initial=0)) - 1):  # ways of up to 2, 3, ... edges
        lowest, highest = low.copy(), high.copy()
        np.minimum.at(lowest, source, low[target])
        np.maximum.at(highest, source, high[target])
        low, high = lowest, highest
    branches = np.where(low == high, low, SEVERAL)
    return _looked_up(dict(zip(nodes.tolist(), branches.tolist(), strict=True)), ids)


def _looked_up(labels: Mapping[int, int], ids: Tensor) -> Ids:
    return np.array([labels.get(node, -1) for node in ids.tolist()], dtype=np.int64)


def by_hop(explanation: Explanation) -> list[Region]:
    """Credit of all nodes at a distance together, nearest first, with standard errors."""
    hops, errors = hop_of(explanation.field, explanation.node_ids), explanation.region_errors
    sums = None if errors is None else errors.by_hop
    return _regions(explanation, hops, sums, "hop {}".format)


def branches(explanation: Explanation) -> list[Region]:
    """Credit of each direct neighbour with what arrives only through it, largest first.

    Nodes with several ways to the explained node are one region, "several ways".
    """

    def name(node: int) -> str:
        return "several ways" if node == SEVERAL else f"through {node}"

    labels, errors = branch_of(explanation.field, explanation.node_ids), explanation.region_errors
    sums = None if errors is None else errors.by_branch
    listed = _regions(explanation, labels, sums, name)
    return sorted(listed, key=lambda region: -abs(region.value))


def _regions(
    explanation: Explanation, labels: Ids, errors: Tensor | None, name: Callable[[int], str]
) -> list[Region]:
    """Sums of node credit by label; `errors` [outputs, groups]: of the sums."""
    result, ids, row = [], explanation.node_ids, explanation.row
    for position, label in enumerate(np.unique(labels).tolist()):
        members = torch.from_numpy(np.flatnonzero(labels == label))
        values = explanation.node_values[members]
        error = np.nan if bool(explanation.node_errors[members].any()) else 0.0
        error = error if errors is None else float(errors[row, position])
        nodes = ids[members[ranked(values, None, "absolute")]].tolist()
        result.append(Region(name(label), tuple(nodes), float(values.sum()), error, label))
    return result
