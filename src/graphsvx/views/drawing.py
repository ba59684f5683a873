"""The graph of an explanation as dots and lines, and where they are, before rendering.

Shared by plots and HTML reports; needs neither matplotlib nor a browser. Positions are
deterministic given the drawing and the seed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist

from graphsvx.core.arrays import Floats, Ids
from graphsvx.results.credit import Uncertain
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import members_of
from graphsvx.results.ranking import listed
from graphsvx.utils.constraints import checked
from graphsvx.utils.printable import one_line

Places = Floats
Layout = Literal["force", "hops", "molecule"]
FEW, STARTS = 80, 8
"""Drawings of up to FEW dots are laid out from STARTS initial positions; the clearest is used."""
CROWD = 20
"""Above this many dots, important dots get more space than the others."""


@dataclass(frozen=True)
class Dot(Uncertain):
    """A node of the receptive field, or a group of `count` > 1 nodes."""

    id: int
    label: str
    hop: int
    category: int | None
    """The node's class, where the data has one."""
    credit: float
    """Signed credit of the target output; 0 for a node that is not a player."""
    error: float
    plays: bool
    centre: bool
    count: int = 1
    shape: int = 0
    """Position of the node's type in a typed graph: types have different shapes."""


@dataclass(frozen=True)
class Stroke:
    """An edge between the dots at positions a and b; both directions are one line."""

    a: int
    b: int
    credit: float = 0.0
    plays: bool = False
    one_way: bool = False


@dataclass(frozen=True)
class GraphDrawing:
    """Dots and the lines between them."""

    dots: tuple[Dot, ...]
    lines: tuple[Stroke, ...]

    @property
    def largest(self) -> float:
        """The largest absolute credit of a line or of a dot that is not a group."""
        credits = [abs(dot.credit) for dot in self.dots if dot.count == 1]
        return max(credits + [abs(line.credit) for line in self.lines], default=0.0)

    def neighbours(self) -> list[list[int]]:
        """Adjacency list: the positions of each dot's neighbours."""
        adjacent: list[list[int]] = [[] for _ in self.dots]
        for line in self.lines:
            adjacent[line.a].append(line.b)
            adjacent[line.b].append(line.a)
        return adjacent


def drawing_of(explanation: Explanation) -> GraphDrawing:
    """The receptive field of an explanation, with the credit of its target output."""
    field, types = explanation.field, explanation.hetero
    players = {entry.key[0]: entry for entry in listed(explanation, "nodes")}
    labels = dict(explanation.node_labels)
    if explanation.node_credit.names is not None:
        labels |= {node: entry.name for node, entry in players.items()}
    ids = field.ids.tolist()
    classes = [None] * len(ids) if field.classes is None else field.classes.tolist()
    dots = tuple(
        Dot(
            id=node,
            label=one_line(labels.get(node, str(node))),
            hop=hop,
            category=category,
            credit=players[node].credit if node in players else 0.0,
            error=players[node].error if node in players else 0.0,
            plays=node in players,
            centre=node in explanation.centres,
            shape=0 if types is None else types.node_types.index(types.node(node)[0]),
        )
        for node, hop, category in zip(ids, field.hops.tolist(), classes, strict=True)
    )
    return GraphDrawing(dots, _lines(explanation, {node: i for i, node in enumerate(ids)}))


def _lines(explanation: Explanation, position: dict[int, int]) -> tuple[Stroke, ...]:
    def inside(pairs: Iterable[Sequence[int]]) -> set[tuple[int, int]]:
        """Pairs of nodes that are both drawn, by their positions."""
        pairs_drawn = (pair for pair in pairs if pair[0] != pair[1] and position.keys() >= {*pair})
        return {(position[u], position[v]) for u, v in pairs_drawn}

    directed = inside(explanation.field.edge_index.t().tolist())
    credit: dict[tuple[int, int], float] = defaultdict(float)
    for ends, value in _edge_credit(explanation):
        for a, b in inside([ends]):
            credit[min(a, b), max(a, b)] += value
            directed.add((a, b))
    # Edges that exist in both directions are drawn without arrows.
    return tuple(
        Stroke(
            *((a, b) if (a, b) in directed else (b, a)),
            credit=credit.get((a, b), 0.0),
            plays=(a, b) in credit,
            one_way=((a, b) in directed) != ((b, a) in directed) and not credit,
        )
        for a, b in sorted({(min(pair), max(pair)) for pair in directed})
    )


def _edge_credit(explanation: Explanation) -> list[tuple[Sequence[int], float]]:
    """Credit to draw on edges; each edge of a relation or meta-path shows that of its player."""
    credited = []
    for entry in listed(explanation, "edges"):
        edges = [entry.key] if explanation.types is None else members_of(explanation, entry)
        both_ways = len(edges) > 1
        for ends in {(min(pair), max(pair)) for pair in edges} if both_ways else edges:
            credited.append((ends, entry.credit))
    return credited


