"""The graph of an explanation as dots and lines, before layout and rendering.

Shared by plots and HTML reports; needs neither matplotlib nor a browser.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphsvx.errors import InputError
from graphsvx.results.explanation import Explanation
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
        return not abs(self.credit) < 2 * self.error


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
    field = explanation.field
    ids_of_players = explanation.node_ids.tolist()
    values = dict(zip(ids_of_players, explanation.node_values.tolist(), strict=True))
    errors = dict(zip(values, explanation.node_errors.tolist(), strict=True))
    types = explanation.types
    lines = map(one_line, explanation.node_credit.names or ())
    names = dict(zip(values, lines, strict=False))
    if types is not None and field.names is None:
        labels = map(one_line, types.labels)
        names = {**dict(zip(explanation.field.ids.tolist(), labels, strict=True)), **names}
    if field.names is not None:
        names = dict(zip(field.ids.tolist(), map(one_line, field.names), strict=True)) | names
    ids, hops = field.ids.tolist(), field.hops.tolist()
    classes = [None] * len(ids) if field.classes is None else field.classes.tolist()
    dots = tuple(
        Dot(
            id=node,
            label=str(names.get(node, node)),
            hop=hop,
            category=category,
            credit=values.get(node, 0.0),
            error=errors.get(node, 0.0),
            plays=node in values,
            centre=node in explanation.centres,
            shape=0 if types is None or types.flat else types.type_of(node),
        )
        for node, hop, category in zip(ids, hops, classes, strict=True)
    )
    return GraphDrawing(dots, _lines(explanation, {node: i for i, node in enumerate(ids)}))


def _lines(explanation: Explanation, position: dict[int, int]) -> tuple[Stroke, ...]:
    directed = {
        (position[u], position[v])
        for u, v in explanation.field.edge_index.t().tolist()
        if u in position and v in position and u != v
    }
    credit: dict[tuple[int, int], float] = {}
    for (u, v), value in _edge_credit(explanation):
        if u in position and v in position and u != v:
            pair = _ordered(position[u], position[v])
            credit[pair] = credit.get(pair, 0.0) + value
            directed.add((position[u], position[v]))
    pairs = sorted({_ordered(a, b) for a, b in directed})
    # Edges that exist in both directions are drawn without arrows.
    return tuple(
        Stroke(
            *((a, b) if (a, b) in directed else (b, a)),
            credit=credit.get((a, b), 0.0),
            plays=(a, b) in credit,
            one_way=((a, b) in directed) != ((b, a) in directed) and not credit,
        )
        for a, b in pairs
    )


def _edge_credit(explanation: Explanation) -> list[tuple[tuple[int, int], float]]:
    """Credit to draw on edges; each edge of a relation or meta-path shows that of its player."""
    if explanation.types is None or explanation.groups is None or not explanation.groups.edges:
        return list(explanation.credit_by_ends().items())
    credit = dict(
        zip(explanation.edge_credit.names or (), explanation.edge_values.tolist(), strict=True)
    )
    return [
        (_ordered(*ends), credit[name])
        for name, members in explanation.groups.edges.items()
        for ends in {_ordered(*ends) for ends in members}
    ]


def _ordered(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


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
    neighbours = drawing.neighbours()
    centres = [i for i, dot in enumerate(drawing.dots) if dot.centre]
    single = set(centres[:most])
    strength = [abs(dot.credit) for dot in drawing.dots]
    for line in drawing.lines:
        strength[line.a] += abs(line.credit)
        strength[line.b] += abs(line.credit)
    parent = _parents(neighbours, centres, strength)
    ranked = sorted(range(len(drawing.dots)), key=lambda i: (-strength[i], i))
    for i in ranked:
        path = {i}
        step = parent[i]
        while step is not None and step not in single:
            path.add(step)
            step = parent[step]
        if len(single | path) <= most:
            single |= path
        if len(single) == most:
            break
    return single or {ranked[0]}


def _parents(
    neighbours: list[list[int]], centres: Sequence[int], strength: Sequence[float]
) -> list[int | None]:
    """Breadth-first tree from the centres: each dot's parent, preferring the most credit."""
    parent: list[int | None] = [None] * len(neighbours)
    seen = set(centres)
    queue = deque(sorted(centres, key=lambda i: -strength[i]))
    while queue:
        dot = queue.popleft()
        for neighbour in sorted(neighbours[dot], key=lambda i: (-strength[i], i)):
            if neighbour not in seen:
                seen.add(neighbour)
                parent[neighbour] = dot
                queue.append(neighbour)
    return parent


def _anchors(drawing: GraphDrawing, single: set[int], bubbles: int) -> dict[int, int]:
    """For every merged dot, the single dot whose bubble it joins."""
    neighbours = drawing.neighbours()
    nearest_single = _nearest(neighbours, sorted(single))
    count: dict[int, int] = {}
    for i in set(range(len(neighbours))) - single:
        anchor = nearest_single.get(i)
        if anchor is not None:
            count[anchor] = count.get(anchor, 0) + 1
    largest = sorted(count, key=lambda anchor: (-count[anchor], anchor))[:bubbles]
    fallback = largest[0] if largest else min(single)
    nearest_anchor = _nearest(neighbours, sorted(largest))
    return {
        i: nearest_anchor.get(i, fallback) for i in range(len(neighbours)) if i not in single
    }  # unreachable dots join the largest bubble


def _nearest(neighbours: list[list[int]], sources: Sequence[int]) -> dict[int, int]:
    """The nearest source of every dot that is connected to one (breadth-first search)."""
    nearest = {source: source for source in sources}
    queue = deque(sources)
    while queue:
        dot = queue.popleft()
        for neighbour in neighbours[dot]:
            if neighbour not in nearest:
                nearest[neighbour] = nearest[dot]
                queue.append(neighbour)
    return nearest
