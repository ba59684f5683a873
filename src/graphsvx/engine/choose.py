"""Choose the evaluator of perturbed graphs: the fastest that passes run-time checks.

Many perturbed copies of the receptive field are evaluated in one batched call. That is wrong for
models with a larger receptive field than counted, models that mix the nodes of a batch (batch
statistics, pooling, virtual nodes) and models that are random. Each evaluator is therefore checked
twice: before the first batch against plain calls on a wider part of the graph, and after the games
by evaluating some coalitions again (`graphsvx.methods.replay`). On a mismatch the next slower
evaluator is used, and the certificate records it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from graphsvx.core import arrays
from graphsvx.core import field as fields
from graphsvx.core import graph as graphs
from graphsvx.core.depth import message_passing_depth
from graphsvx.core.edge_index import is_undirected
from graphsvx.core.model import call_on
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Query
from graphsvx.engine import by_type
from graphsvx.engine.batches import Shortcuts
from graphsvx.engine.candidates import (
    CHECKS,
    batch_evaluation,
    batch_slopes,
    evaluate_plainly,
    field_evaluators,
    plain_evaluator,
    shortcut_candidates,
    states_around_centres,
    undirected_evaluators,
    whole_graph_evaluators,
)
from graphsvx.engine.checks import (
    batch_equals_single_calls,
    equals_plain_calls,
    field_is_undirected,
    node_perturbations,
)
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.plain import evaluate_one_by_one, full_reference, wider_reference
from graphsvx.engine.profile import (
    ModelProfile,
    fits_one_call,
    invalidate,
    profile_for,
    sample_neighbourhood,
)
from graphsvx.engine.trust import (
    distrust_structure,
    has_known_structure,
    needs_small_batches,
    plain_up_to,
    reads_in_edges_only,
    reference_graph_for,
    required_replays,
)
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import collected, give_up, note

Result = TypeVar("Result")

# Bytes of a batch of a model whose tensors grow faster than the batch: about 512 nodes and edges.
_SMALL_BATCH = 1 << 17


def run_verified(
    query: Query,
    hops: int | None,
    seed: int,
    run: Callable[[Evaluator], Result],
    holds: Callable[[Evaluator, Result], bool],
) -> Result:
    """`run(evaluator)` with the fastest evaluator for which `holds(evaluator, result)` is true.

    `hops` is believed where the model's depth cannot be counted (it is not a PyG model).
    """
    return run_first(_evaluators(query, hops, seed), run, holds)


def run_first(
    evaluators: Iterable[Evaluator],
    run: Callable[[Evaluator], Result],
    holds: Callable[[Evaluator, Result], bool],
) -> Result:
    """`run(evaluator)` with the first evaluator for which `holds(evaluator, result)` is true."""
    failure: ModelError | None = None
    for evaluator in evaluators:
        try:
            result = run(evaluator)
        except ModelError as error:
            # Raised by the model or by a shortcut: the next, slower evaluator shows which.
            failure = error
            give_up("a faster way of evaluating coalitions was not taken", error)
            continue
        if holds(evaluator, result):
            return result
    raise failure or ModelError("the model gives another output each time it is called")


def _evaluators(query: Query, hops: int | None, seed: int) -> Iterator[Evaluator]:
    """All evaluators, fastest first."""
    if query.graph.has_types:
        yield from by_type.evaluators(query, hops, seed)
        return
    if query.removes_rows:
        yield plain_evaluator(query)
        return
    cached = cached_evaluator(query)
    if cached is not None:
        yield cached
        changed = _has_changed(query, cached)
        invalidate(query.model)
        if not changed:
            distrust_structure(query)
    yield from _checked_evaluators(query, hops, seed)


def _has_changed(query: Query, cached: Evaluator) -> bool:
    """Whether the model's own outputs, the same in two calls, are not the cached ones."""
    if cached.outputs is None:
        return False
    try:
        first, second = (call_on(query.model, query.graph) for _ in range(2))
    except ModelError:
        return False
    return torch.equal(first, second) and not torch.equal(first, cached.outputs)


def _checked_evaluators(query: Query, hops: int | None, seed: int) -> Iterator[Evaluator]:
    """Evaluators that pass their checks; the last makes one plain call per coalition."""
    profile = profile_for(query.model, query.graph)
    if _depth_changed(query, profile):  # the cached profile is that of the model before it changed
        invalidate(query.model)
        profile = profile_for(query.model, query.graph)
    replays = required_replays(query, profile)
    if profile.structure is not None and profile.structure.failed:
        note([profile.structure.reason])
    if profile.structure is not None and profile.structure.combines_nodes:
        yield plain_evaluator(query)
        return
    if needs_small_batches(query, profile):
        query = replace(query, memory=min(query.memory, _SMALL_BATCH))
    for evaluator in _with_shortcuts(query, hops, seed, replays, profile):
        # Read again each time: a check that failed leaves the structure unknown.
        proved = profile.structure is not None and profile.structure.known
        few = 0 if proved else plain_up_to(query.graph.x.numel(), query.graph, profile)
        plainly = partial(evaluate_plainly, query)
        yield replace(evaluator, proved=proved, plain_up_to=few, plainly=plainly)
    yield plain_evaluator(query)


def _with_shortcuts(
    query: Query, hops: int | None, seed: int, replays: int, profile: ModelProfile
) -> Iterator[Evaluator]:
    if query.kind == "graph":
        yield from whole_graph_evaluators(query, seed, replays, profile)
        return
    depth = profile.depth
    has_known_layers = profile.structure is not None and profile.structure.known
    in_edges_only = depth is None or has_known_layers or reads_in_edges_only(query.model)
    if in_edges_only:
        depth = hops if depth is None else depth
        yield from field_evaluators(query, depth, seed, replays)
    if depth is not None:
        yield from undirected_evaluators(query, depth, seed, replays)