def dots_of(explanation: Explanation, drawing: GraphDrawing) -> dict[int, int]:
    """The dots of players that are drawn individually, by their position among all players."""
    if explanation.node_groups:
        return {}
    dot_of = {dot.id: i for i, dot in enumerate(drawing.dots) if dot.count == 1}
    nodes = enumerate(explanation.node_ids.tolist(), start=explanation.feature_credit.players)
    return {position: dot_of[node] for position, node in nodes if node in dot_of}


def category_name(explanation: Explanation, category: int) -> str:
    """The node type or class of dots; `class_names` are those of nodes where they have classes."""
    if explanation.hetero is not None:
        return one_line(explanation.hetero.node_types[category])
    classified = explanation.kind in ("node", "nodes")
    return explanation.class_name(category) if classified else f"type {category}"


def important(drawing: GraphDrawing, top: int | None = None) -> frozenset[int]:
    """Positions of the important dots: the explained ones and those with the most credit.

    With `top`, the `top` dots of largest absolute credit; otherwise the fewest dots that carry
    80 % of the absolute credit, at most ten, without those that have less than 10 % of the largest
    credit or are less than two standard errors away from 0.
    """
    dots = {i for i, dot in enumerate(drawing.dots) if dot.centre}
    singles = [i for i, dot in enumerate(drawing.dots) if dot.plays and dot.count == 1]
    singles.sort(key=lambda i: (-abs(drawing.dots[i].credit), drawing.dots[i].id))
    if top is not None:
        return frozenset(dots | set(singles[:top]))
    threshold = 0.8 * sum(abs(drawing.dots[i].credit) for i in singles)
    carried = 0.0
    for i in singles[:10]:
        size = abs(drawing.dots[i].credit)
        if carried >= threshold or size == 0 or size < 0.1 * drawing.largest:
            break
        if drawing.dots[i].sure:
            dots.add(i)
        carried += size
    return frozenset(dots)


@dataclass(frozen=True)
class Grouping:
    """Which dots are drawn individually, and which are merged into a bubble."""

    single: tuple[int, ...]
    bubbles: tuple[tuple[int, tuple[int, ...]], ...]
    """Pairs of the single dot that the bubble is linked to, and the dots merged into it."""


def find_groups(drawing: GraphDrawing, most: int, bubbles: int = 6) -> Grouping:
    """Choose at most `most` dots to draw individually; the others are grouped by branch and ring.

    Drawn individually are the explained dots, those with the most credit, and those on the
    shortest paths between them. A bubble holds the others of one branch (nearest to the same
    single dot) at one distance from the explained dots.
    """
    if len(drawing.dots) <= most:
        return Grouping(tuple(range(len(drawing.dots))), ())
    single = _single_dots(drawing, most)
    members: dict[tuple[int, int], list[int]] = {}
    for merged, anchor in _anchors(drawing, single, bubbles).items():
        members.setdefault((anchor, drawing.dots[merged].hop), []).append(merged)
    # A group of one that is joined to a single dot is drawn as what it is.
    neighbours = drawing.neighbours()
    for key in [key for key, group in members.items() if len(group) == 1]:
        if single.intersection(neighbours[members[key][0]]):
            single.update(members.pop(key))
    groups = tuple((anchor, tuple(group)) for (anchor, _), group in sorted(members.items()))
    return Grouping(tuple(sorted(single)), groups)


def with_groups(drawing: GraphDrawing, grouping: Grouping) -> GraphDrawing:
    """The drawing with groups as bubbles, each with the summed credit of its nodes."""
    position = {old: new for new, old in enumerate(grouping.single)}
    dots = [drawing.dots[i] for i in grouping.single]
    lines = [
        replace(line, a=position[line.a], b=position[line.b])
        for line in drawing.lines
        if line.a in position and line.b in position
    ]
    for anchor, members in grouping.bubbles:
        group = [drawing.dots[i] for i in members]
        lines.append(Stroke(position[anchor], len(dots)))
        bubble = Dot(
            id=-1,
            label=f"+{len(group)}",
            hop=min(dot.hop for dot in group),
            category=None,
            credit=math.fsum(dot.credit for dot in group),
            error=0.0,
            plays=any(dot.plays for dot in group),
            centre=False,
            count=len(group),
        )
        dots.append(bubble)
    return GraphDrawing(tuple(dots), tuple(lines))


