"""One call of a model on nodes and edges of its graph, or on copies of these side by side.

Nodes and edges are sorted by type, for models that take them so; a graph without types has one of
each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.calling import Inputs, Part
from graphsvx.core.model import rows_of
from graphsvx.core.query import Query
from graphsvx.core.types import EdgeType
from graphsvx.engine.kernels import BatchEdges, ModelLayers
from graphsvx.engine.lazy import plain
from graphsvx.engine.trim import trimmed
from graphsvx.errors import ModelError


@dataclass(frozen=True, eq=False)
class Trimming:
    """How the rounds of a call are computed for the nodes that matter."""

    layers: ModelLayers
    within: Sequence[int] | None
    """Number of nodes within 0, 1, ... hops of a centre, by which they are sorted."""
    kernels: bool = True
    """Whether edges are sorted by target, and layers computed by kernels."""
    loops: bool = False
    """Whether there are self-loops."""
    degree: Tensor | None = None
    """In-degree of each node, if edges that only add to a degree are not listed."""
    activity: Tensor | None = None
    """How active each node is, if outputs are differentiated by it."""


@dataclass(frozen=True, eq=False)
class Call(Part):
    """Nodes and edges of one call of a model."""

    query: Query
    copy: Ids
    """The copy that each node is of."""
    copies: int = 1

    def outputs(
        self,
        x: Mapping[str, Tensor],
        centres: Ids,
        trimming: Trimming | None = None,
        cut_tables: bool = False,
    ) -> Tensor:
        """Outputs at the centres [copies, centres], or of graphs or links: [copies, centres, ...].

        `x`: features of each node type. `cut_tables`: parameters with a row for each node of a type
        are cut to the nodes that are there.
        """
        query, model, device = self.query, self.query.model, self.graph.x.device
        batch = None
        if query.kind == "graph":
            batch = {name: as_tensor(self.copy[mine], device) for name, mine in self.nodes.items()}
        inputs = self.inputs(
            x,
            batch=batch,
            graphs=self.copies,
            pairs=as_tensor(self.at[centres].T, device) if model.scores_pairs else None,
            relation=query.relation,
        )
        if trimming is None:
            return self._at_centres(self._returned(inputs, cut_tables), centres)
        edges = self._batch_edges(inputs.edge_index, trimming)
        with trimmed(model.submodules, trimming.layers, edges, trimming.kernels):
            return self._at_centres(self._returned(inputs, cut_tables), centres)

    def _returned(self, inputs: Inputs, cut_tables: bool) -> Any:
        graph, model = self.graph, self.query.model
        if graph.has_types:
            return model.run(graph, inputs, cut_tables)
        (x,), (edge_index,), (edges,), (nodes,) = (
            part.values()
            for part in (inputs.x, inputs.edge_index, inputs.edge_rows, inputs.node_rows)
        )
        batch = None if inputs.batch is None else next(iter(inputs.batch.values()))
        attributes = graph.attributes_at(nodes, edges, self.copies if batch is not None else 1)
        return model(x, edge_index, *graph.edge_rows(edges), batch, inputs.pairs, attributes)

    def _at_centres(self, out: Any, centres: Ids) -> Tensor:
        query, types = self.query, self.graph.types
        if query.kind == "graph" or query.model.scores_pairs:
            if isinstance(out, Tensor) and out.dim() == 1 and self.copies == 1:
                out = out[None]  # the outputs of the one graph or pair
            return plain(rows_of(out, "graph", self.copies))[:, None]
        columns = []
        for column in centres.T:
            node_type = types.node_types[int(types.kinds(self.ids[column[:1]])[0])]
            output = rows_of(out, node_type, len(self.nodes[node_type]))
            columns.append(plain(_at(output, self.at[column])))
        if len(widths := {column.shape[1] for column in columns}) > 1:
            raise ModelError(
                f"the explained nodes must have outputs of one width, got {sorted(widths)}"
            )
        return torch.stack(columns, 1)

    def _batch_edges(
        self, edge_index: Mapping[EdgeType, Tensor], trimming: Trimming
    ) -> list[BatchEdges]:
        """The edges of each type, with what is known of their ends."""
        parts, within = [], trimming.within
        for edge_type, index in edge_index.items():
            senders, receivers = self.nodes[edge_type[0]], self.nodes[edge_type[2]]
            edges = BatchEdges(
                index,
                self.edges_by_type[edge_type][0],
                len(senders),
                len(receivers),
                None if within is None else receivers.searchsorted(within).tolist(),
                loops=trimming.loops,
            )
            if trimming.degree is not None:
                edges.degree = _at(trimming.degree, receivers)
            if trimming.activity is not None:
                edges.activity = _at(trimming.activity, senders).index_select(0, index[0])
            parts.append(edges)
        return parts


def _at(values: Tensor, rows: Ids) -> Tensor:
    """Some rows of a tensor: a slice where they follow each other, so that no ids are copied."""
    first = int(rows[0]) if len(rows) else 0
    if np.array_equal(rows, np.arange(first, first + len(rows))):
        return values[first : first + len(rows)]
    return values.index_select(0, as_tensor(rows, values.device))
