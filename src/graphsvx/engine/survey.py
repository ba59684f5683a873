"""Which shortcuts hold for this model on this graph, and whether they held.

The fast way plays many replicas of the receptive field in one call. It is wrong for models that
look further than counted, that mix the nodes of a batch (batch statistics, pooling, virtual
nodes) or that are random. So each way is checked twice: before the first batch against plain
calls on a wider part of the graph, and after the games by replaying coalitions that were played
(`graphsvx.replay`). Where a check fails, the next slower way is taken, and the certificate says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from graphsvx import graph as graphs
from graphsvx.engine import field as fields
from graphsvx.engine.field import Field
from graphsvx.engine.kernels import ModelLayers, is_known, kernel_of
from graphsvx.engine.known import Known, ball, forget, is_small, known
from graphsvx.engine.lazy import plain
from graphsvx.engine.replicas import Replicas, Way
from graphsvx.engine.rounding import close, tolerances
from graphsvx.engine.stages import (
    Stage,
    around_stage,
    copies,
    one_by_one,
    whole_stage,
    wider_stage,
)
from graphsvx.engine.states import Bools, Hops, States, distances
from graphsvx.engine.structure import read_structure
from graphsvx.errors import ModelError
from graphsvx.model import Model, count_rounds
from graphsvx.query import Query

Evaluate = Callable[[Field, States, Hops], Tensor]

_CHECKS = ("field = wider graph", "batch = single calls", "deterministic")
# Coalitions that are replayed: of models whose structure is known, after 1, 4, 16, ... explanations
# on a graph; of others always, as many as take about as long as this many numbers.
_REPLAYS_KNOWN = 2
_REPLAYS_UNKNOWN = (4, 64)
_REPLAYED_NUMBERS = 1 << 26


@dataclass(frozen=True, eq=False)
class Survey:
    """The field of a query and a way of playing on it that has passed the checks so far."""

    field: Field
    depth: int | None
    reach: int | None
    """Hops from a centre, in a perturbed graph, within which a node can matter; None: any."""
    evaluate: Evaluate
    """States over the field (or a restriction of it) to raw outputs [states, centres, outputs]."""
    checks: tuple[str, ...]
    fallback: str | None = None
    local: bool = True
    """A node that cannot reach a centre does not matter. False: every node may (pooling)."""
    promise: Tensor | None = None
    """What the unperturbed graph must give, [centres, outputs], to be compared when it has been
    played (`kept`); None: the checks are done."""
    outputs: Tensor | None = None
    """Outputs of many nodes, [nodes, outputs]: how large and how different they are."""
    replays: int = 0
    """Coalitions of each game that have to be replayed by plain calls."""

    def kept(self, full: Tensor | None) -> bool:
        """Whether the full coalition gave what was promised."""
        if self.promise is None:
            return True
        if full is None or full.shape != self.promise.shape:
            return False
        return close(full, self.promise, self.outputs)

    def hops(self, area: Field, states: States) -> Hops:
        """How far away each node is in each perturbed graph; FAR: it cannot matter."""
        if not self.local:
            return np.zeros((len(states), area.size), dtype=np.uint8)
        return distances(states, area, self.reach)


def surveys(query: Query, hops: int | None, seed: int) -> Iterator[Survey]:
    """Ways of playing, the fastest first; the next one is asked for where one failed."""
    first = promised(query)
    if first is not None:
        yield first
        forget(query.model)
    yield from _careful(query, hops, seed)


def evaluate(query: Query, found: Survey, states: States) -> Tensor:
    """Raw outputs of perturbed graphs over the survey's field, some of them replayed.

    Where a replayed one differs, all are played by plain calls on the whole graph.
    """
    area = found.field
    out = found.evaluate(area, states, found.hops(area, states))
    if not found.replays:
        return out
    chosen = np.unique(np.linspace(0, len(states) - 1, found.replays + 1).astype(np.int64))
    stage = reference_stage(query, area, np.random.default_rng(0))
    whole = query.kind == "graph"
    some = states.take(chosen)
    alone = one_by_one(query.model, query.graph, area, stage, some, whole)
    if matches(query, area, stage, some, alone, out[fields.tensor(chosen, out.device)], out):
        return out
    return one_by_one(query.model, query.graph, area, whole_stage(query.graph, area), states, whole)


def survey(query: Query, hops: int | None, seed: int) -> Survey:
    """The fastest way that passes the checks before playing.

    `hops` is believed where the model's depth cannot be counted (it is not a PyG model).
    """
    return next(_careful(query, hops, seed))


def _careful(query: Query, hops: int | None, seed: int) -> Iterator[Survey]:
    """Ways that pass checks of their own, ending with one plain call a coalition."""
    notes = known(query.model, query.graph)
    if _other_depth(query, notes):  # what is kept is of what the model was before
        forget(query.model)
        notes = known(query.model, query.graph)
    replays = _replays(query, notes)
    if query.kind == "graph":
        yield from _ways_of_graph(query, seed, replays)
        return
    depth = notes.depth
    in_edges_only = depth is None or _reads_in_edges_only(query.model)
    if in_edges_only:
        depth = hops if depth is None else depth
        yield from _ways_of_field(query, depth, seed, replays)
    if depth is not None:
        yield from _ways_around(query, depth, seed, replays)
    yield _plain_calls(query)


def _other_depth(query: Query, notes: Known) -> bool:
    try:
        return count_rounds(query.model, query.graph) != notes.depth
    except ModelError:
        return False


def _ways_of_field(
    query: Query, depth: int | None, seed: int, replays: int
) -> Iterator[Survey]:  # fmt: skip
    copied = "feature rows copied, sharing them changed the output"
    far = f"all nodes that can reach the explained one, {depth} hops are not enough"
    ways: list[tuple[Way, str | None]] = [(Way(None), None), (Way(None, shared=False), copied)]
    if depth is not None:
        ways = [*_ways(query.model, depth), (Way(depth + 1, shared=False), copied),
                (Way(None), far)]  # fmt: skip
    for tried, (way, reason) in enumerate(ways):
        area = fields.cut(query.graph, query.centres, None if way.reach is None else depth)
        rng = np.random.default_rng(seed)
        stage = reference_stage(query, area, rng)
        if _agree(query, area, way, stage, rng):
            fast = _replicas(query, way, ModelLayers.of(query.model.parts))
            deep = None if way.reach is None else depth
            yield Survey(area, deep, way.reach, fast, _CHECKS, reason, replays=replays)
        elif not tried:
            _must_be_deterministic(query, area, stage)


def _ways(model: Model, depth: int) -> list[tuple[Way, str | None]]:
    """The fastest ways first."""
    if not _reads_degrees(model):
        return [(Way(depth, depth), None)]
    return [(Way(depth + 1, depth, lean=True), None), (Way(depth + 1, depth), None)]


def reference_stage(query: Query, area: Field, rng: np.random.Generator) -> Stage:
    """Where plain calls are made: the whole graph, or a wider part of it.

    The latter for large graphs, if the model's structure is known: others may read any node.
    """
    structure = known(query.model, query.graph).structure
    if is_small(query.graph) or structure is None or not structure.known:
        return whole_stage(query.graph, area)
    return wider_stage(query.graph, area, rng)


def _replays(query: Query, notes: Known) -> int:
    """How many coalitions of each game must be replayed."""
    if notes.structure is None:
        try:
            small = graphs.part(query.graph, ball(query.graph, np.random.default_rng(0)))
            notes.structure = read_structure(query.model, small, is_known)
        except ModelError:  # too small a graph for the model
            return _REPLAYS_UNKNOWN[1]
    notes.explained += 1
    if notes.structure.known:
        now = notes.explained
        return _REPLAYS_KNOWN if now & (now - 1) == 0 and now.bit_length() % 2 else 0
    graph = query.graph
    numbers = graph.x.numel() + 32 * (graph.num_nodes + graph.num_edges)
    return int(np.clip(_REPLAYED_NUMBERS // max(1, numbers), *_REPLAYS_UNKNOWN))


def promised(query: Query) -> Survey | None:
    """The fastest way without a model call of its own, to be checked by what it gives.

    For models of known structure that have shown, on samples of this graph, that a batch with all
    shortcuts gives what single calls give. That and the prediction on the whole graph are found
    out once. None: look more carefully.
    """
    if query.kind == "graph" or query.model.scores_pairs:
        return None
    notes = known(query.model, query.graph)
    depth = notes.depth
    if notes.along is None:
        notes.along = _reads_in_edges_only(query.model)
    if depth is None or not notes.along:
        return None
    replays = _replays(query, notes)
    if notes.structure is None or not notes.structure.known:
        notes.explained -= 1  # counted by the careful way
        return None
    if not notes.looked:
        _find_out(query, notes, depth)
    way = notes.way
    if way is None:
        return None
    area = fields.cut(query.graph, query.centres, depth)
    if not notes.mutual and not _symmetric(area):
        return None  # more can go wrong where edges have a direction
    if notes.whole is not None:
        promise = notes.whole.index_select(0, fields.tensor(query.centres, query.graph.x.device))
    else:
        rng = np.random.default_rng(0)
        stage = wider_stage(query.graph, area, rng)
        full = _states(query, area, np.ones((1, area.size), dtype=bool))
        promise = one_by_one(query.model, query.graph, area, stage, full, False)[0]
    notes.layers = notes.layers or ModelLayers.of(query.model.parts)
    fast = _replicas(query, way, notes.layers)
    return Survey(
        area, depth, way.reach, fast, _CHECKS, promise=promise, outputs=notes.whole,
        replays=replays,
    )  # fmt: skip


def _find_out(query: Query, notes: Known, depth: int) -> None:
    """Batches against single calls on samples of the graph, and what to expect on all of it."""
    graph, model = query.graph, query.model
    notes.looked = True
    try:
        for way, _ in _ways(model, depth):
            if all(_holds(query, way, depth, seed) for seed in range(2)):
                if is_small(graph):
                    parts = (graph.x, graph.edge_index, graph.edge_weight, graph.edge_attr)
                    notes.whole = model(*parts)
                    source, target = graph.edge_index.cpu().numpy()
                    notes.mutual = graphs.mutual(source, target, graph.num_nodes)
                notes.way = way
                return
    except ModelError:
        return  # too small for the model, or its own fault: the careful way will tell


def _holds(query: Query, way: Way, depth: int, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    few = replace(query, graph=graphs.part(query.graph, ball(query.graph, rng)), kind="node",
                  centres=np.zeros(1, dtype=np.int64), memory=1 << 29)  # fmt: skip
    area = fields.cut(few.graph, few.centres, depth)
    return _agree(few, area, way, whole_stage(few.graph, area), rng)


def _message_layers(model: Model) -> list[Any]:
    return [part for part in model.parts if isinstance(part, MessagePassing)]


def _reads_in_edges_only(model: Model) -> bool:
    """Whether all layers are known to pass messages along the edges."""
    return all(kernel_of(layer) is not None for layer in _message_layers(model))


def _ways_around(query: Query, depth: int, seed: int, replays: int) -> Iterator[Survey]:
    """Coalitions on all that is near, whichever way its edges point, with nothing left out.

    Right for every model with `depth` rounds of message passing, known or not. In batches of
    copies where these give what single calls give, one call a coalition elsewhere.
    """
    graph, centres = query.graph, query.centres
    area = fields.around(graph, centres, depth)
    near, far = (
        around_stage(graph, area, fields.around(graph, centres, depth + more)) for more in (0, 1)
    )
    states = _probes(query, area, np.random.default_rng(seed))
    try:
        alone, *others = (
            one_by_one(query.model, graph, area, stage, states, False)
            for stage in (near, far, whole_stage(graph, area))
        )
    except ModelError:
        return  # the model takes the whole graph only (a table with a row for each node)
    _must_be_deterministic(query, area, near)
    if not all(matches(query, area, near, states, alone, other) for other in others):
        return

    def in_copies(area: Field, states: States, hops: Hops) -> Tensor:  # noqa: ARG001  (all matter)
        return copies(query.model, graph, area, near, states, query.memory)

    def one_at_a_time(area: Field, states: States, hops: Hops) -> Tensor:  # noqa: ARG001  (all matter)
        return one_by_one(query.model, graph, area, near, states, False)

    why = (
        "the neighbourhood: the model has layers that are not known to pass messages "
        "along the edges only"
    )
    checks = ("neighbourhood = wider graph", "deterministic")
    if _copies_agree(query, area, near, states, alone):
        batched = (checks[0], "batch = single calls", checks[1])
        yield Survey(area, depth, None, in_copies, batched, f"whole copies of {why}", local=False,
                     replays=replays)  # fmt: skip
    yield Survey(area, depth, None, one_at_a_time, checks, f"one call a coalition on {why}",
                 local=False, replays=replays)  # fmt: skip


def _copies_agree(
    query: Query, area: Field, stage: Stage, states: States, alone: Tensor
) -> bool:  # fmt: skip
    """Whether copies in one batch give what they gave one by one."""
    try:
        batch = copies(query.model, query.graph, area, stage, states, 1 << 29)
    except ModelError:
        return False
    return matches(query, area, stage, states, alone, batch)


def _reads_degrees(model: Model) -> bool:
    """Whether messages may depend on degrees: then edges one hop further out count."""
    kernels = [kernel_of(layer) for layer in _message_layers(model)]
    return not kernels or any(kernel is None or kernel.reads_degrees for kernel in kernels)


def _replicas(query: Query, way: Way, layers: ModelLayers) -> Evaluate:
    def evaluate(area: Field, states: States, hops: Hops) -> Tensor:
        return Replicas(query.model, query.graph, area, query.memory, way, layers)(states, hops)

    return evaluate


def _plain_calls(query: Query) -> Survey:
    """One plain call a coalition on the whole graph: right for every model."""
    whole = query.kind == "graph"
    area = fields.whole(query.graph) if whole else fields.around(query.graph, query.centres, None)
    stage = whole_stage(query.graph, area)

    def evaluate(area: Field, states: States, hops: Hops) -> Tensor:  # noqa: ARG001  (all matter)
        here = replace(stage, position=area.ids[: area.size])
        return one_by_one(query.model, query.graph, area, here, states, whole)

    _must_be_deterministic(query, area, stage)
    reason = "one call a coalition on the whole graph: nodes of a batch influence each other"
    return Survey(area, None, None, evaluate, ("deterministic",), reason, local=False)


def _ways_of_graph(query: Query, seed: int, replays: int) -> Iterator[Survey]:
    area = fields.whole(query.graph)
    rng = np.random.default_rng(seed)
    stage = whole_stage(query.graph, area)
    checks = ("batch = single calls", "deterministic")
    copied = "feature rows copied, sharing them changed the output"
    for way, reason in ((Way(None, whole=True), None),
                        (Way(None, shared=False, whole=True), copied)):  # fmt: skip
        if _agree(query, area, way, stage, rng):
            fast = _replicas(query, way, ModelLayers.of(query.model.parts))
            yield Survey(area, None, None, fast, checks, reason, local=False, replays=replays)
    yield _plain_calls(query)


def _probes(query: Query, area: Field, rng: np.random.Generator) -> States:
    """The full graph and one random coalition, which is another one wherever there is another."""
    # Where edges have a direction, more can go wrong: look more often.
    on = np.ones((2 if _symmetric(area) else 5, area.size), dtype=bool)
    for row, tenths in zip(on[1:], (3, 5, 2, 6), strict=False):
        others = rng.permutation(np.arange(area.centres, area.size))
        row[others[: -(-len(others) * tenths // 10)]] = False
    return _states(query, area, on)


def _states(query: Query, area: Field, on: Bools) -> States:
    own = fields.tensor(area.ids[: area.size], query.graph.x.device)
    table = query.graph.x.index_select(0, own)
    return States(on, None, table)


def _symmetric(area: Field) -> bool:
    """Whether each edge within the field has its reverse."""
    inner = area.inner
    return graphs.mutual(area.source[inner], area.target[inner], area.size)


def _agree(
    query: Query, area: Field, way: Way, stage: Stage, rng: np.random.Generator
) -> bool:  # fmt: skip
    states = _probes(query, area, rng)
    slow = one_by_one(query.model, query.graph, area, stage, states, query.kind == "graph")
    try:
        hops = (
            np.zeros(states.on.shape, np.uint8) if way.whole else distances(states, area, way.reach)
        )
        # However small the batch is, with all the shortcuts that a large one takes.
        quick = Replicas(
            query.model,
            query.graph,
            area,
            query.memory,
            way,
            ModelLayers.of(query.model.parts),
            eager=0,
        )(states, hops)
    except ModelError:
        # It went through alone: what fails is the batch (a fixed number of nodes, say).
        return False
    return matches(query, area, stage, states, slow, quick)


def matches(
    query: Query, area: Field, stage: Stage, states: States, alone: Tensor, other: Tensor,
    like: Tensor | None = None,
) -> bool:  # fmt: skip
    """Whether outputs are what plain calls on a stage gave, but for rounding.

    Where an output is small because large terms cancel, its size does not tell what rounding can
    change: then features are changed by their last bit to see it.
    """
    if other.shape != alone.shape:
        return False
    if close(other, alone, like):
        return True
    draws = np.random.default_rng(0)

    def nudged(x: Tensor) -> Tensor:
        signs = torch.from_numpy(draws.choice([-1.0, 1.0], size=x.shape)).to(x)
        return x * (1 + torch.finfo(x.dtype).eps * signs)

    changed = one_by_one(
        query.model, query.graph, area, replace(stage, x=nudged(stage.x)),
        replace(states, table=nudged(plain(states.table))), query.kind == "graph",
    )  # fmt: skip
    noise = 16 * (changed.double() - alone.double()).abs().flatten(0, -2).amax(0)
    most = tolerances(alone.double().flatten()[:, None].to(alone.dtype)).max()
    return close(other, alone, like, noise.nan_to_num().clamp(max=float(most)))


def _must_be_deterministic(query: Query, area: Field, stage: Stage) -> None:
    states = _probes(query, area, np.random.default_rng(0)).take(slice(0, 1))
    first, second = (
        one_by_one(query.model, query.graph, area, stage, states, query.kind == "graph")
        for _ in range(2)
    )
    if not close(first, second):
        raise ModelError(
            "the model gives another output each time it is called, also in eval mode; "
            "switch its random layers off (dropout with training=True, sampling) to explain it"
        )
