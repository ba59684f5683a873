"""Calls of a typed model: on the whole graph, or on batches of perturbed receptive fields."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Bools, Ids, as_tensor, no_ids
from graphsvx.core.callers import Inputs, edges_by_type, sorted_by_kind
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.model import rows_of
from graphsvx.core.perturbation import UNREACHABLE, HopCounts, Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.by_type_rounds import Levels, trimmed_rounds
from graphsvx.engine.evaluator import Evaluator, Plain
from graphsvx.engine.lazy import SharedRows, plain
from graphsvx.engine.rounding import nudged
from graphsvx.engine.rows import batch_items
from graphsvx.errors import ModelError

# Nodes and edges of a batch: larger ones do not fit into the caches of a CPU core.
_BATCH_ITEMS = 1 << 18
# Rounds that compute few nodes only sum rows up; features are projected once a batch.
_TRIMMED_BATCH_ITEMS = 1 << 20


@dataclass(frozen=True)
class Batching:
    """Shortcuts of a batch of copies of the receptive field."""

    shared_rows: bool
    """Store equal feature rows once."""
    rows_of_tables: bool
    """Cut parameters with a row for each node of a type to the nodes of the batch."""
    depth: int | None = None
    """Rounds of the model: edges into nodes as many hops away are left out; None: no edges are."""
    trim: Literal["nothing", "inputs", "outputs"] = "nothing"
    """What each round of HeteroConv or HGTConv gets (HeteroConv also computes) of the nodes: all,
    or those that still matter."""


_NO_SHORTCUT = Batching(False, False)


def evaluate_plainly(query: Query, field: Field, perturbations: Perturbations) -> Tensor:
    """Raw outputs at the centres by one call a perturbed graph on the whole graph."""
    perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
    outputs = [
        _evaluate_whole(query, field, perturbations.take(slice(k, k + 1)))
        for k in range(len(perturbations))
    ]
    return torch.cat(outputs)


def _evaluate_whole(query: Query, field: Field, perturbation: Perturbations) -> Tensor:
    graph = query.graph
    ids = field.ids[: field.size]
    on = np.ones(graph.num_nodes, dtype=bool)
    on[ids] = perturbation.active[0]
    ends = graph.edge_index.cpu().numpy()
    keeps = on[ends[0]] & on[ends[1]]
    for change, value in ((perturbation.added_edges, True), (perturbation.removed_edges, False)):
        if change is not None:
            keeps[field.edges[change[0]]] = value
    replaced = np.zeros((2, 0), dtype=np.int64)
    if perturbation.feature_row is not None:
        changed = np.flatnonzero(perturbation.feature_row[0] >= field.size)
        replaced = np.stack([ids[changed], perturbation.feature_row[0][changed]])
    edges = np.flatnonzero(keeps)
    rows = RowsByType(
        graph, np.arange(graph.num_nodes), ends[:, edges], edges, replaced,
        perturbation.feature_table, field.size,
    )  # fmt: skip
    return _call(query, rows, query.centres[None], _NO_SHORTCUT)


def evaluate_with_edges(query: Query, edges: Ids) -> Tensor:
    """Raw outputs at the centres [1, centres, outputs] on the whole graph with these edges only."""
    return _call(query, _whole_rows(query.graph, edges), query.centres[None], _NO_SHORTCUT)


def _whole_rows(graph: Graph, edges: Ids) -> RowsByType:
    ends, unchanged = graph.edge_index.cpu().numpy(), np.zeros((2, 0), dtype=np.int64)
    ids = np.arange(graph.num_nodes)
    return RowsByType(graph, ids, ends[:, edges], edges, unchanged, graph.x[:0], 0)


@dataclass(frozen=True, eq=False)
class PlainByType(Plain):
    """One call a perturbed graph on the whole graph, of a model that takes nodes by type."""

    def evaluate(
        self,
        field: Field,
        perturbations: Perturbations,
        hops: HopCounts | None = None,  # noqa: ARG002  (all matter)
    ) -> Tensor:
        """Raw outputs [graphs, centres, outputs], by one call after the other."""
        return evaluate_plainly(self.query, field, perturbations)

    def nudged(self, field: Field, rng: np.random.Generator) -> Plain:  # noqa: ARG002  (all of it)
        """The same with every feature of the graph changed by its last bit."""
        graph = self.query.graph
        features = {name: nudged(x, rng) for name, x in graph.types.features.items()}
        return replace(self, query=replace(self.query, graph=graph.with_features(features)))

    def plain(self, field: Field, rng: np.random.Generator | None = None) -> Plain:  # noqa: ARG002  (the whole graph)
        """Plain calls over a field on the whole graph."""
        return PlainByType(self.query, field, self.depth)


@dataclass(frozen=True, eq=False, kw_only=True)
class CopiesByType(Evaluator):
    """Evaluates perturbed receptive fields in batches of disjoint copies."""

    batching: Batching

    def describe(self) -> str:
        """How the model is called, in a few words."""
        return "batches of copies of the receptive field, by type"

    def evaluate(
        self, field: Field, perturbations: Perturbations, hops: HopCounts | None = None
    ) -> Tensor:
        """Raw outputs at the centres, [graphs, centres, outputs] (one row for a graph)."""
        if hops is None:
            hops = self.hop_counts(field, perturbations)
        width = 16 + max((self._width(name) for name in self.query.graph.types.features), default=0)
        items = _TRIMMED_BATCH_ITEMS if self.batching.trim == "outputs" else _BATCH_ITEMS
        limit = batch_items(self.query.graph.x.device, self.query.memory, width, items)
        step = max(1, limit // max(1, field.size + self._edges_at_most(field)))
        parts = [
            self._chunk(field, perturbations.take(part), hops[part])
            for first in range(0, len(perturbations), step)
            for part in (slice(first, first + step),)
        ]
        return torch.cat(parts)

    def plain(self, field: Field, rng: np.random.Generator | None = None) -> Plain:  # noqa: ARG002  (the whole graph)
        """Plain calls over a field on the whole graph."""
        return PlainByType(self.query, field, self.depth)

    def _edges_at_most(self, field: Field) -> int:
        """Edges of a copy, those that are left out not counted."""
        if self.batching.depth is None:
            return len(field.edges)
        return int((field.hops[field.target] < self.batching.depth).sum())

    def _width(self, node_type: str) -> int:
        x = self.query.graph.types.features[node_type]
        return 0 if self.batching.shared_rows else x[0].numel() if len(x) else 0

    def _chunk(self, field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:
        count, size = len(perturbations), field.size
        depth = self.batching.depth
        live = hops < UNREACHABLE if depth is None else hops <= depth
        position = np.cumsum(live.reshape(-1)) - 1
        flat = np.flatnonzero(live)
        ends_at = live if depth is None else hops < depth
        edges_on = _influential_edges(field, perturbations, live, ends_at)
        copy, edge = np.nonzero(edges_on)
        source, target = field.source[edge], field.target[edge]
        outside = source >= size
        ends = np.stack([
            np.where(outside, len(flat) + source - size, position[np.minimum(copy * size + source,
                                                                              live.size - 1)]),
            position[copy * size + target],
        ])  # fmt: skip
        node = flat % size
        boundary = field.ids[size:] if depth is None else field.ids[:0]
        ids = np.concatenate([field.ids[node], boundary])
        replaced = np.zeros((2, 0), dtype=np.int64)
        if perturbations.feature_row is not None:
            table_row = perturbations.feature_row.reshape(-1)[flat]
            changed = np.flatnonzero(table_row >= size)
            replaced = np.stack([changed, table_row[changed]])
        rows = RowsByType(
            self.query.graph, ids, ends, field.edges[edge], replaced,
            plain(perturbations.feature_table), size, flat // size, count,
            None if self.batching.trim == "nothing" else hops.reshape(-1)[flat],
            np.concatenate([node, size + np.arange(len(boundary))]),
        )  # fmt: skip
        centres = position.reshape(live.shape)[:, : field.centres]
        return _call(self.query, rows, centres, self.batching)


def _influential_edges(
    field: Field, perturbations: Perturbations, live: Bools, ends_at: Bools
) -> Bools:
    """Edges into the nodes `ends_at` from live ones or the boundary, [graphs, edges]."""
    edges = perturbations.active_edges(field) & ends_at[:, field.target]
    inner = field.inner_edges
    edges[:, inner] &= live[:, field.source[inner]]
    return edges


@dataclass(frozen=True, eq=False)
class RowsByType:
    """Nodes and edges of a call: numbers of nodes in the typed graph, ends as rows."""

    graph: Graph
    ids: Ids
    ends: Ids
    edges: Ids
    """Position of each edge among those of the graph."""
    replaced: Ids
    """[2, nodes]: rows with other features, and where these are in the table."""
    table: Tensor
    """Features of all types side by side (`Graph.blocks`)."""
    first: int
    """Rows of the table before this one are those of the field."""
    copy: Ids | None = None
    """Batches: the copy that each of the first rows is of; the boundary follows."""
    copies: int = 1
    hops: HopCounts | None = None
    """Trimmed batches: hops from each node to a centre."""
    position: Ids = field(default_factory=no_ids)
    """Batches: position of each node in the receptive field."""


def _call(query: Query, rows: RowsByType, centres: Ids, batching: Batching) -> Tensor:
    """Outputs at the centres, [copies, centres, outputs], of one call of the model."""
    graph, model, device = rows.graph, query.model, rows.graph.x.device
    kinds = graph.types.node_type[rows.ids]
    order, starts, within = sorted_by_kind(kinds, len(graph.types.node_types), rows.hops)
    node_rows, x = {}, {}
    for at, name in enumerate(graph.types.node_types):
        mine = order[starts[at] : starts[at + 1]]
        local = rows.ids[mine] - graph.types.node_starts[at]
        node_rows[name] = as_tensor(local, device)
        if name in graph.types.features:
            x[name] = _features(rows, name, at, mine, within, kinds, batching.shared_rows)
    # Nodes of a trimmed batch are in the order of their hops.
    edges = edges_by_type(graph, within[rows.ends], rows.edges, by_target=rows.hops is not None)
    batch = None
    if query.kind == "graph":
        copy = np.zeros(len(rows.ids), dtype=np.int64) if rows.copy is None else rows.copy
        batch = {
            name: as_tensor(copy[order[starts[at] : starts[at + 1]]], device)
            for at, name in enumerate(graph.types.node_types)
        }
    pairs = as_tensor(within[centres].T, device) if model.scores_pairs else None
    inputs = Inputs(x, *edges, node_rows, batch, rows.copies, pairs, query.relation)
    counts = {name: len(ids) for name, ids in node_rows.items()}
    if batching.depth is None or rows.hops is None:
        out = model.run(graph, inputs, batching.rows_of_tables)
    else:
        levels = _levels(rows, kinds, batching.depth)
        with trimmed_rounds(model, levels, batching.depth, batching.trim == "outputs"):
            out = model.run(graph, inputs, batching.rows_of_tables)
        last = 0 if batching.trim == "outputs" else 1
        counts = {name: int(levels[name][last]) for name in node_rows}
    if query.kind == "graph" or model.scores_pairs:
        if isinstance(out, Tensor) and out.dim() == 1 and rows.copies == 1:
            out = out[None]  # the outputs of the one graph or pair
        return plain(rows_of(out, "graph", rows.copies))[:, None]
    columns = []
    for column in centres.T:
        node_type = graph.types.node_types[kinds[column[0]]]
        output = plain(rows_of(out, node_type, counts[node_type]))
        columns.append(output.index_select(0, as_tensor(within[column], output.device)))
    if len({column.shape[1] for column in columns}) > 1:
        raise ModelError(
            "the explained nodes must have outputs of one width, got "
            f"{[column.shape[1] for column in columns]}"
        )
    return torch.stack(columns, 1)


def _features(
    rows: RowsByType, name: str, at: int, mine: Ids, within: Ids, kinds: Ids, shared: bool
) -> Tensor:
    """x of the rows of one node type, which are `mine` among all."""
    graph = rows.graph
    local = rows.ids[mine] - graph.types.node_starts[at]
    x = graph.types.features[name]
    replaced = np.flatnonzero(kinds[rows.replaced[0]] == at)
    block = graph.types.blocks[name]
    has_columns = block.stop > block.start and rows.table.shape[1] > 0
    if rows.copy is None:
        if not len(replaced) or not has_columns:
            return x
        x = x.clone()
        positions = as_tensor(within[rows.replaced[0][replaced]], x.device)
        x[positions] = rows.table[
            as_tensor(rows.replaced[1][replaced], rows.table.device), block
        ].to(x)
        return x
    distinct, index = _distinct(local, rows.position[mine])
    base = x.index_select(0, as_tensor(distinct, x.device))
    if len(replaced) and has_columns:
        table_rows, inverse = np.unique(rows.replaced[1][replaced], return_inverse=True)
        new_rows = rows.table[as_tensor(table_rows, rows.table.device), block].to(x)
        index[within[rows.replaced[0][replaced]]] = len(base) + inverse.reshape(-1)
        base = torch.cat([base, new_rows])
    at_rows = as_tensor(index, x.device)
    if shared and x.is_floating_point() and x.dim() == 2:
        return SharedRows(base, at_rows)
    return base.index_select(0, at_rows)


def _distinct(ids: Ids, position: Ids) -> tuple[Ids, Ids]:
    """Distinct ids and the index of each among them; equal ids have equal small positions."""
    first = np.full(int(position.max(initial=-1)) + 1, -1)
    first[position] = np.arange(len(position))
    present = np.flatnonzero(first >= 0)
    index = np.empty(len(first), dtype=np.int64)
    index[present] = np.arange(len(present))
    return ids[first[present]], index[position]


def _levels(rows: RowsByType, kinds: Ids, rounds: int) -> Levels:
    graph, hops = rows.graph, rows.hops
    if hops is None:
        raise RuntimeError("the rows of a trimmed batch have hops")
    steps = np.arange(rounds + 1)
    levels: Levels = {}
    for at, name in enumerate(graph.types.node_types):
        levels[name] = np.searchsorted(np.sort(hops[kinds == at]), steps, side="right")
    edge_kinds, into = graph.types.edge_type[rows.edges], hops[rows.ends[1]]
    for at, edge_type in enumerate(graph.types.edge_types):
        levels[edge_type] = np.searchsorted(np.sort(into[edge_kinds == at]), steps, side="right")
    return levels
