"""What is served: lists of nodes and graphs, features, maps, small drawings, and runs summed up."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata

from graphsvx import __version__
from graphsvx.core.graph import Graph
from graphsvx.explorer.predictions import Predictions, table_of_run
from graphsvx.explorer.questions import Limits, Parameters, method_names
from graphsvx.explorer.workspace import Workspace
from graphsvx.results.explanation import Explanation
from graphsvx.results.summary import Line, Summary
from graphsvx.utils.printable import one_line
from graphsvx.views import palette
from graphsvx.views.drawing import Dot, GraphDrawing, Stroke, places
from graphsvx_lab.datasets.real import ATOMS

# --- nodes and graphs page by page, and what is served -------------------------------------

SORTS = ("id", "confidence", "-confidence", "size", "-size")


def rows(
    workspace: Workspace, parameters: Parameters, limits: Limits
) -> Callable[[], dict[str, Any]]:
    """What finds the rows that match the filters of a query string, and how many there are."""
    types = workspace.types
    model = parameters.choice("model", workspace.models) or workspace.default_model
    words = parameters.text("q")
    kind = None if types is None else parameters.choice("type", types.node_types)
    labels = {name: parameters.integer(name, -1, 10**6) for name in ("class", "predicted")}
    answer = parameters.choice("answer", ("right", "wrong"))
    low, high = parameters.number("min_score"), parameters.number("max_score")
    sort = parameters.choice("sort", SORTS) or "id"
    offset = parameters.integer("offset", 0, 10**9) or 0
    count = parameters.integer("limit", 1, limits.rows) or 50

    def find() -> dict[str, Any]:
        table = workspace.table(model)
        keep = _search(workspace, table, words)
        if types is not None and kind is not None:
            keep &= types.kinds(table.ids) == types.type_id(kind)
        for name, column in (("class", table.label), ("predicted", table.predicted)):
            if labels[name] is not None:
                keep &= column == labels[name] if column is not None else False
        if answer is not None:
            keep &= table.judged & (table.wrong == (answer == "wrong"))
        keep &= table.score >= (-math.inf if low is None else low)
        keep &= table.score <= (math.inf if high is None else high)
        order = _sorted(table, np.flatnonzero(keep), sort)
        page = order[offset : offset + count].tolist()
        shown = [row(workspace, table, position) for position in page]
        return {"total": len(order), "offset": offset, "rows": shown}

    return find


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
        **({} if types is None else {"type": one_line(types.named(number)[0])}),
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
    count = max(int(column.max(initial=-1)) for column in columns) + 1
    names = list(map(one_line, workspace.class_names or ()))
    word = "output" if workspace.scale == "value" else "class"
    return [*names, *(f"{word} {i}" for i in range(len(names), count))]


def _search(workspace: Workspace, table: Predictions, text: str | None) -> NDArray[np.bool_]:
    """Rows whose id or name matches: an id exactly or by its first digits, a name by a part."""
    if text is None:
        return np.ones(len(table.ids), dtype=bool)
    words = text.casefold().strip()
    for prefix in ("node ", "graph ", "#"):
        words = words.removeprefix(prefix)
    numbers, types = table.ids.tolist(), workspace.types
    ids = table.ids if types is None else types.local(table.ids)
    matches = np.char.startswith(ids.astype(str), words)
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
    graph = workspace.checked[0] if workspace.live and workspace.task != "graph" else None
    names = class_names(workspace)
    judged = table.judged & (workspace.task != "link")
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
        "accuracy": float((~table.wrong[judged]).mean()) if judged.any() else None,
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
    explained = set(types.kinds(table.ids[table.predicted >= 0]).tolist())
    return [
        {
            "name": one_line(name),
            "start": int(types.node_starts[i]),
            "count": types.count(name),
            "colour": palette.of_class(i),
            "predicted": workspace.task == "link" or i in explained,
        }
        for i, name in enumerate(types.node_types)
    ]


# Features of a node, or of a whole graph, with names, values and means.


def feature_list(
    workspace: Workspace, graph: Graph, node: int | None, words: str | None, count: int
) -> dict[str, Any]:
    """The features with the largest values whose name or number matches; None: their means."""
    first, values = 0, graph.statistics.mean
    if node is not None:
        types = graph.types
        block = types.blocks[types.named(node)[0]]
        first, values = block.start, types.table(np.asarray([node]))[0, block].double()
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
                "value": finite(float(values[column - first])),
                "mean": finite(float(graph.statistics.mean[column])),
            }
            for column in columns[:count]
        ],
    }


def finite(number: float) -> float | None:
    """A number for JSON."""
    return number if math.isfinite(number) else None


# --- a map of all nodes ------------------------------------------------------------------


# Edges pull, and nodes repel each other by a force of 1 / distance. The repulsion of all pairs is a
# convolution of the density of nodes on a grid (particle-mesh method), so that a round costs
# O(nodes + edges + grid log grid) instead of O(nodes^2).

Positions = NDArray[np.float64]
_GRID = 128
_ROUNDS = 160


def map_of(graph: Graph) -> dict[str, Any]:
    """Positions of all nodes from 0 to 10,000, and the ends of all edges, each pair once."""
    nodes, ends = graph.num_nodes, np.sort(graph.edge_index.cpu().numpy(), axis=0)
    pairs = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    adjacency = coo_matrix((np.ones(pairs.shape[1]), tuple(pairs)), (nodes, nodes))
    positions = _positions((adjacency + adjacency.T).tocsr()) if nodes > 1 else np.full((1, 2), 0.5)
    x, y = np.round(10_000 * positions[:nodes].T).astype(int).tolist()
    return {"x": x, "y": y, "edges": pairs.T.ravel().tolist()}


def _positions(adjacency: csr_matrix) -> Positions:
    """Positions [nodes, 2] between 0 and 1; the same graph gives the same positions."""
    degree = np.asarray(adjacency.sum(1)).reshape(-1, 1)
    position = _start(adjacency, degree)
    # Hubs are heavy: they keep a distance from each other, and their leaves gather around them.
    weight = 1 + degree
    for step in range(_ROUNDS):
        spread = position - position.mean(0)
        attraction = adjacency @ position - degree * position
        gravity = -spread / np.maximum(np.linalg.norm(spread, axis=1, keepdims=True), 1e-9)
        force = attraction + weight * (1.2 * _repulsion(position, weight) + 1.5 * gravity)
        move = force / weight
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        # A node moves by at most a share of the picture that shrinks from round to round.
        limit = 0.08 * float(np.abs(spread).max()) * (1 - step / _ROUNDS) ** 1.5
        position = position + move * np.minimum(1.0, limit / length)
    return _normalised(position)


def _start(adjacency: csr_matrix, degree: NDArray[np.float64]) -> Positions:
    """Random positions, smoothed along the edges; the largest component in the middle."""
    rng = np.random.default_rng(0)
    nodes = len(degree)
    count, component = connected_components(adjacency, directed=False)
    main = component == np.bincount(component, minlength=count).argmax()
    position = rng.normal(size=(nodes, 2))
    for _ in range(60):  # power iterations: neighbours come close to each other
        position = 0.5 * position + 0.5 * (adjacency @ position) / np.maximum(degree, 1)
        position[main] -= position[main].mean(0)
        position[main] /= np.maximum(position[main].std(0), 1e-9)
    angle = rng.uniform(0, 2 * np.pi, count)[component]
    ring = 1.8 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    position[~main] = ring[~main] + 0.05 * rng.normal(size=(int((~main).sum()), 2))
    position[main] += 0.02 * rng.normal(size=(int(main.sum()), 2))
    return position * np.sqrt(nodes)


def _repulsion(position: Positions, weight: NDArray[np.float64]) -> Positions:
    """Sum over all other nodes of weight * direction / distance, on a grid."""
    low, extent = position.min(0), float(np.ptp(position, axis=0).max())
    cell = extent / (_GRID - 3) or 1.0
    at = (position - low) / cell + 0.5
    corner = np.floor(at).astype(np.int64)
    share = at - corner
    # Each node is shared out among the four corners of its cell.
    corners = list(product((0, 1), (0, 1)))
    shares = [np.abs(1 - np.array(step) - share).prod(1) for step in corners]
    columns = [(corner + step) @ (_GRID, 1) for step in corners]
    rows = np.tile(np.arange(len(position)), 4)
    nodes_to_grid = csr_matrix(
        (np.concatenate(shares), (rows, np.concatenate(columns))), (len(position), _GRID**2)
    )
    density = (nodes_to_grid.T @ weight).reshape(_GRID, _GRID)
    distance = np.indices((2 * _GRID - 1, 2 * _GRID - 1)) - (_GRID - 1)
    kernel = distance / ((distance**2).sum(0) + 0.5)
    forces = [fftconvolve(part, density, mode="valid").ravel() for part in kernel]
    return np.asarray(nodes_to_grid @ np.stack(forces, axis=1) / cell)


def _normalised(position: Positions) -> Positions:
    """Positions in the unit square, with crowded middles spread out.

    A node's distance to the middle becomes a mixture of the distance itself and of its rank, which
    alone would fill the disc evenly.
    """
    centred = position - np.median(position, axis=0)
    radius = np.linalg.norm(centred, axis=1)
    even = np.sqrt(rankdata(radius, "ordinal") / len(radius))
    mixed = 0.3 * radius / max(float(radius.max()), 1e-9) + 0.7 * even
    spread = centred * (mixed / np.maximum(radius, 1e-9))[:, None]
    low, high = spread.min(0), spread.max(0)
    middle, half = (low + high) / 2, float((high - low).max()) / 2 or 1.0
    return np.asarray(0.5 + (spread - middle) / (2 * half))


# --- small drawings of whole graphs: molecules by RDKit, others as dots and lines --------


WIDTH, HEIGHT, MARGIN = 220, 150, 14
MOST_NODES = 300
"""Larger graphs are drawn as rings, which cost less than springs."""


@lru_cache(maxsize=2048)
def thumbnail(workspace: Workspace, graph: int, dark: bool) -> str:
    """An SVG image of a graph."""
    data = workspace.graphs[graph]
    if workspace.atoms or "smiles" in data:
        picture = _molecule(data, dark)
        if picture is not None:
            return picture
    return _dots_and_lines(workspace.checked[graph], dark)


def _molecule(data: Any, dark: bool) -> str | None:
    """The molecule as chemists draw it; None without RDKit, or where RDKit refuses."""
    try:
        from rdkit import Chem  # noqa: PLC0415  (an extra)
        from rdkit.Chem.Draw import rdMolDraw2D  # noqa: PLC0415  (an extra)
        from rdkit.rdBase import BlockLogs  # noqa: PLC0415  (an extra)
    except ImportError:
        return None
    molecule = Chem.MolFromSmiles(data.smiles) if "smiles" in data else _read_atoms(data)
    try:
        with BlockLogs():  # it warns of hydrogen that stands alone
            without_hydrogen = Chem.RemoveHs(molecule, sanitize=False)
        without_hydrogen.UpdatePropertyCache(strict=False)
        canvas = rdMolDraw2D.MolDraw2DSVG(WIDTH, HEIGHT)
        options: Any = canvas.drawOptions()
        if dark:
            rdMolDraw2D.SetDarkMode(options)
        options.clearBackground = False
        options.padding = 0.08
        options.bondLineWidth = 1.3
        rdMolDraw2D.PrepareAndDrawMolecule(canvas, without_hydrogen, kekulize=False)
        canvas.FinishDrawing()
    except Exception:  # of a molecule that RDKit cannot draw
        return None
    return re.sub(r"<\?xml[^>]*\?>\s*", "", canvas.GetDrawingText())


def _read_atoms(data: Any) -> Any:
    """The molecule of one-hot kinds of atoms and orders of bonds."""
    from rdkit import Chem  # noqa: PLC0415  (an extra)

    molecule = Chem.RWMol()
    for kind in data.x.argmax(1).tolist():
        atom = Chem.Atom(ATOMS[kind])
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    kinds = (Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE)
    pairs = data.edge_index.t().tolist()
    orders = [0] * len(pairs) if data.edge_attr is None else data.edge_attr.argmax(1).tolist()
    for (u, v), order in zip(pairs, orders, strict=True):
        if u < v:
            molecule.AddBond(u, v, kinds[min(order, 2)])
    return molecule.GetMol()


def _dots_and_lines(graph: Graph, dark: bool) -> str:
    nodes = graph.num_nodes
    pairs = {(min(u, v), max(u, v)) for u, v in graph.edge_index.t().tolist() if u != v}
    drawing = GraphDrawing(
        tuple(Dot(i, str(i), 0, None, 0.0, 0.0, True, False) for i in range(nodes)),
        tuple(Stroke(a, b) for a, b in sorted(pairs)),
    )
    positions = places(drawing, "force" if nodes <= MOST_NODES else "hops", starts=2)
    low, high = positions.min(0, initial=0.0), positions.max(0, initial=0.0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    at = (positions - (low + high) / 2) * scale * np.array([1, -1]) + np.array([WIDTH, HEIGHT]) / 2
    kinds = _kinds(graph)
    line, plain = ("#566072", "#a3abb9") if dark else ("#b4b8c0", "#5b6270")
    radius = max(1.5, min(5.0, 40 / max(nodes, 1) ** 0.5))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">'
    ]
    for entry in drawing.lines:
        (x1, y1), (x2, y2) = at[entry.a], at[entry.b]
        path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        parts.append(f'<path d="{path}" stroke="{line}" stroke-width="1.2"/>')
    for (cx, cy), kind in zip(at.tolist(), kinds, strict=True):
        colour = plain if kind is None else palette.of_class(kind)
        parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="{radius:.1f}" fill="{colour}"/>')
    return "".join([*parts, "</svg>"])


def _kinds(graph: Graph) -> list[int] | list[None]:
    """What nodes are coloured by: their types, or one-hot features."""
    if graph.has_types:
        return [int(kind) for kind in graph.types.node_type]
    x = graph.x
    one_hot = x.shape[1] > 1 and bool(((x == 0) | (x == 1)).all() and (x.sum(1) == 1).all())
    return x.argmax(1).tolist() if one_hot else [None] * graph.num_nodes


# --- a run: global importance, wide error bars, wrong predictions ------------------------


MOST = 20


def run_overview(workspace: Workspace, status: Any) -> dict[str, Any]:
    """Importance by feature, class and distance; the widest bars; wrong predictions first."""
    run = workspace.run
    summary, table, first = run.summary(), table_of_run(workspace), next(iter(run), None)

    def feature(line: Line) -> str:
        if workspace.feature_names is None or not isinstance(line.key, int):
            return line.name
        return workspace.feature_name(line.key)

    types = _by_type(run) if first is not None and first.types else None
    rows = []
    for position, explanation in zip(range(len(table.ids)), run, strict=False):
        errors = explanation.errors[explanation.errors.isfinite()]
        rows.append(
            {
                **row(workspace, table, position),
                "predicted": int(table.predicted[position]),
                "score": float(table.score[position]),
                "error": float(errors.max()) if errors.numel() else 0.0,
                "exact": explanation.certificate.exact,
                "calls": explanation.certificate.calls,
            }
        )
    widest = sorted(rows, key=lambda row: -row["error"])[:MOST]
    wrong = sorted((row for row in rows if row["wrong"]), key=lambda row: -row["score"])
    settings = run.manifest.get("identity", {}).get("setting", {})
    return {
        "folder": str(run.folder.name),
        "status": {name: getattr(status, name) for name in ("state", "total", "done", "failed")},
        "method": settings.get("method"),
        "features": _lines(summary.features, feature),
        "classes": {str(output): _lines(part, feature) for output, part in summary.classes.items()},
        "roles": _lines(summary.roles, lambda line: hops_away(line.key)),
        "types": [] if types is None else _lines(types, attrgetter("name"), most=None),
        "widest": [row for row in widest if row["error"] > 0],
        "wrong": wrong[:200],
        "explanations": len(rows),
        "exact": sum(row["exact"] for row in rows),
        "calls": sum(row["calls"] for row in rows),
    }


def _by_type(explanations: Iterable[Explanation]) -> Summary:
    """Credit of all nodes (or edges) of each type."""
    rows = [
        e.by_type() or {" – ".join(name): value for name, value in e.by_relation().items()}
        for e in explanations
    ]
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    matrix = np.array([[row.get(name, np.nan) for name in names] for row in rows])
    return Summary(names, tuple(map(one_line, names)), matrix, (0,) * len(rows))


def _lines(
    summary: Summary, name: Callable[[Line], str], most: int | None = MOST
) -> list[dict[str, Any]]:
    """The players of a summary that matter most, with their names on the page."""
    return [
        {
            "name": name(line),
            "mean": line.mean,
            "absolute": line.mean_absolute,
            "low": finite(line.low),
            "high": finite(line.high),
            "count": line.count,
        }
        for line in summary.top(most)
    ]


def hops_away(hops: Any) -> str:
    """The nodes at a distance in words."""
    return f"{hops} hop{'' if hops == 1 else 's'} away"
