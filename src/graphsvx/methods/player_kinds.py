"""Who plays: the kinds of players of GraphSVX, one frozen record each.

    GraphSVX(players=Edges(hops=2))
    GraphSVX(players="edges", hops=2)      # the same in flat keywords

A kind chooses the players in the receptive field of a query and names the generator that switches
them off. A further kind is a subclass of `PlayerKind` and a name in `KINDS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from torch import Tensor

from graphsvx.core import players as choosing
from graphsvx.core import reference as references
from graphsvx.core.graph import Graph
from graphsvx.core.players import Directions, FeatureChoice, GroupsSetting, Hops, NodeTypes
from graphsvx.core.query import Query
from graphsvx.core.random import derive_rng
from graphsvx.core.reference import ReferenceSetting
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import BudgetError, InputError, UnsupportedError
from graphsvx.generators import CutEdges, GameSetup, Generator, Isolate
from graphsvx.methods import build_explanation
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Checked, Range

KindName = Literal[
    "both", "nodes", "features", "subgraph_features", "edges", "relations", "cells", "edge_attr"
]


@dataclass(frozen=True)
class PlayerKind(Checked, ABC):
    """A kind of players; everything that does not play stays as it is."""

    hops: Hops = None
    """How far away from the explained node players are (k); None: as far as the model looks."""

    generator: ClassVar[Generator] = Isolate()
    """GEN where none is given."""

    def for_query(self, query: Query) -> PlayerKind:  # noqa: ARG002  (most kinds fit all queries)
        """The kind that plays for this query; raises InputError where none makes sense."""
        return self

    @abstractmethod
    def check_names(self, graph: Graph) -> None:
        """Raise InputError if a group names a node, feature or edge that does not exist."""

    @abstractmethod
    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:
        """The players in the evaluator's receptive field, and what their features become."""

    def finish(self, explanation: Explanation) -> Explanation:
        """The explanation with the changes that the settings of this kind ask for."""
        return explanation


@dataclass(frozen=True)
class Nodes(PlayerKind):
    """The nodes around the explained node, or all nodes of a graph."""

    groups: GroupsSetting = ()
    """{name: nodes} that switch on and off together."""
    reference: ReferenceSetting = None
    """What the features of a switched-off node become, with a generator that replaces them."""
    node_types: NodeTypes = None
    """Typed graphs: the types whose nodes play; None: all."""

    def check_names(self, graph: Graph) -> None:
        """Groups name nodes, and types are those of the graph."""
        _check_nodes(graph, self.groups, self.node_types)

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Nodes within `hops` of the explained node."""
        graph, field = query.graph, evaluator.field
        players = choosing.find_players(
            graph, field, self.hops, "all", "nodes", groups=self.groups, node_types=self.node_types
        )
        reference = references.resolve_reference(graph, self.reference, query.centres)
        return GameSetup(
            graph,
            field,
            players,
            reference,
            field.size if query.kind == "graph" else None,
        )


@dataclass(frozen=True)
class Edges(PlayerKind):
    """Edges that carry messages to the explained node within `hops` rounds."""

    groups: GroupsSetting = ()
    """{name: edges} that switch on and off together: positions in edge_index or pairs (u, v)."""
    directions: Directions = "together"
    """The two directions of an edge as one player, or "apart"."""

    generator: ClassVar[Generator] = CutEdges()

    def check_names(self, graph: Graph) -> None:
        """Groups name edges of the graph."""
        for label, members in self.groups:
            choosing.edge_positions(graph, label, members, self.directions)

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Edges within `hops` and within the depth of the model."""
        return _edge_setup(query, evaluator, self.hops, self.directions, self.groups)


@dataclass(frozen=True)
class _WithFeatures(PlayerKind):
    """Kinds with feature players: which features, and what they become when switched off."""

    features: FeatureChoice = 0.25
    """Features that play: outside mu +- lambda sigma, "all" or "nonzero"."""
    feature_groups: GroupsSetting = ()
    """{name: columns}: features that switch on and off together."""
    reference: ReferenceSetting = None
    """Contrastive: what switched-off features become in place of mu: a node id, "class:c" (the
    mean of the nodes of class c) or a vector."""

    def check_names(self, graph: Graph) -> None:
        """Groups name features of the graph."""
        if graph.has_types:
            choosing.column_groups(graph.types, self.feature_groups)
        else:
            choosing.check_groups(self.feature_groups, graph.num_features, "feature")


