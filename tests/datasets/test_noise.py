"""Noise: how much, how it is spread, and that it is told apart."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

from graphsvx.errors import DataError
from graphsvx_lab import datasets
from graphsvx_lab.datasets.base import DataSet, generator, stratified_split


def papers(name: str, x: torch.Tensor) -> DataSet:
    """A set with the given name and features on a ring."""
    ring = torch.arange(len(x))
    edges = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    y = ring % 3
    return DataSet(
        name=name,
        seed=0,
        graphs=(Data(x=x, edge_index=edges, y=y),),
        task="node",
        class_names=("a", "b", "c"),
        split=stratified_split(y, generator(0)),
    )


def binary(rows: int, columns: int, density: float) -> torch.Tensor:
    return (torch.rand(rows, columns, generator=generator(1)) < density).float()


def test_binary_features_get_binary_noise_of_their_density() -> None:
    noisy = datasets.with_noisy_features(papers("mine", binary(2000, 100, 0.3)))
    added = noisy.graph.x[:, 100:]
    assert noisy.noise is not None
    assert noisy.noise.features.tolist() == list(range(100, 120))
    assert noisy.noise.nodes.numel() == 0
    assert set(added.unique().tolist()) == {0.0, 1.0}
    assert added.mean() == pytest.approx(0.3, abs=0.02)


def test_cora_and_pubmed_get_the_numbers_of_the_paper() -> None:
    cora = datasets.with_noisy_features(papers("cora", binary(2708, 1433, 0.05)))
    added = cora.graph.x[:, 1433:]
    assert added.shape[1] == 287
    assert added.mean() == pytest.approx(0.013, abs=0.001)
    words = binary(3000, 500, 0.3) * 0.2
    pubmed = datasets.with_noisy_features(papers("pubmed", words))
    added = pubmed.graph.x[:, 500:]
    on = added[added > 0]
    assert added.shape[1] == 100
    assert on.numel() / added.numel() == pytest.approx(0.1, abs=0.005)
    assert on.mean() == pytest.approx(0.5, abs=0.02)
    assert 0.95 < on.max() < 1.0


def test_noisy_nodes_of_cora_are_as_many_and_as_connected_as_in_the_paper() -> None:
    noisy = datasets.with_noisy_nodes(papers("cora", binary(2708, 50, 0.1)))
    graph = noisy.graph
    assert noisy.noise is not None
    assert noisy.noise.nodes.tolist() == list(range(2708, 3249))
    new = (graph.edge_index[0] >= 2708).sum() / (541 * 2708)
    assert float(new) == pytest.approx(0.003, rel=0.06)
    assert graph.x[2708:].mean() == pytest.approx(0.013, abs=0.002)


def test_noisy_nodes_touch_existing_nodes_only_and_have_no_label() -> None:
    clean = papers("mine", binary(500, 20, 0.3))
    noisy = datasets.with_noisy_nodes(clean, share=0.1, probability=0.05)
    graph = noisy.graph
    assert graph.num_nodes == 550
    assert is_undirected(graph.edge_index, num_nodes=550)
    assert not ((graph.edge_index[0] >= 500) & (graph.edge_index[1] >= 500)).any()
    assert torch.equal(graph.x[:500], clean.graph.x)
    assert (graph.y[500:] == -1).all()
    assert all(int(part.max()) < 500 for part in noisy.split.parts().values())
    old = {tuple(e) for e in clean.graph.edge_index.t().tolist()}
    old_edges_after = {tuple(e) for e in graph.edge_index.t().tolist() if max(e) < 500}
    assert old_edges_after == old


def test_by_default_noisy_nodes_have_the_mean_degree() -> None:
    noisy = datasets.with_noisy_nodes(papers("mine", binary(3000, 5, 0.3)), share=1.0)
    degree = torch.bincount(noisy.graph.edge_index[0], minlength=6000)
    assert degree[3000:].double().mean() == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("name", ["ba-shapes", "ba-community", "tree-grid"])
def test_noise_leaves_the_truth_where_it_is(name: str) -> None:
    clean = datasets.load(name)
    wide = datasets.with_noisy_features(clean)
    long = datasets.with_noisy_nodes(clean)
    node = int(clean.node_truth.attached[5])
    for noisy in (wide, long, datasets.with_noisy_nodes(wide)):
        assert noisy.node_truth.motif(node) == clean.node_truth.motif(node)
        assert noisy.node_truth.motif_edges(node) == clean.node_truth.motif_edges(node)
        assert noisy.node_truth.edge_motif.numel() == noisy.graph.edge_index.shape[1]
        assert noisy.fingerprint != clean.fingerprint
    assert long.node_truth.motif(long.graph.num_nodes - 1) == frozenset()


def test_both_kinds_of_noise_add_up() -> None:
    noisy = datasets.with_noisy_nodes(datasets.with_noisy_features(datasets.load("ba-community")))
    assert noisy.noise is not None
    assert noisy.noise.features.tolist() == [10, 11]
    assert noisy.noise.nodes.numel() == 280
    assert noisy.name == "ba-community-noisy-features-noisy-nodes"


def test_signed_features_get_signed_noise() -> None:
    noisy = datasets.with_noisy_features(datasets.load("ba-community"), share=1.0)
    added, old = noisy.graph.x[:, 10:], noisy.graph.x[:, :10]
    assert old.min() <= added.min() < 0 < added.max() <= old.max()


def test_features_of_graph_sets_can_be_noisy_nodes_cannot() -> None:
    graphs = datasets.load("ba-2motifs")
    assert datasets.with_noisy_features(graphs).graphs[3].x.shape == (25, 12)
    with pytest.raises(DataError, match="node data set"):
        datasets.with_noisy_nodes(graphs)


def test_same_seed_same_noise() -> None:
    clean = datasets.load("tree-cycles")
    dataset, two = (
        datasets.with_noisy_nodes(clean, seed=4),
        datasets.with_noisy_nodes(clean, seed=4),
    )
    assert dataset.fingerprint == two.fingerprint
    assert dataset.fingerprint != datasets.with_noisy_nodes(clean, seed=5).fingerprint


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(DataError, match="share must be"):
        datasets.with_noisy_features(datasets.load("ba-shapes"), share)


def test_a_probability_that_is_none_is_refused() -> None:
    with pytest.raises(DataError, match="probability must be"):
        datasets.with_noisy_nodes(datasets.load("ba-shapes"), probability=2)
