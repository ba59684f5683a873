"""Edges and groups as players, links, few players: the same laws."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphsvx import GraphSVX, explain
from graphsvx.explain import Lasso
from graphsvx.explain.selective import kernel_gram
from graphsvx.masks import All, Auto, Paired, Random
from tests.laws.extended import (
    Bilinear,
    call,
    call_graph,
    distance_to,
    kept_without_nodes,
    node_world,
    pooled,
    replaced,
)
from tests.worlds import MODELS, random_graph, random_model, shapley

each_model = pytest.mark.parametrize("kind", list(MODELS))


# --- edges ---------------------------------------------------------------------------------


def edge_players(data: Data, centres: list[int], depth: int, together: bool) -> dict:
    """Name -> positions: edges into nodes less than `depth` hops away, and their reverses."""
    near = distance_to(data, centres)
    ends = [tuple(pair) for pair in data.edge_index.t().tolist()]

    def name(u: int, v: int):
        return frozenset((u, v)) if together else (u, v)

    carrying = {name(u, v) for u, v in ends if near.get(v, depth) < depth and u in near}
    return {
        one: [i for i, (u, v) in enumerate(ends) if name(u, v) == one]
        for one in sorted(carrying, key=str)
    }


@each_model
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("directions", ["together", "apart"])
def test_edges_equal_brute_force(kind: str, directed: bool, directions: str) -> None:
    model = random_model(kind, 2)
    for seed in range(4):
        data = random_graph(seed, nodes=6, directed=directed, chance=0.2)
        players = edge_players(data, [0], 2, directions == "together")
        if 3 <= len(players) <= 9:
            break
    method = GraphSVX(players="edges", directions=directions, samples=4000)
    e = explain(model, data, node=0, method=method)
    names = list(players)

    def value(on: frozenset[int]) -> float:
        gone = {i for k, name in enumerate(names) if k not in on for i in players[name]}
        kept = [i for i in range(data.num_edges) if i not in gone]
        return float(call(model, data, data.x, kept)[0].softmax(-1)[e.target])

    truth = shapley(range(len(names)), value)
    found = {
        (frozenset(ends) if directions == "together" else ends): credit
        for ends, credit in e.edges.items()
    }
    assert found == pytest.approx({names[k]: v for k, v in truth.items()}, abs=1e-9)
    assert e.node_credit.players == e.feature_credit.players == 0
    assert e.certificate.games[0].name == "edges"
    assert e.base == pytest.approx(value(frozenset()), abs=1e-9)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_edges_of_a_graph_equal_brute_force() -> None:
    model, data = pooled("gcn", "add", 1), random_graph(2, nodes=6, chance=0.2)
    e = explain(model, data, graph=True, method=GraphSVX(players="edges", samples=4000))
    ends = [frozenset(pair) for pair in data.edge_index.t().tolist()]
    names = sorted(set(ends), key=str)

    def value(on: frozenset[int]) -> float:
        kept = [i for i, name in enumerate(ends) if names.index(name) in on]
        return float(call_graph(model, data, data.x, kept)[0].softmax(-1)[e.target])

    truth = shapley(range(len(names)), value)
    found = {frozenset(pair): credit for pair, credit in e.edges.items()}
    assert found == pytest.approx({names[k]: v for k, v in truth.items()}, abs=1e-9)


def test_edges_batched_equal_one_by_one_and_add_up_when_sampled() -> None:
    model, data = node_world("gat", 6, nodes=14)
    for method in (GraphSVX(players="edges"), GraphSVX(players="edges", mask=Paired(), samples=60)):
        e = explain(model, data, node=1, method=method)
        alone = explain(model, data, node=1, method=method, memory=1)
        assert alone.edges == pytest.approx(e.edges, abs=1e-6)
        assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_edges_dummy_and_symmetry() -> None:
    """An edge between nodes that send nothing gets nothing; two equal ways get the same."""

    class Adds(nn.Module):
        def forward(self, x, edge_index):
            h = x
            for _ in range(2):
                h = h + torch.zeros_like(h).index_add_(0, edge_index[1], h[edge_index[0]].tanh())
            return torch.cat([h, -h], 1)

    x = torch.tensor([[0.3], [0.8], [0.8], [1.0], [0.0], [0.0]], dtype=torch.float64)
    edges = torch.tensor([[1, 2, 3, 3, 4, 5], [0, 0, 1, 2, 0, 4]])
    method = GraphSVX(players="edges", hops=2)
    e = explain(Adds(), Data(x=x, edge_index=edges), node=0, method=method)
    assert e.edges[(4, 0)] == pytest.approx(0, abs=1e-12)
    assert e.edges[(5, 4)] == pytest.approx(0, abs=1e-12)
    assert e.edges[(1, 0)] == pytest.approx(e.edges[(2, 0)], abs=1e-12)
    assert e.edges[(3, 1)] == pytest.approx(e.edges[(3, 2)], abs=1e-12)
    assert abs(e.edges[(3, 1)]) > 1e-3


# --- groups of players ---------------------------------------------------------------------


@each_model
def test_groups_of_nodes_and_features_equal_brute_force(kind: str) -> None:
    model, data = node_world(kind, 3, nodes=9, chance=0.3)
    around = sorted(i for i, d in distance_to(data, [1]).items() if 0 < d <= 2)
    assert len(around) >= 5
    first, second = around[:2], around[2:4]
    method = GraphSVX(
        samples=4000, features="all",
        groups={"first": first, "second": second, "elsewhere": [1]},
        feature_groups={"ends": [0, 2]},
    )  # fmt: skip
    e = explain(model, data, node=1, method=method)
    nodes = [first, second, *([i] for i in around[4:])]
    features, mean = [[0, 2], [1]], data.x.mean(0)

    def score(x, off) -> float:
        kept = kept_without_nodes(data, off)
        return float(call(model, data, x, kept)[1].softmax(-1)[e.target])

    truth = shapley(
        range(len(nodes)),
        lambda on: score(data.x, [i for k, g in enumerate(nodes) if k not in on for i in g]),
    )
    expected = {group[0]: truth[k] for k, group in enumerate(nodes)}  # a group has its first id
    assert e.nodes == pytest.approx(expected, abs=1e-9)
    assert e.node_credit.names[:2] == ("first", "second")
    assert set(e.node_credit.names[2:]) == {f"node {i}" for i in around[4:]}
    truth = shapley(
        range(2),
        lambda on: score(
            replaced(
                data.x, [1], [j for k, g in enumerate(features) if k not in on for j in g], mean
            ),
            around,
        ),
    )
    assert e.feature_values.tolist() == pytest.approx(list(truth.values()), abs=1e-9)
    assert e.feature_credit.names == ("ends", "feature 1")
    assert e.extra["groups"]["nodes"]["second"] == second
    assert e.extra["groups"]["features"]["ends"] == [0, 2]
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_groups_of_one_change_nothing() -> None:
    model, data = node_world("gin", 3)
    plain = explain(model, data, node=1)
    groups = {f"only {i}": [i] for i in reversed(list(plain.nodes))}
    e = explain(model, data, node=1, method=GraphSVX(groups=groups))
    assert e.nodes == pytest.approx(plain.nodes, abs=1e-9)


def test_a_group_of_features_plays_whole_whether_or_not_it_stands_out() -> None:
    model, data = node_world("gin", 3)
    data.x[1, :2] = data.x[:, :2].mean(0)
    data.x[1, 2] = 30.0
    plain = explain(model, data, node=1, method=GraphSVX(features=2.0))
    assert plain.feature_ids.tolist() == [2]
    for columns in ([0, 1], [0, 2]):
        method = GraphSVX(features=2.0, feature_groups={"named": columns})
        e = explain(model, data, node=1, method=method)
        assert e.extra["groups"]["features"]["named"] == columns
        assert "named" in e.feature_credit.names


def test_groups_of_nodes_of_a_graph() -> None:
    model, data = pooled("gin", "mean", 2), random_graph(3, nodes=7)
    groups = {"ring": [0, 1, 2], "tail": torch.tensor([5, 6])}
    e = explain(model, data, graph=True, method=GraphSVX(groups=groups))
    players = [[0, 1, 2], [5, 6], [3], [4]]

    def value(on: frozenset[int]) -> float:
        off = [i for k, group in enumerate(players) if k not in on for i in group]
        out = call_graph(model, data, data.x, kept_without_nodes(data, off))
        return float(out[0].softmax(-1)[e.target])

    truth = shapley(range(4), value)
    assert e.node_values.tolist() == pytest.approx(list(truth.values()), abs=1e-9)
    assert e.node_credit.names == ("ring", "tail", "node 3", "node 4")


@pytest.mark.parametrize("by_position", [False, True])
def test_groups_of_edges_equal_brute_force(by_position: bool) -> None:
    """Relation types: all edges of a type are one player."""
    model, data = node_world("sage", 2, nodes=6, chance=0.3)
    kinds = (data.edge_index.sum(0) % 3).tolist()
    ends = [tuple(pair) for pair in data.edge_index.t().tolist()]
    groups = {
        f"kind {k}": [i if by_position else ends[i] for i in range(len(ends)) if kinds[i] == k]
        for k in range(3)
    }
    method = GraphSVX(players="edges", directions="apart", groups=groups)
    e = explain(model, data, node=0, method=method)
    players = edge_players(data, [0], 2, together=False)
    plays = {i for positions in players.values() for i in positions}

    def value(on: frozenset[int]) -> float:
        kept = [i for i in range(len(ends)) if i not in plays or kinds[i] in on]
        return float(call(model, data, data.x, kept)[0].softmax(-1)[e.target])

    truth = shapley(range(3), value)
    named = dict(zip(e.edge_credit.names, e.edge_values.tolist(), strict=True))
    assert named == pytest.approx({f"kind {k}": v for k, v in truth.items()}, abs=1e-9)


# --- links ---------------------------------------------------------------------------------


@each_model
@pytest.mark.parametrize("decoder", [None, "bilinear"])
def test_links_equal_brute_force(kind: str, decoder: str | None) -> None:
    model, data = node_world(kind, 5, nodes=8, directed=True)
    score = None
    if decoder:
        torch.manual_seed(0)
        score = Bilinear().double()
        assert score.training
    u, v = 6, 2
    e = explain(model, data, edge=(u, v), decoder=score,
                method=GraphSVX(samples=4000, features="all"))  # fmt: skip
    assert e.kind == "edge"
    assert e.centres == (u, v)
    if score is not None:
        assert score.training, "the decoder must be left as it was found"
        score.eval()
    near = distance_to(data, [u, v])
    players, mean = sorted(i for i, d in near.items() if 0 < d <= 2), data.x.mean(0)
    assert sorted(e.nodes) == players

    def value(x, off) -> float:
        with torch.no_grad():
            z = call(model, data, x, kept_without_nodes(data, off))
            logit = (z[u] * z[v]).sum() if score is None else score(z[u], z[v])
        link = float(logit.sigmoid())
        return link if e.target == 1 else 1 - link

    truth = shapley(players, lambda on: value(data.x, set(players) - on))
    assert e.nodes == pytest.approx(truth, abs=1e-9)
    truth = shapley(
        range(3), lambda on: value(replaced(data.x, [u, v], {0, 1, 2} - on, mean), players)
    )
    assert e.features == pytest.approx(truth, abs=1e-9)
    assert e.prediction == pytest.approx(value(data.x, []), abs=1e-9)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


class Asks(nn.Module):
    """A model in PyG's form for links: the pairs come as an argument."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.encoder = random_model(kind, 5)

    def forward(self, x, edge_index, edge_label_index):
        z = self.encoder(x, edge_index)
        return (z[edge_label_index[0]] * z[edge_label_index[1]].tanh()).sum(-1)


