"""Measures that compare explanations: of noisy data, of another model, of another class."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphsvx.api import explain
from graphsvx.core.model import Output, Scale
from graphsvx.errors import InputError
from graphsvx.methods.base import Method
from graphsvx.metrics.select import Level, level_of, scores, top_keys
from graphsvx.results.credit import Ranking
from graphsvx.results.explanation import Explanation
from graphsvx.utils.constraints import Count, NotNegative, checks_arguments


@checks_arguments
def similarity(first: Explanation, second: Explanation, level: Level | None = None) -> float:
    """Cosine similarity of two credit vectors over the union of their players; 1 if both are 0.

    Args:
        first, second: explanations, over the same players or others.
        level: "nodes", "features" or "edges"; by default what the explanation has.

    Returns:
        A number from -1 to 1.

    """
    level = level or level_of(first)
    a, b = (_credit_by_player(explanation, level) for explanation in (first, second))
    keys = sorted({*a, *b})
    u = torch.tensor([a.get(key, 0.0) for key in keys], dtype=torch.float64)
    v = torch.tensor([b.get(key, 0.0) for key in keys], dtype=torch.float64)
    norms = float(u.norm() * v.norm())
    if norms == 0:
        return float(u.norm() == v.norm())
    return float(u @ v) / norms


def _credit_by_player(explanation: Explanation, level: Level) -> dict[Any, float]:
    keys, values = scores(explanation, level)
    return dict(zip(keys, values.tolist(), strict=True))


@checks_arguments
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

    Args:
        model: a trained model, as in `graphsvx.explain`.
        data: the clean graph.
        method: the explainer.
        node: the explained node.
        graph: whether the whole graph is explained instead.
        noise: in standard deviations of each feature.
        repeats: number of noisy copies.
        level: "nodes", "features" or "edges"; by default what the explanation has.
        output, scale: as in `graphsvx.explain`.
        seed: of the noise and of the explanations.

    Returns:
        A number from -1 to 1.

    Raises:
        InputError: `repeats` is below 1 or `noise` below 0.

    """
    options: dict[str, Any] = {
        "node": node,
        "graph": graph,
        "method": method,
        "output": output,
        "scale": scale,
        "seed": seed,
    }
    clean = explain(model, data, **options)
    rng = torch.Generator().manual_seed(seed)
    spread = noise * data.x.double().std(0, unbiased=False)
    similarities = []
    for _ in range(repeats):
        noisy = copy.copy(data)
        standard_normal = torch.randn(data.x.shape, generator=rng, dtype=torch.float64)
        noisy.x = data.x + (standard_normal.to(data.x.device) * spread).to(data.x)
        similarities.append(
            similarity(clean, explain(model, noisy, target=clean.target, **options), level)
        )
    return sum(similarities) / len(similarities)


@checks_arguments
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

    Args:
        first, second: explanations of two models.
        top: how many players, or their share of all if below 1.
        by: "value" ranks by signed credit, "absolute" by its size.
        level: "nodes", "features" or "edges"; by default what the explanation has. Several
            of them: `top` players of each.

    Returns:
        A number from 0 to 1.

    """
    levels = (level or level_of(first),) if isinstance(level, str | None) else level
    a, b = (
        {(name, key) for name in levels for key in top_keys(explanation, top, by, name)}
        for explanation in (first, second)
    )
    return len(a & b) / len(a | b) if a | b else 1.0


@checks_arguments
def relative_error(explanation: Explanation, reference: Explanation) -> float:
    """|phi - phi_ref|^2 / |phi_ref|^2 over all players; NaN if the reference is 0 everywhere.

    Args:
        explanation: an estimate.
        reference: exact values, or a better estimate.

    Returns:
        The relative squared error; its root is the relative error.

    Raises:
        InputError: the two have other players.

    """
    ids = [
        (e.feature_ids.tolist(), e.node_ids.tolist(), e.edge_ids.tolist())
        for e in (explanation, reference)
    ]
    if ids[0] != ids[1]:
        raise InputError(
            f"an error needs the same players on both sides, got {explanation.title} with "
            f"{explanation.method} and {reference.title} with {reference.method}"
        )
    return _relative(_credit(explanation) - _credit(reference), reference)


@checks_arguments
def expected_error(explanation: Explanation) -> float:
    """The relative squared error that an explanation's own standard errors let expect.

    Args:
        explanation: one with standard errors.

    Returns:
        The sum of squared errors over the sum of squared credit; 0 if exact.

    """
    return _relative(explanation.errors, explanation)


def _credit(e: Explanation) -> Tensor:
    return torch.cat([e.feature_values, e.node_values, e.edge_values])


def _relative(distance: Tensor, reference: Explanation) -> float:
    size = float((_credit(reference) ** 2).sum())
    return float((distance**2).sum()) / size if size > 0 else float("nan")


@checks_arguments
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

    Args:
        first: the explanation of a class, or of all outputs.
        second: that of another class.
        threshold: share of the largest positive credit that supports.
        level: "nodes", "features" or "edges"; by default what the explanation has.

    Returns:
        0 where both classes have the same support, 1 where they share nobody.

    Raises:
        InputError: only one class was explained.

    """
    if second is None:
        others = [i for i in first.outputs if i != first.target]
        if not others:
            raise InputError(
                'two classes are needed: explain with targets="all", or give two explanations'
            )
        row = {output: i for i, output in enumerate(first.outputs)}
        second = first.for_target(max(others, key=lambda i: float(first.predictions[row[i]])))
    level = level or level_of(first)
    a, b = (_supporting_players(explanation, level, threshold) for explanation in (first, second))
    return len(a ^ b) / len(a | b) if a | b else 0.0


def _supporting_players(explanation: Explanation, level: Level, threshold: float) -> set[Any]:
    keys, values = scores(explanation, level)
    if not keys or float(values.max()) <= 0:
        return set()
    supports: Tensor = values >= threshold * values.max()
    return {key for key, selected in zip(keys, supports.tolist(), strict=True) if selected}
