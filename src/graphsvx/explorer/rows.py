"""Lists of nodes and graphs: searched, filtered, sorted, page by page."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsvx.explorer.limits import Limits
from graphsvx.explorer.predictions import Table
from graphsvx.explorer.questions import Parameters
from graphsvx.explorer.workspace import Workspace
from graphsvx.utils.printable import one_line

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


def row(workspace: Workspace, table: Table, position: int) -> dict[str, Any]:
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


def _search(workspace: Workspace, table: Table, text: str | None) -> NDArray[np.bool_]:
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


def _sorted(table: Table, positions: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
    if sort == "id":  # those that the model predicts first
        return positions[np.argsort(table.predicted[positions] < 0, kind="stable")]
    key = table.score if sort.endswith("confidence") else table.size
    values = key[positions].astype(np.float64)
    return positions[np.argsort(-values if sort[0] == "-" else values, kind="stable")]
