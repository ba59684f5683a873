"""Synthetic graphs: a base graph, motifs attached to it, and a few random edges.

A graph under construction is its number of nodes and its set of undirected edges `(low, high)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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


def edge_index(edges: Edges) -> Tensor:
    """Both directions of every edge, sorted."""
    directed = sorted(edges | {(b, a) for a, b in edges})
    return torch.tensor(directed, dtype=torch.long).t().contiguous()


def _below(limit: int, rng: torch.Generator) -> int:
    return int(torch.randint(limit, (1,), generator=rng))
