"""Calls of a model that takes nodes and edges by type, from numbers of nodes, edges and rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphsvx.core.arrays import Ids, as_tensor, no_ids
from graphsvx.core.calling import Inputs, edges_by_type, sorted_by_kind
from graphsvx.core.graph import Graph
from graphsvx.core.model import rows_of
from graphsvx.core.query import Query
from graphsvx.engine.lazy import SharedRows, plain
from graphsvx.errors import ModelError


@dataclass(frozen=True, eq=False)
class RowsByType:
    """Nodes and edges of a call: numbers of nodes in the graph, ends of edges as rows."""

    graph: Graph
    ids: Ids
    ends: Ids
    edges: Ids
    """Position of each edge among those of the graph."""
    table: Tensor
    """Features of all types side by side (`Types.blocks`)."""
    table_row: Ids
    """Row of the table that each node has, if it is not one of the first, which are the graph's."""
    own: int
    """Number of these."""
    position: Ids | None = None
    """Batches: the same small number for the same node of the graph; None: the whole graph."""
    copy: Ids | None = None
    """Batches of whole graphs: the copy that each node is of."""
    copies: int = 1


def call_by_type(
    query: Query,
    rows: RowsByType,
    centres: Ids,
    shared: bool = False,
    cut_tables: bool = False,
) -> Tensor:
    """Outputs at the centres, [copies, centres, outputs], of one call of the model.

    `shared`: equal rows are stored once. `cut_tables`: parameters with a row for each node of a
    type are cut to the nodes of the batch.
    """
    graph, model, device = rows.graph, query.model, rows.graph.x.device
    types = graph.types
    kinds = types.node_type[rows.ids]
    order, starts, within = sorted_by_kind(kinds, len(types.node_types))
    nodes = {name: order[starts[at] : starts[at + 1]] for at, name in enumerate(types.node_types)}
    local = types.local(rows.ids)
    node_rows = {name: as_tensor(local[mine], device) for name, mine in nodes.items()}
    batch = None
    if query.kind == "graph":
        copy = np.zeros(len(rows.ids), dtype=np.int64) if rows.copy is None else rows.copy
        batch = {name: as_tensor(copy[mine], device) for name, mine in nodes.items()}
    inputs = Inputs(
        {name: _features(rows, name, nodes[name], local, shared) for name in types.features},
        *edges_by_type(graph, within[rows.ends], rows.edges),
        node_rows,
        batch,
        rows.copies,
        as_tensor(within[centres].T, device) if model.scores_pairs else None,
        query.relation,
    )
    out = model.run(graph, inputs, cut_tables)
    if query.kind == "graph" or model.scores_pairs:
        if isinstance(out, Tensor) and out.dim() == 1 and rows.copies == 1:
            out = out[None]  # the outputs of the one graph or pair
        return plain(rows_of(out, "graph", rows.copies))[:, None]
    columns = []
    for column in centres.T:
        node_type = types.node_types[kinds[column[0]]]
        output = plain(rows_of(out, node_type, len(nodes[node_type])))
        columns.append(output.index_select(0, as_tensor(within[column], output.device)))
    if len(widths := {column.shape[1] for column in columns}) > 1:
        raise ModelError(
            f"the explained nodes must have outputs of one width, got {sorted(widths)}"
        )
    return torch.stack(columns, 1)


def _features(rows: RowsByType, name: str, mine: Ids, local: Ids, shared: bool) -> Tensor:
    """x of the nodes of one type, which are the rows `mine`."""
    x, block = rows.graph.types.features[name], rows.graph.types.blocks[name]
    table_row, changed = rows.table_row[mine], no_ids()
    if block.stop > block.start and rows.table.shape[1]:
        changed = np.flatnonzero(table_row >= rows.own)
    new_rows, inverse = np.unique(table_row[changed], return_inverse=True)
    new = rows.table[as_tensor(new_rows, rows.table.device), block].to(x)
    if rows.position is None:
        if not len(changed):
            return x
        x = x.clone()
        x[as_tensor(changed, x.device)] = new[as_tensor(inverse.reshape(-1), x.device)]
        return x
    distinct, index = _distinct(local[mine], rows.position[mine])
    base = x.index_select(0, as_tensor(distinct, x.device))
    if len(changed):
        index[changed] = len(base) + inverse.reshape(-1)
        base = torch.cat([base, new])
    at = as_tensor(index, x.device)
    if shared and x.is_floating_point() and x.dim() == 2:
        return SharedRows(base, at)
    return base.index_select(0, at)


def _distinct(ids: Ids, position: Ids) -> tuple[Ids, Ids]:
    """Distinct ids and the index of each among them; equal ids have equal small positions."""
    first = np.full(int(position.max(initial=-1)) + 1, -1)
    first[position] = np.arange(len(position))
    present = np.flatnonzero(first >= 0)
    index = np.empty(len(first), dtype=np.int64)
    index[present] = np.arange(len(present))
    return ids[first[present]], index[position]
