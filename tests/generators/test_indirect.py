"""Algorithm 2 on graphs small enough to work out by hand."""

from __future__ import annotations

from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GIN

from graphsvx import GraphSVX, explain
from graphsvx.core import field as fields
from graphsvx.core.data import check_graph
from graphsvx.core.players import Players
from graphsvx.generators import GameSetup, Indirect, Isolate
from graphsvx.generators.indirect import _inward_steps
from graphsvx.testing.oracle import indirect_effect, probability_of, shapley_values
from tests.worlds import joined, random_model, seeded


def scene(pairs, nodes: int, depth: int = 3, both: bool = True) -> GameSetup:
    edges = torch.tensor(pairs + ([(v, u) for u, v in pairs] if both else [])).t()
    x = torch.arange(nodes * 2, dtype=torch.float64).reshape(nodes, 2) ** 1.5
    graph = check_graph(Data(x=x, edge_index=edges))
    field = fields.in_neighbourhood(graph, np.array([0]), depth)
    players = Players(node_members=np.arange(1, field.size), node_owner=np.arange(field.size - 1))
    return GameSetup(graph, field, players, graph.statistics.mean)


def perturbed(where: GameSetup, on: list[int], inner="mean", seed: int = 0):
    """Edges (by node id) and feature rows of the perturbed graph in which `on` are on."""
    return perturbed_by(Indirect(inner), where, on, seed)


def perturbed_by(effect: Indirect, where: GameSetup, on, seed: int = 0):
    """The same with an indirect effect of any variant."""
    generator = effect.prepare(where, torch.Generator().manual_seed(seed))
    ids = where.field.ids[where.players.node_members].tolist()
    mask = np.array([[node in on for node in ids]])
    perturbations = generator(where, np.ones((1, 0), dtype=bool), mask)
    active_edges = perturbations.active_edges(where.field)[0]
    names = where.field.ids
    edges = {
        (int(names[u]), int(names[v]))
        for u, v in zip(
            where.field.source[active_edges], where.field.target[active_edges], strict=True
        )
    }
    which = perturbations.feature_rows()[0]
    rows = {
        int(names[i]): perturbations.feature_table[which[i]].tolist()
        for i in range(where.field.size)
    }
    return edges, rows


PATH = [(0, 1), (1, 2), (2, 3)]


def test_a_cut_off_node_is_joined_along_the_path() -> None:
    where = scene(PATH, 4)
    edges, rows = perturbed(where, [3])
    assert edges == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    mean = where.graph.statistics.mean.tolist()
    assert rows[1] == rows[2] == mean
    assert rows[3] == where.graph.x[3].tolist()
    assert rows[0] == where.graph.x[0].tolist()


def test_inner_nodes_get_the_features_of_v_by_the_pseudocode() -> None:
    where = scene(PATH, 4)
    _, rows = perturbed(where, [3], inner="target")
    assert rows[1] == rows[2] == where.graph.x[0].tolist()


def test_a_connected_node_needs_no_path() -> None:
    where = scene(PATH, 4)
    edges, rows = perturbed(where, [1, 2])
    assert edges == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert rows[3] == where.graph.x[3].tolist()


def test_inner_nodes_that_are_on_keep_their_features() -> None:
    where = scene(PATH, 4)
    edges, rows = perturbed(where, [2, 3])
    assert rows[1] == where.graph.statistics.mean.tolist()
    assert rows[2] == where.graph.x[2].tolist()
    assert edges == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}


def test_only_the_edges_of_the_path_come_back() -> None:
    """Node 4 hangs on node 1, which is only a passing place."""
    where = scene([*PATH, (1, 4), (1, 3)], 5)
    edges, _ = perturbed(where, [2])
    assert edges == {(0, 1), (1, 0), (1, 2), (2, 1)}


def test_the_empty_coalition_adds_no_edges() -> None:
    edges, _ = perturbed(scene(PATH, 4), [])
    assert edges == set()


def test_paths_follow_the_direction_of_edges() -> None:
    where = scene([(1, 0), (2, 1), (3, 2)], 4, both=False)
    edges, _ = perturbed(where, [3])
    assert edges == {(1, 0), (2, 1), (3, 2)}


def test_one_of_several_shortest_paths_is_drawn_at_random() -> None:
    """Two ways from 3 to 0, through 1 or 2; both must occur about equally often."""
    where = scene([(0, 1), (0, 2), (1, 3), (2, 3)], 4)
    through_1 = 0
    for seed in range(200):
        edges, _ = perturbed(where, [3], seed=seed)
        assert edges in (
            {(0, 1), (1, 0), (1, 3), (3, 1)},
            {(0, 2), (2, 0), (2, 3), (3, 2)},
        )
        through_1 += (0, 1) in edges
    assert 70 < through_1 < 130


