"""Evaluation measures for explanations: functions of explanations, and of model and data if needed.

    against the model             fidelity, characterization, unfaithfulness, efficiency_residual
    of the explanation itself     sparsity, contrastivity
    against other explanations    similarity, stability, consistency, relative_error, expected_error

Credit may have any sign: `by="value"` ranks signed values (positive credit supports the
prediction), `by="absolute"` their magnitude. Measures against ground truth: `graphsvx_lab.metrics`.

The first group evaluates the model on perturbed graphs. Nodes are removed as in Eq. 2 (their edges
are removed; for graph queries their features are also replaced by the mean), edges are removed,
features are replaced by their mean. Degree-normalising layers therefore see the reduced degrees,
unlike with PyG's masks, which scale messages and leave the degrees unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain.metric import characterization_score

from graphsvx.api import explain
from graphsvx.core.model import Output, Pick, Scale, evaluation_mode
from graphsvx.core.players import Players
from graphsvx.core.query import Query, build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.reading import with_reading
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.estimators.direct import as_edges, as_nodes
from graphsvx.generators import CutEdges, GameSetup, Isolate
from graphsvx.methods.baseline import Method
from graphsvx.methods.local_graph import perturbed_scores
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Count, NotNegative, checked, describes_arguments

__all__ = [
    "Fidelity",
    "characterization",
    "consistency",
    "contrastivity",
    "efficiency_residual",
    "expected_error",
    "fidelity",
    "relative_error",
    "similarity",
    "sparsity",
    "stability",
    "unfaithfulness",
]

Compared = Literal["probability", "label"]
Level = Literal["nodes", "edges", "features"]
Key = int | tuple[int, int]
"""A node, a column of the features, or the two ends of an edge."""
P = ParamSpec("P")
T = TypeVar("T")
_ARGUMENTS = {
    "explanation": "of any method.",
    "first": "an explanation.",
    "second": "another one, over the same players or others.",
    "model": "the explained model, as in `graphsvx.explain`.",
    "data": "the graph that was explained.",
    "top": "how many players, or their share of all if below 1.",
    "compare": "the explained score, or whether the predicted class stays.",
    "by": '"value" ranks by signed credit, "absolute" by its size.',
    "level": '"nodes", "features" or "edges"; by default what the explanation has.',
    "output": "what the model returns, as in `graphsvx.explain`.",
    "scale": "of the scores, as in `graphsvx.explain`.",
}
"""What measures have in common, in the words of their docstrings."""


def _measure(returns: str, **described: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a measure: its arguments are checked, and listed in its docstring."""
    return describes_arguments(_ARGUMENTS | described, returns)


# --- the top players of an explanation ------------------------------------------------------


def level_of(explanation: Explanation) -> Level:
    """The default level of an explanation: nodes if it has any, else edges, else features."""
    if explanation.node_credit.players:
        return "nodes"
    return "edges" if explanation.edge_credit.players else "features"


def scores(explanation: Explanation, level: Level) -> tuple[list[Key], Tensor]:
    """Players of a level and their credit [players]; converts node to edge credit and back."""
    level = checked(level, Level, "level")
    if level == "nodes":
        explanation = as_nodes(explanation)
        return explanation.node_ids.tolist(), explanation.node_values
    if level == "edges":
        explanation = as_edges(explanation)
        pairs = explanation.edge_ids.reshape(2, -1).t().tolist()
        return [(u, v) for u, v in pairs], explanation.edge_values
    return explanation.feature_ids.tolist(), explanation.feature_values


def strength(values: Tensor, by: Ranking) -> Tensor:
    """The ranking criterion: the signed values or their magnitudes."""
    return values.abs() if checked(by, Ranking, "by") == "absolute" else values


