"""Who plays: the kinds of players of GraphSVX, one frozen record each.

    GraphSVX(players=Edges(hops=2))
    GraphSVX(players="edges", hops=2)      # the same in flat keywords

A kind chooses the players in the receptive field of a query and names the generator that switches
them off. A further kind is a subclass of `PlayerKind` and a name in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch

from graphsvx.core import players as choosing
from graphsvx.core.arrays import derive_rng
from graphsvx.core.field import Field
from graphsvx.core.players import Directions, FeatureChoice, GroupsSetting, Hops, NodeTypes, Players
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import BudgetError, InputError, UnsupportedError
from graphsvx.generators import CutEdges, GameSetup, Generator, Isolate
from graphsvx.results.details import Balance
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import MOST, Checked, Range

KindName = Literal[
    "both", "nodes", "features", "subgraph_features", "edges", "relations", "cells", "edge_attr"
]
# Credit that sums to less than this share of its absolute sum is not rescaled.
_NEAR_ZERO = 1e-3


@dataclass(frozen=True)
class PlayerKind(Checked):
    """A kind of players; everything that does not play stays as it is."""

    hops: Hops = None
    """How far away from the explained node players are (k); None: as far as the model looks."""

    sides: ClassVar[choosing.Sides] = "both"
    """What plays."""
    generator: ClassVar[Generator] = Isolate()
    """GEN where none is given."""
    typed: ClassVar[bool | None] = None
    """Whether the graph must have types (True) or must have none (False); None: either."""

    def conflicts(self, method: Any) -> Iterator[str]:  # noqa: ARG002  (most kinds fit all settings)
        """Why the kind does not go together with other settings of a `GraphSVX`."""
        yield from ()

    def for_query(self, query: Query) -> PlayerKind:
        """The kind that plays for this query.

        Raises:
            InputError: none makes sense, or the graph has no types.
            UnsupportedError: the graph has types.

        """
        graph = query.graph
        if self.typed and not graph.has_types:
            raise InputError(
                f"{type(self).__name__}() needs a graph with edge types: HeteroData, or Data with "
                f"edge_type and a model that takes it"
            )
        if self.typed is False and graph.has_types:
            raise UnsupportedError(
                f"{type(self).__name__} are players of graphs without types only; typed graphs "
                "have nodes, features, subgraph_features, edges, relations and MetaPaths, such as "
                'GraphSVX(players="relations")'
            )
        node_types = vars(self).get("node_types")
        if node_types is not None and not graph.has_types:
            raise InputError(
                f"node_types= needs a graph with node types (HeteroData), got {node_types}"
            )
        return self

    def _feature_nodes(self, query: Query, field: Field) -> int | None:
        """How many of the field's first nodes have features that play; None: the centres."""
        return field.size if query.kind == "graph" else None

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Nodes within `hops`, and features of the explained nodes; of a graph one or the other."""
        graph, field, settings = query.graph, evaluator.field, vars(self)
        feature_nodes = self._feature_nodes(query, field)
        vector = choosing.resolve_reference(graph, settings.get("reference"), query.centres)
        players = choosing.find_players(
            graph,
            field,
            self.hops,
            settings.get("features", "all"),
            "nodes" if query.kind == "graph" and self.sides == "both" else self.sides,
            feature_nodes=feature_nodes,
            reference=None if settings.get("reference") is None else vector,
            groups=settings.get("groups", ()),
            feature_groups=settings.get("feature_groups", ()),
            node_types=settings.get("node_types"),
        )
        return GameSetup(graph, field, players, vector, feature_nodes)

    def finish(self, explanation: Explanation) -> Explanation:
        """The explanation with the changes that the settings of this kind ask for."""
        return explanation


# --- nodes and features ------------------------------------------------------------------


@dataclass(frozen=True)
class Nodes(PlayerKind):
    """The nodes around the explained node, or all nodes of a graph."""

    groups: GroupsSetting = ()
    """{name: nodes} that switch on and off together."""
    reference: choosing.ReferenceSetting = None
    """What the features of a switched-off node become, with a generator that replaces them."""
    node_types: NodeTypes = None
    """Typed graphs: the types whose nodes play; None: all."""

    sides: ClassVar[choosing.Sides] = "nodes"


@dataclass(frozen=True)
class _WithFeatures(PlayerKind):
    """Which features play, and what they become when switched off."""

    features: FeatureChoice = 0.25
    """Features that play: outside mu +- lambda sigma, "all" or "nonzero"."""
    feature_groups: GroupsSetting = ()
    """{name: columns}: features that switch on and off together."""
    reference: choosing.ReferenceSetting = None
    """Contrastive: what switched-off features become in place of mu: a node id, "class:c" (the
    mean of the nodes of class c) or a vector."""


@dataclass(frozen=True)
class Features(_WithFeatures):
    """Features of the explained node, or those of all nodes of a graph."""

    sides: ClassVar[choosing.Sides] = "features"


@dataclass(frozen=True)
class SubgraphFeatures(_WithFeatures):
    """Features that switch off at the explained node and at its whole neighbourhood.

    They become a mean drawn from the data (of typed graphs, that of their type), or the reference.
    Nodes do not play: the effects of nodes and of their features overlap.
    """

    monte_carlo: Annotated[int, Range(1, MOST, error=BudgetError)] = 1000
    """Nodes that are drawn for the mean."""

    sides: ClassVar[choosing.Sides] = "features"

    def _feature_nodes(self, query: Query, field: Field) -> int:  # noqa: ARG002  (of any question)
        return int(choosing.within_hops(field, self.hops).sum())

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:
        """Features of all nodes within `hops`."""
        setup = super().setup(query, evaluator, seed)
        if self.reference is not None or query.graph.has_types:
            return setup
        rng = derive_rng(seed, "monte")
        mean = choosing.monte_carlo_mean(query.graph, self.monte_carlo, rng)
        return replace(setup, reference=mean)


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
            InputError: a graph is explained.

        """
        if query.kind == "graph":
            raise InputError(
                "a graph is explained by its nodes or by its features, not both; "
                'use players="nodes" or players="features", without balance='
            )
        return super().for_query(query)

    def finish(self, explanation: Explanation) -> Explanation:
        """Node and feature credit rescaled to `balance`."""
        return explanation if self.balance is None else balanced(explanation, self.balance)


