"""Algorithm 2: an active node without a path to v is reconnected along a shortest path."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import csgraph

from graphsvx.core.arrays import Bools, Ids
from graphsvx.core.field import Field
from graphsvx.core.perturbation import Perturbations, reachable
from graphsvx.generators.base import FeatureRows, GameSetup
from graphsvx.generators.isolate import Isolate
from graphsvx.utils.constraints import Checked

InnerFeatures = Literal["mean", "target"]


@dataclass(frozen=True, eq=False)
class _Paths:
    """One shortest path to a centre for each node of a field."""

    edges: sparse.csr_matrix
    """[nodes, edges]: the edges of each node's path, in both directions where both exist."""
    inner: sparse.csr_matrix
    """[nodes, nodes]: the nodes between each node and its centre."""


@dataclass(frozen=True)
class Indirect(Checked):
    """Isolate, with the indirect effect of nodes further away (algorithm 2).

    For each node that can reach v in the graph, one shortest path is drawn at random, once per
    explanation, so that the game stays a function of the coalition. Switched-off nodes between
    the two ends pass messages on with `inner` features: the mean of the data ("mean", the
    paper's text) or those of v ("target", its pseudocode). Inner nodes that are on keep theirs.
    """

    inner: InnerFeatures = "mean"
    edge_players = False
    blocks_paths = False
    feature_rows: ClassVar[FeatureRows] = "by_mask"
    paths: _Paths | None = field(default=None, compare=False, repr=False)

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> Indirect:
        """Draw the paths."""
        return replace(self, paths=draw_paths(setup.field, rng))

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        perturbations = Isolate()(setup, features_on, nodes_on)
        if self.paths is None:
            raise RuntimeError("call prepare() first: the paths are not drawn yet")
        player = np.zeros(setup.field.size, dtype=bool)
        player[setup.players.node_members] = True
        lost = perturbations.active & player & ~reachable(perturbations, setup.field, None)
        joined = (sparse.csr_matrix(lost.astype(np.float32)) @ self.paths.edges).toarray() > 0
        between = (sparse.csr_matrix(lost.astype(np.float32)) @ self.paths.inner).toarray() > 0
        passing = between & ~perturbations.active
        if not passing.any():
            return replace(perturbations, added_edges=joined)
        table = perturbations.feature_table
        mean = setup.graph.statistics.mean.to(table)[None]
        extra = mean if self.inner == "mean" else table[:1]
        rows = np.where(passing, len(table), perturbations.feature_rows())
        return replace(
            perturbations,
            feature_row=rows,
            added_edges=joined,
            feature_table=torch.cat([table, extra]),
        )


def draw_paths(field: Field, rng: torch.Generator) -> _Paths:
    """A uniformly random shortest path from each node of the field to a centre."""
    size = field.size
    source, target = field.source[field.inner_edges], field.target[field.inner_edges]
    hops = field.hops
    inward = hops[source] == hops[target] + 1
    if len(np.unique(source[inward])) < np.count_nonzero(hops):
        # A field that was walked both ways: its distances are not those along the edges.
        hops = _directed_distances(field)
        inward = hops[source] == hops[target] + 1
    source, target = source[inward], target[inward]
    pairs = np.unique(np.stack([source, target], 1), axis=0)
    # Number of shortest paths from each node, computed hop by hop outwards.
    path_counts = np.zeros(size)
    path_counts[: field.centres] = 1
    following = np.full(size, -1)
    draws = torch.rand(size, generator=rng, dtype=torch.float64).numpy()
    for hop in range(1, int(hops.max(initial=0)) + 1):
        steps = pairs[hops[pairs[:, 0]] == hop]
        nodes, starts = np.unique(steps[:, 0], return_index=True)
        for node, options in zip(nodes, np.split(steps[:, 1], starts[1:]), strict=True):
            weights = np.cumsum(path_counts[options])
            path_counts[node] = weights[-1]
            following[node] = options[np.searchsorted(weights, draws[node] * weights[-1], "right")]
    return _Paths(*_paths_as_matrices(field, following))


def _directed_distances(field: Field) -> Ids:
    """Hops along the edges from each node to a centre; -2 where there is no way."""
    source, target = field.source[field.inner_edges], field.target[field.inner_edges]
    against = sparse.csr_matrix((np.ones(len(source)), (target, source)), (field.size, field.size))
    centres = np.arange(field.centres)
    hops = csgraph.dijkstra(against, indices=centres, unweighted=True, min_only=True)
    return np.where(np.isfinite(hops), hops, -2).astype(np.int64)


def _paths_as_matrices(field: Field, following: Ids) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    size = field.size
    # Edges sorted by both ends, so that parallel edges of a step are adjacent.
    codes = field.source * (len(field.ids) + 1) + field.target
    order = np.argsort(codes, kind="stable")
    walker = np.flatnonzero(following >= 0)
    position = walker.copy()
    nodes, steps, inner_of, inner = [], [], [], []
    while len(walker):
        next_position = following[position]
        for first, second in ((position, next_position), (next_position, position)):
            edge_code = first * (len(field.ids) + 1) + second
            low = np.searchsorted(codes, edge_code, "left", sorter=order)
            high = np.searchsorted(codes, edge_code, "right", sorter=order)
            lengths = high - low
            start = np.repeat(low - (np.cumsum(lengths) - lengths), lengths)
            steps.append(order[start + np.arange(int(lengths.sum()))])
            nodes.append(np.repeat(walker, lengths))
        going = following[next_position] >= 0
        walker, position = walker[going], next_position[going]
        inner_of.append(walker)
        inner.append(position)

    def matrix(rows: list[Ids], columns: list[Ids], width: int) -> sparse.csr_matrix:
        r = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        c = np.concatenate([np.zeros(0, dtype=np.int64), *columns])
        return sparse.csr_matrix((np.ones(len(r), dtype=np.float32), (r, c)), (size, width))

    return matrix(nodes, steps, len(field.edges)), matrix(inner_of, inner, size)
