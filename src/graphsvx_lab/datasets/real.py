"""The real data sets: citation graphs and molecules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.io import read_planetoid_data, read_tu_data
from torch_geometric.utils import remove_self_loops, to_undirected

from graphsvx.errors import DataError
from graphsvx_lab.datasets import raw
from graphsvx_lab.datasets.base import DataSet, data_set
from graphsvx_lab.datasets.catalogue import FEATURES_SUFFIX, NODES_SUFFIX, clean_name
from graphsvx_lab.datasets.noise import with_noisy_features, with_noisy_nodes
from graphsvx_lab.datasets.truth import from_masks

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
    graph = raw.read_files(name, root, _read_amazon)
    classes = [f"category {number}" for number in range(int(graph.y.max()) + 1)]
    return data_set(name, seed, graph, classes)


def _read_amazon(folder: str, _name: str) -> Data:
    """Features, undirected edges and classes of a graph of products, from plain arrays."""
    with np.load(Path(folder) / "amazon_electronics_photo.npz", allow_pickle=False) as arrays:
        x, adjacency = (raw.sparse(arrays, part) for part in ("attr", "adj"))
        labels = torch.from_numpy(arrays["labels"]).long()
    ends = adjacency.tocoo()
    edge_index = torch.from_numpy(np.stack([ends.row, ends.col])).long()
    return Data(
        x=torch.from_numpy((x.toarray() > 0).astype(np.float32)),
        edge_index=to_undirected(remove_self_loops(edge_index)[0]),
        y=labels,
    )


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
    nodes, edges = slices["x"].tolist(), slices["edge_index"].tolist()
    graphs, masks = [], []
    for index, label in enumerate(collated.y.tolist()):
        bonds = slice(edges[index], edges[index + 1])
        graph = Data(
            x=collated.x[nodes[index] : nodes[index + 1]].clone(),
            edge_index=collated.edge_index[:, bonds].clone(),
            edge_attr=collated.edge_attr[bonds].clone(),
            y=torch.tensor([label]),
        )
        graphs.append(graph)
        edge_mask = nitro_and_amino(graph.x, graph.edge_index)
        if label != 0:
            edge_mask = torch.zeros_like(edge_mask)
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
