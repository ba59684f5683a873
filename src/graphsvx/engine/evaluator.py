"""An evaluator gives the model's outputs for perturbed graphs; `Plain` is the definition.

Each evaluator is one of four final classes, by how it calls the model:

- `Plain`: one call a perturbed graph, which defines what all others must give;
- `Copies` (`engine.copies`): batches of disjoint copies of a neighbourhood;
- `Rows` (`engine.rows`): batches that share equal rows, with kernels for known layers;
- `States` (`engine.states`): look-ups of the states of nodes, with `Rows` for few graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor, setdiff_sorted
from graphsvx.core.edge_index import Index
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph, out_edges
from graphsvx.core.model import call_on
from graphsvx.core.perturbation import HopCounts, Perturbations, distances
from graphsvx.core.query import Query
from graphsvx.engine.calls import RowsByType, call_by_type
from graphsvx.engine.lazy import plain
from graphsvx.engine.profile import profile_for
from graphsvx.engine.rounding import allclose, nudged
from graphsvx.engine.state_graph import StateGraphs


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

    batched: ClassVar[bool] = True
    """Whether many perturbed graphs are evaluated in one call."""

    @abstractmethod
    def evaluate(
        self, field: Field, perturbations: Perturbations, hops: HopCounts | None = None
    ) -> Tensor:
        """Raw outputs [graphs, centres, outputs] of perturbed graphs over the field, or part of it.

        `hops`: `hop_counts` of the perturbed graphs, if they are known.
        """

    @abstractmethod
    def describe(self) -> str:
        """How the model is called, in a few words."""

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

    @property
    def has_slopes(self) -> bool:
        """Whether derivatives can be computed."""
        return False

    def states(self, field: Field) -> StateGraphs | None:  # noqa: ARG002  (there are none)
        """States of nodes by which perturbed graphs are looked up; None: they are not."""
        return None

    @property
    def has_kernels(self) -> bool:
        """Whether all layers have kernels, so that the field tells what a call costs."""
        return False

    @property
    def seconds_of_call(self) -> float | None:
        """What a call costs, where it has been counted."""
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Plain(Evaluator):
    """Eq. 1-2 to the letter: one model call a perturbed graph."""

    reference: ReferenceGraph | None = None
    """The part of the graph that is evaluated; None: all of it."""
    seconds: float | None = None

    batched: ClassVar[bool] = False

    def describe(self) -> str:
        """How the model is called, in a few words."""
        part = "whole graph" if self.reference is None else "neighbourhood"
        return f"one call a coalition on the {part}"

    @property
    def seconds_of_call(self) -> float | None:
        """What a call costs, where it has been counted."""
        return self.seconds

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
        return torch.cat(outputs) if self.query.graph.has_types else torch.stack(outputs)

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
        model, graph = self.query.model, self.query.graph
        graph_level, device = self.query.kind == "graph", graph.x.device
        on = np.ones(len(reference.x), dtype=bool)
        on[reference.position] = perturbation.active[0]
        ends = reference.edge_index.cpu().numpy()
        keeps = on[ends[0]] & on[ends[1]]
        changes = ((perturbation.added_edges, True), (perturbation.removed_edges, False))
        for change, value in changes:
            if change is not None:
                keeps[np.isin(reference.edges, field.edges[change[0]])] = value
        if graph.has_types:
            rows = RowsByType.of_one(
                graph,
                reference.nodes,
                ends[:, keeps],
                reference.edges[keeps],
                reference.position,
                perturbation,
            )
            return call_by_type(self.query, rows, reference.position[None, : field.centres])
        x = reference.x
        if perturbation.feature_row is not None:
            x = x.clone()
            x[as_tensor(reference.position, device)] = perturbation.feature_table[
                as_tensor(perturbation.feature_row[0], device)
            ]
        edge_ids = as_tensor(reference.edges[keeps], device)
        edge_index = reference.edge_index[:, as_tensor(np.flatnonzero(keeps), device)]
        centres = as_tensor(reference.position[: field.centres], device)
        if perturbation.removes_rows:  # on the whole graph, so that positions are ids
            if not on.any():
                return model.without_nodes(call_on(model, graph))
            left, number = np.flatnonzero(on), as_tensor(np.cumsum(on) - 1, device)
            x, edge_index, centres = x[as_tensor(left, device)], number[edge_index], number[centres]
            reference = replace(reference, nodes=left)
        out = model(
            x,
            edge_index,
            None if graph.edge_weight is None else graph.edge_weight[edge_ids],
            None if graph.edge_attr is None else graph.edge_attr[edge_ids],
            torch.zeros(len(x), dtype=torch.long, device=device) if graph_level else None,
            centres[:, None] if model.scores_pairs else None,
            reference.attributes(graph, edge_ids),
        )
        return out if graph_level or model.scores_pairs else out[centres]


def plain_calls(query: Query, field: Field, rng: np.random.Generator) -> Plain:
    """Plain calls on nodes around the field and some others, to compare shortcuts with.

    On the whole graph if the model's structure is unknown: it may read any node.
    """
    structure = profile_for(query.model, query.graph).structure
    if structure is None or not structure.known:
        return Plain(query, field)
    return Plain(query, field, reference=wider_reference(query.graph, field, rng))


@dataclass(frozen=True, eq=False)
class ReferenceGraph:
    """The part of the graph on which perturbed graphs are evaluated without shortcuts."""

    x: Tensor
    edge_index: Tensor
    edges: NDArray[np.int64]
    """Position of each edge in the user's edge_index."""
    position: NDArray[np.int64]
    """Positions of the field's nodes (without the boundary) in this graph."""
    nodes: Ids | None = None
    """Node ids in the user's graph; None: all of them."""

    def attributes(self, graph: Graph, edges: Tensor, rows: Ids | None = None) -> dict[str, Any]:
        """Further attributes of (some rows of) its nodes, and of some edges."""
        if not graph.attributes:
            return {}
        nodes = np.arange(graph.num_nodes) if self.nodes is None else self.nodes
        rows = np.arange(len(nodes)) if rows is None else rows
        return graph.attributes_at(as_tensor(nodes[rows], graph.x.device), edges)


