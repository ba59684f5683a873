"""Lists of nodes and graphs: searched, filtered, sorted, page by page."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphsvx.explorer.limits import Limits
from graphsvx.explorer.questions import Parameters
from graphsvx.explorer.workspace import Table, Workspace
from graphsvx.utils.printable import one_line

SORTS = ("id", "confidence", "-confidence", "size", "-size")


def rows(workspace: Workspace, parameters: Parameters, limits: Limits) -> dict[str, Any]:
    """The rows that match the filters of a query string, and how many there are."""
    model = parameters.choice("model", workspace.models) or workspace.default_model
    table = workspace.table(model)
    keep = _search(workspace, table, parameters.text("q"))
    for name, column in (("class", table.label), ("predicted", table.predicted)):
        label = parameters.integer(name, -1, 10**6)
        if label is not None:
            keep &= np.zeros_like(keep) if column is None else column == label
    answer = parameters.choice("answer", ("right", "wrong"))
    if answer is not None:
        has_label = np.zeros_like(keep) if table.label is None else table.label >= 0
        keep &= has_label & (table.wrong == (answer == "wrong"))
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
    name = f"graph {number}" if workspace.task == "graph" else workspace.node_name(number)
    return {
        "id": number,
        "name": name,
        "class": None if label is None or label < 0 else label,
        "predicted": None if workspace.task == "link" else int(table.predicted[position]),
        "score": None if workspace.task == "link" else float(table.score[position]),
        "wrong": bool(table.wrong[position]),
        "size": int(table.size[position]),
    }


def class_names(workspace: Workspace) -> list[str]:
    """Names of all classes that occur, by number."""
    table = workspace.table()
    columns = [table.predicted] if table.label is None else [table.predicted, table.label]
    count = max((int(column.max(initial=-1)) for column in columns), default=-1) + 1
    names = workspace.class_names or ()
    return [
        one_line(names[i]) if i < len(names) else f"class {i}"
        for i in range(max(count, len(names)))
    ]


def _search(workspace: Workspace, table: Table, text: str | None) -> NDArray[np.bool_]:
    """Rows whose id or name matches: an id exactly or by its first digits, a name by a part."""
    if text is None:
        return np.ones(len(table.ids), dtype=bool)
    words = text.casefold().strip()
    for prefix in ("node ", "graph ", "#"):
        words = words.removeprefix(prefix)
    ids = [str(i).startswith(words) for i in table.ids.tolist()]
    matches = np.array(ids, dtype=bool)
    if workspace.node_names is not None and workspace.task != "graph":
        names = workspace.node_names
        matches |= np.array([words in names[i].casefold() for i in table.ids.tolist()], dtype=bool)
    return matches


def _sorted(table: Table, positions: NDArray[np.int64], sort: str) -> NDArray[np.int64]:
    if sort == "id":
        return positions
    key = table.score if sort.endswith("confidence") else table.size
    values = key[positions].astype(np.float64)
    return positions[np.argsort(-values if sort[0] == "-" else values, kind="stable")]
