"""Faithfulness: the change of the prediction without the explanation, or with it alone.

Nodes are removed as in Eq. 2 (their edges are removed; for graph queries their features are also
replaced by the mean), edges are removed, features are replaced by their mean. Degree-normalising
layers therefore see the reduced degrees, unlike with PyG's masks, which scale messages and leave
the degrees unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain.metric import characterization_score

from graphsvx.core.arrays import Bools
from graphsvx.core.model import Output, Pick, Scale
from graphsvx.core.modules import evaluation_mode
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.players import Players
from graphsvx.core.query import Query, build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.reading import with_reading
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.generators import CutEdges, GameSetup, Generator, Isolate
from graphsvx.methods.baseline import perturbed_scores
from graphsvx.metrics.select import Key, Level, level_of, scores, top_keys, top_positions
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import checks_arguments

Compared = Literal["probability", "label"]


class Fidelity(NamedTuple):
    """fidelity+ (explanation removed; high is good) and fidelity- (only it; low is good)."""

    plus: float
    minus: float


@checks_arguments
def fidelity(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    *,
    top: float = 0.2,
    compare: Compared = "probability",
    by: Ranking = "value",
    level: Level | None = None,
    output: Output | Pick | None = None,
) -> Fidelity:
    """fidelity+ = f(G) - f(G without S) and fidelity- = f(G) - f(S only).

    S is the set of `top` players (a number, or a share below 1); f is the explained score
    ("probability"), or 1 if the predicted class is that of the full graph and 0 otherwise
    ("label").

    PyG's `fidelity` agrees with "label" for hard masks on layers that do not normalise by degree
    (tested). It has no "probability", and it applies soft masks without thresholding: a method
    that gives every edge 0.6 is scored on a graph with all messages scaled by 0.6.

    Args:
        explanation: of a node, a group of nodes or a graph.
        model: the explained model.
        data: the graph that was explained.
        top: how many players, or their share of all if below 1.
        compare: the explained score, or whether the predicted class stays.
        by: "value" ranks by signed credit, "absolute" by its size.
        level: "nodes", "features" or "edges"; by default what the explanation has.
        output: what the model returns, as in `graphsvx.explain`.

    Returns:
        `Fidelity(plus, minus)`.

    Raises:
        InputError: `compare` is unknown.
        UnsupportedError: labels of a regression, or an explanation of a link or group.

    """
    full, without, only = _perturbed_outputs(
        explanation, model, data, _Selection(top, by, level, output)
    )
    if compare == "label":
        if explanation.scale == "value":
            raise UnsupportedError('a regression has no label; use compare="probability"')
        label = full.argmax()
        return Fidelity(float(without.argmax() != label), float(only.argmax() != label))
    target = explanation.target
    return Fidelity(float((full - without)[target]), float((full - only)[target]))


@checks_arguments
def characterization(plus: float, minus: float, weights: tuple[float, float] = (0.5, 0.5)) -> float:
    """Weighted harmonic mean of fidelity+ and 1 - fidelity- (GraphFramEx), computed by PyG.

    Defined for fidelities in [0, 1]; differences of scores outside that range are clamped.

    Args:
        plus: fidelity+, high where the explanation is necessary.
        minus: fidelity-, low where it is sufficient.
        weights: of the two, adding up to 1.

    Returns:
        A number from 0 to 1, high is good.

    """
    clamped = torch.tensor([plus, minus], dtype=torch.float64).clamp(0, 1)
    return float(characterization_score(clamped[0], clamped[1], *weights))


@checks_arguments
def unfaithfulness(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    *,
    top: float = 0.2,
    by: Ranking = "value",
    level: Level | None = None,
    output: Output | Pick | None = None,
) -> float:
    """GEF = 1 - exp(-KL(y || y')): 0 if the `top` players alone give the same probabilities.

    y are the class probabilities on the full graph, y' those on the explanation alone, as defined
    in GraphXAI. PyG documents the same but computes KL(y' || y): its arguments are swapped.

    Args:
        explanation: of a node, a group of nodes or a graph.
        model: the explained model.
        data: the graph that was explained.
        top: how many players, or their share of all if below 1.
        by: "value" ranks by signed credit, "absolute" by its size.
        level: "nodes", "features" or "edges"; by default what the explanation has.
        output: what the model returns, as in `graphsvx.explain`.

    Returns:
        A number from 0 to 1, low is good.

    Raises:
        UnsupportedError: the model is a regression.

    """
    if explanation.scale == "value":
        raise UnsupportedError("unfaithfulness compares class probabilities, got a regression")
    selection = _Selection(top, by, level, output, "probability")
    full, _, only = _perturbed_outputs(explanation, model, data, selection)
    # 0 log 0 = 0: a class of probability 0 on the full graph adds nothing.
    terms = torch.where(full > 0, full * (full.log() - only.log()), torch.zeros_like(full))
    return float(1 - torch.exp(-terms.sum().clamp(min=0)))


@checks_arguments
def sparsity(
    explanation: Explanation,
    *,
    top: float | None = None,
    level: Level | None = None,
    threshold: float = 0.01,
) -> float:
    """1 - |S| / |players|: the share of players outside the explanation.

    S is the set of `top` players, or, without `top`, of those with at least `threshold` of the
    largest magnitude. Soft masks and signed credit are rarely exactly 0, hence the threshold.

    Args:
        explanation: any.
        top: how many players, or their share of all if below 1.
        level: "nodes", "features" or "edges"; by default what the explanation has.
        threshold: share of the largest magnitude, where `top` is None.

    Returns:
        A number from 0 to 1, high where few players explain.

    """
    keys, values = scores(explanation, level or level_of(explanation))
    if not keys:
        return 1.0
    if top is not None:
        return 1 - len(top_positions(values, top, "absolute")) / len(keys)
    magnitudes = values.abs()
    if float(magnitudes.max()) == 0:
        return 1.0
    return 1 - float((magnitudes >= threshold * magnitudes.max()).double().mean())


@checks_arguments
def efficiency_residual(explanation: Explanation) -> float:
    """|prediction - base - total|: 0 for Shapley value methods (efficiency axiom).

    Args:
        explanation: any.

    Returns:
        A number of the size of rounding errors for Shapley values.

    """
    return abs(explanation.prediction - explanation.base - explanation.total)


# --- evaluating the model on perturbed graphs -----------------------------------------


def question(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    output: Output | Pick | None,
    scale: Any = None,
) -> Query:
    """The query that an explanation answers, rebuilt for `model` and `data`."""
    if explanation.kind not in ("node", "nodes", "graph"):
        raise UnsupportedError(
            f"only explanations of nodes and graphs can be evaluated, got {explanation.kind!r}"
        )
    if explanation.types is not None:
        raise UnsupportedError(
            "only explanations of graphs without types can be evaluated, got one of a typed graph; "
            "the explorer shows its fidelity (graphsvx.serve)"
        )
    kind = explanation.kind
    query = build_query(
        model,
        data,
        node=explanation.centres[0] if kind == "node" else None,
        nodes=list(explanation.centres) if kind == "nodes" else None,
        graph=kind == "graph",
        target=explanation.target,
        output=output,
        scale=scale or cast(Scale, explanation.scale),
    )
    with evaluation_mode(query.model.submodules):
        return with_reading(query)


@dataclass(frozen=True)
class _Selection:
    """Which players make up the explanation, and on which scale the model's output is read."""

    top: float
    by: Ranking
    level: Level | None
    output: Output | Pick | None
    scale: Scale | None = None


def _perturbed_outputs(
    explanation: Explanation, model: Callable[..., Any], data: Any, selection: _Selection
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of f(G), f(G without S) and f(S only), each of shape [outputs]."""
    level = selection.level or level_of(explanation)
    query = question(explanation, model, data, selection.output, selection.scale)
    keys, _ = scores(explanation, level)
    if not keys:
        raise InputError(f"the explanation has no {level} to remove; choose another level")
    selected = set(top_keys(explanation, selection.top, selection.by, level))
    keys_active = np.ones((3, len(keys)), dtype=bool)
    keys_active[1] = [key not in selected for key in keys]
    keys_active[2] = ~keys_active[1]
    with evaluation_mode(query.model.submodules):
        evaluator = choose_evaluator(query, None, explanation.certificate.seed)
        perturbations = _without(query, evaluator, keys, level, keys_active)
        full, without, only = perturbed_scores(query, evaluator, perturbations)
    return full, without, only


def _without(
    query: Query, evaluator: Evaluator, keys: list[Key], level: Level, on: Bools
) -> Perturbations:
    """Perturbed graphs without the players that are off, [graphs, players]."""
    field = evaluator.field
    column = {key: i for i, key in enumerate(keys)}
    places: list[Any] = field.ids[: field.size].tolist()
    if level == "edges":
        ends = np.stack([field.ids[field.source], field.ids[field.target]], 1).tolist()
        places = [(u, v) for u, v in ends]
    elif level == "features":
        if not field.centres:
            raise UnsupportedError(
                "explanations of a graph have no feature players to remove; use level='nodes'"
            )
        places = list(range(query.graph.num_features))
    members = np.array([i for i, key in enumerate(places) if key in column], dtype=np.int64)
    on = on[:, [column[places[i]] for i in members]]
    owner = np.arange(len(members))
    players = {
        "nodes": Players(node_members=members, node_owner=owner),
        "edges": Players(edge_members=members, edge_owner=owner),
        "features": Players(feature_members=members, feature_owner=owner),
    }[level]
    setup = GameSetup(query.graph, field, players, query.graph.statistics.mean)
    nobody = np.ones((len(on), 0), dtype=bool)
    generator: Generator = Isolate(erase=query.kind == "graph")
    if level == "edges":
        generator = CutEdges()
    return generator(setup, on, nobody) if level == "features" else generator(setup, nobody, on)
