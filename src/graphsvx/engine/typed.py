"""Evaluation of typed graphs: the typed receptive field in batches of disjoint copies.

The same guarantee as for graphs without types (`engine.choose`): values are those of one plain
call a coalition on the whole graph. A batch is a shortcut; it is compared with plain calls on the
whole graph before and after the games, and where it differs every coalition is a plain call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv, HGTConv, MessagePassing

from graphsvx.core import field as fields
from graphsvx.core.arrays import Bools, Ids, as_tensor
from graphsvx.core.field import Field
from graphsvx.core.perturbation import UNREACHABLE, HopCounts, Perturbations
from graphsvx.core.typed_graph import FLAT, EdgeType, TypedGraph
from graphsvx.core.typed_model import TypedInput, TypedModel, rows_of
from graphsvx.core.typed_query import TypedQuery
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.rows import SharedRows
from graphsvx.engine.profile import ModelProfile, graph_fingerprint, profile_for
from graphsvx.engine.rounding import allclose, nudged, tolerances
from graphsvx.engine.trust import reads_degrees
from graphsvx.errors import ModelError
from graphsvx.utils.exclusive import taking_back

# Nodes and edges of a batch: larger ones do not fit into the caches of a CPU core.
_BATCH_ITEMS = 1 << 18
_REPLAYS = (4, 64)
# Modules that are one round for all node types.
_ROUNDS = (HeteroConv, HGTConv)
_REPLAYS_LATER = 2
_REPLAYED_NUMBERS = 1 << 26


@dataclass(frozen=True)
class Batching:
    """Shortcuts of a batch of copies of the receptive field."""

    shared_rows: bool
    """Store equal feature rows once."""
    rows_of_tables: bool
    """Cut parameters with a row for each node of a type to the nodes of the batch."""
    rounds: int | None = None
    """Rounds of HeteroConv or HGTConv, each trimmed to the nodes that still matter; None: all."""


def evaluators(query: TypedQuery, hops: int | None, seed: int) -> Iterator[Evaluator]:
    """Evaluators that pass their checks, fastest first; the last makes plain calls only.

    What passed for a model and a graph before is taken first, and compared with the output of the
    unperturbed graph and with fewer plain calls.
    """
    graph = query.typed_graph
    profile = profile_for(
        query.model,
        graph,
        lambda: ModelProfile(
            graph_fingerprint(graph), message_passing_chain(query), query.model.plan
        ),
    )
    profile.explained += 1
    depth = hops if profile.depth is None else profile.depth
    if query.kind == "graph":
        field, reach = fields.whole_graph(graph), None
    else:
        field = fields.in_neighbourhood(graph, query.centres, depth)
        reach = None if depth is None else depth + 1 if reads_degrees(query.model) else depth
    local = query.kind != "graph"
    checked = Evaluator(
        field,
        depth if local else None,
        reach,
        TypedBatches(query, Batching(False, False)),
        ("field = whole graph", "batch = single calls", "deterministic"),
        local=local,
        replays=_replays(graph),
        agrees=lambda *outputs: _agrees(query, *outputs),
    )
    passed: dict[str, Batching] = profile.shortcuts or {}
    profile.shortcuts = passed
    if query.kind in passed:
        full = _full(field)
        yield replace(
            checked,
            evaluate=TypedBatches(query, passed[query.kind]),
            replays=_replays(graph, profile.explained),
            expected_output=evaluate_plainly(query, field, full)[0],
        )
        passed.clear()
    probes = _probes(field, np.random.default_rng(seed))
    alone = evaluate_plainly(query, field, probes)
    for at, batching in enumerate(_batchings(query, depth, reach)):
        batches = TypedBatches(query, batching)
        try:
            batch = batches(field, probes, checked.hop_counts(field, probes))
        except ModelError:
            continue  # single calls succeed, so the model does not support such a batch
        if _same(query, field, probes, alone, batch, None):
            passed[query.kind] = batching
            yield replace(checked, evaluate=batches)
            passed.clear()
        elif not at:
            _require_deterministic(query, field, probes, alone)
    yield _plain_evaluator(query)


def _require_deterministic(
    query: TypedQuery, field: Field, probes: Perturbations, alone: Tensor
) -> None:
    if not allclose(alone[:1], evaluate_plainly(query, field, probes.take(slice(0, 1)))):
        raise ModelError(
            "the model gives another output each time it is called, also in eval mode; "
            "switch its random layers off (dropout with training=True, sampling) to explain it"
        )


def _batchings(query: TypedQuery, depth: int | None, reach: int | None) -> list[Batching]:
    """Combinations of shortcuts, the fastest first."""
    model = query.typed_model
    rounds = None
    # Layers that read degrees need the edges of nodes that no longer matter.
    if reach is not None and reach == depth and _has_rounds(model):
        rounds = depth
    cuts = [False]
    if model.tables:
        # A model that gets ids of nodes looks its tables up by them.
        cuts = [False, True] if model.takes_ids else [True, False]
    batchings = [Batching(True, cut, rounds) for cut in cuts if rounds]
    return batchings + [Batching(shared, cut) for cut in cuts for shared in (True, False)]


def _has_rounds(model: TypedModel) -> bool:
    return any(isinstance(part, _ROUNDS) for part in model.submodules)


def _plain_evaluator(query: TypedQuery) -> Evaluator:
    local = query.kind != "graph"
    field = (
        fields.undirected_neighbourhood(query.graph, query.centres, None)
        if local
        else fields.whole_graph(query.graph)
    )

    def evaluate(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:  # noqa: ARG001  (all matter)
        return evaluate_plainly(query, field, perturbations)

    _require_deterministic(query, field, _full(field), evaluate_plainly(query, field, _full(field)))
    reason = "one call a coalition on the whole graph: nodes of a batch influence each other"
    return Evaluator(field, None, None, evaluate, ("deterministic",), reason, local=False)


def _replays(graph: TypedGraph, explained: int = 1) -> int:
    """Number of coalitions of each game that must be evaluated again by plain calls.

    Where plain calls are cheap always as many; otherwise fewer but for the 1st, 4th, 16th, ...
    explanation.
    """
    numbers = sum(x.numel() for x in graph.features.values())
    numbers += 32 * (graph.num_nodes + graph.num_edges)
    most = int(np.clip(_REPLAYED_NUMBERS // max(1, numbers), *_REPLAYS))
    often = explained & (explained - 1) == 0 and explained.bit_length() % 2
    return most if often or most == _REPLAYS[1] else _REPLAYS_LATER


def _full(field: Field) -> Perturbations:
    """The unperturbed graph."""
    return Perturbations(np.ones((1, field.size), dtype=bool), None, torch.zeros(field.size, 0))


def _probes(field: Field, rng: np.random.Generator) -> Perturbations:
    """The unperturbed graph, and one without 4 in 10 of its nodes."""
    on = np.ones((2, field.size), dtype=bool)
    others = rng.permutation(np.arange(field.centres, field.size))
    on[1, others[: -(-len(others) * 4 // 10)]] = False
    return replace(_full(field), active=on)


def _agrees(
    query: TypedQuery, field: Field, perturbations: Perturbations, raw: Tensor, like: Tensor
) -> bool:
    alone = evaluate_plainly(query, field, perturbations)
    return _same(query, field, perturbations, alone, raw.to(alone.device), like)


def _same(
    query: TypedQuery, field: Field, perturbations: Perturbations, alone: Tensor, other: Tensor,
    like: Tensor | None,
) -> bool:  # fmt: skip
    """Whether outputs are those of plain calls, but for rounding.

    Where large terms cancel, features are changed by their last bit to see what rounding does.
    """
    if other.shape != alone.shape:
        return False
    if allclose(other, alone, like):
        return True
    most = float(tolerances(alone.double().flatten()[:, None].to(alone.dtype)).max())
    if not float((other.double() - alone.double()).abs().max()) <= most:
        return False
    draws = np.random.default_rng(0)

    graph = query.typed_graph
    features = {name: nudged(x, draws) for name, x in graph.features.items()}
    table = nudged(plain(perturbations.feature_table), draws)
    changed = evaluate_plainly(
        replace(query, graph=replace(graph, features=features)),
        field,
        replace(perturbations, feature_table=table),
    )
    noise = 16 * (changed.double() - alone.double()).abs().flatten(0, -2).amax(0)
    return allclose(other, alone, like, noise.nan_to_num().clamp(max=most))


# --- plain calls -----------------------------------------------------------------------------


def evaluate_plainly(query: TypedQuery, field: Field, perturbations: Perturbations) -> Tensor:
    """Raw outputs at the centres by one call a perturbed graph on the whole graph."""
    perturbations = replace(perturbations, feature_table=plain(perturbations.feature_table))
    outputs = [
        _evaluate_whole(query, field, perturbations.take(slice(k, k + 1)))
        for k in range(len(perturbations))
    ]
    return torch.cat(outputs)


def _evaluate_whole(query: TypedQuery, field: Field, perturbation: Perturbations) -> Tensor:
    graph = query.typed_graph
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
    rows = _Rows(
        graph, np.arange(graph.num_nodes), ends[:, edges], edges, replaced,
        perturbation.feature_table, field.size,
    )  # fmt: skip
    return _call(query, rows, query.centres[None], Batching(False, False))


# --- batches ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TypedBatches:
    """Evaluates perturbed receptive fields in batches of disjoint copies."""

    query: TypedQuery
    batching: Batching

    def __call__(self, field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:
        """Raw outputs at the centres, [graphs, centres, outputs] (one row for a graph)."""
        width = 16 + max((self._width(name) for name in self.query.typed_graph.features), default=0)
        limit = max(1, min(_BATCH_ITEMS, self.query.memory // (16 * width)))
        step = max(1, limit // max(1, field.size + self._edges_at_most(field)))
        parts = [
            self._chunk(field, perturbations.take(part), hops[part])
            for first in range(0, len(perturbations), step)
            for part in (slice(first, first + step),)
        ]
        return torch.cat(parts)

    def _edges_at_most(self, field: Field) -> int:
        """Edges of a copy, those that a trimmed batch leaves out not counted."""
        if self.batching.rounds is None:
            return len(field.edges)
        return int((field.hops[field.target] < self.batching.rounds).sum())

    def _width(self, node_type: str) -> int:
        x = self.query.typed_graph.features[node_type]
        return 0 if self.batching.shared_rows else x[0].numel() if len(x) else 0

    def _chunk(self, field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:
        count, size = len(perturbations), field.size
        live = hops < UNREACHABLE
        position = np.cumsum(live.reshape(-1)) - 1
        flat = np.flatnonzero(live)
        rounds = self.batching.rounds
        ends_at = live if rounds is None else hops < rounds
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
        boundary = field.ids[size:] if rounds is None else field.ids[:0]
        ids = np.concatenate([field.ids[node], boundary])
        replaced = np.zeros((2, 0), dtype=np.int64)
        if perturbations.feature_row is not None:
            table_row = perturbations.feature_row.reshape(-1)[flat]
            changed = np.flatnonzero(table_row >= size)
            replaced = np.stack([changed, table_row[changed]])
        rows = _Rows(
            self.query.typed_graph, ids, ends, field.edges[edge], replaced,
            plain(perturbations.feature_table), size, flat // size, count,
            None if rounds is None else hops.reshape(-1)[flat],
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
class _Rows:
    """Nodes and edges of a call: numbers of nodes in the typed graph, ends as rows."""

    graph: TypedGraph
    ids: Ids
    ends: Ids
    edges: Ids
    """Position of each edge among those of the graph."""
    replaced: Ids
    """[2, nodes]: rows with other features, and where these are in the table."""
    table: Tensor
    """Features of all types side by side (`TypedGraph.blocks`)."""
    first: int
    """Rows of the table before this one are those of the field."""
    copy: Ids | None = None
    """Batches: the copy that each of the first rows is of; the boundary follows."""
    copies: int = 1
    hops: HopCounts | None = None
    """Trimmed batches: hops from each node to a centre."""


def _call(query: TypedQuery, rows: _Rows, centres: Ids, batching: Batching) -> Tensor:
    """Outputs at the centres, [copies, centres, outputs], of one call of the model."""
    graph, model, device = rows.graph, query.typed_model, rows.graph.x.device
    kinds = graph.node_type[rows.ids]
    order = (
        np.argsort(kinds, kind="stable") if rows.hops is None else np.lexsort((rows.hops, kinds))
    )
    starts = np.searchsorted(kinds[order], np.arange(len(graph.node_types) + 1))
    within = np.empty(len(order), dtype=np.int64)
    within[order] = np.arange(len(order)) - starts[kinds[order]]
    node_rows, x = {}, {}
    for at, name in enumerate(graph.node_types):
        mine = order[starts[at] : starts[at + 1]]
        local = rows.ids[mine] - graph.node_starts[at]
        node_rows[name] = as_tensor(local, device)
        if name in graph.features:
            x[name] = _features(rows, name, at, local, within, kinds, batching.shared_rows)
    edge_index, edge_rows = _edges(rows, within)
    batch = None
    if query.kind == "graph":
        copy = np.zeros(len(rows.ids), dtype=np.int64) if rows.copy is None else rows.copy
        batch = {
            name: as_tensor(copy[order[starts[at] : starts[at + 1]]], device)
            for at, name in enumerate(graph.node_types)
        }
    pairs = as_tensor(within[centres].T, device) if model.scores_pairs else None
    inputs = TypedInput(
        x, edge_index, node_rows, edge_rows, batch, rows.copies, pairs, query.relation
    )
    rounds = batching.rounds
    counts = {name: len(ids) for name, ids in node_rows.items()}
    if rounds is None or rows.hops is None:
        out = model.run(graph, inputs, batching.rows_of_tables)
    else:
        levels = _levels(rows, kinds, rounds)
        with trimmed_rounds(model, levels, rounds):
            out = model.run(graph, inputs, batching.rows_of_tables)
        counts = {name: int(levels[name][1]) for name in node_rows}
    if query.kind == "graph" or model.scores_pairs:
        return plain(rows_of(out, "graph", rows.copies))[:, None]
    columns = []
    for column in centres.T:
        node_type = graph.node_types[kinds[column[0]]]
        output = plain(rows_of(out, node_type, counts[node_type]))
        columns.append(output.index_select(0, as_tensor(within[column], output.device)))
    if len({column.shape[1] for column in columns}) > 1:
        raise ModelError(
            "the explained nodes must have outputs of one width, got "
            f"{[column.shape[1] for column in columns]}"
        )
    return torch.stack(columns, 1)


def _features(
    rows: _Rows, name: str, at: int, local: Ids, within: Ids, kinds: Ids, shared: bool
) -> Tensor:
    """x of the rows of one node type."""
    graph = rows.graph
    x = graph.features[name]
    replaced = np.flatnonzero(kinds[rows.replaced[0]] == at)
    block = graph.blocks[name]
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
    distinct, index = np.unique(local, return_inverse=True)
    base = x.index_select(0, as_tensor(distinct, x.device))
    index = index.reshape(-1)
    if len(replaced) and has_columns:
        table_rows, inverse = np.unique(rows.replaced[1][replaced], return_inverse=True)
        new_rows = rows.table[as_tensor(table_rows, rows.table.device), block].to(x)
        index[within[rows.replaced[0][replaced]]] = len(base) + inverse.reshape(-1)
        base = torch.cat([base, new_rows])
    at_rows = as_tensor(index, x.device)
    if shared and x.is_floating_point() and x.dim() == 2:
        return SharedRows(base, at_rows)
    return base.index_select(0, at_rows)


def _edges(rows: _Rows, within: Ids) -> tuple[dict[EdgeType, Tensor], dict[EdgeType, Tensor]]:
    """Edge indices by type, and the position of each edge among the user's of its type."""
    graph, device = rows.graph, rows.graph.x.device
    ends = within[rows.ends]
    if graph.flat:
        key = (FLAT, "", FLAT)
        return {key: as_tensor(ends, device)}, {key: as_tensor(rows.edges, device)}
    kinds = graph.edge_type[rows.edges]
    order = (
        np.argsort(kinds, kind="stable")
        if rows.hops is None
        else np.lexsort((rows.hops[rows.ends[1]], kinds))
    )
    starts = np.searchsorted(kinds[order], np.arange(len(graph.edge_types) + 1))
    index, positions = {}, {}
    for at, name in enumerate(graph.edge_types):
        mine = order[starts[at] : starts[at + 1]]
        index[name] = as_tensor(ends[:, mine], device)
        positions[name] = as_tensor(rows.edges[mine] - graph.edge_starts[at], device)
    return index, positions


