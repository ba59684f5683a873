"""Build the explanation record from fitted games."""

from __future__ import annotations

from collections.abc import Sequence
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
from graphsvx.estimators import interactions as estimators
from graphsvx.estimators.indices import Index
from graphsvx.estimators.least_squares import Fit
from graphsvx.generators import RemoveRows
from graphsvx.generators.base import GeneratorSetting
from graphsvx.methods.pipeline import PlayedGame
from graphsvx.results.credit import Credit, Interactions, RegionErrors, branch_of, hop_of
from graphsvx.results.details import Balance, FieldRecord, Groups, Selection
from graphsvx.results.explanation import Explanation

SHAPLEY_VALUE = (
    "Shapley value: the player's fair share of the difference between the prediction and the "
    "base value"
)
"""What a value means, in an explanation."""
LASSO_SHARE = (
    "share of the difference between the prediction and the base value among the few players "
    "that a Lasso chose"
)
"""The same, where a Lasso chose the players."""
# Credit that sums to less than this share of its absolute sum is not rescaled.
_NEAR_ZERO = 1e-3
_MOST_MEMBERSHIPS = 1 << 20


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


def groups(field: Field, players: Players) -> Groups:
    """The members of each named player, in the user's ids."""
    ends = np.stack([field.ids[field.source[players.edge_members]],
                     field.ids[field.target[players.edge_members]]], 1)  # fmt: skip
    nodes = field.ids[players.node_members]
    names = players.names
    return Groups(
        features={
            name: tuple(players.feature_members[players.feature_owner == i].tolist())
            for i, name in enumerate(names.get("features", ()))
        },
        nodes={
            name: tuple(nodes[players.node_owner == i].tolist())
            for i, name in enumerate(names.get("nodes", ()))
        },
        edges={
            name: tuple((u, v) for u, v in ends[players.edge_owner == i].tolist())
            for i, name in enumerate(names.get("edges", ()))
        },
    )


def region_errors(
    field: FieldRecord, nodes: Credit, played: list[PlayedGame], fits: list[Fit]
) -> RegionErrors | None:
    """Standard errors of node credit by hop and branch; None where values are exact or unnamed."""
    for game, fit in zip(played, fits, strict=True):
        plain = nodes.names is None and game.game.players == nodes.players
        if game.game.side == "nodes" and plain and bool(fit.errors.any()):
            return RegionErrors(*(_errors_of_sums(fit, label(field, nodes.ids)) for label in
                                  (hop_of, branch_of)))  # fmt: skip
    return None


def _errors_of_sums(fit: Fit, labels: Ids) -> Tensor:
    """Standard errors of credit summed by label, [outputs, labels]; NaN for very many of them."""
    groups = np.unique(labels)
    if len(groups) * len(labels) > _MOST_MEMBERSHIPS:
        return torch.full((len(fit.values), len(groups)), torch.nan, dtype=torch.float64)
    return torch.from_numpy(fit.group_credit(groups[:, None] == labels)[1])


def interactions(
    played: list[PlayedGame], fits: list[Fit], outputs: Sequence[int], index: Index, order: int
) -> Interactions:
    """Interactions within each game, as one record over all players."""
    members, values, errors = [], [], []
    first = left_out = 0
    for game, fit in zip(played, fits, strict=True):
        players = game.game.players
        if players:
            by_size = estimators.interactions(
                *game.estimator_rows(outputs), index=index, order=order,
                credit=fit.values.t().numpy(), errors=fit.errors.t().numpy(),
            )  # fmt: skip
            for part in by_size:
                sets = np.full((len(part.members), order), -1)
                sets[:, : part.members.shape[1]] = part.members + first
                members.append(sets)
                values.append(part.values)
                errors.append(part.errors)
            left_out += players - len(np.unique(by_size[-1].members)) if players > order else 0
        first += players
    none, no_sets = np.zeros((0, len(outputs))), np.zeros((0, order), dtype=np.int64)
    return Interactions(
        index=index.name,
        order=order,
        members=torch.from_numpy(np.concatenate([no_sets, *members]).T.copy()),
        values=torch.from_numpy(np.concatenate([none, *values]).T.copy()),
        errors=torch.from_numpy(np.concatenate([none, *errors]).T.copy()),
        left_out=left_out,
    )


def selection(fits: list[Fit], row: int, alone: float) -> Selection:
    """How much of the prediction the players that a selective regression chose carry.

    `alone` is the model's score with only them on.
    """
    complete = torch.cat([fit.complete[row] for fit in fits if fit.complete is not None])
    selected = torch.cat([fit.values[row] for fit in fits]) != 0
    total = float(complete.sum())
    small = _NEAR_ZERO * float(complete.abs().sum())
    return Selection(
        chosen=int(selected.sum()),
        players=len(selected),
        carried=float(complete[selected].sum()) / total if abs(total) > small else None,
        alone=alone,
    )


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


# Whether any player changes the output, and what to try where none does.


_ROUNDING = 64  # units in the last place that values of the same output may differ by
_MOST_ROUNDING = 1e-4  # of the value: in half precision, more is influence


def no_influence(
    query: Query, generator: GeneratorSetting, played: Sequence[PlayedGame], outputs: Sequence[int]
) -> str | None:
    """The reason why no player changes the explained outputs; None: one does, or none plays.

    Features may have none where nodes have: only if they play alone this is said of them.
    """
    games = [game for game in played if game.game.players]
    flat = [game for game in games if _is_flat(game, outputs)]
    kinds = {game.game.side for game in flat}
    if not flat or (kinds == {"features"} and len(flat) < len(games)):
        return None
    kind = {"features": "feature", "edges": "edge"}.get(flat[-1].game.side, "node")
    fact = f"no {kind} changes the output"
    scores = flat[-1].values[1, list(outputs)]
    if query.model.scale == "probability" and bool(((scores < 1e-9) | (scores > 1 - 1e-9)).all()):
        return f'{fact}: the probability is {float(scores[0]):.0f} throughout; use scale="log_odds"'
    if kind == "feature":
        return f"{fact}: the model does not read x, or only where it is the reference"
    if isinstance(generator, RemoveRows):
        return f"{fact}, although switched-off nodes are removed: the model ignores them"
    takes = ", ".join(sorted(query.model.plan.attributes))
    return (
        f"{fact}: the model, which takes {takes}, gives the same output whatever edges are cut; "
        f"if it makes edges of its own (from positions or features) or mixes all nodes, use "
        f'GraphSVX(erase="rows")'
    )


def _is_flat(game: PlayedGame, outputs: Sequence[int]) -> bool:
    """Whether all coalitions have the same values, but for rounding."""
    values = game.values[:, list(outputs)]
    size = values.abs().amax(0)
    dtype = game.game.played().dtype
    unit = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    rounding = min(_MOST_ROUNDING, _ROUNDING * unit)
    return bool((values.amax(0) - values.amin(0) <= rounding * size).all())
