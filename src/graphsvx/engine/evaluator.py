"""An evaluator gives the model's outputs for perturbed graphs; `Plain` is the definition.

Each evaluator is one of four final classes, by how it calls the model:

- `Plain`: one call a perturbed graph, which defines what all others must give;
- `Copies` (`engine.rows`): batches of disjoint copies of a neighbourhood;
- `Rows` (`engine.rows`): batches that share equal rows, with kernels for known layers;
- `States` (`engine.states`): look-ups of the states of nodes, with `Rows` for few graphs.

Run-time checks compare the others with `Plain`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids, allclose, as_tensor, nudged, setdiff_sorted, tolerances
from graphsvx.core.field import Field, HopCounts, Perturbations, distances
from graphsvx.core.graph import Graph, Index, is_undirected, out_edges
from graphsvx.core.model import call_on
from graphsvx.core.query import Query
from graphsvx.core.types import FLAT
from graphsvx.engine.calls import Call
from graphsvx.engine.lazy import plain
from graphsvx.engine.profile import profile_for
from graphsvx.engine.state_graph import StateGraphs
from graphsvx.errors import ModelError, see


@dataclass(frozen=True, eq=False)
class Checks:
    """What an evaluator has been compared with, and what is left to be compared."""

    passed: tuple[str, ...] = ()
    """What was compared, in the words of the certificate."""
    fallback: str | None = None
    """Why no faster evaluator was taken; None: it is the fastest."""
    proved: bool = False
    """Whether outputs are those of plain calls whatever the coalition: it makes plain calls, or the
    structure of the model is known. False: as far as coalitions were replayed."""
    replays: int = 0
    """Number of coalitions of each game that must be evaluated again by plain calls."""
    replays_vary: bool = False
    """Whether later explanations replay fewer: a record must not depend on earlier ones."""
    plain_up_to: int = 0
    """Games of at most so many coalitions are evaluated by plain calls alone."""
    expected_output: Tensor | None = None
    """Output of the unperturbed graph, [centres, outputs], which the caller compares with that of
    the full coalition (`matches`); None: the checks are complete."""
    outputs: Tensor | None = None
    """Outputs of many nodes, [nodes, outputs], which set the scale of rounding errors."""

    def matches(self, full: Tensor | None, played: Tensor | None = None) -> bool:
        """Whether the output of the full coalition equals `expected_output`.

        `played`: outputs of the game, which show how large each output is where those of the whole
        graph are not known.
        """
        if self.expected_output is None:
            return True
        if full is None or full.shape != self.expected_output.shape:
            return False
        return allclose(
            full, self.expected_output, played if self.outputs is None else self.outputs
        )


@dataclass(frozen=True, eq=False)
class Evaluator(ABC):
    """The receptive field of a query, and a way to evaluate perturbed graphs over it."""

    query: Query
    field: Field
    depth: int | None = None
    reach: int | None = None
    """Hops within which a node of a perturbed graph can influence a centre; None: unlimited."""
    local: bool = False
    """Nodes that cannot reach a centre have no influence. False: any node may (pooling)."""
    checks: Checks = Checks()
    seconds_of_call: float | None = None
    """What a call costs, where it has been counted."""
    has_kernels: bool = False
    """Whether all layers have kernels, so that the field tells what a call costs."""
    has_slopes: bool = False
    """Whether derivatives can be computed."""

    batched: ClassVar[bool] = True
    """Whether many perturbed graphs are evaluated in one call."""

    @abstractmethod
    def evaluate(
        self, field: Field, perturbations: Perturbations, hops: HopCounts | None = None
    ) -> Tensor:
        """Raw outputs [graphs, centres, outputs] of perturbed graphs over the field, or part of it.

        `hops`: `hop_counts` of the perturbed graphs, if they are known.
        """

    def hop_counts(self, field: Field, perturbations: Perturbations) -> HopCounts:
        """Hops from each node to a centre in each perturbed graph; UNREACHABLE: no influence."""
        if not self.local:
            return np.zeros((len(perturbations), field.size), dtype=np.uint8)
        return distances(perturbations, field, self.reach)

    def slopes(
        self,
        field: Field,  # noqa: ARG002  (not known)
        perturbations: Perturbations,  # noqa: ARG002  (not known)
        hops: HopCounts,  # noqa: ARG002  (not known)
        score: Callable[[Tensor], Tensor],  # noqa: ARG002  (not known)
    ) -> Tensor | None:
        """Derivatives of scores by how active nodes are that send, [graphs, nodes, scores].

        `score` of raw outputs. None: they are not known (`has_slopes`), or could not be computed.
        """
        return None

    def states(self, field: Field) -> StateGraphs | None:  # noqa: ARG002  (there are none)
        """States of nodes by which perturbed graphs are looked up; None: they are not."""
        return None

    def plain(self, field: Field, rng: np.random.Generator | None = None) -> Plain:
        """Plain calls over a field: on the whole graph.

        With `rng`, on a part of it that suffices where the structure of the model is known.
        """
        if rng is None:
            return Plain(self.query, field, self.depth)
        return plain_calls(self.query, field, rng)

    def by_definition(self) -> Plain:
        """The same field, without shortcuts: each distinct perturbed graph by a plain call."""
        checks = replace(self.checks, proved=True, replays=0)
        return replace(self.plain(self.field), checks=checks)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Plain(Evaluator):
    """Eq. 1-2 to the letter: one model call a perturbed graph."""

    reference: ReferenceGraph | None = None
    """The part of the graph that is evaluated; None: all of it."""

    batched: ClassVar[bool] = False

    def evaluate(
        self,
        field: Field,
        perturbations: Perturbations,
        hops: HopCounts | None = None,  # noqa: ARG002  (all matter)
    ) -> Tensor:
        """Raw outputs [graphs, centres, outputs], by one call after the other."""
        perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
        reference = self.reference or full_reference(self.query.graph, field)
        outputs = [
            self._single(field, reference, perturbations.take(slice(k, k + 1)))
            for k in range(len(perturbations))
        ]
        shapes = sorted({out.shape[-1] for out in outputs})
        if len(shapes) > 1:
            raise ModelError(
                f"the model returned {shapes[0]} outputs for one perturbed graph and {shapes[-1]} "
                "for another; it must return as many for every graph"
            )
        return torch.stack(outputs)

    def nudged(self, rng: np.random.Generator) -> Plain:
        """The same with every feature of the graph changed by its last bit."""
        graph, reference = self.query.graph, self.reference
        if reference is not None:
            return replace(self, reference=replace(reference, x=nudged(reference.x, rng)))
        features = {name: nudged(x, rng) for name, x in graph.types.features.items()}
        return replace(self, query=replace(self.query, graph=graph.with_features(features)))

    def _single(
        self, field: Field, reference: ReferenceGraph, perturbation: Perturbations
    ) -> Tensor:
        query, graph = self.query, self.query.graph
        keeps = reference.active_edges(field, perturbation)[0]
        ends, centres = reference.ends[:, keeps], reference.position[: field.centres]
        nodes = reference.nodes
        call = Call(graph, nodes, ends, reference.edges[keeps], query, np.zeros_like(nodes))
        x = self._features(call, reference, perturbation)
        if perturbation.removes_rows:  # on the whole graph without types
            on = reference.active_nodes(perturbation)[0]
            if not on.any():
                return query.model.without_nodes(call_on(query.model, graph))
            number = np.cumsum(on) - 1
            call = replace(call, ids=nodes[on], ends=number[ends], copy=np.zeros_like(nodes[on]))
            x = {name: rows[as_tensor(on, rows.device)] for name, rows in x.items()}
            centres = number[centres]
        return call.outputs(x, centres[None])[0]

    def _features(
        self, call: Call, reference: ReferenceGraph, perturbation: Perturbations
    ) -> dict[str, Tensor]:
        """Features of each node type, some of their rows replaced."""
        types = self.query.graph.types
        x = dict(types.features) if self.query.graph.has_types else {FLAT: reference.x}
        if perturbation.feature_row is None:
            return x
        table, row = perturbation.feature_table, perturbation.feature_row[0]
        replaced = np.full(len(call.ids), -1)
        replaced[reference.position] = np.where(row == np.arange(len(row)), -1, row)
        for name, block in types.blocks.items():
            new_rows = replaced[call.nodes[name]]
            changed = np.flatnonzero(new_rows >= 0)
            if len(changed) and block.stop > block.start and table.shape[1]:
                new = table[as_tensor(new_rows[changed], table.device), block]
                x[name] = x[name].index_copy(0, as_tensor(changed, table.device), new.to(x[name]))
        return x


def plain_calls(query: Query, field: Field, rng: np.random.Generator) -> Plain:
    """Plain calls on nodes around the field and some others, to compare shortcuts with.

    On the whole graph if the model's structure is unknown: it may read any node.
    """
    if not profile_for(query.model, query.graph).known:
        return Plain(query, field)
    return Plain(query, field, reference=wider_reference(query.graph, field, rng))


@dataclass(frozen=True, eq=False)
class ReferenceGraph:
    """The part of the graph on which perturbed graphs are evaluated without shortcuts."""

    x: Tensor
    ends: Ids
    """Ends of its edges, [2, edges]."""
    edges: Ids
    """Position of each edge in the user's edge_index."""
    position: Ids
    """Positions of the field's nodes (without the boundary) in this graph."""
    nodes: Ids
    """Node ids in the user's graph."""

    def active_nodes(self, perturbations: Perturbations) -> Bools:
        """Nodes that are on in each perturbed graph, [graphs, nodes]; those outside always are."""
        on = np.ones((len(perturbations), len(self.x)), dtype=bool)
        on[:, self.position] = perturbations.active
        return on

    def active_edges(self, field: Field, perturbations: Perturbations) -> Bools:
        """Edges of each perturbed graph, [graphs, edges]."""
        on = self.active_nodes(perturbations)
        keeps: Bools = on[:, self.ends[0]] & on[:, self.ends[1]]
        if perturbations.changes_edges:
            order = np.argsort(self.edges)
            place = order[np.searchsorted(self.edges, field.edges, sorter=order)]
            if perturbations.added_edges is not None:
                keeps[:, place] |= perturbations.added_edges
            if perturbations.removed_edges is not None:
                keeps[:, place] &= ~perturbations.removed_edges
        return keeps