def _single_dots(drawing: GraphDrawing, most: int) -> set[int]:
    """Positions of the dots to draw individually, at most `most`."""
    centres = [i for i, dot in enumerate(drawing.dots) if dot.centre]
    single = set(centres[:most])
    strength = [abs(dot.credit) for dot in drawing.dots]
    for line in drawing.lines:
        strength[line.a] += abs(line.credit)
        strength[line.b] += abs(line.credit)
    ranked = sorted(range(len(drawing.dots)), key=lambda i: (-strength[i], i))
    rank = {i: place for place, i in enumerate(ranked)}
    # A tree of shortest paths from the explained dots, along the most credit.
    neighbours = [sorted(adjacent, key=rank.__getitem__) for adjacent in drawing.neighbours()]
    tree = breadth_first(neighbours, sorted(centres, key=lambda i: -strength[i]))
    parent = {dot: before for dot, before, _ in tree}
    for i in ranked:
        path, step = {i}, parent.get(i)
        while step is not None and step not in single:
            path.add(step)
            step = parent[step]
        if len(single | path) <= most:
            single |= path
        if len(single) == most:
            break
    return single or {ranked[0]}


def _anchors(drawing: GraphDrawing, single: set[int], bubbles: int) -> dict[int, int]:
    """For every merged dot, the single dot whose bubble it joins."""
    neighbours = drawing.neighbours()
    merged = [i for i in range(len(neighbours)) if i not in single]
    nearest = {dot: source for dot, _, source in breadth_first(neighbours, sorted(single))}
    count = Counter(nearest[i] for i in merged if i in nearest)
    largest = sorted(count, key=lambda anchor: (-count[anchor], anchor))[:bubbles]
    fallback = largest[0] if largest else min(single)
    nearest = {dot: source for dot, _, source in breadth_first(neighbours, sorted(largest))}
    # Dots that cannot be reached join the largest bubble.
    return {i: nearest.get(i, fallback) for i in merged}


def breadth_first(
    neighbours: list[list[int]], sources: Sequence[int]
) -> Iterator[tuple[int, int | None, int]]:
    """Breadth-first search: each dot that is reached, the one before it, and its source."""
    queue: deque[tuple[int, int | None, int]] = deque((dot, None, dot) for dot in sources)
    seen = set(sources)
    while queue:
        dot, before, source = queue.popleft()
        yield dot, before, source
        for neighbour in neighbours[dot]:
            if neighbour not in seen:
                seen.add(neighbour)
                queue.append((neighbour, dot, source))


# --- where the dots are --------------------------------------------------------------------


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
    layout, count = checked(layout, Layout, "layout"), len(drawing.dots)
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
    space = (0.24, 0.48) if crowded else (0.3, 0.3)
    # Radius of the space around each dot that should be free of others.
    room = [0.5 if dot.count > 1 else space[i in bold] for i, dot in enumerate(drawing.dots)]
    best, least = rings, math.inf
    for attempt in range(starts if count <= FEW else 1):
        start = rings if attempt == 0 else rings + rng.normal(0, 0.8, rings.shape)
        stress = _stress(drawing, start, bold if crowded else ())
        positions = _remove_overlaps(stress, np.array(room))
        penalty = _crossing_penalty(drawing, positions) if count <= FEW else 0.0
        if penalty < least:
            best, least = positions, penalty
        if least == 0:
            break
    return _landscape(best)


def _crossing_penalty(drawing: GraphDrawing, places: Places) -> float:
    """Number of line crossings, plus a penalty for lines that pass over dots."""
    ends = np.array([(line.a, line.b) for line in drawing.lines], dtype=int).reshape(-1, 2)
    first = places[ends[:, 0]]
    direction, gap = places[ends[:, 1]] - first, places[None] - first[:, None]
    # On which side of each line each dot lies, [lines, dots].
    side = direction[:, None, 0] * gap[..., 1] - direction[:, None, 1] * gap[..., 0]
    opposite = side[:, ends[:, 0]] * side[:, ends[:, 1]] < -1e-9
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).any((2, 3))
    crossings = int((opposite & opposite.T & ~shared).sum()) / 2
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


def _on_rings(angle: Floats, depth: Ids, one_root: bool) -> Places:
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


def _remove_overlaps(start: Places, room: Floats, rounds: int = 80) -> Places:
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


def extent(places: Places) -> tuple[Floats, Floats]:
    """Smallest and largest coordinates of the dots."""
    return (places.min(0), places.max(0)) if len(places) else (np.zeros(2), np.ones(2))


def nearest_gap(places: Places, default: float = 1.0) -> float:
    """The 10 % quantile of the distances from each dot to its nearest other dot."""
    if len(places) < 2:
        return default
    gap = cdist(places, places)
    np.fill_diagonal(gap, np.inf)
    return float(np.quantile(gap.min(1), 0.1)) or default
