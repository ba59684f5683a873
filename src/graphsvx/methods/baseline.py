"""What an explainer is: `Method`, its description in blocks, and the frame that baselines share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sized
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

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
from graphsvx.methods.build_explanation import field_record, no_edges, with_types
from graphsvx.methods.player_kinds import KINDS
from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import Credit
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Checked

Task = Literal["node", "nodes", "graph", "model"]
Target = Literal["nodes", "edges", "features", "graph"]
_TASKS = {"node": "a node", "nodes": "a group of nodes", "graph": "a graph", "edge": "an edge"}


class Method(Protocol):
    """An explainer: a callable of (query, seed) that returns an explanation."""

    def __call__(self, query: Query, seed: int) -> Explanation:
        """The explanation; the same seed gives the same result bit for bit."""
        ...


# --- the description of a method -------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One of MASK, GEN and EXPL: a description, and the class or function that implements it."""

    does: str
    code: type | Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Properties:
    """The columns of the paper's table of explainers that hold for this implementation.

    Each of them is measured by a test, on every method (`tests/methods/test_properties.py`).
    """

    decomposable: bool = False
    """base + total == prediction, to 1e-6."""
    general: bool = False
    """Global: explains groups of nodes or the model, or carries over to unseen nodes."""
    robust: bool = False
    """Credit correlates by 0.99 or more between seeds (mean over pairs of them), and with that of
    X with 1 % of noise."""
    meaningful: bool = False
    """Values are in units of the prediction: twice the score gives twice the credit."""
    selective: bool = False
    """Most players that cannot affect the prediction get exactly 0."""
    contrastive: bool = False
    """The credit of a difference of two outputs is the difference of their credits."""


@dataclass(frozen=True)
class Blocks:
    """Description of a method in the paper's framework."""

    title: str
    mask: Block
    gen: Block
    expl: Block
    explains: tuple[Target, ...]
    properties: Properties
    tasks: tuple[Task, ...] = ("node", "nodes", "graph")
    source: str = ""
    """The publication of the method."""
    package: str | None = None
    """The package whose implementation is used, if any."""
    notes: str = ""


# --- the frame of baselines ------------------------------------------------------------------


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
        """Raise UnsupportedError if the method does not answer this kind of question."""
        # A model is explained through the question about a graph.
        kinds = ["graph" if task == "model" else task for task in self.blocks.tasks]
        if query.kind not in kinds and not query.graph.has_types:
            supported = " or ".join(_TASKS[kind] for kind in kinds)
            raise UnsupportedError(
                f"{type(self).__name__} explains {supported}, got a question about "
                f"{_TASKS[query.kind]}; choose another method"
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
    if graph.has_types:
        if query.kind == "graph" and sides == "both":
            sides = "nodes"
        settings: Any = {} if sides in ("nodes", "edges") else {"features": features}
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


def scores_in_parts(
    query: Query,
    evaluator: Evaluator,
    perturb: Callable[[slice], Perturbations],
    rows: Sized,
    bytes_each: int,
) -> Tensor:
    """Scores of the perturbed graphs of many rows, as many at a time as the query's memory holds.

    `perturb`: the perturbed graphs of part of the rows.
    """
    step = max(1, query.memory // max(1, bytes_each))
    parts = [slice(first, first + step) for first in range(0, len(rows), step)]
    return torch.cat([perturbed_scores(query, evaluator, perturb(part)) for part in parts])


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
    bases = torch.zeros_like(explained) if bases is None else bases.double().cpu()
    parts = {
        "node_credit": nodes or Credit.none(len(outputs)),
        "feature_credit": features or Credit.none(len(outputs)),
        "edge_credit": edges or no_edges(len(outputs)),
    }
    total = sum((part.values.sum(1) for part in parts.values()), torch.zeros_like(explained))
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
            residual=float((explained - bases - total)[outputs.index(prediction.target)]),
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
