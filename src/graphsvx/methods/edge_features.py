"""Features of edges as players: the columns of `edge_attr`.

A switched-off column has its mean (categories: the mode) at every edge, or the value of the
reference. A coalition costs one model call on the receptive field; some coalitions are evaluated
again on the whole graph, and all of them if these differ.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, allclose, as_tensor, derive_rng
from graphsvx.core.players import Reference
from graphsvx.core.query import Query
from graphsvx.errors import InputError
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.methods.local_graph import LocalGraph, graph_around, local_graph_of
from graphsvx.methods.pipeline import Prediction, columns_of
from graphsvx.methods.playing import Plan
from graphsvx.methods.record import build_explanation, game_report
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation

# Coalitions that are evaluated again on the whole graph, besides the empty and the full one.
_REPLAYS = 6


def explain_edge_features(plan: Plan, reference: Reference, method: object) -> Explanation:
    """Shapley values of the columns of edge_attr that have another value at some edge."""
    query, sampling, budget = plan.query, plan.sampling, plan.budget.first_calls
    if sampling.selective:
        raise InputError(
            'a Lasso chooses nodes and features; leave it out with players="edge_attr"'
        )
    table, other = _columns(query, reference)
    columns = torch.nonzero((table != other).any(0))[:, 0]
    local = graph = local_graph_of(query, plan.seed)
    count, evaluator = len(columns), local.evaluator

    def scores(graph: LocalGraph, coalitions: Bools) -> Tensor:
        """Scores of the graph with the other columns switched off, [coalitions, outputs]."""
        rows, listed = table[as_tensor(graph.edges, table.device)], list[Tensor]()
        for coalition in coalitions:
            off = columns[as_tensor(np.flatnonzero(~coalition), rows.device)]
            changed = rows.clone()
            changed[:, off] = other[off]
            out = graph.outputs(edge_attr=changed.reshape(graph.others["edge_attr"].shape))
            listed.append(query.scores(graph.explained(out)[None])[0].cpu())
        return torch.stack(listed)

    draws, ends = np.random.default_rng(plan.seed), empty_and_full(count)
    if evaluator.local:
        probes = np.concatenate([ends, draws.random((_REPLAYS, count)) < 0.5])
        whole_graph = graph_around(query, evaluator, None)
        if not allclose(scores(local, probes), scores(whole_graph, probes)):
            graph = whole_graph
    proved = evaluator.checks.proved or not evaluator.local or graph is not local
    game = FunctionGame(lambda rows: scores(graph, rows), count)
    masks = sampling.draw(game, budget, derive_rng(plan.seed, "edge features"))
    values = game.values(np.concatenate([game.states(ends), masks.states]))
    prediction = Prediction.of(query, evaluator, values[1])
    values = values[:, columns_of(prediction.outputs)]
    fit, names = sampling.estimator(masks, values[2:], *values[:2]), query.names.edge_features
    labels = tuple(names[i] if names else f"edge feature {i}" for i in columns.tolist())
    explanation = build_explanation(
        method,
        plan.seed,
        prediction,
        bases=fit.base,
        features=Credit(columns.cpu(), fit.values, fit.errors, labels),
        meaning="Shapley value: the edge feature's fair share of the difference between the "
        "prediction and the base value",
        game=game_report(
            "edge features",
            count,
            game.calls,
            type(sampling.mask).__name__,
            exact=masks.exact and proved,
            exact_if_shortcuts_hold=masks.exact and not proved,
            replayed=0 if proved else _REPLAYS + 2,
            budget=budget,
            coalitions=len(masks.rows) + 2,
            r2=float(fit.r2[prediction.row]),
        ),
    )
    field = replace(explanation.field, num_features=table.shape[1])
    return replace(explanation, field=field)


def _columns(query: Query, reference: Reference) -> tuple[Tensor, Tensor]:
    """edge_attr as [edges, columns], and the value of each switched-off column."""
    attr = query.graph.edge_attr
    if attr is None or "edge_attr" not in query.model.takes:
        raise InputError(
            'players="edge_attr" needs data.edge_attr and a model that takes edge_attr; '
            f"the model takes {sorted(query.model.plan.attributes)}"
        )
    table = attr.reshape(len(attr), -1)
    if reference is None:
        quantities = table.is_floating_point()
        other = table.double().mean(0) if quantities else table.long().mode(0).values.double()
    elif isinstance(reference, tuple) and len(reference) == table.shape[1]:
        other = torch.tensor(reference, dtype=torch.float64, device=table.device)
    else:
        raise InputError(
            f"reference must be a vector with one value for each of the {table.shape[1]} columns "
            f"of edge_attr, got {reference!r}"
        )
    return table, other.to(table.dtype)
