"""What there is to draw of an explanation, before anybody decides how: dots and lines.

Plots and HTML reports share it; it needs neither matplotlib nor a browser.
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
    """One node of the neighbourhood, or several gathered into one (`count` > 1)."""

    id: int
    label: str
    hop: int
    category: int | None
    """The node's class, where the data has one."""
    credit: float
    """Signed credit of the chosen output; 0 for a node that does not play."""
    error: float
    plays: bool
    centre: bool
    count: int = 1


@dataclass(frozen=True)
class Line:
    """An edge between two dots, by their position in the drawing; both directions are one line."""

    a: int
    b: int
    credit: float = 0.0
    plays: bool = False
    one_way: bool = False


@dataclass(frozen=True)
class GraphDrawing:
    """Dots and the lines between them."""

    dots: tuple[Dot, ...]
    lines: tuple[Line, ...]

    @property
    def largest(self) -> float:
        """The largest absolute credit of a single dot or line."""
        credits = [abs(dot.credit) for dot in self.dots if dot.count == 1]
        return max(credits + [abs(line.credit) for line in self.lines], default=0.0)

    def neighbours(self) -> list[list[int]]:
        """The dots that each dot has a line to."""
        adjacent: list[list[int]] = [[] for _ in self.dots]
        for line in self.lines:
            adjacent[line.a].append(line.b)
            adjacent[line.b].append(line.a)
        return adjacent


def drawing_of(explanation: Explanation) -> GraphDrawing:
    """The neighbourhood of an explanation, with the credit of its chosen output."""
    field = explanation.field
    values = explanation.nodes
    errors = dict(zip(values, explanation.node_errors.tolist(), strict=True))
    lines = map(one_line, explanation.node_credit.names or ())
    names = dict(zip(values, lines, strict=False))
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
        )
        for node, hop, category in zip(ids, hops, classes, strict=True)
    )
    return GraphDrawing(dots, _lines(explanation, {node: i for i, node in enumerate(ids)}))


def _lines(explanation: Explanation, place: dict[int, int]) -> tuple[Line, ...]:
    ends = {
        (place[u], place[v])
        for u, v in explanation.field.edge_index.t().tolist()
        if u in place and v in place and u != v
    }
    credit: dict[tuple[int, int], float] = {}
    for (u, v), value in explanation.edges.items():
        if u in place and v in place and u != v:
            pair = _ordered(place[u], place[v])
            credit[pair] = credit.get(pair, 0.0) + value
            ends.add((place[u], place[v]))
    pairs = sorted({_ordered(a, b) for a, b in ends})
    # A graph with every edge in both directions is drawn without arrows.
    return tuple(
        Line(
            *((a, b) if (a, b) in ends else (b, a)),
            credit=credit.get((a, b), 0.0),
            plays=(a, b) in credit,
            one_way=((a, b) in ends) != ((b, a) in ends) and not credit,
        )
        for a, b in pairs
    )