@each_model
def test_models_that_are_asked_about_pairs_equal_those_with_a_decoder(kind: str) -> None:
    data = random_graph(5, nodes=8, directed=True)
    model = Asks(kind).eval()
    e = explain(model, data, edge=(6, 2))
    same = explain(model.encoder, data, edge=(6, 2), decoder=lambda a, b: (a * b.tanh()).sum(-1))
    assert e.nodes == pytest.approx(same.nodes, abs=1e-9)
    assert e.features == pytest.approx(same.features, abs=1e-9)
    assert e.prediction == pytest.approx(same.prediction, abs=1e-12)
    assert e.certificate.fallback is None
    alone = explain(model, data, edge=(6, 2), memory=1)
    assert alone.nodes == pytest.approx(e.nodes, abs=1e-6)


def test_links_work_with_edges_as_players_and_other_scales() -> None:
    model, data = node_world("gcn", 5, nodes=8)
    e = explain(model, data, edge=(0, 3), scale="value", method=GraphSVX(players="edges"))
    with torch.no_grad():
        z = model(data.x, data.edge_index)
    assert e.prediction == pytest.approx(float(z[0] @ z[3]), abs=1e-9)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
    alone = explain(model, data, edge=(0, 3), scale="value", memory=1,
                    method=GraphSVX(players="edges"))  # fmt: skip
    assert alone.edges == pytest.approx(e.edges, abs=1e-6)


