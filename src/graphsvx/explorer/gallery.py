"""Small drawings of whole graphs: molecules by RDKit, other graphs as dots and lines."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from torch import Tensor

from graphsvx.core.graph import Graph
from graphsvx.explorer.workspace import Workspace
from graphsvx.views import layout, palette
from graphsvx.views.drawing import Dot, GraphDrawing, Line
from graphsvx_lab.datasets.real import ATOMS

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
    return _dots_and_lines(workspace.checked(data), dark)


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
        options.clearBackground = False
        options.padding = 0.08
        options.bondLineWidth = 1.3
        if dark:
            rdMolDraw2D.SetDarkMode(options)
            options.clearBackground = False
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
        molecule.AddAtom(Chem.Atom(ATOMS[kind]))
    kinds = (Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE)
    attributes = getattr(data, "edge_attr", None)
    orders = attributes.argmax(1).tolist() if isinstance(attributes, Tensor) else None
    for position, (u, v) in enumerate(data.edge_index.t().tolist()):
        if u < v:
            molecule.AddBond(u, v, kinds[0 if orders is None else min(orders[position], 2)])
    for atom in molecule.GetAtoms():
        atom.SetNoImplicit(True)
    return molecule.GetMol()


def _dots_and_lines(graph: Graph, dark: bool) -> str:
    nodes = graph.num_nodes
    pairs = {(min(u, v), max(u, v)) for u, v in graph.edge_index.t().tolist() if u != v}
    drawing = GraphDrawing(
        tuple(Dot(i, str(i), 0, None, 0.0, 0.0, True, False) for i in range(nodes)),
        tuple(Line(a, b) for a, b in sorted(pairs)),
    )
    places = layout.places(drawing, "force" if nodes <= MOST_NODES else "hops", starts=2)
    low, high = places.min(0, initial=0.0), places.max(0, initial=0.0)
    room = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    at = (places - (low + high) / 2) * scale * np.array([1, -1]) + np.array([WIDTH, HEIGHT]) / 2
    kinds = _kinds(graph)
    line, plain = ("#566072", "#a3abb9") if dark else ("#b4b8c0", "#5b6270")
    radius = max(1.5, min(5.0, 40 / max(nodes, 1) ** 0.5))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">'
    ]
    for entry in drawing.lines:
        (x1, y1), (x2, y2) = at[entry.a], at[entry.b]
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke={quoteattr(line)} '
            f'stroke-width="1.2"/>'
        )
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