def _depth_changed(query: Query, profile: ModelProfile) -> bool:
    try:
        return message_passing_depth(query.model, query.graph) != profile.depth
    except ModelError:
        return False


def choose_evaluator(query: Query, hops: int | None, seed: int) -> Evaluator:
    """The fastest evaluator that passes the checks before the first batch, for `evaluate`."""
    if query.graph.has_types:
        return next(by_type.evaluators(query, hops, seed))
    if query.removes_rows:
        return plain_evaluator(query)
    cached = cached_evaluator(query)
    if cached is not None:
        if _gives_expected_output(query, cached):
            return cached
        invalidate(query.model)
    return next(_checked_evaluators(query, hops, seed))


def _gives_expected_output(query: Query, evaluator: Evaluator) -> bool:
    """Whether the unperturbed graph has its expected output by this evaluator."""
    field = evaluator.field
    full = node_perturbations(query, field, np.ones((1, field.size), dtype=bool))
    try:
        out = evaluator.evaluate(field, full, evaluator.hop_counts(field, full))
    except ModelError:  # raised by the model or by a shortcut: the full checks show which
        return False
    return evaluator.matches_expected(out[0])


def evaluate(query: Query, evaluator: Evaluator, perturbations: Perturbations) -> Tensor:
    """Raw outputs of perturbed graphs over the evaluator's field, some of them verified.

    Where a replayed one differs, all are played by plain calls on the whole graph.
    """
    field = evaluator.field
    out = evaluator.evaluate(field, perturbations, evaluator.hop_counts(field, perturbations))
    if not evaluator.replays:
        return out
    replayed = np.unique(
        np.linspace(0, len(perturbations) - 1, evaluator.replays + 1).astype(np.int64)
    )
    reference_graph = reference_graph_for(query, field, np.random.default_rng(0))
    graph_level = query.kind == "graph"
    sample = perturbations.take(replayed)
    alone = evaluate_one_by_one(
        query.model, query.graph, field, reference_graph, sample, graph_level
    )
    if equals_plain_calls(
        query,
        field,
        reference_graph,
        sample,
        alone,
        out[arrays.as_tensor(replayed, out.device)],
        out,
    ):
        return out
    return evaluate_one_by_one(
        query.model,
        query.graph,
        field,
        full_reference(query.graph, field),
        perturbations,
        graph_level,
    )


# Evaluators built from checks that a model has passed on a graph before.


def cached_evaluator(query: Query) -> Evaluator | None:
    """Evaluator built from cached checks; None if there is none for this model and graph.

    For models of known structure that have shown, on samples of this graph, that a batch with all
    shortcuts gives what single calls give. That and the prediction on the whole graph are found
    out once. None: look more carefully.
    """
    if query.kind == "graph" or query.model.scores_pairs:
        return None
    profile = profile_for(query.model, query.graph)
    depth = profile.depth
    if depth is None or not has_known_structure(query, profile):
        return None
    if not profile.checked:
        with collected() as profile.given_up:
            _check_model(query, profile, depth)
    note(profile.given_up)
    shortcuts = profile.shortcuts
    if shortcuts is None:
        return None
    field = fields.in_neighbourhood(query.graph, query.centres, depth)
    if not profile.is_undirected and not field_is_undirected(field):
        return None  # directed graphs get the full checks
    if profile.full_output is not None:
        expected = profile.full_output.index_select(
            0, arrays.as_tensor(query.centres, query.graph.x.device)
        )
    else:
        rng = np.random.default_rng(0)
        reference_graph = wider_reference(query.graph, field, rng)
        full = node_perturbations(query, field, np.ones((1, field.size), dtype=bool))
        expected = evaluate_one_by_one(
            query.model, query.graph, field, reference_graph, full, False
        )[0]
    profile.layers = profile.layers or ModelLayers.of(query.model.submodules)
    states = states_around_centres(query, shortcuts)
    evaluate = batch_evaluation(query, shortcuts, profile.layers, states)
    return Evaluator(
        field,
        depth,
        shortcuts.reach,
        evaluate,
        CHECKS,
        slopes=batch_slopes(query, shortcuts, profile.layers),
        expected_output=expected,
        outputs=profile.full_output,
        replays=required_replays(query, profile),
        proved=True,
        states=states,
        has_kernels=profile.layers.all_fast,
    )


def _check_model(query: Query, profile: ModelProfile, depth: int) -> None:
    """Compare batches with single calls on samples of the graph; cache the full-graph output."""
    graph, model = query.graph, query.model
    profile.checked = True
    try:
        for shortcuts, _ in shortcut_candidates(model, depth):
            if all(_shortcuts_hold(query, shortcuts, depth, seed) for seed in range(2)):
                if fits_one_call(graph):
                    profile.full_output = call_on(model, graph)
                    source, target = graph.edge_index.cpu().numpy()
                    profile.is_undirected = is_undirected(source, target, graph.num_nodes)
                profile.shortcuts = shortcuts
                return
        distrust_structure(query)
    except ModelError:
        return  # the model fails on samples, or at all: the full checks show which


def _shortcuts_hold(query: Query, shortcuts: Shortcuts, depth: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    few = replace(
        query,
        graph=graphs.subgraph(query.graph, sample_neighbourhood(query.graph, rng)),
        kind="node",
        centres=np.zeros(1, dtype=np.int64),
        memory=1 << 29,
    )
    field = fields.in_neighbourhood(few.graph, few.centres, depth)
    return batch_equals_single_calls(few, field, shortcuts, full_reference(few.graph, field), rng)
