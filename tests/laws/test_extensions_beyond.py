"""Edges and groups as players, links: the same laws."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphsvx import Explanation, GraphSVX, explain
from graphsvx.estimators import Lasso
from graphsvx.masks import Paired
from graphsvx.results import serialize
from graphsvx.testing.oracle import (
    algorithm_1,
    call,
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
    node_world,
    pooled,
    random_graph,
    random_model,
)

each_model = pytest.mark.parametrize("kind", list(MODELS))


# --- edges ---------------------------------------------------------------------------------


def edge_players(data: Data, centres: list[int], depth: int, together: bool) -> dict:
    """Name -> positions: edges into nodes less than `depth` hops away, and their reverses."""
    ends = ends_of(data)
    near = distances(ends, centres)

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
    score = probability_of(model, 0, target=e.target)

    def value(on: frozenset) -> float:
        return score(cut(data, edges={i for name in set(players) - on for i in players[name]}))

    credits = {
        (frozenset(ends) if directions == "together" else ends): credit
        for ends, credit in e.edges.items()
    }
    assert credits == pytest.approx(shapley_values(players, value), abs=1e-9)
    assert e.node_credit.players == e.feature_credit.players == 0
    assert e.certificate.games[0].name == "edges"
    assert e.base == pytest.approx(value(frozenset()), abs=1e-9)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-9)


def test_edges_of_a_graph_equal_brute_force() -> None:
    model, data = pooled("gcn", "add", 1), random_graph(2, nodes=6, chance=0.2)
    e = explain(model, data, graph=True, method=GraphSVX(players="edges", samples=4000))
    ends = [frozenset(pair) for pair in ends_of(data)]
    score = probability_of(model, target=e.target)

    def value(on: frozenset) -> float:
        return score(cut(data, edges=[i for i, name in enumerate(ends) if name not in on]))

    credits = {frozenset(pair): credit for pair, credit in e.edges.items()}
    assert credits == pytest.approx(shapley_values(set(ends), value), abs=1e-9)


def test_edges_batched_equal_one_by_one_and_add_up_when_sampled() -> None:
    model, data = node_world("gat", 6, nodes=14)
    for settings in ({"samples": 300}, {"mask": Paired(), "samples": 60}):
        method = GraphSVX(players="edges", **settings)
        explained_in_batches(model, data, node=1, method=method)


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
    around = sorted(i for i, d in distances(ends_of(data), [1]).items() if 0 < d <= 2)
    assert len(around) >= 5
    first, second = around[:2], around[2:4]
    method = GraphSVX(
        samples=4000, features="all",
        groups={"first": first, "second": second, "elsewhere": [1]},
        feature_groups={"ends": [0, 2]},
    )  # fmt: skip
    e = explain(model, data, node=1, method=method)
    nodes = [first, second, *([i] for i in around[4:])]
    features, score = [[0, 2], [1]], probability_of(model, 1, target=e.target)

    def off(groups: list[list[int]], on: frozenset[int]) -> list[int]:
        return [member for group in groups if group[0] not in on for member in group]

    truth = shapley_values(  # a group has its first id
        [group[0] for group in nodes], lambda on: score(cut(data, off(nodes, on)))
    )
    assert e.nodes == pytest.approx(truth, abs=1e-9)
    assert e.node_credit.names[:2] == ("first", "second")
    assert set(e.node_credit.names[2:]) == {f"node {i}" for i in around[4:]}
    truth = shapley_values(
        [0, 1],
        lambda on: score(replace_features(cut(data, around), [1], off(features, on))),
    )
    assert e.feature_values.tolist() == pytest.approx(list(truth.values()), abs=1e-9)
    assert e.feature_credit.names == ("ends", "feature 1")
    assert e.groups.nodes["second"] == tuple(second)
    assert e.groups.features["ends"] == (0, 2)
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
        assert e.groups.features["named"] == tuple(columns)
        assert "named" in e.feature_credit.names


def test_groups_of_nodes_of_a_graph() -> None:
    model, data = pooled("gin", "mean", 2), random_graph(3, nodes=7)
    groups = {"ring": [0, 1, 2], "tail": torch.tensor([5, 6])}
    e = explain(model, data, graph=True, method=GraphSVX(groups=groups))
    players = [(0, 1, 2), (5, 6), (3,), (4,)]
    score = probability_of(model, target=e.target)
    truth = shapley_values(players, lambda on: score(cut(data, {*range(7)}.difference(*on))))
    assert e.node_values.tolist() == pytest.approx(list(truth.values()), abs=1e-9)
    assert e.node_credit.names == ("ring", "tail", "node 3", "node 4")


@pytest.mark.parametrize("by_position", [False, True])
def test_groups_of_edges_equal_brute_force(by_position: bool) -> None:
    """Relation types: all edges of a type are one player."""
    model, data = node_world("sage", 2, nodes=6, chance=0.3)
    kinds = (data.edge_index.sum(0) % 3).tolist()
    ends = ends_of(data)
    groups = {
        f"kind {k}": [i if by_position else ends[i] for i in range(len(ends)) if kinds[i] == k]
        for k in range(3)
    }
    method = GraphSVX(players="edges", directions="apart", groups=groups)
    e = explain(model, data, node=0, method=method)
    players = edge_players(data, [0], 2, together=False)
    plays = {i for positions in players.values() for i in positions}

    score = probability_of(model, 0, target=e.target)
    truth = shapley_values(
        range(3), lambda on: score(cut(data, edges=[i for i in plays if kinds[i] not in on]))
    )
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
    players = [i for i, d in distances(ends_of(data), [u, v]).items() if 0 < d <= 2]

    def link(changed: Data) -> float:
        z = call(model, changed)
        with torch.no_grad():
            logit = (z[u] * z[v]).sum() if score is None else score(z[u], z[v])
        return float((logit if e.target == 1 else -logit).sigmoid())

    assert_same(e, algorithm_1(link, data, [u, v], players, range(3)))


class Bilinear(nn.Module):
    """An asymmetric decoder with dropout, to see that it is put in eval mode and back."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.score = nn.Bilinear(3, 3, 1)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.score(self.dropout(source), self.dropout(target))


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
    e = explained_in_batches(model, data, edge=(6, 2))
    same = explain(model.encoder, data, edge=(6, 2), decoder=lambda a, b: (a * b.tanh()).sum(-1))
    assert e.nodes == pytest.approx(same.nodes, abs=1e-9)
    assert e.features == pytest.approx(same.features, abs=1e-9)
    assert e.prediction == pytest.approx(same.prediction, abs=1e-12)
    assert e.certificate.fallback is None


