"""Baselines on typed graphs: who plays, and gradients in the features of all node types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.players import FeatureChoice
from graphsvx.core.query import Query
from graphsvx.engine.checks import unperturbed
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import Evaluator, Plain
from graphsvx.generators import GameSetup
from graphsvx.methods.build_explanation import credits
from graphsvx.methods.local_graph import build_explanation, model_restored
from graphsvx.methods.names_by_type import with_types
from graphsvx.methods.player_kinds import Edges, Features, Nodes, NodesAndFeatures, PlayerKind
from graphsvx.results.certificate import GameReport
from graphsvx.results.explanation import Explanation

Sides = Literal["both", "nodes", "features", "edges"]
FeaturesByType = Mapping[str, Tensor]
Attribution = Callable[[Callable[[FeaturesByType], Tensor], FeaturesByType], FeaturesByType]
"""From a score of features, and the features, to a number for each of them."""


def baseline_setup(
    query: Query, evaluator: Evaluator, sides: Sides, features: FeatureChoice,
    hops: int | None = None,
) -> GameSetup:  # fmt: skip
    """The players of a baseline in the typed receptive field, as those of GraphSVX.

    A graph has no features of its own: of both, its nodes play.
    """
    if query.kind == "graph" and sides == "both":
        sides = "nodes"
    kinds: dict[Sides, PlayerKind] = {
        "both": NodesAndFeatures(hops=hops, features=features),
        "nodes": Nodes(hops=hops),
        "features": Features(hops=hops, features=features),
        "edges": Edges(hops=hops),
    }
    setup = kinds[sides].for_query(query).setup(query, evaluator, 0)
    return replace(setup, keeps_features=not setup.players.features)


def explain_players(
    query: Query,
    method: Any,
    seed: int,
    setup: Callable[[Evaluator], GameSetup],
    credit_of: Callable[[GameSetup, tuple[int, ...]], Tensor],
    game: Callable[[int, int], GameReport],
    meaning: str,
    bases: Callable[[Field], Tensor] | None = None,
) -> Explanation:
    """An explanation from the credit [outputs, players] of features, nodes and edges.

    `game` is called with the number of players and of outputs; `bases` gives the scores [all
    outputs] that credit starts from.
    """
    evaluator = choose_evaluator(query, None, seed)
    game_setup = setup(evaluator)
    field, players = game_setup.field, game_setup.players
    predictions = typed_scores(query, field)
    outputs, target = query.choose_outputs(predictions)
    values = credit_of(game_setup, outputs)
    features, nodes, edges = credits(field, players, values, torch.full_like(values, torch.nan))
    explanation = build_explanation(
        query, evaluator, method, seed, outputs=outputs, target=target, predictions=predictions,
        features=features, nodes=nodes, edges=edges, meaning=meaning,
        games=(game(values.shape[1], len(outputs)),),
        bases=None if bases is None else bases(field)[list(outputs)],
    )  # fmt: skip
    return with_types(explanation, query, field, players, apart=False)


def typed_scores(query: Query, field: Field, features: FeaturesByType | None = None) -> Tensor:
    """Scores [outputs] of the unperturbed graph by a plain call; differentiable in `features`."""
    if features is not None:
        graph = query.graph
        query = replace(query, graph=graph.with_features(features))
    return query.scores(Plain(query, field).evaluate(field, unperturbed(query, field)))[0]


def float_features(graph: Graph) -> dict[str, Tensor]:
    """Features of the node types that have columns of numbers."""
    return {name: x.detach() for name, x in graph.types.features.items() if graph.types.width(name)}


def explain_by_gradients(
    query: Query,
    method: Any,
    seed: int,
    attribution: Attribution,
    game: Callable[[int, int], GameReport],
    meaning: str,
    bases: Callable[[Field], Tensor] | None = None,
) -> Explanation:
    """Credit of nodes, and of the explained nodes' features, from an attribution of all features.

    Nodes of types without features have none.
    """
    graph, x = query.graph, float_features(query.graph)

    def credit_of(setup: GameSetup, outputs: tuple[int, ...]) -> Tensor:
        def score(output: int) -> Callable[[FeaturesByType], Tensor]:
            return lambda features: typed_scores(query, setup.field, features)[output]

        with model_restored(query.model.call):
            attributed = [attribution(score(output), x) for output in outputs]
        return torch.stack([_credit(graph, setup, query, matrices) for matrices in attributed])

    return explain_players(
        query, method, seed, lambda evaluator: baseline_setup(query, evaluator, "both", "all"),
        credit_of, game, meaning, bases,
    )  # fmt: skip


def _credit(graph: Graph, setup: GameSetup, query: Query, matrices: FeaturesByType) -> Tensor:
    nodes = np.zeros(graph.num_nodes)
    columns = np.zeros(graph.num_features)
    for name, matrix in matrices.items():
        at, values = graph.types.type_id(name), matrix.double().cpu().numpy()
        first, last = graph.types.node_starts[at : at + 2]
        nodes[first:last] = values.sum(1)
        explained = query.centres[graph.types.node_type[query.centres] == at] - first
        columns[graph.types.blocks[name]] = values[explained].sum(0)
    players = setup.players
    credit = [
        columns[players.feature_members],
        nodes[setup.field.ids[players.node_members]],
    ]
    return torch.from_numpy(np.concatenate(credit))


def absolute_gradient(
    score: Callable[[FeaturesByType], Tensor], x: FeaturesByType
) -> dict[str, Tensor]:
    """|d score / d x| of each node type."""
    return {name: gradient.abs() for name, gradient in _gradients(score, x).items()}


def integrated_gradient(start: FeaturesByType, steps: int) -> Attribution:
    """Gradients along the line from `start`, by Gauss-Legendre quadrature."""
    knots, weights = np.polynomial.legendre.leggauss(steps)

    def attribution(
        score: Callable[[FeaturesByType], Tensor], x: FeaturesByType
    ) -> dict[str, Tensor]:
        total = {name: torch.zeros_like(value) for name, value in x.items()}
        for knot, weight in zip(knots.tolist(), weights.tolist(), strict=True):
            share = (1 + knot) / 2
            point = {name: torch.lerp(start[name], value, share) for name, value in x.items()}
            for name, gradient in _gradients(score, point).items():
                total[name] += weight / 2 * gradient
        return {name: part * (x[name] - start[name]) for name, part in total.items()}

    return attribution


def _gradients(score: Callable[[FeaturesByType], Tensor], x: FeaturesByType) -> dict[str, Tensor]:
    leaves = {name: value.clone().requires_grad_() for name, value in x.items()}
    with torch.enable_grad():
        gradients = torch.autograd.grad(score(leaves), list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(value) if gradient is None else gradient
        for (name, value), gradient in zip(x.items(), gradients, strict=True)
    }
