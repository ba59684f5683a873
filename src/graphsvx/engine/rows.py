"""Batches of perturbed receptive fields, as one disconnected graph that shares equal rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor, as_tensors, no_ids
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.perturbation import UNREACHABLE, HopCounts, Perturbations, unreachable_unless
from graphsvx.engine.calls import RowsByType, call_by_type
from graphsvx.engine.evaluator import Evaluator, ReferenceGraph
from graphsvx.engine.kernels import BatchEdges, FieldEdges, FirstRound, ModelLayers
from graphsvx.engine.lazy import PatchedRows, SharedRows, plain
from graphsvx.engine.trim import trimmed
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import give_up, optional


@dataclass(frozen=True)
class Shortcuts:
    """Which shortcuts a batched evaluation takes."""

    reach: int | None
    """Hops within which nodes of a perturbed graph have influence; None: unlimited."""
    rounds: int | None = None
    """Message-passing rounds, each trimmed to the nodes that still matter; None: no trimming."""
    shared_rows: bool = True
    """Store equal feature rows once, and use the fast layer kernels."""
    products: bool = False
    """Where all layers have kernels: edges that only add to a degree are replaced by the degree,
    and where all graphs have the same features, the first round is computed by products of matrices
    (`kernels.first_round`)."""
    cut_tables: bool = False
    """Cut parameters with a row for each node of a type to the nodes of the batch."""


# Larger batches are not faster: they do not fit into the caches of a CPU core.
_CACHE_ITEMS = 1 << 16
# The same, where many small operations, one for each type, take most of the time.
_TYPED_ITEMS = 1 << 18
_PRODUCT_ITEMS = 1 << 20  # nodes of all graphs whose first round is computed by products
_FEW_GRAPHS = 32  # for fewer, products take as long as for so many


@dataclass(frozen=True, eq=False)
class _Parts:
    """The parts of perturbed graphs that are evaluated."""

    perturbations: Perturbations
    hops: HopCounts
    """[graphs, nodes]; UNREACHABLE: the node is left out."""
    levels: HopCounts
    """Hop count of each edge's target, [graphs, edges]; UNREACHABLE: the edge is left out."""
    edges: Ids
    """Edges of the field with influence in any perturbed graph, sorted by target."""
    degrees: NDArray[np.float32] | None
    """In-degrees, [nodes, graphs], where edges do not show them."""
    first_round: FieldEdges | None
    """Edges of a first round by products of matrices."""

    def take(self, part: slice) -> _Parts:
        """Those of some of the graphs."""
        return replace(
            self,
            perturbations=self.perturbations.take(part),
            hops=self.hops[part],
            levels=self.levels[part],
            degrees=None if self.degrees is None else self.degrees[:, part],
        )


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Rows(Evaluator):
    """Evaluates perturbed graphs in as few model calls as memory allows.

    A batch holds only the nodes of each graph that can influence a centre; of whole graphs all of
    them, because pooling reads them.
    """

    shortcuts: Shortcuts
    layers: ModelLayers
    lazy_from: int = 1 << 12
    """Batches with fewer nodes use dense rows: lazy ones would cost more than they save."""

    @property
    def graph(self) -> Graph:
        """The graph of the query."""
        return self.query.graph

    def evaluate(
        self, field: Field, perturbations: Perturbations, hops: HopCounts | None = None
    ) -> Tensor:
        """Raw outputs at the centres, [graphs, centres, outputs] (one row for a graph).

        `hops` are hop counts in the perturbed graphs, UNREACHABLE for nodes without influence.
        """
        if hops is None:
            hops = self.hop_counts(field, perturbations)
        return (self if field is self.field else replace(self, field=field))._evaluated(
            perturbations, hops
        )

    def _evaluated(self, perturbations: Perturbations, hops: HopCounts) -> Tensor:
        if not self.shortcuts.shared_rows:
            perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
        counts_degrees = self._counts_degrees_only(perturbations)
        degrees = self._degrees(hops) if counts_degrees else None
        rounds = self.shortcuts.rounds or 0
        first_round = self._first_round_edges(perturbations, counts_degrees)
        with optional("the first round was not computed by products of matrices", ModelError):
            if first_round is not None:
                inner = _within_later_rounds(hops, first_round, rounds)
                return self._in_batches(perturbations, inner, degrees, rounds - 1, first_round)
        with optional("edges that count for degrees only were evaluated too", ModelError):
            if counts_degrees:
                within_rounds = unreachable_unless(hops, hops <= rounds)
                return self._in_batches(perturbations, within_rounds, degrees, rounds)
        return self._in_batches(perturbations, hops, None, self.shortcuts.reach)

    def _in_batches(
        self,
        perturbations: Perturbations,
        hops: HopCounts,
        degrees: NDArray[np.float32] | None,
        reach: int | None,
        first_round: FieldEdges | None = None,
    ) -> Tensor:
        graphs = self._parts(perturbations, hops, degrees, reach, first_round)
        items = (graphs.levels < UNREACHABLE).sum(1) + (hops < UNREACHABLE).sum(1)
        if first_round is not None:
            items += self._limit() // self._graphs_at_once(first_round) + 1
        elif graphs.levels.size + hops.size <= self._limit():
            return self._batch(graphs)
        return torch.cat([self._batch(graphs.take(part)) for part in self._chunks(items)])

    def slopes(
        self,
        field: Field,
        perturbations: Perturbations,
        hops: HopCounts,
        score: Callable[[Tensor], Tensor],
    ) -> Tensor | None:
        """Derivatives of scores by how active nodes are as senders, [graphs, nodes, scores].

        For `score` of raw outputs. None: the first round is not computed by products, or the model
        cannot be differentiated.
        """
        return replace(self, field=field, lazy_from=0)._slopes(perturbations, hops, score)

    def _slopes(
        self, perturbations: Perturbations, hops: HopCounts, score: Callable[[Tensor], Tensor]
    ) -> Tensor | None:
        counts_degrees = self._counts_degrees_only(perturbations)
        first_round = self._first_round_edges(perturbations, counts_degrees)
        if first_round is None:
            return None
        # Inactive nodes are there as well, as senders of nothing.
        active_hops = unreachable_unless(np.zeros_like(hops), perturbations.active)
        degrees = self._degrees(active_hops) if counts_degrees else None
        rounds = self.shortcuts.rounds or 0
        all_hops = np.broadcast_to(self.field.hops.astype(hops.dtype), hops.shape)
        inner = _within_later_rounds(all_hops, first_round, rounds)
        graphs = self._parts(perturbations, inner, degrees, rounds - 1, first_round)
        active = as_tensor(perturbations.active.T, self.graph.x.device).float()
        active.requires_grad_(True)
        try:
            return self._differentiated(score, active, graphs)
        except (ModelError, RuntimeError) as error:
            give_up("derivatives of the model were not used", error)
            return None

    def _differentiated(
        self, score: Callable[[Tensor], Tensor], active: Tensor, graphs: _Parts
    ) -> Tensor:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of code that was not written to be differentiated
            scores = score(self._batch(graphs, active))
            slopes = [
                torch.autograd.grad(scores[:, i].sum(), active, retain_graph=True)[0].t()
                for i in range(scores.shape[1])
            ]
            return torch.stack(slopes, 2)

    def _first_round_edges(
        self, perturbations: Perturbations, counts_degrees: bool
    ) -> FieldEdges | None:
        """Edges of a first round by products of matrices.

        None: what edges send in it is not the same in all perturbed graphs, or it is not worth it.
        """
        shortcuts, graph = self.shortcuts, self.graph
        if not (shortcuts.products and shortcuts.rounds and self.layers.all_fast):
            return None
        if self.lazy_from and len(perturbations) < _FEW_GRAPHS:
            return None
        if shortcuts.reach != shortcuts.rounds + counts_degrees or self.field.has_loops:
            return None
        if graph.edge_weight is not None or graph.edge_attr is not None or graph.attributes:
            return None
        if perturbations.changes_edges or perturbations.feature_row is not None:
            return None
        edges = FieldEdges.of(self.field, shortcuts.rounds, graph.x.device)
        fits = len(edges.sources) * self.layers.widest * 16 <= self.query.memory
        return edges if fits else None

    def _graphs_at_once(self, first_round: FieldEdges) -> int:
        """Graphs whose first round is computed by the same products."""
        items = batch_items(self.graph.x.device, self.query.memory, 4, _PRODUCT_ITEMS)
        received = first_round.count * max(1, self.layers.widest)
        return max(1, min(items // self.field.size, 4 * items // received))

    def _counts_degrees_only(self, perturbations: Perturbations) -> bool:
        """Whether nodes beyond the last round contribute only to the degrees of GCN layers."""
        shortcuts, model = self.shortcuts, self.query.model
        if not shortcuts.products or shortcuts.reach != (shortcuts.rounds or 0) + 1:
            return False
        return self.layers.need_degrees_only(model, self.field, perturbations)

    def _degrees(self, hops: HopCounts) -> NDArray[np.float32]:
        """In-degrees in each perturbed graph, [nodes, graphs], boundary edges included."""
        field = self.field
        inner = field.inner_edges
        beyond = field.source >= field.size
        from_rim = np.bincount(field.target[beyond], minlength=field.size).astype(np.float32)
        live = (np.ascontiguousarray(hops.T) < UNREACHABLE).astype(np.float32)
        ends, ones = (field.target[inner], field.source[inner]), np.ones(len(inner), np.float32)
        degrees = sparse.csr_matrix((ones, ends), (field.size, field.size)) @ live
        return np.asarray(degrees + from_rim[:, None])

    def _parts(
        self,
        perturbations: Perturbations,
        hops: HopCounts,
        degrees: NDArray[np.float32] | None,
        reach: int | None,
        first_round: FieldEdges | None,
    ) -> _Parts:
        """The nodes with these hops, and the edges into nodes fewer hops away than `reach`."""
        field, edges = self.field, self.field.by_target
        if reach is not None and perturbations.added_edges is None:
            # Hop counts in a perturbed graph are at least those in the full graph.
            edges = edges[field.hops[field.target[edges]] < reach]
        if not self.local:
            levels = perturbations.active_edges(field)[:, edges].view(np.uint8) - np.uint8(1)
            return _Parts(perturbations, hops, levels, edges, degrees, first_round)
        # Gathering rows is several times faster than columns. The boundary is always active.
        across = np.ascontiguousarray(hops.T)
        live = np.ones((len(field.ids), len(hops)), dtype=bool)
        np.less(across, UNREACHABLE, out=live[: len(across)])
        matters = live[field.source[edges]]
        by_edge = across[field.target[edges]]
        matters &= by_edge < (UNREACHABLE if reach is None else reach)
        levels = np.ascontiguousarray(unreachable_unless(by_edge, matters).T)
        if perturbations.changes_edges:
            levels = unreachable_unless(levels, perturbations.active_edges(field)[:, edges])
        return _Parts(perturbations, hops, levels, edges, degrees, first_round)

    def _chunks(self, items: Ids) -> list[slice]:
        """Slices of the batch whose nodes and edges stay below the limit."""
        limit = self._limit()
        run = np.cumsum(items)
        parts, first, spent = [], 0, 0
        while first < len(items):
            last = max(first + 1, int(np.searchsorted(run, spent + limit, side="right")))
            parts.append(slice(first, last))
            first, spent = last, int(run[last - 1])
        return parts

    def _is_lazy(self, table: Tensor, rows: int) -> bool:
        """Whether feature rows are shared, not copied."""
        if not self.shortcuts.shared_rows or isinstance(table, PatchedRows):
            return self.shortcuts.shared_rows
        return rows > (max(self._eager_limit(16), table.shape[0]) if self.lazy_from else 0)

    def _eager_limit(self, features: int) -> int:
        """Number of rows up to which dense rows are faster; fewer for wide feature vectors."""
        return self.lazy_from * features // max(features, self.graph.num_features)

    def _limit(self) -> int:
        """Largest number of nodes and edges of a batch."""
        graph = self.graph
        copied = 0 if self.shortcuts.shared_rows else graph.num_features
        width = max(self.layers.widest, copied, 16)  # of the widest layer
        on_cpu = _TYPED_ITEMS if graph.has_types else _CACHE_ITEMS
        return batch_items(graph.x.device, self.query.memory, width, on_cpu)

    def _batch(self, graphs: _Parts, active: Tensor | None = None) -> Tensor:
        """Raw outputs of perturbed graphs that are evaluated in one call."""
        perturbations, degrees, first_round = (
            graphs.perturbations,
            graphs.degrees,
            graphs.first_round,
        )
        field, shortcuts, count = self.field, self.shortcuts, len(perturbations)
        graph, device = self.graph, self.graph.x.device
        place = (BatchRows.by_hops if self.local else BatchRows.by_graph)(graphs.hops)
        edge, ends, boundary = self._ends(place, graphs)
        if graph.has_types:
            return self._call_by_type(perturbations, place, edge, ends, boundary)
        table, rows = self._feature_rows(perturbations, place, boundary)
        unread = graph.edge_weight is None and graph.edge_attr is None and not graph.attributes
        index, edge_index, positions, graph_of = as_tensors(
            device,
            rows,
            ends,
            no_ids() if unread else field.edges[edge],
            no_ids() if first_round is None else place.graph,
        )
        lazily = first_round is not None or self._is_lazy(table, len(rows))
        x = SharedRows(table, index) if lazily else table.index_select(0, index)
        batch, pairs = self._batch_and_pairs(count)
        trims = first_round is not None or len(rows) > self._eager_limit(1)
        weights, attributes = graph.edge_rows(positions)
        batch_edges = None
        if shortcuts.shared_rows:
            starts = np.zeros(len(rows) + 1, dtype=np.int64)
            np.cumsum(np.bincount(ends[1], minlength=len(rows)), out=starts[1:])
            batch_edges = BatchEdges(edge_index, weights, ends[0], ends[1], starts, field.has_loops)
            if degrees is not None and first_round is None:  # which has degrees of its own
                batch_edges.degree = as_tensor(degrees[place.node, place.graph], device)
            if first_round is not None:
                begin = FirstRound.of(first_round, perturbations.active.T, degrees, index, graph_of)
                if active is not None:
                    inner_ends = np.stack([field.source, field.target])[:, field.inner_edges]
                    begin = begin.as_function_of(active, *as_tensor(inner_ends, device))
                batch_edges.begin_with(begin)
        within = place.within(shortcuts.rounds if trims else None)
        further = None
        if graph.attributes:
            ids = as_tensor(self._ids(place, boundary), device)
            further = graph.attributes_at(ids, positions, 1 if self.local else count)
        with trimmed(self.query.model.submodules, self.layers, within, batch_edges):
            out = self.query.model(x, edge_index, weights, attributes, batch, pairs, further)
        if not self.local or pairs is not None:
            return plain(out)[:, None, :]
        # Centres have hop count 0, so they come first, graph by graph.
        return plain(out[: count * field.centres]).reshape(count, field.centres, -1)

    def _call_by_type(
        self, perturbations: Perturbations, place: BatchRows, edge: Ids, ends: Ids, boundary: int
    ) -> Tensor:
        """Raw outputs of a batch of a model that takes nodes and edges by type."""
        field, shortcuts, count = self.field, self.shortcuts, len(perturbations)
        beyond = field.size + np.arange(boundary)
        rows = RowsByType(
            self.graph,
            self._ids(place, boundary),
            ends,
            field.edges[edge],
            plain(perturbations.feature_table),
            np.concatenate([perturbations.feature_rows().reshape(-1)[place.nodes], 0 * beyond]),
            field.size,
            np.concatenate([place.node, beyond]),
            place.graph,
            count,
        )
        centres = np.arange(count * field.centres).reshape(count, field.centres)
        return call_by_type(self.query, rows, centres, shortcuts.shared_rows, shortcuts.cut_tables)

    def _ids(self, place: BatchRows, boundary: int) -> Ids:
        """Nodes of a batch in the user's graph, those of the boundary at the end."""
        ids = self.field.ids
        return np.concatenate([ids[place.node], ids[self.field.size :][:boundary]])

    def _ends(self, place: BatchRows, graphs: _Parts) -> tuple[Ids, Ids, int]:
        """Edges of the batch (positions in the field), their ends [2, edges], size of the boundary.

        Ends are rows of the batch: the nodes of all graphs, then one shared copy of the boundary.
        """
        field, edges = self.field, graphs.edges
        # Sorted by hops, graph and node like the batch's nodes, so edges are sorted by target.
        flat, _ = sort_by_level(graphs.levels)
        graph_of = flat // max(1, len(edges))
        edge = edges[flat - graph_of * len(edges)]
        first = graph_of * place.columns
        ends = np.empty((2, len(edge)), dtype=np.int64)
        source = field.source[edge]
        ends[1] = place.row_of[first + field.target[edge]]
        beyond = source >= field.size
        if not beyond.any():
            ends[0] = place.row_of[first + source]
            return edge, ends, 0
        inside = place.row_of[np.where(beyond, 0, first + source)]
        ends[0] = np.where(beyond, source + (place.count - field.size), inside)
        return edge, ends, field.boundary

    def _feature_rows(
        self, perturbations: Perturbations, place: BatchRows, boundary: int
    ) -> tuple[Tensor, Ids]:
        """A table of features, and the row of it that each node of the batch has."""
        field, table, device = self.field, perturbations.feature_table, self.graph.x.device
        rows = np.empty(place.count + boundary, dtype=np.int64)
        changed = perturbations.feature_row
        rows[: place.count] = place.node if changed is None else changed.reshape(-1)[place.nodes]
        if boundary:  # needed only by layers that read the degrees of the outermost nodes
            rows[place.count :] = table.shape[0] + np.arange(boundary)
            beyond_it = as_tensor(field.ids[field.size :], device)
            table = torch.cat([plain(table), self.graph.x.index_select(0, beyond_it)])
        return table, rows

    def _batch_and_pairs(self, count: int) -> tuple[Tensor | None, Tensor | None]:
        """The graph of each row, for models of graphs; the pair of each graph, for models of pairs.

        The two ends are the centres of a graph, which come first.
        """
        device, batch, pairs = self.graph.x.device, None, None
        if not self.local:
            batch = torch.arange(count, device=device).repeat_interleave(self.field.size)
        if self.query.model.scores_pairs:
            pairs = torch.arange(2 * count, device=device).reshape(count, 2).t()
        return batch, pairs


def batch_items(device: torch.device, memory: int, width: int, on_cpu: int) -> int:
    """Largest number of nodes and edges of a batch whose widest layer has `width` numbers for each.

    At most `on_cpu` on a CPU. Other devices need large batches: as many as fit into `memory`, or
    into half of the memory that is free there if that is less.
    """
    if device.type == "cpu":
        return max(1, min(on_cpu, memory // (16 * width)))
    free = getattr(torch.get_device_module(device), "mem_get_info", None)
    usable = memory if free is None else min(memory, free(device)[0] // 2)
    return max(1, usable // (16 * width))


def _within_later_rounds(hops: HopCounts, first_round: FieldEdges, rounds: int) -> HopCounts:
    """Hop counts of the nodes that the rounds after the first read."""
    inner = hops[:, : first_round.count]
    return unreachable_unless(inner, inner < rounds)


# Copies of a part of the graph.


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Copies(Evaluator):
    """The outputs of `Plain`, from batches of copies of its reference graph.

    For layers that may pass messages either way. With a `depth`, each round computes only nodes
    that the later ones can carry to a centre; None: all nodes.
    """

    reference: ReferenceGraph

    def evaluate(
        self,
        field: Field,
        perturbations: Perturbations,
        hops: HopCounts | None = None,  # noqa: ARG002  (all matter)
    ) -> Tensor:
        """Raw outputs [graphs, centres, outputs], in as few calls as memory allows."""
        reference = self.reference
        items = len(reference.x) + len(reference.edges)
        # Rows of features are shared: at worst one tensor of them is made, of what follows several.
        step = max(
            1, self.query.memory // (max(4 * self.query.graph.num_features, 16 * 16) * items)
        )
        perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
        return torch.cat(
            [
                self._batch(field, perturbations.take(slice(first, first + step)))
                for first in range(0, len(perturbations), step)
            ]
        )

    def _batch(self, field: Field, perturbations: Perturbations) -> Tensor:
        model, graph, reference = self.query.model, self.query.graph, self.reference
        device, count, size = graph.x.device, len(perturbations), len(reference.x)
        copy, edge = np.nonzero(reference.active_edges(field, perturbations))
        rows = np.tile(np.arange(size), (count, 1))
        if perturbations.feature_row is not None:
            rows[:, reference.position] = size + perturbations.feature_row
        hops = np.zeros(size, dtype=np.uint8)
        if self.depth is not None:
            hops[:] = self.depth + 1
            hops[reference.position] = field.hops
        place = BatchRows.by_hops(np.broadcast_to(hops, (count, size)))
        row_of = place.row_of.reshape(count, size)
        index = as_tensor(rows.reshape(-1)[place.nodes], device)
        edge_ids = as_tensor(reference.edges[edge], device)
        centres = as_tensor(row_of[:, reference.position[: field.centres]].reshape(-1), device)
        layers = ModelLayers.of(model.submodules)
        with trimmed(model.submodules, layers, place.within(self.depth), None):
            out = model(
                SharedRows(torch.cat([reference.x, perturbations.feature_table]), index),
                as_tensor(row_of[copy, reference.ends[:, edge]], device),
                *graph.edge_rows(edge_ids),
                None,
                centres.reshape(count, -1).t() if model.scores_pairs else None,
                reference.attributes(graph, edge_ids, place.node),
            )
        if model.scores_pairs:
            return plain(out)[:, None, :]
        return plain(out).index_select(0, centres).reshape(count, field.centres, -1)


# The order in which the nodes of many perturbed graphs stand in one batch.


@dataclass(frozen=True, eq=False)
class BatchRows:
    """Order of the perturbed graphs' nodes in a batch."""

    nodes: Ids
    """Nodes of the batch, as positions in the flattened [graphs, columns]."""
    columns: int
    """The first nodes of the field, among which those of the batch are."""
    row_of: Ids
    """Inverse of `nodes`; undefined for nodes that are not in the batch."""
    per_hop: list[int] | None
    """Number of nodes at 0, 1, ... hops; None if nodes are not sorted by hops."""

    @property
    def count(self) -> int:
        """Number of nodes in the batch."""
        return len(self.nodes)

    @cached_property
    def graph(self) -> Ids:
        """The graph of each node of the batch."""
        return self.nodes // max(1, self.columns)

    @cached_property
    def node(self) -> Ids:
        """Each node of the batch, by its local id in the field."""
        return self.nodes - self.graph * self.columns

    @staticmethod
    def by_graph(hops: HopCounts) -> BatchRows:
        """All nodes, graph by graph."""
        rows = np.arange(hops.size)
        return BatchRows(rows, hops.shape[1], rows, None)

    @staticmethod
    def by_hops(hops: HopCounts) -> BatchRows:
        """Nodes with influence: by hop count, then graph by graph."""
        nodes, at = sort_by_level(hops)
        of = np.empty(hops.size, dtype=np.int64)
        of[nodes] = np.arange(len(nodes))
        return BatchRows(nodes, hops.shape[1], of, at)

    def within(self, rounds: int | None) -> list[int] | None:
        """Number of nodes within 0, 1, ... `rounds` hops."""
        if rounds is None or self.per_hop is None:
            return None
        return [sum(self.per_hop[: hop + 1]) for hop in range(rounds + 1)]


def sort_by_level(levels: HopCounts) -> tuple[Ids, list[int]]:
    """Stable argsort of small integers below UNREACHABLE, and the count of each value.

    Several times faster than sorting, because there are few distinct values.
    """
    flat = levels.reshape(-1)
    positions: list[Ids] = []
    left = np.count_nonzero(flat < UNREACHABLE)
    while left:
        positions.append(np.flatnonzero(flat == len(positions)))
        left -= len(positions[-1])
    return np.concatenate([no_ids(), *positions]), [*map(len, positions)]
