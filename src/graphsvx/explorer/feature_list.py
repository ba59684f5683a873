"""Features of a node, or of a whole graph, with names, values and means."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from graphsvx.core.graph import Graph
from graphsvx.core.typed_graph import TypedGraph
from graphsvx.explorer.workspace import Workspace


def feature_list(
    workspace: Workspace, graph: Graph, node: int | None, words: str | None, count: int
) -> dict[str, Any]:
    """The features with the largest values whose name or number matches; None: their means."""
    first, values = _values(graph, node)
    columns = (first + values.abs().argsort(descending=True, stable=True)).tolist()
    if words is not None:
        part = words.casefold().removeprefix("feature ")
        columns = [
            column for column in columns
            if part == str(column - first) or part in workspace.feature_name(column).casefold()
        ]  # fmt: skip
    return {
        "node": node,
        "total": len(columns),
        "features": [
            {
                "id": column,
                "name": workspace.feature_name(column),
                "value": _finite(values[column - first]),
                "mean": _finite(graph.statistics.mean[column]),
            }
            for column in columns[:count]
        ],
    }


def _values(graph: Graph, node: int | None) -> tuple[int, Tensor]:
    """Values of a node's features, and the number of the first of them."""
    if node is None:
        return 0, graph.statistics.mean
    if not isinstance(graph, TypedGraph):
        return 0, graph.x[node].double()
    at = int(graph.node_type[node])
    name = graph.node_types[at]
    block = graph.blocks[name]
    if block.stop == block.start:
        return 0, graph.statistics.mean[:0]
    return block.start, graph.features[name][node - int(graph.node_starts[at])].double()


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
