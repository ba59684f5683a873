"""Run-time checks: whether a shortcut gives the outputs of plain calls of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from graphsvx.core import arrays
from graphsvx.core.arrays import Bools
from graphsvx.core.edge_index import is_undirected
from graphsvx.core.field import Field
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import Evaluator, Plain
from graphsvx.engine.lazy import plain
from graphsvx.engine.rounding import allclose, nudged, tolerances
from graphsvx.errors import ModelError, see
from graphsvx.utils.given_up import give_up

# What was compared, and a fallback, in the words of the certificate.
SAME_WIDER = "same output on a wider part of the graph"
SAME_ALONE = "same output in a batch as alone"
SAME_AGAIN = "same output when called again"
ONE_BY_ONE = (
    "one call a coalition on the whole graph: graphs in one batch change each other's output"
)


def probe_perturbations(query: Query, field: Field, rng: np.random.Generator) -> Perturbations:
    """The full graph and random coalitions, on which evaluators are compared."""
    # More coalitions for directed graphs, where more shortcuts can fail.
    on = np.ones((2 if field_is_undirected(field) else 5, field.size), dtype=bool)
    for row, tenths in zip(on[1:], (3, 5, 2, 6), strict=False):
        others = rng.permutation(np.arange(field.centres, field.size))
        row[others[: -(-len(others) * tenths // 10)]] = False
    return node_perturbations(query, field, on)


def unperturbed(query: Query, field: Field) -> Perturbations:
    """The full graph."""
    return node_perturbations(query, field, np.ones((1, field.size), dtype=bool))


def node_perturbations(query: Query, field: Field, on: Bools) -> Perturbations:
    """Perturbations with the active nodes `on`, features unchanged."""
    ids = arrays.as_tensor(field.ids[: field.size], query.graph.x.device)
    table = query.graph.x.index_select(0, ids)
    return Perturbations(on, None, table)


def field_is_undirected(field: Field) -> bool:
    """Whether each edge within the field has its reverse."""
    inner = field.inner_edges
    return is_undirected(field.source[inner], field.target[inner], field.size)


def gives_plain_outputs(
    evaluator: Evaluator, alone: Plain, probes: Perturbations, outputs: Tensor, given_up: str
) -> bool:
    """Whether an evaluator gives the `outputs` of plain calls for some perturbed graphs.

    `given_up`: the sentence of the certificate, if it fails with an error.
    """
    try:
        quick = evaluator.evaluate(evaluator.field, probes)
    except ModelError as error:
        # Plain calls succeed, so the model does not support this way.
        give_up(given_up, error)
        return False
    return equals_plain_calls(alone, evaluator.field, probes, outputs, quick)


def equals_plain_calls(
    alone: Plain,
    field: Field,
    perturbations: Perturbations,
    outputs: Tensor,
    other: Tensor,
    like: Tensor | None = None,
) -> bool:
    """Whether `other` equals the `outputs` of plain calls, but for rounding.

    Where an output is small because large terms cancel, its size does not tell what rounding can
    change: then features are changed by their last bit to see it. `like`: outputs that show how
    large each output is.
    """
    if other.shape != outputs.shape:
        return False
    if allclose(other, outputs, like):
        return True
    draws = np.random.default_rng(0)
    changed = alone.nudged(draws).evaluate(
        field,
        replace(perturbations, feature_table=nudged(plain(perturbations.feature_table), draws)),
    )
    noise = 16 * (changed.double() - outputs.double()).abs().flatten(0, -2).amax(0)
    most = tolerances(outputs.double().flatten()[:, None].to(outputs.dtype)).max()
    return allclose(other, outputs, like, noise.nan_to_num().clamp(max=float(most)))


def require_deterministic(alone: Plain) -> None:
    """Raise a ModelError if two calls on the full graph give different outputs."""
    full = unperturbed(alone.query, alone.field)
    if not allclose(*(alone.evaluate(alone.field, full) for _ in range(2))):
        raise ModelError(
            "the model gives another output each time it is called, also in eval mode; "
            "switch its random layers off (dropout with training=True, sampling) to explain it"
            + see("the-model-is-random")
        )
