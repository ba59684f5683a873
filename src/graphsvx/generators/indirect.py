"""Algorithm 2: an active node without a path to v is reconnected along a shortest path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from graphsvx.core.arrays import Bools, Ids, no_ids
from graphsvx.core.field import Field
from graphsvx.core.perturbation import Perturbations, reachable
from graphsvx.generators.base import FeatureRows, GameSetup
from graphsvx.generators.isolate import Isolate
from graphsvx.utils.constraints import Checked, Range

InnerFeatures = Literal["mean", "target"]
Variant = Literal["paper", "released"]
"""The indirect effect of the paper's algorithm 2, or of the code that its authors released."""


@dataclass(frozen=True, eq=False)
class _Steps:
    """All shortest paths to a centre, step by step."""

    options: dict[int, Ids]
    """Possible next nodes by node, in ascending order of hops."""
    draws: NDArray[np.float64]
    """In [0, 1), by node: of equally good next nodes, the one with the smallest is taken."""


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

    `variant="released"` is what the authors' published code does instead. It acts only on
    coalitions of at least one and fewer than `order` (S) nodes. There, each node that is on and
    more than one hop away takes the shortest path with the fewest switched-off inner nodes; if
    there is any, edges of the path towards v are restored except the one that leaves the node
    itself, and all inner nodes get `inner` features, on or off. So a node's own features do not
    arrive, and with S = 1 nothing changes. Paths that are equally good are told apart at random,
    once per explanation.
    """

    inner: InnerFeatures = "mean"
    variant: Variant = "paper"
    order: Annotated[int, Range(1)] = 4
    edge_players = False
    blocks_paths = False
    feature_rows: ClassVar[FeatureRows] = "by_mask"
    paths: _Paths | _Steps | None = field(default=None, compare=False, repr=False)

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> Indirect:
        """Draw the paths."""
        draw = draw_paths if self.variant == "paper" else _draw_steps
        return replace(self, paths=draw(setup.field, rng))

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        perturbations = Isolate()(setup, features_on, nodes_on)
        if self.paths is None:
            raise RuntimeError("call prepare() first: the paths are not drawn yet")
        player = np.zeros(setup.field.size, dtype=bool)
        player[setup.players.node_members] = True
        if isinstance(self.paths, _Steps):
            joined, passing = self._released(setup.field, perturbations.active, player)
        else:
            lost = perturbations.active & player & ~reachable(perturbations, setup.field, None)
            joined, between = (
                (sparse.csr_matrix(lost.astype(np.float32)) @ part).toarray() > 0
                for part in (self.paths.edges, self.paths.inner)
            )
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

    def _released(self, field: Field, active: Bools, player: Bools) -> tuple[Bools, Bools]:
        """Added edges and nodes with replaced features, of the authors' code."""
        joined = np.zeros((len(active), len(field.edges)), dtype=bool)
        passing = np.zeros_like(active)
        on = active & player
        counts = on.sum(1)
        rows = np.flatnonzero((counts > 0) & (counts < self.order))
        if not isinstance(self.paths, _Steps) or not len(rows):
            return joined, passing
        following, off_inner = _with_fewest_off(self.paths, ~active[rows])
        row, node = np.nonzero(on[rows] & (off_inner > 0))
        position = following[row, node]
        while len(row):
            passing[rows[row], position] = True
            next_position = following[row, position]
            index, edge = _edges_between(field, position, next_position)
            joined[rows[row[index]], edge] = True
            going = next_position >= field.centres
            row, position = row[going], next_position[going]
        return joined, passing


def _inward_steps(field: Field) -> tuple[Ids, Ids]:
    """Hops to a centre, and the (source, target) pairs of steps that bring a node nearer."""
    source, target = field.source[field.inner_edges], field.target[field.inner_edges]
    hops = field.hops
    inward = hops[source] == hops[target] + 1
    if len(np.unique(source[inward])) < np.count_nonzero(hops):
        # A field that was walked both ways: its distances are not those along the edges.
        hops = _directed_distances(field)
        inward = hops[source] == hops[target] + 1
    return hops, np.unique(np.stack([source[inward], target[inward]], 1), axis=0)


def _options(hops: Ids, pairs: Ids) -> Iterator[tuple[int, Ids]]:
    """Each node that can reach a centre with its possible next nodes, hop by hop outwards."""
    for hop in range(1, int(hops.max(initial=0)) + 1):
        steps = pairs[hops[pairs[:, 0]] == hop]
        nodes, starts = np.unique(steps[:, 0], return_index=True)
        yield from zip(nodes.tolist(), np.split(steps[:, 1], starts[1:]), strict=True)


def _draw_steps(field: Field, rng: torch.Generator) -> _Steps:
    draws = torch.rand(field.size, generator=rng, dtype=torch.float64).numpy()
    return _Steps(dict(_options(*_inward_steps(field))), draws)


def _with_fewest_off(steps: _Steps, off: Bools) -> tuple[Ids, Ids]:
    """Next node, and number of switched-off inner nodes, of each node's best path, [rows, nodes].

    The best path has the fewest; shortest paths are built from those of the nodes nearer by.
    """
    following = np.full(off.shape, -1)
    off_inner = np.zeros(off.shape, dtype=np.int64)
    for node, options in steps.options.items():
        counts = off[:, options] + off_inner[:, options]
        following[:, node] = options[np.argmin(counts + steps.draws[options], axis=1)]
        off_inner[:, node] = counts.min(1)
    return following, off_inner


def draw_paths(field: Field, rng: torch.Generator) -> _Paths:
    """A uniformly random shortest path from each node of the field to a centre."""
    size = field.size
    hops, pairs = _inward_steps(field)
    # Number of shortest paths from each node, computed hop by hop outwards.
    path_counts = np.zeros(size)
    path_counts[: field.centres] = 1
    following = np.full(size, -1)
    draws = torch.rand(size, generator=rng, dtype=torch.float64).numpy()
    for node, options in _options(hops, pairs):
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


def _edges_between(field: Field, source: Ids, target: Ids) -> tuple[Ids, Ids]:
    """Edges from source[i] to target[i], parallel ones included, as (i, edge)."""
    base = len(field.ids) + 1
    codes = field.source * base + field.target
    order = np.argsort(codes, kind="stable")
    edge_code = source * base + target
    low = np.searchsorted(codes, edge_code, "left", sorter=order)
    lengths = np.searchsorted(codes, edge_code, "right", sorter=order) - low
    start = np.repeat(low - (np.cumsum(lengths) - lengths), lengths)
    index = np.repeat(np.arange(len(edge_code)), lengths)
    return index, order[start + np.arange(len(index))]


def _paths_as_matrices(field: Field, following: Ids) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    size = field.size
    walker = np.flatnonzero(following >= 0)
    position = walker.copy()
    nodes, steps, inner_of, inner = [], [], [], []
    while len(walker):
        next_position = following[position]
        for first, second in ((position, next_position), (next_position, position)):
            index, edges = _edges_between(field, first, second)
            steps.append(edges)
            nodes.append(walker[index])
        going = following[next_position] >= 0
        walker, position = walker[going], next_position[going]
        inner_of.append(walker)
        inner.append(position)

    def matrix(rows: list[Ids], columns: list[Ids], width: int) -> sparse.csr_matrix:
        r = np.concatenate([no_ids(), *rows])
        c = np.concatenate([no_ids(), *columns])
        return sparse.csr_matrix((np.ones(len(r), dtype=np.float32), (r, c)), (size, width))

    return matrix(nodes, steps, len(field.edges)), matrix(inner_of, inner, size)