def top_positions(values: Tensor, top: float, by: Ranking) -> Tensor:
    """Positions of the `top` players (a number, or a share below 1 of them), best first.

    Players with credit 0 are left out, so there may be fewer. Ties are broken by a fixed
    permutation: players are stored nearest first, and that order must not affect the ranking.
    """
    if not top > 0 or (top > 1 and int(top) != top):
        raise InputError(f"top must be a number of players or a share below 1, got {top!r}")
    count = max(1, round(top * len(values))) if top < 1 else int(top)
    rng = torch.Generator().manual_seed(len(values))
    shuffled = torch.randperm(len(values), generator=rng)
    ranked = shuffled[torch.argsort(strength(values, by)[shuffled], descending=True, stable=True)]
    ranked = ranked[:count]
    return ranked[values[ranked] != 0]


def top_keys(explanation: Explanation, top: float, by: Ranking, level: Level) -> list[Key]:
    """The `top` players of an explanation, best first."""
    keys, values = scores(explanation, level)
    return [keys[i] for i in top_positions(values, top, by).tolist()] if keys else []


# --- against the model ----------------------------------------------------------------------


class Fidelity(NamedTuple):
    """fidelity+ (explanation removed; high is good) and fidelity- (only it; low is good)."""

    plus: float
    minus: float


@_measure("`Fidelity(plus, minus)`.", explanation="of a node, a group of nodes or a graph.")
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

    Raises:
        InputError: `compare` is unknown.
        UnsupportedError: labels of a regression, or an explanation of a link or group.

    """
    full, without, only = _outputs(explanation, model, data, top, by, level, output)
    if compare == "label":
        if explanation.scale == "value":
            raise UnsupportedError('a regression has no label; use compare="probability"')
        label = full.argmax()
        return Fidelity(float(without.argmax() != label), float(only.argmax() != label))
    target = explanation.target
    return Fidelity(float((full - without)[target]), float((full - only)[target]))


@_measure(
    "A number from 0 to 1, high is good.",
    plus="fidelity+, high where the explanation is necessary.",
    minus="fidelity-, low where it is sufficient.",
    weights="of the two, adding up to 1.",
)
def characterization(plus: float, minus: float, weights: tuple[float, float] = (0.5, 0.5)) -> float:
    """Weighted harmonic mean of fidelity+ and 1 - fidelity- (GraphFramEx), computed by PyG.

    Defined for fidelities in [0, 1]; differences of scores outside that range are clamped.

    Raises:
        InputError: the weights do not add up to 1.

    """
    if sum(weights) != 1:
        raise InputError(f"weights must add up to 1, got {weights}")
    clamped = torch.tensor([plus, minus], dtype=torch.float64).clamp(0, 1)
    return float(characterization_score(clamped[0], clamped[1], *weights))


@_measure("A number from 0 to 1, low is good.")
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

    Raises:
        UnsupportedError: the model is a regression.

    """
    if explanation.scale == "value":
        raise UnsupportedError("unfaithfulness compares class probabilities, got a regression")
    full, _, only = _outputs(explanation, model, data, top, by, level, output, "probability")
    # 0 log 0 = 0: a class of probability 0 on the full graph adds nothing.
    terms = torch.where(full > 0, full * (full.log() - only.log()), torch.zeros_like(full))
    return float(1 - torch.exp(-terms.sum().clamp(min=0)))


@_measure("What is left, in units of the explained score.")
def efficiency_residual(explanation: Explanation) -> float:
    """|prediction - base - total|: 0 but for rounding for Shapley values (efficiency axiom)."""
    return abs(explanation.prediction - explanation.base - explanation.total)


def question(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    output: Output | Pick | None,
    scale: Scale | None = None,
) -> Query:
    """The query that an explanation answers, rebuilt for `model` and `data`."""
    kind = explanation.kind
    if kind not in ("node", "nodes", "graph"):
        raise UnsupportedError(
            f"only explanations of nodes and graphs can be evaluated, got {kind!r}"
        )
    if explanation.types is not None:
        raise UnsupportedError(
            "only explanations of graphs without types can be evaluated, got one of a typed graph; "
            "the explorer shows its fidelity (graphsvx.serve)"
        )
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


