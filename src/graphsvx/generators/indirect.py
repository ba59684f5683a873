"""Algorithm 2: a switched-on node that lost its way to v is joined again along a shortest path."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import csgraph

from graphsvx.constraints import Checked
from graphsvx.engine.field import Field
from graphsvx.engine.states import Bools, States, reachable
from graphsvx.generators.base import FeatureRows, Scene
from graphsvx.generators.isolate import Isolate
from graphsvx.graph import Ids

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
    severs = False
    feature_rows: ClassVar[FeatureRows] = "by_mask"
    paths: _Paths | None = field(default=None, compare=False, repr=False)

    def prepare(self, scene: Scene, rng: torch.Generator) -> Indirect:
        """Draw the paths."""
        return replace(self, paths=draw_paths(scene.field, rng))

    def __call__(self, scene: Scene, features_on: Bools, nodes_on: Bools) -> States:
        """One perturbed graph a row."""
        states = Isolate()(scene, features_on, nodes_on)
        if self.paths is None:
            raise RuntimeError("call prepare() first: the paths are not drawn yet")
        player = np.zeros(scene.field.size, dtype=bool)
        player[scene.players.node_members] = True
        lost = states.on & player & ~reachable(states, scene.field, None)
        joined = (sparse.csr_matrix(lost.astype(np.float32)) @ self.paths.edges).toarray() > 0
        between = (sparse.csr_matrix(lost.astype(np.float32)) @ self.paths.inner).toarray() > 0
        passing = between & ~states.on
        if not passing.any():
            return replace(states, joined=joined)
        table = states.table
        mean = scene.graph.statistics.mean.to(table)[None]
        extra = mean if self.inner == "mean" else table[:1]
        rows = np.where(passing, len(table), states.written_out())
        return replace(states, rows=rows, joined=joined, table=torch.cat([table, extra]))


def draw_paths(area: Field, rng: torch.Generator) -> _Paths:
    """A uniformly random shortest path from each node of the field to a centre."""
    size = area.size
    source, target = area.source[area.inner], area.target[area.inner]
    hops = area.hops
    down = hops[source] == hops[target] + 1
    if len(np.unique(source[down])) < np.count_nonzero(hops):
        # A field that was walked both ways: its distances are not those along the edges.
        hops = _directed_distances(area)
        down = hops[source] == hops[target] + 1
    source, target = source[down], target[down]
    pairs = np.unique(np.stack([source, target], 1), axis=0)
    # How many shortest paths start at each node: hop by hop outwards.
    ways = np.zeros(size)
    ways[: area.centres] = 1
    following = np.full(size, -1)
    draws = torch.rand(size, generator=rng, dtype=torch.float64).numpy()
    for hop in range(1, int(hops.max(initial=0)) + 1):
        here = pairs[hops[pairs[:, 0]] == hop]
        nodes, starts = np.unique(here[:, 0], return_index=True)
        for node, options in zip(nodes, np.split(here[:, 1], starts[1:]), strict=True):
            weights = np.cumsum(ways[options])
            ways[node] = weights[-1]
            following[node] = options[np.searchsorted(weights, draws[node] * weights[-1], "right")]
    return _Paths(*_paths_as_matrices(area, following))


def _directed_distances(area: Field) -> Ids:
    """Hops along the edges from each node to a centre; -2 where there is no way."""
    source, target = area.source[area.inner], area.target[area.inner]
    against = sparse.csr_matrix((np.ones(len(source)), (target, source)), (area.size, area.size))
    centres = np.arange(area.centres)
    hops = csgraph.dijkstra(against, indices=centres, unweighted=True, min_only=True)
    return np.where(np.isfinite(hops), hops, -2).astype(np.int64)


def _paths_as_matrices(area: Field, following: Ids) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    size = area.size
    # Edges by their ends, so that parallel and reverse edges of a step are found together.
    codes = area.source * (len(area.ids) + 1) + area.target
    order = np.argsort(codes, kind="stable")
    walker = np.flatnonzero(following >= 0)
    here = walker.copy()
    nodes, steps, inner_of, inner = [], [], [], []
    while len(walker):
        there = following[here]
        for first, second in ((here, there), (there, here)):
            wanted = first * (len(area.ids) + 1) + second
            low = np.searchsorted(codes, wanted, "left", sorter=order)
            high = np.searchsorted(codes, wanted, "right", sorter=order)
            lengths = high - low
            start = np.repeat(low - (np.cumsum(lengths) - lengths), lengths)
            steps.append(order[start + np.arange(int(lengths.sum()))])
            nodes.append(np.repeat(walker, lengths))
        going = following[there] >= 0
        walker, here = walker[going], there[going]
        inner_of.append(walker)
        inner.append(here)

    def matrix(rows: list[Ids], columns: list[Ids], width: int) -> sparse.csr_matrix:
        r = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        c = np.concatenate([np.zeros(0, dtype=np.int64), *columns])
        return sparse.csr_matrix((np.ones(len(r), dtype=np.float32), (r, c)), (size, width))

    return matrix(nodes, steps, len(area.edges)), matrix(inner_of, inner, size)
