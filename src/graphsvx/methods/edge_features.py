"""Features of edges as players: the columns of `edge_attr`.

A switched-off column has its mean (categories: the mode) at every edge, or the value of the
reference. A coalition costs one model call on the receptive field; some coalitions are evaluated
again on the whole graph, and all of them if these differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, allclose, as_tensor
from graphsvx.core.query import Query
from graphsvx.core.reference import Reference
from graphsvx.errors import InputError
from graphsvx.games.base import FunctionGame, empty_and_full
from graphsvx.methods.baseline import LocalGraph, local_graph_of, whole_graph_of
from graphsvx.methods.played import Prediction, columns_of
from graphsvx.methods.playing import Plan
from graphsvx.methods.record import build_explanation, game_report
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation

# Coalitions that are evaluated again on the whole graph, besides the empty and the full one.
_REPLAYS = 6


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of edge_attr of a graph, and what they become."""

    table: Tensor
    """edge_attr as [edges of the whole graph, columns]."""
    other: Tensor
    """The value of each switched-off column."""
    players: Tensor
    """Columns with another value at some edge."""

    def scores(self, graph: LocalGraph, coalitions: Bools) -> Tensor:
        """Scores of the graph with the other columns switched off, [coalitions, outputs]."""
        rows = self.table[as_tensor(graph.edges, self.table.device)]
        shape = rows.shape if graph.edge_attr is None else graph.edge_attr.shape
        listed = []
        for coalition in coalitions:
            off = self.players[as_tensor(np.flatnonzero(~coalition), rows.device)]
            changed = rows.clone()
            changed[:, off] = self.other[off].to(rows.dtype)
            out = graph.outputs(edge_attr=changed.reshape(shape))
            listed.append(graph.query.scores(graph.explained(out)[None])[0].cpu())
        return torch.stack(listed)


def explain_edge_features(plan: Plan, reference: Reference, method: object) -> Explanation:
    """Shapley values of the columns of edge_attr."""
    query, seed, names = plan.query, plan.seed, plan.query.names.edge_features
    if plan.sampling.selective:
        raise InputError(
            'a Lasso chooses nodes and features; leave it out with players="edge_attr"'
        )
    columns, local = _columns(query, reference), local_graph_of(query, seed)
    count, evaluator = len(columns.players), local.evaluator
    graph, whole_graph = local, whole_graph_of(query, evaluator)
    draws, ends = np.random.default_rng(seed), empty_and_full(count)
    if evaluator.local:
        probes = np.concatenate([ends, draws.random((_REPLAYS, count)) < 0.5])
        if not allclose(columns.scores(local, probes), columns.scores(whole_graph, probes)):
            graph = whole_graph
    proved = evaluator.checks.proved or not evaluator.local or graph is whole_graph
    game = FunctionGame(lambda rows: columns.scores(graph, rows), count)
    rng = plan.sampling.rng("edge features")
    masks = plan.sampling.draw(game, plan.budget.first_calls, rng)
    values = game.values(np.concatenate([game.states(ends), masks.states]))
    prediction = Prediction.of(query, evaluator, values[1])
    scores = values[:, columns_of(prediction.outputs)]
    fit = plan.sampling.estimator(masks, scores[2:], scores[0], scores[1])
    explanation = build_explanation(
        method,
        seed,
        prediction,
        bases=fit.base,
        features=Credit(
            columns.players.cpu(),
            fit.values,
            fit.errors,
            tuple(names[i] if names else f"edge feature {i}" for i in columns.players.tolist()),
        ),
        meaning="Shapley value: the edge feature's fair share of the difference between the "
        "prediction and the base value",
        game=game_report(
            "edge features",
            count,
            game.calls,
            type(plan.sampling.mask).__name__,
            exact=masks.exact and proved,
            exact_if_shortcuts_hold=masks.exact and not proved,
            replayed=0 if proved else _REPLAYS + 2,
            budget=plan.budget.first_calls,
            coalitions=len(masks.rows) + 2,
            r2=float(fit.r2[prediction.row]),
        ),
    )
    field = replace(explanation.field, num_features=columns.table.shape[1])
    return replace(explanation, field=field)


def _columns(query: Query, reference: Reference) -> _Columns:
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
    return _Columns(table, other, torch.nonzero((table != other.to(table.dtype)).any(0))[:, 0])
