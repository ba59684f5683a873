"""The real data sets: citation graphs and molecules; and noise that is added to data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.separate import separate
from torch_geometric.io import read_npz, read_planetoid_data, read_tu_data
from torch_geometric.utils import coalesce

from graphsvx.errors import DataError
from graphsvx_lab.datasets import raw
from graphsvx_lab.datasets.base import DataSet, NodeTruth, Noise, data_set, from_masks, generator
from graphsvx_lab.datasets.catalogue import FEATURES_SUFFIX, NODES_SUFFIX, clean_name

CITATION_CLASSES = {
    "cora": (
        *("theory", "reinforcement learning", "genetic algorithms", "neural networks"),
        *("probabilistic methods", "case-based", "rule learning"),
    ),
    "citeseer": ("AI", "machine learning", "information retrieval", "databases", "agents", "HCI"),
    "pubmed": ("class 0", "class 1", "class 2"),
}
ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
OXYGEN, HYDROGEN, NITROGEN = ATOMS.index("O"), ATOMS.index("H"), ATOMS.index("N")


def citation(name: str, seed: int, root: str | Path | None) -> DataSet:
    """Cora, CiteSeer or PubMed: nodes are papers, features are words, edges are citations.

    The seed determines the 80/10/10 split and, where the name asks for it, the noise. CiteSeer's
    15 papers without words and label have class 0, as in PyG.
    """
    clean = clean_name(name)
    data = raw.read_files(clean, root, read_planetoid_data)
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y)
    papers = data_set(clean, seed, graph, CITATION_CLASSES[clean])
    if name.endswith(FEATURES_SUFFIX):
        return with_noisy_features(papers)
    return with_noisy_nodes(papers) if name.endswith(NODES_SUFFIX) else papers


def amazon_photo(name: str, seed: int, root: str | Path | None) -> DataSet:
    """Amazon-Photo (Shchur et al. 2018): products, words of reviews, bought together.

    A node has hundreds of others within two hops, some have thousands. The seed determines the
    80/10/10 split only.
    """
    file = "amazon_electronics_photo.npz"
    graph = raw.read_files(name, root, lambda folder, _: read_npz(f"{folder}/{file}"))
    classes = [f"category {number}" for number in range(int(graph.y.max()) + 1)]
    return data_set(name, seed, graph, classes)


def mutag(name: str, seed: int, root: str | Path | None) -> DataSet:
    """Mutagenicity: 4,337 molecules, class 0 mutagen, class 1 nonmutagen; one-hot atom features.

    The ground truth of a mutagen is its NO2 and NH2 groups; other molecules have none.
    """
    collated, slices, _ = raw.read_files(name, root, read_tu_data)
    if collated.x.shape[1] != len(ATOMS):
        raise DataError(
            f"Mutagenicity should have {len(ATOMS)} kinds of atoms, found {collated.x.shape[1]}; "
            f"download its files again"
        )
    graphs, masks = [], []
    for index in range(len(collated.y)):
        graph = separate(Data, collated, index, slices, decrement=False).clone()
        graphs.append(graph)
        edge_mask = nitro_and_amino(graph.x, graph.edge_index) & (graph.y == 0)
        node_mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        node_mask[graph.edge_index[:, edge_mask].flatten()] = True
        masks.append((node_mask, edge_mask))
    truth, classes = from_masks(masks, "NO2 or NH2"), ("mutagen", "nonmutagen")
    return data_set(name, seed, graphs, classes, feature_names=ATOMS, truth=truth)


def nitro_and_amino(x: Tensor, edge_index: Tensor) -> Tensor:
    """Boolean mask [edges] of the bonds inside an NO2 or NH2 group, in both directions.

    The nitrogen has three neighbours: two oxygens that have no other neighbour (NO2), or two
    hydrogens (NH2), and a third atom that is neither oxygen nor hydrogen. Nitrates (O-NO2),
    hydroxylamines (O-NH2) and ammonia are therefore excluded.

    Args:
        x: elements as in Mutagenicity, one-hot [atoms, elements].
        edge_index: bonds in both directions, [2, edges].

    Returns:
        The mask, [edges].

    """
    atom = x.argmax(dim=1)
    source, target = edge_index
    degree = torch.bincount(source, minlength=len(atom))

    def neighbours(of_kind: Tensor) -> Tensor:
        return torch.bincount(source[of_kind[target]], minlength=len(atom))

    oxygen, hydrogen = atom == OXYGEN, atom == HYDROGEN
    oxygens, hydrogens = neighbours(oxygen), neighbours(hydrogen)
    centre = (atom == NITROGEN) & (degree == 3)
    nitro = centre & (oxygens == 2) & (neighbours(oxygen & (degree == 1)) == 2) & (hydrogens == 0)
    amino = centre & (hydrogens == 2) & (oxygens == 0)

    def bonds_to(arm: Tensor, middle: Tensor) -> Tensor:
        return (arm[source] & middle[target]) | (middle[source] & arm[target])

    return bonds_to(oxygen, nitro) | bonds_to(hydrogen, amino)


# --- uninformative features and nodes (the paper's appendix) -----------------------------------

# The paper's constants; other data sets use their own density and mean degree.
PAPER_DENSITY = {"cora": 0.013, "pubmed": 0.1}
PAPER_RANGE = {"pubmed": (0.0, 1.0)}
PAPER_PROBABILITY = {"cora": 0.003, "pubmed": 0.0005}


def with_noisy_features(dataset: DataSet, share: float = 0.2, seed: int | None = None) -> DataSet:
    """The data set with `share` more feature columns, drawn like the existing ones.

    A binary set gets Bernoulli(p), p being its share of ones; any other gets values uniform over
    its range with probability p and 0 otherwise, p being its share of non-zeros.

    Args:
        dataset: of graphs with `x` [nodes, features].
        share: of the existing columns, above 0 and at most 1.
        seed: of the drawn values; that of the data set by default.

    Returns:
        The data set; the new columns come last and are listed in `.noise.features`.

    """
    rng = _generator(dataset, share, seed, "noisy-features")
    old = dataset.features
    # The paper counts 287 of 1,433 columns: 286.6 rounded.
    count = max(1, round(share * old))
    graphs, draw = [], _features_like(dataset, rng)
    for graph in dataset.graphs:
        noisy = graph.clone()
        noisy.x = torch.cat([graph.x, draw(int(graph.num_nodes), count)], dim=1)
        graphs.append(noisy)
    names = dataset.feature_names
    before = dataset.noise or Noise()
    return replace(
        dataset,
        name=dataset.name + FEATURES_SUFFIX,
        graphs=tuple(graphs),
        feature_names=None if names is None else (*names, *(f"noise {i}" for i in range(count))),
        noise=replace(before, features=torch.cat([before.features, old + torch.arange(count)])),
    )


def with_noisy_nodes(
    dataset: DataSet, share: float = 0.2, probability: float | None = None, seed: int | None = None
) -> DataSet:
    """The node set with `share` more nodes, each linked to each existing node with `probability`.

    Args:
        dataset: a node set; features of new nodes are drawn as in `with_noisy_features`.
        share: of the existing nodes, above 0 and at most 1.
        probability: of each link; by default the new nodes get the mean degree of the others.
        seed: of the drawn links and values; that of the data set by default.

    Returns:
        The data set; the new nodes come last, have label -1, are in no part of the split, and are
        listed in `.noise.nodes`.

    Raises:
        DataError: the data set classifies graphs, or `probability` is outside [0, 1].

    """
    if dataset.task != "node":
        raise DataError(f"noisy nodes need a node data set, {dataset.name!r} classifies graphs")
    if probability is not None and not 0 <= probability <= 1:
        raise DataError(f"probability must be between 0 and 1, got {probability}")
    rng = _generator(dataset, share, seed, "noisy-nodes")
    graph = dataset.graph
    old = int(graph.num_nodes)
    # The paper counts 541 of 2,708 nodes: 541.6 truncated.
    count = max(1, int(share * old))
    if probability is None:
        mean = graph.edge_index.shape[1] / old**2
        probability = PAPER_PROBABILITY.get(dataset.name, mean)
    new, existing = (torch.rand(count, old, generator=rng) < probability).nonzero().unbind(dim=1)
    new = new + old
    added = torch.stack([torch.cat([new, existing]), torch.cat([existing, new])])
    edge_index = coalesce(torch.cat([graph.edge_index, added], dim=1), num_nodes=old + count)
    x = torch.cat([graph.x, _features_like(dataset, rng)(count, dataset.features)])
    y = torch.cat([graph.y, graph.y.new_full((count,), -1)])
    truth, before = dataset.truth, dataset.noise or Noise()
    return replace(
        dataset,
        name=dataset.name + NODES_SUFFIX,
        graphs=(Data(x=x, edge_index=edge_index, y=y),),
        truth=truth.extended(edge_index, count) if isinstance(truth, NodeTruth) else truth,
        noise=replace(before, nodes=torch.cat([before.nodes, old + torch.arange(count)])),
    )


def _features_like(dataset: DataSet, rng: torch.Generator) -> Callable[[int, int], Tensor]:
    """Draws values [rows, columns] like those of a data set: 0, or else 1 or uniform."""
    x = torch.cat([graph.x for graph in dataset.graphs])
    density = PAPER_DENSITY.get(dataset.name, float((x != 0).double().mean()))
    low, high = PAPER_RANGE.get(dataset.name, (float(x.min()), float(x.max())))
    binary = bool(((x == 0) | (x == 1)).all())

    def draw(*shape: int) -> Tensor:
        nonzero = (torch.rand(shape, generator=rng) < density).float()
        if binary:
            return nonzero
        return nonzero * (low + (high - low) * torch.rand(shape, generator=rng))

    return draw


def _generator(dataset: DataSet, share: float, seed: int | None, kind: str) -> torch.Generator:
    if not 0 < share <= 1:
        raise DataError(f"share must be above 0 and at most 1, got {share}")
    return generator(dataset.seed if seed is None else seed, dataset.name, kind)
