"""What there is to draw, and where it goes."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest

from graphsvx.errors import InputError
from graphsvx.views import drawing, palette
from tests import records


def test_both_directions_of_an_edge_are_one_line():
    graph_drawing = drawing.drawing_of(records.house())
    assert len(graph_drawing.lines) == len(records.HOUSE_EDGES)
    assert not any(line.one_way for line in graph_drawing.lines)


def test_a_single_direction_keeps_its_direction():
    explanation = records.house()
    field = replace(explanation.field, edge_index=explanation.field.edge_index[:, :9].flip(0))
    graph_drawing = drawing.drawing_of(replace(explanation, field=field))
    ends = {
        (graph_drawing.dots[line.a].id, graph_drawing.dots[line.b].id)
        for line in graph_drawing.lines
    }
    assert ends == {(v, u) for u, v in records.HOUSE_EDGES}
    assert all(line.one_way for line in graph_drawing.lines)


def test_dots_have_the_explanation_s_credit_class_and_distance():
    e = records.house()
    for dot in drawing.drawing_of(e).dots:
        assert dot.credit == e.nodes.get(dot.id, 0.0)
        assert dot.plays == (dot.id in e.nodes)
        assert dot.centre == (dot.id == 402)


def test_the_important_part_carries_four_fifths_of_the_credit():
    graph_drawing = drawing.drawing_of(records.house())
    assert {graph_drawing.dots[i].id for i in drawing.important(graph_drawing)} == {
        402,
        400,
        401,
        403,
    }
    assert {graph_drawing.dots[i].id for i in drawing.important(graph_drawing, top=1)} == {402, 400}


@pytest.mark.parametrize("most", [1, 2, 10, 40, 299, 300, 1000])
def test_grouping_preserves_the_number_of_nodes_and_the_total_credit(most):
    e = records.crowd()
    full = drawing.drawing_of(e)
    less = drawing.with_groups(full, drawing.find_groups(full, most))
    assert sum(dot.count for dot in less.dots) == 300
    assert sum(dot.credit for dot in less.dots) == pytest.approx(e.total)
    assert sum(dot.count == 1 for dot in less.dots) <= max(most, 1) + 6
    assert less.dots[0].centre


def test_grouping_draws_important_nodes_and_their_connections_individually():
    full = drawing.drawing_of(records.crowd())
    less = drawing.with_groups(full, drawing.find_groups(full, 40))
    single_ids = {dot.id for dot in less.dots if dot.count == 1}
    assert {1, 2, 3, 4, 5, 6} <= single_ids
    near = less.neighbours()
    seen, todo = {0}, [0]
    while todo:
        for there in near[todo.pop()]:
            if there not in seen:
                seen.add(there)
                todo.append(there)
    assert len(seen) == len(less.dots)


@pytest.mark.parametrize("kind", ["force", "hops", "molecule"])
@pytest.mark.parametrize("make", [records.house, records.crowd, records.molecule, records.empty])
def test_the_same_seed_gives_the_same_places_and_no_two_dots_share_one(kind, make):
    full = drawing.drawing_of(make())
    graph_drawing = drawing.with_groups(full, drawing.find_groups(full, 40))
    np.random.seed(1)
    random.seed(1)
    first = drawing.places(graph_drawing, kind, seed=3)
    state = np.random.get_state()[1].copy(), random.getstate()
    again = drawing.places(graph_drawing, kind, seed=3)
    assert np.array_equal(first, again)
    assert np.array_equal(state[0], np.random.get_state()[1])
    assert state[1] == random.getstate()
    assert np.isfinite(first).all()
    if len(first) > 1:
        gap = np.linalg.norm(first[:, None] - first[None], axis=2) + 9 * np.eye(len(first))
        assert gap.min() > 0.2


@pytest.mark.parametrize("seed", range(5))
def test_a_planar_motif_is_drawn_without_crossings(seed):
    graph_drawing = drawing.drawing_of(records.house())
    where = drawing.places(graph_drawing, seed=seed)

    def side(a, b, c):
        return np.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    for line in graph_drawing.lines:
        for two in graph_drawing.lines:
            if {line.a, line.b} & {two.a, two.b}:
                continue
            a, b, c, d = (where[i] for i in (line.a, line.b, two.a, two.b))
            assert side(a, b, c) == side(a, b, d) or side(c, d, a) == side(c, d, b)


def test_an_estimate_that_may_be_0_is_not_important():
    graph_drawing = drawing.drawing_of(records.house())
    dots = tuple(replace(dot, error=0.2 if dot.id == 401 else 0.0) for dot in graph_drawing.dots)
    chosen = drawing.important(replace(graph_drawing, dots=dots))
    assert {graph_drawing.dots[i].id for i in chosen} == {402, 400, 403}


def test_hops_are_rings():
    graph_drawing = drawing.drawing_of(records.house())
    where = drawing.places(graph_drawing, "hops")
    radius = np.linalg.norm(where, axis=1)
    for dot, r in zip(graph_drawing.dots, radius, strict=True):
        assert r == pytest.approx(dot.hop, abs=1e-9)


def test_a_molecule_without_rdkit_is_drawn_by_force(monkeypatch):
    graph_drawing = drawing.drawing_of(records.molecule())
    monkeypatch.setitem(sys.modules, "rdkit", None)
    assert np.array_equal(
        drawing.places(graph_drawing, "molecule"), drawing.places(graph_drawing, "force")
    )


def test_rdkit_draws_the_ring_as_a_regular_hexagon():
    pytest.importorskip("rdkit", reason="rdkit is an extra")
    graph_drawing = drawing.drawing_of(records.molecule())
    ring = drawing.places(graph_drawing, "molecule", bonds=records.BONDS)[:6]
    sides = np.linalg.norm(ring - np.roll(ring, 1, axis=0), axis=1)
    assert sides == pytest.approx(np.full(6, sides[0]), rel=0.01)


def test_an_unknown_layout_is_an_error_that_says_so():
    with pytest.raises(InputError, match="got 'spiral'"):
        drawing.places(drawing.drawing_of(records.house()), "spiral")


def test_red_and_blue_differ_in_grey_print_and_from_the_middle():
    strong, weak = palette.luminance(palette.FOR), palette.luminance(palette.AGAINST)
    middle = palette.luminance(palette.NEUTRAL)
    assert abs(strong - weak) > 0.08
    assert middle - max(strong, weak) > 0.5


def test_credit_colours_grow_from_the_middle_to_the_ends():
    assert palette.of_credit(0, 1) == palette.NEUTRAL
    assert palette.of_credit(1, 1) == palette.FOR
    assert palette.of_credit(-2, 1) == palette.AGAINST
    steps = [palette.luminance(palette.of_credit(v, 1)) for v in (0, 0.25, 0.5, 0.75, 1)]
    assert steps == sorted(steps, reverse=True)


def test_class_colours_are_distinct():
    assert len({palette.of_class(i) for i in range(8)}) == 8
    assert palette.of_class(8) == palette.of_class(0)
