"""The record of an explanation: credit by kind of players, certificate, receptive field, types."""

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
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.profile import profile_for
from graphsvx.engine.structure import LOW_PRECISION
from graphsvx.estimators import Index, Lasso
from graphsvx.estimators.interactions import interactions
from graphsvx.generators import RemoveRows
from graphsvx.methods.increments import calls_needed, limited_by_cost
from graphsvx.methods.pipeline import FittedGame, Prediction
from graphsvx.methods.playing import Plan, PlayedGames
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import Credit, Interactions, RegionErrors, branch_of, hop_of
from graphsvx.results.details import FieldRecord, GraphTypes, Groups, Selection
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
# Of the absolute sum of credit: a total below it has no shares.
_NEAR_ZERO = 1e-3
_MOST_MEMBERSHIPS = 1 << 20


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
        players: on typed graphs, who `edges` are.
        apart: an edge type and its reverse are counted apart.
        facts: further fields of the certificate.
        details: further fields of the explanation.

    """
    query, evaluator, outputs = prediction.query, prediction.evaluator, prediction.outputs
    none = torch.zeros(len(outputs), 0, dtype=torch.float64)
    credit = {
        "feature": features or Credit.none(len(outputs)),
        "node": nodes or Credit.none(len(outputs)),
        "edge": edges or Credit(torch.zeros(2, 0, dtype=torch.long), none, none),
    }
    if "field" not in details:
        details["field"] = _field(query, evaluator)
    if query.graph.has_types:
        players = players or Players()
        credit = _named(credit, query.graph, evaluator.field, players, apart)
        details["types"] = _types(query, evaluator.field, players, apart)
    explained = prediction.scores.detach().double().cpu()[list(outputs)]
    bases = torch.zeros_like(explained) if bases is None else bases.double().cpu()
    residual = explained - bases - torch.cat([part.values for part in credit.values()], 1).sum(1)
    return Explanation(
        **({"kind": query.kind} | details),
        node_credit=credit["node"],
        feature_credit=credit["feature"],
        edge_credit=credit["edge"],
        centres=tuple(query.centres.tolist()),
        outputs=outputs,
        target=prediction.target,
        bases=bases,
        predictions=explained,
        certificate=Certificate(
            games=(game,) if isinstance(game, GameReport) else tuple(game),
            residual=float(residual[outputs.index(prediction.target)]),
            seed=seed,
            depth=evaluator.depth,
            checks=evaluator.checks.passed,
            fallback=evaluator.checks.fallback,
            **(facts or {}),
        ),
        method=repr(method),
        meaning=meaning,
        scale=query.model.scale,
        class_names=query.class_names,
    )


# --- players and the receptive field, in the user's ids -------------------------------------


def credits(field: Field, players: Players, values: Tensor, errors: Tensor) -> dict[str, Any]:
    """Features, nodes and edges, from columns in this order; a group has its first member's id."""
    columns, nodes = players.feature_members, field.ids[players.node_members]
    first = _first_edges(field, players)
    ids = {
        "features": columns[_first(players.feature_owner, columns)],
        "nodes": nodes[_first(players.node_owner, nodes)],
        "edges": field.ids[np.stack([field.source[first], field.target[first]])],
    }
    ends = np.cumsum([0, players.features, players.nodes, players.edges]).tolist()
    return {
        side: Credit(
            torch.from_numpy(ids[side]),
            values[:, start:end],
            errors[:, start:end],
            players.names.get(side),
        )
        for side, start, end in zip(ids, ends, ends[1:], strict=False)
    }


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


def _groups(field: Field, players: Players) -> Groups:
    """The members of each named player."""
    edges = players.edge_members
    ends = field.ids[np.stack([field.source[edges], field.target[edges]], 1)]

    def members(side: str, ids: Ids, owner: Ids) -> dict[str, list[Any]]:
        names = players.names.get(side, ())
        return {name: ids[owner == i].tolist() for i, name in enumerate(names)}

    features = members("features", players.feature_members, players.feature_owner)
    nodes = members("nodes", field.ids[players.node_members], players.node_owner)
    return Groups(
        {name: tuple(columns) for name, columns in features.items()},
        {name: tuple(ids) for name, ids in nodes.items()},
        {
            name: tuple((u, v) for u, v in pairs)
            for name, pairs in members("edges", ends, players.edge_owner).items()
        },
    )


def _field(query: Query, evaluator: Evaluator) -> FieldRecord:
    """The receptive field without its boundary."""
    field, graph = evaluator.field, query.graph
    inner = field.inner_edges
    ids = field.ids[: field.size]
    ends = field.ids[np.concatenate([field.source[inner], field.target[inner]])].reshape(2, -1)
    classes = None
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
        field_edge_types=_tensor(types.edge_type[field.edges[field.inner_edges]]),
        edge_members=_tensor(members),
        edge_owners=_tensor(players.edge_owner.astype(np.int64)),
        edge_member_types=_tensor(kinds if apart else graph.relation_of[kinds]),
        relation=query.relation,
    )


