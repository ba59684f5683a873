"""Uninformative features and nodes added to a data set (the paper's appendix)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce

from graphsvx.errors import DataError
from graphsvx_lab.datasets.base import DataSet, Noise, Split, generator
from graphsvx_lab.datasets.truth import NodeTruth

FEATURES_SUFFIX = "-noisy-features"
NODES_SUFFIX = "-noisy-nodes"
# The paper's constants; other data sets use their own density and mean degree.
PAPER_DENSITY = {"cora": 0.013, "pubmed": 0.1}
PAPER_RANGE = {"pubmed": (0.0, 1.0)}
PAPER_PROBABILITY = {"cora": 0.003, "pubmed": 0.0005}


def with_noisy_features(dataset: DataSet, share: float = 0.2, seed: int | None = None) -> DataSet:
    """The data set with `share` more feature columns, drawn like the existing ones.

    A binary set gets Bernoulli(p), p being its share of ones; any other gets values uniform over
    its range with probability p and 0 otherwise, p being its share of non-zeros. The new columns
    come last and are listed in `.noise.features`.
    """
    rng = _generator(dataset, share, seed, "noisy-features")
    old = dataset.features
    # The paper counts 287 of 1,433 columns: 286.6 rounded.
    count = max(1, round(share * old))
    graphs = []
    distribution = _FeatureDistribution.of(dataset)
    for graph in dataset.graphs:
        noisy = graph.clone()
        noisy.x = torch.cat([graph.x, distribution.draw((graph.num_nodes, count), rng)], dim=1)
        graphs.append(noisy)
    names = dataset.feature_names
    before = dataset.noise or Noise.none()
    return replace(
        dataset,
        name=dataset.name + FEATURES_SUFFIX,
        graphs=tuple(graphs),
        feature_names=None if names is None else (*names, *(f"noise {i}" for i in range(count))),
        noise=replace(before, features=torch.cat([before.features, old + torch.arange(count)])),
    )


def with_noisy_nodes(
    dataset: DataSet,
    share: float = 0.2,
    probability: float | None = None,
    seed: int | None = None,
) -> DataSet:
    """The node set with `share` more nodes, each linked to each existing node with `probability`.

    By default the new nodes get the mean degree of the existing ones; features are drawn as in
    `with_noisy_features`. The new nodes come last, have label -1, are in no part of the split, and
    are listed in `.noise.nodes`.

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
    chance = probability
    if chance is None:
        mean = graph.edge_index.shape[1] / old**2
        chance = PAPER_PROBABILITY.get(dataset.name, mean)
    new, existing = (torch.rand(count, old, generator=rng) < chance).nonzero().unbind(dim=1)
    new = new + old
    added = torch.stack([torch.cat([new, existing]), torch.cat([existing, new])])
    edge_index = coalesce(torch.cat([graph.edge_index, added], dim=1), num_nodes=old + count)
    distribution = _FeatureDistribution.of(dataset)
    x = torch.cat([graph.x, distribution.draw((count, dataset.features), rng)])
    y = torch.cat([graph.y, graph.y.new_full((count,), -1)])
    truth = dataset.truth
    before = dataset.noise or Noise.none()
    return replace(
        dataset,
        name=dataset.name + NODES_SUFFIX,
        graphs=(Data(x=x, edge_index=edge_index, y=y),),
        split=Split(**dataset.split.parts()),
        truth=truth.extended(edge_index, count) if isinstance(truth, NodeTruth) else truth,
        noise=replace(before, nodes=torch.cat([before.nodes, old + torch.arange(count)])),
    )


class _FeatureDistribution:
    """Distribution of feature values: 0 with probability 1 - density, else 1 or uniform."""

    def __init__(self, density: float, low: float, high: float, binary: bool) -> None:
        self.density, self.low, self.high, self.binary = density, low, high, binary

    @classmethod
    def of(cls, dataset: DataSet) -> _FeatureDistribution:
        x = torch.cat([graph.x for graph in dataset.graphs])
        density = float((x != 0).double().mean())
        low, high = PAPER_RANGE.get(dataset.name, (float(x.min()), float(x.max())))
        return cls(
            density=PAPER_DENSITY.get(dataset.name, density),
            low=low,
            high=high,
            binary=bool(((x == 0) | (x == 1)).all()),
        )

    def draw(self, shape: tuple[int, int], rng: torch.Generator) -> Tensor:
        nonzero = (torch.rand(shape, generator=rng) < self.density).float()
        if self.binary:
            return nonzero
        return nonzero * (self.low + (self.high - self.low) * torch.rand(shape, generator=rng))


def _generator(dataset: DataSet, share: float, seed: int | None, kind: str) -> torch.Generator:
    if not 0 < share <= 1:
        raise DataError(f"share must be above 0 and at most 1, got {share}")
    return generator(dataset.seed if seed is None else seed, dataset.name, kind)
