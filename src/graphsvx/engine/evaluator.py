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
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from torch import Tensor
from torch_geometric.nn import MessagePassing

from graphsvx.core import arrays
from graphsvx.core import field as fields
from graphsvx.core import graph as graphs
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model, call_on, message_passing_depth
from graphsvx.core.perturbation import HopCounts, Perturbations, distances
from graphsvx.core.query import Query
from graphsvx.core.typed_query import TypedQuery
from graphsvx.engine.batches import BatchEvaluator, Shortcuts
from graphsvx.engine.checks import (
    batch_equals_single_calls,
    copies_equal_single_calls,
    equals_plain_calls,
    field_is_undirected,
    node_perturbations,
    probe_perturbations,
    require_deterministic,
)
from graphsvx.engine.growth import grows_faster_than_batch
from graphsvx.engine.kernels import ModelLayers, is_known, kernel_of
from graphsvx.engine.lookup import Lookup
from graphsvx.engine.plain import (
    ReferenceGraph,
    evaluate_copies,
    evaluate_one_by_one,
    full_reference,
    undirected_reference,
    wider_reference,
)
from graphsvx.engine.profile import (
    ModelProfile,
    fits_one_call,
    invalidate,
    profile_for,
    sample_neighbourhood,
)
from graphsvx.engine.rounding import allclose
from graphsvx.engine.structure import Structure, read_structure
from graphsvx.errors import ModelError

Evaluate = Callable[[Field, Perturbations, HopCounts], Tensor]
Result = TypeVar("Result")

_CHECKS = ("field = wider graph", "batch = single calls", "deterministic")
# Coalitions that are replayed: of models whose structure is known, after 1, 4, 16, ... explanations
# on a graph; of others always, as many as take about as long as this many numbers.
_REPLAYS_KNOWN = 2
_REPLAYS_UNKNOWN = (4, 64)
_REPLAYS_LOOK_UPS = 16
_REPLAYED_NUMBERS = 1 << 26
# Bytes of a batch of a model whose tensors grow faster than the batch: about 512 nodes and edges.
_SMALL_BATCH = 1 << 17


