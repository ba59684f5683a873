"""The laws of the Shapley family, on random models and random graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphsvx import GraphSVX, explain
from graphsvx.estimators import WLR, Lasso
from graphsvx.masks import (
    All,
    Connected,
    Paired,
    Random,
    Smart,
    SmarterSeparate,
    SmartSeparate,
)
from graphsvx.results import serialize
from graphsvx.testing.oracle import (
    Credit,
    credit_of,
    cut,
    probability_of,
    replace_features,
    shapley_values,
)
from tests.worlds import MODELS, explained_in_batches, joined, random_graph, random_model

EXACT = {
    "auto": GraphSVX(samples=4000),
    "all": GraphSVX(mask=All(separate=True)),
    "paired-enumerated": GraphSVX(mask=Paired(), samples=4000),
}
SEPARATE = {
    **EXACT,
    "paired": GraphSVX(mask=Paired(), samples=40),
    "smart-separate": GraphSVX(mask=SmartSeparate(), samples=60),
    "smarter-separate": GraphSVX(mask=SmarterSeparate(order=2), samples=60),
}
METHODS = {
    **SEPARATE,
    "joint-all": GraphSVX(mask=All()),
    "joint-smart": GraphSVX(mask=Smart(), samples=60),
    "joint-random": GraphSVX(mask=Random(), samples=60),
    "indirect-mean": GraphSVX(indirect="mean", samples=60),
    "indirect-target": GraphSVX(indirect="target", samples=60),
    "wlr": GraphSVX(estimator=WLR(), mask=Paired(), samples=60),
    "lasso": GraphSVX(estimator=Lasso(k=2), mask=Paired(), samples=60),
    "paper": GraphSVX.paper("tree-cycles", samples=80),
}
each_model = pytest.mark.parametrize("kind", list(MODELS))
each_method = pytest.mark.parametrize("name", list(METHODS))
each_exact = pytest.mark.parametrize("name", list(EXACT))
both_directions = pytest.mark.parametrize("directed", [False, True])


def world(kind: str, seed: int, directed: bool = False) -> tuple[nn.Module, Data]:
    data = random_graph(seed, directed=directed)
    if kind == "graphconv":
        rng = torch.Generator().manual_seed(seed)
        data.edge_weight = torch.rand(data.num_edges, generator=rng, dtype=torch.float64) + 0.5
    return random_model(kind, seed), data


@each_method
@each_model
def test_credit_adds_up_to_the_prediction(kind: str, name: str) -> None:
    for seed in (1, 2):
        model, data = world(kind, seed, directed=seed % 2 == 1)
        e = explain(model, data, node=seed, method=METHODS[name])
        assert e.base + e.total == pytest.approx(e.prediction, abs=1e-6)
        assert abs(e.certificate.residual) < 1e-6
        largest = float(probability_of(model, seed)(data).max())
        assert e.prediction == pytest.approx(largest, abs=1e-9)


@pytest.mark.parametrize("name", list(SEPARATE))
@both_directions
def test_relative_efficiency(name: str, directed: bool) -> None:
    """Features account for the isolated node, nodes for the rest (axiom 5)."""
    for seed in range(4):
        model, data = world("gcn", seed, directed)
        e = explain(model, data, node=1, method=SEPARATE[name])
        score, isolated = probability_of(model, 1, target=e.target), cut(data, e.node_ids.tolist())
        alone = score(isolated)
        nothing = score(replace_features(isolated, [1], e.feature_ids.tolist()))
        assert float(e.feature_values.sum()) == pytest.approx(alone - nothing, abs=1e-9)
        assert float(e.node_values.sum()) == pytest.approx(e.prediction - alone, abs=1e-9)
        assert e.base == pytest.approx(nothing, abs=1e-9)


TRUTHS: dict[tuple[object, ...], Credit] = {}
"""The same for every exact method."""


@each_exact
@each_model
@both_directions
def test_equals_brute_force_on_the_full_graph(kind: str, name: str, directed: bool) -> None:
    model, data = world(kind, 5, directed)
    for node in (0, 3):
        e = explain(model, data, node=node, method=EXACT[name])
        assert e.certificate.exact
        assert float(e.errors.abs().sum()) == 0
        key = kind, directed, node, *e.node_ids.tolist(), *e.feature_ids.tolist()
        if key not in TRUTHS:
            TRUTHS[key] = credit_of(e, model, data)
        assert e.nodes == pytest.approx(TRUTHS[key].nodes, abs=1e-9)
        assert e.features == pytest.approx(TRUTHS[key].features, abs=1e-9)


@each_model
def test_single_precision_stays_within_a_millionth(kind: str) -> None:
    model, data = world(kind, 6)
    exact = explain(model, data, node=2)
    data.x = data.x.float()
    if "edge_weight" in data:
        data.edge_weight = data.edge_weight.float()
    e = explain(model.float(), data, node=2, target=exact.target)
    assert e.nodes == pytest.approx(exact.nodes, abs=1e-6)
    assert e.features == pytest.approx(exact.features, abs=1e-6)


def test_the_joint_game_equals_its_own_brute_force() -> None:
    """2^(B+D): features and nodes in one game."""
    for seed in (1, 2):
        data = random_graph(seed, nodes=7, features=2)
        model = random_model("gcn", seed, features=2)
        e = explain(model, data, node=1, method=GraphSVX(mask=All(), features="all"))
        score = probability_of(model, 1, target=e.target)
        credit = {("n", i): v for i, v in e.nodes.items()}
        credit |= {("f", j): v for j, v in e.features.items()}

        def value(on, data=data, score=score, credit=credit):
            off = {kind: [i for k, i in set(credit) - on if k == kind] for kind in "fn"}
            return score(replace_features(cut(data, off["n"]), [1], off["f"]))

        assert credit == pytest.approx(shapley_values(credit, value), abs=1e-9)


class _UsesSome(nn.Module):
    """Adds up what the neighbours send, in all columns but the last; two rounds."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = x[:, :-1].sum(1, keepdim=True)
        for _ in range(2):
            h = h + torch.zeros_like(h).index_add_(0, edge_index[1], h[edge_index[0]].tanh())
        return torch.cat([h, -h], 1)


