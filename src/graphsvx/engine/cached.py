"""Evaluators built from checks that a model has passed on a graph before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphsvx.core import arrays
from graphsvx.core import field as fields
from graphsvx.core import graph as graphs
from graphsvx.core.edge_index import is_undirected
from graphsvx.core.model import call_on
from graphsvx.core.query import Query
from graphsvx.engine.batches import Shortcuts
from graphsvx.engine.candidates import (
    CHECKS,
    batch_evaluation,
    batch_slopes,
    shortcut_candidates,
    states_around_centres,
)
from graphsvx.engine.checks import (
    batch_equals_single_calls,
    field_is_undirected,
    node_perturbations,
)
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.plain import evaluate_one_by_one, full_reference, wider_reference
from graphsvx.engine.profile import (
    ModelProfile,
    fits_one_call,
    profile_for,
    sample_neighbourhood,
)
from graphsvx.engine.trust import (
    distrust_structure,
    has_known_structure,
    required_replays,
)
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import collected, note


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
