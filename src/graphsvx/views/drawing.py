"""The graph of an explanation as dots and lines, before layout and rendering.

Shared by plots and HTML reports; needs neither matplotlib nor a browser.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from graphsvx.errors import InputError
from graphsvx.results.credit import is_sure
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import listed
from graphsvx.utils.printable import one_line


@dataclass(frozen=True)
class Dot:
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

    @property
    def sure(self) -> bool:
        """Whether the credit is exact, unknown, or at least two standard errors away from 0."""
        return is_sure(self.credit, self.error)


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
            shape=0 if types is None else types.type_of(node),
        )
        for node, hop, category in zip(ids, field.hops.tolist(), classes, strict=True)
    )
    return GraphDrawing(dots, _lines(explanation, {node: i for i, node in enumerate(ids)}))


def _lines(explanation: Explanation, position: dict[int, int]) -> tuple[Stroke, ...]:
    def inside(pairs: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
        """Pairs of nodes that are both drawn, by their positions."""
        return [
            (position[u], position[v])
            for u, v in pairs
            if u in position and v in position and u != v
        ]

    directed = {*inside(explanation.field.edge_index.t().tolist())}
    credit: dict[tuple[int, int], float] = {}
    for ends, value in _edge_credit(explanation):
        for a, b in inside([ends]):
            pair = (min(a, b), max(a, b))
            credit[pair] = credit.get(pair, 0.0) + value
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


def _edge_credit(explanation: Explanation) -> list[tuple[tuple[int, ...], float]]:
    """Credit to draw on edges; each edge of a relation or meta-path shows that of its player."""
    credit, groups = explanation.edge_credit, explanation.groups
    values = explanation.edge_values.tolist()
    if explanation.types is None or groups is None or not groups.edges:
        return list(zip(credit.keys(), values, strict=True))
    by_name = dict(zip(credit.names or (), values, strict=True))
    return [
        (ends, by_name[name])
        for name, members in groups.edges.items()
        for ends in {(min(ends), max(ends)) for ends in members}
    ]


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
    if top is not None and top < 0:
        raise InputError(f"top must be 0 or more, got {top}")
    dots = {i for i, dot in enumerate(drawing.dots) if dot.centre}
    singles = [i for i, dot in enumerate(drawing.dots) if dot.plays and dot.count == 1]
    singles.sort(key=lambda i: (-abs(drawing.dots[i].credit), drawing.dots[i].id))
    if top is not None:
        return frozenset(dots | set(singles[:top]))
    threshold = 0.8 * sum(abs(drawing.dots[i].credit) for i in singles)
    carried = 0.0
    for i in singles[:10]:
        size, error = abs(drawing.dots[i].credit), drawing.dots[i].error
        if carried >= threshold or size == 0 or size < 0.1 * drawing.largest:
            break
        if not size < 2 * error:  # an unknown error (NaN) does not exclude a dot
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
    if most < 1:
        raise InputError(f"max_nodes must be at least 1, got {most}")
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
    for anchor, group in grouping.bubbles:
        lines.append(Stroke(position[anchor], len(dots)))
        dots.append(_bubble([drawing.dots[i] for i in group]))
    return GraphDrawing(tuple(dots), tuple(lines))


def _bubble(group: Sequence[Dot]) -> Dot:
    return Dot(
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
