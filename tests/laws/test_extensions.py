"""The paper's extensions obey the laws: whole graphs, groups, contrast, subgraph features."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphsvx import GraphSVX, explain
from graphsvx.masks import All, Paired
from graphsvx.results import serialize
from graphsvx.testing.oracle import (
    Credit,
    algorithm_1,
    call,
    credit_of,
    cut,
    distances,
    ends_of,
    probability_of,
    replace_features,
    shapley_values,
)
from tests.worlds import (
    MODELS,
    assert_same,
    explained_in_batches,
    joined,
    node_world,
    pooled,
    random_graph,
    random_model,
)

each_model = pytest.mark.parametrize("kind", list(MODELS))
WIDE = GraphSVX(samples=4000)


def around(data: Data, centres: list[int], hops: int = 2) -> list[int]:
    """The centres and all nodes that reach one of them in so many steps."""
    return [node for node, steps in distances(ends_of(data), centres).items() if steps <= hops]


# --- whole graphs --------------------------------------------------------------------------


def graph_world(kind: str, pool: str, seed: int = 1, nodes: int = 7):
    return pooled(kind, pool, seed), random_graph(seed, nodes=nodes, directed=seed % 2 == 1)


@each_model
@pytest.mark.parametrize("pool", ["add", "mean", "max"])
def test_nodes_of_a_graph_equal_brute_force(kind: str, pool: str) -> None:
    model, data = graph_world(kind, pool)
    e = explain(model, data, graph=True, method=WIDE)
    truth = credit_of(e, model, data)
    assert e.kind == "graph"
    assert e.centres == ()
    assert e.feature_credit.players == 0
    assert e.certificate.exact
    assert sorted(e.nodes) == list(range(data.num_nodes))
    assert_same(e, truth)


@pytest.mark.parametrize("pool", ["add", "max"])
@pytest.mark.parametrize("reference", [None, 2])
def test_erased_nodes_of_a_graph_equal_brute_force(pool: str, reference: int | None) -> None:
    model, data = graph_world("gcn", pool, nodes=6)
    data.edge_index = data.edge_index[:, (data.edge_index != 5).all(0)]  # 5 has no edges at all
    method = GraphSVX(samples=4000, erase=True, reference=reference)
    e = explain(model, data, graph=True, method=method)
    other = None if reference is None else data.x[reference]
    score = probability_of(model, target=e.target)

    def value(on: frozenset[int]) -> float:
        off = set(range(6)) - on
        return score(replace_features(cut(data, off), off, range(3), other))

    assert e.nodes == pytest.approx(shapley_values(range(6), value), abs=1e-9)
    assert abs(e.nodes[5]) > 1e-6


@each_model
def test_features_of_a_graph_equal_brute_force(kind: str) -> None:
    """Feature j of every node goes to its mean."""
    model, data = graph_world(kind, "add", seed=2)
    e = explain(model, data, graph=True, method=GraphSVX(players="features", features="all"))
    everyone = list(range(data.num_nodes))
    score = probability_of(model, target=e.target)
    assert_same(e, algorithm_1(score, data, everyone, nodes=[], features=range(3)))


def test_features_of_a_graph_are_chosen_over_all_its_nodes() -> None:
    model, data = graph_world("gcn", "add", seed=2)
    data.x[:, 1] = 4.0
    data.x[3, 2] = 50.0
    e = explain(model, data, graph=True, method=GraphSVX(players="features", features=2.0))
    assert 2 in e.features
    assert 1 not in e.features


@pytest.mark.parametrize(
    "method",
    [
        GraphSVX(erase=True),
        GraphSVX(players="features"),
        GraphSVX(mask=Paired(), samples=60),
        GraphSVX(players="edges"),
    ],
)
def test_graphs_batched_equal_one_by_one(method: GraphSVX) -> None:
    model, data = graph_world("sage", "mean")
    explained_in_batches(model, data, graph=True, method=method)


def test_dummy_and_symmetric_nodes_of_a_graph() -> None:
    """Dummy: a node without edges (it keeps its features). Symmetry: two equal leaves."""
    data = joined([(0, 1), (1, 2), (1, 3), (0, 4)])
    data.x[3] = data.x[2]
    data.x = torch.cat([data.x, data.x[:1]])
    e = explain(pooled("gin", "add", 1), data, graph=True)
    assert e.nodes[5] == pytest.approx(0, abs=1e-12)
    assert e.nodes[2] == pytest.approx(e.nodes[3], abs=1e-9)
    assert abs(e.nodes[2]) > 1e-6


def test_regression_on_graphs() -> None:
    model, data = graph_world("gcn", "add")
    e = explain(model, data, graph=True, scale="value", target=1)
    assert e.prediction == pytest.approx(float(call(model, data)[0, 1]), abs=1e-9)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


# --- a group of nodes ----------------------------------------------------------------------


@each_model
def test_a_group_of_nodes_equals_brute_force(kind: str) -> None:
    """The average score of U, features of all of U together, nodes of the union around them."""
    model, data = node_world(kind, 3, nodes=8, directed=True)
    group = [1, 4, 6]
    e = explain(model, data, nodes=group, method=GraphSVX(samples=4000, features="all"))
    assert set(e.nodes) == set(around(data, group)) - {*group}
    assert sorted(e.features) == [0, 1, 2]
    assert_same(e, credit_of(e, model, data))


def test_a_group_of_one_is_a_node() -> None:
    model, data = node_world("gat", 3)
    e, group = explain(model, data, node=2), explain(model, data, nodes=[2])
    assert group.kind == "nodes"
    assert group.nodes == pytest.approx(e.nodes, abs=1e-12)
    assert group.features == pytest.approx(e.features, abs=1e-12)


def test_a_feature_plays_if_it_stands_out_in_one_node_of_the_group() -> None:
    model, data = node_world("gcn", 3)
    data.x[:] = data.x.mean(0)
    data.x[4, 1] = 30.0
    e = explain(model, data, nodes=[1, 4], method=GraphSVX(features=1.0))
    assert e.feature_ids.tolist() == [1]


@pytest.mark.parametrize("samples", [40, 4000])
def test_a_group_batched_equals_one_by_one(samples: int) -> None:
    model, data = node_world("gin", 5, nodes=12)
    explained_in_batches(model, data, nodes=[0, 7], method=GraphSVX(samples=samples))


# --- subgraph features ---------------------------------------------------------------------


def subgraph_truth(model, data: Data, target: int, near: list[int], other) -> Credit:
    """Credit of features that all nodes around node 2 have."""
    score = probability_of(model, 2, target=target)
    return algorithm_1(score, data, near, nodes=[], features=range(3), reference=other)


@each_model
@pytest.mark.parametrize("hops", [None, 1])
def test_subgraph_features_equal_brute_force(kind: str, hops: int | None) -> None:
    model, data = node_world(kind, 4, nodes=10)
    other = torch.tensor([0.3, -0.2, 1.5], dtype=torch.float64)
    method = GraphSVX(players="subgraph_features", features="all", hops=hops, reference=other)
    e = explained_in_batches(model, data, node=2, method=method)
    assert_same(e, subgraph_truth(model, data, e.target, around(data, [2], hops or 2), other))


def test_subgraph_features_fall_to_a_mean_of_drawn_nodes() -> None:
    model, data = node_world("gcn", 4, nodes=10)
    near = around(data, [2])

    def at(draws: int, seed: int):
        method = GraphSVX(players="subgraph_features", features="all", monte_carlo=draws)
        return explain(model, data, node=2, method=method, seed=seed)

    # One draw: the reference is a node of the data, so credit is what that node would give.
    e = at(1, seed=5)
    truths = [subgraph_truth(model, data, e.target, near, row) for row in data.x]
    assert any(e.features == pytest.approx(truth.features, abs=1e-9) for truth in truths)
    # Many draws: the mean of the data.
    truth = subgraph_truth(model, data, e.target, near, None)
    assert at(200_000, seed=5).features == pytest.approx(truth.features, abs=2e-3)
    # Seeded.
    assert serialize.same(at(3, seed=1), at(3, seed=1))
    assert at(3, seed=1).features != at(3, seed=2).features


def test_subgraph_features_are_chosen_over_the_subgraph() -> None:
    model, data = node_world("gcn", 4, nodes=10)
    far = [i for i in range(10) if i not in around(data, [2])]
    data.x[:, :2] = 1.0
    data.x[around(data, [2], 1)[1], 0] = 40.0
    data.x[far, 1] = 40.0
    own = explain(model, data, node=2, method=GraphSVX(features=2.0, players="features"))
    nearby = explain(
        model, data, node=2, method=GraphSVX(features=2.0, players="subgraph_features")
    )
    assert 0 not in own.features
    assert 0 in nearby.features
    assert 1 not in nearby.features


def test_wide_subgraph_features_are_played_in_parts() -> None:
    """Many coalitions of many columns: the same credit whatever the memory."""
    data = random_graph(6, nodes=10, features=20)
    model = random_model("sage", 6, features=20)
    method = GraphSVX(players="subgraph_features", features="all", samples=200)
    e = explain(model, data, node=1, method=method)
    small = explain(model, data, node=1, method=method, memory=40_000)
    assert small.features == pytest.approx(e.features, abs=1e-6)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


# --- contrastive ---------------------------------------------------------------------------


@each_model
@pytest.mark.parametrize("reference", [6, "class:1", (0.5, -1.0, 2.0)])
def test_contrast_with_another_node_equals_brute_force(kind: str, reference) -> None:
    model, data = node_world(kind, 2, nodes=8)
    e = explain(model, data, node=1, method=GraphSVX(reference=reference, features="all"))
    other = {
        6: data.x[6],
        "class:1": data.x[data.y == 1].mean(0),
        (0.5, -1.0, 2.0): torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64),
    }[reference]
    assert sorted(e.features) == [0, 1, 2]
    assert_same(e, credit_of(e, model, data, reference=other))


def test_features_are_chosen_by_their_distance_from_the_reference() -> None:
    model, data = node_world("gcn", 2)
    data.x[1] = data.x.mean(0)
    data.x[6] = data.x[1]
    data.x[6, 2] += 10
    assert explain(model, data, node=1).feature_credit.players <= 2
    e = explain(model, data, node=1, method=GraphSVX(reference=6, players="features"))
    assert e.feature_ids.tolist() == [2]
    same = explain(model, data, node=1, method=GraphSVX(reference=1))
    assert same.feature_credit.players == 0


def test_a_value_that_only_the_reference_has_counts_as_nonzero() -> None:
    model, data = node_world("gcn", 2)
    data.x[1] = torch.tensor([1.0, 0.0, 0.0])
    data.x[6] = torch.tensor([0.0, 0.0, 1.0])
    e = explain(model, data, node=1, method=GraphSVX(reference=6, features="nonzero"))
    assert e.feature_ids.tolist() == [0, 2]


def test_why_one_class_rather_than_another() -> None:
    model, data = node_world("sage", 2)
    e = explain(model, data, node=1, targets="all")
    rather = e.contrast(0, 2)
    assert rather.base + rather.total == pytest.approx(rather.prediction, abs=1e-9)
    a, b = e.for_target(0), e.for_target(2)
    assert rather.nodes == pytest.approx({i: a.nodes[i] - b.nodes[i] for i in a.nodes}, abs=1e-12)


# --- social --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("mask", [All(separate=True), All(), Paired()])
def test_balance_follows_the_papers_formula(alpha: float, mask) -> None:
    model, data = node_world("gcn", 3, nodes=7, chance=0.4)
    plain = explain(model, data, node=1, targets="all", method=GraphSVX(mask=mask, samples=30))
    method = GraphSVX(mask=mask, samples=30, balance=alpha)
    for target in range(3):
        p = plain.for_target(target)
        e = explain(model, data, node=1, targets="all", method=method).for_target(target)
        assert p.node_credit.players >= 3
        gap = p.prediction - p.base
        nodes = p.node_values * alpha * gap / p.node_values.sum()
        features = p.feature_values * (1 - alpha) * gap / p.feature_values.sum()
        torch.testing.assert_close(e.node_values, nodes)
        torch.testing.assert_close(e.feature_values, features)
        ratio = abs(alpha * gap / float(p.node_values.sum()))
        torch.testing.assert_close(e.node_errors, p.node_errors * ratio)
        assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
    assert e.balance.alpha == alpha


def test_nodes_or_features_alone_can_be_players() -> None:
    model, data = node_world("gcn", 1)
    both = explain(model, data, node=1)
    nodes = explain(model, data, node=1, method=GraphSVX(players="nodes"))
    assert nodes.nodes == pytest.approx(both.nodes, abs=1e-9)
    assert nodes.features == {}
    features = explain(model, data, node=1, method=GraphSVX(players="features"))
    assert features.nodes == {}
    for e in (nodes, features):
        assert e.base + e.total == pytest.approx(both.prediction, abs=1e-9)
