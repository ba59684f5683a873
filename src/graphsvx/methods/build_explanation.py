"""Credit by kind of players and the receptive field, as they are recorded."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.players import Players
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import InputError
from graphsvx.results.credit import Credit
from graphsvx.results.details import Balance, FieldRecord
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
        values[:, :b], errors[:, :b], names.get("features"),
    )  # fmt: skip
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
    source = field.ids[field.source[players.edge_members]]
    target = field.ids[field.target[players.edge_members]]
    order = np.lexsort((target, source, players.edge_owner))
    first = order[np.unique(players.edge_owner[order], return_index=True)[1]]
    ends = torch.from_numpy(np.stack([source[first], target[first]]))
    return features, nodes, Credit(ends, values[:, d:], errors[:, d:], names.get("edges"))


def _ids(members: Ids, owner: Ids, grouped: bool) -> Ids:
    if not grouped:
        return members
    order = np.lexsort((members, owner))
    return members[order[np.unique(owner[order], return_index=True)[1]]]


def balanced(explanation: Explanation, alpha: float) -> Explanation:
    """Node credit rescaled to alpha, feature credit to 1 - alpha of prediction - base.

    phi_node * alpha e / sum(phi_node) and phi_feat * (1 - alpha) e / sum(phi_feat), with
    e = f - phi_0, for each explained output.
    """
    e = explanation.predictions - explanation.bases
    factors = {}
    for side, credit, share in (("node", explanation.node_credit, alpha),
                                ("feature", explanation.feature_credit, 1 - alpha)):  # fmt: skip
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
        node_credit=replace(before.node_credit, values=before.node_credit.values * node,
                            errors=before.node_credit.errors * node.abs()),
        feature_credit=replace(before.feature_credit, values=before.feature_credit.values * feature,
                               errors=before.feature_credit.errors * feature.abs()),
        balance=Balance(alpha, nodes=float(node[row]), features=float(feature[row])),
        meaning=f"{before.meaning}, rescaled so that nodes carry {100 * alpha:g} % of it and "
                f"features the rest",
    )  # fmt: skip