def _ignore(reason: str) -> None:
    """Default of `Evaluator.decline`: the reason is dropped."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """The receptive field of a query, and a function that evaluates perturbed graphs over it."""

    field: Field
    depth: int | None
    reach: int | None
    """Hops within which a node of a perturbed graph can influence a centre; None: unlimited."""
    evaluate: Evaluate
    """Perturbed graphs over the field (or a restriction) to outputs, [graphs, centres, outputs]."""
    checks: tuple[str, ...]
    fallback: str | None = None
    local: bool = True
    """Nodes that cannot reach a centre have no influence. False: any node may (pooling)."""
    expected_output: Tensor | None = None
    """Output of the unperturbed graph, [centres, outputs], which the caller compares with that of
    the full coalition (`matches_expected`); None: the checks are complete."""
    outputs: Tensor | None = None
    """Outputs of many nodes, [nodes, outputs], which set the scale of rounding errors."""
    replays: int = 0
    """Number of coalitions of each game that must be evaluated again by plain calls."""
    lookup: Lookup | None = None
    """Whole graphs: look-ups of embeddings, for models that are layers on nodes and a pooled head
    (`games.lookup_game`); None: no such model."""
    decline: Callable[[str], None] = _ignore
    """Called with the reason why look-ups of embeddings cannot be used, before a ModelError."""
    agrees: Callable[[Field, Perturbations, Tensor, Tensor], bool] | None = None
    """Whether outputs of perturbed graphs are those of plain calls, given all outputs of the game
    for the scale of rounding errors; None: as for graphs without types."""

    def matches_expected(self, full: Tensor | None, played: Tensor | None = None) -> bool:
        """Whether the output of the full coalition equals `expected_output`.

        `played`: outputs of the game, which show how large each output is where those of the whole
        graph are not known.
        """
        if self.expected_output is None:
            return True
        if full is None or full.shape != self.expected_output.shape:
            return False
        return allclose(
            full, self.expected_output, played if self.outputs is None else self.outputs
        )

    def hop_counts(self, field: Field, perturbations: Perturbations) -> HopCounts:
        """Hops from each node to a centre in each perturbed graph; UNREACHABLE: no influence."""
        if not self.local:
            return np.zeros((len(perturbations), field.size), dtype=np.uint8)
        return distances(perturbations, field, self.reach)


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
            # The model's own error, or that of a shortcut: a slower evaluator tells.
            failure = error
            continue
        if holds(evaluator, result):
            return result
    raise failure or ModelError("the model gives another output each time it is called")


def _evaluators(query: Query, hops: int | None, seed: int) -> Iterator[Evaluator]:
    """All evaluators, fastest first."""
    if isinstance(query, TypedQuery):
        from graphsvx.engine.typed import evaluators  # noqa: PLC0415  (it imports this module)

        yield from evaluators(query, hops, seed)
        return
    cached = cached_evaluator(query)
    if cached is not None:
        yield cached
        invalidate(query.model)
        _distrust_structure(query)
    yield from _checked_evaluators(query, hops, seed)


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


def choose_evaluator(query: Query, hops: int | None, seed: int) -> Evaluator:
    """The fastest evaluator that passes the checks before the first batch, for `evaluate`."""
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
    except ModelError:  # the model's own error, or that of a shortcut: the full checks tell
        return False
    return evaluator.matches_expected(out[0])


def _checked_evaluators(query: Query, hops: int | None, seed: int) -> Iterator[Evaluator]:
    """Evaluators that pass their checks; the last makes one plain call per coalition."""
    profile = profile_for(query.model, query.graph)
    if _depth_changed(query, profile):  # what is kept is of what the model was before
        invalidate(query.model)
        profile = profile_for(query.model, query.graph)
    replays = _required_replays(query, profile)
    if _needs_small_batches(query, profile):
        query = replace(query, memory=min(query.memory, _SMALL_BATCH))
    if query.kind == "graph":
        yield from _whole_graph_evaluators(query, seed, replays, profile)
        return
    depth = profile.depth
    in_edges_only = depth is None or _reads_in_edges_only(query.model)
    if in_edges_only:
        depth = hops if depth is None else depth
        yield from _field_evaluators(query, depth, seed, replays)
    if depth is not None:
        yield from _undirected_evaluators(query, depth, seed, replays)
    yield _plain_evaluator(query)


def _needs_small_batches(query: Query, profile: ModelProfile) -> bool:
    """Whether the model makes tensors that grow faster than a batch, such as N x N matrices."""
    if profile.structure is not None and profile.structure.known:
        return False
    if profile.small_batches is None:
        profile.small_batches = grows_faster_than_batch(query.model, _sample(query.graph))
    return profile.small_batches


def _sample(graph: Graph) -> Graph:
    """A small part of a graph, the same each time."""
    return graphs.subgraph(graph, sample_neighbourhood(graph, np.random.default_rng(0)))


def _depth_changed(query: Query, profile: ModelProfile) -> bool:
    try:
        return message_passing_depth(query.model, query.graph) != profile.depth
    except ModelError:
        return False


def _field_evaluators(
    query: Query, depth: int | None, seed: int, replays: int
) -> Iterator[Evaluator]:  # fmt: skip
    copied = "feature rows copied, sharing them changed the output"
    all_reaching = f"all nodes that can reach the explained one, {depth} hops are not enough"
    candidates: list[tuple[Shortcuts, str | None]] = [
        (Shortcuts(None), None),
        (Shortcuts(None, shared_rows=False), copied),
    ]
    if depth is not None:
        candidates = [
            *_shortcut_candidates(query.model, depth),
            (Shortcuts(depth + 1, shared_rows=False), copied),
            (Shortcuts(None), all_reaching),
        ]
    for attempt, (shortcuts, reason) in enumerate(candidates):
        if reason is not None:
            replays = _distrust_structure(query)
        field = fields.in_neighbourhood(
            query.graph, query.centres, None if shortcuts.reach is None else depth
        )
        rng = np.random.default_rng(seed)
        reference_graph = reference_graph_for(query, field, rng)
        if batch_equals_single_calls(query, field, shortcuts, reference_graph, rng):
            fast = _batched(query, shortcuts, ModelLayers.of(query.model.submodules))
            deep = None if shortcuts.reach is None else depth
            yield Evaluator(field, deep, shortcuts.reach, fast, _CHECKS, reason, replays=replays)
        elif not attempt:
            require_deterministic(query, field, reference_graph)


def _shortcut_candidates(model: Model, depth: int) -> list[tuple[Shortcuts, str | None]]:
    """Combinations of shortcuts, fastest first."""
    if not reads_degrees(model):
        return [(Shortcuts(depth, depth), None)]
    return [
        (Shortcuts(depth + 1, depth, degrees_only=True), None),
        (Shortcuts(depth + 1, depth), None),
    ]


def reference_graph_for(query: Query, field: Field, rng: np.random.Generator) -> ReferenceGraph:
    """The graph on which plain calls are made: nodes around the field, and some others.

    The whole graph if the model's structure is unknown: it may read any node.
    """
    structure = profile_for(query.model, query.graph).structure
    if structure is not None and structure.known:
        return wider_reference(query.graph, field, rng)
    return full_reference(query.graph, field)


def _has_known_structure(query: Query, profile: ModelProfile) -> bool:
    if profile.structure is None:
        try:
            profile.structure = read_structure(query.model, _sample(query.graph), is_known)
        except ModelError:  # too small a graph for the model
            return False
    return profile.structure.known


def _distrust_structure(query: Query) -> int:
    """Treat the structure as unknown, as a shortcut failed that a known one allows.

    Returns the number of coalitions of each game that must be evaluated again.
    """
    profile = profile_for(query.model, query.graph)
    profile.structure = Structure(False, "a batch gave other outputs than plain calls")
    return _replays_of_unknown(query.graph)


def _required_replays(query: Query, profile: ModelProfile) -> int:
    """Number of coalitions of each game that must be evaluated again by plain calls."""
    if not _has_known_structure(query, profile):
        return _replays_of_unknown(query.graph)
    profile.explained += 1
    now = profile.explained
    return _REPLAYS_KNOWN if now & (now - 1) == 0 and now.bit_length() % 2 else 0


def _replays_of_unknown(graph: Graph) -> int:
    """As many coalitions as take about as long as `_REPLAYED_NUMBERS` numbers."""
    numbers = graph.x.numel() + 32 * (graph.num_nodes + graph.num_edges)
    return int(np.clip(_REPLAYED_NUMBERS // max(1, numbers), *_REPLAYS_UNKNOWN))


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
    if profile.in_edges_only is None:
        profile.in_edges_only = _reads_in_edges_only(query.model)
    if depth is None or not profile.in_edges_only:
        return None
    if not _has_known_structure(query, profile):
        return None
    if not profile.checked:
        _check_model(query, profile, depth)
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
    evaluate = _batched(query, shortcuts, profile.layers)
    return Evaluator(
        field,
        depth,
        shortcuts.reach,
        evaluate,
        _CHECKS,
        expected_output=expected,
        outputs=profile.full_output,
        replays=_required_replays(query, profile),
    )


def _check_model(query: Query, profile: ModelProfile, depth: int) -> None:
    """Compare batches with single calls on samples of the graph; cache the full-graph output."""
    graph, model = query.graph, query.model
    profile.checked = True
    try:
        for shortcuts, _ in _shortcut_candidates(model, depth):
            if all(_shortcuts_hold(query, shortcuts, depth, seed) for seed in range(2)):
                if fits_one_call(graph):
                    profile.full_output = call_on(model, graph)
                    source, target = graph.edge_index.cpu().numpy()
                    profile.is_undirected = graphs.is_undirected(source, target, graph.num_nodes)
                profile.shortcuts = shortcuts
                return
        _distrust_structure(query)
    except ModelError:
        return  # too small for the model, or its own fault: the careful way will tell


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


def _message_layers(model: Model) -> list[Any]:
    return [part for part in model.submodules if isinstance(part, MessagePassing)]


def _reads_in_edges_only(model: Model) -> bool:
    """Whether all layers are known to pass messages along the edges."""
    return all(kernel_of(layer) is not None for layer in _message_layers(model))


def _undirected_evaluators(
    query: Query, depth: int, seed: int, replays: int
) -> Iterator[Evaluator]:
    """Evaluator on the undirected neighbourhood, without shortcuts.

    Correct for every model with `depth` rounds of message passing. Copies are batched where that
    gives the outputs of single calls; otherwise there is one call per coalition.
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
    try:
        alone, *others = (
            evaluate_one_by_one(query.model, graph, field, reference_graph, perturbations, False)
            for reference_graph in (reference, wider, full_reference(graph, field))
        )
    except ModelError:
        return  # the model takes the whole graph only (a table with a row for each node)
    require_deterministic(query, field, reference)
    if not all(
        equals_plain_calls(query, field, reference, perturbations, alone, other) for other in others
    ):
        return

    def in_copies(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:  # noqa: ARG001  (all matter)
        return evaluate_copies(query.model, graph, field, reference, perturbations, query.memory)

    def one_at_a_time(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:  # noqa: ARG001  (all matter)
        return evaluate_one_by_one(query.model, graph, field, reference, perturbations, False)

    reason = (
        "the neighbourhood: the model has layers that are not known to pass messages "
        "along the edges only"
    )
    checks = ("neighbourhood = wider graph", "deterministic")
    if copies_equal_single_calls(query, field, reference, perturbations, alone):
        batched = (checks[0], "batch = single calls", checks[1])
        yield Evaluator(
            field,
            depth,
            None,
            in_copies,
            batched,
            f"whole copies of {reason}",
            local=False,
            replays=replays,
        )
    yield Evaluator(field, depth, None, one_at_a_time, checks, f"one call a coalition on {reason}",
                 local=False, replays=replays)  # fmt: skip


def reads_degrees(model: Model) -> bool:
    """Whether messages may depend on degrees: then edges one hop further out count."""
    kernels = [kernel_of(layer) for layer in _message_layers(model)]
    return not kernels or any(kernel is None or kernel.reads_degrees for kernel in kernels)


def _batched(query: Query, shortcuts: Shortcuts, layers: ModelLayers) -> Evaluate:
    def evaluate(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:
        return BatchEvaluator(query.model, query.graph, field, query.memory, shortcuts, layers)(
            perturbations, hops
        )

    return evaluate


def _plain_evaluator(query: Query) -> Evaluator:
    """Evaluator with one plain call per coalition on the whole graph: correct for every model."""
    graph_level = query.kind == "graph"
    field = (
        fields.whole_graph(query.graph)
        if graph_level
        else fields.undirected_neighbourhood(query.graph, query.centres, None)
    )
    reference_graph = full_reference(query.graph, field)

    def evaluate(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:  # noqa: ARG001  (all matter)
        reference = replace(reference_graph, position=field.ids[: field.size])
        return evaluate_one_by_one(
            query.model, query.graph, field, reference, perturbations, graph_level
        )

    require_deterministic(query, field, reference_graph)
    reason = "one call a coalition on the whole graph: nodes of a batch influence each other"
    return Evaluator(field, None, None, evaluate, ("deterministic",), reason, local=False)


def _whole_graph_evaluators(
    query: Query, seed: int, replays: int, profile: ModelProfile
) -> Iterator[Evaluator]:
    field = fields.whole_graph(query.graph)
    rng = np.random.default_rng(seed)
    reference_graph = full_reference(query.graph, field)
    checks = ("batch = single calls", "deterministic")
    copied = "feature rows copied, sharing them changed the output"
    lookup, no_look_ups = _lookup(query, field, profile)
    for shortcuts, reason in (
        (Shortcuts(None, keep_all_nodes=True), None),
        (Shortcuts(None, shared_rows=False, keep_all_nodes=True), copied),
    ):
        if reason is not None:
            replays = _distrust_structure(query)
        if batch_equals_single_calls(query, field, shortcuts, reference_graph, rng):
            fast = _batched(query, shortcuts, ModelLayers.of(query.model.submodules))
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
            without = f"whole perturbed graphs, no look-ups of node embeddings: {no_look_ups}"
            yield replace(batched, fallback=without if reason is None else reason)
    yield _plain_evaluator(query)


def _lookup(query: Query, field: Field, profile: ModelProfile) -> tuple[Lookup | None, str]:
    """Look-ups for a model of known structure, or None and why there are none."""
    structure = profile.structure
    if structure is None or not structure.known:
        return None, "the model's structure is unknown" if structure is None else structure.reason
    if profile.depth is None or not _reads_in_edges_only(query.model):
        return None, "its rounds of message passing are not known"
    if query.graph.attributes:
        return None, "it takes attributes of nodes or edges, which look-ups do not carry"
    degrees = reads_degrees(query.model)
    return Lookup(query.model, query.graph, field, profile.depth, degrees), ""
