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
from graphsvx.core.field import UNREACHABLE, Field, HopCounts, Perturbations, unreachable_unless
from graphsvx.core.graph import Graph
from graphsvx.core.types import FLAT
from graphsvx.engine.calls import Call, Trimming
from graphsvx.engine.evaluator import Evaluator, ReferenceGraph
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.lazy import SharedRows, plain
from graphsvx.errors import ModelError
from graphsvx.utils.context import give_up, optional


@dataclass(frozen=True)
class Shortcuts:
    """Which shortcuts a batched evaluation takes."""

    reach: int | None
    """Hops within which nodes of a perturbed graph have influence; None: unlimited."""
    rounds: int | None = None
    """Message-passing rounds, each trimmed to the nodes that still matter; None: no trimming."""
    shared_rows: bool = True
    """Store equal feature rows once, and use the fast layer kernels."""
    degrees_only: bool = False
    """Where all layers have kernels: edges that only add to a degree are replaced by the degree,
    and outputs can be differentiated by how active nodes are."""
    cut_tables: bool = False
    """Cut parameters with a row for each node of a type to the nodes of the batch."""


# Nodes and edges of a batch on a CPU; larger ones are not faster.
_BATCH_ITEMS = 1 << 18


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
        on_field = self if field is self.field else replace(self, field=field)
        if not self.shortcuts.shared_rows:
            perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
        with optional("edges that count for degrees only were evaluated too", ModelError):
            if on_field._counts_degrees_only(perturbations):
                rounds = self.shortcuts.rounds or 0
                inner = unreachable_unless(hops, hops <= rounds)
                return on_field._in_batches(
                    on_field._parts(perturbations, inner, rounds, degrees_in=hops)
                )
        return on_field._in_batches(on_field._parts(perturbations, hops, self.shortcuts.reach))

    def _in_batches(self, graphs: _Parts) -> Tensor:
        if graphs.levels.size + graphs.hops.size <= self._limit():
            return self._batch(graphs)
        items = (graphs.levels < UNREACHABLE).sum(1) + (graphs.hops < UNREACHABLE).sum(1)
        return torch.cat([self._batch(graphs.take(part)) for part in self._chunks(items)])

    def slopes(
        self,
        field: Field,
        perturbations: Perturbations,
        hops: HopCounts,
        score: Callable[[Tensor], Tensor],
    ) -> Tensor | None:
        """Derivatives of scores by how active nodes are as senders, [graphs, nodes, scores].

        For `score` of raw outputs. None: senders are not all that graphs differ in, or the model
        cannot be differentiated.
        """
        on_field, graph, rounds = (
            replace(self, field=field),
            self.graph,
            self.shortcuts.rounds,
        )
        takes_more = graph.edge_weight is not None or graph.edge_attr is not None
        changes = perturbations.changes_edges or perturbations.feature_row is not None
        if not (self.shortcuts.degrees_only and rounds and self.layers.all_fast):
            return None
        if takes_more or graph.attributes or changes or field.has_loops:
            return None
        degrees_only = on_field._counts_degrees_only(perturbations)
        if self.shortcuts.reach != rounds + degrees_only:
            return None
        # Inactive nodes are there as well, as senders of nothing.
        all_hops = np.broadcast_to(field.hops.astype(hops.dtype), hops.shape)
        inner = unreachable_unless(all_hops, all_hops <= rounds)
        active_hops = unreachable_unless(np.zeros_like(hops), perturbations.active)
        graphs = on_field._parts(
            perturbations, inner, rounds, degrees_in=active_hops if degrees_only else None
        )
        active = as_tensor(perturbations.active.T, graph.x.device).float().requires_grad_(True)
        try:
            return on_field._differentiated(score, active, graphs)
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

    def _counts_degrees_only(self, perturbations: Perturbations) -> bool:
        """Whether nodes beyond the last round contribute only to the degrees of GCN layers."""
        shortcuts, takes = self.shortcuts, self.query.model.takes
        if not shortcuts.degrees_only or shortcuts.reach != (shortcuts.rounds or 0) + 1:
            return False
        if self.field.has_loops or perturbations.changes_edges or "edge_weight" in takes:
            return False
        return self.layers.degrees_suffice

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
        reach: int | None,
        degrees_in: HopCounts | None = None,
    ) -> _Parts:
        """The nodes with these hops, and the edges into nodes fewer hops away than `reach`.

        `degrees_in`: hops in graphs of which the nodes have the degrees.
        """
        field, edges = self.field, self.field.by_target
        degrees = None if degrees_in is None else self._degrees(degrees_in)
        if reach is not None and perturbations.added_edges is None:
            # Hop counts in a perturbed graph are at least those in the full graph.
            edges = edges[field.hops[field.target[edges]] < reach]
        if not self.local:
            levels = perturbations.active_edges(field)[:, edges].view(np.uint8) - np.uint8(1)
            return _Parts(perturbations, hops, levels, edges, degrees)
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
        return _Parts(perturbations, hops, levels, edges, degrees)

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

    def _limit(self) -> int:
        """Largest number of nodes and edges of a batch."""
        graph = self.graph
        copied = 0 if self.shortcuts.shared_rows else graph.num_features
        width = max(self.layers.widest, copied, 16)  # of the widest layer
        return batch_items(graph.x.device, self.query.memory, width)

    def _batch(self, graphs: _Parts, active: Tensor | None = None) -> Tensor:
        """Raw outputs of perturbed graphs that are evaluated in one call.

        `active` [nodes, graphs], 0 or 1: which nodes are active, where outputs are differentiated.
        """
        field, shortcuts, count = self.field, self.shortcuts, len(graphs.perturbations)
        place = (BatchRows.by_hops if self.local else BatchRows.by_graph)(graphs.hops)
        edge, ends, boundary = self._ends(place, graphs)
        node = np.concatenate([place.node, field.size + np.arange(boundary)])
        call = Call(
            self.graph,
            field.ids[node],
            ends,
            field.edges[edge],
            self.query,
            place.graph,
            count,
        )
        x = self._features(graphs.perturbations, place, call, node)
        trimming = None
        if shortcuts.shared_rows:
            degree, activity = self._activity(place, graphs.degrees, active)
            within = place.within(shortcuts.rounds)
            trimming = Trimming(self.layers, within, True, field.has_loops, degree, activity)
        # Centres have hop count 0, so they come first, graph by graph.
        centres = np.arange(count * field.centres).reshape(count, field.centres)
        return call.outputs(x, centres, trimming, shortcuts.cut_tables)

    def _activity(
        self, place: BatchRows, degrees: NDArray[np.float32] | None, active: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Degree of each node of the batch, and how active it is, as functions of `active`."""
        field, device, degree = self.field, self.graph.x.device, None
        if degrees is not None:
            degree = as_tensor(degrees[place.node, place.graph], device)
        if active is None:
            return degree, None
        inner = field.inner_edges
        node, graph, source, target = as_tensors(
            device, place.node, place.graph, field.source[inner], field.target[inner]
        )
        if degree is not None:
            change = (active - active.detach()).index_select(0, source)
            by_node = torch.zeros_like(active).index_add(0, target, change)
            degree = degree + by_node[node, graph]
        return degree, active[node, graph]

    def _features(
        self, perturbations: Perturbations, place: BatchRows, call: Call, node: Ids
    ) -> dict[str, Tensor]:
        """Features of each node type: rows of a table of those that are there."""
        graph, field, table = self.graph, self.field, perturbations.feature_table
        device, changed = graph.x.device, perturbations.feature_row
        rows = node
        if changed is not None:
            rows = np.concatenate([changed.reshape(-1)[place.nodes], node[place.count :]])
        if not graph.has_types:
            if len(node) > place.count:  # the boundary, whose features layers with degrees may read
                beyond = len(node) - place.count
                rows = np.concatenate([rows[: place.count], len(table) + np.arange(beyond)])
                index, ids = as_tensors(device, rows, field.ids[field.size :])
                table = torch.cat([plain(table), graph.x.index_select(0, ids)])
                return {FLAT: self._rows_of(table, index)}
            return {FLAT: self._rows_of(table, as_tensor(rows, device))}
        features, table, types = {}, plain(table), graph.types
        kinds = types.kinds(field.ids)
        for name in types.features:
            mine, block = call.nodes[name], types.blocks[name]
            of_type = kinds == types.type_id(name)
            base = types.rows(name, field.ids[of_type])
            positions = (np.cumsum(of_type) - 1)[node[mine]]
            if changed is not None and block.stop > block.start:
                # Rows of the table after the field's own are those that replace them.
                at = np.flatnonzero((rows[mine] >= field.size) & (mine < place.count))
                new_rows, inverse = np.unique(rows[mine][at], return_inverse=True)
                positions[at] = len(base) + inverse.reshape(-1)
                base = torch.cat([base, table[as_tensor(new_rows, device), block].to(base)])
            features[name] = self._rows_of(base, as_tensor(positions, device))
        return features

    def _rows_of(self, table: Tensor, index: Tensor) -> Tensor:
        """Rows of a table: equal ones stored once if that is among the shortcuts."""
        by_type = self.graph.has_types
        lazily = not by_type or (table.is_floating_point() and table.dim() == 2)
        shared = self.shortcuts.shared_rows and lazily
        return SharedRows(table, index) if shared else table.index_select(0, index)

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


def batch_items(device: torch.device, memory: int, width: int) -> int:
    """Largest number of nodes and edges of a batch whose widest layer has `width` numbers for each.

    Other devices than a CPU need large batches: as many as fit into `memory`, or
    into half of the memory that is free there if that is less.
    """
    if device.type == "cpu":
        return max(1, min(_BATCH_ITEMS, memory // (16 * width)))
    free = getattr(torch.get_device_module(device), "mem_get_info", None)
    usable = memory if free is None else min(memory, free(device)[0] // 2)
    return max(1, usable // (16 * width))


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
        reference, count, size = self.reference, len(perturbations), len(self.reference.x)
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
        call = Call(
            self.query.graph,
            reference.nodes[place.node],
            row_of[copy, reference.ends[:, edge]],
            reference.edges[edge],
            self.query,
            place.graph,
            count,
        )
        table = torch.cat([reference.x, perturbations.feature_table])
        x = SharedRows(table, as_tensor(rows.reshape(-1)[place.nodes], table.device))
        layers = ModelLayers.of(self.query.model.submodules)
        trimming = Trimming(layers, place.within(self.depth), kernels=False)
        return call.outputs({FLAT: x}, row_of[:, reference.position[: field.centres]], trimming)


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