def balanced(explanation: Explanation, alpha: float) -> Explanation:
    """Node credit rescaled to alpha, feature credit to 1 - alpha of prediction - base.

    phi_node * alpha e / sum(phi_node) and phi_feat * (1 - alpha) e / sum(phi_feat), with
    e = f - phi_0, for each explained output.
    """
    e = explanation.predictions - explanation.bases
    credit, factors = [], []
    for side, part, share in (
        ("node", explanation.node_credit, alpha),
        ("feature", explanation.feature_credit, 1 - alpha),
    ):
        sums, factor = part.values.sum(1), torch.zeros_like(e)
        if share:
            floor = _NEAR_ZERO * torch.maximum(part.values.abs().sum(1), e.abs()).clamp(min=1e-9)
            bad = (sums.abs() < floor).nonzero()[:1, 0].tolist()
            if bad:
                raise InputError(
                    f"balance={alpha:g} cannot rescale {side} credit that sums to "
                    f"{float(sums[bad]):.1e} (output {explanation.outputs[bad[0]]}, {part.players} "
                    f"{side} players): use players= to leave a side out, or another balance"
                )
            factor = share * e / sums
        factors.append(float(factor[explanation.row]))
        factor = factor[:, None]
        credit.append(replace(part, values=part.values * factor, errors=part.errors * factor.abs()))
    return replace(
        explanation,
        node_credit=credit[0],
        feature_credit=credit[1],
        balance=Balance(alpha, *factors),
        meaning=f"{explanation.meaning}, rescaled so that nodes carry {100 * alpha:g} % of it and "
        f"features the rest",
    )


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
            return NodesAndFeatures(**vars(self)).for_query(query)
        if self.feature_groups:
            raise InputError(
                "feature_groups= is about features, but by default the nodes of a graph play; "
                'use players="features"'
            )
        return Nodes(self.hops, self.groups, self.reference, self.node_types).for_query(query)


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

    typed: ClassVar[bool | None] = False

    def conflicts(self, method: Any) -> Iterator[str]:
        """Cells need a game of nodes that are isolated."""
        generator = method.generator
        if generator not in (None, Isolate()):
            yield f"cells are features of nodes that switch off by isolation, got {generator!r}"
        if not method.mask.separate:
            yield f"cells need a mask with a game of nodes alone, got {method.mask!r}"
        if self.feature_groups:
            yield "cells are features of nodes one by one; leave feature_groups= out"


