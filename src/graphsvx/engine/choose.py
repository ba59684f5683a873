"""Choose the evaluator of perturbed graphs: the fastest that passes run-time checks.

Many perturbed copies of the receptive field are evaluated in one batched call. That is wrong for
models with a larger receptive field than counted, models that mix the nodes of a batch (batch
statistics, pooling, virtual nodes) and models that are random. Each evaluator is therefore checked
twice: before the first batch against plain calls on a wider part of the graph, and after the games
by evaluating some coalitions again (`graphsvx.methods.playing`). On a mismatch the next slower
evaluator is used, and the certificate records it. What a model has passed on a graph is kept: later
questions compare the output of the unperturbed graph, and replay less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from graphsvx.core import field as fields
from graphsvx.core.arrays import as_tensor
from graphsvx.core.calling import whole
from graphsvx.core.field import Field, Perturbations
from graphsvx.core.graph import is_undirected
from graphsvx.core.model import call_on, rows_of
from graphsvx.core.query import Query
from graphsvx.engine.evaluator import (
    ONE_BY_ONE,
    SAME_AGAIN,
    SAME_ALONE,
    SAME_WIDER,
    Checks,
    Evaluator,
    Plain,
    Probes,
    equals_plain_calls,
    field_is_undirected,
    full_reference,
    plain_calls,
    probe_perturbations,
    require_deterministic,
    undirected_reference,
    unperturbed,
)
from graphsvx.engine.profile import (
    ModelProfile,
    depth_changed,
    distrust_structure,
    fits_one_call,
    invalidate,
    needs_small_batches,
    plain_up_to,
    profile_for,
    read_into,
    replays_by_type,
    required_replays,
)
from graphsvx.engine.rows import Copies, Rows, Shortcuts
from graphsvx.engine.state_graph import TooManyStatesError
from graphsvx.engine.states import States
from graphsvx.errors import ModelError
from graphsvx.utils.context import collected, give_up, note, optional

Result = TypeVar("Result")

CHECKS = (SAME_WIDER, SAME_ALONE, SAME_AGAIN)
_TYPED_CHECKS = ("same output on the whole graph", SAME_ALONE, SAME_AGAIN)
_COPIED = (
    "features were copied for each perturbed graph: storing equal rows once changed the output"
)
_ALL_REACHING = "all nodes that can reach the explained one were evaluated: {} hops are not enough"
_NEIGHBOURHOOD = (
    "{} the neighbourhood: the model has layers that are not known to pass messages along the "
    "edges only"
)
_BATCHES_FAILED = "a way of evaluating coalitions in batches was not taken"
_REPLAYS_LOOK_UPS = 16
# Bytes of a batch of a model whose tensors grow faster than the batch: about 512 nodes and edges.
_SMALL_BATCH = 1 << 17


@dataclass(eq=False)
class Trial(Generic[Result]):
    """Runs a computation with one evaluator after the other, until one holds."""

    run: Callable[[Evaluator], Result]
    holds: Callable[[Evaluator, Result], bool]
    result: Result | None = None
    failure: ModelError | None = None
    """The error that the last evaluator ended with; None: its outputs were others."""
    last_error: ModelError | None = None

    def accepts(self, evaluator: Evaluator) -> bool:
        """Whether the computation held with an evaluator; then its result is kept."""
        self.failure = None
        try:
            self.result = self.run(evaluator)
        except ModelError as error:
            # Raised by the model or by a shortcut: the next, slower evaluator shows which.
            self.failure = self.last_error = error
            give_up("a faster way of evaluating coalitions was not taken", error)
            return False
        return self.holds(evaluator, self.result)


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
    trial = Trial(run, holds)
    if any_accepted(query, hops, seed, trial):
        return cast(Result, trial.result)
    random = ModelError("the model gives another output each time it is called")
    raise trial.last_error or random


def choose_evaluator(query: Query, hops: int | None, seed: int) -> Evaluator:
    """The fastest evaluator that passes the checks before the first batch, for `evaluate`."""

    def run(evaluator: Evaluator) -> tuple[Evaluator, Tensor | None]:
        if evaluator.checks.expected_output is None:
            return evaluator, None
        field = evaluator.field
        return evaluator, evaluator.evaluate(field, unperturbed(query, field))[0]

    evaluator, _ = run_verified(query, hops, seed, run, lambda e, ran: e.checks.matches(ran[1]))
    return evaluator


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
    played = out[as_tensor(replayed, out.device)]
    if equals_plain_calls(alone, field, sample, alone.evaluate(field, sample), played, out):
        return out
    return evaluator.plain(field).evaluate(field, perturbations)


def any_accepted(query: Query, hops: int | None, seed: int, trial: Trial[Result]) -> bool:
    """Whether a trial accepts an evaluator, fastest first; the last makes plain calls."""
    if query.removes_rows:
        return trial.accepts(plain_evaluator(query))
    profile, by_type = profile_for(query.model, query.graph), query.graph.has_types
    cached = cached_evaluator(query, hops, profile)
    if cached is not None:
        if trial.accepts(cached):
            return True
        distrust = not by_type and not _has_changed(query, profile)
        invalidate(query.model)
        if distrust:
            distrust_structure(query)
    elif not by_type and depth_changed(query, profile):
        invalidate(query.model)  # the profile is that of the model before it changed
    accepted = _Checked.of(query, hops, seed).any_accepted(trial)
    return accepted or trial.accepts(plain_evaluator(query))


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
    evaluator = Plain(query, field, checks=checks, seconds_of_call=seconds)
    require_deterministic(evaluator)
    return evaluator


@dataclass(frozen=True, eq=False)
class _Checked:
    """Evaluators of a query that give the outputs of plain calls on some perturbed graphs."""

    query: Query
    hops: int | None
    seed: int
    profile: ModelProfile
    replays: int
    """Number of coalitions of each game that must be evaluated again by plain calls."""

    @staticmethod
    def of(query: Query, hops: int | None, seed: int) -> _Checked:
        """For the full checks of a query."""
        profile = profile_for(query.model, query.graph)
        if query.graph.has_types:
            return _Checked(query, hops, seed, profile, required_replays(query, profile))
        read_into(profile, query)
        replays = required_replays(query, profile)
        if profile.structure is not None and profile.structure.failed:
            note([profile.structure.reason])
        if needs_small_batches(query, profile):
            query = replace(query, memory=min(query.memory, _SMALL_BATCH))
        return _Checked(query, hops, seed, profile, replays)

    @property
    def by_type(self) -> bool:
        """Whether the graph has types of nodes or edges."""
        return self.query.graph.has_types

    @property
    def pools(self) -> bool:
        """Whether whole graphs are explained."""
        return self.query.kind == "graph"

    @property
    def depth(self) -> int | None:
        """Rounds of message passing; `hops` where they cannot be counted, None for whole graphs."""
        if self.pools:
            return None
        return self.hops if self.profile.depth is None else self.profile.depth

    @property
    def keeps(self) -> bool:
        """Whether shortcuts that pass are taken by later questions of this kind too."""
        one_row = self.pools or self.query.model.scores_pairs
        return self.by_type or (self.profile.known and not one_row)

    def field(self, depth: int | None) -> Field:
        """The receptive field of so many rounds of message passing; for whole graphs all nodes."""
        if self.pools:
            return fields.whole_graph(self.query.graph)
        return fields.in_neighbourhood(self.query.graph, self.query.centres, depth)

    def kind(self, field: Field) -> tuple[str, int | None, bool]:
        """Queries of the same kind take the same shortcuts; loops leave some of them untried."""
        return self.query.kind, self.depth, field.has_loops

    def rows(
        self, field: Field, shortcuts: Shortcuts, replays: int, reason: str | None = None
    ) -> Rows:
        """Batches with these shortcuts; `reason`: why no faster ones are taken."""
        profile, passed = self.profile, CHECKS[1:] if self.pools else CHECKS
        return Rows(
            self.query,
            field,
            None if shortcuts.reach is None else self.depth,
            shortcuts.reach,
            not self.pools,
            self.checks(_TYPED_CHECKS if self.by_type else passed, replays, reason),
            has_kernels=profile.known and not self.pools and profile.layers.all_fast,
            has_slopes=shortcuts.degrees_only,
            shortcuts=shortcuts,
            layers=profile.layers,
        )

    def checks(self, passed: tuple[str, ...], replays: int, reason: str | None) -> Checks:
        """Read now whether the structure is known: a check that failed leaves it unknown."""
        graph, structure_known = self.query.graph, self.profile.known
        vary = self.by_type and len({*replays_by_type(graph)}) > 1
        most_plain = 0 if structure_known else plain_up_to(graph, self.profile)
        return Checks(passed, reason, structure_known, replays, vary, most_plain)

    def expecting(self, rows: Rows) -> Rows:
        """The same, with the model's own output to compare that of the full coalition with."""
        expected = _output_at_centres(self.query, rows.field, self.profile)
        outputs = None if self.by_type else self.profile.full_output
        return replace(rows, checks=replace(rows.checks, expected_output=expected, outputs=outputs))

    def with_states(self, rows: Rows) -> Evaluator:
        """Look-ups of the states of nodes around the explained ones where graphs are many.

        Not where the structure is unknown, or the model takes more than features and edges.
        """
        query, rounds = self.query, rows.shortcuts.rounds
        takes_more = query.model.scores_pairs or query.graph.attributes
        if not self.profile.known or rounds is None or takes_more:
            return rows
        return States.of(rows, rounds)

    @cached_property
    def shortcuts(self) -> list[Shortcuts]:
        """Combinations of shortcuts, fastest first."""
        depth, layers, plan = self.depth, self.profile.layers, self.query.model.plan
        # Layers that read degrees need the edges of nodes that no longer matter.
        reads = layers.reads_degrees if self.by_type else layers.may_read_degrees
        inner = outer = Shortcuts(None)
        if depth is not None:
            outer = Shortcuts(depth + 1, depth)
            slopes = not (self.by_type and reads)
            inner = replace(outer, reach=depth + reads, degrees_only=slopes)
        if not self.by_type:
            return [*dict.fromkeys((inner, outer))]
        # A model that gets ids of nodes looks its tables up by them.
        cuts = sorted({False, bool(plan.tables)}, reverse=not plan.takes_ids)
        return [replace(inner, cut_tables=cut) for cut in cuts]

    def passes(self, probes: Probes, evaluator: Evaluator, given_up: str = _BATCHES_FAILED) -> bool:
        """Whether an evaluator gives the outputs of plain calls.

        `given_up`: the sentence of the certificate, if it fails with an error.
        """
        alone, graphs, field = probes.alone, probes.perturbations, probes.alone.field
        passes = False
        with collected() as sentences, optional(given_up, ModelError):
            # Plain calls succeed, so after an error the model does not support this way.
            quick = evaluator.evaluate(field, graphs)
            passes = equals_plain_calls(alone, field, graphs, probes.outputs, quick)
        note(sentences)
        self.profile.given_up += [s for s in sentences if s not in self.profile.given_up]
        return passes

    def any_accepted(self, trial: Trial[Result]) -> bool:
        """Whether a trial accepts an evaluator with shortcuts, fastest first."""
        profile, depth = self.profile, self.profile.depth
        if profile.structure is not None and profile.structure.combines_nodes:
            return False
        if self.pools and not self.by_type:
            return self._whole_graphs_accepted(trial)
        follows_edges = self.by_type or depth is None or profile.known
        if (follows_edges or profile.layers.follow_edges) and self._field_accepted(trial):
            return True
        return depth is not None and not self.by_type and self._neighbourhood_accepted(trial, depth)

    def _field_accepted(self, trial: Trial[Result]) -> bool:
        """On the receptive field: with all shortcuts, with copied feature rows, all upstream."""
        query, profile, depth = self.query, self.profile, self.depth
        copied = Shortcuts(None if depth is None else depth + 1, shared_rows=False)
        options: list[tuple[Shortcuts, str | None]] = [
            (shortcuts, None) for shortcuts in self.shortcuts
        ]
        if self.by_type:
            options += [(replace(copied, cut_tables=s.cut_tables), None) for s in self.shortcuts]
        else:
            options.append((copied, _COPIED))
            if depth is not None:
                options.append((replace(copied, reach=None), _ALL_REACHING.format(depth)))
        probes: Probes | None = None
        for attempt, (shortcuts, reason) in enumerate(options):
            # Of a known structure the shortcuts before would hold.
            replays = self.replays if reason is None else distrust_structure(query)
            if probes is None or reason is not None:
                field = self.field(None if shortcuts.reach is None else depth)
                probes = Probes.of(query, field, self.seed)
            rows = self.rows(probes.alone.field, shortcuts, replays, reason)
            if self.passes(probes, rows):
                if self.keeps and reason is None:
                    rows = self.expecting(rows)
                    if rows.field.hops.max(initial=0) == (depth or 0):  # all rounds were tried
                        profile.shortcuts[self.kind(rows.field)] = shortcuts
                if trial.accepts(self.with_states(rows)):
                    return True
                profile.shortcuts.clear()  # the games have shown that they do not hold
            elif not attempt:
                require_deterministic(probes.alone)
        return False

    def _whole_graphs_accepted(self, trial: Trial[Result]) -> bool:
        """Look-ups, and batches of whole graphs."""
        probes = Probes.of(self.query, self.field(None), self.seed)
        rows = self.rows(probes.alone.field, Shortcuts(None), self.replays)
        if self.passes(probes, rows):
            without, rounds = self._no_look_ups, self.profile.depth
            if without is None and rounds is not None:
                replays = max(self.replays, _REPLAYS_LOOK_UPS)
                replayed = replace(rows, checks=replace(rows.checks, replays=replays))
                if trial.accepts(States.of(replayed, rounds)):
                    return True
                too_many = isinstance(trial.failure, TooManyStatesError)
                without = "they differ from the model's own outputs"
                without = str(trial.failure) if too_many else without
            sentence = f"each perturbed graph was evaluated as a whole: {without}"
            if trial.accepts(replace(rows, checks=replace(rows.checks, fallback=sentence))):
                return True
        replays = distrust_structure(self.query)
        rows = self.rows(rows.field, Shortcuts(None, shared_rows=False), replays, _COPIED)
        return self.passes(probes, rows) and trial.accepts(rows)

    @property
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

    def _neighbourhood_accepted(self, trial: Trial[Result], depth: int) -> bool:
        """On the undirected neighbourhood: copies in batches, or one call a coalition.

        Right for every model with so many rounds of message passing.
        """
        query, graph = self.query, self.query.graph
        field = fields.undirected_neighbourhood(graph, query.centres, depth)
        reference = undirected_reference(graph, field, field)
        alone = Plain(query, field, depth, reference=reference)
        probes = probe_perturbations(query, field, np.random.default_rng(self.seed))
        wider = fields.undirected_neighbourhood(graph, query.centres, depth + 1)
        references = [undirected_reference(graph, field, wider), full_reference(graph, field)]
        try:
            outputs = alone.evaluate(field, probes)
            others = [
                replace(alone, reference=reference).evaluate(field, probes)
                for reference in ([] if self.profile.neighbourhood_suffices else references)
            ]
        except ModelError as error:
            # It takes the whole graph only (a table with a row for each node).
            give_up("the neighbourhood was not evaluated by itself", error)
            return False
        require_deterministic(alone)
        if not all(equals_plain_calls(alone, field, probes, outputs, other) for other in others):
            return False
        self.profile.neighbourhood_suffices = True  # later questions are compared by their replays
        checks = self.checks(CHECKS, self.replays, _NEIGHBOURHOOD.format("copies of"))
        copies = Copies(query, field, depth, checks=checks, reference=reference)
        failed = "copies of the neighbourhood were not evaluated together"
        if self.passes(Probes(alone, probes, outputs), copies, failed) and trial.accepts(copies):
            return True
        reason = _NEIGHBOURHOOD.format("one call a coalition on")
        checks = self.checks((SAME_WIDER, SAME_AGAIN), self.replays, reason)
        return trial.accepts(replace(alone, checks=checks))


