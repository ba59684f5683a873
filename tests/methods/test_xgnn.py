"""XGNN: valid graphs, a policy that learns, and a refusal of nodes."""

from __future__ import annotations

from statistics import median

import networkx as nx
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, global_add_pool

import graphsvx
from graphsvx.errors import InputError, UnsupportedError
from graphsvx.methods.xgnn import MUTAG_VALENCES, XGNN, Grown
from graphsvx_lab.datasets.real import ATOMS

pytestmark = pytest.mark.learned

MARKED, PLAIN = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)


def as_networkx(e):
    generated = e.generated
    graph = nx.Graph()
    graph.add_nodes_from(range(len(generated.kinds)))
    graph.add_edges_from(zip(*generated.edge_index, strict=True))
    return graph


def grown(model, data, method, seeds=range(3), target=1):
    return [
        graphsvx.explain(model, data, graph=True, target=target, method=method, seed=seed)
        for seed in seeds
    ]


def median_gain(explanations):
    """What training adds to the mean score of a drawn graph: one seed may have bad luck."""
    return median(
        e.generated.mean_score_trained - e.generated.mean_score_untrained for e in explanations
    )


@pytest.mark.parametrize("target", [0, 1])
def test_the_grown_graph_follows_the_rules_and_has_the_reported_score(known_graph, target):
    model, data = known_graph
    method = XGNN(
        candidates=(MARKED, PLAIN), steps=7, nodes=5, degree=3, episodes=3, rollouts=1, tries=5
    )
    for e in grown(model, data, method, range(5), target):
        assert e.kind == "model"
        graph, made = as_networkx(e), e.generated
        assert nx.is_connected(graph)
        assert graph.number_of_nodes() <= 5
        assert graph.number_of_edges() <= 7
        assert max(degree for _, degree in graph.degree()) <= 3
        assert made.x == tuple((MARKED, PLAIN)[kind] for kind in made.kinds)
        x, edge_index = torch.tensor(made.x), torch.tensor(made.edge_index)
        out = model(x, edge_index, torch.zeros(len(x), dtype=torch.long)).detach()
        score = float(out.softmax(-1)[0, target])
        assert e.generated.score == pytest.approx(score, abs=1e-5)
        assert e.prediction == pytest.approx(score, abs=1e-5)
        # The best of those that the trained policy draws.
        assert e.generated.score >= e.generated.mean_score_trained
        assert len(e.generated.history) == 3


def test_the_policy_learns_what_each_class_is_made_of(known_graph):
    model, data = known_graph
    method = XGNN(candidates=(MARKED, PLAIN), steps=6, episodes=60, rollouts=0)
    without, with_marks = (grown(model, data, method, target=target) for target in (0, 1))
    assert median_gain(without) > 0.1
    assert median_gain(with_marks) > 0.1
    # Class 1 is made of marked neighbours.
    marked = [
        median(e.generated.kinds.count(0) for e in explanations)
        for explanations in (without, with_marks)
    ]
    assert marked[0] < marked[1]


class Oxygens(nn.Module):
    """Likes neighbours of kind 1 (oxygen), so that valence is what stops it."""

    def __init__(self):
        super().__init__()
        self.conv = GraphConv(14, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.conv.lin_rel.weight[1, 1] = 1.0

    def forward(self, x, edge_index, batch):
        return global_add_pool(self.conv(x, edge_index), batch)


def test_molecules_keep_their_valences():
    data = Data(x=torch.eye(14), edge_index=torch.tensor([[0, 1], [1, 0]]))
    method = XGNN.molecules(steps=15, nodes=8, episodes=20, rollouts=0)
    e = graphsvx.explain(Oxygens(), data, graph=True, target=1, method=method)
    graph = as_networkx(e)
    assert len(graph) <= 8
    assert nx.is_connected(graph)
    for node, degree in graph.degree():
        assert degree <= MUTAG_VALENCES[e.generated.kinds[node]]
    assert e.generated.kinds[0] == 0
    assert len(MUTAG_VALENCES) == len(ATOMS)
    assert MUTAG_VALENCES[ATOMS.index("N")] == 3


def test_only_valid_edges_are_allowed():
    graph = Grown((0, 1, 1), frozenset({(0, 1), (0, 2)}))
    allowed = graph.allowed(4, (2, 2))
    # Node 0 is full; 1 and 2 may meet, and each may get a new node of either kind.
    assert not allowed[0].any()
    assert allowed[1].tolist() == [False, False, True, True, True]
    assert graph.allowed(3, (2, 2))[1].tolist() == [False, False, True, False, False]
    assert graph.joined(1, 4).kinds == (0, 1, 1, 1)
    assert (1, 3) in graph.joined(1, 4).edges
    assert graph.joined(2, 1).edges == {(0, 1), (0, 2), (1, 2)}


def test_the_same_seed_grows_the_same_graph(known_graph, tmp_path):
    model, data = known_graph
    method = XGNN(candidates=(MARKED, PLAIN), steps=3, episodes=3, tries=3)
    first, second = (
        graphsvx.explain(model, data, graph=True, method=method, seed=4) for _ in range(2)
    )
    assert first.to_dict() == second.to_dict()
    first.save(tmp_path / "x.json")
    assert graphsvx.Explanation.load(tmp_path / "x.json").generated == first.generated
    assert all(p.grad is None for p in model.parameters())


def test_candidates_come_from_the_data(known_graph):
    model, data = known_graph
    data = Data(x=(data.x > 0.5).float(), edge_index=data.edge_index)
    e = graphsvx.explain(model, data, graph=True, method=XGNN(steps=2, episodes=2, tries=2))
    assert {tuple(row) for row in e.generated.x} <= {MARKED, PLAIN}
    many = Data(x=torch.rand(80, 4), edge_index=data.edge_index)
    with pytest.raises(InputError, match="80 distinct rows"):
        graphsvx.explain(model, many, graph=True, method=XGNN())


def test_what_it_cannot_do_is_refused(known, known_graph):
    model, data = known
    with pytest.raises(UnsupportedError, match=r"XGNN explains a graph, got .* a node"):
        graphsvx.explain(model, data, node=0, method=XGNN())
    model, data = known_graph
    with pytest.raises(UnsupportedError, match="one class"):
        graphsvx.explain(model, data, graph=True, targets="all", method=XGNN())
    with pytest.raises(InputError, match="one entry for each"):
        graphsvx.explain(
            model, data, graph=True, method=XGNN(candidates=(MARKED, PLAIN), valences=(1,))
        )
    with pytest.raises(InputError, match="vectors of 4"):
        graphsvx.explain(model, data, graph=True, method=XGNN(candidates=((1.0,),)))
    for wrong in ({"steps": 0}, {"rollouts": -1}, {"valences": ()}):
        with pytest.raises(InputError, match="must be"):
            XGNN(**wrong)


class Chains(nn.Module):
    """Class 1 for graphs whose nodes have two neighbours at most; features say nothing."""

    def __init__(self):
        super().__init__()
        self.conv = GraphConv(1, 1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.conv.lin_rel.weight[0, 0] = 1.0
            self.conv.lin_rel.bias[0] = -2.0

    def forward(self, x, edge_index, batch):
        branching = global_add_pool(self.conv(x, edge_index).relu(), batch)
        return torch.cat([2 * branching, torch.full_like(branching, 2.0)], 1)


def test_structure_alone_can_be_learned():
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    method = XGNN(steps=7, nodes=8, episodes=60, rollouts=0)
    chains = grown(Chains(), data, method)
    assert median_gain(chains) > 0.1
    assert median(max(degree for _, degree in as_networkx(e).degree()) for e in chains) == 2
