"""An explanation by GraphSVX: its games are played, and recorded with what is sure of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.engine.profile import profile_for
from graphsvx.estimators.interactions import interactions
from graphsvx.methods.answers import Question
from graphsvx.methods.increments import calls_needed, limited_by_cost
from graphsvx.methods.pipeline import FittedGame
from graphsvx.methods.player_kinds import Cells, EdgeFeatures
from graphsvx.methods.playing import Plan, PlayedGames
from graphsvx.methods.record import build_explanation, fitted_report, groups_of
from graphsvx.results.credit import Interactions, RegionErrors, branch_of, hop_of
from graphsvx.results.details import Selection
from graphsvx.results.explanation import Explanation

_DIFFERENCE = "the difference between the prediction and the base value"
# What a value means, in an explanation; and where a Lasso chose the players.
_SHAPLEY_VALUE = f"Shapley value: the player's fair share of {_DIFFERENCE}"
_LASSO_SHARE = f"share of {_DIFFERENCE} among the few players that a Lasso chose"
# Of the absolute sum of credit: a total below it has no shares.
_NEAR_ZERO = 1e-3
_MOST_MEMBERSHIPS = 1 << 20


def explanation_of(plan: Question, method: Any) -> Explanation:
    """The explanation by a `GraphSVX`, with what is needed to ask about sets of players later."""
    if isinstance(plan.kind, EdgeFeatures):
        from graphsvx.methods import edge_features  # noqa: PLC0415  (these players only)

        explanation = edge_features.explain_edge_features(plan, plan.kind.reference, method)
        return explanation.with_question(plan)
    played = plan.play()
    explanation = record(plan, played, method)
    if isinstance(plan.kind, Cells):
        from graphsvx.methods.cells import with_cells  # noqa: PLC0415  (these players only)

        explanation = with_cells(explanation, plan, played, plan.kind)
    explanation = plan.kind.finish(explanation)
    played.clock.note_end()
    return explanation.with_question(plan)


def record(plan: Plan, played: PlayedGames, method: Any) -> Explanation:
    """The explanation from played games."""
    prediction, games = played.prediction, played.games
    players, selective = games[-1].game.setup.players, plan.sampling.selective
    field, outputs, row = prediction.evaluator.field, prediction.outputs, prediction.row
    settings = vars(plan.kind)
    values = torch.cat([game.fit.values for game in games], 1)
    errors = torch.cat([game.fit.errors for game in games], 1)
    base = games[0].fit.base.clone()
    for game in games[1:]:
        base += game.fit.base - game.rows(outputs).empty
    explanation = build_explanation(
        method,
        plan.seed,
        prediction,
        bases=base,
        players=players,
        credit=(values, errors),
        apart=settings.get("directions") == "apart",
        meaning=_LASSO_SHARE if selective else _SHAPLEY_VALUE,
        game=[
            fitted_report(game, type(plan.sampling.mask).__name__, row)
            for game in games
            if game.game.players
        ],
        facts=_facts(plan, played, values[row], errors[row]),
        reference=settings.get("reference"),
        groups=groups_of(field, players),
        selection=_selection(played) if selective else None,
        interactions=_interactions(games, outputs, method) if method.order > 1 else None,
    )
    return replace(explanation, region_errors=_region_errors(explanation, games[-1]))


def _facts(plan: Plan, played: PlayedGames, values: Tensor, errors: Tensor) -> dict[str, Any]:
    """Of the certificate: how sure values are; `values` and `errors` are the target's."""
    budget, games = plan.budget, played.games
    size, estimated = float(values.norm()), bool(errors.any())
    needed = plan.goal.needed([game.fit for game in games])
    has_errors = not bool(errors.isnan().any())
    return {
        "tolerance_met": None if budget.tolerance is None else max(needed, default=0) <= 1,
        "relative_error": float(errors.norm()) / size if has_errors and size > 0 else None,
        "calls_needed": calls_needed(needed, games),
        "by_clock": budget.seconds is not None and estimated,
        "by_cost": plan.by_default and estimated and limited_by_cost([g.game for g in games]),
        "no_influence": _no_influence(plan, played),
        "precision": _low_precision(plan, games[-1].game.played().dtype),
    }