def test_paths_are_uniform_over_paths_not_over_steps() -> None:
    """From 5: one path through 1, three through 2 (by 6, 7, 8): 1 : 3."""
    pairs = [(0, 1), (1, 3), (3, 5), (0, 2), (2, 6), (2, 7), (2, 8), (6, 5), (7, 5), (8, 5)]
    where = scene(pairs, 9)
    through_1 = sum((0, 1) in perturbed(where, [5], seed=seed)[0] for seed in range(300))
    assert 45 < through_1 < 105


def test_the_indirect_game_equals_its_brute_force() -> None:
    """Path graphs have one path only."""
    data, model = joined(PATH), seeded(lambda: GIN(3, 8, 3, 3, act="tanh"))
    e = explain(model, data, node=0, method=GraphSVX(indirect="mean", players="nodes"))

    paths = {1: (1, 0), 2: (2, 1, 0), 3: (3, 2, 1, 0)}
    score = probability_of(model, 0, target=e.target)

    def value(on) -> float:
        return score(indirect_effect(data, on, {1, 2, 3} - on, [0], paths, data.x.mean(0)))

    assert e.nodes == pytest.approx(shapley_values([1, 2, 3], value), abs=1e-9)


def test_the_indirect_effect_changes_the_credit_of_far_nodes() -> None:
    data, model = joined(PATH), random_model("gcn", 3)
    off = explain(model, data, node=0, method=GraphSVX(players="nodes"))
    on = explain(model, data, node=0, method=GraphSVX(players="nodes", indirect="mean"))
    assert on.prediction == off.prediction
    assert abs(on.nodes[2] - off.nodes[2]) > 1e-4


def released_by_a_plain_loop(where: GameSetup, on: set[int], order: int):
    """All that the authors' rule allows: edges and replaced nodes, for every choice of paths."""
    field = where.field
    ids = field.ids[: field.size].tolist()
    pairs = [(ids[u], ids[v]) for u, v in zip(field.source, field.target, strict=True)]
    intact = {(u, v) for u, v in pairs if {u, v} <= on | {0}}
    if not 0 < len(on) < order:
        return [(intact, set())]
    graph, best = nx.Graph(pairs), []
    for node in on - set(graph[0]):
        paths = list(nx.all_shortest_paths(graph, 0, node))
        fewest = min(len(set(path[1:-1]) - on) for path in paths)
        best.append([path for path in paths if 0 < len(set(path[1:-1]) - on) == fewest] or [[]])
    allowed = []
    for chosen in product(*best):
        steps = {(p[n], p[n - 1]) for p in chosen for n in range(1, len(p) - 1)}
        allowed.append((intact | steps, {node for p in chosen for node in p[1:-1]}))
    return allowed


LADDER = [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5), (5, 6), (2, 7), (7, 8)]


@pytest.mark.parametrize("order", [1, 2, 4])
def test_the_released_variant_equals_a_plain_loop_over_coalitions(order: int) -> None:
    where = scene(LADDER, 9, depth=5)
    mean = where.graph.statistics.mean.tolist()
    effect = Indirect(variant="released", order=order)
    for size in range(6):
        for on in map(set, combinations(range(1, 9), size)):
            edges, rows = perturbed_by(effect, where, on)
            replaced = {node for node, row in rows.items() if row != where.graph.x[node].tolist()}
            assert (edges, replaced) in released_by_a_plain_loop(where, on, order), on
            assert all(rows[node] == mean for node in replaced)


def test_the_released_variant_breaks_ties_between_paths_at_random_once() -> None:
    where = scene([(0, 1), (0, 2), (1, 3), (2, 3)], 4)
    ways = [perturbed_by(Indirect(variant="released"), where, {3}, seed)[0] for seed in range(60)]
    assert all(edges in ({(1, 0)}, {(2, 0)}) for edges in ways)
    assert 10 < ways.count({(1, 0)}) < 50


def test_the_papers_setting_says_which_indirect_effect_it_is() -> None:
    assert GraphSVX.paper("tree-grid").generator == Indirect()
    released = GraphSVX.paper("tree-grid", variant="released").generator
    assert released == Indirect("target", variant="released", order=4)
    assert GraphSVX.paper("ba-shapes", variant="released").generator.order == 1
    assert GraphSVX.paper("mutag", variant="released").generator == Isolate(erase=True)
    assert GraphSVX.paper("mutag").generator is None
    assert GraphSVX.paper("tree-grid", variant="released", indirect=False).generator is None


def test_an_edge_that_is_there_twice_is_one_step() -> None:
    pairs = [(3, 1), (3, 1), (1, 0), (3, 2), (2, 4), (4, 0)]
    field = scene(pairs, 5, both=False).field
    steps = dict(zip(field.ids.tolist(), _inward_steps(field)[0].tolist(), strict=True))
    assert steps == {0: 0, 1: 1, 4: 1, 2: 2, 3: 2}
