"""Games on typed graphs: who plays, and what their features become."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from graphsvx.core.graph import Graph
from graphsvx.core.meta_paths import find_meta_paths, meta_path_types
from graphsvx.core.players import FeatureChoice, within_hops
from graphsvx.core.query import Query
from graphsvx.core.typed_edges import edge_positions, find_typed_edges
from graphsvx.core.typed_players import (
    feature_column,
    feature_rows,
    find_typed_players,
    node_groups,
    resolve_typed_reference,
)
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import UnsupportedError
from graphsvx.generators import GameSetup, Generator, Indirect
from graphsvx.methods.player_kinds import (
    Cells,
    EdgeFeatures,
    Edges,
    MetaPaths,
    Nodes,
    NodesAndFeatures,
    PlayerKind,
    Relations,
    SubgraphFeatures,
)


@dataclass(frozen=True, eq=False)
class TypedSetup(GameSetup):
    """Setup of a game that replaces features; its rows have the columns of all node types."""

    @cached_property
    def feature_table(self) -> Tensor:
        """Feature rows of the field's nodes, in local order."""
        return feature_rows(self.graph, self.field.ids[: self.field.size])


def check_typed_players(kind: PlayerKind, generator: Generator | None, graph: Graph) -> None:
    """Raise InputError if a group, type or path names what does not exist.

    Raises:
        UnsupportedError: players or a generator that typed graphs do not have.

    """
    if isinstance(kind, (Cells, EdgeFeatures)):
        raise UnsupportedError(
            f"{type(kind).__name__} are players of graphs without types only; typed graphs have "
            "nodes, features, subgraph_features, edges, relations and MetaPaths, such as "
            'GraphSVX(players="relations")'
        )
    if isinstance(generator, Indirect) and generator.inner == "target" and not graph.types.flat:
        raise UnsupportedError(
            'indirect="target" gives nodes the features of the explained one, but node types have '
            'features of their own; use indirect="mean"'
        )
    if isinstance(kind, MetaPaths):
        for label, steps in kind.paths:
            meta_path_types(graph, label, steps)
    for label, members in getattr(kind, "feature_groups", ()):
        for member in members:
            feature_column(graph, member, label)
    if isinstance(kind, Edges):
        for label, members in kind.groups:
            for member in members:
                edge_positions(graph, member, label)
    elif isinstance(kind, (Nodes, NodesAndFeatures)):
        node_groups(graph, kind.groups)
        for name in kind.node_types or ():
            graph.types.type_id(name)


def typed_setup(
    kind: PlayerKind, generator: Generator, query: Query, evaluator: Evaluator
) -> GameSetup:
    """The players in the evaluator's receptive field, and what their features become."""
    graph, field = query.graph, evaluator.field
    reference = getattr(kind, "reference", None)
    vector = resolve_typed_reference(graph, reference, query.centres)
    if isinstance(kind, MetaPaths):
        return GameSetup(graph, field, find_meta_paths(graph, field, kind.paths), vector)
    if isinstance(kind, (Edges, Relations)):
        reach = min((h for h in (kind.hops, evaluator.depth) if h is not None), default=None)
        groups = kind.groups if isinstance(kind, Edges) else ()
        players = find_typed_edges(
            graph, field, reach, kind.directions, groups, isinstance(kind, Relations)
        )
        return GameSetup(graph, field, players, vector)
    features: FeatureChoice | None = getattr(kind, "features", None)
    feature_nodes = field.size if query.kind == "graph" else None
    if isinstance(kind, SubgraphFeatures) and feature_nodes is None:
        feature_nodes = int(within_hops(field, kind.hops).sum())
    players = find_typed_players(
        graph,
        field,
        kind.hops,
        nodes=isinstance(kind, (Nodes, NodesAndFeatures)),
        node_types=getattr(kind, "node_types", None),
        groups=getattr(kind, "groups", ()),
        features=features,
        feature_nodes=feature_nodes,
        reference=None if reference is None else vector,
        feature_groups=getattr(kind, "feature_groups", ()),
    )
    replaces = players.features > 0 or getattr(generator, "feature_rows", "any") != "own"
    setup = TypedSetup if replaces else GameSetup
    return setup(graph, field, players, vector, feature_nodes)
