"""The evaluators that a query can be answered with, each checked against plain calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from graphsvx.core import field as fields
from graphsvx.core.arrays import Ids, as_tensor
from graphsvx.core.field import Field
from graphsvx.core.model import Model
from graphsvx.core.perturbation import HopCounts, Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.batches import BatchEvaluator, Shortcuts
from graphsvx.engine.checks import (
    batch_equals_single_calls,
    copies_equal_single_calls,
    equals_plain_calls,
    probe_perturbations,
    require_deterministic,
)
from graphsvx.engine.evaluator import Evaluate, Evaluator, Slopes, StatesOfField
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lookup import Lookup
from graphsvx.engine.plain import (
    evaluate_copies,
    evaluate_one_by_one,
    full_reference,
    undirected_reference,
)
from graphsvx.engine.profile import ModelProfile, profile_for
from graphsvx.engine.rounding import allclose
from graphsvx.engine.state_graph import StateGraphs
from graphsvx.engine.trust import (
    distrust_structure,
    has_known_structure,
    reads_degrees,
    reference_graph_for,
)
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import give_up

SAME_WIDER = "same output on a wider part of the graph"
SAME_ALONE = "same output in a batch as alone"
SAME_AGAIN = "same output when called again"
CHECKS = (SAME_WIDER, SAME_ALONE, SAME_AGAIN)
"""What was compared, in the words of the certificate."""
_REPLAYS_LOOK_UPS = 16
ONE_BY_ONE = (
    "one call a coalition on the whole graph: graphs in one batch change each other's output"
)
_COPIED = (
    "features were copied for each perturbed graph: storing equal rows once changed the output"
)


def field_evaluators(
    query: Query, depth: int | None, seed: int, replays: int
) -> Iterator[Evaluator]:  # fmt: skip
    """Evaluators on the receptive field: shortcuts, copied feature rows, all nodes upstream."""
    all_reaching = (
        f"all nodes that can reach the explained one were evaluated: {depth} hops are not enough"
    )
    candidates: list[tuple[Shortcuts, str | None]] = [
        (Shortcuts(None), None),
        (Shortcuts(None, shared_rows=False), _COPIED),
    ]
    if depth is not None:
        candidates = [
            *shortcut_candidates(query.model, depth),
            (Shortcuts(depth + 1, shared_rows=False), _COPIED),
            (Shortcuts(None), all_reaching),
        ]
    profile = profile_for(query.model, query.graph)
    for attempt, (shortcuts, reason) in enumerate(candidates):
        if reason is not None:
            replays = distrust_structure(query)
        field = fields.in_neighbourhood(
            query.graph, query.centres, None if shortcuts.reach is None else depth
        )
        rng = np.random.default_rng(seed)
        reference_graph = reference_graph_for(query, field, rng)
        if batch_equals_single_calls(query, field, shortcuts, reference_graph, rng):
            layers = ModelLayers.of(query.model.submodules)
            states = states_around_centres(query, shortcuts)
            fast = batch_evaluation(query, shortcuts, layers, states)
            deep = None if shortcuts.reach is None else depth
            slopes = batch_slopes(query, shortcuts, layers)
            yield Evaluator(
                field, deep, shortcuts.reach, fast, CHECKS, reason, replays=replays, slopes=slopes,
                states=states, has_kernels=has_known_structure(query, profile) and layers.all_fast,
            )  # fmt: skip
        elif not attempt:
            require_deterministic(query, field, reference_graph)


def shortcut_candidates(model: Model, depth: int) -> list[tuple[Shortcuts, str | None]]:
    """Combinations of shortcuts, fastest first."""
    if not reads_degrees(model):
        return [(Shortcuts(depth, depth, products=True), None), (Shortcuts(depth, depth), None)]
    return [
        (Shortcuts(depth + 1, depth, degrees_only=True, products=True), None),
        (Shortcuts(depth + 1, depth, degrees_only=True), None),
        (Shortcuts(depth + 1, depth), None),
    ]


def batch_evaluation(
    query: Query, shortcuts: Shortcuts, layers: ModelLayers, states: StatesOfField | None = None
) -> Evaluate:
    """Evaluation of perturbed graphs in batches, with these shortcuts; of many by look-ups."""

    def evaluate(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:
        batches = BatchEvaluator(query.model, query.graph, field, query.memory, shortcuts, layers)
        if states is not None and len(perturbations) >= FEWEST_GRAPHS:
            lookup = CentreLookup(states(field), query.memory)
            out = lookup(perturbations, lambda at: batches(perturbations.take(at), hops[at]))
            if out is not None:
                return out
        return batches(perturbations, hops)

    return evaluate


def states_around_centres(query: Query, shortcuts: Shortcuts) -> StatesOfField | None:
    """States of nodes around the explained ones, by which many perturbed graphs are looked up.

    None: the structure of the model is not known, or it takes more than features and edges.
    """
    structure, depth = profile_for(query.model, query.graph).structure, shortcuts.rounds
    if structure is None or not structure.known or depth is None:
        return None
    if query.model.scores_pairs or query.graph.attributes:
        return None
    degrees = reads_degrees(query.model)
    return lambda field: StateGraphs(query.model, query.graph, field, depth, degrees)


def batch_slopes(query: Query, shortcuts: Shortcuts, layers: ModelLayers) -> Slopes | None:
    """Derivatives by the activity of nodes, with these shortcuts; None: they do not give them."""

    def slopes(
        field: Field, perturbations: Perturbations, hops: HopCounts,
        score: Callable[[Tensor], Tensor],
    ) -> Tensor | None:  # fmt: skip
        evaluator = BatchEvaluator(
            query.model, query.graph, field, query.memory, shortcuts, layers, lazy_from=0
        )
        return evaluator.slopes(perturbations, hops, score)

    return slopes if shortcuts.products else None


def undirected_evaluators(query: Query, depth: int, seed: int, replays: int) -> Iterator[Evaluator]:
    """Evaluators on the undirected neighbourhood.

    Correct for every model with `depth` rounds of message passing. Copies are batched, and each
    round trimmed, where that gives the outputs of single calls; otherwise there is one call per
    coalition.
    """
    graph, centres = query.graph, query.centres
    field = fields.undirected_neighbourhood(graph, centres, depth)
    reference, wider = (
        undirected_reference(
            graph, field, fields.undirected_neighbourhood(graph, centres, depth + extra)
        )
        for extra in (0, 1)
    )
    perturbations = probe_perturbations(query, field, np.random.default_rng(seed))
    profile = profile_for(query.model, graph)
    larger = () if profile.neighbourhood_suffices else (wider, full_reference(graph, field))
    try:
        alone, *others = (
            evaluate_one_by_one(query.model, graph, field, reference_graph, perturbations, False)
            for reference_graph in (reference, *larger)
        )
    except ModelError as error:
        # It takes the whole graph only (a table with a row for each node).
        give_up("the neighbourhood was not evaluated by itself", error)
        return
    require_deterministic(query, field, reference)
    if not all(
        equals_plain_calls(query, field, reference, perturbations, alone, other) for other in others
    ):
        return
    profile.neighbourhood_suffices = True  # later questions are compared by their replays

    def in_copies(rounds: int | None) -> Evaluate:
        return lambda field, perturbations, _: evaluate_copies(
            query.model, graph, field, reference, perturbations, query.memory, rounds
        )

    def one_at_a_time(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:  # noqa: ARG001  (all matter)
        return evaluate_one_by_one(query.model, graph, field, reference, perturbations, False)

    reason = (
        "the neighbourhood: the model has layers that are not known to pass messages "
        "along the edges only"
    )
    checks = (SAME_WIDER, SAME_AGAIN)
    for rounds, copies in ((depth, "copies"), (None, "whole copies")):
        if copies_equal_single_calls(query, field, reference, perturbations, alone, rounds):
            yield Evaluator(
                field, depth, None, in_copies(rounds), CHECKS, f"{copies} of {reason}",
                local=False, replays=replays,
            )  # fmt: skip
    yield Evaluator(field, depth, None, one_at_a_time, checks, f"one call a coalition on {reason}",
                 local=False, replays=replays, batched=False)  # fmt: skip


def whole_graph_evaluators(
    query: Query, seed: int, replays: int, profile: ModelProfile
) -> Iterator[Evaluator]:
    """Evaluators of graph-level queries: look-ups, batches of whole graphs."""
    field = fields.whole_graph(query.graph)
    rng = np.random.default_rng(seed)
    reference_graph = full_reference(query.graph, field)
    checks = (SAME_ALONE, SAME_AGAIN)
    lookup, no_look_ups = _lookup(query, field, profile)
    for shortcuts, reason in (
        (Shortcuts(None, keep_all_nodes=True), None),
        (Shortcuts(None, shared_rows=False, keep_all_nodes=True), _COPIED),
    ):
        if reason is not None:
            replays = distrust_structure(query)
        if batch_equals_single_calls(query, field, shortcuts, reference_graph, rng):
            fast = batch_evaluation(query, shortcuts, ModelLayers.of(query.model.submodules))
            batched = Evaluator(
                field, None, None, fast, checks, reason, local=False, replays=replays
            )
            if lookup is not None:
                declined: list[str] = []
                yield replace(
                    batched,
                    replays=max(replays, _REPLAYS_LOOK_UPS),
                    lookup=lookup,
                    decline=declined.append,
                )
                lookup = None
                no_look_ups = (declined or ["they differ from the model's own outputs"])[-1]
            without = f"each perturbed graph was evaluated as a whole: {no_look_ups}"
            yield replace(batched, fallback=without if reason is None else reason)


def _lookup(query: Query, field: Field, profile: ModelProfile) -> tuple[Lookup | None, str]:
    """Look-ups for a model of known structure, or None and why there are none."""
    structure = profile.structure
    if structure is None or not structure.known:
        return None, "the model's structure is unknown" if structure is None else structure.reason
    if profile.depth is None:
        return None, "it is not known how far the model passes messages"
    if query.graph.attributes:
        return None, "the model takes further attributes of nodes or edges"
    degrees = reads_degrees(query.model)
    return Lookup(StateGraphs(query.model, query.graph, field, profile.depth, degrees)), ""


def plain_evaluator(query: Query) -> Evaluator:
    """Evaluator with one plain call per coalition on the whole graph: correct for every model."""
    profile = profile_for(query.model, query.graph)
    field = (
        fields.whole_graph(query.graph)
        if query.kind == "graph"
        else fields.undirected_neighbourhood(
            query.graph, query.centres, None, everyone=query.removes_rows
        )
    )
    require_deterministic(query, field, full_reference(query.graph, field))
    reason = ONE_BY_ONE
    if query.removes_rows:
        reason = "one call a coalition on the whole graph: switched-off nodes are removed"
    evaluate = partial(evaluate_plainly, query)
    return Evaluator(
        field, None, None, evaluate, (SAME_AGAIN,), reason,
        local=False, proved=True, batched=False, seconds_of_call=profile.seconds_of_call,
    )  # fmt: skip


def evaluate_plainly(
    query: Query,
    field: Field,
    perturbations: Perturbations,
    hops: HopCounts,  # noqa: ARG001  (all matter)
) -> Tensor:
    """Outputs by the definition: one plain call a perturbed graph on the whole graph."""
    reference = full_reference(query.graph, field)
    graph_level = query.kind == "graph"
    return evaluate_one_by_one(
        query.model, query.graph, field, reference, perturbations, graph_level
    )


# Many perturbed graphs around explained nodes, by the states of the nodes in them.
#
# The output of an explained node depends on what its neighbours send in the last round, and each
# of them has far fewer states than there are perturbed graphs (`engine.state_graph`). All rounds
# but the last one are computed once for each state; the last one, and the head of the model, once
# for each perturbed graph.


FEWEST_GRAPHS = 1 << 11
"""Perturbed graphs from which on states are numbered: of fewer, most states differ."""
_CHECKED = 16  # graphs of each batch that are evaluated without look-ups too


@dataclass(frozen=True, eq=False)
class CentreLookup:
    """Evaluates perturbed graphs of a model of known structure at the centres of a field."""

    states: StateGraphs
    memory: int

    def __call__(
        self, perturbations: Perturbations, in_batches: Callable[[Ids], Tensor]
    ) -> Tensor | None:
        """Outputs at the centres, [graphs, centres, outputs].

        None: there are too many states, or some outputs are not those that `in_batches` gives for
        the graphs at these places.
        """
        if not self.states.may_have_few(len(perturbations)):
            return None
        step = self.states.block(self.memory)
        parts = []
        for first in range(0, len(perturbations), step):
            part = perturbations.take(slice(first, first + step))
            outputs = self._outputs(part, most_states=len(perturbations))
            if outputs is None:
                return None
            parts.append(outputs)
        out = torch.cat(parts)
        checked = np.linspace(0, len(out) - 1, _CHECKED).astype(np.int64)
        agree = allclose(out[as_tensor(checked, out.device)], in_batches(checked), out)
        return out if agree else None

    def _outputs(self, perturbations: Perturbations, most_states: int) -> Tensor | None:
        states = self.states.number_few(perturbations, most_states)
        if states is None:
            return None
        try:
            out = plain(self.states.evaluate(states, self.states.model))
        except ModelError as error:  # of the model or of look-ups: batches show which
            give_up("coalitions were evaluated in batches, not looked up", error)
            return None
        at = out.shape[0] - sum(len(node.example) for node in states.last)
        columns = []
        for node in states.last:
            columns.append(out.index_select(0, at + as_tensor(node.number, out.device)))
            at += len(node.example)
        return torch.stack(columns, 1)