def _tensor(ids: Ids) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids))


# --- explanations by GraphSVX ---------------------------------------------------------------


def record(
    plan: Plan, played: PlayedGames, method: object, index: Index, order: int
) -> Explanation:
    """The explanation from played games."""
    prediction, games, players = played.prediction, played.games, played.setup.players
    field, selective = prediction.evaluator.field, isinstance(plan.sampling.estimator, Lasso)
    field_record = _field(plan.query, prediction.evaluator)
    outputs, row = prediction.outputs, prediction.outputs.index(prediction.target)
    values = torch.cat([game.fit.values for game in games], 1)
    errors = torch.cat([game.fit.errors for game in games], 1)
    base = games[0].fit.base.clone()
    for game in games[1:]:
        base += game.fit.base - game.rows(outputs).empty
    credit = credits(field, players, values, errors)
    return build_explanation(
        method,
        plan.seed,
        prediction,
        **credit,
        bases=base,
        players=players,
        apart=vars(plan.kind).get("directions") == "apart",
        meaning=LASSO_SHARE if selective else SHAPLEY_VALUE,
        game=[
            _report(game, row, type(plan.sampling.mask).__name__)
            for game in games
            if game.game.players
        ],
        facts=_facts(plan, played, values[row], errors[row]),
        reference=vars(plan.kind).get("reference"),
        groups=_groups(field, players) if players.names else None,
        selection=_selection(played) if selective else None,
        interactions=_interactions(games, outputs, index, order) if order > 1 else None,
        field=field_record,
        region_errors=_region_errors(field_record, credit["nodes"], games),
    )


def _report(game: FittedGame, row: int, mask: str) -> GameReport:
    """A game's entry in the certificate; `row`: position of the target among the outputs."""
    fit, proved = game.fit, game.game.evaluator.checks.proved
    # Exact rows alone do not make Shapley values: a Lasso leaves players out.
    no_estimate = game.masks.exact and not bool(fit.errors.any())
    return GameReport(
        name=game.game.side,
        players=game.game.players,
        exact=no_estimate and proved,
        exact_if_shortcuts_hold=no_estimate and not proved,
        replayed=0 if proved else game.game.replayed,
        budget=game.budget,
        calls=game.game.calls,
        coalitions=len(game.masks.rows) + 2 + game.measured,
        r2=float(fit.r2[row]),
        mask=mask,
        model=fit.model,
        held_out_r2=None if fit.held_out_r2 is None else float(fit.held_out_r2[row]),
    )


def _facts(plan: Plan, played: PlayedGames, values: Tensor, errors: Tensor) -> dict[str, Any]:
    """Of the certificate: how sure values are; `values` and `errors` are the target's."""
    goal, budget, games = plan.goal, plan.budget, played.games
    size, estimated = float(values.norm()), bool(errors.any())
    needed = [] if goal is None else goal.needed([game.fit for game in games])
    has_errors = not bool(errors.isnan().any())
    by_default = goal is not None and budget.most_calls is None
    return {
        "tolerance_met": None if budget.tolerance is None else max(needed, default=0) <= 1,
        "relative_error": float(errors.norm()) / size if has_errors and size > 0 else None,
        "calls_needed": None if goal is None else calls_needed(goal, games),
        "by_clock": budget.seconds is not None and estimated,
        "by_cost": by_default and estimated and limited_by_cost([game.game for game in games]),
        "no_influence": _no_influence(plan, played),
        "precision": _low_precision(plan.query, games[-1].game.played().dtype),
    }


def _low_precision(query: Query, output: torch.dtype) -> str | None:
    """The type that the model computes in if it is below single precision, by what was seen."""
    device, structure = query.graph.x.device.type, profile_for(query.model, query.graph).structure
    dtype, part = structure and structure.precision, " in part"
    if output in LOW_PRECISION:
        dtype, part = output, ""
    elif torch.is_autocast_enabled(device):
        dtype, part = torch.get_autocast_dtype(device), " (autocast)"
    return None if dtype is None else f"{str(dtype).removeprefix('torch.')}{part}"


