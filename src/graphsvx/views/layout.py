"""Node positions of a drawing; deterministic given the drawing and the seed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from graphsvx.errors import InputError
from graphsvx.views.drawing import GraphDrawing

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
    room = np.array([_room(drawing, i, i in bold, crowded) for i in range(count)])
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


def _room(drawing: GraphDrawing, i: int, bold: bool, crowded: bool) -> float:
    """Radius of the space that should be free of other dots."""
    if drawing.dots[i].count > 1:
        return 0.5
    if not crowded:
        return 0.3
    return 0.48 if bold else 0.24


def _roots(drawing: GraphDrawing) -> list[int]:
    """Centres of the rings: the explained dots, else the dot of highest degree."""
    centres = [i for i, dot in enumerate(drawing.dots) if dot.centre]
    if centres:
        return centres
    neighbours = drawing.neighbours()
    return [max(range(len(neighbours)), key=lambda i: (len(neighbours[i]), -i))]


def _rings(drawing: GraphDrawing, rng: np.random.Generator) -> Places:
    """Radial tree layout: the angle of every subtree is proportional to its number of leaves."""
    neighbours = drawing.neighbours()
    roots = _roots(drawing)
    children: dict[int, list[int]] = {i: [] for i in range(len(neighbours))}
    depth = dict.fromkeys(roots, 0)
    order: list[int] = list(roots)
    queue = deque(roots)
    unreached = deque(i for i in range(len(neighbours)) if i not in depth)
    while queue or unreached:
        if not queue:  # another component: attach it on the outermost ring
            i = unreached.popleft()
            if i in depth:
                continue
            depth[i] = max(depth.values()) + 1
            children[roots[0]].append(i)
            order.append(i)
            queue.append(i)
        dot = queue.popleft()
        for neighbour in sorted(neighbours[dot]):
            if neighbour not in depth:
                depth[neighbour] = depth[dot] + 1
                children[dot].append(neighbour)
                order.append(neighbour)
                queue.append(neighbour)
    leaves = [1.0] * len(neighbours)
    for i in reversed(order):
        if children[i]:
            leaves[i] = sum(leaves[child] for child in children[i])
    angle = np.zeros(len(neighbours))
    slices: list[tuple[int, float, float]] = []
    start = float(rng.uniform(0, 2 * math.pi))
    total_leaves = sum(leaves[root] for root in roots)
    for root in roots:
        width = 2 * math.pi * leaves[root] / total_leaves
        slices.append((root, start, width))
        start += width
    while slices:
        dot, begin, width = slices.pop()
        angle[dot] = begin + width / 2
        for child in children[dot]:
            part = width * leaves[child] / leaves[dot]
            slices.append((child, begin, part))
            begin += part
    depths = np.array([depth[i] for i in range(len(neighbours))])
    return _on_rings(angle, depths, len(roots) == 1)


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


def _distances(drawing: GraphDrawing, bold: Collection[int]) -> Places:
    count = len(drawing.dots)
    rows = [line.a for line in drawing.lines]
    columns = [line.b for line in drawing.lines]
    long = [2.0 if line.a in bold and line.b in bold else 1.0 for line in drawing.lines]
    edges = csr_matrix((long, (rows, columns)), shape=(count, count))
    distance = np.asarray(shortest_path(edges, directed=False))
    reachable = np.isfinite(distance)
    distance[~reachable] = distance[reachable].max() + 1.0
    return distance


def _stress(
    drawing: GraphDrawing, start: Places, bold: Collection[int], rounds: int = 120
) -> Places:
    """Stress majorisation: minimise sum over pairs of (|p_i - p_j| - d_ij)^2 / d_ij^2."""
    distance = _distances(drawing, bold)
    np.fill_diagonal(distance, 1.0)
    weight = distance**-2.0
    np.fill_diagonal(weight, 0.0)
    np.fill_diagonal(distance, 0.0)
    laplacian = np.diag(weight.sum(1)) - weight
    inverse = np.linalg.pinv(laplacian)
    now = start - start.mean(0)
    for _ in range(rounds):
        gap = cdist(now, now)
        pull = np.divide(weight * distance, gap, out=np.zeros_like(gap), where=gap > 1e-9)
        step = inverse @ (pull.sum(1)[:, None] * now - pull @ now)
        moved = float(np.abs(step - now).max())
        now = step
        if moved < 1e-4:
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
    gap = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(gap, np.inf)
    return float(np.quantile(gap.min(1), 0.1)) or default
