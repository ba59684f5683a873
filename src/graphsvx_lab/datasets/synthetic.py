"""The paper's synthetic data sets: base graphs with planted motifs.

Sizes follow the paper's table of statistics. Where its text differs (number of random edges, of
cycles, of graphs), the table is used; `docs/datasets.md` lists the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx_lab.datasets.base import DataSet, data_set, generator
from graphsvx_lab.datasets.truth import NodeTruth, edges_inside, from_masks, motif_ids, union

FEATURES = 10
HOUSE_ROLES = ("base", "top", "middle", "bottom")


def ba_shapes(name: str, seed: int, _root: object) -> DataSet:
    """BA-Shapes: 300 Barabási-Albert nodes, 80 houses, 20 random edges; classes are roles."""
    edge_index, truth = _shapes(generator(seed, name, "graph"))
    return _node_set(name, seed, edge_index, truth, truth.role, HOUSE_ROLES)


def ba_community(name: str, seed: int, _root: object) -> DataSet:
    """BA-Community: two BA-Shapes with 350 edges between them; a class per role and community.

    Features are Gaussian: columns 0 and 1 have mean -1 in the first community, +1 in the second,
    and standard deviation 0.5; the other eight are standard normal.
    """
    rng = generator(seed, name, "graph")
    (first, first_truth), (second, second_truth) = _shapes(rng), _shapes(rng)
    size = first_truth.motif_of.numel()
    both = torch.cat([first, second + size], dim=1)
    edges = {(int(a), int(b)) for a, b in both.t().tolist() if a < b}
    motif_of = union(first_truth, second_truth, both[:, :0]).motif_of
    edge_index = edge_index_of(add_random(edges, 350, cross_pair(size, rng), motif_of))
    truth = union(first_truth, second_truth, edge_index)
    truth = replace(truth, informative_features=frozenset({0, 1}))
    community = torch.arange(2).repeat_interleave(size)
    x = torch.randn(2 * size, FEATURES, generator=generator(seed, name, "features"))
    x[:, :2] = 0.5 * x[:, :2] + (2 * community - 1).float().unsqueeze(1)
    classes = [f"{role} {side}" for side in (1, 2) for role in HOUSE_ROLES]
    return _node_set(name, seed, edge_index, truth, truth.role + 4 * community, classes, x)


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
    count, base = 1000, 20
    with_random_edge = set(torch.randperm(count, generator=rng)[:196].tolist())
    graphs, masks = [], []
    for index in range(count):
        motif = HOUSE if index < count // 2 else cycle(5)
        motif_of = motif_ids(base, motif.size, 1)
        size = motif_of.numel()
        edges = plant(barabasi_albert(base, 1, rng), base, motif, 1, rng)
        if index in with_random_edge:
            edges = add_random(edges, 1, any_pair(size, rng), motif_of)
        edge_index = edge_index_of(edges)
        label = torch.tensor([0 if motif is HOUSE else 1])
        graphs.append(Data(x=torch.ones(size, FEATURES), edge_index=edge_index, y=label))
        masks.append((motif_of >= 0, edges_inside(edge_index, motif_of) >= 0))
    truth = from_masks(masks, "house or 5-cycle")
    return data_set(name, seed, graphs, ("house", "cycle"), truth=truth)


def _shapes(rng: torch.Generator) -> tuple[Tensor, NodeTruth]:
    base = barabasi_albert(300, 5, rng)
    return _planted(base, 300, HOUSE, motifs=80, random_edges=20, rng=rng)


def _tree_set(name: str, seed: int, motif: Motif, motifs: int, random_edges: int) -> DataSet:
    rng = generator(seed, name, "graph")
    edge_index, truth = _planted(
        binary_tree(8), 511, motif, motifs=motifs, random_edges=random_edges, rng=rng
    )
    return _node_set(name, seed, edge_index, truth, truth.role, ("base", motif.kind))


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
    edges = plant(base, size, motif, motifs, rng)
    pairs = any_pair(motif_of.numel(), rng)
    edge_index = edge_index_of(add_random(edges, random_edges, pairs, motif_of))
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
    labels: Tensor,
    class_names: Sequence[str],
    x: Tensor | None = None,
) -> DataSet:
    features = torch.ones(labels.numel(), FEATURES) if x is None else x
    graph = Data(x=features, edge_index=edge_index, y=labels.clone())
    return data_set(name, seed, graph, class_names, truth=truth)


Edges = set[tuple[int, int]]


@dataclass(frozen=True)
class Motif:
    """A small graph to attach: its edges and each node's role; node 0 is linked to the base."""

    kind: str
    edges: tuple[tuple[int, int], ...]
    roles: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.roles)


