"""Batches of disjoint copies of a neighbourhood: right for every model with so many rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import as_tensor
from graphsvx.core.field import Field
from graphsvx.core.perturbation import HopCounts, Perturbations
from graphsvx.engine.evaluator import Evaluator, ReferenceGraph
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.lazy import SharedRows, plain
from graphsvx.engine.rows import BatchRows
from graphsvx.engine.trim import trimmed


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
        return torch.cat([
            self._batch(field, perturbations.take(slice(first, first + step)))
            for first in range(0, len(perturbations), step)
        ])  # fmt: skip

    def _batch(self, field: Field, perturbations: Perturbations) -> Tensor:
        model, graph, reference, rounds = (
            self.query.model, self.query.graph, self.reference, self.rounds,
        )  # fmt: skip
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
