"""No number is wrong without a word: values are those of brute force, or it is said that they may
not be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.hypergraph_data import HyperGraphData
from torch_geometric.nn import GCN, GraphConv, HypergraphConv, SignedGCN
from torch_geometric.utils import to_dense_batch

from graphsvx import Explanation, GraphSVX, explain
from graphsvx.errors import InputError, NoInfluenceWarning, UnsupportedError
from graphsvx.methods import GNNExplainer
from graphsvx.testing.oracle import algorithm_1, call, credit_of, shapley_values
from tests.worlds import random_graph, random_model, seeded

NODES = GraphSVX(players="nodes")


def assert_same(given: dict[int, float], true: dict[int, float]) -> None:
    assert given == pytest.approx(true, abs=1e-8)


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


def node_values(model, data: Data, explanation: Explanation) -> dict[int, float]:
    return credit_of(explanation, model, data).nodes


@pytest.mark.parametrize("leaves", [7, 9])
@pytest.mark.parametrize("edges", [0, 4, 14])
def test_few_coalitions_of_an_unknown_model_are_all_evaluated(leaves: int, edges: int) -> None:
    data, model = star(leaves), RareBranch(edges).eval()
    explanation = explain(model, data, node=0, method=NODES)
    assert explanation.certificate.exact
    assert_same(explanation.nodes, node_values(model, data, explanation))


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
        assert_same(explanation.nodes, node_values(model, data, explanation))


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
    truth = algorithm_1(lambda d: float(call(model, d)[1]), data, 1, e.node_ids.tolist(), [])
    assert e.prediction == pytest.approx(truth.prediction)
    assert_same(e.nodes, truth.nodes)
    first = explain(model, data, node=1, method=NODES, scale="logit", output=output, target=0)
    assert first.prediction == pytest.approx(-e.prediction)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_probability_of_the_predicted_class_is_explained_for_one_logit(sign: float) -> None:
    data, model = random_graph(4), OneLogit(sign)
    e = explain(model, data, node=1, method=NODES, output="class")
    with torch.no_grad():
        probability = float(model(data.x, data.edge_index)[1].sigmoid())
    assert e.prediction == pytest.approx(max(probability, 1 - probability))


# --- edges that are not in edge_index ----------------------------------------------------------


class Signed(nn.Module):
    """Friends and foes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = SignedGCN(3, 8, 2), nn.Linear(8, 3)

    def forward(self, x: Tensor, pos_edge_index: Tensor, neg_edge_index: Tensor) -> Tensor:
        return self.head(self.layers(x, pos_edge_index, neg_edge_index))


class ThreeKinds(nn.Module):
    """edge_index with weights, and further edges with attributes, which are pooled at times."""

    def __init__(self, pools: bool = False) -> None:
        super().__init__()
        self.near, self.far = GraphConv(3, 8), GraphConv(8, 3)
        self.pools = pools

    def forward(
        self, x: Tensor, edge_index: Tensor, far_edge_index: Tensor,
        far_edge_attr: Tensor, edge_weight: Tensor,
    ) -> Tensor:  # fmt: skip
        hidden = self.near(x, edge_index, edge_weight).tanh()
        out = self.far(hidden, far_edge_index, far_edge_attr)
        return out.tanh().sum(0, keepdim=True) if self.pools else out


class OfData(nn.Module):
    def __init__(self, inner: nn.Module, *names: str) -> None:
        super().__init__()
        self.inner, self.names = inner, names

    def forward(self, data: Data) -> Tensor:
        return self.inner(**{name: data[name] for name in self.names})


def signed_graph(seed: int, edge_index: bool) -> Data:
    both = random_graph(seed, nodes=7, chance=0.35)
    first = torch.rand(both.num_edges, generator=torch.Generator().manual_seed(seed)) < 0.6
    data = Data(
        x=both.x,
        pos_edge_index=both.edge_index[:, first],
        neg_edge_index=both.edge_index[:, ~first],
    )
    if edge_index:
        data.edge_index = both.edge_index
    return data


SIGNS = ("pos_edge_index", "neg_edge_index")