def _region_errors(
    field: FieldRecord, nodes: Credit, games: Sequence[FittedGame]
) -> RegionErrors | None:
    """Standard errors of node credit by hop and branch; None where values are exact or unnamed."""

    def of_sums(labels: Ids) -> Tensor:
        """Of credit summed by label, [outputs, labels]; NaN for very many of them."""
        groups = np.unique(labels)
        if len(groups) * len(labels) > _MOST_MEMBERSHIPS:
            return torch.full((len(fit.values), len(groups)), torch.nan, dtype=torch.float64)
        return torch.from_numpy(fit.group_credit(groups[:, None] == labels)[1])

    for game in games:
        fit, plain = game.fit, nodes.names is None and game.game.players == nodes.players
        if game.game.side == "nodes" and plain and bool(fit.errors.any()):
            return RegionErrors(
                of_sums(hop_of(field, nodes.ids)), of_sums(branch_of(field, nodes.ids))
            )
    return None


def _interactions(
    games: Sequence[FittedGame], outputs: Sequence[int], index: Index, order: int
) -> Interactions:
    """Interactions within each game, as one record over all players."""
    members = [np.zeros((0, order), dtype=np.int64)]
    values, errors = ([np.zeros((0, len(outputs)))] for _ in range(2))
    first = left_out = 0
    for game in games:
        fit, players = game.fit, game.game.players
        by_size = (
            interactions(
                *game.rows(outputs),
                index=index,
                order=order,
                credit=fit.values.t().numpy(),
                errors=fit.errors.t().numpy(),
            )
            if players
            else []
        )
        for part in by_size:
            unused = order - part.members.shape[1]
            members.append(np.pad(part.members + first, ((0, 0), (0, unused)), constant_values=-1))
            values.append(part.values)
            errors.append(part.errors)
        left_out += players - len(np.unique(by_size[-1].members)) if players > order else 0
        first += players
    sets, of_sets, bars = (
        torch.from_numpy(np.concatenate(part).T.copy()) for part in (members, values, errors)
    )
    return Interactions(index.name, order, sets, of_sets, bars, left_out)


def _selection(played: PlayedGames) -> Selection:
    """How much of the prediction the players that a selective regression chose carry."""
    games, target = played.games, played.prediction.target
    row, alone = played.prediction.outputs.index(target), 0.0
    for i, played_game in enumerate(games):  # the score with only the chosen players on
        game, has_credit = played_game.game, (played_game.fit.values[row] != 0).numpy()[None]
        value = float(game.values(game.states(has_credit))[0, target])
        alone += value if i == 0 else value - float(played_game.values[0, target])
    complete = [game.fit.complete[row] for game in games if game.fit.complete is not None]
    credit, selected = torch.cat(complete), torch.cat([g.fit.values[row] for g in games]) != 0
    total, small = float(credit.sum()), _NEAR_ZERO * float(credit.abs().sum())
    return Selection(
        chosen=int(selected.sum()),
        players=len(selected),
        carried=float(credit[selected].sum()) / total if abs(total) > small else None,
        alone=alone,
    )


# --- whether any player changes the output, and what to try where none does ------------------

_ROUNDING = 64  # units in the last place that values of the same output may differ by
_MOST_ROUNDING = 1e-4  # of the value: in half precision, more is influence


def _no_influence(plan: Plan, played: PlayedGames) -> str | None:
    """The reason why no player changes the explained outputs; None: one does, or none plays.

    Features may have none where nodes have: only if they play alone this is said of them.
    """
    query, outputs = plan.query, list(played.prediction.outputs)
    games = [game for game in played.games if game.game.players]
    flat = [game for game in games if _is_flat(game, outputs)]
    if not flat or ({game.game.side for game in flat} == {"features"} and len(flat) < len(games)):
        return None
    kind = {"features": "feature", "edges": "edge"}.get(flat[-1].game.side, "node")
    fact = f"no {kind} changes the output"
    scores = flat[-1].values[1, outputs]
    if query.model.scale == "probability" and bool(((scores < 1e-9) | (scores > 1 - 1e-9)).all()):
        return f'{fact}: the probability is {float(scores[0]):.0f} throughout; use scale="log_odds"'
    if kind == "feature":
        return f"{fact}: the model does not read x, or only where it is the reference"
    if isinstance(plan.generator, RemoveRows):
        return f"{fact}, although switched-off nodes are removed: the model ignores them"
    takes = ", ".join(sorted(query.model.plan.attributes))
    return (
        f"{fact}: the model, which takes {takes}, gives the same output whatever edges are cut; "
        f"if it makes edges of its own (from positions or features) or mixes all nodes, use "
        f'GraphSVX(erase="rows")'
    )


def _is_flat(game: FittedGame, outputs: list[int]) -> bool:
    """Whether all coalitions have the same values, but for rounding."""
    values, dtype = game.values[:, outputs], game.game.played().dtype
    unit = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    rounding = min(_MOST_ROUNDING, _ROUNDING * unit) * values.abs().amax(0)
    return bool((values.amax(0) - values.amin(0) <= rounding).all())
