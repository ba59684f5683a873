"""What the other explainers share: the question, the prediction to explain, and the record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.perturbation import Perturbations
from graphsvx.core.players import FeatureChoice, Players, Sides, find_players
from graphsvx.core.query import Query
from graphsvx.engine.choose import evaluate
from graphsvx.engine.evaluator import Evaluator
from graphsvx.errors import UnsupportedError
from graphsvx.generators import GameSetup
from graphsvx.methods.base import Blocks
from graphsvx.methods.build_explanation import field_record, no_edges, with_types
from graphsvx.methods.player_kinds import KINDS
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked

_KINDS = {"node": "a node", "nodes": "a group of nodes", "graph": "a graph", "edge": "an edge"}


@dataclass(frozen=True)
class Baseline(Checked, ABC):
    """An explainer in the framework MASK, GEN, EXPL: its settings, and `explain`, its algorithm."""

    blocks: ClassVar[Blocks]
    explains_typed_graphs: ClassVar[bool] = False

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; an UnsupportedError for questions that the method does not answer."""
        self.check_kind(query)
        return self.explain(query, seed)

    def check_kind(self, query: Query) -> None:
        """Whether the method answers this kind of question.

        Raises:
            UnsupportedError: it does not.

        """
        # A model is explained through the question about a graph.
        kinds = ["graph" if task == "model" else task for task in self.blocks.tasks]
        if query.kind not in kinds and not query.graph.has_types:
            supported = " or ".join(_KINDS[kind] for kind in kinds)
            raise UnsupportedError(
                f"{type(self).__name__} explains {supported}, got a question about "
                f"{_KINDS[query.kind]}; choose another method"
            )

    @abstractmethod
    def explain(self, query: Query, seed: int) -> Explanation:
        """The method's algorithm."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is explained: the scores of the unperturbed graph, and which of them."""

    query: Query
    evaluator: Evaluator
    scores: Tensor
    """Of all outputs, [outputs]."""
    outputs: tuple[int, ...]
    """Those that are explained."""
    target: int

    @staticmethod
    def of(query: Query, evaluator: Evaluator, scores: Tensor) -> Prediction:
        """The prediction with the outputs that the query asks for."""
        return Prediction(query, evaluator, scores, *query.choose_outputs(scores))


def baseline_setup(
    query: Query,
    evaluator: Evaluator,
    sides: Sides,
    features: FeatureChoice = "all",
    hops: int | None = None,
) -> GameSetup:
    """The players of a baseline, as those of GraphSVX; each edge is a player of its own.

    A typed graph has no features of its own: of both, its nodes play.
    """
    field, graph = evaluator.field, query.graph
    if query.graph.has_types:
        if query.kind == "graph" and sides == "both":
            sides = "nodes"
        settings: dict[str, Any] = {} if sides in ("nodes", "edges") else {"features": features}
        setup = KINDS[sides](hops=hops, **settings).setup(query, evaluator, 0)
        return replace(setup, keeps_features=not setup.players.features)
    if sides == "edges":
        inner = field.inner_edges[np.argsort(field.edges[field.inner_edges])]
        players = Players(edge_members=inner, edge_owner=np.arange(len(inner)))
    else:
        players = find_players(graph, field, hops, features, sides)
    return GameSetup(graph, field, players, graph.statistics.mean)


def perturbed_scores(query: Query, evaluator: Evaluator, perturbations: Perturbations) -> Tensor:
    """Scores of perturbed graphs, [graphs, outputs], by the query's evaluator."""
    return query.scores(evaluate(evaluator, perturbations)).cpu()


def game_report(name: str, players: int, calls: int, mask: str, **details: Any) -> GameReport:
    """A baseline's entry in the certificate; R² is None without a surrogate."""
    counts: dict[str, Any] = {"exact": False, "budget": calls, "coalitions": calls, "r2": None}
    return GameReport(name, players, calls=calls, mask=mask, **{**counts, **details})


def build_explanation(
    method: object,
    seed: int,
    prediction: Prediction,
    *,
    meaning: str,
    game: GameReport,
    nodes: Credit | None = None,
    features: Credit | None = None,
    edges: Credit | None = None,
    bases: Tensor | None = None,
    players: Players | None = None,
    **details: Any,
) -> Explanation:
    """The record, with the residual prediction - base - total in its certificate.

    Args:
        method: the explainer, which is recorded by its `repr`.
        seed: what its random numbers were made from.
        prediction: what is explained.
        meaning: what a value means, in one sentence.
        game: how the model was called (`game_report`).
        nodes: credit of nodes, values [outputs, players]; likewise `features` and `edges`.
        bases: where credit starts from, [outputs], 0 by default. The residual is 0 only for
            methods that satisfy the efficiency axiom.
        players: on typed graphs, who `edges` are.
        details: further fields of the explanation.

    """
    query, evaluator, outputs = prediction.query, prediction.evaluator, prediction.outputs
    explained = prediction.scores.detach().double().cpu()[list(outputs)]
    none = torch.zeros(len(outputs), dtype=torch.float64)
    bases = none if bases is None else bases.double().cpu()
    parts = {
        "node_credit": nodes or Credit.none(len(outputs)),
        "feature_credit": features or Credit.none(len(outputs)),
        "edge_credit": edges or no_edges(len(outputs)),
    }
    residual = explained - bases - sum((part.values.sum(1) for part in parts.values()), none)
    fields: dict[str, Any] = {"kind": query.kind, "field": field_record(query, evaluator)}
    explanation = Explanation(
        **(fields | parts | details),
        centres=tuple(query.centres.tolist()),
        outputs=outputs,
        target=prediction.target,
        bases=bases,
        predictions=explained,
        certificate=Certificate(
            games=(game,),
            residual=float(residual[outputs.index(prediction.target)]),
            seed=seed,
            depth=evaluator.depth,
            checks=evaluator.checks.passed,
            fallback=evaluator.checks.fallback,
        ),
        method=repr(method),
        meaning=meaning,
        scale=query.model.scale,
        class_names=query.class_names,
    )
    return with_types(explanation, query, evaluator.field, players or Players(), apart=False)
