"""The paper's synthetic data sets: base graphs with planted motifs.

Sizes follow the paper's table of statistics. Where its text differs (number of random edges, of
cycles, of graphs), the table is used; `docs/datasets.md` lists the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx_lab.datasets.base import (
    DataSet,
    NodeTruth,
    data_set,
    edges_inside,
    from_masks,
    generator,
)

FEATURES = 10
HOUSE_ROLES = ("base", "top", "middle", "bottom")
Edges = set[tuple[int, int]]
"""Undirected edges (low, high)."""


def ba_shapes(name: str, seed: int, _root: object) -> DataSet:
    """BA-Shapes: 300 Barabási-Albert nodes, 80 houses, 20 random edges; classes are roles."""
    truth = _truth_of(*_shapes(generator(seed, name, "graph")), HOUSE)
    return _node_set(name, seed, truth, truth.role, HOUSE_ROLES)


def ba_community(name: str, seed: int, _root: object) -> DataSet:
    """BA-Community: two BA-Shapes with 350 edges between them; a class per role and community.

    Features are Gaussian: columns 0 and 1 have mean -1 in the first community, +1 in the second,
    and standard deviation 0.5; the other eight are standard normal.
    """
    rng = generator(seed, name, "graph")
    (first, motif_of), (second, _) = _shapes(rng), _shapes(rng)
    size, motifs = len(motif_of), int(motif_of.max()) + 1
    second_motif_of = torch.where(motif_of >= 0, motif_of + motifs, motif_of)
    motif_of = torch.cat([motif_of, second_motif_of])
    edges = first | {(size + a, size + b) for a, b in second}
    edges = add_random(edges, 350, motif_of, rng, between_halves=True)
    truth = _truth_of(edges, motif_of, HOUSE, informative=frozenset({0, 1}))
    community = torch.arange(2).repeat_interleave(size)
    x = torch.randn(2 * size, FEATURES, generator=generator(seed, name, "features"))
    x[:, :2] = 0.5 * x[:, :2] + (2 * community - 1).float().unsqueeze(1)
    classes = [f"{role} {side}" for side in (1, 2) for role in HOUSE_ROLES]
    return _node_set(name, seed, truth, truth.role + 4 * community, classes, x)


def tree_cycles(name: str, seed: int, _root: object) -> DataSet:
    """Tree-Cycles: a binary tree of 511 nodes, 60 six-cycles, 45 random edges; base or cycle."""
    return _tree_set(name, seed, cycle(6), motifs=60, random_edges=45)


def tree_grid(name: str, seed: int, _root: object) -> DataSet:
    """Tree-Grid: a binary tree of 511 nodes, 80 3x3 grids, 155 random edges; base or grid."""
    return _tree_set(name, seed, grid(3), motifs=80, random_edges=155)


def ba_2motifs(name: str, seed: int, _root: object) -> DataSet:
    """BA-2motifs: 1,000 Barabási-Albert trees of 20 nodes, half with a house, half with a 5-cycle.

    Graphs 0-499 have a house, graphs 500-999 a 5-cycle, on nodes 20-24. One random edge, never
    inside the motif, is added to 196 of the graphs.
    """
    rng = generator(seed, name, "graphs")
    with_random_edge = set(torch.randperm(1000, generator=rng)[:196].tolist())
    graphs, masks = [], []
    for index in range(1000):
        label = int(index >= 500)
        base, motif = barabasi_albert(20, 1, rng), (HOUSE, cycle(5))[label]
        edges, motif_of = _planted(base, 20, motif, 1, int(index in with_random_edge), rng)
        edge_index = edge_index_of(edges)
        x = torch.ones(len(motif_of), FEATURES)
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor([label])))
        masks.append((motif_of >= 0, edges_inside(edge_index, motif_of) >= 0))
    truth = from_masks(masks, "house or 5-cycle")
    return data_set(name, seed, graphs, ("house", "cycle"), truth=truth)


def _shapes(rng: torch.Generator) -> tuple[Edges, Tensor]:
    return _planted(barabasi_albert(300, 5, rng), 300, HOUSE, 80, 20, rng)


def _tree_set(name: str, seed: int, motif: Motif, motifs: int, random_edges: int) -> DataSet:
    rng, size = generator(seed, name, "graph"), 511
    tree = {((node - 1) // 2, node) for node in range(1, size)}
    truth = _truth_of(*_planted(tree, size, motif, motifs, random_edges, rng), motif)
    return _node_set(name, seed, truth, truth.role, ("base", motif.kind))


def _planted(
    base: Edges, size: int, motif: Motif, motifs: int, random_edges: int, rng: torch.Generator
) -> tuple[Edges, Tensor]:
    """Edges of base, motifs and random ones; and the motif of each node, -1 in the base.

    Motif i has the nodes from `size + i * motif.size` on; the first of them has a link to a node of
    the base, another one for each motif.
    """
    edges = set(base)
    for index, host in enumerate(torch.randperm(size, generator=rng)[:motifs].tolist()):
        first = size + index * motif.size
        edges |= {(first + a, first + b) for a, b in motif.edges} | {(host, first)}
    motif_of = torch.arange(motifs).repeat_interleave(motif.size)
    motif_of = torch.cat([torch.full((size,), -1), motif_of])
    return add_random(edges, random_edges, motif_of, rng), motif_of


def _truth_of(
    edges: Edges, motif_of: Tensor, motif: Motif, informative: frozenset[int] | None = None
) -> NodeTruth:
    edge_index, planted = edge_index_of(edges), (motif_of >= 0).nonzero().flatten()
    role = torch.zeros_like(motif_of)
    role[planted] = torch.tensor(motif.roles).repeat(len(planted) // motif.size)
    return NodeTruth(
        motif_of=motif_of,
        role=role,
        edge_motif=edges_inside(edge_index, motif_of),
        edge_index=edge_index,
        attached=planted[:: motif.size],
        kind=motif.kind,
        informative_features=informative,
    )


def _node_set(
    name: str,
    seed: int,
    truth: NodeTruth,
    labels: Tensor,
    class_names: Sequence[str],
    x: Tensor | None = None,
) -> DataSet:
    features = torch.ones(labels.numel(), FEATURES) if x is None else x
    graph = Data(x=features, edge_index=truth.edge_index, y=labels.clone())
    return data_set(name, seed, graph, class_names, truth=truth)


@dataclass(frozen=True)
class Motif:
    """A small graph to attach: its edges (low, high) and each node's role; node 0 has the link."""

    kind: str
    edges: tuple[tuple[int, int], ...]
    roles: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.roles)


