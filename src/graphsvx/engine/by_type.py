"""Models that take nodes and edges by type: the receptive field in batches of disjoint copies.

The same guarantee as for graphs without types (`engine.choose`): values are those of one plain
call a coalition on the whole graph. A batch is a shortcut; it is compared with plain calls on the
whole graph before and after the games, and where it differs every coalition is a plain call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv

from graphsvx.core import field as fields
from graphsvx.core.arrays import Bools
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.perturbation import UNREACHABLE, HopCounts, Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.by_type_calls import NO_SHORTCUT, ROUNDS, Batching, RowsByType, call_by_type
from graphsvx.engine.checks import (
    ONE_BY_ONE,
    SAME_AGAIN,
    SAME_ALONE,
    equals_plain_calls,
    probe_perturbations,
    require_deterministic,
    unperturbed,
)
from graphsvx.engine.evaluator import Checks, Evaluator, Plain
from graphsvx.engine.lazy import plain
from graphsvx.engine.profile import profile_for
from graphsvx.engine.rows import batch_items
from graphsvx.engine.trust import (
    affordable_replays,
    is_known_to_read_degrees,
    plain_up_to,
    reads_degrees,
)
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import give_up, note

# Nodes and edges of a batch: larger ones do not fit into the caches of a CPU core.
_BATCH_ITEMS = 1 << 18
# Rounds that compute few nodes only sum rows up; features are projected once a batch.
_TRIMMED_BATCH_ITEMS = 1 << 20
_REPLAYS = (4, 64)
_REPLAYS_LATER = 2


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
        return call_by_type(self.query, rows, centres, self.batching)


def _influential_edges(
    field: Field, perturbations: Perturbations, live: Bools, ends_at: Bools
) -> Bools:
    """Edges into the nodes `ends_at` from live ones or the boundary, [graphs, edges]."""
    edges = perturbations.active_edges(field) & ends_at[:, field.target]
    inner = field.inner_edges
    edges[:, inner] &= live[:, field.source[inner]]
    return edges


def evaluators(query: Query, hops: int | None, seed: int) -> Iterator[Evaluator]:
    """Evaluators that pass their checks, fastest first; the last makes plain calls only.

    What passed for a model and a graph before is taken first, and compared with the output of the
    unperturbed graph and with fewer plain calls.
    """
    graph = query.graph
    profile = profile_for(query.model, graph)
    profile.explained += 1
    depth = hops if profile.depth is None else profile.depth
    if query.kind == "graph":
        field, reach = fields.whole_graph(graph), None
    else:
        field = fields.in_neighbourhood(graph, query.centres, depth)
        reach = None if depth is None else depth + 1 if reads_degrees(query.model) else depth
    local = query.kind != "graph"
    checked = CopiesByType(
        query=query,
        field=field,
        depth=depth if local else None,
        reach=reach,
        local=local,
        checks=Checks(
            ("same output on the whole graph", SAME_ALONE, SAME_AGAIN),
            replays=_replays(graph),
            replays_vary=_replays(graph) < _REPLAYS[1],
            plain_up_to=plain_up_to(_numbers(graph), graph, profile),
        ),
    )
    plainly = checked.plain(field)
    passed: dict[str, Batching] = profile.shortcuts or {}
    profile.shortcuts = passed
    if query.kind in passed:
        note(profile.given_up)
        expected = plainly.evaluate(field, unperturbed(query, field))[0]
        replays = _replays(graph, profile.explained)
        yield replace(
            checked,
            batching=passed[query.kind],
            checks=replace(checked.checks, replays=replays, expected_output=expected),
        )
        passed.clear()
    probes = probe_perturbations(query, field, np.random.default_rng(seed))
    alone = plainly.evaluate(field, probes)
    for at, batching in enumerate(_batchings(query, depth if local else None)):
        evaluator = replace(checked, batching=batching)
        try:
            batch = evaluator.evaluate(field, probes)
        except ModelError as error:
            # Single calls succeed, so the model does not support such a batch.
            sentence = "a way of evaluating coalitions in batches was not taken"
            profile.given_up.append(give_up(sentence, error))
            continue
        if equals_plain_calls(plainly, field, probes, alone, batch):
            passed[query.kind] = batching
            yield evaluator
            passed.clear()
        elif not at:
            require_deterministic(plainly)
    yield _plain_evaluator(query)


def _batchings(query: Query, depth: int | None) -> list[Batching]:
    """Combinations of shortcuts, the fastest first."""
    model = query.model
    cuts = [False]
    if model.tables:
        # A model that gets ids of nodes looks its tables up by them.
        cuts = [False, True] if model.takes_ids else [True, False]
    batchings = [Batching(shared, cut) for cut in cuts for shared in (True, False)]
    # Layers that read degrees need the edges of nodes that no longer matter.
    if depth is None or is_known_to_read_degrees(model):
        return batchings
    trims: list[Literal["outputs", "inputs"]] = []
    if any(isinstance(part, ROUNDS) for part in model.submodules):
        trims = ["inputs"]
    if any(isinstance(part, HeteroConv) for part in model.submodules):
        trims = ["outputs", "inputs"]
    trimmed = [Batching(True, cut, depth, trim) for trim in trims for cut in cuts]
    return [*trimmed, *(replace(batching, depth=depth) for batching in batchings), *batchings]


def _plain_evaluator(query: Query) -> Plain:
    field = (
        fields.whole_graph(query.graph)
        if query.kind == "graph"
        else fields.undirected_neighbourhood(query.graph, query.centres, None)
    )
    evaluator = Plain(query, field, checks=Checks((SAME_AGAIN,), ONE_BY_ONE, proved=True))
    require_deterministic(evaluator)
    return evaluator


def _replays(graph: Graph, explained: int = 1) -> int:
    """Number of coalitions of each game that must be evaluated again by plain calls.

    Where plain calls are cheap always as many; otherwise fewer but for the 1st, 4th, 16th, ...
    explanation.
    """
    most = int(np.clip(affordable_replays(_numbers(graph), graph), *_REPLAYS))
    often = explained & (explained - 1) == 0 and explained.bit_length() % 2
    return most if often or most == _REPLAYS[1] else _REPLAYS_LATER


def _numbers(graph: Graph) -> int:
    """Numbers that the features of all nodes are."""
    return sum(x.numel() for x in graph.types.features.values())
