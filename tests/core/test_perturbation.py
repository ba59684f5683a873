"""Distances in perturbed graphs, all at once, against one plain search at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphsvx.core import field as fields
from graphsvx.core.data import check_graph
from graphsvx.core.field import (
    UNREACHABLE,
    Field,
    Perturbations,
    distances,
    reachable,
    unreachable_unless,
)
from tests.worlds import random_graph


def searched(kept: np.ndarray, field: Field, sweeps: int | None) -> list[int]:
    """Breadth first against the kept edges, in plain Python."""
    hops = dict.fromkeys(range(field.centres), 0)
    front = list(hops)
    while front and (sweeps is None or hops[front[0]] < sweeps):
        new = []
        for edge in np.flatnonzero(kept).tolist():
            source, target = int(field.source[edge]), int(field.target[edge])
            if target in front and source < field.size and source not in hops:
                hops[source] = hops[target] + 1
                new.append(source)
        front = new
    return [min(hops.get(node, UNREACHABLE), UNREACHABLE) for node in range(field.size)]


def field_of(data: Data, depth: int | None, centres: tuple[int, ...] = (1,)) -> Field:
    return fields.in_neighbourhood(check_graph(data), np.asarray(centres), depth)


@pytest.mark.parametrize("kind", ["nodes", "cut", "joined"])
@pytest.mark.parametrize("sweeps", [1, 3, None])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_distances_of_a_batch_equal_those_of_single_graphs(
    kind: str, sweeps: int | None, count: int
) -> None:
    field = field_of(random_graph(4, nodes=20, chance=0.12), None, (1, 5))
    rng = np.random.default_rng(count)
    on = rng.random((count, field.size)) < 0.6
    on[:, : field.centres] = True
    edges = rng.random((count, len(field.edges))) < 0.2
    perturbations = Perturbations(
        on,
        None,
        torch.zeros(field.size, 1),
        added_edges=edges if kind == "joined" else None,
        removed_edges=edges if kind == "cut" else None,
    )
    hops = distances(perturbations, field, sweeps)
    active_edges = perturbations.active_edges(field)
    assert hops.tolist() == [searched(row, field, sweeps) for row in active_edges]
    assert len({tuple(row) for row in hops.tolist()}) > 1 or count == 1


def test_hop_counts_saturate_on_long_paths() -> None:
    ends = np.stack([np.arange(1, 401), np.arange(400)])
    edge_index = torch.from_numpy(np.concatenate([ends, ends[::-1]], 1))
    field = field_of(Data(x=torch.ones(401, 1), edge_index=edge_index), None, (0,))
    on = np.ones((2, 401), dtype=bool)
    on[1, 300] = False
    hops = distances(Perturbations(on, None, torch.ones(401, 1)), field, None)
    assert hops[0].tolist() == [min(i, UNREACHABLE - 1) for i in range(401)]
    assert (hops[1] < UNREACHABLE).sum() == 300


def test_nodes_without_edges_are_unreachable() -> None:
    field = fields.whole_graph(check_graph(random_graph(1, nodes=6)))
    field = fields.restrict(field, np.zeros(1, dtype=np.int64))
    perturbations = Perturbations(np.ones((3, 1), bool), None, torch.ones(1, 1))
    assert distances(perturbations, field, 2).tolist() == [[UNREACHABLE]] * 3


def test_unreachable_unless_keeps_the_levels_of_the_mask() -> None:
    levels = np.array([[0, 3, 254]], dtype=np.uint8)
    assert unreachable_unless(levels, np.array([[True, False, True]])).tolist() == [
        [0, UNREACHABLE, 254]
    ]


def perturbed(field: Field, seed: int) -> Perturbations:
    """Random active nodes, feature rows, added and removed edges."""
    rng = np.random.default_rng(seed)
    return Perturbations(
        rng.random((5, field.size)) < 0.6,
        rng.integers(0, field.size + 2, (5, field.size)),
        torch.zeros(field.size + 2, 1),
        rng.random((5, len(field.edges))) < 0.3,
        rng.random((5, len(field.edges))) < 0.3,
    )


def test_edges_stay_between_active_nodes_or_if_added_and_unless_removed() -> None:
    field = field_of(random_graph(4, nodes=20, chance=0.12), 1)
    assert field.boundary > 0
    batch = perturbed(field, 0)
    edges = batch.active_edges(field)
    for graph in range(len(batch)):
        for edge, (u, v) in enumerate(zip(field.source, field.target, strict=True)):
            on = [node >= field.size or bool(batch.active[graph, node]) for node in (u, v)]
            stays = (all(on) or batch.added_edges[graph, edge]) and not (
                batch.removed_edges[graph, edge]
            )
            assert edges[graph, edge] == stays


def test_taken_graphs_keep_all_their_changes() -> None:
    field = field_of(random_graph(4, nodes=20, chance=0.12), None)
    batch = perturbed(field, 1)
    taken = batch.take(np.array([3, 1]))
    assert len(taken) == 2
    for name in ("active", "feature_row", "added_edges", "removed_edges"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(batch, name)[[3, 1]])


def test_nodes_within_one_hop_more_than_the_depth_are_reachable() -> None:
    field = field_of(random_graph(4, nodes=30, chance=0.08), None)
    on = np.random.default_rng(0).random((8, field.size)) < 0.8
    on[:, : field.centres] = True
    batch = Perturbations(on, None, torch.zeros(field.size, 1))
    for depth in (1, 2, None):
        sweeps = None if depth is None else depth + 1
        hops = [searched(row, field, sweeps) for row in batch.active_edges(field)]
        expected = np.asarray(hops) < UNREACHABLE
        np.testing.assert_array_equal(reachable(batch, field, depth), expected)
