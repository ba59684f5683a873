"""Two explanations side by side: how far they agree, and how faithful each is to the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from graphsvx.errors import UnsupportedError
from graphsvx.explorer.answers import Answers
from graphsvx.explorer.questions import Changes, Question
from graphsvx.explorer.what_if import scores_after
from graphsvx.metrics import agreement as agreements
from graphsvx.metrics import faithful
from graphsvx.metrics.select import Level, level_of, scores
from graphsvx.results.explanation import Explanation

_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40)


def agreement(first: Explanation, second: Explanation) -> dict[str, Any]:
    """Agreement of two explanations over the union of their players, and both credits of each.

    `spearman`: rank correlation of the credit; `cosine`: of the credit vectors; `overlap`: shared
    players among the ten (or fewer) with the most absolute credit.
    """
    level: Level = level_of(first)
    if level_of(second) != level:
        level = "nodes"
    a, b = (dict(zip(*_credit(explanation, level), strict=True)) for explanation in (first, second))
    keys = sorted({*a, *b}, key=lambda key: -max(abs(a.get(key, 0.0)), abs(b.get(key, 0.0))))
    pairs = np.array([[a.get(key, 0.0), b.get(key, 0.0)] for key in keys]).reshape(-1, 2)
    varies = len(pairs) > 1 and bool((np.ptp(pairs, axis=0) > 0).all())
    top = min(10, len(a), len(b))
    return {
        "level": level,
        "spearman": float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic) if varies else None,
        "cosine": agreements.similarity(first, second, level),
        "top": top,
        "overlap": len({*_strongest(a, top)} & {*_strongest(b, top)}),
        "players": [
            {"id": key, "a": a.get(key), "b": b.get(key)} for key in keys[:400]
        ],
    }  # fmt: skip


def fidelity(answers: Answers, question: Question) -> dict[str, Any]:
    """fidelity+ and fidelity- for the top 1, 2, 3, ... players."""
    explanation = answers.explanation(question)
    workspace = answers.workspace
    players = len(_credit(explanation, level_of(explanation))[0])
    steps = [step for step in _STEPS if step <= players]
    if workspace.typed:
        points = _typed_fidelity(answers, question, explanation, steps)
    else:
        points = [
            faithful.fidelity(
                explanation,
                workspace.models[question.model],
                workspace.data_of(question.kind, question.which),
                top=step,
                by="value",
                output=workspace.output,
            )
            for step in steps
        ]
    return {
        "top": steps,
        "plus": [point.plus for point in points],
        "minus": [point.minus for point in points],
    }


def _typed_fidelity(
    answers: Answers, question: Question, explanation: Explanation, steps: list[int]
) -> list[faithful.Fidelity]:
    """The same on a typed graph, by plain calls of the model with nodes or features off."""
    level = level_of(explanation)
    if level == "edges":
        raise UnsupportedError(
            "fidelity curves of typed graphs are for nodes and features; let these play"
        )
    keys, values = _credit(explanation, level)
    ranked = [key for _, key in sorted(zip(values, keys, strict=True), key=lambda pair: -pair[0])]

    def score(off: list[Any]) -> float:
        changes = Changes(nodes_off=tuple(off)) if level == "nodes" else (
            Changes(features_off=tuple(off)))  # fmt: skip
        return float(scores_after(answers.workspace, question, changes)[explanation.target])

    full = score([])
    return [
        faithful.Fidelity(full - score(ranked[:step]), full - score(ranked[step:]))
        for step in steps
    ]


def _credit(explanation: Explanation, level: Level) -> tuple[list[Any], list[float]]:
    keys, values = scores(explanation, level)
    return keys, values.tolist()


def _strongest(credit: dict[Any, float], count: int) -> list[Any]:
    return sorted(credit, key=lambda key: -abs(credit[key]))[:count]
