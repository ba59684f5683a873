"""Batches of disjoint copies of a neighbourhood: right for every model with so many rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv

from graphsvx.core.arrays import Bools, as_tensor
from graphsvx.core.field import Field
from graphsvx.core.model import Model
from graphsvx.core.perturbation import UNREACHABLE, HopCounts, Perturbations
from graphsvx.engine.calls import NO_SHORTCUT, ROUNDS, Batching, RowsByType, call_by_type
from graphsvx.engine.evaluator import Evaluator, ReferenceGraph
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.lazy import SharedRows, plain
from graphsvx.engine.rows import BatchRows, batch_items
from graphsvx.engine.trim import trimmed
from graphsvx.engine.trust import is_known_to_read_degrees

# Nodes and edges of a batch: larger ones do not fit into the caches of a CPU core.
_BATCH_ITEMS = 1 << 18
# Rounds that compute few nodes only sum rows up; features are projected once a batch.
_TRIMMED_BATCH_ITEMS = 1 << 20


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Copies(Evaluator):
    """The outputs of `Plain`, from batches of copies of its reference graph.

    With `rounds` of message passing, each computes only nodes that the later ones can carry to a
    centre; None: all nodes.
    """

    reference: ReferenceGraph
    rounds: int | None = None

    def describe(self) -> str:
        """How the model is called, in a few words."""
        return f"{'whole copies' if self.rounds is None else 'copies'} of the neighbourhood"

    def evaluate(
        self,
        field: Field,
        perturbations: Perturbations,
        hops: HopCounts | None = None,  # noqa: ARG002  (all matter)
    ) -> Tensor:
        """Raw outputs [graphs, centres, outputs], in as few calls as memory allows."""
        reference = self.reference
        items = len(reference.x) + reference.edge_index.shape[1]
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
        model, graph, reference, rounds = (
            self.query.model,
            self.query.graph,
            self.reference,
            self.rounds,
        )
        device, count, size = graph.x.device, len(perturbations), len(reference.x)
        on = np.ones((count, size), dtype=bool)
        on[:, reference.position] = perturbations.active
        ends = reference.edge_index.cpu().numpy()
        keeps = on[:, ends[0]] & on[:, ends[1]]
        if perturbations.added_edges is not None or perturbations.removed_edges is not None:
            order = np.argsort(reference.edges)
            place = order[np.searchsorted(reference.edges, field.edges, sorter=order)]
            if perturbations.added_edges is not None:
                keeps[:, place] |= perturbations.added_edges
            if perturbations.removed_edges is not None:
                keeps[:, place] &= ~perturbations.removed_edges
        copy, edge = np.nonzero(keeps)
        rows = np.tile(np.arange(size), (count, 1))
        rows[:, reference.position] = (
            reference.position
            if perturbations.feature_row is None
            else size + perturbations.feature_row
        )
        hops = np.full(size, 0 if rounds is None else rounds + 1, dtype=np.uint8)
        hops[reference.position] = 0 if rounds is None else field.hops
        batch_rows = BatchRows.by_hops(np.broadcast_to(hops, (count, size)))
        row_of = batch_rows.row_of.reshape(count, size)
        index = as_tensor(rows.reshape(-1)[batch_rows.nodes], device)
        weight, attr = graph.edge_weight, graph.edge_attr
        edge_ids = as_tensor(reference.edges[edge], device)
        centres = as_tensor(row_of[:, reference.position[: field.centres]].reshape(-1), device)
        layers = ModelLayers.of(model.submodules)
        with trimmed(model.submodules, layers, batch_rows.within(rounds), None):
            out = model(
                SharedRows(torch.cat([reference.x, perturbations.feature_table]), index),
                as_tensor(row_of[copy, ends[:, edge]], device),
                None if weight is None else weight[edge_ids],
                None if attr is None else attr[edge_ids],
                None,
                centres.reshape(count, -1).t() if model.scores_pairs else None,
                reference.attributes(graph, edge_ids, batch_rows.node),
            )
        if model.scores_pairs:
            return plain(out)[:, None, :]
        return plain(out).index_select(0, centres).reshape(count, field.centres, -1)


# Of models that take nodes and edges by type.


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class CopiesByType(Evaluator):
    """Batches of disjoint copies of the receptive field, without the nodes that do not matter."""

    batching: Batching = NO_SHORTCUT

    def describe(self) -> str:
        """How the model is called, in a few words."""
        return "batches of copies of the typed receptive field"

    def evaluate(
        self, field: Field, perturbations: Perturbations, hops: HopCounts | None = None
    ) -> Tensor:
        """Raw outputs [graphs, centres, outputs], in as few calls as memory allows."""
        hops = self.hop_counts(field, perturbations) if hops is None else hops
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
        ends = np.stack(
            [
                np.where(
                    outside,
                    len(flat) + source - size,
                    position[np.minimum(copy * size + source, live.size - 1)],
                ),
                position[copy * size + target],
            ]
        )
        node = flat % size
        boundary = field.ids[size:] if depth is None else field.ids[:0]
        ids = np.concatenate([field.ids[node], boundary])
        replaced = np.zeros((2, 0), dtype=np.int64)
        if perturbations.feature_row is not None:
            table_row = perturbations.feature_row.reshape(-1)[flat]
            changed = np.flatnonzero(table_row >= size)
            replaced = np.stack([changed, table_row[changed]])
        rows = RowsByType(
            self.query.graph,
            ids,
            ends,
            field.edges[edge],
            replaced,
            plain(perturbations.feature_table),
            size,
            flat // size,
            count,
            None if self.batching.trim == "nothing" else hops.reshape(-1)[flat],
            np.concatenate([node, size + np.arange(len(boundary))]),
        )
        centres = position.reshape(live.shape)[:, : field.centres]
        return call_by_type(self.query, rows, centres, self.batching)


def _influential_edges(
    field: Field, perturbations: Perturbations, live: Bools, ends_at: Bools
) -> Bools:
    """Edges into the nodes `ends_at` from live ones or the boundary, [graphs, edges]."""
    edges = perturbations.active_edges(field) & ends_at[:, field.target]
    inner = field.inner_edges
    edges[:, inner] &= live[:, field.source[inner]]
    return edges


def batchings(model: Model, depth: int | None) -> list[Batching]:
    """Combinations of shortcuts, the fastest first; those with a depth trim rounds."""
    cuts = [False]
    if model.tables:
        # A model that gets ids of nodes looks its tables up by them.
        cuts = [False, True] if model.takes_ids else [True, False]
    untrimmed = [Batching(shared, cut) for cut in cuts for shared in (True, False)]
    # Layers that read degrees need the edges of nodes that no longer matter.
    if depth is None or is_known_to_read_degrees(model):
        return untrimmed
    trims: list[Literal["outputs", "inputs"]] = []
    if any(isinstance(part, ROUNDS) for part in model.submodules):
        trims = ["inputs"]
    if any(isinstance(part, HeteroConv) for part in model.submodules):
        trims = ["outputs", "inputs"]
    trimmed = [Batching(True, cut, depth, trim) for trim in trims for cut in cuts]
    return [*trimmed, *(replace(batching, depth=depth) for batching in untrimmed), *untrimmed]
