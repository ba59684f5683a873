"""The paper's synthetic data sets: base graphs with planted motifs.

Sizes follow the paper's table of statistics. Where its text differs (number of random edges, of
cycles, of graphs), the table is used; `docs/datasets.md` lists the differences.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx_lab.datasets import construct
from graphsvx_lab.datasets.base import DataSet, generator, stratified_split
from graphsvx_lab.datasets.construct import HOUSE, Edges, Motif
from graphsvx_lab.datasets.truth import NodeTruth, edges_inside, from_masks, motif_ids, union

FEATURES = 10
HOUSE_ROLES = ("base", "top", "middle", "bottom")


def ba_shapes(seed: int) -> DataSet:
    """BA-Shapes: 300 Barabási-Albert nodes, 80 houses, 20 random edges; classes are roles."""
    edge_index, truth = _shapes(generator(seed, "ba-shapes", "graph"))
    return _node_set(
        "ba-shapes", seed, edge_index, truth, labels=truth.role, class_names=HOUSE_ROLES
    )


def ba_community(seed: int) -> DataSet:
    """BA-Community: two BA-Shapes with 350 edges between them; a class per role and community.

    Features are Gaussian: columns 0 and 1 have mean -1 in the first community, +1 in the second,
    and standard deviation 0.5; the other eight are standard normal.
    """
    rng = generator(seed, "ba-community", "graph")
    (first, first_truth), (second, second_truth) = _shapes(rng), _shapes(rng)
    size = first_truth.motif_of.numel()
    edges = {
        (int(a), int(b)) for a, b in torch.cat([first, second + size], dim=1).t().tolist() if a < b
    }
    merged_truth = union(first_truth, second_truth, torch.empty(2, 0, dtype=torch.long))
    edges = construct.add_random(edges, 350, construct.cross_pair(size, rng), merged_truth.motif_of)
    edge_index = construct.edge_index(edges)
    truth = replace(
        union(first_truth, second_truth, edge_index), informative_features=frozenset({0, 1})
    )
    community = torch.arange(2).repeat_interleave(size)
    x = torch.randn(2 * size, FEATURES, generator=generator(seed, "ba-community", "features"))
    x[:, :2] = 0.5 * x[:, :2] + (2 * community - 1).float().unsqueeze(1)
    classes = tuple(f"{role} {side}" for side in (1, 2) for role in HOUSE_ROLES)
    return _node_set(
        "ba-community",
        seed,
        edge_index,
        truth,
        labels=truth.role + 4 * community,
        class_names=classes,
        x=x,
    )


def tree_cycles(seed: int) -> DataSet:
    """Tree-Cycles: a binary tree of 511 nodes, 60 six-cycles, 45 random edges; base or cycle."""
    return _tree_set("tree-cycles", seed, construct.cycle(6), motifs=60, random_edges=45)


def tree_grid(seed: int) -> DataSet:
    """Tree-Grid: a binary tree of 511 nodes, 80 3x3 grids, 155 random edges; base or grid."""
    return _tree_set("tree-grid", seed, construct.grid(3), motifs=80, random_edges=155)


def ba_2motifs(seed: int) -> DataSet:
    """BA-2motifs: 1,000 Barabási-Albert trees of 20 nodes, half with a house, half with a 5-cycle.

    Graphs 0-499 have a house, graphs 500-999 a 5-cycle, on nodes 20-24. One random edge, never
    inside the motif, is added to 196 of the graphs.
    """
    rng = generator(seed, "ba-2motifs", "graphs")
    count, base = 1000, 20
    with_random_edge = set(torch.randperm(count, generator=rng)[:196].tolist())
    graphs, masks = [], []
    for index in range(count):
        motif = HOUSE if index < count // 2 else construct.cycle(5)
        motif_of = motif_ids(base, motif.size, 1)
        size = motif_of.numel()
        edges = construct.plant(construct.barabasi_albert(base, 1, rng), base, motif, 1, rng)
        if index in with_random_edge:
            edges = construct.add_random(edges, 1, construct.any_pair(size, rng), motif_of)
        edge_index = construct.edge_index(edges)
        label = torch.tensor([0 if motif is HOUSE else 1])
        graphs.append(Data(x=torch.ones(size, FEATURES), edge_index=edge_index, y=label))
        masks.append((motif_of >= 0, edges_inside(edge_index, motif_of) >= 0))
    labels = torch.cat([graph.y for graph in graphs])
    return DataSet(
        name="ba-2motifs",
        seed=seed,
        graphs=tuple(graphs),
        task="graph",
        class_names=("house", "cycle"),
        split=stratified_split(labels, generator(seed, "ba-2motifs", "split")),
        truth=from_masks(masks, "house or 5-cycle"),
    )


def _shapes(rng: torch.Generator) -> tuple[Tensor, NodeTruth]:
    base = construct.barabasi_albert(300, 5, rng)
    return _planted(base, 300, HOUSE, motifs=80, random_edges=20, rng=rng)


def _tree_set(name: str, seed: int, motif: Motif, motifs: int, random_edges: int) -> DataSet:
    rng = generator(seed, name, "graph")
    edge_index, truth = _planted(
        construct.binary_tree(8), 511, motif, motifs=motifs, random_edges=random_edges, rng=rng
    )
    return _node_set(
        name, seed, edge_index, truth, labels=truth.role, class_names=("base", motif.kind)
    )


def _planted(
    base: Edges,
    size: int,
    motif: Motif,
    *,
    motifs: int,
    random_edges: int,
    rng: torch.Generator,
) -> tuple[Tensor, NodeTruth]:
    motif_of = motif_ids(size, motif.size, motifs)
    edges = construct.plant(base, size, motif, motifs, rng)
    pairs = construct.any_pair(motif_of.numel(), rng)
    edge_index = construct.edge_index(construct.add_random(edges, random_edges, pairs, motif_of))
    roles = torch.tensor(motif.roles).repeat(motifs)
    truth = NodeTruth(
        motif_of=motif_of,
        role=torch.cat([torch.zeros(size, dtype=torch.long), roles]),
        edge_motif=edges_inside(edge_index, motif_of),
        edge_index=edge_index,
        attached=size + motif.size * torch.arange(motifs),
        kind=motif.kind,
    )
    return edge_index, truth


def _node_set(
    name: str,
    seed: int,
    edge_index: Tensor,
    truth: NodeTruth,
    *,
    labels: Tensor,
    class_names: tuple[str, ...],
    x: Tensor | None = None,
) -> DataSet:
    features = torch.ones(labels.numel(), FEATURES) if x is None else x
    return DataSet(
        name=name,
        seed=seed,
        graphs=(Data(x=features, edge_index=edge_index, y=labels.clone()),),
        task="node",
        class_names=class_names,
        split=stratified_split(labels, generator(seed, name, "split")),
        truth=truth,
    )
