"""Node positions of a drawing; deterministic given the drawing and the seed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from graphsvx.errors import InputError
from graphsvx.views.drawing import GraphDrawing, breadth_first

Places = NDArray[np.float64]
Layout = Literal["force", "hops", "molecule"]
FEW, STARTS = 80, 8
"""Drawings of up to FEW dots are laid out from STARTS initial positions; the clearest is used."""
CROWD = 20
"""Above this many dots, important dots get more space than the others."""


def places(
    drawing: GraphDrawing,
    layout: Layout = "force",
    seed: int = 0,
    bonds: Mapping[tuple[int, int], float] | None = None,
    bold: Collection[int] = (),
    starts: int = STARTS,
) -> Places:
    """Coordinates [dots, 2]; lines are about 1 long, longer between `bold` dots of large drawings.

    `force` approximates graph distances by Euclidean ones (stress majorisation), `hops` puts every
    hop on a ring around the explained node, `molecule` uses rdkit's drawing rules if it is
    installed and `force` otherwise.
    """
    if layout not in ("force", "hops", "molecule"):
        raise InputError(f"layout must be 'force', 'hops' or 'molecule', got {layout!r}")
    count = len(drawing.dots)
    if count < 2:
        return np.zeros((count, 2))
    if layout == "molecule":
        positions = _rdkit_places(drawing, bonds or {})
        if positions is not None:
            return _landscape(_remove_overlaps(positions, np.full(count, 0.2)))
    rng = np.random.default_rng(seed)
    rings = _rings(drawing, rng)
    if layout == "hops":
        return rings
    crowded = count > CROWD
    space = {True: 0.48, False: 0.24} if crowded else {True: 0.3, False: 0.3}
    # Radius of the space around each dot that should be free of others.
    room = np.array(
        [0.5 if dot.count > 1 else space[i in bold] for i, dot in enumerate(drawing.dots)]
    )
    best, least = rings, math.inf
    for attempt in range(starts if count <= FEW else 1):
        start = rings if attempt == 0 else rings + rng.normal(0, 0.8, rings.shape)
        positions = _remove_overlaps(_stress(drawing, start, bold if crowded else ()), room)
        penalty = _crossing_penalty(drawing, positions) if count <= FEW else 0.0
        if penalty < least:
            best, least = positions, penalty
        if least == 0:
            break
    return _landscape(best)


def _crossing_penalty(drawing: GraphDrawing, places: Places) -> float:
    """Number of line crossings, plus a penalty for lines that pass over dots."""
    if not drawing.lines:
        return 0.0
    ends = np.array([(line.a, line.b) for line in drawing.lines])
    a, b = places[ends[:, 0]], places[ends[:, 1]]
    direction = b - a

    def side(points: Places) -> NDArray[np.float64]:
        """Signed side [lines, points] of each line on which each point lies."""
        gap = points[None] - a[:, None]
        return np.asarray(direction[:, None, 0] * gap[..., 1] - direction[:, None, 1] * gap[..., 0])

    opposite = side(a) * side(b) < -1e-9
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any((2, 3))
    crossings = int((opposite & opposite.T & ~shared).sum()) / 2
    gap = places[None] - a[:, None]
    length = np.maximum((direction**2).sum(1), 1e-9)
    fraction = np.clip((gap * direction[:, None]).sum(2) / length[:, None], 0, 1)
    off = np.linalg.norm(gap - fraction[..., None] * direction[:, None], axis=2)
    off[np.arange(len(ends))[:, None], ends] = np.inf
    return crossings + 2.0 * float(np.maximum(0.0, 1 - off / 0.3).sum())


def _rings(drawing: GraphDrawing, rng: np.random.Generator) -> Places:
    """Radial tree layout: the angle of every subtree is proportional to its number of leaves."""
    neighbours = [sorted(adjacent) for adjacent in drawing.neighbours()]
    count = len(neighbours)
    roots = [i for i, dot in enumerate(drawing.dots) if dot.centre]
    if not roots:
        roots = [max(range(count), key=lambda i: (len(neighbours[i]), -i))]
    children: list[list[int]] = [[] for _ in neighbours]
    depth: dict[int, int] = {}  # in the order in which dots are reached
    for sources in (roots, *([i] for i in range(count))):
        if sources[0] in depth:
            continue
        if depth:  # another component: attach it on the outermost ring
            children[roots[0]].append(sources[0])
        outermost = max(depth.values(), default=-1) + 1
        for dot, before, _ in breadth_first(neighbours, sources):
            depth[dot] = outermost if before is None else depth[before] + 1
            if before is not None:
                children[before].append(dot)
    leaves = np.ones(count)
    for dot in reversed(depth):
        if children[dot]:
            leaves[dot] = sum(leaves[child] for child in children[dot])
    begin, width = np.zeros(count), np.zeros(count)
    width[roots] = 2 * math.pi * leaves[roots] / leaves[roots].sum()
    begin[roots] = float(rng.uniform(0, 2 * math.pi)) + np.cumsum(width[roots]) - width[roots]
    for dot in depth:
        start = begin[dot]
        for child in children[dot]:
            begin[child], width[child] = start, width[dot] * leaves[child] / leaves[dot]
            start += width[child]
    depths = np.array([depth[i] for i in range(count)])
    return _on_rings(begin + width / 2, depths, len(roots) == 1)


def _on_rings(angle: NDArray[np.float64], depth: NDArray[np.int64], one_root: bool) -> Places:
    """Each depth on a circle large enough for its dots; full circles are filled evenly."""
    out = np.zeros((len(angle), 2))
    radius = -1.0 if one_root else -0.5
    for ring in range(int(depth.max()) + 1):
        inside = np.flatnonzero(depth == ring)
        inside = inside[np.argsort(angle[inside], kind="stable")]
        need = len(inside) * 0.6 / (2 * math.pi)
        radius = radius + 1.0 if len(inside) == 1 else max(radius + 1.0, need)
        if radius <= 0:
            continue
        even = 2 * math.pi * np.arange(len(inside)) / max(1, len(inside))
        even += float(np.mean(angle[inside] - even))
        full = min(1.0, need / radius)
        turned = (1 - full) * angle[inside] + full * even
        out[inside] = radius * np.stack([np.cos(turned), np.sin(turned)], axis=1)
    return out


def _stress(
    drawing: GraphDrawing, start: Places, bold: Collection[int], rounds: int = 120
) -> Places:
    """Stress majorisation: minimise sum over pairs of (|p_i - p_j| - d_ij)^2 / d_ij^2."""
    count, lines = len(drawing.dots), drawing.lines
    long = [2.0 if line.a in bold and line.b in bold else 1.0 for line in lines]
    ends = ([line.a for line in lines], [line.b for line in lines])
    edges = csr_matrix((long, ends), shape=(count, count))
    distance = np.asarray(shortest_path(edges, directed=False))
    reachable = np.isfinite(distance)
    distance[~reachable] = distance[reachable].max() + 1.0
    np.fill_diagonal(distance, 1.0)
    weight = distance**-2.0
    np.fill_diagonal(weight, 0.0)
    np.fill_diagonal(distance, 0.0)
    inverse = np.linalg.pinv(np.diag(weight.sum(1)) - weight)
    now = start - start.mean(0)
    for _ in range(rounds):
        gap = cdist(now, now)
        pull = np.divide(weight * distance, gap, out=np.zeros_like(gap), where=gap > 1e-9)
        before, now = now, inverse @ (pull.sum(1)[:, None] * now - pull @ now)
        if float(np.abs(now - before).max()) < 1e-4:
            break
    return now


def _remove_overlaps(start: Places, room: NDArray[np.float64], rounds: int = 80) -> Places:
    """Push dots apart that are closer than the sum of their radii `room`."""
    now = start.copy()
    least = room[:, None] + room[None]
    # Two dots at the same position are pushed apart along a direction given by their index.
    turn = np.arange(len(now)) * 2.399963
    spread = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for _ in range(rounds):
        gap = cdist(now, now)
        np.fill_diagonal(gap, np.inf)
        i, j = np.nonzero(gap < least)
        if not len(i):
            break
        apart = gap[i, j][:, None]
        direction = np.where(
            apart > 1e-6, (now[i] - now[j]) / np.maximum(apart, 1e-6), spread[i] - spread[j]
        )
        push = direction * 0.3 * (least[i, j][:, None] - apart)
        now = now + np.stack(
            [np.bincount(i, push[:, axis], minlength=len(now)) for axis in (0, 1)], axis=1
        )
    return now


def _landscape(start: Places) -> Places:
    """Positions rotated to their principal axes, so that the longest extent is horizontal."""
    centred = start - start.mean(0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned = centred @ axes[:, ::-1]
    # eigh does not fix the signs: make the third moments positive.
    signs = np.where((turned**3).sum(0) < 0, -1.0, 1.0)
    return np.asarray(turned * signs)


def _rdkit_places(drawing: GraphDrawing, bonds: Mapping[tuple[int, int], float]) -> Places | None:
    try:
        from rdkit import Chem  # noqa: PLC0415  (an extra)
        from rdkit.Chem import rdDepictor  # noqa: PLC0415  (an extra)
    except ImportError:
        return None
    molecule = Chem.RWMol()
    for _ in drawing.dots:
        # Only the layout is needed: a dummy atom accepts any number of bonds.
        molecule.AddAtom(Chem.Atom(0))
    kinds = {1.0: Chem.BondType.SINGLE, 2.0: Chem.BondType.DOUBLE, 3.0: Chem.BondType.TRIPLE}
    for line in drawing.lines:
        order = bond_order(bonds, drawing.dots[line.a].id, drawing.dots[line.b].id)
        molecule.AddBond(line.a, line.b, kinds.get(order, Chem.BondType.SINGLE))
    rdDepictor.Compute2DCoords(molecule, canonOrient=True)
    conformer = molecule.GetConformer()
    atoms = [conformer.GetAtomPosition(i) for i in range(len(drawing.dots))]
    return np.array([[atom.x, atom.y] for atom in atoms]) / 1.5  # rdkit's bonds are 1.5 long


def bond_order(bonds: Mapping[tuple[int, int], float], u: int, v: int) -> float:
    """The order of the bond u-v or v-u; 1 if it is not in `bonds`."""
    return float(bonds.get((u, v), bonds.get((v, u), 1.0)))


def extent(places: Places) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the dots."""
    if not len(places):
        return 0.0, 1.0, 0.0, 1.0
    low, high = places.min(0), places.max(0)
    return float(low[0]), float(high[0]), float(low[1]), float(high[1])


def nearest_gap(places: Places, default: float = 1.0) -> float:
    """The 10 % quantile of the distances from each dot to its nearest other dot."""
    if len(places) < 2:
        return default
    gap = cdist(places, places)
    np.fill_diagonal(gap, np.inf)
    return float(np.quantile(gap.min(1), 0.1)) or default
