"""The overview of a run: global importance, wide error bars, wrong predictions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphsvx.explorer.workspace import Workspace
from graphsvx.results.explanation import Explanation
from graphsvx.results.summary import Summary
from graphsvx.utils.printable import one_line

MOST = 20


def overview(workspace: Workspace, run: Any, status: Any) -> dict[str, Any]:
    """Importance by feature, class and distance; the widest bars; wrong predictions first."""
    summary = run.summary()
    failed = run.failures()
    queries = [query for query in run.queries.tolist() if query not in failed]
    rows = [_row(workspace, number, entry) for number, entry in zip(queries, run, strict=False)]
    widest = sorted(rows, key=lambda row: -row["error"])[:MOST]
    wrong = sorted((row for row in rows if row["wrong"]), key=lambda row: -row["score"])
    settings = run.manifest.get("identity", {}).get("setting", {})
    return {
        "folder": str(run.folder.name),
        "status": {"state": status.state, "total": status.total, "done": status.done,
                   "failed": status.failed},
        "method": settings.get("method"),
        "features": _lines(workspace, summary.features),
        "classes": {
            str(output): _lines(workspace, part) for output, part in summary.classes.items()
        },
        "roles": _lines(workspace, summary.roles, "hops"),
        "types": _mean_by_type(run),
        "widest": [row for row in widest if row["error"] > 0],
        "wrong": wrong[:200],
        "explanations": len(rows),
        "exact": sum(row["exact"] for row in rows),
        "calls": int(np.sum([row["calls"] for row in rows], dtype=np.int64)),
    }  # fmt: skip


def _mean_by_type(run: Any) -> list[dict[str, Any]]:
    """Mean over the explanations of the credit of all nodes (or edges) of each type."""
    credits: dict[str, list[float]] = {}
    count = 0
    for explanation in run:
        if explanation.types is None:
            return []
        by_relation = {" – ".join(name): value for name, value in explanation.by_relation().items()}
        for name, value in (explanation.by_type() or by_relation).items():
            credits.setdefault(name, []).append(value)
        count += 1
    lines = [
        {
            "name": one_line(name),
            "mean": sum(values) / count,
            "absolute": sum(map(abs, values)) / count,
            "low": None,
            "high": None,
            "count": len(values),
        }
        for name, values in credits.items()
    ]
    return sorted(lines, key=lambda line: -line["absolute"])


def _row(workspace: Workspace, query: int, explanation: Explanation) -> dict[str, Any]:
    number, label = query + workspace.run_start, None
    if explanation.kind == "node" and explanation.types is None:
        classes = explanation.field.classes
        label = None if classes is None else int(classes[0])
    elif workspace.live and explanation.kind in ("graph", "node"):
        labels = workspace.table().label
        label = None if labels is None else int(labels[number])
    row = explanation.outputs.index(explanation.target)
    predicted = explanation.target
    if len(explanation.outputs) > 1:
        predicted = explanation.outputs[int(explanation.predictions.argmax())]
    errors = explanation.errors[explanation.errors.isfinite()]
    return {
        "id": number,
        "name": f"graph {number}" if workspace.task == "graph" else workspace.node_name(number),
        "class": label if label is None or label >= 0 else None,
        "predicted": predicted,
        "score": float(explanation.predictions[row]),
        "wrong": label is not None and label >= 0 and label != predicted,
        "error": float(errors.max()) if errors.numel() else 0.0,
        "exact": explanation.certificate.exact,
        "calls": explanation.certificate.calls,
    }


def _lines(workspace: Workspace, summary: Summary, kind: str = "features") -> list[dict[str, Any]]:
    lines = []
    for line in summary.top(MOST):
        name = line.name
        if kind == "features" and workspace.feature_names and isinstance(line.key, int):
            name = workspace.feature_name(line.key)
        if kind == "hops":
            name = f"{line.key} hop{'' if line.key == 1 else 's'} away"
        lines.append({
            "name": name,
            "mean": line.mean,
            "absolute": line.mean_absolute,
            "low": line.low if math.isfinite(line.low) else None,
            "high": line.high if math.isfinite(line.high) else None,
            "count": line.count,
        })  # fmt: skip
    return lines