def _low_precision(plan: Plan, output: torch.dtype) -> str | None:
    """The type that the model computes in if it is below single precision, by what was seen."""
    query = plan.query
    device, structure = query.graph.x.device.type, profile_for(query.model, query.graph).structure
    dtype, part = structure and structure.precision, " in part"
    if output.is_floating_point and output.itemsize < torch.float32.itemsize:
        dtype, part = output, ""
    elif torch.is_autocast_enabled(device):
        dtype, part = torch.get_autocast_dtype(device), " (autocast)"
    return None if dtype is None else f"{str(dtype).removeprefix('torch.')}{part}"


def _region_errors(explanation: Explanation, played: FittedGame) -> RegionErrors | None:
    """Standard errors of node credit by hop and branch; None where values are exact or unnamed."""
    fit, game, ids = played.fit, played.game, explanation.node_credit.ids
    one_by_one = "nodes" not in game.setup.players.names and game.players == len(ids)
    if game.side != "nodes" or not one_by_one or not bool(fit.errors.any()):
        return None

    def of_sums(labels: Ids) -> Tensor:
        """Of credit summed by label, [outputs, labels]; NaN for very many of them."""
        groups = np.unique(labels)
        if len(groups) * len(labels) > _MOST_MEMBERSHIPS:
            return torch.full((len(fit.values), len(groups)), torch.nan, dtype=torch.float64)
        return torch.from_numpy(fit.group_credit(groups[:, None] == labels)[1])

    return RegionErrors(*(of_sums(label(explanation.field, ids)) for label in (hop_of, branch_of)))


def _interactions(games: Sequence[FittedGame], outputs: Sequence[int], method: Any) -> Interactions:
    """Interactions within each game, as one record over all players."""
    order, none = method.order, np.zeros((0, len(outputs)))
    parts = [(np.zeros((0, order), dtype=np.int64), none, none)]
    first = left_out = 0
    for game in games:
        fit, players = game.fit, game.game.players
        if not players:
            continue
        by_size = interactions(
            *game.rows(outputs),
            index=method.index,
            order=order,
            credit=fit.values.t().numpy(),
            errors=fit.errors.t().numpy(),
        )
        for part in by_size:
            unused = (0, order - part.members.shape[1])
            members = np.pad(part.members + first, ((0, 0), unused), constant_values=-1)
            parts.append((members, part.values, part.errors))
        left_out += players - len(np.unique(by_size[-1].members)) if players > order else 0
        first += players
    sets, of_sets, bars = (
        torch.from_numpy(np.concatenate(part).T.copy()) for part in zip(*parts, strict=True)
    )
    return Interactions(method.index.name, order, sets, of_sets, bars, left_out)


def _selection(played: PlayedGames) -> Selection:
    """How much of the prediction the players that a selective regression chose carry."""
    prediction, alone = played.prediction, 0.0
    complete, selected = list[Tensor](), list[Tensor]()
    for part in played.games:  # the score with only the chosen players on
        game, has_credit = part.game, part.fit.values[prediction.row] != 0
        score = float(game.values(game.states(has_credit.numpy()[None]))[0, prediction.target])
        alone += score - float(part.values[0, prediction.target]) if selected else score
        selected.append(has_credit)
        if part.fit.complete is not None:
            complete.append(part.fit.complete[prediction.row])
    credit, has_credit = torch.cat(complete), torch.cat(selected)
    total, small = float(credit.sum()), _NEAR_ZERO * float(credit.abs().sum())
    return Selection(
        chosen=int(has_credit.sum()),
        players=len(has_credit),
        carried=float(credit[has_credit].sum()) / total if abs(total) > small else None,
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
    if query.removes_rows:
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