def test_links_work_with_edges_as_players_and_other_scales() -> None:
    model, data = node_world("gcn", 5, nodes=8)
    method = GraphSVX(players="edges", samples=300)
    e = explained_in_batches(model, data, edge=(0, 3), scale="value", method=method)
    with torch.no_grad():
        z = model(data.x, data.edge_index)
    assert e.prediction == pytest.approx(float(z[0] @ z[3]), abs=1e-9)


def test_the_two_ends_of_an_inner_product_are_alike() -> None:
    model, data = node_world("sage", 5, nodes=8)
    explanation, other = explain(model, data, edge=(0, 3)), explain(model, data, edge=(3, 0))
    assert explanation.nodes == pytest.approx(other.nodes, abs=1e-9)
    assert explanation.class_names == ("no link", "link")


# --- what comes out ------------------------------------------------------------------------

EVERY = {
    "graph": (GraphSVX(), {"graph": True}),
    "graph features": (GraphSVX(players="features"), {"graph": True}),
    "erased": (GraphSVX(erase=True), {"graph": True}),
    "nodes": (GraphSVX(), {"nodes": [0, 3]}),
    "subgraph": (GraphSVX(players="subgraph_features"), {"node": 1}),
    "reference": (GraphSVX(reference=[0.1, 0.2, 0.3]), {"node": 1}),
    "few": (GraphSVX(estimator=Lasso(k=3)), {"node": 1, "targets": "all"}),
    "balance": (GraphSVX(balance=0.3), {"node": 1}),
    "edges": (GraphSVX(players="edges"), {"node": 1}),
    "edge groups": (GraphSVX(players="edges", groups={"a": [0, 1, 2]}), {"node": 1}),
    "groups": (GraphSVX(groups={"a": [0, 3]}, feature_groups={"b": [0, 1]}), {"node": 1}),
    "link": (GraphSVX(), {"edge": (0, 1)}),
}


@pytest.mark.parametrize("name", list(EVERY))
def test_every_extension_is_reproducible_saved_and_described(name: str, tmp_path) -> None:
    method, question = EVERY[name]
    data = random_graph(3)
    model = pooled("gcn", "add", 1) if question.get("graph") else random_model("gcn", 3)
    e = explain(model, data, method=method, seed=2, **question)
    assert serialize.same(e, explain(model, data, method=method, seed=2, **question))
    e.save(tmp_path / "e.json")
    assert serialize.same(e, Explanation.load(tmp_path / "e.json"))
    assert e.describe()
    assert e.describe(audience="expert")
    assert e.table() is not None
    assert e.to_networkx().number_of_nodes() == len(e.field.ids)
    assert e.base + e.total == pytest.approx(e.prediction, abs=1e-6)
