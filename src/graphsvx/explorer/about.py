"""What is served, for the page: task, classes, node types, models, methods and limits."""

from __future__ import annotations

from typing import Any

from graphsvx import __version__
from graphsvx.explorer.limits import Limits
from graphsvx.explorer.questions import methods
from graphsvx.explorer.rows import class_names
from graphsvx.explorer.workspace import Workspace
from graphsvx.utils.printable import one_line
from graphsvx.views import palette

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
        "methods": list(methods(workspace.typed)),
        "classes": [{"name": name, "colour": palette.of_class(i)} for i, name in enumerate(names)],
        "types": _types(workspace),
        "typed": workspace.typed,
        "relations": [one_line(name) for name in workspace.relations],
        "outputs": list(LINK_NAMES) if workspace.task == "link" else list(names),
        "count": len(table.ids),
        "edges": None if graph is None else graph.num_edges,
        "features": None if graph is None else graph.num_features,
        "accuracy": None if not judged.any() or workspace.task == "link"
        else float((~table.wrong[judged]).mean()),
        "wrong": int(table.wrong.sum()),
        "map": graph is not None and graph.num_nodes <= limits.map_nodes
        and graph.num_edges <= limits.map_edges,
        "limits": {"samples": limits.samples, "tolerance": limits.tolerance,
                   "mapNodes": limits.map_nodes, "mapEdges": limits.map_edges},
    }  # fmt: skip


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