# --- edges ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _EdgeKind(PlayerKind):
    """Kinds of edges, whose fields are those of `find_edge_players`."""

    sides: ClassVar[choosing.Sides] = "edges"
    generator: ClassVar[Generator] = CutEdges()
    relations: ClassVar[bool] = False
    """Whether all edges of a type are one player."""

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Edges within `hops` and within the depth of the model."""
        graph, field, settings = query.graph, evaluator.field, vars(self)
        reach = min((h for h in (self.hops, evaluator.depth) if h is not None), default=None)
        players = choosing.find_edge_players(
            graph, field, reach, settings["directions"], settings.get("groups", ()), self.relations
        )
        return GameSetup(graph, field, players, graph.statistics.mean)


@dataclass(frozen=True)
class Edges(_EdgeKind):
    """Edges that carry messages to the explained node within `hops` rounds."""

    groups: GroupsSetting = ()
    """{name: edges} that switch on and off together: positions in edge_index or pairs (u, v)."""
    directions: Directions = "together"
    """The two directions of an edge as one player, or "apart"."""


@dataclass(frozen=True)
class Relations(_EdgeKind):
    """All edges of a type within `hops` rounds are one player."""

    directions: Directions = "together"
    """An edge type and its reverse type (`rev_writes` of `writes`) as one player, or "apart"."""

    relations: ClassVar[bool] = True
    typed: ClassVar[bool | None] = True


@dataclass(frozen=True)
class MetaPaths(_EdgeKind):
    """A player for each meta-path, with the edges of its instances.

        MetaPaths(paths={"co-authors": [("paper", "to", "author"), ("author", "to", "paper")]})

    Each path is a list of edge types from its far end to the explained node. An edge on several of
    them is there as long as one of them is; edges on none stay.
    """

    paths: choosing.MetaPathsSetting = ()
    """{name: edge types}."""

    typed: ClassVar[bool | None] = True

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """Meta-paths that have instances in the receptive field."""
        graph, field = query.graph, evaluator.field
        players = choosing.find_meta_paths(graph.types, field, self.paths)
        return GameSetup(graph, field, players, graph.statistics.mean)


@dataclass(frozen=True)
class EdgeFeatures(PlayerKind):
    """Columns of `edge_attr`, each at all edges together.

    A switched-off column has its mean (categories: the mode) at every edge, or the reference's
    value. `hops` must be left out: all edges of the receptive field are changed together.
    """

    reference: choosing.ReferenceSetting = None
    """A vector with a value for each column of edge_attr."""

    sides: ClassVar[choosing.Sides] = "edges"
    typed: ClassVar[bool | None] = False

    def conflicts(self, method: Any) -> Iterator[str]:
        """All edges are changed together, once a coalition."""
        if self.hops is not None:
            yield "columns of edge_attr play at all edges; leave hops= out"
        if method.budget.tolerance is not None or method.generator:
            yield (
                'players="edge_attr" takes samples=, mask= and estimator= only; leave tolerance= '
                "and generator= out"
            )

    def setup(self, query: Query, evaluator: Evaluator, seed: int) -> GameSetup:  # noqa: ARG002  (nothing is drawn)
        """No nodes, features of nodes or edges play (see `methods.edge_features`)."""
        graph = query.graph
        return GameSetup(graph, evaluator.field, Players(), graph.statistics.mean)


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
