"""Features of edges as players: the columns of `edge_attr`.

A switched-off column has its mean (categories: the mode) at every edge, or the value of the
reference. A coalition costs one model call on the receptive field; some coalitions are evaluated
again on the whole graph, and all of them if these differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, as_tensor
from graphsvx.core.query import Query
from graphsvx.core.random import derive_rng
from graphsvx.core.reference import Reference
from graphsvx.engine.rounding import allclose
from graphsvx.errors import InputError
from graphsvx.estimators.lasso import Lasso
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.masks.base import Masks
from graphsvx.methods.baseline import (
    LocalGraph,
    Prediction,
    build_explanation,
    game_report,
    local_graph_of,
    whole_graph_of,
)
from graphsvx.methods.playing import Plan
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation

# Coalitions that are evaluated again on the whole graph, besides the empty and the full one.
_REPLAYS = 6


def explain_edge_features(plan: Plan, reference: Reference, method: object) -> Explanation:
    """Shapley values of the columns of edge_attr."""
    query, seed, samples = plan.query, plan.seed, plan.budget.first_calls
    table = _table(query)
    if isinstance(plan.estimator, Lasso):
        raise InputError(
            'a Lasso chooses nodes and features; leave it out with players="edge_attr"'
        )
    other = _reference(table, reference)
    players = torch.nonzero((table != other.to(table.dtype)).any(0))[:, 0]
    local = local_graph_of(query, seed)
    calls, masks, values, proved = _play(plan, local, table, other, players)
    prediction = Prediction.of(query, local.evaluator, values[1])
    outputs = prediction.outputs
    scores = values[:, outputs[0] : outputs[-1] + 1]
    fit = plan.estimator(masks, scores[2:], scores[0], scores[1])
    names = query.names.edge_features
    credit = Credit(
        players.cpu(),
        fit.values,
        fit.errors,
        tuple(names[i] if names else f"edge feature {i}" for i in players.tolist()),
    )
    explanation = build_explanation(
        method, seed, prediction, bases=fit.base, features=credit,
        meaning="Shapley value: the edge feature's fair share of the difference between the "
        "prediction and the base value",
        game=game_report(
            "edge features", len(players), calls, type(plan.mask).__name__,
            exact=masks.exact and proved, exact_if_shortcuts_hold=masks.exact and not proved,
            replayed=0 if proved else _REPLAYS + 2,
            budget=samples, coalitions=len(masks.rows) + 2,
            r2=float(fit.r2[outputs.index(prediction.target)]),
        ),
    )  # fmt: skip
    field = replace(explanation.field, num_features=table.shape[1])
    return replace(explanation, field=field)


def _table(query: Query) -> Tensor:
    """edge_attr as [edges, columns]."""
    attr = query.graph.edge_attr
    if attr is None or "edge_attr" not in query.model.takes:
        raise InputError(
            'players="edge_attr" needs data.edge_attr and a model that takes edge_attr; '
            f"the model takes {sorted(query.model.plan.attributes)}"
        )
    return attr.reshape(len(attr), -1)


def _reference(table: Tensor, reference: Reference) -> Tensor:
    if reference is None:
        if table.is_floating_point():
            return table.double().mean(0)
        return table.long().mode(0).values.double()
    if not isinstance(reference, tuple) or len(reference) != table.shape[1]:
        raise InputError(
            f"reference must be a vector with one value for each of the {table.shape[1]} columns "
            f"of edge_attr, got {reference!r}"
        )
    return torch.tensor(reference, dtype=torch.float64, device=table.device)


def _play(
    plan: Plan, local: LocalGraph, table: Tensor, other: Tensor, players: Tensor
) -> tuple[int, Masks, Tensor, bool]:
    """Number of calls, coalitions, the scores of the empty, the full and these coalitions, and
    whether these are proved to be those of calls on the whole graph."""
    query, seed, device = plan.query, plan.seed, table.device

    def function(graph: LocalGraph) -> Callable[[Bools], Tensor]:
        rows = table[as_tensor(graph.edges, device)]
        shape = rows.shape if graph.edge_attr is None else graph.edge_attr.shape

        def scores(coalitions: Bools) -> Tensor:
            listed = []
            for coalition in coalitions:
                off = players[as_tensor(np.flatnonzero(~coalition), device)]
                changed = rows.clone()
                changed[:, off] = other[off].to(rows.dtype)
                out = graph.outputs(edge_attr=changed.reshape(shape))
                listed.append(query.scores(graph.explained(out)[None])[0].cpu())
            return torch.stack(listed)

        return scores

    in_field, on_graph = function(local), function(whole_graph_of(query, local.evaluator))
    rng = np.random.default_rng(seed)
    probes = np.concatenate(
        [empty_and_full(len(players)), rng.random((_REPLAYS, len(players))) < 0.5]
    )
    agree = not local.evaluator.local or allclose(in_field(probes), on_graph(probes))
    game = FunctionGame(in_field if agree else on_graph, len(players))
    if len(players):
        masks = plan.mask(game, plan.budget.first_calls, derive_rng(seed, "edge features"))
    else:
        none = np.zeros((0, 0), dtype=bool)
        masks = Masks(none, game.states(none), np.zeros(0), exact=True)
    ends = game.states(empty_and_full(len(players)))
    values = game.values(np.concatenate([ends, masks.states]))
    shortcut = local.evaluator.local and agree
    return game.calls, masks, values, local.evaluator.checks.proved or not shortcut
