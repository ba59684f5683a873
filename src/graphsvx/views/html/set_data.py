"""Sets of players on a page: interactions, and the sets that answer a question."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from graphsvx.results.explanation import Explanation
from graphsvx.views.drawing import GraphDrawing

MOST_PAIRS = 400
"""Pairs of nodes that light up."""
MOST_TOGETHER = 12
"""Pairs of players in the table."""


def together_rows(views: list[Explanation]) -> list[dict[str, Any]] | None:
    """The strongest pairs of players for each output; None without interactions.

    A pair whose value may be 0 is not named, as in tables and words.
    """
    record = views[0].interactions
    if record is None:
        return None
    return [
        {
            "index": record.index,
            "pairs": [
                {
                    "name": " and ".join(pair.players),
                    "value": pair.value,
                    "error": _number(pair.error),
                }
                for pair in view.together(MOST_TOGETHER)
                if pair.sure and pair.value
            ],
        }
        for view in views
    ]


def in_sets(explanation: Explanation, drawing: GraphDrawing) -> dict[str, Any]:
    """Pairs of dots that interact, with the value for each output, and the sets of answers."""
    first, ids = explanation.feature_credit.players, explanation.node_ids.tolist()
    grouped = explanation.groups is not None and bool(explanation.groups.nodes)
    dot_of = {dot.id: i for i, dot in enumerate(drawing.dots) if dot.count == 1 and not grouped}

    def dots(positions: Iterable[int]) -> list[int]:
        nodes = [ids[at - first] for at in positions if first <= at < first + len(ids)]
        return [dot_of[node] for node in nodes if node in dot_of]

    record = explanation.interactions
    pairs: list[list[Any]] = []
    if record is not None:
        for at in (record.sizes == 2).nonzero().flatten().tolist():
            ends = dots(record.members[:2, at].tolist())
            if len(ends) == 2:
                pairs.append([*ends, [_number(value) for value in record.values[:, at].tolist()]])
        pairs.sort(key=lambda pair: -max(abs(value or 0.0) for value in pair[2]))
    sets = [
        {"question": answer.question, "dots": dots(answer.positions)}
        for answer in explanation.answers
        if answer.found
    ]
    return {"together": pairs[:MOST_PAIRS], "sets": sets}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