def full_reference(graph: Graph, field: Field) -> ReferenceGraph:
    """The whole graph."""
    return ReferenceGraph(
        graph.x,
        graph.edge_index.cpu().numpy(),
        np.arange(graph.num_edges),
        field.ids[: field.size],
        np.arange(graph.num_nodes),
    )


def wider_reference(
    graph: Graph, field: Field, rng: np.random.Generator, most: int = 64
) -> ReferenceGraph:
    """The field, nodes just outside it and random others, none of which may have influence."""
    inside, ring = np.split(field.ids, [field.size])
    strangers = rng.integers(0, graph.num_nodes, most // 2)
    if len(ring) > most // 2:
        ring = rng.choice(ring, most // 2, replace=False)
    senders, others = np.split(inside, [field.centres])
    if len(others) > most:
        others = rng.choice(others, most, replace=False)
    new = setdiff_sorted(np.concatenate([ring, strangers]), np.sort(inside))
    edges = [
        field.edges,
        # A hub would add its whole neighbourhood: a sample of its edges is enough.
        _some_edges(graph.index, new, 16),
        # Out-edges of the field detect models that pass messages against the edges.
        _some_edges(out_edges(graph), np.concatenate([senders, others]), 8),
    ]
    return _reference(graph, field, np.concatenate([field.ids, new]), np.concatenate(edges))


def _some_edges(index: Index, nodes: Ids, per_node: int) -> Ids:
    """The first `per_node` edges of every node."""
    first = index.start[nodes]
    count = np.minimum(index.start[nodes + 1] - first, per_node)
    steps = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return index.order[np.repeat(first, count) + steps].astype(np.int64)


def undirected_reference(graph: Graph, field: Field, wider: Field) -> ReferenceGraph:
    """All edges with an end in `wider`, a larger field around `field`."""
    inside = wider.ids[: wider.size]
    edges = [graph.index.edges_into(inside), out_edges(graph).edges_into(inside)]
    return _reference(graph, field, inside, np.concatenate(edges))


def _reference(graph: Graph, field: Field, nodes: Ids, edges: Ids) -> ReferenceGraph:
    """The part of a graph with some edges and nodes, among them those of a field."""
    edges, device = setdiff_sorted(edges, edges[:0]), graph.x.device
    ends = graph.edge_index.cpu().numpy()[:, edges]
    nodes = np.concatenate([nodes, *ends])
    ids = setdiff_sorted(nodes, nodes[:0])
    return ReferenceGraph(
        graph.x.index_select(0, as_tensor(ids, device)),
        np.searchsorted(ids, ends),
        edges,
        np.searchsorted(ids, field.ids[: field.size]),
        ids,
    )


# Run-time checks: whether a shortcut gives the outputs of plain calls of the model.

# What was compared, and a fallback, in the words of the certificate.
SAME_WIDER = "same output on a wider part of the graph"
SAME_ALONE = "same output in a batch as alone"
SAME_AGAIN = "same output when called again"
ONE_BY_ONE = (
    "one call a coalition on the whole graph: graphs in one batch change each other's output"
)


def probe_perturbations(query: Query, field: Field, rng: np.random.Generator) -> Perturbations:
    """The full graph and random coalitions, on which evaluators are compared."""
    # More coalitions for directed graphs, where more shortcuts can fail.
    on = np.ones((2 if field_is_undirected(field) else 5, field.size), dtype=bool)
    for row, tenths in zip(on[1:], (3, 5, 2, 6), strict=False):
        others = rng.permutation(np.arange(field.centres, field.size))
        row[others[: -(-len(others) * tenths // 10)]] = False
    return node_perturbations(query, field, on)


def unperturbed(query: Query, field: Field) -> Perturbations:
    """The full graph."""
    return node_perturbations(query, field, np.ones((1, field.size), dtype=bool))


def node_perturbations(query: Query, field: Field, on: Bools) -> Perturbations:
    """Perturbations with the active nodes `on`, features unchanged."""
    ids = as_tensor(field.ids[: field.size], query.graph.x.device)
    table = query.graph.x.index_select(0, ids)
    return Perturbations(on, None, table)


def field_is_undirected(field: Field) -> bool:
    """Whether each edge within the field has its reverse."""
    inner = field.inner_edges
    return is_undirected(field.source[inner], field.target[inner], field.size)


@dataclass(frozen=True, eq=False)
class Probes:
    """Some perturbed graphs, and the outputs of plain calls for them."""

    alone: Plain
    perturbations: Perturbations
    outputs: Tensor

    @staticmethod
    def of(query: Query, field: Field, seed: int) -> Probes:
        """The full graph and random coalitions over a field, by plain calls."""
        rng = np.random.default_rng(seed)
        alone = plain_calls(query, field, rng)
        perturbations = probe_perturbations(query, field, rng)
        return Probes(alone, perturbations, alone.evaluate(field, perturbations))


def equals_plain_calls(
    alone: Plain,
    field: Field,
    perturbations: Perturbations,
    outputs: Tensor,
    other: Tensor,
    like: Tensor | None = None,
) -> bool:
    """Whether `other` equals the `outputs` of plain calls, but for rounding.

    Where an output is small because large terms cancel, its size does not tell what rounding can
    change: then features are changed by their last bit to see it. `like`: outputs that show how
    large each output is.
    """
    if other.shape != outputs.shape:
        return False
    if allclose(other, outputs, like):
        return True
    draws = np.random.default_rng(0)
    changed = alone.nudged(draws).evaluate(
        field,
        replace(perturbations, feature_table=nudged(plain(perturbations.feature_table), draws)),
    )
    noise = 16 * (changed.double() - outputs.double()).abs().flatten(0, -2).amax(0)
    most = tolerances(outputs.double().flatten()[:, None].to(outputs.dtype)).max()
    return allclose(other, outputs, like, noise.nan_to_num().clamp(max=float(most)))


def require_deterministic(alone: Plain) -> None:
    """Raise a ModelError if two calls on the full graph give different outputs."""
    full = unperturbed(alone.query, alone.field)
    if not allclose(*(alone.evaluate(alone.field, full) for _ in range(2))):
        raise ModelError(
            "the model gives another output each time it is called, also in eval mode; "
            "switch its random layers off (dropout with training=True, sampling) to explain it"
            + see("the-model-is-random")
        )