def _ordered(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def important(drawing: GraphDrawing, top: int | None = None) -> frozenset[int]:
    """The dots of the important substructure: the explained ones and those with the most credit.

    With `top`, the `top` dots of largest absolute credit; otherwise as few as carry four fifths
    of the absolute credit, at most ten, and none that has less than a tenth of the largest or
    may be 0 within two standard errors.
    """
    if top is not None and top < 0:
        raise InputError(f"top must be 0 or more, got {top}")
    chosen = {i for i, dot in enumerate(drawing.dots) if dot.centre}
    singles = [i for i, dot in enumerate(drawing.dots) if dot.plays and dot.count == 1]
    singles.sort(key=lambda i: (-abs(drawing.dots[i].credit), drawing.dots[i].id))
    if top is not None:
        return frozenset(chosen | set(singles[:top]))
    enough = 0.8 * sum(abs(drawing.dots[i].credit) for i in singles)
    carried = 0.0
    for i in singles[:10]:
        size, error = abs(drawing.dots[i].credit), drawing.dots[i].error
        if carried >= enough or size == 0 or size < 0.1 * drawing.largest:
            break
        if not size < 2 * error:  # an unknown error (NaN) speaks for nobody and against nobody
            chosen.add(i)
        carried += size
    return frozenset(chosen)


@dataclass(frozen=True)
class Grouping:
    """Which dots stay single, and which go together into a bubble beside a kept one."""

    kept: tuple[int, ...]
    bubbles: tuple[tuple[int, tuple[int, ...]], ...]
    """Pairs of the kept dot that the bubble hangs on, and the dots in it."""


def find_groups(drawing: GraphDrawing, most: int, bubbles: int = 6) -> Grouping:
    """Choose at most `most` dots to keep; every other one joins the bubble that is nearest.

    Kept are the explained dots, those with the most credit, and those that connect them to the
    explained ones.
    """
    if most < 1:
        raise InputError(f"max_nodes must be at least 1, got {most}")
    if len(drawing.dots) <= most:
        return Grouping(tuple(range(len(drawing.dots))), ())
    shown = _nodes_to_keep(drawing, most)
    members: dict[int, list[int]] = {}
    for hidden, anchor in _anchors(drawing, shown, bubbles).items():
        members.setdefault(anchor, []).append(hidden)
    groups = tuple((anchor, tuple(group)) for anchor, group in sorted(members.items()))
    return Grouping(tuple(sorted(shown)), groups)


def with_groups(drawing: GraphDrawing, how: Grouping) -> GraphDrawing:
    """The drawing with groups as bubbles, each with the summed credit of its nodes."""
    place = {old: new for new, old in enumerate(how.kept)}
    dots = [drawing.dots[i] for i in how.kept]
    lines = [
        replace(line, a=place[line.a], b=place[line.b])
        for line in drawing.lines
        if line.a in place and line.b in place
    ]
    for anchor, group in how.bubbles:
        lines.append(Line(place[anchor], len(dots)))
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


def _nodes_to_keep(drawing: GraphDrawing, most: int) -> set[int]:
    near = drawing.neighbours()
    start = [i for i, dot in enumerate(drawing.dots) if dot.centre]
    kept = set(start[:most])
    strength = [abs(dot.credit) for dot in drawing.dots]
    for line in drawing.lines:
        strength[line.a] += abs(line.credit)
        strength[line.b] += abs(line.credit)
    parent = _parents(near, start, strength)
    ranked = sorted(range(len(drawing.dots)), key=lambda i: (-strength[i], i))
    for i in ranked:
        path = {i}
        step = parent[i]
        while step is not None and step not in kept:
            path.add(step)
            step = parent[step]
        if len(kept | path) <= most:
            kept |= path
        if len(kept) == most:
            break
    return kept or {ranked[0]}


def _parents(
    near: list[list[int]], start: Sequence[int], strength: Sequence[float]
) -> list[int | None]:
    """The next dot on a shortest way to the explained ones, the one with most credit first."""
    parent: list[int | None] = [None] * len(near)
    seen = set(start)
    queue = deque(sorted(start, key=lambda i: -strength[i]))
    while queue:
        here = queue.popleft()
        for there in sorted(near[here], key=lambda i: (-strength[i], i)):
            if there not in seen:
                seen.add(there)
                parent[there] = here
                queue.append(there)
    return parent


def _anchors(drawing: GraphDrawing, kept: set[int], bubbles: int) -> dict[int, int]:
    """For every dot that is not kept, the kept dot whose bubble it joins."""
    near = drawing.neighbours()
    first = _nearest(near, sorted(kept))
    count: dict[int, int] = {}
    for i in set(range(len(near))) - kept:
        anchor = first.get(i)
        if anchor is not None:
            count[anchor] = count.get(anchor, 0) + 1
    largest = sorted(count, key=lambda anchor: (-count[anchor], anchor))[:bubbles]
    fallback = largest[0] if largest else min(kept)
    second = _nearest(near, sorted(largest))
    return {
        i: second.get(i, fallback) for i in range(len(near)) if i not in kept
    }  # unreachable dots join the largest bubble


def _nearest(near: list[list[int]], sources: Sequence[int]) -> dict[int, int]:
    owner = {source: source for source in sources}
    queue = deque(sources)
    while queue:
        here = queue.popleft()
        for there in near[here]:
            if there not in owner:
                owner[there] = owner[here]
                queue.append(there)
    return owner