def _outputs(
    explanation: Explanation,
    model: Callable[..., Any],
    data: Any,
    top: float,
    by: Ranking,
    level: Level | None,
    output: Output | Pick | None,
    scale: Scale | None = None,
) -> Tensor:
    """Outputs of f(G), f(G without S) and f(S only), [3, outputs]."""
    level = level or level_of(explanation)
    query = question(explanation, model, data, output, scale)
    players = set(scores(explanation, level)[0])
    if not players:
        raise InputError(f"the explanation has no {level} to remove; choose another level")
    selected = set(top_keys(explanation, top, by, level))
    with evaluation_mode(query.model.submodules):
        evaluator = choose_evaluator(query, None, explanation.certificate.seed)
        graph, field = query.graph, evaluator.field
        if level == "features" and not field.centres:
            raise UnsupportedError(
                "explanations of a graph have no feature players to remove; use level='nodes'"
            )
        places: dict[Level, list[Any]] = {
            "nodes": field.ids[: field.size].tolist(),
            "edges": list(zip(field.ids[field.source], field.ids[field.target], strict=True)),
            "features": list(range(graph.num_features)),
        }
        on = np.ones((3, len(places[level])), dtype=bool)
        on[1] = [place not in selected for place in places[level]]
        on[2] = [place in selected or place not in players for place in places[level]]
        everything, nothing = np.arange(on.shape[1]), np.ones((3, 0), dtype=bool)
        kind = level.removesuffix("s")
        roles: Any = {f"{kind}_members": everything, f"{kind}_owner": everything}
        setup = GameSetup(graph, field, Players(**roles), graph.statistics.mean)
        generator = CutEdges() if level == "edges" else Isolate(erase=query.kind == "graph")
        masks = (on, nothing) if level == "features" else (nothing, on)
        return perturbed_scores(evaluator, generator(setup, *masks))


# --- of the explanation itself --------------------------------------------------------------


