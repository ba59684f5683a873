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

from graphsvx.core.arrays import Bools, Ids
from graphsvx.core.field import Field, Perturbations, reachable
from graphsvx.generators.base import FeatureRows, Fixed, GameSetup
from graphsvx.generators.isolate import Isolate, with_row
from graphsvx.utils.constraints import Range

InnerFeatures = Literal["mean", "target"]
Variant = Literal["paper", "released"]
"""The indirect effect of the paper's algorithm 2, or of the code that its authors released."""


@dataclass(frozen=True, eq=False)
class _Paths:
    """Shortest paths to a centre, step by step."""

    options: dict[int, Ids]
    """Possible next nodes by node, in ascending order of hops."""
    draws: NDArray[np.float64]
    """In [0, 1), by node: of equally good next nodes, the one with the smallest is on_paths."""
    following: Ids
    """The next node on one path of each node, drawn evenly from all of its shortest ones."""

    @staticmethod
    def draw(field: Field, rng: torch.Generator) -> _Paths:
        """A uniformly random shortest path from each node of the field to a centre."""
        draws = torch.rand(field.size, generator=rng, dtype=torch.float64).numpy()
        options = dict(_options(*_inward_steps(field)))
        # Number of shortest paths from each node, computed hop by hop outwards.
        path_counts = np.zeros(field.size)
        path_counts[: field.centres] = 1
        following = np.full(field.size, -1)
        for node, nearer in options.items():
            weights = np.cumsum(path_counts[nearer])
            path_counts[node] = weights[-1]
            following[node] = nearer[np.searchsorted(weights, draws[node] * weights[-1], "right")]
        return _Paths(options, draws, following)

    def with_fewest_off(self, off: Bools) -> tuple[Ids, Ids]:
        """Next node, and number of switched-off inner nodes, of each node's best path.

        Both [rows, nodes]. The best path has the fewest; shortest paths are built from those of the
        nodes nearer by.
        """
        following = np.full(off.shape, -1)
        off_inner = np.zeros(off.shape, dtype=np.int64)
        for node, nearer in self.options.items():
            counts = off[:, nearer] + off_inner[:, nearer]
            following[:, node] = nearer[np.argmin(counts + self.draws[nearer], axis=1)]
            off_inner[:, node] = counts.min(1)
        return following, off_inner


@dataclass(frozen=True)
class Indirect(Fixed):
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
    feature_rows: ClassVar[FeatureRows] = "by_mask"
    paths: _Paths | None = field(default=None, compare=False, repr=False)

    def prepare(self, setup: GameSetup, rng: torch.Generator) -> Indirect:
        """Draw the paths."""
        return replace(self, paths=_Paths.draw(setup.field, rng))

    def __call__(self, setup: GameSetup, features_on: Bools, nodes_on: Bools) -> Perturbations:
        """One perturbed graph per coalition."""
        perturbations = Isolate()(setup, features_on, nodes_on)
        if self.paths is None:
            raise RuntimeError("call prepare() first: the paths are not drawn yet")
        active, field = perturbations.active, setup.field
        player = np.zeros(field.size, dtype=bool)
        player[setup.players.node_members] = True
        following = self.paths.following[None]
        if self.variant == "paper":
            joins = active & player & ~reachable(perturbations, field, None) & (following >= 0)
        else:
            counts = (active & player).sum(1)
            few = np.flatnonzero((counts > 0) & (counts < self.order))
            following, joins = following.repeat(len(active), 0), np.zeros_like(active)
            following[few], off_inner = self.paths.with_fewest_off(~active[few])
            joins[few] = (active & player)[few] & (off_inner > 0)
        joined, passing = _join(field, following, joins, self.variant == "paper")
        if self.variant == "paper":
            passing &= ~active
        if not passing.any():
            return replace(perturbations, added_edges=joined)
        of_target = perturbations.feature_table[0]
        inner = setup.graph.statistics.mean if self.inner == "mean" else of_target
        return replace(with_row(perturbations, passing, inner), added_edges=joined)


def _join(field: Field, following: Ids, joins: Bools, both_ways: bool) -> tuple[Bools, Bools]:
    """Edges of the paths of the nodes that join, and inner nodes of these, of each coalition.

    `following`: the next node on the path of each node; one row, or one for each coalition.
    `both_ways`: in both directions; otherwise towards the centre only, without the first step.
    """
    passing, after = np.zeros_like(joins), np.broadcast_to(following, joins.shape)
    row, position = np.nonzero(joins)
    while len(row):
        position = after[row, position]
        inner = position >= field.centres
        row, position = row[inner], position[inner]
        passing[row, position] = True
    inner_edges = field.inner_edges
    source, target = field.source[inner_edges], field.target[inner_edges]
    joined = np.zeros((len(joins), len(field.edges)), dtype=bool)
    if both_ways:
        leaves = joins | passing
        on_paths = _steps_on_paths(leaves, following, source, target)
        on_paths |= _steps_on_paths(leaves, following, target, source)
    else:
        on_paths = _steps_on_paths(passing, following, source, target)
    joined[:, inner_edges] = on_paths
    return joined, passing


def _steps_on_paths(leaves: Bools, following: Ids, source: Ids, target: Ids) -> Bools:
    """Which steps from sources to targets are on paths that leave these nodes."""
    on_paths: Bools = leaves[:, source] & (following[:, source] == target)
    return on_paths


def _inward_steps(field: Field) -> tuple[Ids, Ids]:
    """Hops along the edges to a centre (-2: there is no way), and steps that bring a node nearer.

    The steps are (source, target) pairs.
    """
    source, target = field.source[field.inner_edges], field.target[field.inner_edges]
    against = sparse.csr_matrix((np.ones(len(source)), (target, source)), (field.size, field.size))
    centres = np.arange(field.centres)
    distances = csgraph.dijkstra(against, indices=centres, unweighted=True, min_only=True)
    hops = np.where(np.isfinite(distances), distances, -2).astype(np.int64)
    inward = hops[source] == hops[target] + 1
    return hops, np.unique(np.stack([source[inward], target[inward]], 1), axis=0)


def _options(hops: Ids, pairs: Ids) -> Iterator[tuple[int, Ids]]:
    """Each node that can reach a centre with its possible next nodes, hop by hop outwards."""
    for hop in range(1, int(hops.max(initial=0)) + 1):
        steps = pairs[hops[pairs[:, 0]] == hop]
        nodes, starts = np.unique(steps[:, 0], return_index=True)
        yield from zip(nodes.tolist(), np.split(steps[:, 1], starts[1:]), strict=True)