@pytest.mark.parametrize("as_data", [False, True])
@pytest.mark.parametrize("edge_index", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_signed_edges_are_cut_with_their_nodes(seed: int, edge_index: bool, as_data: bool) -> None:
    data, model = signed_graph(seed, edge_index), seeded(Signed)
    if as_data:
        model = OfData(model, "x", *SIGNS)
    e = explain(model, data, node=seed, method=NODES)
    assert any(e.nodes.values())
    assert_same(e.nodes, node_values(model, data, e))


def three_kinds(nodes: int) -> Data:
    data, far = random_graph(1, nodes=nodes, chance=0.3), random_graph(2, nodes=nodes, chance=0.3)
    rng = torch.Generator().manual_seed(0)
    data.edge_weight = torch.rand(data.num_edges, generator=rng, dtype=torch.float64)
    data.far_edge_index = far.edge_index
    data.far_edge_attr = torch.rand(far.num_edges, generator=rng, dtype=torch.float64)
    return data


@pytest.mark.parametrize("nodes", [7, 10])
@pytest.mark.parametrize("pools", [False, True])
def test_weights_and_attributes_go_with_their_own_edges(nodes: int, pools: bool) -> None:
    data, model = three_kinds(nodes), seeded(lambda: ThreeKinds(pools))
    question = {"graph": True} if pools else {"node": 2}
    method = GraphSVX(players="nodes", samples=5000)
    e = explain(model, data, method=method, **question)
    assert e.certificate.status != "estimated"
    assert_same(e.nodes, node_values(model, data, e))


def test_edges_of_all_kinds_between_two_nodes_are_one_player() -> None:
    data, model = signed_graph(3, True), seeded(Signed)
    e = explain(model, data, node=1, method=GraphSVX(players="edges", samples=50))
    ends = torch.cat([data.pos_edge_index, data.neg_edge_index], 1).t().tolist()
    assert {frozenset(pair) for pair in e.edges} <= {frozenset(pair) for pair in ends}
    assert e.base + e.total == pytest.approx(e.prediction)
    with pytest.raises(UnsupportedError, match="pos_edge_index"):
        explain(model, data, node=1, method=GNNExplainer(epochs=2))


def test_a_matrix_of_nodes_by_nodes_is_cut() -> None:
    data, model = random_graph(3, nodes=7, chance=0.3), random_model("graphconv", 2)
    dense = torch.zeros(7, 7, dtype=torch.float64)
    dense[data.edge_index[1], data.edge_index[0]] = 1

    def of_matrix(x: Tensor, adj: Tensor) -> Tensor:
        target, source = adj.nonzero().t()
        return model(x, torch.stack([source, target]), adj[target, source])

    e = explain(of_matrix, Data(x=data.x, adj=dense), node=1, method=NODES)
    assert e.certificate.exact
    assert_same(e.nodes, node_values(model, data, e))


def refused_attributes() -> dict[str, tuple]:
    hyper = seeded(lambda: HypergraphConv(3, 3))
    return {
        "face": (
            lambda x, edge_index, face: x[face].mean(0).mean(0) + x,
            torch.tensor([[0], [1], [2]]),
        ),
        "hyperedge_index": (
            lambda x, edge_index, hyperedge_index: hyper(x, hyperedge_index),
            torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]]),
        ),
        "adj_norm": (lambda x, edge_index, adj_norm: adj_norm @ x, torch.eye(7).double()),
        "adjs": (
            lambda x, edge_index, adjs: x + x[adjs[0][0]].sum(),
            [torch.tensor([[0, 1], [1, 2]])],
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["face", "hyperedge_index", "adj_norm", "adjs"])
def test_what_refers_to_nodes_and_is_not_cut_is_refused_by_name(name: str) -> None:
    model, value = refused_attributes()[name]
    data = random_graph(0, nodes=7)
    data[name] = value
    with pytest.raises(InputError, match=rf"data\.{name} .* makes {name} from edge_index"):
        explain(model, data, node=1)


def test_what_a_model_does_not_read_is_not_refused() -> None:
    data = random_graph(0, nodes=7)
    data.face = torch.tensor([[0], [1], [2]])
    model = random_model("gcn", 0)
    e = explain(OfData(model, "x", "edge_index"), data, node=1, method=NODES)
    assert_same(e.nodes, node_values(model, data, e))


def test_hypergraphs_and_missing_edges_are_refused() -> None:
    x, edges = torch.randn(3, 3), torch.tensor([[0, 1, 2], [0, 0, 1]])
    with pytest.raises(InputError, match="hyperedges"):
        explain(HypergraphConv(3, 2), HyperGraphData(x=x, edge_index=edges), node=0)
    with pytest.raises(InputError, match="must have an edge_index"):
        explain(GCN(3, 4, 2, 2), Data(x=x, pos=x), node=0)


# --- models that make edges of their own -------------------------------------------------------


class Geometric(nn.Module):
    """Messages between all nodes that are near each other; embeddings of kinds of atoms."""

    def __init__(self, pools: bool) -> None:
        super().__init__()
        self.kinds, self.layer, self.pools = nn.Embedding(4, 6), GraphConv(6, 6), pools
        self.head = nn.Linear(6, 2)

    def forward(self, z: Tensor, pos: Tensor) -> Tensor:
        near = (torch.cdist(pos, pos) < 1.5).nonzero().t()
        out = self.head(self.layer(self.kinds(z), near).tanh())
        return out.mean(0, keepdim=True) if self.pools else out


