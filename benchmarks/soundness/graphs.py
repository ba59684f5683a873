"""Random graphs of many shapes, from two nodes to a few hundred."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch_geometric.data import Data

Pairs = list[tuple[int, int]]


def _random(draw: random.Random, nodes: int, degree: float) -> Pairs:
    chance = min(0.9, degree / max(1, nodes - 1))
    return [(u, v) for u in range(nodes) for v in range(u) if draw.random() < chance]


def _sparse(draw: random.Random, nodes: int) -> Pairs:
    return _random(draw, nodes, 1.6)


def _dense(draw: random.Random, nodes: int) -> Pairs:
    return _random(draw, nodes, 3.5)


def _star(draw: random.Random, nodes: int) -> Pairs:
    centre = draw.randrange(nodes)
    return [(node, centre) for node in range(nodes) if node != centre]


def _hub(draw: random.Random, nodes: int) -> Pairs:
    """A centre of high degree, a tail behind it, and a few edges elsewhere."""
    tail = max(1, nodes // 5)
    pairs = [(node, 0) for node in range(1, nodes - tail)]
    pairs += [(node, node - 1) for node in range(nodes - tail, nodes)]
    return pairs + [tuple(draw.sample(range(nodes), 2)) for _ in range(nodes // 6)]


def _behind_a_hub(draw: random.Random, nodes: int) -> Pairs:
    """A short path to a hub, with the other nodes on the far side of it."""
    pairs = [(1, 0), (2, 1)]
    pairs = [pair for pair in pairs if max(pair) < nodes]
    hub = min(2, nodes - 1)
    pairs += [(node, hub) for node in range(3, nodes)]
    return pairs + [tuple(draw.sample(range(3, nodes), 2)) for _ in range(nodes // 8) if nodes > 5]


def _tree(draw: random.Random, nodes: int) -> Pairs:
    return [(node, draw.randrange(max(0, node - 3), node)) for node in range(1, nodes)]


def _path(draw: random.Random, nodes: int) -> Pairs:
    order = draw.sample(range(nodes), nodes)
    return list(pairwise(order))


def _cycle(draw: random.Random, nodes: int) -> Pairs:
    pairs = _path(draw, nodes)
    return [*pairs, (pairs[-1][1], pairs[0][0])] if nodes > 2 else pairs


def _clique(draw: random.Random, nodes: int) -> Pairs:
    size = min(nodes, draw.randint(3, 6))
    pairs = [(u, v) for u in range(size) for v in range(u)]
    return pairs + [(node, draw.randrange(node)) for node in range(max(1, size), nodes)]


def _apart(draw: random.Random, nodes: int) -> Pairs:
    """Two parts without an edge between them."""
    half = max(1, nodes // 2)
    left = _tree(draw, half)
    return left + [(u + half, v + half) for u, v in _random(draw, nodes - half, 2.0)]


def _bipartite(draw: random.Random, nodes: int) -> Pairs:
    half = max(1, nodes // 2)
    chance = min(1.0, 3 / half)
    return [(u, v) for u in range(half) for v in range(half, nodes) if draw.random() < chance]


def _empty(draw: random.Random, nodes: int) -> Pairs:  # noqa: ARG001  (a shape's arguments)
    return []


SHAPES: dict[str, Callable[[random.Random, int], Pairs]] = {
    "sparse": _sparse, "dense": _dense, "star": _star, "hub": _hub,
    "behind a hub": _behind_a_hub, "tree": _tree, "path": _path, "cycle": _cycle,
    "clique": _clique, "apart": _apart, "bipartite": _bipartite, "no edges": _empty,
}  # fmt: skip
_USUAL = [shape for shape in SHAPES if shape != "no edges"]


def _layout(draw: random.Random, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """At times the same values in another order of memory."""
    kind = draw.random()
    if kind < 0.08:  # every second column of something wider
        return torch.stack([x, -x], 2).reshape(len(x), -1)[:, ::2], edge_index
    if kind < 0.14:
        return x.t().contiguous().t(), edge_index.t().contiguous().t()
    return x, edge_index


def random_graph(
    draw: random.Random, *, nodes: int, features: int, shape: str | None = None,
    directed: bool | None = None, dtype: torch.dtype = torch.float64, weight: bool = False,
    attributes: int = 0, sort: bool = False,
) -> Data:  # fmt: skip
    """A graph of one of the shapes; self-loops, repeated edges and isolated nodes at times."""
    shape = shape or ("no edges" if draw.random() < 0.01 else draw.choice(_USUAL))
    pairs = SHAPES[shape](draw, nodes) if nodes > 1 else []
    directed = draw.random() < 0.4 if directed is None else directed
    if directed:
        edges = [pair if draw.random() < 0.6 else pair[::-1] for pair in pairs]
        edges += [pair[::-1] for pair in edges if draw.random() < 0.2]
    else:
        edges = [end for pair in pairs for end in (pair, pair[::-1])]
    if draw.random() < 0.2:
        loops = draw.sample(range(nodes), draw.randint(1, min(3, nodes)))
        edges += [(node, node) for node in loops]
    if edges and draw.random() < 0.2:
        repeated = draw.sample(edges, min(len(edges), draw.randint(1, 3)))
        edges += repeated if directed else repeated + [pair[::-1] for pair in repeated]
    if draw.random() < 0.15:
        lonely = draw.randrange(nodes)
        edges = [pair for pair in edges if lonely not in pair]
    order = draw.random()
    if order < 0.4:
        draw.shuffle(edges)
    elif order < 0.7 or sort:
        edges.sort()
    if sort:
        edges.sort(key=lambda pair: pair[1])
    name = draw.sample(range(nodes), nodes) if not sort and draw.random() < 0.5 else range(nodes)
    edge_index = torch.tensor([(name[u], name[v]) for u, v in edges], dtype=torch.long)
    edge_index = edge_index.reshape(-1, 2).t().contiguous()
    rng = torch.Generator().manual_seed(draw.randrange(2**31))
    x = torch.randn(nodes, features, generator=rng, dtype=dtype)
    if draw.random() < 0.2:  # bags of words
        x = (x > 0.6).to(dtype)
    x, edge_index = _layout(draw, x, edge_index)
    data = Data(x=x, edge_index=edge_index, y=torch.arange(nodes) % 2)
    count = edge_index.shape[1]
    if weight:
        data.edge_weight = torch.rand(count, generator=rng, dtype=dtype) * 2 + 0.1
    if attributes:
        data.edge_attr = torch.randn(count, attributes, generator=rng, dtype=dtype)
    return data


def positions_by_ends(edge_index: Tensor) -> dict[tuple[int, int], list[int]]:
    """Positions of the edges between each ordered pair of nodes."""
    positions: dict[tuple[int, int], list[int]] = {}
    for position, (u, v) in enumerate(edge_index.t().tolist()):
        positions.setdefault((u, v), []).append(position)
    return positions