DUMMY_SAFE = [n for n in METHODS if n in {*EXACT, "joint-all"}]


@pytest.mark.parametrize("name", DUMMY_SAFE)
def test_a_player_that_changes_nothing_gets_nothing(name: str) -> None:
    data = random_graph(3, nodes=6, features=3, chance=0.4)
    data.x[4] = 0  # node 4 sends tanh(0 + what it hears); without senders it sends nothing
    data.edge_index = data.edge_index[:, data.edge_index[1] != 4]
    method = METHODS[name]
    e = explain(_UsesSome(), data, node=1, method=replace(method, features="all", hops=2))
    assert e.features[2] == pytest.approx(0, abs=1e-12)
    assert e.nodes.get(4, 0.0) == pytest.approx(0, abs=1e-12)
    assert max(abs(v) for v in e.features.values()) > 1e-3


@pytest.mark.parametrize("name", DUMMY_SAFE)
def test_equal_players_get_equal_credit(name: str) -> None:
    """Two neighbours with the same features and the same ties."""
    data = joined([(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)])
    data.x[2] = data.x[1]
    for kind in MODELS:
        e = explain(random_model(kind, 1), data, node=0, method=METHODS[name])
        assert e.nodes[1] == pytest.approx(e.nodes[2], abs=1e-9)
        assert abs(e.nodes[1]) > 1e-6


@pytest.mark.parametrize("name", [n for n in METHODS if n != "lasso"])
def test_credit_of_a_sum_is_the_sum_of_credit(name: str) -> None:
    """Additivity: two models explained apart and together, on the value scale."""
    data = random_graph(8)
    first, second = random_model("gcn", 1), random_model("sage", 2)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x, edge_index):
            return self.first(x, edge_index) + self.second(x, edge_index)

    def one(model):
        # Enough for every coalition: which ones are drawn depends on how far a model looks.
        method = replace(METHODS[name], hops=2, samples=2000)
        return explain(model, data, node=1, method=method, target=0, scale="value")

    a, b, both = one(first), one(second), one(Both())
    torch.testing.assert_close(a.node_values + b.node_values, both.node_values, atol=1e-8, rtol=0)
    torch.testing.assert_close(a.feature_values + b.feature_values, both.feature_values,
                               atol=1e-8, rtol=0)  # fmt: skip


@each_exact
@each_model
def test_a_relabelled_graph_gives_relabelled_credit(kind: str, name: str) -> None:
    model, data = world(kind, 4, directed=True)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    new_id = torch.empty_like(order)
    new_id[order] = torch.arange(len(order))
    moved = Data(x=data.x[order], edge_index=new_id[data.edge_index])
    if "edge_weight" in data:
        moved.edge_weight = data.edge_weight
    e = explain(model, data, node=2, method=EXACT[name])
    m = explain(model, moved, node=int(new_id[2]), method=EXACT[name])
    assert m.features == pytest.approx(e.features, abs=1e-9)
    assert m.nodes == pytest.approx({int(new_id[i]): v for i, v in e.nodes.items()}, abs=1e-9)


@each_model
def test_batched_equals_one_by_one(kind: str) -> None:
    """With no memory every replica is a batch of its own."""
    model, data = world(kind, 7)
    explained_in_batches(model, data, node=1)


@each_method
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    model, data = world("gat", 9)
    torch.manual_seed(1)
    first = explain(model, data, node=1, method=METHODS[name], seed=3)
    torch.manual_seed(2)
    explain(model, data, node=5, method=METHODS[name], seed=3)
    assert serialize.same(first, explain(model, data, node=1, method=METHODS[name], seed=3))


@pytest.mark.parametrize("name", ["paired", "smarter-separate", "joint-random"])
def test_estimates_differ_between_seeds(name: str) -> None:
    data = random_graph(2, nodes=14, chance=0.3)
    model = random_model("gcn", 2)
    a, b = (explain(model, data, node=1, method=METHODS[name], seed=s) for s in (0, 1))
    assert not torch.equal(a.node_values, b.node_values)


@each_method
def test_a_node_outside_the_field_does_not_play(name: str) -> None:
    data = joined([(1, 0), (2, 1), (3, 2), (4, 3)], both=False)
    e = explain(random_model("gcn", 0), data, node=0, method=METHODS[name])
    assert sorted(e.nodes) == [1, 2]


@each_model
def test_connected_sets_give_the_shapley_values_of_all_coalitions(kind: str) -> None:
    """Theorem 1 on one side, the closed form over connected sets on the other."""
    for directed in (False, True):
        model, data = world(kind, 2, directed)
        a = explain(model, data, node=1, method=GraphSVX(mask=All(separate=True), players="nodes"))
        b = explain(model, data, node=1, method=GraphSVX(mask=Connected(), players="nodes"))
        assert a.nodes == pytest.approx(b.nodes, abs=1e-9)
        assert b.certificate.calls <= a.certificate.calls
