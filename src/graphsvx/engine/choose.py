"""Choose the evaluator of perturbed graphs: the fastest that passes run-time checks.

Many perturbed copies of the receptive field are evaluated in one batched call. That is wrong for
models with a larger receptive field than counted, models that mix the nodes of a batch (batch
statistics, pooling, virtual nodes) and models that are random. Each evaluator is therefore checked
twice: before the first batch against plain calls on a wider part of the graph, and after the games
by evaluating some coalitions again (`graphsvx.methods.playing`). On a mismatch the next slower
evaluator is used, and the certificate records it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from graphsvx.core import arrays
from graphsvx.core import field as fields
from graphsvx.core import graph as graphs
from graphsvx.core.depth import message_passing_depth
from graphsvx.core.edge_index import is_undirected
from graphsvx.core.field import Field
from graphsvx.core.model import Model, call_on
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.calls import Batching
from graphsvx.engine.checks import (
    ONE_BY_ONE,
    SAME_AGAIN,
    SAME_ALONE,
    SAME_WIDER,
    equals_plain_calls,
    field_is_undirected,
    gives_plain_outputs,
    probe_perturbations,
    require_deterministic,
    unperturbed,
)
from graphsvx.engine.copies import Copies, CopiesByType, batchings
from graphsvx.engine.evaluator import (
    Checks,
    Evaluator,
    Plain,
    full_reference,
    plain_calls,
    undirected_reference,
    wider_reference,
)
from graphsvx.engine.kernels import ModelLayers
from graphsvx.engine.profile import (
    ModelProfile,
    fits_one_call,
    invalidate,
    profile_for,
    sample_neighbourhood,
)
from graphsvx.engine.rows import Rows, Shortcuts
from graphsvx.engine.states import States, TooManyStatesError
from graphsvx.engine.trust import (
    distrust_structure,
    has_known_structure,
    needs_small_batches,
    plain_up_to,
    reads_degrees,
    reads_in_edges_only,
    replays_by_type,
    required_replays,
)
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import collected, give_up, note

Result = TypeVar("Result")

CHECKS = (SAME_WIDER, SAME_ALONE, SAME_AGAIN)
_COPIED = (
    "features were copied for each perturbed graph: storing equal rows once changed the output"
)
_UNKNOWN_LAYERS = "the model has layers that are not known to pass messages along the edges only"
_BATCHES_FAILED = "a way of evaluating coalitions in batches was not taken"
_REPLAYS_LOOK_UPS = 16
# Bytes of a batch of a model whose tensors grow faster than the batch: about 512 nodes and edges.
_SMALL_BATCH = 1 << 17

Candidate = Callable[[ModelError | None], Evaluator | None]
"""Makes an evaluator, given why the one before it failed (None: its outputs were others); None if
it does not pass its checks."""


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
    failure: ModelError | None = None
    last: ModelError | None = None

    def attempt(evaluator: Evaluator) -> tuple[Result] | None:
        nonlocal failure, last
        try:
            result, last = run(evaluator), None
        except ModelError as error:
            # Raised by the model or by a shortcut: the next, slower evaluator shows which.
            failure = last = error
            give_up("a faster way of evaluating coalitions was not taken", error)
            return None
        return (result,) if holds(evaluator, result) else None

    cached = cached_evaluator(query)
    if cached is not None:
        if (outcome := attempt(cached)) is not None:
            return outcome[0]
        _reject_cached(query, cached)
    for make in candidates(query, hops, seed):
        candidate = make(last)
        if candidate is not None and (outcome := attempt(candidate)) is not None:
            return outcome[0]
    raise failure or ModelError("the model gives another output each time it is called")


def choose_evaluator(query: Query, hops: int | None, seed: int) -> Evaluator:
    """The fastest evaluator that passes the checks before the first batch, for `evaluate`."""
    cached = cached_evaluator(query)
    if cached is not None:
        if _gives_expected_output(query, cached):
            return cached
        invalidate(query.model)
    evaluators = (make(None) for make in candidates(query, hops, seed))
    return next(evaluator for evaluator in evaluators if evaluator is not None)


def evaluate(evaluator: Evaluator, perturbations: Perturbations) -> Tensor:
    """Raw outputs of perturbed graphs over the evaluator's field, some of them verified.

    Where a replayed one differs, all are played by plain calls on the whole graph.
    """
    field, replays = evaluator.field, evaluator.checks.replays
    out = evaluator.evaluate(field, perturbations)
    if not replays:
        return out
    replayed = np.unique(np.linspace(0, len(perturbations) - 1, replays + 1).astype(np.int64))
    alone = evaluator.plain(field, np.random.default_rng(0))
    sample = perturbations.take(replayed)
    played = out[arrays.as_tensor(replayed, out.device)]
    if equals_plain_calls(alone, field, sample, alone.evaluate(field, sample), played, out):
        return out
    return evaluator.plain(field).evaluate(field, perturbations)


# The ways in which a query can be evaluated, fastest first.


def candidates(query: Query, hops: int | None, seed: int) -> list[Candidate]:
    """Ways to evaluate a query; the last makes one plain call per coalition."""
    if query.removes_rows:
        return [lambda _: plain_evaluator(query)]
    profile = profile_for(query.model, query.graph)
    if query.graph.has_types:
        profile.explained += 1
        return _ByType(query, hops, seed, profile).candidates()
    if _depth_changed(query, profile):  # the cached profile is that of the model before it changed
        invalidate(query.model)
        profile = profile_for(query.model, query.graph)
    replays = required_replays(query, profile)
    if profile.structure is not None and profile.structure.failed:
        note([profile.structure.reason])
    if profile.structure is not None and profile.structure.combines_nodes:
        return [lambda _: plain_evaluator(query)]
    if needs_small_batches(query, profile):
        query = replace(query, memory=min(query.memory, _SMALL_BATCH))
    shortcuts = _with_shortcuts(query, hops, seed, replays, profile)
    return [
        *(partial(_with_trust, query, profile, make) for make in shortcuts),
        lambda _: plain_evaluator(query),
    ]


def _with_trust(
    query: Query, profile: ModelProfile, make: Candidate, failure: ModelError | None
) -> Evaluator | None:
    """An evaluator that says whether it is proved, and which games are plain calls if not."""
    evaluator = make(failure)
    if evaluator is None:
        return None
    # Read now: a check that failed leaves the structure unknown.
    proved = profile.structure is not None and profile.structure.known
    few = 0 if proved else plain_up_to(query.graph, profile)
    return replace(evaluator, checks=replace(evaluator.checks, proved=proved, plain_up_to=few))


def _with_shortcuts(
    query: Query, hops: int | None, seed: int, replays: int, profile: ModelProfile
) -> list[Candidate]:
    if query.kind == "graph":
        batches = _WholeGraph(query, seed, replays, profile)
        return [batches.by_states, batches.in_batches, batches.with_copied_rows]
    depth = profile.depth
    has_known_layers = profile.structure is not None and profile.structure.known
    in_edges_only = depth is None or has_known_layers or reads_in_edges_only(query.model)
    makers: list[Candidate] = []
    if in_edges_only:
        depth = hops if depth is None else depth
        makers += _rows_on_field(query, depth, seed, replays)
    if depth is not None:
        around = _Neighbourhood(query, depth, seed, replays)
        trimmed, whole_copies = (partial(around.copies, rounds) for rounds in (depth, None))
        makers += [trimmed, whole_copies, around.one_at_a_time]
    return makers


def _rows_on_field(query: Query, depth: int | None, seed: int, replays: int) -> list[Candidate]:
    """On the receptive field: with all shortcuts, with copied feature rows, all nodes upstream."""
    all_reaching = (
        f"all nodes that can reach the explained one were evaluated: {depth} hops are not enough"
    )
    options: list[tuple[Shortcuts, str | None]] = [
        (Shortcuts(None), None),
        (Shortcuts(None, shared_rows=False), _COPIED),
    ]
    if depth is not None:
        options = [
            *((shortcuts, None) for shortcuts in shortcut_candidates(query.model, depth)),
            (Shortcuts(depth + 1, shared_rows=False), _COPIED),
            (Shortcuts(None), all_reaching),
        ]

    def rows(
        is_first: bool, shortcuts: Shortcuts, reason: str | None, _: ModelError | None
    ) -> Evaluator | None:
        # Of a known structure the shortcuts before would hold.
        required = replays if reason is None else distrust_structure(query)
        deep = None if shortcuts.reach is None else depth
        field = fields.in_neighbourhood(query.graph, query.centres, deep)
        checks = Checks(CHECKS, reason, replays=required)
        known_structure = has_known_structure(query, profile_for(query.model, query.graph))
        evaluator = _rows(query, field, deep, shortcuts, checks, known_structure)
        rng = np.random.default_rng(seed)
        alone = plain_calls(query, field, rng)
        if _batch_equals_single_calls(evaluator, alone, rng):
            return _with_states(evaluator)
        if is_first:
            require_deterministic(alone)
        return None

    return [
        partial(rows, not attempt, shortcuts, reason)
        for attempt, (shortcuts, reason) in enumerate(options)
    ]


def shortcut_candidates(model: Model, depth: int) -> list[Shortcuts]:
    """Combinations of shortcuts, fastest first."""
    if not reads_degrees(model):
        return [Shortcuts(depth, depth, products=True), Shortcuts(depth, depth)]
    return [
        Shortcuts(depth + 1, depth, degrees_only=True, products=True),
        Shortcuts(depth + 1, depth, degrees_only=True),
        Shortcuts(depth + 1, depth),
    ]


def _rows(
    query: Query,
    field: Field,
    depth: int | None,
    shortcuts: Shortcuts,
    checks: Checks,
    structure_known: bool,
    layers: ModelLayers | None = None,
) -> Rows:
    return Rows(
        query,
        field,
        depth,
        shortcuts.reach,
        not shortcuts.keep_all_nodes,
        checks,
        shortcuts=shortcuts,
        layers=layers or ModelLayers.of(query.model.submodules),
        structure_known=structure_known,
    )


def _batch_equals_single_calls(rows: Rows, alone: Plain, rng: np.random.Generator) -> bool:
    """Whether a batch with these shortcuts gives the outputs of single calls."""
    probes = probe_perturbations(rows.query, rows.field, rng)
    outputs = alone.evaluate(rows.field, probes)
    # With the shortcuts of a large batch, however small this one is.
    return gives_plain_outputs(replace(rows, lazy_from=0), alone, probes, outputs, _BATCHES_FAILED)


def _with_states(rows: Rows) -> Evaluator:
    """Look-ups of the states of nodes around the explained ones where graphs are many.

    Not where the structure of the model is unknown, or it takes more than features and edges.
    """
    query, rounds = rows.query, rows.shortcuts.rounds
    if not rows.structure_known or rounds is None:
        return rows
    if query.model.scores_pairs or query.graph.attributes:
        return rows
    return _states(rows, rounds)


def _states(rows: Rows, rounds: int) -> States:
    return States(
        rows.query,
        rows.field,
        rows.depth,
        rows.reach,
        rows.local,
        rows.checks,
        rows=rows,
        rounds=rounds,
        reads_degrees=reads_degrees(rows.query.model),
    )


@dataclass(frozen=True, eq=False)
class _Neighbourhood:
    """Evaluators on the undirected neighbourhood.

    Correct for every model with `depth` rounds of message passing. Copies are batched, and each
    round trimmed, where that gives the outputs of single calls; otherwise there is one call per
    coalition.
    """

    query: Query
    depth: int
    seed: int
    replays: int

    @cached_property
    def _alone(self) -> Plain:
        graph, centres = self.query.graph, self.query.centres
        field = fields.undirected_neighbourhood(graph, centres, self.depth)
        reference = undirected_reference(graph, field, field)
        reason = f"the neighbourhood: {_UNKNOWN_LAYERS}"
        checks = Checks(
            (SAME_WIDER, SAME_AGAIN), f"one call a coalition on {reason}", replays=self.replays
        )
        return Plain(self.query, field, self.depth, checks=checks, reference=reference)

    @cached_property
    def _probes(self) -> Perturbations:
        return probe_perturbations(self.query, self._alone.field, np.random.default_rng(self.seed))

    @cached_property
    def _outputs(self) -> Tensor | None:
        """Outputs of the probes; None: those on wider parts of the graph are others."""
        graph, alone, field = self.query.graph, self._alone, self._alone.field
        profile = profile_for(self.query.model, graph)
        wider = fields.undirected_neighbourhood(graph, self.query.centres, self.depth + 1)
        references = [undirected_reference(graph, field, wider), full_reference(graph, field)]
        try:
            outputs = alone.evaluate(field, self._probes)
            others = [
                replace(alone, reference=reference).evaluate(field, self._probes)
                for reference in ([] if profile.neighbourhood_suffices else references)
            ]
        except ModelError as error:
            # It takes the whole graph only (a table with a row for each node).
            give_up("the neighbourhood was not evaluated by itself", error)
            return None
        require_deterministic(alone)
        if not all(
            equals_plain_calls(alone, field, self._probes, outputs, other) for other in others
        ):
            return None
        profile.neighbourhood_suffices = True  # later questions are compared by their replays
        return outputs

    def copies(self, rounds: int | None, _: ModelError | None) -> Evaluator | None:
        """Copies of the neighbourhood in batches, trimmed to what each round needs or whole."""
        alone, outputs = self._alone, self._outputs
        if outputs is None or alone.reference is None:
            return None
        copies = Copies(
            self.query, alone.field, self.depth, reference=alone.reference, rounds=rounds
        )
        reason = f"{copies.describe()}: {_UNKNOWN_LAYERS}"
        copies = replace(copies, checks=Checks(CHECKS, reason, replays=self.replays))
        sentence = "copies of the neighbourhood were not evaluated together"
        return (
            copies if gives_plain_outputs(copies, alone, self._probes, outputs, sentence) else None
        )

    def one_at_a_time(self, _: ModelError | None) -> Evaluator | None:
        """One call a coalition on the neighbourhood."""
        return None if self._outputs is None else self._alone


@dataclass(frozen=True, eq=False)
class _WholeGraph:
    """Evaluators of graph-level queries: look-ups, batches of whole graphs."""

    query: Query
    seed: int
    replays: int
    profile: ModelProfile

    def _checked(self, shortcuts: Shortcuts, checks: Checks) -> Rows | None:
        field = fields.whole_graph(self.query.graph)
        rows = _rows(self.query, field, None, shortcuts, checks, structure_known=False)
        alone = Plain(self.query, field)
        passed = _batch_equals_single_calls(rows, alone, np.random.default_rng(self.seed))
        return rows if passed else None

    @cached_property
    def _batches(self) -> Rows | None:
        checks = Checks((SAME_ALONE, SAME_AGAIN), replays=self.replays)
        return self._checked(Shortcuts(None, keep_all_nodes=True), checks)

    @cached_property
    def _no_look_ups(self) -> str | None:
        """Why look-ups are not tried."""
        structure = self.profile.structure
        if structure is None or not structure.known:
            return "the model's structure is unknown" if structure is None else structure.reason
        if self.profile.depth is None:
            return "it is not known how far the model passes messages"
        if self.query.graph.attributes:
            return "the model takes further attributes of nodes or edges"
        return None

    def by_states(self, _: ModelError | None) -> Evaluator | None:
        """Look-ups, of models of known structure."""
        rows, rounds = self._batches, self.profile.depth
        if rows is None or rounds is None or self._no_look_ups is not None:
            return None
        replays = max(self.replays, _REPLAYS_LOOK_UPS)
        return _states(replace(rows, checks=replace(rows.checks, replays=replays)), rounds)

    def in_batches(self, failure: ModelError | None) -> Evaluator | None:
        """Batches of whole graphs."""
        rows = self._batches
        if rows is None:
            return None
        too_many = isinstance(failure, TooManyStatesError)
        reason = str(failure) if too_many else "they differ from the model's own outputs"
        without = self._no_look_ups or reason
        sentence = f"each perturbed graph was evaluated as a whole: {without}"
        return replace(rows, checks=replace(rows.checks, fallback=sentence))

    def with_copied_rows(self, _: ModelError | None) -> Evaluator | None:
        """Batches of whole graphs that share no rows."""
        replays = distrust_structure(self.query)
        checks = Checks((SAME_ALONE, SAME_AGAIN), _COPIED, replays=replays)
        return self._checked(Shortcuts(None, shared_rows=False, keep_all_nodes=True), checks)


@dataclass(frozen=True, eq=False)
class _ByType:
    """Evaluators of models that take nodes and edges by type: batches of copies.

    What passed for a model and a graph before is taken first, and compared with the output of the
    unperturbed graph and with fewer plain calls.
    """

    query: Query
    hops: int | None
    seed: int
    profile: ModelProfile

    def candidates(self) -> list[Candidate]:
        """Copies with the shortcuts that passed before, with each that there are, plain calls."""
        shortcuts = batchings(self.query.model, self._copies.depth)
        checked = [partial(self.checked, not at, batching) for at, batching in enumerate(shortcuts)]
        return [self.as_before, *checked, self.plain]

    @cached_property
    def _copies(self) -> CopiesByType:
        query, graph, profile = self.query, self.query.graph, self.profile
        replays = replays_by_type(graph)
        checks = Checks(
            ("same output on the whole graph", SAME_ALONE, SAME_AGAIN),
            replays=replays,
            replays_vary=replays_by_type(graph, 2) < replays,
            plain_up_to=plain_up_to(graph, profile),
        )
        depth = reach = self.hops if profile.depth is None else profile.depth
        if query.kind == "graph":
            return CopiesByType(query, fields.whole_graph(graph), checks=checks)
        if depth is not None and reads_degrees(query.model):
            reach = depth + 1
        field = fields.in_neighbourhood(graph, query.centres, depth)
        return CopiesByType(query, field, depth, reach, local=True, checks=checks)

    @cached_property
    def _plainly(self) -> Plain:
        return self._copies.plain(self._copies.field)

    @cached_property
    def _probes(self) -> Perturbations:
        return probe_perturbations(self.query, self._copies.field, np.random.default_rng(self.seed))

    @cached_property
    def _outputs(self) -> Tensor:
        return self._plainly.evaluate(self._copies.field, self._probes)

    def _rejected(self) -> None:
        """Forget what passed, which the games have shown to differ."""
        if self.query.kind in (self.profile.shortcuts or {}):
            self.profile.shortcuts = None

    def as_before(self, _: ModelError | None) -> Evaluator | None:
        """Copies with the shortcuts that passed before."""
        batching = (self.profile.shortcuts or {}).get(self.query.kind)
        if batching is None:
            return None
        note(self.profile.given_up)
        field = self._copies.field
        checks = replace(
            self._copies.checks,
            expected_output=self._plainly.evaluate(field, unperturbed(self.query, field))[0],
            replays=replays_by_type(self.query.graph, self.profile.explained),
        )
        return replace(self._copies, batching=batching, checks=checks)

    def checked(self, is_first: bool, batching: Batching, _: ModelError | None) -> Evaluator | None:
        """Copies with these shortcuts."""
        self._rejected()
        evaluator, field, outputs = self._copies, self._copies.field, self._outputs
        evaluator = replace(evaluator, batching=batching)
        try:
            batch = evaluator.evaluate(field, self._probes)
        except ModelError as error:
            # Single calls succeed, so the model does not support such a batch.
            self.profile.given_up.append(give_up(_BATCHES_FAILED, error))
            return None
        if equals_plain_calls(self._plainly, field, self._probes, outputs, batch):
            self.profile.shortcuts = {**(self.profile.shortcuts or {}), self.query.kind: batching}
            return evaluator
        if is_first:
            require_deterministic(self._plainly)
        return None

    def plain(self, _: ModelError | None) -> Evaluator:
        """One call a coalition on the whole graph."""
        self._rejected()
        return plain_evaluator(self.query)


def plain_evaluator(query: Query) -> Plain:
    """Evaluator with one plain call per coalition on the whole graph: correct for every model."""
    field = (
        fields.whole_graph(query.graph)
        if query.kind == "graph"
        else fields.undirected_neighbourhood(
            query.graph, query.centres, None, everyone=query.removes_rows
        )
    )
    reason = ONE_BY_ONE
    if query.removes_rows:
        reason = "one call a coalition on the whole graph: switched-off nodes are removed"
    checks = Checks((SAME_AGAIN,), reason, proved=True)
    seconds = profile_for(query.model, query.graph).seconds_of_call
    evaluator = Plain(query, field, checks=checks, seconds=seconds)
    require_deterministic(evaluator)
    return evaluator


def _depth_changed(query: Query, profile: ModelProfile) -> bool:
    try:
        return message_passing_depth(query.model, query.graph) != profile.depth
    except ModelError:
        return False


# Evaluators built from checks that a model has passed on a graph before.


def cached_evaluator(query: Query) -> Evaluator | None:
    """Evaluator built from cached checks; None if there is none for this model and graph.

    For models of known structure that have shown, on samples of this graph, that a batch with all
    shortcuts gives what single calls give. That and the prediction on the whole graph are found
    out once. None: look more carefully.
    """
    if query.graph.has_types or query.removes_rows:
        return None
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
        reference = wider_reference(query.graph, field, np.random.default_rng(0))
        alone = Plain(query, field, reference=reference)
        expected = alone.evaluate(field, unperturbed(query, field))[0]
    profile.layers = profile.layers or ModelLayers.of(query.model.submodules)
    checks = Checks(
        CHECKS,
        proved=True,
        replays=required_replays(query, profile),
        expected_output=expected,
        outputs=profile.full_output,
    )
    rows = _rows(
        query, field, depth, shortcuts, checks, structure_known=True, layers=profile.layers
    )
    return _with_states(rows)


def _check_model(query: Query, profile: ModelProfile, depth: int) -> None:
    """Compare batches with single calls on samples of the graph; cache the full-graph output."""
    graph, model = query.graph, query.model
    profile.checked = True
    try:
        for shortcuts in shortcut_candidates(model, depth):
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
    rows = _rows(few, field, depth, shortcuts, Checks(), structure_known=True)
    return _batch_equals_single_calls(rows, Plain(few, field), rng)


def _gives_expected_output(query: Query, evaluator: Evaluator) -> bool:
    """Whether the unperturbed graph has its expected output by this evaluator."""
    field = evaluator.field
    try:
        out = evaluator.evaluate(field, unperturbed(query, field))
    except ModelError:  # raised by the model or by a shortcut: the full checks show which
        return False
    return evaluator.checks.matches(out[0])


def _reject_cached(query: Query, cached: Evaluator) -> None:
    """Drop what is cached of a model; its structure is doubted unless it has changed."""
    changed = _has_changed(query, cached)
    invalidate(query.model)
    if not changed:
        distrust_structure(query)


def _has_changed(query: Query, cached: Evaluator) -> bool:
    """Whether the model's own outputs, the same in two calls, are not the cached ones."""
    outputs = cached.checks.outputs
    if outputs is None:
        return False
    try:
        first, second = (call_on(query.model, query.graph) for _ in range(2))
    except ModelError:
        return False
    return torch.equal(first, second) and not torch.equal(first, outputs)
