"""Run-time checks: whether a shortcut gives the outputs of plain calls of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from graphsvx.core import arrays
from graphsvx.core.arrays import Bools
from graphsvx.core.edge_index import is_undirected
from graphsvx.core.field import Field
from graphsvx.core.perturbation import Perturbations, distances
from graphsvx.core.query import Query
from graphsvx.engine.batches import BatchEvaluator, Shortcuts
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.plain import (
    ReferenceGraph,
    evaluate_copies,
    evaluate_one_by_one,
)
from graphsvx.engine.rounding import allclose, nudged, tolerances
from graphsvx.errors import ModelError, see
from graphsvx.utils.given_up import give_up


def copies_equal_single_calls(
    query: Query,
    field: Field,
    reference_graph: ReferenceGraph,
    perturbations: Perturbations,
    alone: Tensor,
    rounds: int | None,
) -> bool:
    """Whether copies in one batch (trimmed if `rounds` are given) give those of single calls."""
    try:
        batch = evaluate_copies(
            query.model, query.graph, field, reference_graph, perturbations, query.memory, rounds
        )
    except ModelError as error:
        give_up("copies of the neighbourhood were not evaluated together", error)
        return False
    return equals_plain_calls(query, field, reference_graph, perturbations, alone, batch)


def probe_perturbations(query: Query, field: Field, rng: np.random.Generator) -> Perturbations:
    """The full graph and random coalitions, on which evaluators are compared."""
    # More coalitions for directed graphs, where more shortcuts can fail.
    on = np.ones((2 if field_is_undirected(field) else 5, field.size), dtype=bool)
    for row, tenths in zip(on[1:], (3, 5, 2, 6), strict=False):
        others = rng.permutation(np.arange(field.centres, field.size))
        row[others[: -(-len(others) * tenths // 10)]] = False
    return node_perturbations(query, field, on)


def node_perturbations(query: Query, field: Field, on: Bools) -> Perturbations:
    """Perturbations with the active nodes `on`, features unchanged."""
    ids = arrays.as_tensor(field.ids[: field.size], query.graph.x.device)
    table = query.graph.x.index_select(0, ids)
    return Perturbations(on, None, table)


def field_is_undirected(field: Field) -> bool:
    """Whether each edge within the field has its reverse."""
    inner = field.inner_edges
    return is_undirected(field.source[inner], field.target[inner], field.size)


def batch_equals_single_calls(
    query: Query,
    field: Field,
    shortcuts: Shortcuts,
    reference_graph: ReferenceGraph,
    rng: np.random.Generator,
) -> bool:
    """Whether a batch with these shortcuts gives the outputs of single calls."""
    perturbations = probe_perturbations(query, field, rng)
    slow = evaluate_one_by_one(
        query.model, query.graph, field, reference_graph, perturbations, query.kind == "graph"
    )
    try:
        hops = (
            np.zeros(perturbations.active.shape, np.uint8)
            if shortcuts.keep_all_nodes
            else distances(perturbations, field, shortcuts.reach)
        )
        # With the shortcuts of a large batch, however small this one is.
        quick = BatchEvaluator(
            query.model,
            query.graph,
            field,
            query.memory,
            shortcuts,
            ModelLayers.of(query.model.submodules),
            lazy_from=0,
        )(perturbations, hops)
    except ModelError as error:
        # Single calls succeed, so the model does not support batches.
        give_up("a way of evaluating coalitions in batches was not taken", error)
        return False
    return equals_plain_calls(query, field, reference_graph, perturbations, slow, quick)


def equals_plain_calls(
    query: Query,
    field: Field,
    reference_graph: ReferenceGraph,
    perturbations: Perturbations,
    alone: Tensor,
    other: Tensor,
    like: Tensor | None = None,
) -> bool:
    """Whether outputs are those of plain calls on a reference graph, but for rounding.

    Where an output is small because large terms cancel, its size does not tell what rounding can
    change: then features are changed by their last bit to see it.
    """
    if other.shape != alone.shape:
        return False
    if allclose(other, alone, like):
        return True
    draws = np.random.default_rng(0)
    changed = evaluate_one_by_one(
        query.model,
        query.graph,
        field,
        replace(reference_graph, x=nudged(reference_graph.x, draws)),
        replace(perturbations, feature_table=nudged(plain(perturbations.feature_table), draws)),
        query.kind == "graph",
    )
    noise = 16 * (changed.double() - alone.double()).abs().flatten(0, -2).amax(0)
    most = tolerances(alone.double().flatten()[:, None].to(alone.dtype)).max()
    return allclose(other, alone, like, noise.nan_to_num().clamp(max=float(most)))


def require_deterministic(query: Query, field: Field, reference_graph: ReferenceGraph) -> None:
    """Raise a ModelError if two calls on the full graph give different outputs."""
    perturbations = probe_perturbations(query, field, np.random.default_rng(0)).take(slice(0, 1))
    first, second = (
        evaluate_one_by_one(
            query.model, query.graph, field, reference_graph, perturbations, query.kind == "graph"
        )
        for _ in range(2)
    )
    if not allclose(first, second):
        raise ModelError(
            "the model gives another output each time it is called, also in eval mode; "
            "switch its random layers off (dropout with training=True, sampling) to explain it"
            + see("the-model-is-random")
        )
