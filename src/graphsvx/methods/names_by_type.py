"""The types of a typed graph in the record of an explanation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from graphsvx.core.arrays import Ids
from graphsvx.core.field import Field
from graphsvx.core.players import Players, edge_label
from graphsvx.core.query import Query
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.results.typed import GraphTypes


def with_types(
    explanation: Explanation, query: Query, field: Field, players: Players, apart: bool
) -> Explanation:
    """The explanation with types, names of all players, and node types as classes of the field.

    `apart`: an edge type and its reverse are counted apart.
    """
    graph = query.graph
    inside = field.ids[: field.size]
    classes = torch.from_numpy(graph.types.node_type[inside])
    return replace(
        explanation,
        types=_types(query, field, players, apart),
        field=replace(explanation.field, classes=None if graph.types.flat else classes),
        node_credit=_named(
            explanation.node_credit, [graph.types.label(n) for n in explanation.node_ids.tolist()]
        ),
        feature_credit=_named(
            explanation.feature_credit,
            [graph.types.feature_label(column) for column in explanation.feature_ids.tolist()],
        ),
        edge_credit=_named(
            explanation.edge_credit,
            [edge_label(graph, position, apart) for position in _first_edges(field, players)],
        ),
    )


def _named(credit: Credit, labels: list[str]) -> Credit:
    return replace(credit, names=credit.names or tuple(labels)) if credit.players else credit


def _first_edges(field: Field, players: Players) -> list[int]:
    """An edge of each edge player: the first by its source, as in `build_explanation.credits`."""
    source = field.ids[field.source[players.edge_members]]
    target = field.ids[field.target[players.edge_members]]
    positions = field.edges[players.edge_members]
    order = np.lexsort((positions, target, source, players.edge_owner))
    first = order[np.unique(players.edge_owner[order], return_index=True)[1]]
    return [int(position) for position in positions[first]]


def _types(query: Query, field: Field, players: Players, apart: bool) -> GraphTypes:
    graph = query.graph
    blocks = [block.start for block in graph.types.blocks.values()]
    members = field.edges[players.edge_members]
    kinds = graph.types.edge_type[members]
    edge_starts = graph.types.edge_starts.tolist()

    def tensor(ids: Ids) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(ids))

    return GraphTypes(
        flat=graph.types.flat,
        node_types=graph.types.node_types,
        node_starts=tuple(graph.types.node_starts.tolist()),
        feature_starts=(*blocks, graph.num_features),
        edge_types=graph.types.edge_types,
        edge_starts=(0, graph.num_edges) if graph.types.flat else tuple(edge_starts),
        labels=tuple(graph.types.label(number) for number in field.ids[: field.size].tolist()),
        field_edge_types=tensor(graph.types.edge_type[field.edges[field.inner_edges]]),
        edge_members=tensor(members),
        edge_owners=tensor(players.edge_owner.astype(np.int64)),
        edge_member_types=tensor(kinds if apart else graph.relation_of[kinds]),
        relation=query.relation,
    )
