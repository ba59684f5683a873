"""What an explanation holds besides credit: receptive field, sets of players, facts of methods."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from torch import Tensor

from graphsvx.core.types import EdgeType
from graphsvx.utils.constraints import Array

_NODES = Array("int64", ("nodes",))


@dataclass(frozen=True, eq=False)
class FieldRecord:
    """The receptive field of the explained prediction, for drawing and export."""

    ids: Annotated[Tensor, _NODES]
    """Node ids in the user's graph, the explained ones first."""
    hops: Annotated[Tensor, _NODES]
    """Distance of each node to the explained one(s) along the edges."""
    edge_index: Annotated[Tensor, Array("int64", (2, "edges"))]
    """Directed edges between these nodes, by id in the user's graph."""
    classes: Annotated[Tensor | None, _NODES] = None
    """Class (label) of each node, where the data has one."""
    num_nodes: int = 0
    num_features: int = 0
    names: tuple[str, ...] | None = None
    """Name of each node, where names were given."""

    @property
    def distances(self) -> dict[int, int]:
        """Hops by node id."""
        return dict(zip(self.ids.tolist(), self.hops.tolist(), strict=True))


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
    edge_types: tuple[EdgeType, ...]
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

    def node(self, number: int) -> tuple[str, int]:
        """Type and id within the type of a node, by its number among all nodes."""
        return self._within(self.node_starts, number)

    def column(self, number: int) -> tuple[str, int]:
        """Node type and column of a feature, by its number among all columns."""
        return self._within(self.feature_starts, number)

    def _within(self, starts: tuple[int, ...], number: int) -> tuple[str, int]:
        at = bisect_right(starts[:-1], number) - 1
        return self.node_types[at], number - starts[at]


@dataclass(frozen=True)
class PlayerSet:
    """A set of players that answers a question; the model itself was asked about it.

    If `found` is False, no set does what is asked (of sizes below `none_below`, where the search
    ended early).
    """

    question: Literal["sufficient", "flip"]
    """"sufficient": only these players on; "flip": only these players off."""
    players: tuple[str, ...]
    positions: tuple[int, ...]
    """Positions among all players: features, then nodes, then edges."""
    found: bool
    score: float
    """The model's score of the target for this coalition, from a plain call."""
    predicted: int
    """The output with the largest score for this coalition."""
    wanted: str
    """What the set has to do, in words."""
    none_below: int
    """All smaller sets were tried: no set with fewer players than this does it."""
    calls: int
    """Model calls of the search."""

    @property
    def minimal(self) -> bool:
        """Whether no smaller set does what is asked; False: a smaller one may exist."""
        return self.found and len(self.players) <= self.none_below

    def line(self) -> str:
        """The answer in one line."""
        verb = "alone" if self.question == "sufficient" else "removed"
        if not self.found:
            return f"no set of fewer than {self.none_below} players, {verb}, gives {self.wanted}"
        names = ", ".join(self.players) or "no player at all"
        proof = "minimal" if self.minimal else f"none has fewer than {self.none_below} players"
        return f"{names}: {verb}, the score is {self.score:.4g} ({self.wanted}; {proof})"


@dataclass(frozen=True)
class Groups:
    """Members of the players that stand for several features, nodes or edges, by name."""

    features: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    nodes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    edges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """How much of the prediction the players carry that a Lasso chose."""

    chosen: int
    """Players with credit."""
    players: int
    """All players."""
    carried: float | None
    """Share of the credit that the chosen had before the others were left out (None: the credit
    sums to nothing)."""
    alone: float
    """The model's score with only the chosen players on."""


@dataclass(frozen=True)
class Balance:
    """The factors by which `balance=alpha` rescaled the credit of the target."""

    alpha: float
    nodes: float
    features: float


@dataclass(frozen=True)
class ChangeProbability:
    """Probability that the prediction changes, without and with one node perturbed."""

    node: int
    left_alone: float
    perturbed: float


@dataclass(frozen=True)
class BayesianNetwork:
    """PGM-Explainer's network between perturbed nodes and a change of the prediction."""

    blanket: tuple[int, ...]
    """Markov blanket of the change: node ids, strongest first."""
    edges: tuple[tuple[str, str], ...]
    """Directed edges between "node <id>" and "change"."""
    bic_gain: float
    """BIC of the network, less that of the network without edges."""
    p_values: Mapping[str, float]
    """By node id."""
    chance_of_change: tuple[ChangeProbability, ...]
    """One for each node of the blanket."""


@dataclass(frozen=True)
class GeneratedGraph:
    """The graph that XGNN generated for a class."""

    kinds: tuple[int, ...]
    """Kind of each node: a row of the candidates."""
    x: tuple[tuple[float, ...], ...]
    """Features of each node."""
    edge_index: tuple[tuple[int, ...], tuple[int, ...]]
    score: float
    """The model's score of this graph for the class."""
    mean_score_untrained: float
    """Mean score of graphs drawn before the policy was trained."""
    mean_score_trained: float
    """Mean score of graphs drawn afterwards; `score` is the best of them."""
    history: tuple[float, ...]
    """Score of the last graph of each episode of training."""
