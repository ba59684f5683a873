"""Credit by kind of players, the receptive field and types, as they are recorded."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.players import Players, edge_label
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import InputError
from graphsvx.results.credit import Credit
from graphsvx.results.details import Balance, FieldRecord, GraphTypes
from graphsvx.results.explanation import Explanation

# Credit that sums to less than this share of its absolute sum is not rescaled.
_NEAR_ZERO = 1e-3


@lru_cache(maxsize=64)
def no_edges(outputs: int) -> Credit:
    """Empty edge credit, cached."""
    return replace(Credit.none(outputs), ids=torch.zeros(2, 0, dtype=torch.long))


def field_record(query: Query, evaluator: Evaluator) -> FieldRecord:
    """The receptive field without its boundary, in the user's node ids."""
    field, graph = evaluator.field, query.graph
    inner = field.inner_edges
    ids = torch.from_numpy(field.ids[: field.size])
    ends = field.ids[np.concatenate([field.source[inner], field.target[inner]])].reshape(2, -1)
    return FieldRecord(
        ids=ids,
        hops=torch.from_numpy(field.hops),
        edge_index=torch.from_numpy(ends),
        classes=_classes(graph, ids),
        num_nodes=graph.num_nodes,
        num_features=graph.num_features,
    )


def _classes(graph: Graph, ids: Tensor) -> Tensor | None:
    if graph.y is None or graph.y.is_floating_point():
        return None
    return graph.y.cpu().index_select(0, ids)


def credits(
    field: Field, players: Players, values: Tensor, errors: Tensor
) -> tuple[Credit, Credit, Credit]:
    """Features, nodes and edges, from columns in this order; a group has its first member's id."""
    b, d = players.features, players.features + players.nodes
    outputs = values.shape[0]
    names = players.names
    features = Credit(
        torch.from_numpy(_ids(players.feature_members, players.feature_owner, "features" in names)),
        values[:, :b],
        errors[:, :b],
        names.get("features"),
    )
    nodes = Credit(
        torch.from_numpy(
            _ids(field.ids[players.node_members], players.node_owner, "nodes" in names)
        ),
        values[:, b:d],
        errors[:, b:d],
        names.get("nodes"),
    )
    if not players.edges:
        return features, nodes, no_edges(outputs)
    first = _first_edges(field, players)
    ends = torch.from_numpy(field.ids[np.stack([field.source[first], field.target[first]])])
    return features, nodes, Credit(ends, values[:, d:], errors[:, d:], names.get("edges"))


def _first_edges(field: Field, players: Players) -> Ids:
    """Position in the field of the first edge, by its ends, of each edge player."""
    members = players.edge_members
    source, target = field.ids[field.source[members]], field.ids[field.target[members]]
    order = np.lexsort((field.edges[members], target, source, players.edge_owner))
    return members[order[np.unique(players.edge_owner[order], return_index=True)[1]]]


def _ids(members: Ids, owner: Ids, grouped: bool) -> Ids:
    if not grouped:
        return members
    order = np.lexsort((members, owner))
    return members[order[np.unique(owner[order], return_index=True)[1]]]


def with_types(
    explanation: Explanation, query: Query, field: Field, players: Players, apart: bool
) -> Explanation:
    """With types, names of all players, and node types as classes, where the graph has types.

    `apart`: an edge type and its reverse are counted apart.
    """
    graph = query.graph
    if not graph.has_types:
        return explanation
    inside = field.ids[: field.size]
    classes = torch.from_numpy(graph.types.node_type[inside])
    edges = field.edges[_first_edges(field, players)].tolist()
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
            explanation.edge_credit, [edge_label(graph, edge, apart) for edge in edges]
        ),
    )


def _named(credit: Credit, labels: list[str]) -> Credit:
    return replace(credit, names=credit.names or tuple(labels)) if credit.players else credit


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


def balanced(explanation: Explanation, alpha: float) -> Explanation:
    """Node credit rescaled to alpha, feature credit to 1 - alpha of prediction - base.

    phi_node * alpha e / sum(phi_node) and phi_feat * (1 - alpha) e / sum(phi_feat), with
    e = f - phi_0, for each explained output.
    """
    e = explanation.predictions - explanation.bases
    factors = {}
    for side, credit, share in (
        ("node", explanation.node_credit, alpha),
        ("feature", explanation.feature_credit, 1 - alpha),
    ):
        sums = credit.values.sum(1)
        floor = _NEAR_ZERO * torch.maximum(credit.values.abs().sum(1), e.abs()).clamp(min=1e-9)
        bad = (sums.abs() < floor) & (share != 0)
        if bool(bad.any()):
            worst = int(bad.nonzero()[0])
            raise InputError(
                f"balance={alpha:g} cannot rescale {side} credit that sums to "
                f"{float(sums[worst]):.1e} (output {explanation.outputs[worst]}, "
                f"{credit.players} {side} players): use players= to leave a side out, or another "
                f"balance"
            )
        factors[side] = torch.zeros_like(e) if share == 0 else share * e / sums
    node, feature = factors["node"][:, None], factors["feature"][:, None]
    before, row = explanation, explanation.outputs.index(explanation.target)
    return replace(
        before,
        node_credit=replace(
            before.node_credit,
            values=before.node_credit.values * node,
            errors=before.node_credit.errors * node.abs(),
        ),
        feature_credit=replace(
            before.feature_credit,
            values=before.feature_credit.values * feature,
            errors=before.feature_credit.errors * feature.abs(),
        ),
        balance=Balance(alpha, nodes=float(node[row]), features=float(feature[row])),
        meaning=f"{before.meaning}, rescaled so that nodes carry {100 * alpha:g} % of it and "
        f"features the rest",
    )