class Attends(nn.Module):
    """Attention over all nodes of a graph."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        dense, there = to_dense_batch(x, batch)
        weights = (dense @ dense.mT).masked_fill(~there[:, None], -torch.inf).softmax(-1)
        return (weights @ dense).where(there[..., None], 0).sum(1) + 0 * edge_index.shape[1]


def atoms(nodes: int) -> Data:
    rng = torch.Generator().manual_seed(nodes)
    pos = torch.randn(nodes, 3, generator=rng, dtype=torch.float64)
    return Data(z=torch.randint(0, 4, (nodes,), generator=rng), pos=pos, num_nodes=nodes)


@pytest.mark.parametrize(
    ("question", "edge_index"),
    [({"node": 2}, True), ({"graph": True}, True), ({"graph": True}, False)],
)
def test_no_influence_is_said_first_everywhere(question: dict, edge_index: bool) -> None:
    data, model = atoms(5), seeded(lambda: Geometric("graph" in question))
    if edge_index:
        data.edge_index = torch.tensor([[0, 1, 2, 3, 4], [2, 2, 0, 2, 2]])
    with pytest.warns(NoInfluenceWarning, match='takes pos, z, gives the same.*erase="rows"'):
        e = explain(model, data, method=NODES, output="class", **question)
    said = "no node changes the output"
    assert said in e.certificate.no_influence
    for text in (
        str(e),
        e.describe(),
        e.describe("expert"),
        e.certificate.line(),
        str(e.certificate),
    ):
        assert " ".join(text.lower().split()).startswith(said)
    assert Explanation.from_dict(e.to_dict()).certificate == e.certificate


@pytest.mark.parametrize("question", [{"node": 2}, {"graph": True}])
def test_nodes_are_removed_for_models_that_make_their_own_edges(question: dict) -> None:
    data, model = atoms(5), seeded(lambda: Geometric("graph" in question))
    method = GraphSVX(players="nodes", erase="rows")
    e = explain(model, data, method=method, output="class", **question)
    players = e.node_ids.tolist()
    assert len(players) == (4 if "node" in question else 5)
    others = set(range(5)) - set(players)

    def worth(on: frozenset[int]) -> float:
        left = sorted(others | on)
        if not left:
            return 0.5
        row = left.index(2) if "node" in question else 0
        with torch.no_grad():
            return float(model(data.z[left], data.pos[left])[row].softmax(-1)[e.target])

    assert e.certificate.exact
    assert_same(e.nodes, shapley_values(players, worth))
    smallest = e.sufficient(0.9)
    assert smallest.score >= 0.9 * e.prediction


def test_nodes_are_removed_with_their_edges_and_features_are_switched_off() -> None:
    data, model = random_graph(6, nodes=6, chance=0.4), random_model("sage", 1)
    e = explain(model, data, node=2, method=GraphSVX(erase="rows", features="all"))
    players, columns = e.node_ids.tolist(), e.feature_ids.tolist()
    others = set(range(6)) - set(players)

    def score(nodes: frozenset[int], features: frozenset[int]) -> float:
        left = torch.tensor(sorted(others | nodes))
        x = data.x.clone()
        for column in set(columns) - features:
            x[2, column] = data.x[:, column].mean()
        part = Data(x=x, edge_index=data.edge_index).subgraph(left)
        with torch.no_grad():
            out = model(part.x, part.edge_index)
        return float(out[left.tolist().index(2)].softmax(-1)[e.target])

    assert_same(e.nodes, shapley_values(players, lambda on: score(on, frozenset(columns))))
    assert_same(e.features, shapley_values(columns, lambda on: score(frozenset(), on)))


def test_attention_over_all_nodes_has_a_way() -> None:
    data = random_graph(5, nodes=5)
    e = explain(Attends(), data, graph=True, method=GraphSVX(erase="rows"), scale="value", target=1)

    def worth(on: frozenset[int]) -> float:
        x = data.x[sorted(on)]
        return float(((x @ x.t()).softmax(-1) @ x).sum(0)[1]) if on else 0.0

    assert_same(e.nodes, shapley_values(range(5), worth))


def test_a_certain_probability_is_no_mystery() -> None:
    data, model = random_graph(5, nodes=5), random_model("graphconv", 1)

    def certain(x: Tensor, edge_index: Tensor) -> Tensor:
        return model(x, edge_index) + torch.tensor([1e4, 0.0, 0.0])

    with pytest.warns(NoInfluenceWarning, match='use scale="log_odds"'):
        explain(certain, data, node=1)


def test_rows_are_not_removed_where_that_cannot_be() -> None:
    with pytest.raises(InputError, match="erase= is about switched-off nodes"):
        GraphSVX(players="features", erase="rows")
    data, model = random_graph(5, nodes=5), random_model("gcn", 1)
    data.root_index = torch.tensor([3])

    def of_root(x: Tensor, edge_index: Tensor, root_index: Tensor) -> Tensor:
        return model(x, edge_index)[root_index]

    with pytest.raises(UnsupportedError, match="root_index"):
        explain(of_root, data, graph=True, method=GraphSVX(erase="rows"))