def cycle(size: int) -> Motif:
    """A ring of `size` nodes; every node has role 1."""
    ring = tuple((i, i + 1) for i in range(size - 1))
    return Motif("cycle", (*ring, (0, size - 1)), (1,) * size)


def grid(side: int) -> Motif:
    """A `side` by `side` grid, row by row; every node has role 1. Node 0 is a corner."""
    right = [(r * side + c, r * side + c + 1) for r in range(side) for c in range(side - 1)]
    down = [(r * side + c, (r + 1) * side + c) for r in range(side - 1) for c in range(side)]
    return Motif("grid", tuple(right + down), (1,) * (side * side))


# Two middle nodes, two bottom nodes, the top: a square with a roof over the first two.
HOUSE = Motif("house", ((0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4)), (2, 2, 3, 3, 1))


def undirected(a: int, b: int) -> tuple[int, int]:
    """The undirected edge between two nodes as `(low, high)`."""
    return (a, b) if a < b else (b, a)


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


def binary_tree(height: int) -> Edges:
    """The balanced binary tree with `2 ** (height + 1) - 1` nodes, level by level."""
    return {((node - 1) // 2, node) for node in range(1, 2 ** (height + 1) - 1)}


def plant(edges: Edges, base: int, motif: Motif, count: int, rng: torch.Generator) -> Edges:
    """Add `count` motifs after the `base` nodes, each linked to a different node of the base.

    Motif i has the nodes from `base + i * motif.size` on; the first of them has the link.
    """
    hosts = torch.randperm(base, generator=rng)[:count].tolist()
    planted = set(edges)
    for index, host in enumerate(hosts):
        first = base + index * motif.size
        planted |= {undirected(first + a, first + b) for a, b in motif.edges}
        planted.add((host, first))
    return planted


def add_random(
    edges: Edges,
    count: int,
    draw: Callable[[], tuple[int, int]],
    motif_of: Tensor,
) -> Edges:
    """Add `count` new edges drawn by `draw`, none of them inside one motif.

    A chord would change the motif: a 5-cycle with a chord is a house.
    """
    ids = motif_of.tolist()
    grown = set(edges)
    while len(grown) < len(edges) + count:
        a, b = draw()
        if a != b and (ids[a] < 0 or ids[a] != ids[b]):
            grown.add(undirected(a, b))
    return grown


def any_pair(size: int, rng: torch.Generator) -> Callable[[], tuple[int, int]]:
    """Draw two nodes out of `size`."""
    return lambda: (_below(size, rng), _below(size, rng))


def cross_pair(size: int, rng: torch.Generator) -> Callable[[], tuple[int, int]]:
    """Draw one node out of the first `size` and one out of the next `size`."""
    return lambda: (_below(size, rng), size + _below(size, rng))


def edge_index_of(edges: Edges) -> Tensor:
    """Both directions of every edge, sorted."""
    directed = sorted(edges | {(b, a) for a, b in edges})
    return torch.tensor(directed, dtype=torch.long).t().contiguous()


def _below(limit: int, rng: torch.Generator) -> int:
    return int(torch.randint(limit, (1,), generator=rng))
