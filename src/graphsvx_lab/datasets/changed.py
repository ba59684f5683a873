"""Graph sets that were changed: a part of the graphs, shuffled labels, a planted shortcut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from graphsvx_lab.datasets.base import DataSet, draw, generator, stratified_split
from graphsvx_lab.datasets.truth import from_masks

BASE, MARK = 20, 3.0
"""BA-2motifs: nodes of the base graph, which come first; one of them has this value as a mark."""


def part_of(data: DataSet, count: int) -> DataSet:
    """`count` graphs drawn by the seed of the data, split anew; graphs have no truth any more."""
    part = draw(range(len(data.graphs)), count, data.seed, data.name, "part")
    graphs = tuple(data.graphs[graph] for graph in part)
    labels = torch.cat([graph.y for graph in graphs])
    split = stratified_split(labels, generator(data.seed, data.name, "part split"))
    return replace(data, graphs=graphs, split=split, truth=None)


def shuffled(data: DataSet, train: int) -> DataSet:
    """Labels permuted by the seed of the data, and the first `train` graphs for training."""
    rng = generator(data.seed, data.name, "shuffled")
    graphs = [graph.clone() for graph in data.graphs]
    for graph, place in zip(graphs, torch.randperm(len(graphs), generator=rng), strict=True):
        graph.y = data.graphs[int(place)].y
    split = replace(data.split, train=data.split.train[:train])
    return replace(data, graphs=tuple(graphs), split=split)


def marked(data: DataSet, count: int, gives_class_away: bool) -> DataSet:
    """`count` graphs, a half with a mark on a base node: those of class 1, or drawn by coin."""
    data = part_of(data, count)
    rng = generator(data.seed, "shortcut", data.name)
    coins = torch.randint(0, 2, (len(data.graphs),), generator=rng)
    has_mark = (data.labels if gives_class_away else coins).bool().tolist()
    nodes = torch.randint(0, BASE, (len(data.graphs),), generator=rng).tolist()
    graphs, masks = [], []
    for graph, node, is_marked in zip(data.graphs, nodes, has_mark, strict=True):
        graphs.append(with_feature(graph, node, MARK) if is_marked else graph)
        mask = (torch.arange(int(graph.num_nodes)) == node) & is_marked
        masks.append((mask, mask[graph.edge_index].any(0)))
    return replace(data, graphs=tuple(graphs), truth=from_masks(masks, "mark"))


def with_feature(graph: Any, node: int, value: float) -> Any:
    """A copy of the graph in which feature 0 of `node` has this value."""
    changed = graph.clone()  # with tensors of its own
    changed.x[node, 0] = value
    return changed
