"""What is served: the workspace, lists of nodes and graphs page by page, and features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphsvx import __version__
from graphsvx.core.graph import Graph
from graphsvx.explorer.predictions import Predictions
from graphsvx.explorer.questions import Limits, Parameters, method_names
from graphsvx.explorer.workspace import Workspace
from graphsvx.utils.printable import one_line
from graphsvx.views import palette

SORTS = ("id", "confidence", "-confidence", "size", "-size")


def rows(workspace: Workspace, parameters: Parameters, limits: Limits) -> dict[str, Any]:
    """The rows that match the filters of a query string, and how many there are."""
    model = parameters.choice("model", workspace.models) or workspace.default_model
    table = workspace.table(model)
    keep = _search(workspace, table, parameters.text("q"))
    types = workspace.types
    kind = None if types is None else parameters.choice("type", types.names)
    if types is not None and kind is not None:
        keep &= types.of(table.ids) == types.names.index(kind)
    for name, column in (("class", table.label), ("predicted", table.predicted)):
        label = parameters.integer(name, -1, 10**6)
        if label is not None:
            keep &= np.zeros_like(keep) if column is None else column == label
    answer = parameters.choice("answer", ("right", "wrong"))
    if answer is not None:
        keep &= table.judged & (table.wrong == (answer == "wrong"))
    low, high = parameters.number("min_score"), parameters.number("max_score")
    if low is not None:
        keep &= table.score >= low
    if high is not None:
        keep &= table.score <= high
    order = _sorted(table, np.flatnonzero(keep), parameters.choice("sort", SORTS) or "id")
    offset = parameters.integer("offset", 0, 10**9) or 0
    count = parameters.integer("limit", 1, limits.rows) or 50
    parameters.finish()
    return {
        "total": len(order),
        "offset": offset,
        "rows": [row(workspace, table, i) for i in order[offset : offset + count].tolist()],
    }


def row(workspace: Workspace, table: Predictions, position: int) -> dict[str, Any]:
    """One node or graph."""
    label = None if table.label is None else int(table.label[position])
    number = int(table.ids[position])
    name = _name(workspace, number)
    has_prediction = workspace.task != "link" and bool(table.predicted[position] >= 0)
    types = None if workspace.task == "graph" else workspace.types
    return {
        "id": number,
        "name": name,
        **({} if types is None else {"type": one_line(types.split(number)[0])}),
        "class": None if label is None or label < 0 else label,
        "predicted": int(table.predicted[position]) if has_prediction else None,
        "score": float(table.score[position]) if has_prediction else None,
        "wrong": bool(table.wrong[position]),
        "size": int(table.size[position]),
    }


def _name(workspace: Workspace, number: int) -> str:
    if workspace.task == "graph":
        return workspace.graph_name(number)
    return workspace.node_name(number)


def class_names(workspace: Workspace) -> list[str]:
    """Names of all classes that occur, by number."""
    table = workspace.table()
    columns = [table.predicted] if table.label is None else [table.predicted, table.label]
    count = max((int(column.max(initial=-1)) for column in columns), default=-1) + 1
    names = workspace.class_names or ()
    word = "output" if workspace.scale == "value" else "class"
    return [
        one_line(names[i]) if i < len(names) else f"{word} {i}"
        for i in range(max(count, len(names)))
    ]


def _search(workspace: Workspace, table: Predictions, text: str | None) -> NDArray[np.bool_]:
    """Rows whose id or name matches: an id exactly or by its first digits, a name by a part."""
    if text is None:
        return np.ones(len(table.ids), dtype=bool)
    words = text.casefold().strip()
    for prefix in ("node ", "graph ", "#"):
        words = words.removeprefix(prefix)
    numbers, types = table.ids.tolist(), workspace.types
    ids = numbers if types is None else [types.split(number)[1] for number in numbers]
    matches = np.array([str(i).startswith(words) for i in ids], dtype=bool)
    named = workspace.graphs and (
        "name" in workspace.graphs[0] if workspace.task == "graph" else workspace.node_names
    )
    if types is not None or named:
        words = words.replace(":", " ")  # paper:42 is called paper 42
        names = (_name(workspace, number).casefold() for number in numbers)
        matches |= np.array([words in name for name in names], dtype=bool)
    return matches


def _sorted(table: Predictions, positions: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
    if sort == "id":  # those that the model predicts first
        return positions[np.argsort(table.predicted[positions] < 0, kind="stable")]
    key = table.score if sort.endswith("confidence") else table.size
    values = key[positions].astype(np.float64)
    return positions[np.argsort(-values if sort[0] == "-" else values, kind="stable")]


# What is served, for the page: task, classes, node types, models, methods and limits.


LINK_NAMES = ("no link", "link")


def about(workspace: Workspace, limits: Limits) -> dict[str, Any]:
    """The workspace as JSON values."""
    table = workspace.table()
    one_graph = workspace.live and workspace.task != "graph"
    graph = workspace.checked(workspace.graph) if one_graph else None
    names = class_names(workspace)
    judged = table.judged
    return {
        "version": 1,
        "library": __version__,
        "title": one_line(workspace.title),
        "task": workspace.task,
        "scale": workspace.scale,
        "live": workspace.live,
        "run": workspace.run is not None,
        "models": [one_line(name) for name in workspace.models],
        "methods": list(method_names(workspace.typed)),
        "classes": [{"name": name, "colour": palette.of_class(i)} for i, name in enumerate(names)],
        "types": _types(workspace),
        "typed": workspace.typed,
        "relations": [one_line(name) for name in workspace.relations],
        "outputs": list(LINK_NAMES) if workspace.task == "link" else list(names),
        "count": len(table.ids),
        "edges": None if graph is None else graph.num_edges,
        "features": None if graph is None else graph.num_features,
        "accuracy": None
        if not judged.any() or workspace.task == "link"
        else float((~table.wrong[judged]).mean()),
        "wrong": int(table.wrong.sum()),
        "map": graph is not None
        and graph.num_nodes <= limits.map_nodes
        and graph.num_edges <= limits.map_edges,
        "limits": {
            "samples": limits.samples,
            "tolerance": limits.tolerance,
            "mapNodes": limits.map_nodes,
            "mapEdges": limits.map_edges,
        },
    }


def _types(workspace: Workspace) -> list[dict[str, Any]]:
    """Node types with the number of their first node, and whether the model predicts them."""
    types = workspace.types
    if types is None:
        return []
    table = workspace.table()
    explained = set(types.of(table.ids[table.predicted >= 0]).tolist())
    return [
        {
            "name": one_line(name),
            "start": types.starts[i],
            "count": types.starts[i + 1] - types.starts[i],
            "colour": palette.of_class(i),
            "predicted": workspace.task == "link" or i in explained,
        }
        for i, name in enumerate(types.names)
    ]


# Features of a node, or of a whole graph, with names, values and means.


def feature_list(
    workspace: Workspace, graph: Graph, node: int | None, words: str | None, count: int
) -> dict[str, Any]:
    """The features with the largest values whose name or number matches; None: their means."""
    first, values = _values(graph, node)
    columns = (first + values.abs().argsort(descending=True, stable=True)).tolist()
    if words is not None:
        part = words.casefold().removeprefix("feature ")
        columns = [
            column
            for column in columns
            if part == str(column - first) or part in workspace.feature_name(column).casefold()
        ]
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
    types = graph.types
    at = int(types.kinds(np.asarray([node]))[0])
    name = types.node_types[at]
    block = types.blocks[name]
    if block.stop == block.start:
        return 0, graph.statistics.mean[:0]
    return block.start, types.features[name][node - int(types.node_starts[at])].double()


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
