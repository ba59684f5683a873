"""Cells (feature of a node) are two-level Owen values; rows add up to the credit of their nodes."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import pytest
from torch import nn
from torch_geometric.data import Data

from graphsvx import GraphSVX, explain
from graphsvx.errors import InputError
from graphsvx.results.explanation import Explanation
from graphsvx.testing.oracle import call, coalitions, cut, replace_features, shapley_values
from tests.worlds import pooled, random_graph, random_model

PRESENCE = "presence"


def owen(
    nodes: list[int], node: int, features: list[int],
    value: Callable[[frozenset[int], frozenset[int]], float],
) -> dict[int | str, float]:  # fmt: skip
    """The definition: Shapley weights over the other nodes, then over the cells of the node.

    `value(others, kept)`: the score with these other nodes on and the node on with these features.
    `value(others, None)`: the node is off.
    """
    others = [other for other in nodes if other != node]
    credit: dict[int | str, float] = dict.fromkeys([PRESENCE, *features], 0.0)
    for on in coalitions(others):
        weight = 1 / (len(nodes) * comb(len(others), len(on)))

        def cells(kept: frozenset[int | str], on: frozenset[int] = on) -> float:
            return value(on, frozenset(kept) - {PRESENCE} if PRESENCE in kept else None)

        for cell, share in shapley_values([PRESENCE, *features], cells).items():
            credit[cell] += weight * share
    return credit


def score(
    model: nn.Module, data: Data, row: int, target: int, nodes: list[int], node: int,
    on: frozenset[int], kept: frozenset[int] | None,
) -> float:  # fmt: skip
    off = {other for other in nodes if other != node and other not in on}
    if kept is None:
        changed = cut(data, {*off, node})
    else:
        columns = set(range(data.x.shape[1])) - kept
        changed = replace_features(cut(data, off), [node], columns)
    return float(call(model, changed)[row].softmax(-1)[target])


def rows_of(e: Explanation) -> dict[int, dict[int | str, float]]:
    rows: dict[int, dict[int | str, float]] = {}
    for cell in e.top_cells():
        rows.setdefault(cell.node, {})[cell.feature] = cell.value
    return rows


@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_cells_are_two_level_owen_values(kind: str) -> None:
    model, data = random_model(kind, 1), random_graph(5, nodes=6, features=2)
    model = random_model(kind, 1, features=2)
    method = GraphSVX(players="cells", features="all", samples=4000, top_nodes=3)
    e = explain(model, data, node=1, method=method)
    players = e.node_ids.tolist()
    assert len(rows_of(e)) == min(3, len(players))
    for node, row in rows_of(e).items():
        truth = owen(players, node, [0, 1], lambda on, kept, u=node: score(
            model, data, 1, e.target, players, u, on, kept
        ))  # fmt: skip
        assert row == pytest.approx(truth, abs=1e-9)
        assert sum(row.values()) == pytest.approx(e.nodes[node], abs=1e-12)
    assert all(cell.error == 0 for cell in e.top_cells())


def test_cells_of_a_graph() -> None:
    model, data = pooled("gcn", "add", 0, features=2), random_graph(2, nodes=5, features=2)
    method = GraphSVX(players="cells", features="all", samples=4000, top_nodes=2)
    e = explain(model, data, graph=True, method=method)
    for node, row in rows_of(e).items():
        truth = owen(list(range(5)), node, [0, 1], lambda on, kept, u=node: score(
            model, data, 0, e.target, list(range(5)), u, on, kept
        ))  # fmt: skip
        assert row == pytest.approx(truth, abs=1e-9)


def test_sampled_cells_add_up_and_their_bars_hold() -> None:
    model, data = random_model("gcn", 2), random_graph(3, nodes=12, chance=0.35)
    exact = explain(model, data, node=1, method=GraphSVX(
        players="cells", features="all", samples=100_000, top_nodes=2))  # fmt: skip
    assert all(cell.error == 0 for cell in exact.top_cells())
    truth, misses, cells = rows_of(exact), 0, 0
    for seed in range(4):
        e = explain(model, data, node=1, seed=seed, method=GraphSVX(
            players="cells", features="all", samples=300, top_nodes=2))  # fmt: skip
        for node, row in rows_of(e).items():
            assert sum(row.values()) == pytest.approx(e.nodes[node], abs=1e-12)
        for cell in e.top_cells():
            if cell.node in truth and cell.feature != PRESENCE:
                cells += 1
                assert cell.error > 0
                misses += abs(cell.value - truth[cell.node][cell.feature]) > 3 * cell.error
    assert cells
    assert misses <= 0.2 * cells


def test_features_beyond_the_first_are_one_cell() -> None:
    model = random_model("gcn", 1, features=6)
    data = random_graph(5, nodes=6, features=6)
    few = explain(model, data, node=1, method=GraphSVX(
        players="cells", features="all", samples=20_000, top_nodes=2, top_features=2))  # fmt: skip
    for row in rows_of(few).values():
        assert len(row) == 4
        assert "other features" in row
    assert few.cell_matrix.shape == (6, 6)
    assert few.cell_matrix[1].sum() == pytest.approx(float(few.feature_values.sum()))


def test_cells_are_saved_and_contrasted() -> None:
    model, data = random_model("gcn", 1), random_graph(5, nodes=6)
    method = GraphSVX(players="cells", samples=400)
    e = explain(model, data, node=1, targets="all", method=method)
    assert Explanation.from_dict(e.to_dict()).top_cells(3) == e.top_cells(3)
    for node, row in rows_of(e.contrast(0, 1)).items():
        assert sum(row.values()) == pytest.approx(e.contrast(0, 1).nodes[node], abs=1e-9)


def test_cells_that_make_no_sense_are_refused() -> None:
    for settings in ({"indirect": "mean"}, {"erase": True}, {"top_nodes": 0}):
        with pytest.raises(InputError):
            GraphSVX(players="cells", **settings)
    model, data = random_model("gcn", 1), random_graph(5, nodes=6)
    with pytest.raises(InputError, match='players="cells"'):
        explain(model, data, node=1).top_cells()
    with pytest.raises(InputError, match='players="cells"'):
        GraphSVX(players="nodes", top_nodes=3)