def cycle(size: int) -> Motif:
    """A ring of `size` nodes; every node has role 1."""
    return Motif("cycle", tuple(nx.cycle_graph(size).edges), (1,) * size)


def grid(side: int) -> Motif:
    """A `side` by `side` grid, row by row; every node has role 1. Node 0 is a corner."""
    lattice = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side), ordering="sorted")
    return Motif("grid", tuple(lattice.edges), (1,) * (side * side))


# Two middle nodes, two bottom nodes, the top: a square with a roof over the first two.
HOUSE = Motif("house", ((0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4)), (2, 2, 3, 3, 1))


def barabasi_albert(size: int, links: int, rng: torch.Generator) -> Edges:
    """Preferential attachment: a star of `links + 1` nodes, then nodes with `links` edges each."""
    edges = {(0, leaf) for leaf in range(1, links + 1)}
    # Each node appears once per incident edge, so a uniform draw is proportional to degree.
    ends = [0] * links + list(range(1, links + 1))
    for node in range(links + 1, size):
        targets: set[int] = set()
        while len(targets) < links:
            targets.add(ends[_below(len(ends), rng)])
        edges |= {(target, node) for target in targets}
        ends += sorted(targets) + [node] * links
    return edges


def add_random(
    edges: Edges, count: int, motif_of: Tensor, rng: torch.Generator, between_halves: bool = False
) -> Edges:
    """Add `count` random edges, none of them inside one motif, or only between halves of the nodes.

    A chord would change the motif: a 5-cycle with a chord is a house.
    """
    ids, grown = motif_of.tolist(), set(edges)
    offset = len(ids) // 2 if between_halves else 0
    while len(grown) < len(edges) + count:
        a, b = _below(len(ids) - offset, rng), offset + _below(len(ids) - offset, rng)
        if a != b and (ids[a] < 0 or ids[a] != ids[b]):
            grown.add((min(a, b), max(a, b)))
    return grown


def edge_index_of(edges: Edges) -> Tensor:
    """Both directions of every edge, sorted."""
    directed = sorted(edges | {(b, a) for a, b in edges})
    return torch.tensor(directed, dtype=torch.long).t().contiguous()


def _below(limit: int, rng: torch.Generator) -> int:
    return int(torch.randint(limit, (1,), generator=rng))