def test_the_two_ends_of_an_inner_product_are_alike() -> None:
    model, data = node_world("sage", 5, nodes=8)
    one, other = explain(model, data, edge=(0, 3)), explain(model, data, edge=(3, 0))
    assert one.nodes == pytest.approx(other.nodes, abs=1e-9)
    assert one.class_names == ("no link", "link")


# --- few players ---------------------------------------------------------------------------

SPARSE_MASKS = [Auto(), Paired(), All(separate=True), All(), Random()]


@pytest.mark.parametrize("mask", SPARSE_MASKS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_at_most_k_players_carry_the_whole_prediction(mask, k: int) -> None:
    for seed in range(3):
        model, data = node_world("gcn", seed, nodes=9, chance=0.3)
        method = GraphSVX(regression=Lasso(k=k), mask=mask, samples=200)
        e = explain(model, data, node=1, method=method, targets="all")
        for target in e.outputs:
            one = e.for_target(target)
            credit = torch.cat([one.node_values, one.feature_values])
            assert 1 <= int((credit != 0).sum()) <= k
            assert one.base + one.total == pytest.approx(one.prediction, abs=1e-9)
        assert not e.certificate.exact, "few players are not the Shapley values"
        assert e.extra["selective"]["chosen"] <= k


@pytest.mark.parametrize("mask", [Auto(), Paired(), All(separate=True)])
def test_with_room_for_all_nobody_is_left_out(mask) -> None:
    model, data = node_world("sage", 2, nodes=8)
    plain = explain(model, data, node=1, method=GraphSVX(mask=mask, samples=4000))
    e = explain(
        model, data, node=1, method=GraphSVX(mask=mask, samples=4000, regression=Lasso(k=50))
    )
    assert e.nodes == pytest.approx(plain.nodes, abs=1e-7)
    assert e.features == pytest.approx(plain.features, abs=1e-7)
    assert e.extra["selective"]["carried"] == pytest.approx(1, abs=1e-9)
    assert e.extra["selective"]["alone"] == pytest.approx(e.prediction, abs=1e-9)


def test_what_the_chosen_ones_carry() -> None:
    model, data = node_world("gin", 4, nodes=9, chance=0.3)
    plain = explain(model, data, node=1, method=GraphSVX(features="all"))
    e = explain(model, data, node=1, method=GraphSVX(features="all", regression=Lasso(k=3)))
    nodes = [i for i, value in e.nodes.items() if value != 0]
    features = [j for j, value in e.features.items() if value != 0]
    kept = sum(plain.nodes[i] for i in nodes) + sum(plain.features[j] for j in features)
    said = e.extra["selective"]
    assert said["carried"] == pytest.approx(kept / plain.total, abs=1e-9)
    assert said["of"] == len(plain.nodes) + len(plain.features)
    # Alone: the chosen features with no neighbour, then the chosen neighbours with all features.
    off = [i for i in e.nodes if i not in nodes]
    mean = data.x.mean(0)

    def score(x, gone) -> float:
        out = call(model, data, x, kept_without_nodes(data, gone))
        return float(out[1].softmax(-1)[e.target])

    x = replaced(data.x, [1], [j for j in e.features if j not in features], mean)
    alone = score(x, e.nodes) + score(data.x, off) - score(data.x, e.nodes)
    assert said["alone"] == pytest.approx(alone, abs=1e-9)


def test_the_players_that_matter_are_the_chosen_ones() -> None:
    """Two of many neighbours send anything: two are chosen, with the right credit."""

    class Adds(nn.Module):
        def forward(self, x, edge_index):
            return x + torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])

    x = torch.zeros(12, 1, dtype=torch.float64)
    x[4], x[9] = 2.0, -1.0
    data = Data(x=x, edge_index=torch.stack([torch.arange(1, 12), torch.zeros(11).long()]))
    for mask in (Auto(), Paired()):
        for k in (2, None):
            method = GraphSVX(
                regression=Lasso(k=k), mask=mask, samples=300, players="nodes", hops=1
            )
            e = explain(Adds(), data, node=0, method=method, scale="value")
            chosen = {i: v for i, v in e.nodes.items() if v != 0}
            assert chosen == pytest.approx({4: 2.0, 9: -1.0}, abs=1e-9)


@pytest.mark.parametrize("players", [1, 2, 3, 6])
def test_the_closed_form_of_the_kernels_second_moments(players: int) -> None:
    """E[z z'] over all coalitions, each with its kernel weight."""
    if players == 1:
        assert kernel_gram(1).tolist() == [[0.5]]
        return
    total, moments = 0.0, torch.zeros(players, players, dtype=torch.float64)
    for size in range(1, players):
        for chosen in combinations(range(players), size):
            weight = (players - 1) / (comb(players, size) * size * (players - size))
            z = torch.zeros(players, dtype=torch.float64)
            z[list(chosen)] = 1
            moments += weight * z[:, None] * z
            total += weight
    torch.testing.assert_close(torch.from_numpy(kernel_gram(players)), moments / total)


def test_validation_chooses_few_of_many_noisy_rows() -> None:
    model, data = node_world("gcn", 1, nodes=14, chance=0.3)
    method = GraphSVX(regression=Lasso(), mask=Paired(), samples=200)
    e = explain(model, data, node=1, method=method)
    assert 1 <= e.extra["selective"]["chosen"] <= e.extra["selective"]["of"]
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)