# --- rounds ----------------------------------------------------------------------------------

Levels = dict[Any, Ids]
"""By node type the number of nodes, and by edge type that of edges into nodes, within 0, 1, ...
hops of a centre; these come first among those of their type."""


def _levels(rows: _Rows, kinds: Ids, rounds: int) -> Levels:
    graph, hops = rows.graph, rows.hops
    if hops is None:
        raise RuntimeError("the rows of a trimmed batch have hops")
    steps = np.arange(rounds + 1)
    levels: Levels = {}
    for at, name in enumerate(graph.node_types):
        levels[name] = np.searchsorted(np.sort(hops[kinds == at]), steps, side="right")
    edge_kinds, into = graph.edge_type[rows.edges], hops[rows.ends[1]]
    for at, edge_type in enumerate(graph.edge_types):
        levels[edge_type] = np.searchsorted(np.sort(into[edge_kinds == at]), steps, side="right")
    return levels


@contextmanager
def trimmed_rounds(model: TypedModel, levels: Levels, rounds: int) -> Iterator[None]:
    """Context manager: round k of a call gets the nodes within `rounds` - k + 1 hops only.

    The nodes that a round computes matter to the centres only if they are near enough for the
    rounds that follow.
    """
    done = 0

    def cut(name: Any, value: Any, keep: int) -> Any:
        if name not in levels or not isinstance(value, Tensor):
            return value
        edges = isinstance(name, tuple)
        count = int(levels[name][keep - 1 if edges else keep])
        if edges and value.dim() == 2 and value.shape[0] == 2 and not value.is_floating_point():
            return value[:, :count]
        return value if len(value) == count else value[:count]

    def before(_: Any, args: Any, kwargs: Any) -> Any:
        nonlocal done
        done += 1
        keep = rounds - done + 1
        if keep < 1:
            raise ModelError(f"the model has more than {rounds} rounds")

        def trim(value: Any) -> Any:
            if not isinstance(value, Mapping):
                return value
            return {name: cut(name, part, keep) for name, part in value.items()}

        return tuple(map(trim, args)), {name: trim(value) for name, value in kwargs.items()}

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    with taking_back(remove):
        hooks += [
            part.register_forward_pre_hook(before, with_kwargs=True)
            for part in model.submodules
            if isinstance(part, _ROUNDS)
        ]
        yield
    if done != rounds:
        raise ModelError(f"the model has {done} rounds for all node types, not {rounds}")


