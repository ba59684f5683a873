"""Against other explanations: of a noisy copy, of another model, of another class."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphsvx.api import explain
from graphsvx.core.model import Output, Scale
from graphsvx.errors import InputError
from graphsvx.methods.base import Method
from graphsvx.metrics.select import Level, level_of, scores, top_keys
from graphsvx.results.explanation import Explanation, Ranking


def similarity(first: Explanation, second: Explanation, level: Level | None = None) -> float:
    """Cosine of the two credit vectors over all players that either names, 1 if both are 0."""
    level = level or level_of(first)
    a, b = (dict(zip(*_listed(explanation, level), strict=True)) for explanation in (first, second))
    keys = sorted({*a, *b})
    u = torch.tensor([a.get(key, 0.0) for key in keys], dtype=torch.float64)
    v = torch.tensor([b.get(key, 0.0) for key in keys], dtype=torch.float64)
    size = float(u.norm() * v.norm())
    if size == 0:
        return float(u.norm() == v.norm())
    return float(u @ v) / size


def _listed(explanation: Explanation, level: Level) -> tuple[list[Any], list[float]]:
    keys, values = scores(explanation, level)
    return keys, values.tolist()


def stability(
    model: Callable[..., Any],
    data: Any,
    method: Method,
    *,
    node: int | None = None,
    graph: bool = False,
    noise: float = 0.01,
    repeats: int = 5,
    level: Level | None = None,
    output: Output = "raw",
    scale: Scale = "probability",
    seed: int = 0,
) -> float:
    """Mean cosine between the explanation and those of slightly noisy copies of the data.

    Each feature gets Gaussian noise of `noise` times its standard deviation. Explained is the
    same class as on the clean data. 1: nothing changes. (GraphXAI's instability is 1 minus the
    cosine of the worst copy.)
    """
    if repeats < 1:
        raise InputError(f"repeats must be at least 1, got {repeats}")
    if not noise >= 0:
        raise InputError(f"noise must be 0 or more, got {noise}")
    options: dict[str, Any] = {
        "node": node, "graph": graph, "method": method, "output": output, "scale": scale,
        "seed": seed,
    }  # fmt: skip
    clean = explain(model, data, **options)
    rng = torch.Generator().manual_seed(seed)
    spread = noise * data.x.double().std(0, unbiased=False)
    similarities = []
    for _ in range(repeats):
        noisy = copy.copy(data)
        drawn = torch.randn(data.x.shape, generator=rng, dtype=torch.float64)
        noisy.x = data.x + (drawn.to(data.x.device) * spread).to(data.x)
        similarities.append(
            similarity(clean, explain(model, noisy, target=clean.target, **options), level)
        )
    return sum(similarities) / len(similarities)


def consistency(
    first: Explanation,
    second: Explanation,
    *,
    top: float = 0.2,
    by: Ranking = "absolute",
    level: Level | None = None,
) -> float:
    """Intersection over union of the players that two models' explanations point at.

    The paper compares the top 20 % (or the top 10) features and nodes of a GCN and a GAT.
    """
    level = level or level_of(first)
    a, b = (set(top_keys(explanation, top, by, level)) for explanation in (first, second))
    return len(a & b) / len(a | b) if a | b else 1.0


def contrastivity(
    first: Explanation,
    second: Explanation | None = None,
    *,
    threshold: float = 0.1,
    level: Level | None = None,
) -> float:
    """How different the explanations of two classes are (Pope et al.): |S1 xor S2| / |S1 or S2|.

    S are the players with at least `threshold` of the largest *positive* credit: what speaks for
    the class. With one explanation (`targets="all"`) the target and its strongest rival.
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
    a, b = (_speaks_for(explanation, level, threshold) for explanation in (first, second))
    return len(a ^ b) / len(a | b) if a | b else 0.0


def _speaks_for(explanation: Explanation, level: Level, threshold: float) -> set[Any]:
    keys, values = scores(explanation, level)
    if not keys or float(values.max()) <= 0:
        return set()
    chosen: Tensor = values >= threshold * values.max()
    return {key for key, there in zip(keys, chosen.tolist(), strict=True) if there}