@dataclass(frozen=True)
class Features(_WithFeatures):
    """Features of the explained node, or those of all nodes of a graph."""

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Features of the explained nodes that stand out."""
        count = evaluator.field.size if query.kind == "graph" else None
        return _feature_setup(self, query, evaluator, count, "features")


@dataclass(frozen=True)
class SubgraphFeatures(_WithFeatures):
    """Features that switch off at the explained node and at its whole neighbourhood.

    They become a mean drawn from the data (of typed graphs, that of their type), or the reference.
    Nodes do not play: the effects of nodes and of their features overlap.
    """

    monte_carlo: Annotated[int, Range(1, MOST, error=BudgetError)] = 1000
    """Nodes that are drawn for the mean."""

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:
        """Features of all nodes within `hops`."""
        field, mean = evaluator.field, None
        count = field.size
        if query.kind != "graph":
            count = int(choosing.within_hops(field, self.hops).sum())
        if self.reference is None and not query.graph.has_types:
            mean = references.monte_carlo_mean(
                query.graph, self.monte_carlo, derive_rng(seed, "monte")
            )
        return _feature_setup(self, query, evaluator, count, "features", mean)


@dataclass(frozen=True)
class NodesAndFeatures(_WithFeatures):
    """Nodes around the explained node, and its features.

    Features play with the node isolated, nodes play with all features on (relative efficiency).
    """

    groups: GroupsSetting = ()
    """{name: nodes} that switch on and off together."""
    balance: Annotated[float | None, Range(0, 1)] = None
    """Social: alpha, the share of prediction - base that node credit is rescaled to."""
    node_types: NodeTypes = None
    """Typed graphs: the types whose nodes play; None: all."""

    def for_query(self, query: Query) -> PlayerKind:
        """Nodes and features of an explained node; a graph has one or the other.

        Raises:
            InputError: both play, and the question is about a graph.

        """
        if query.kind == "graph":
            raise InputError(
                "a graph is explained by its nodes or by its features, not both; "
                'use players="nodes" or players="features", without balance='
            )
        return self

    def check_names(self, graph: Graph) -> None:
        """Groups name nodes and features, and types are those of the graph."""
        super().check_names(graph)
        _check_nodes(graph, self.groups, self.node_types)

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Nodes within `hops`, and features of the explained nodes that stand out."""
        return _feature_setup(
            self, query, evaluator, None, "both", groups=self.groups, node_types=self.node_types
        )

    def finish(self, explanation: Explanation) -> Explanation:
        """Node and feature credit rescaled to `balance`."""
        if self.balance is None:
            return explanation
        return build_explanation.balanced(explanation, self.balance)


@dataclass(frozen=True)
class DefaultPlayers(_WithFeatures):
    """Nodes and features of an explained node, of several or of a link; the nodes of a graph."""

    groups: GroupsSetting = ()
    """{name: nodes} that switch on and off together."""
    node_types: NodeTypes = None
    """Typed graphs: the types whose nodes play; None: all."""

    def for_query(self, query: Query) -> PlayerKind:
        """`Nodes` for a graph, `NodesAndFeatures` for everything else."""
        if query.kind != "graph":
            return NodesAndFeatures(
                self.hops,
                self.features,
                self.feature_groups,
                self.reference,
                self.groups,
                node_types=self.node_types,
            )
        if self.feature_groups:
            raise InputError(
                "feature_groups= is about features, but by default the nodes of a graph play; "
                'use players="features"'
            )
        return Nodes(self.hops, self.groups, self.reference, self.node_types)

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:
        """The players of the kind that plays for this query."""
        return self.for_query(query).setup(query, evaluator, seed)


@dataclass(frozen=True)
class Relations(PlayerKind):
    """All edges of a type within `hops` rounds are one player."""

    directions: Directions = "together"
    """An edge type and its reverse type (`rev_writes` of `writes`) as one player, or "apart"."""

    generator: ClassVar[Generator] = CutEdges()

    def check_names(self, graph: Graph) -> None:
        """The graph has edge types."""
        _must_have_edge_types(self, graph)

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Edge types within `hops` and within the depth of the model."""
        return _edge_setup(query, evaluator, self.hops, self.directions, relations=True)


@dataclass(frozen=True)
class MetaPaths(PlayerKind):
    """A player for each meta-path, with the edges of its instances.

        MetaPaths(paths={"co-authors": [("paper", "to", "author"), ("author", "to", "paper")]})

    Each path is a list of edge types from its far end to the explained node. An edge on several of
    them is there as long as one of them is; edges on none stay.
    """

    paths: choosing.MetaPathsSetting = ()
    """{name: edge types}."""

    generator: ClassVar[Generator] = CutEdges()

    def check_names(self, graph: Graph) -> None:
        """Paths are of edge types of the graph, each from where the one before it ends."""
        _must_have_edge_types(self, graph)
        for label, steps in self.paths:
            choosing.meta_path_types(graph.types, label, steps)

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Meta-paths that have instances in the receptive field."""
        graph, field = query.graph, evaluator.field
        players = choosing.find_meta_paths(graph.types, field, self.paths)
        return GameSetup(graph, field, players, references.resolve_reference(graph, None))