# --- depth -----------------------------------------------------------------------------------


def message_passing_chain(query: TypedQuery) -> int | None:
    """The longest chain of message-passing rounds from the input to the outputs.

    Layers of one round for several edge types run side by side, so calls are not counted but
    followed through torch's record of the computation. Without such a record all calls are
    counted, which is never too few. None if the model has no layers of PyG.
    """
    model = query.typed_model
    layers = [layer for layer in model.submodules if isinstance(layer, MessagePassing)]
    if not layers:
        return None
    for small, rows_of_tables in ((True, False), (True, True), (False, False)):
        if rows_of_tables and not model.tables:
            continue
        try:
            return _chain(query, layers, small, rows_of_tables)
        except ModelError:
            if not small:
                raise
    return None


def _chain(
    query: TypedQuery, layers: list[MessagePassing], small: bool, rows_of_tables: bool
) -> int | None:
    graph, model = query.typed_graph, query.typed_model
    marked: list[Any] = []
    calls = 0

    def mark(_: Any, __: Any, out: Any) -> None:
        nonlocal calls
        calls += 1
        tensors = out if isinstance(out, tuple) else (out,)
        marked.extend(t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None)

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    inputs = _sample(graph, small)
    pairs = torch.zeros(2, 1, dtype=torch.long, device=graph.x.device)
    batch = {name: torch.zeros_like(rows) for name, rows in inputs.node_rows.items()}
    inputs = replace(inputs, batch=batch, pairs=pairs, relation=query.relation)
    with taking_back(remove), torch.inference_mode(False), torch.enable_grad():
        hooks += [layer.register_propagate_forward_hook(mark) for layer in layers]
        # Fresh tensors that record what is computed with them.
        x = {
            name: value.clone().requires_grad_() if value.is_floating_point() else value.clone()
            for name, value in inputs.x.items()
        }
        out = model.run(graph, replace(inputs, x=x), rows_of_tables)
        tensors = list(out.values()) if isinstance(out, Mapping) else [out]
        ends = [t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None]
        longest = _longest_chain(ends, marked)
    return longest or calls or None