# Evaluators built from checks that a model has passed on a graph before.


def cached_evaluator(query: Query, hops: int | None, profile: ModelProfile) -> Evaluator | None:
    """An evaluator with the shortcuts that passed before; None: there are none for this query.

    The output of the unperturbed graph is compared with the model's own, found out once for all
    nodes. Directed graphs, of models of known structure, get the full checks.
    """
    checked = _Checked(query, hops, 0, profile, 0)
    if not checked.keeps or not profile.shortcuts:
        return None
    field = checked.field(checked.depth)
    shortcuts = profile.shortcuts.get(checked.kind(field))
    undirected = checked.by_type or profile.is_undirected
    if shortcuts is None or not (undirected or field_is_undirected(field)):
        return None
    note(profile.given_up)
    rows = checked.rows(field, shortcuts, required_replays(query, profile))
    return checked.with_states(checked.expecting(rows))


def _output_at_centres(query: Query, field: Field, profile: ModelProfile) -> Tensor:
    """What the model gives for the unperturbed graph, [centres, outputs].

    Of graphs that fit into one call it is looked up in the outputs of all nodes.
    """
    graph, model, by_type = query.graph, query.model, query.graph.has_types
    of_nodes = query.kind in ("node", "nodes") or (query.kind == "edge" and not by_type)
    if not of_nodes or model.scores_pairs or not fits_one_call(graph):
        alone = plain_calls(query, field, np.random.default_rng(0))
        return alone.evaluate(field, unperturbed(query, field))[0]
    types = graph.types
    if profile.full_output is None:
        profile.full_output = model.run(graph, whole(graph)) if by_type else call_on(model, graph)
        source, target = graph.edge_index.cpu().numpy()
        profile.is_undirected = is_undirected(source, target, graph.num_nodes)
    name = types.node_types[int(types.kinds(query.centres)[0])]
    ids = as_tensor(types.local(query.centres), graph.x.device)
    return rows_of(profile.full_output, name, types.count(name))[ids]


def _has_changed(query: Query, profile: ModelProfile) -> bool:
    """Whether the model's own outputs are not the cached ones."""
    if profile.full_output is None:
        return False
    try:
        return not torch.equal(call_on(query.model, query.graph), profile.full_output)
    except ModelError:
        return False
