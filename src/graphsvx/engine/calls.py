"""Calls of a model that takes nodes and edges by type, from numbers of nodes, edges and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from torch_geometric.nn import HeteroConv, HGTConv

from graphsvx.core.arrays import Ids, as_tensor, no_ids
from graphsvx.core.callers import Inputs, edges_by_type, sorted_by_kind
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model, rows_of
from graphsvx.core.perturbation import HopCounts, Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.lazy import SharedRows, plain
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back


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


NO_SHORTCUT = Batching(False, False)


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

    @staticmethod
    def of_one(
        graph: Graph,
        ids: Ids | None,
        ends: Ids,
        edges: Ids,
        position: Ids,
        perturbation: Perturbations,
    ) -> RowsByType:
        """One perturbed graph on the nodes `ids` (None: all), those of the field at `position`."""
        replaced, size = np.zeros((2, 0), dtype=np.int64), len(position)
        if perturbation.feature_row is not None:
            changed = np.flatnonzero(perturbation.feature_row[0] >= size)
            replaced = np.stack([position[changed], perturbation.feature_row[0][changed]])
        ids = np.arange(graph.num_nodes) if ids is None else ids
        return RowsByType(graph, ids, ends, edges, replaced, perturbation.feature_table, size)


def call_by_type(
    query: Query, rows: RowsByType, centres: Ids, batching: Batching = NO_SHORTCUT
) -> Tensor:
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


# Each round trimmed to the nodes that can still influence a centre.


ROUNDS = (HeteroConv, HGTConv)
"""Modules that are one round of message passing for all node types."""

Levels = dict[Any, Ids]
"""By node type the number of nodes, and by edge type that of edges into nodes, within 0, 1, ...
hops of a centre; these come first among those of their type."""


@dataclass(eq=False)
class _Trimming:
    """Counts the rounds of one call and trims what each of them gets and computes."""

    levels: Levels
    rounds: int
    done: int = 0

    def cut(self, name: Any, value: Any, hops: int) -> Any:
        """The rows of a node type within so many hops, or the edges into nodes nearer by one."""
        if name not in self.levels or not isinstance(value, Tensor):
            return value
        edges = isinstance(name, tuple)
        count = int(self.levels[name][hops - 1 if edges else hops])
        if edges and value.dim() == 2 and value.shape[0] == 2 and not value.is_floating_point():
            return value[:, :count]
        return value if len(value) == count else value[:count]

    def before_round(self, _: Any, args: Any, kwargs: Any) -> Any:
        """Forward pre-hook of a round: dictionaries by type are trimmed."""
        self.done += 1
        hops = self.rounds - self.done + 1
        if hops < 1:
            raise ModelError(f"the model has more than {self.rounds} rounds")

        def trim(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            return {name: self.cut(name, part, hops) for name, part in value.items()}

        return tuple(map(trim, args)), {name: trim(value) for name, value in kwargs.items()}

    def before_layer(self, target: str, _: Any, args: Any, kwargs: Any) -> Any:
        """Forward pre-hook of a convolution: features of the targets, second of a pair."""

        def trim(value: Any) -> Any:
            if not isinstance(value, tuple) or len(value) != 2:
                return value
            return value[0], self.cut(target, value[1], self.rounds - self.done)

        return tuple(map(trim, args)), {name: trim(value) for name, value in kwargs.items()}

    def after_layer(self, target: str, _: Any, __: Any, out: Any) -> Any:
        """Forward hook of a convolution: its output at the targets."""
        return self.cut(target, out, self.rounds - self.done)


@contextmanager
def trimmed_rounds(model: Model, levels: Levels, rounds: int, trim_outputs: bool) -> Iterator[None]:
    """Context manager: round k of a call gets the nodes within `rounds` - k + 1 hops only.

    The nodes that a round computes matter to the centres only if they are near enough for the
    rounds that follow: with `trim_outputs`, HeteroConv computes the nodes within `rounds` - k hops.
    """
    trimming, hooks = _Trimming(levels, rounds), ExitStack()

    def add(hook: RemovableHandle) -> None:
        hooks.callback(hook.remove)

    with taking_back(hooks.close):
        for part in model.submodules:
            if isinstance(part, ROUNDS):
                add(part.register_forward_pre_hook(trimming.before_round, with_kwargs=True))
            if trim_outputs and isinstance(part, HeteroConv):
                if len({id(layer) for layer in part.convs.values()}) < len(part.convs):
                    raise ModelError("a convolution of several edge types")
                for (_, _, target), layer in part.convs.items():
                    before = partial(trimming.before_layer, target)
                    add(layer.register_forward_pre_hook(before, with_kwargs=True))
                    add(layer.register_forward_hook(partial(trimming.after_layer, target)))
        yield
    if trimming.done != rounds:
        raise ModelError(f"the model has {trimming.done} rounds for all node types, not {rounds}")