@dataclass(frozen=True)
class Cells(_WithFeatures):
    """Features of each node around the explained one, and the features of that.

    Nodes play as `Nodes` do; the credit of those with the most is then shared among their features
    and their presence, which is what their edges alone earn (two-level Owen value). A switched-off
    feature becomes the mean or the reference, as for the explained node.
    """

    top_nodes: Annotated[int, Range(1, MOST)] = 5
    """Nodes with cells, those with the most absolute credit."""
    top_features: Annotated[int, Range(1, 16)] = 6
    """Features of a node with a cell of their own, those that stand out most."""

    def for_query(self, query: Query) -> PlayerKind:  # noqa: ARG002  (fits all)
        """Nodes and features of an explained node; the nodes of a graph.

        Raises:
            InputError: with `feature_groups`.

        """
        if self.feature_groups:
            raise InputError("cells are features of nodes one by one; leave feature_groups= out")
        return self

    def check_names(self, graph: Graph) -> None:
        """The graph has no types."""
        _must_have_no_types(self, graph)

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Nodes within `hops`, and features of the explained nodes that stand out."""
        if query.kind == "graph":
            return _feature_setup(self, query, evaluator, evaluator.field.size, "nodes")
        return _feature_setup(self, query, evaluator, None, "both")


@dataclass(frozen=True)
class EdgeFeatures(PlayerKind):
    """Columns of `edge_attr`, each at all edges together.

    A switched-off column has its mean (categories: the mode) at every edge, or the reference's
    value. `hops` must be left out: all edges of the receptive field are changed together.
    """

    reference: ReferenceSetting = None
    """A vector with a value for each column of edge_attr."""

    def check_names(self, graph: Graph) -> None:
        """The graph has no types; there are no groups."""
        _must_have_no_types(self, graph)

    def for_query(self, query: Query) -> PlayerKind:  # noqa: ARG002  (fits all)
        """Itself, without `hops`.

        Raises:
            InputError: with `hops`.

        """
        if self.hops is not None:
            raise InputError("columns of edge_attr play at all edges; leave hops= out")
        return self

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """No nodes, features of nodes or edges play (see `methods.edge_features`)."""
        mean = references.resolve_reference(query.graph, None)
        return GameSetup(query.graph, evaluator.field, choosing.Players(), mean)


KINDS: dict[str, type[PlayerKind]] = {
    "both": NodesAndFeatures,
    "nodes": Nodes,
    "features": Features,
    "subgraph_features": SubgraphFeatures,
    "edges": Edges,
    "relations": Relations,
    "cells": Cells,
    "edge_attr": EdgeFeatures,
}
"""Kinds by name, for `players=` and command lines."""


def _check_nodes(graph: Graph, groups: choosing.Groups, node_types: NodeTypes) -> None:
    if graph.has_types:
        choosing.node_groups(graph.types, groups)
        for name in node_types or ():
            graph.types.type_id(name)
        return
    if node_types is not None:
        raise InputError(
            f"node_types= needs a graph with node types (HeteroData), got {node_types}"
        )
    choosing.check_groups(groups, graph.num_nodes, "node")


def _must_have_edge_types(kind: PlayerKind, graph: Graph) -> None:
    if not graph.has_types:
        raise InputError(
            f"{type(kind).__name__}() needs a graph with edge types: HeteroData, or Data with "
            f"edge_type and a model that takes it"
        )


def _must_have_no_types(kind: PlayerKind, graph: Graph) -> None:
    if graph.has_types:
        raise UnsupportedError(
            f"{type(kind).__name__} are players of graphs without types only; typed graphs have "
            "nodes, features, subgraph_features, edges, relations and MetaPaths, such as "
            'GraphSVX(players="relations")'
        )


def _edge_setup(
    query: Query,
    evaluator: Evaluator,
    hops: int | None,
    directions: Directions,
    groups: choosing.Groups = (),
    relations: bool = False,
) -> GameSetup:
    graph, field = query.graph, evaluator.field
    reach = min((h for h in (hops, evaluator.depth) if h is not None), default=None)
    players = choosing.find_edge_players(graph, field, reach, directions, groups, relations)
    return GameSetup(graph, field, players, references.resolve_reference(graph, None))


def _feature_setup(
    kind: _WithFeatures,
    query: Query,
    evaluator: Evaluator,
    feature_nodes: int | None,
    sides: choosing.Sides,
    other: Tensor | None = None,
    groups: choosing.Groups = (),
    node_types: NodeTypes = None,
) -> GameSetup:
    graph, field = query.graph, evaluator.field
    vector = references.resolve_reference(graph, kind.reference, query.centres)
    players = choosing.find_players(
        graph,
        field,
        kind.hops,
        kind.features,
        sides,
        feature_nodes=feature_nodes,
        reference=None if kind.reference is None else vector,
        groups=groups,
        feature_groups=kind.feature_groups,
        node_types=node_types,
    )
    return GameSetup(graph, field, players, vector if other is None else other, feature_nodes)
