"""The record of an explanation, of any method: credit of players, certificate, field, types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.players import Players, edge_label
from graphsvx.core.query import Query
from graphsvx.methods.pipeline import FittedGame, Prediction
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import Credit
from graphsvx.results.details import FieldRecord, GraphTypes, Groups
from graphsvx.results.explanation import Explanation


def game_report(name: str, players: int, calls: int, mask: str, **details: Any) -> GameReport:
    """A game's entry in the certificate; R² is None without a surrogate."""
    counts: dict[str, Any] = {"exact": False, "budget": calls, "coalitions": calls, "r2": None}
    return GameReport(name, players, calls=calls, mask=mask, **{**counts, **details})


def fitted_report(played: FittedGame, mask: str, row: int) -> GameReport:
    """The entry of a game of GraphSVX; `row`: position of the target among the outputs."""
    game, fit, proved = played.game, played.fit, played.game.evaluator.checks.proved
    # Exact rows alone do not make Shapley values: a Lasso leaves players out.
    no_estimate = played.masks.exact and not bool(fit.errors.any())
    return GameReport(
        game.side,
        game.players,
        exact=no_estimate and proved,
        exact_if_shortcuts_hold=no_estimate and not proved,
        replayed=0 if proved else game.replayed,
        budget=played.budget,
        calls=game.calls,
        coalitions=len(played.masks.rows) + 2 + played.measured,
        r2=float(fit.r2[row]),
        mask=mask,
        model=fit.model,
        held_out_r2=None if fit.held_out_r2 is None else float(fit.held_out_r2[row]),
    )


def build_explanation(
    method: object,
    seed: int,
    prediction: Prediction,
    *,
    meaning: str,
    game: GameReport | Sequence[GameReport],
    nodes: Credit | None = None,
    features: Credit | None = None,
    edges: Credit | None = None,
    bases: Tensor | None = None,
    players: Players | None = None,
    credit: tuple[Tensor, Tensor] | None = None,
    apart: bool = False,
    facts: Mapping[str, Any] | None = None,
    **details: Any,
) -> Explanation:
    """The record, with the residual prediction - base - total in its certificate.

    Args:
        method: the explainer, which is recorded by its `repr`.
        seed: what its random numbers were made from.
        prediction: what is explained.
        meaning: what a value means, in one sentence.
        game: how the model was called (`game_report`), or that of several games.
        nodes: credit of nodes, values [outputs, players]; likewise `features` and `edges`.
        bases: where credit starts from, [outputs], 0 by default. The residual is 0 only for
            methods that satisfy the efficiency axiom.
        players: who `credit` is of, or, on typed graphs, who `edges` are.
        credit: instead of `nodes`, `features` and `edges` their values and standard errors,
            [outputs, players] each: features, then nodes, then edges.
        apart: an edge type and its reverse are counted apart.
        facts: further fields of the certificate.
        details: further fields of the explanation.

    """
    query, evaluator, outputs = prediction.query, prediction.evaluator, prediction.outputs
    field, players = evaluator.field, players or Players()
    if credit is not None:
        features, nodes, edges = credits(field, players, *credit)
    none = Credit.none(len(outputs))
    no_edges = replace(none, ids=torch.zeros(2, 0, dtype=torch.long))
    parts = {"feature": features or none, "node": nodes or none, "edge": edges or no_edges}
    details.setdefault("field", _field_record(query, field))
    if query.graph.has_types:
        parts = _named(parts, query.graph, field, players, apart)
        details["types"] = _types(query, field, players, apart)
    explained = prediction.scores.detach().double().cpu()[list(outputs)]
    bases = torch.zeros_like(explained) if bases is None else bases.double().cpu()
    residual = explained - bases - torch.cat([part.values for part in parts.values()], 1).sum(1)
    return Explanation(
        **({"kind": query.kind} | details),
        node_credit=parts["node"],
        feature_credit=parts["feature"],
        edge_credit=parts["edge"],
        centres=tuple(query.centres.tolist()),
        outputs=outputs,
        target=prediction.target,
        bases=bases,
        predictions=explained,
        certificate=Certificate(
            games=(game,) if isinstance(game, GameReport) else tuple(game),
            residual=float(residual[prediction.row]),
            seed=seed,
            depth=evaluator.depth,
            checks=evaluator.checks.passed,
            fallback=evaluator.checks.fallback,
            **(facts or {}),
        ),
        method=repr(method),
        meaning=meaning,
        scale=query.model.scale,
        class_names=query.names.classes,
    )


# --- players and the receptive field, in the user's ids -------------------------------------


