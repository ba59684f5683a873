"""Facts about the data sets that are made: sizes, structure, determinism."""

from __future__ import annotations

from statistics import fmean

import networkx as nx
import pytest
import torch
from torch_geometric.utils import is_undirected, to_networkx

from graphsvx.errors import DataError
from graphsvx_lab import datasets
from graphsvx_lab.datasets.base import generator, stratified_split
from graphsvx_lab.datasets.synthetic import HOUSE, barabasi_albert, cycle, grid

NODE_SETS = ("ba-shapes", "ba-community", "tree-cycles", "tree-grid")
MADE = (*NODE_SETS, "ba-2motifs")
MOTIFS = {
    "ba-shapes": nx.house_graph(),
    "ba-community": nx.house_graph(),
    "tree-cycles": nx.cycle_graph(6),
    "tree-grid": nx.grid_2d_graph(3, 3),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("seed", [0, 7])
def test_sizes_are_those_of_the_paper(name: str, seed: int) -> None:
    assert datasets.statistics(datasets.load(name, seed)) == datasets.PAPER_STATISTICS[name]


@pytest.mark.parametrize("name", MADE)
def test_same_seed_same_bits_other_seed_other_graph(name: str) -> None:
    first, again, other = datasets.load(name, 3), datasets.load(name, 3), datasets.load(name, 4)
    assert first.fingerprint == again.fingerprint
    for one, second in zip(first.graphs, again.graphs, strict=True):
        assert torch.equal(one.x, second.x)
        assert torch.equal(one.edge_index, second.edge_index)
        assert torch.equal(one.y, second.y)
    assert first.fingerprint != other.fingerprint
    assert any(
        one.edge_index.shape != second.edge_index.shape
        or not torch.equal(one.edge_index, second.edge_index)
        for one, second in zip(first.graphs, other.graphs, strict=True)
    )


def test_making_data_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    datasets.load("ba-community", 1)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", MADE)
def test_graphs_are_simple_undirected_and_connected(name: str) -> None:
    for graph in datasets.load(name).graphs[::50]:
        assert is_undirected(graph.edge_index, num_nodes=graph.num_nodes)
        assert not (graph.edge_index[0] == graph.edge_index[1]).any()
        assert len(set(map(tuple, graph.edge_index.t().tolist()))) == graph.edge_index.shape[1]
        assert nx.is_connected(to_networkx(graph, to_undirected=True))


@pytest.mark.parametrize("name", NODE_SETS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_motif_is_whole_and_its_first_node_is_tied_to_the_base(name: str, seed: int) -> None:
    loaded = datasets.load(name, seed)
    truth, graph = loaded.node_truth, to_networkx(loaded.graph, to_undirected=True)
    size = len(MOTIFS[name])
    for motif, first in enumerate(truth.attached.tolist()):
        nodes = truth.motif(first)
        assert nodes == frozenset(range(first, first + size))
        assert all(truth.motif_of[n] == motif for n in nodes)
        induced = graph.subgraph(nodes)
        assert nx.is_isomorphic(induced, MOTIFS[name])
        expected = {(a, b) for u, v in induced.edges for a, b in ((u, v), (v, u))}
        assert truth.motif_edges(first + 1) == expected
        assert any(truth.motif_of[n] == -1 for n in graph[first])


def test_motif_ids_are_where_the_protocol_of_the_paper_looks_for_them() -> None:
    assert datasets.load("ba-shapes").node_truth.attached.tolist() == list(range(300, 700, 5))
    assert datasets.load("ba-community").node_truth.attached.tolist() == [
        *range(300, 700, 5),
        *range(1000, 1400, 5),
    ]
    assert datasets.load("tree-cycles").node_truth.attached.tolist() == list(range(511, 871, 6))
    assert datasets.load("tree-grid").node_truth.attached.tolist() == list(range(511, 1231, 9))


@pytest.mark.parametrize("name", NODE_SETS)
def test_masks_and_sets_say_the_same(name: str) -> None:
    loaded = datasets.load(name)
    truth = loaded.node_truth
    node = int(truth.attached[-1]) + 2
    assert truth.motif(node) == set(truth.motif_mask(node).nonzero().flatten().tolist())
    assert truth.motif_edge_mask(node).sum() == len(truth.motif_edges(node))
    assert truth.motif(0) == frozenset()
    assert truth.motif_edges(0) == frozenset()
    assert torch.equal(truth.nodes(), (truth.role > 0).nonzero().flatten())
    with pytest.raises(DataError, match="node must be between"):
        truth.motif(loaded.graph.num_nodes)


def test_house_roles_fit_the_shape() -> None:
    loaded = datasets.load("ba-shapes")
    truth = loaded.node_truth
    inside = loaded.graph.edge_index[:, truth.edge_motif >= 0]
    degree = torch.bincount(inside[0], minlength=700)
    assert torch.equal(loaded.graph.y, truth.role)
    assert truth.role.bincount().tolist() == [300, 80, 160, 160]
    assert set(degree[truth.role == 1].tolist()) == {2}  # the top touches both middle nodes
    assert set(degree[truth.role == 2].tolist()) == {3}
    assert set(degree[truth.role == 3].tolist()) == {2}
    top_neighbours = inside[1][truth.role[inside[0]] == 1]
    assert set(truth.role[top_neighbours].tolist()) == {2}


def test_tree_labels_are_base_or_motif() -> None:
    assert datasets.load("tree-cycles").labels.bincount().tolist() == [511, 360]
    assert datasets.load("tree-grid").labels.bincount().tolist() == [511, 720]


def test_degrees_of_the_base_are_spread_as_by_networkx() -> None:
    ours = [nx.Graph(barabasi_albert(300, 5, generator(seed, "test"))) for seed in range(8)]
    theirs = [nx.barabasi_albert_graph(300, 5, seed=seed) for seed in range(8)]
    assert {graph.number_of_edges() for graph in ours} == {5 * (300 - 5)}
    assert hub_share(ours) == pytest.approx(hub_share(theirs), abs=0.015)


def hub_share(graphs: list[nx.Graph]) -> float:
    """Share of all edge ends that the 30 nodes of highest degree have."""
    return fmean(
        sum(sorted((d for _, d in graph.degree), reverse=True)[:30]) / (2 * graph.size())
        for graph in graphs
    )


def test_only_the_informative_features_tell_the_communities_apart() -> None:
    loaded = datasets.load("ba-community")
    x, second = loaded.graph.x, loaded.labels >= 4
    gap = (x[second].mean(0) - x[~second].mean(0)).abs()
    informative = sorted(loaded.node_truth.informative_features or ())
    others = [c for c in range(10) if c not in informative]
    assert informative == [0, 1]
    assert (gap[informative] > 1.9).all()
    assert (gap[others] < 0.25).all()
    assert x[second][:, informative].std(0).sub(0.5).abs().max() < 0.05


def test_communities_meet_in_350_edges() -> None:
    source, target = datasets.load("ba-community").graph.edge_index
    assert int(((source < 700) & (target >= 700)).sum()) == 350


def test_motifs_of_ba_2motifs_lie_on_the_last_five_nodes() -> None:
    loaded = datasets.load("ba-2motifs")
    truth = loaded.graph_truth
    assert truth.graphs() == tuple(range(1000))
    for index in (0, 250, 499, 500, 750, 999):
        graph = loaded.graphs[index]
        assert truth.graph_nodes(index).nonzero().flatten().tolist() == [20, 21, 22, 23, 24]
        inside = nx.Graph(graph.edge_index[:, truth.graph_edges(index)].t().tolist())
        wanted = nx.house_graph() if index < 500 else nx.cycle_graph(5)
        assert nx.is_isomorphic(inside, wanted)
        assert int(graph.y) == (0 if index < 500 else 1)


def test_the_shapes_to_plant_are_what_they_are_called() -> None:
    for motif, shape in (
        (HOUSE, nx.house_graph()),
        (cycle(6), nx.cycle_graph(6)),
        (grid(3), nx.grid_2d_graph(3, 3)),
    ):
        assert nx.is_isomorphic(nx.Graph(motif.edges), shape)
        assert motif.size == len(shape)
    assert nx.Graph(grid(3).edges).degree[0] == 2  # tied to the base by a corner


@pytest.mark.parametrize("name", MADE)
def test_split_is_a_partition_with_every_class_in_proportion(name: str) -> None:
    loaded = datasets.load(name)
    assert_balanced(loaded.split, loaded.labels)


def assert_balanced(split: datasets.Split, labels: torch.Tensor) -> None:
    together = torch.cat(list(split.parts().values()))
    assert torch.equal(together.sort().values, torch.arange(labels.numel()))
    share = {"train": 0.8, "val": 0.1, "test": 0.1}
    counts = labels.bincount()
    for part, index in split.parts().items():
        assert abs(index.numel() - share[part] * labels.numel()) <= 1
        off = labels[index].bincount(minlength=counts.numel()) - share[part] * counts
        assert off.abs().max() <= 1.0 + 1e-6, part


def test_split_balances_rare_classes_too() -> None:
    labels = torch.tensor([0] * 1000 + [1] * 20 + [2] * 303)
    for seed in range(20):
        assert_balanced(stratified_split(labels, generator(seed)), labels)


def test_splits_differ_between_seeds() -> None:
    one, two = datasets.load("ba-shapes", 0).split, datasets.load("ba-shapes", 1).split
    assert not torch.equal(one.test, two.test)


def test_masks_of_a_split() -> None:
    split = datasets.load("tree-cycles").split
    masks = split.masks(871)
    assert masks["val"].nonzero().flatten().tolist() == split.val.tolist()
    assert not (masks["train"] & masks["test"]).any()
