"""Positions of all nodes of a graph with up to tens of thousands of nodes.

Edges pull, and nodes repel each other by a force of 1 / distance. The repulsion of all pairs is a
convolution of the density of nodes on a grid (particle-mesh method), so that a round costs
O(nodes + edges + grid log grid) instead of O(nodes^2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphsvx.core.graph import Graph

Positions = NDArray[np.float64]
_GRID = 128
_ROUNDS = 160


def map_of(graph: Graph) -> dict[str, Any]:
    """Positions of all nodes from 0 to 10,000, and the ends of all edges, each pair once."""
    source, target = graph.edge_index.cpu().numpy()
    positions = map_positions(source, target, graph.num_nodes)
    pairs = _undirected(source, target, graph.num_nodes)
    return {
        "x": np.round(10_000 * positions[:, 0]).astype(int).tolist(),
        "y": np.round(10_000 * positions[:, 1]).astype(int).tolist(),
        "edges": pairs.ravel().tolist(),
    }


def map_positions(source: NDArray[np.int64], target: NDArray[np.int64], nodes: int) -> Positions:
    """Positions [nodes, 2] between 0 and 1; the same graph gives the same positions."""
    if nodes < 2:
        return np.full((nodes, 2), 0.5)
    pairs = _undirected(source, target, nodes)
    position = _start(pairs, nodes)
    pull = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (nodes, nodes)).tocsr()
    pull = pull + pull.T
    degree = np.asarray(pull.sum(1)).reshape(-1, 1)
    # Hubs are heavy: they keep a distance from each other, and their leaves gather around them.
    weight = 1 + degree[:, 0]
    for step in range(_ROUNDS):
        spread = position - position.mean(0)
        attraction = pull @ position - degree * position
        repulsion = _repulsion(position, weight)
        gravity = -spread / np.maximum(np.linalg.norm(spread, axis=1, keepdims=True), 1e-9)
        force = attraction + weight[:, None] * (1.2 * repulsion + 1.5 * gravity)
        size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        extent = float(np.abs(spread).max())
        # A node moves by at most a share of the picture that shrinks from round to round.
        limit = 0.08 * extent * (1 - step / _ROUNDS) ** 1.5
        mobility = force / (degree + 1)
        length = size / (degree + 1)
        position = position + mobility * np.minimum(1.0, limit / length)
    return _normalised(position)


def _undirected(
    source: NDArray[np.int64], target: NDArray[np.int64], nodes: int
) -> NDArray[np.int64]:
    """Each pair of neighbours once, without loops, [pairs, 2]."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = np.unique((low * nodes + high)[low != high])
    return np.stack([keys // nodes, keys % nodes], axis=1)


def _start(pairs: NDArray[np.int64], nodes: int) -> Positions:
    """Random positions, smoothed along the edges; the largest component in the middle."""
    rng = np.random.default_rng(0)
    adjacency = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (nodes, nodes))
    adjacency = (adjacency + adjacency.T).tocsr()
    count, component = connected_components(adjacency, directed=False)
    size = np.bincount(component, minlength=count)
    main = component == size.argmax()
    scale = np.sqrt(nodes) * 2.0
    position = rng.normal(size=(nodes, 2))
    degree = np.maximum(np.asarray(adjacency.sum(1)).reshape(-1, 1), 1)
    for _ in range(60):  # power iterations: neighbours come close to each other
        position = 0.5 * position + 0.5 * (adjacency @ position) / degree
        position[main] -= position[main].mean(0)
        position[main] /= np.maximum(position[main].std(0), 1e-9)
    angle = rng.uniform(0, 2 * np.pi, count)[component]
    ring = 1.8 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    position[~main] = ring[~main] + 0.05 * rng.normal(size=(int((~main).sum()), 2))
    position[main] += 0.02 * rng.normal(size=(int(main.sum()), 2))
    return position * scale * 0.5


def _repulsion(position: Positions, weight: NDArray[np.float64]) -> Positions:
    """Sum over all other nodes of weight * direction / distance, on a grid."""
    low, high = position.min(0), position.max(0)
    cell = float((high - low).max()) / (_GRID - 3) or 1.0
    at = (position - low) / cell + 0.5
    corner = np.floor(at).astype(np.int64)
    share = at - corner
    density = np.zeros((_GRID, _GRID))
    corners = [(dx, dy) for dx in (0, 1) for dy in (0, 1)]
    parts = [
        np.where(dx, share[:, 0], 1 - share[:, 0]) * np.where(dy, share[:, 1], 1 - share[:, 1])
        for dx, dy in corners
    ]
    for (dx, dy), part in zip(corners, parts, strict=True):
        np.add.at(density, (corner[:, 0] + dx, corner[:, 1] + dy), part * weight)
    offset = np.arange(-_GRID + 1, _GRID)
    dx_grid, dy_grid = np.meshgrid(offset, offset, indexing="ij")
    square = dx_grid**2 + dy_grid**2 + 0.5
    out = np.zeros_like(position)
    for axis, component in enumerate((dx_grid, dy_grid)):
        force = fftconvolve(density, component / square, mode="full")
        force = force[_GRID - 1 : 2 * _GRID - 1, _GRID - 1 : 2 * _GRID - 1] / cell
        for (dx, dy), part in zip(corners, parts, strict=True):
            out[:, axis] += part * force[corner[:, 0] + dx, corner[:, 1] + dy]
    return out


def _normalised(position: Positions) -> Positions:
    """Positions in the unit square, with crowded middles spread out.

    A node's distance to the middle becomes a mixture of the distance itself and of its rank, which
    alone would fill the disc evenly.
    """
    centred = position - np.median(position, axis=0)
    radius = np.linalg.norm(centred, axis=1)
    rank = np.empty(len(radius))
    rank[np.argsort(radius, kind="stable")] = np.arange(1, len(radius) + 1)
    even = np.sqrt(rank / len(radius))
    mixed = 0.3 * radius / max(float(radius.max()), 1e-9) + 0.7 * even
    spread = centred * (mixed / np.maximum(radius, 1e-9))[:, None]
    low, high = spread.min(0), spread.max(0)
    middle, half = (low + high) / 2, float((high - low).max()) / 2 or 1.0
    return np.asarray(0.5 + (spread - middle) / (2 * half))