@_measure(
    "A number from 0 to 1, high where few players explain.",
    threshold="share of the largest magnitude, where `top` is None.",
)
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
    """
    values = scores(explanation, level or level_of(explanation))[1].abs()
    if not values.any():
        return 1.0
    if top is not None:
        return 1 - len(top_positions(values, top, "absolute")) / len(values)
    return 1 - float((values >= threshold * values.max()).double().mean())


@_measure(
    "0 where both classes have the same support, 1 where they share nobody.",
    first="the explanation of a class, or of all outputs.",
    second="that of another class.",
    threshold="share of the largest positive credit that supports.",
)
def contrastivity(
    first: Explanation,
    second: Explanation | None = None,
    *,
    threshold: float = 0.1,
    level: Level | None = None,
) -> float:
    """How different the explanations of two classes are (Pope et al.): |S1 xor S2| / |S1 or S2|.

    S is the set of players with at least `threshold` of the largest *positive* credit, i.e. those
    that support the class. With a single explanation of all outputs (`targets="all"`), the target
    is compared with the other class of highest score.

    Raises:
        InputError: only one class was explained.

    """
    if second is None:
        others = [i for i in first.outputs if i != first.target]
        if not others:
            raise InputError(
                'two classes are needed: explain with targets="all", or give two explanations'
            )
        score_of = dict(zip(first.outputs, first.predictions.tolist(), strict=True))
        second = first.for_target(max(others, key=lambda output: score_of[output]))
    level = level or level_of(first)
    supporters = []
    for explanation in (first, second):
        credit = _by_player(explanation, level)
        most = max(credit.values(), default=0.0)
        supporters.append({key for key in credit if most > 0 and credit[key] >= threshold * most})
    a, b = supporters
    return len(a ^ b) / len(a | b) if a | b else 0.0


# --- against other explanations -------------------------------------------------------------


@_measure("A number from -1 to 1.")
def similarity(first: Explanation, second: Explanation, level: Level | None = None) -> float:
    """Cosine similarity of two credit vectors over the union of their players; 1 if both are 0."""
    level = level or level_of(first)
    a, b = _by_player(first, level), _by_player(second, level)
    vectors = torch.tensor(
        [[credit.get(key, 0.0) for key in sorted({*a, *b})] for credit in (a, b)],
        dtype=torch.float64,
    )
    u, v = vectors
    norms = float(u.norm() * v.norm())
    return float(u @ v) / norms if norms else float(u.norm() == v.norm())


def _by_player(explanation: Explanation, level: Level) -> dict[Any, float]:
    keys, values = scores(explanation, level)
    return dict(zip(keys, values.tolist(), strict=True))


@_measure(
    "A number from -1 to 1.",
    data="the clean graph.",
    method="the explainer.",
    node="the explained node.",
    graph="whether the whole graph is explained instead.",
    noise="in standard deviations of each feature.",
    repeats="number of noisy copies.",
    seed="of the noise and of the explanations.",
)
def stability(
    model: Callable[..., Any],
    data: Any,
    method: Method,
    *,
    node: int | None = None,
    graph: bool = False,
    noise: NotNegative = 0.01,
    repeats: Count = 5,
    level: Level | None = None,
    output: Output = "raw",
    scale: Scale = "probability",
    seed: int = 0,
) -> float:
    """Mean cosine similarity to the explanations of `repeats` noisy copies of the data.

    Each feature gets Gaussian noise of `noise` times its standard deviation; the class explained
    on the noisy copies is that of the clean data. 1 means that the noise changes nothing.
    (GraphXAI's instability is 1 minus the cosine of the worst copy.)

    Raises:
        InputError: `repeats` is below 1 or `noise` below 0.

    """
    options: Any = {"node": node, "graph": graph, "method": method, "output": output}
    options |= {"scale": scale, "seed": seed}
    clean = explain(model, data, **options)
    rng = torch.Generator().manual_seed(seed)
    spread = noise * data.x.double().std(0, unbiased=False)
    similarities = []
    for _ in range(repeats):
        noisy = copy.copy(data)
        standard_normal = torch.randn(data.x.shape, generator=rng, dtype=torch.float64)
        noisy.x = data.x + (standard_normal.to(data.x.device) * spread).to(data.x)
        explanation = explain(model, noisy, target=clean.target, **options)
        similarities.append(similarity(clean, explanation, level))
    return sum(similarities) / len(similarities)


@_measure("A number from 0 to 1.")
def consistency(
    first: Explanation,
    second: Explanation,
    *,
    top: float = 0.2,
    by: Ranking = "absolute",
    level: Level | Sequence[Level] | None = None,
) -> float:
    """Intersection over union of the `top` players of two models' explanations.

    The paper compares the top 20 % (or the top 10) features and nodes of a GCN and a GAT:
    `level=("features", "nodes")` takes the `top` of each.
    """
    levels = (level or level_of(first),) if isinstance(level, str | None) else level
    a, b = (
        {(name, key) for name in levels for key in top_keys(explanation, top, by, name)}
        for explanation in (first, second)
    )
    return len(a & b) / len(a | b) if a | b else 1.0


@_measure(
    "The relative squared error; its root is the relative error.",
    reference="exact values, or a better estimate.",
)
def relative_error(explanation: Explanation, reference: Explanation) -> float:
    """|phi - phi_ref|^2 / |phi_ref|^2 over all players; NaN if the reference is 0 everywhere.

    Raises:
        InputError: the two have other players.

    """
    ids, reference_ids = (
        [e.feature_ids.tolist(), e.node_ids.tolist(), e.edge_ids.tolist()]
        for e in (explanation, reference)
    )
    if ids != reference_ids:
        raise InputError(
            f"an error needs the same players on both sides, got {explanation.title} with "
            f"{explanation.method} and {reference.title} with {reference.method}"
        )
    return _relative(explanation.values - reference.values, reference)


@_measure("The sum of squared standard errors over the sum of squared credit; 0 if exact.")
def expected_error(explanation: Explanation) -> float:
    """The relative squared error that an explanation's own standard errors let expect."""
    return _relative(explanation.errors, explanation)


def _relative(distance: Tensor, reference: Explanation) -> float:
    size = float((reference.values**2).sum())
    return float((distance**2).sum()) / size if size > 0 else float("nan")