def credits(field: Field, players: Players, values: Tensor, errors: Tensor) -> list[Credit]:
    """Features, nodes and edges, from columns in this order; a group has its first member's id."""
    columns, nodes = players.feature_members, field.ids[players.node_members]
    first = _first_edges(field, players)
    ids = {
        "features": columns[_first(players.feature_owner, columns)],
        "nodes": nodes[_first(players.node_owner, nodes)],
        "edges": field.ids[np.stack([field.source[first], field.target[first]])],
    }
    ends = [players.features, players.features + players.nodes]
    parts = zip(ids, values.tensor_split(ends, 1), errors.tensor_split(ends, 1), strict=True)
    return [
        Credit(torch.from_numpy(ids[side]), credit, error, players.names.get(side))
        for side, credit, error in parts
    ]


def _first(owner: Ids, *keys: Ids) -> Ids:
    """Position of the first member of each player, by the last of these keys."""
    order = np.lexsort((*keys, owner))
    position: Ids = order[np.unique(owner[order], return_index=True)[1]]
    return position


def _first_edges(field: Field, players: Players) -> Ids:
    """Position in the field of the first edge, by its ends, of each edge player."""
    members = players.edge_members
    source, target = field.ids[field.source[members]], field.ids[field.target[members]]
    return members[_first(players.edge_owner, field.edges[members], target, source)]


def groups_of(field: Field, players: Players) -> Groups | None:
    """The members of each named player; None: no player has a name."""
    if not players.names:
        return None

    def members(side: str, ids: Ids, owner: Ids) -> dict[str, Any]:
        return {
            name: tuple(tuple(item) if ids.ndim > 1 else item for item in ids[owner == i].tolist())
            for i, name in enumerate(players.names.get(side, ()))
        }

    ends = field.ids[np.stack([field.source, field.target], 1)[players.edge_members]]
    return Groups(
        members("features", players.feature_members, players.feature_owner),
        members("nodes", field.ids[players.node_members], players.node_owner),
        members("edges", ends, players.edge_owner),
    )


def _field_record(query: Query, field: Field) -> FieldRecord:
    """The receptive field without its boundary."""
    graph, inner = query.graph, field.inner_edges
    ids, classes = field.ids[: field.size], None
    ends = field.ids[np.stack([field.source[inner], field.target[inner]])]
    if graph.has_types and not graph.types.flat:
        classes = torch.from_numpy(graph.types.node_type[ids])
    elif not graph.has_types and graph.y is not None and not graph.y.is_floating_point():
        classes = graph.y.cpu()[torch.from_numpy(ids)]
    return FieldRecord(
        ids=torch.from_numpy(ids),
        hops=torch.from_numpy(field.hops),
        edge_index=torch.from_numpy(ends),
        classes=classes,
        num_nodes=graph.num_nodes,
        num_features=graph.num_features,
    )


def _named(
    credit: dict[str, Credit], graph: Graph, field: Field, players: Players, apart: bool
) -> dict[str, Credit]:
    """Credit with names of all players of a graph with types."""
    edges = field.edges[_first_edges(field, players)].tolist()
    labels = {
        "feature": map(graph.types.feature_label, credit["feature"].ids.tolist()),
        "node": map(graph.types.label, credit["node"].ids.tolist()),
        "edge": (edge_label(graph, edge, apart) for edge in edges),
    }
    return {
        kind: replace(part, names=part.names or tuple(labels[kind])) if part.players else part
        for kind, part in credit.items()
    }


def _types(query: Query, field: Field, players: Players, apart: bool) -> GraphTypes:
    graph, types = query.graph, query.graph.types
    members = field.edges[players.edge_members]
    kinds = types.edge_type[members]
    edge_starts = (0, graph.num_edges) if types.flat else tuple(types.edge_starts.tolist())
    return GraphTypes(
        flat=types.flat,
        node_types=types.node_types,
        node_starts=tuple(types.node_starts.tolist()),
        feature_starts=(*(block.start for block in types.blocks.values()), graph.num_features),
        edge_types=types.edge_types,
        edge_starts=edge_starts,
        labels=tuple(map(types.label, field.ids[: field.size].tolist())),
        field_edge_types=torch.from_numpy(types.edge_type[field.edges[field.inner_edges]]),
        edge_members=torch.from_numpy(members),
        edge_owners=torch.from_numpy(players.edge_owner.astype(np.int64)),
        edge_member_types=torch.from_numpy(kinds if apart else graph.relation_of[kinds]),
        relation=query.relation,
    )
