"""The record of an explanation by GraphSVX: credit, certificate, and what is known beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.core.field import Field
from graphsvx.core.players import Players
from graphsvx.core.query import Query
from graphsvx.engine.profile import profile_for
from graphsvx.engine.structure import LOW_PRECISION
from graphsvx.estimators import Fit, Index, Lasso
from graphsvx.estimators.interactions import interactions as estimated_interactions
from graphsvx.generators import Generator, RemoveRows
from graphsvx.methods.build_explanation import credits, field_record
from graphsvx.methods.increments import calls_needed, limited_by_cost
from graphsvx.methods.pipeline import PlayedGame, score_alone
from graphsvx.methods.playing import Plan, PlayedGames
from graphsvx.results.certificate import Certificate
from graphsvx.results.credit import Credit, Interactions, RegionErrors, branch_of, hop_of
from graphsvx.results.details import FieldRecord, Groups, Selection
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


def record(
    plan: Plan, played: PlayedGames, order: int, index: Index, **details: Any
) -> Explanation:
    """The explanation from played games; `details` are further fields of it."""
    query, evaluator, setup = plan.query, played.evaluator, played.setup
    games, fits, outputs, target = played.games, played.fits, played.outputs, played.target
    rows = [game.estimator_rows(outputs) for game in games]
    prediction = rows[-1].full.clone()
    base = fits[0].base.clone()
    for game_rows, fit in zip(rows[1:], fits[1:], strict=True):
        base += fit.base - game_rows.empty
    values = torch.cat([fit.values for fit in fits], 1)
    errors = torch.cat([fit.errors for fit in fits], 1)
    row = outputs.index(target)
    residual = float((prediction - base - values.sum(1))[row])
    features, nodes, edges = credits(evaluator.field, setup.players, values, errors)
    field, selective = field_record(query, evaluator), isinstance(plan.estimator, Lasso)
    return Explanation(
        kind=query.kind,
        centres=tuple(query.centres.tolist()),
        outputs=outputs,
        target=target,
        bases=base,
        predictions=prediction,
        feature_credit=features,
        node_credit=nodes,
        edge_credit=edges,
        certificate=_certificate(plan, played, residual, values[row], errors[row]),
        field=field,
        meaning=LASSO_SHARE if selective else SHAPLEY_VALUE,
        scale=query.model.scale,
        class_names=query.class_names,
        groups=groups(evaluator.field, setup.players) if setup.players.names else None,
        selection=selection(played) if selective else None,
        interactions=interactions(games, fits, outputs, index, order) if order > 1 else None,
        region_errors=region_errors(field, nodes, games, fits),
        **details,
    )


def _certificate(
    plan: Plan, played: PlayedGames, residual: float, values: Tensor, errors: Tensor
) -> Certificate:
    """What was exact and what was checked; `values` and `errors` are the target's."""
    row, evaluator, goal = played.outputs.index(played.target), played.evaluator, plan.goal
    size, has_errors = float(values.norm()), not bool(errors.isnan().any())
    estimated, needed = bool(errors.any()), [] if goal is None else goal.needed(played.fits)
    return Certificate(
        games=tuple(
            game.report(fit, row, type(plan.mask).__name__)
            for game, fit in zip(played.games, played.fits, strict=True)
            if game.game.players
        ),
        residual=residual,
        seed=plan.seed,
        depth=evaluator.depth,
        checks=evaluator.checks.passed,
        fallback=evaluator.checks.fallback,
        tolerance_met=None if plan.budget.tolerance is None else max(needed, default=0) <= 1,
        relative_error=float(errors.norm()) / size if has_errors and size > 0 else None,
        calls_needed=None if goal is None else calls_needed(goal, played.games, played.fits),
        by_clock=plan.budget.seconds is not None and estimated,
        no_influence=no_influence(plan.query, plan.generator, played.games, played.outputs),
        by_cost=plan.by_default
        and estimated
        and limited_by_cost([game.game for game in played.games]),
        precision=_low_precision(plan.query, played.games[-1].game.played().dtype),
    )


def _low_precision(query: Query, output: torch.dtype) -> str | None:
    """The type that the model computes in if it is below single precision, by what was seen."""
    device, structure = query.graph.x.device.type, profile_for(query.model, query.graph).structure
    if output in LOW_PRECISION:
        return _name(output)
    if torch.is_autocast_enabled(device):
        return f"{_name(torch.get_autocast_dtype(device))} (autocast)"
    if structure is None or structure.precision is None:
        return None
    return f"{_name(structure.precision)} in part"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def groups(field: Field, players: Players) -> Groups:
    """The members of each named player, in the user's ids."""
    ends = np.stack(
        [
            field.ids[field.source[players.edge_members]],
            field.ids[field.target[players.edge_members]],
        ],
        1,
    )
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
            return RegionErrors(
                *(_errors_of_sums(fit, label(field, nodes.ids)) for label in (hop_of, branch_of))
            )
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
            by_size = estimated_interactions(
                *game.estimator_rows(outputs),
                index=index,
                order=order,
                credit=fit.values.t().numpy(),
                errors=fit.errors.t().numpy(),
            )
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


def selection(played: PlayedGames) -> Selection:
    """How much of the prediction the players that a selective regression chose carry."""
    games, fits, row = played.games, played.fits, played.outputs.index(played.target)
    complete = torch.cat([fit.complete[row] for fit in fits if fit.complete is not None])
    selected = torch.cat([fit.values[row] for fit in fits]) != 0
    total = float(complete.sum())
    small = _NEAR_ZERO * float(complete.abs().sum())
    return Selection(
        chosen=int(selected.sum()),
        players=len(selected),
        carried=float(complete[selected].sum()) / total if abs(total) > small else None,
        alone=score_alone(games, fits, row, played.target),
    )


# Whether any player changes the output, and what to try where none does.


_ROUNDING = 64  # units in the last place that values of the same output may differ by
_MOST_ROUNDING = 1e-4  # of the value: in half precision, more is influence


def no_influence(
    query: Query, generator: Generator, played: Sequence[PlayedGame], outputs: Sequence[int]
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