def full_reference(graph: Graph, field: Field) -> ReferenceGraph:
    """The whole graph."""
    return ReferenceGraph(
        graph.x, graph.edge_index, np.arange(graph.num_edges), field.ids[: field.size]
    )


def wider_reference(
    graph: Graph, field: Field, rng: np.random.Generator, most: int = 64
) -> ReferenceGraph:
    """The field, nodes just outside it and random others, none of which may have influence."""
    strangers = rng.integers(0, graph.num_nodes, most // 2)
    ring = field.ids[field.size :]
    if len(ring) > most // 2:
        ring = rng.choice(ring, most // 2, replace=False)
    inside_ids = np.sort(field.ids[: field.size])
    new = setdiff_sorted(np.concatenate([ring, strangers]), inside_ids)
    # Out-edges of the field detect models that pass messages against the edges.
    sent = _sample_out_edges(graph, field, rng, most)
    ends = graph.edge_index.cpu().numpy()
    covered = np.sort(np.concatenate([inside_ids, new]))
    sent = sent[~_is_member(ends[1][sent], covered)]
    # The field's edges have local ids already; only the others are looked up.
    # A hub would add its whole neighbourhood: a sample of its edges is enough.
    edges = np.concatenate([_some_edges(graph.index, new, 16), sent])
    source, target = ends[0][edges], ends[1][edges]
    order = field.ids.argsort()
    ordered = field.ids[order]
    others = setdiff_sorted(np.concatenate([new, source, target]), ordered)

    def local(nodes: Ids) -> Ids:
        inside = order.take(ordered.searchsorted(nodes), mode="clip")
        outside = len(field.ids) + others.searchsorted(nodes)
        return np.where(_is_member(nodes, ordered), inside, outside)

    ends_local = np.stack(
        [
            np.concatenate([field.source, local(source)]),
            np.concatenate([field.target, local(target)]),
        ]
    )
    device = graph.x.device
    return ReferenceGraph(
        graph.x.index_select(0, as_tensor(np.concatenate([field.ids, others]), device)),
        as_tensor(ends_local, device),
        np.concatenate([field.edges, edges]),
        np.arange(field.size),
        np.concatenate([field.ids, others]),
    )


def _is_member(nodes: Ids, ordered: Ids) -> NDArray[np.bool_]:
    """Mask of `nodes` that are in the sorted, non-empty `ordered`; faster than `np.isin`."""
    return ordered.take(ordered.searchsorted(nodes), mode="clip") == nodes


def _sample_out_edges(
    graph: Graph, field: Field, rng: np.random.Generator, most: int, per_node: int = 8
) -> Ids:
    """At most `per_node` out-edges of the centres and of `most` other nodes of the field."""
    centres, others = np.split(field.ids[: field.size], [field.centres])
    if len(others) > most:
        others = rng.choice(others, most, replace=False)
    nodes = np.concatenate([centres, others])
    return _some_edges(out_edges(graph), nodes, per_node)


def _some_edges(index: Index, nodes: Ids, per_node: int) -> Ids:
    """The first `per_node` edges of every node."""
    first = index.start[nodes]
    count = np.minimum(index.start[nodes + 1] - first, per_node)
    steps = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return index.order[np.repeat(first, count) + steps].astype(np.int64)


def undirected_reference(graph: Graph, field: Field, wider: Field) -> ReferenceGraph:
    """All edges with an end in `wider`, a larger field around `field`."""
    inside = wider.ids[: wider.size]
    touching = np.concatenate([graph.index.edges_into(inside), out_edges(graph).edges_into(inside)])
    edges = setdiff_sorted(touching, touching[:0])
    return _reference_from_edges(graph, field, edges, inside)


def _reference_from_edges(
    graph: Graph, field: Field, edges: NDArray[np.int64], inside: Ids
) -> ReferenceGraph:
    sources = graph.edge_index[0].cpu().numpy()[edges]
    targets = graph.edge_index[1].cpu().numpy()[edges]
    nodes = np.concatenate([inside, sources, targets])
    ids = setdiff_sorted(nodes, nodes[:0])
    local = np.stack([np.searchsorted(ids, sources), np.searchsorted(ids, targets)])
    device = graph.x.device
    return ReferenceGraph(
        graph.x.index_select(0, as_tensor(ids, device)),
        as_tensor(local, device),
        edges,
        np.searchsorted(ids, field.ids[: field.size]),
        ids,
    )
