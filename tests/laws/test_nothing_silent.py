"""No number is wrong without a word: values are those of brute force, or it is said that they may
not be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from graphsvx import Explanation, GraphSVX, explain
from tests.worlds import random_graph, random_model, shapley

NODES = GraphSVX(players="nodes")


def assert_same(given: dict[int, float], true: dict[int, float]) -> None:
    assert given == pytest.approx(true, abs=1e-8)


def edges_between(edge_index: Tensor, on: set[int]) -> Tensor:
    """The columns whose nodes are all on."""
    return edge_index[:, torch.isin(edge_index, torch.tensor(sorted(on))).all(0)]


def star(leaves: int, features: int = 3) -> Data:
    """A node with so many neighbours, and one node that is joined to nothing."""
    rng = torch.Generator().manual_seed(leaves)
    ends = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    x = torch.randn(leaves + 2, features, generator=rng, dtype=torch.float64)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


# --- exact is what is proved -----------------------------------------------------------------


class RareBranch(nn.Module):
    """A GCN that computes something else where the graph has a certain number of edges."""

    def __init__(self, edges: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(edges)
            self.layers = GCN(3, 8, 2, 3, act="tanh").double()
        self.edges = edges

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        factor = -3.0 if edge_index.shape[1] == self.edges else 1.0
        return self.layers(factor * x, edge_index)


def node_values(model: nn.Module, data: Data, node: int, explanation: Explanation) -> dict:
    players = explanation.node_ids.tolist()
    others = set(range(data.num_nodes)) - set(players)

    def worth(on: frozenset[int]) -> float:
        with torch.no_grad():
            out = model(data.x, edges_between(data.edge_index, others | on))
        return float(out[node].softmax(-1)[explanation.target])

    return shapley(players, worth)


@pytest.mark.parametrize("leaves", [7, 9])
@pytest.mark.parametrize("edges", [0, 4, 14])
def test_few_coalitions_of_an_unknown_model_are_all_evaluated(leaves: int, edges: int) -> None:
    data, model = star(leaves), RareBranch(edges).eval()
    explanation = explain(model, data, node=0, method=NODES)
    assert explanation.certificate.exact
    assert_same(explanation.nodes, node_values(model, data, 0, explanation))


def test_many_coalitions_of_an_unknown_model_are_exact_under_a_condition() -> None:
    method = NODES.with_settings(samples=2000)
    certificate = explain(RareBranch(99).eval(), star(10), node=0, method=method).certificate
    assert not certificate.exact
    assert certificate.status == "exact if shortcuts hold"
    (game,) = certificate.games
    assert 0 < game.replayed < 2**10
    assert "exact if shortcuts hold (10 players" in certificate.line()
    assert f"{game.replayed} of 1,024 coalitions replayed" in certificate.line()
    assert "exact if shortcuts hold" in str(certificate)


def test_a_known_model_is_exact_with_many_coalitions() -> None:
    certificate = explain(random_model("gcn", 0), star(12), node=0, method=NODES).certificate
    assert certificate.exact
    assert certificate.status == "exact"


class LargestDegree(nn.Module):
    """Features divided by the largest degree of all nodes, which another thread computes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = random_model("gcn", 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            count = pool.submit(lambda: edge_index[1].bincount(minlength=1).max()).result()
        return self.layers(x / (1 + count), edge_index)


@pytest.mark.parametrize("seed", range(4))
def test_what_another_thread_computes_is_noticed(seed: int) -> None:
    data, model = random_graph(seed, nodes=8), LargestDegree()
    explanation = explain(model, data, node=seed, method=NODES)
    if explanation.node_ids.numel():
        assert_same(explanation.nodes, node_values(model, data, seed, explanation))


# --- one logit ---------------------------------------------------------------------------------


class OneLogit(nn.Module):
    def __init__(self, sign: float) -> None:
        super().__init__()
        self.layers, self.sign = random_model("graphconv", 5, classes=1), sign

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.sign * (5 + self.layers(x, edge_index))


@pytest.mark.parametrize("output", ["raw", "class"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_one_logit_is_explained_itself_whatever_its_sign(sign: float, output: str) -> None:
    data, model = random_graph(4), OneLogit(sign)
    e = explain(model, data, node=1, method=NODES, scale="logit", output=output)
    players = e.node_ids.tolist()
    others = set(range(data.num_nodes)) - set(players)

    def worth(on: frozenset[int]) -> float:
        with torch.no_grad():
            return float(model(data.x, edges_between(data.edge_index, others | on))[1])

    assert e.prediction == pytest.approx(worth(frozenset(players)))
    assert_same(e.nodes, shapley(players, worth))
    first = explain(model, data, node=1, method=NODES, scale="logit", output=output, target=0)
    assert first.prediction == pytest.approx(-e.prediction)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_probability_of_the_predicted_class_is_explained_for_one_logit(sign: float) -> None:
    data, model = random_graph(4), OneLogit(sign)
    e = explain(model, data, node=1, method=NODES, output="class")
    probability = float(model(data.x, data.edge_index)[1].sigmoid())
    assert e.prediction == pytest.approx(max(probability, 1 - probability))