def _sample(graph: TypedGraph, small: bool, per_type: int = 3) -> TypedInput:
    """The whole graph, or a few edges of each type."""
    order = np.argsort(graph.edge_type, kind="stable")
    edges = np.arange(graph.num_edges)
    nodes = np.arange(graph.num_nodes)
    ends = graph.edge_index.cpu().numpy()
    if small:
        starts = np.searchsorted(graph.edge_type[order], np.arange(len(graph.edge_types)))
        few = starts[:, None] + np.arange(per_type)
        inside = few < np.append(starts[1:], graph.num_edges)[:, None]
        edges = np.sort(order[few[inside]])
        first = graph.node_starts[:-1][np.diff(graph.node_starts) > 0]
        nodes = np.unique(np.concatenate([first, ends[:, edges].reshape(-1)]))
    local = np.searchsorted(nodes, ends[:, edges])
    rows = _Rows(graph, nodes, local, edges, np.zeros((2, 0), dtype=np.int64), graph.x, 0,
                 np.zeros(len(nodes), dtype=np.int64))  # fmt: skip
    kinds = graph.node_type[nodes]
    starts = np.searchsorted(kinds, np.arange(len(graph.node_types) + 1))
    within = np.arange(len(nodes)) - starts[kinds]
    device = graph.x.device
    node_rows, x = {}, {}
    for at, name in enumerate(graph.node_types):
        ids = nodes[starts[at] : starts[at + 1]] - graph.node_starts[at]
        node_rows[name] = as_tensor(ids, device)
        if name in graph.features:
            x[name] = graph.features[name][node_rows[name]]
    edge_index, edge_rows = _edges(rows, within)
    return TypedInput(x, edge_index, node_rows, edge_rows)


def _longest_chain(ends: list[Any], marked: list[Any]) -> int:
    """Largest number of marked steps on a path through the autograd graph."""
    is_marked = set(marked)
    length: dict[Any, int] = {}
    stack = [(step, False) for step in ends]
    while stack:
        step, done = stack.pop()
        before = [following for following, _ in step.next_functions if following is not None]
        if done:
            most = max((length[following] for following in before), default=0)
            length[step] = most + (step in is_marked)
        elif step not in length:
            stack.append((step, True))
            stack += [(following, False) for following in before if following not in length]
    return max((length[step] for step in ends), default=0)
