"""Before the first batch: which shortcuts hold for this model on this graph?

The fast way plays many replicas of the receptive field in one call. It is wrong for models that
look further than counted, that mix the nodes of a batch (batch statistics, pooling, virtual
nodes) or that are random. So it is compared with the slow way, one plain call a state on a wider
part of the graph, on the full graph and on a random coalition; where they differ, the next
slower way is tried, and the certificate says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    APPNP,
    ARMAConv,
    CGConv,
    EdgeConv,
    GATConv,
    GatedGraphConv,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    GraphConv,
    LEConv,
    MessagePassing,
    MFConv,
    NNConv,
    PNAConv,
    ResGatedGraphConv,
    SAGEConv,
    SGConv,
    SSGConv,
    TAGConv,
    TransformerConv,
)

from graphsvx import graph as graphs
from graphsvx.engine import field as fields
from graphsvx.engine.field import Field
from graphsvx.engine.known import Known, ball, is_small, known
from graphsvx.engine.layers import Anatomy
from graphsvx.engine.replicas import Replicas, Way
from graphsvx.engine.stages import (
    Stage,
    around_stage,
    copies,
    one_by_one,
    whole_stage,
    wider_stage,
)
from graphsvx.engine.states import Bools, Hops, States, distances
from graphsvx.errors import ModelError
from graphsvx.model import count_rounds
from graphsvx.query import Query

Evaluate = Callable[[Field, States, Hops], Tensor]

# Layers whose messages depend on nothing but the two ends and the edge: what enters a node k hops
# away cannot matter after k rounds. Others (GCN) also count the neighbours of the sender.
_PLAIN_LAYERS = {GATConv, GATv2Conv, GINConv, GINEConv, GraphConv, SAGEConv, TransformerConv}
# Layers that count at most the edges *into* the two ends. A layer that is not known may count
# the edges out of a node as well (ChebConv does), or send messages against the edges.
_KNOWN_LAYERS = _PLAIN_LAYERS | {
    APPNP, ARMAConv, CGConv, EdgeConv, GCN2Conv, GCNConv, GENConv, GatedGraphConv, LEConv, MFConv,
    NNConv, PNAConv, ResGatedGraphConv, SGConv, SSGConv, TAGConv,
}  # fmt: skip


_CHECKS = ("field = wider graph", "batch = single calls", "deterministic")


@dataclass(frozen=True, eq=False)
class Survey:
    """The field of a query and the fastest way of playing on it that was found to be right."""

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

    def kept(self, full: Tensor | None) -> bool:
        """Whether the full coalition gave what was promised."""
        if self.promise is None:
            return True
        return full is not None and full.shape == self.promise.shape and close(full, self.promise)

    def hops(self, area: Field, states: States) -> Hops:
        """How far away each node is in each perturbed graph; FAR: it cannot matter."""
        if not self.local:
            return np.zeros((len(states), area.size), dtype=np.uint8)
        return distances(states, area, self.reach)


def survey(query: Query, hops: int | None, seed: int) -> Survey:
    """Find the field and check the shortcuts, slower ones where faster ones fail.

    `hops` is believed where the model's depth cannot be counted (it is not a PyG model).
    """
    if query.kind == "graph":
        return _survey_whole(query, seed)
    # Counted again: what is kept may be of what the model was before.
    depth = count_rounds(query.model, query.graph)
    if depth is not None and not _counts_in_edges_only(query.model.call):
        return _survey_around(query, depth, seed)
    if depth is None:
        depth = hops
    copied = "feature rows copied, sharing them changed the output"
    far = f"all nodes that can reach the explained one, {depth} hops are not enough"
    ways: list[tuple[Way, str | None]] = [(Way(None), None), (Way(None, shared=False), copied)]
    if depth is not None:
        ways = [*_ways(query.model.call, depth), (Way(depth + 1, shared=False), copied),
                (Way(None), far)]  # fmt: skip
    for tried, (way, reason) in enumerate(ways):
        area = fields.cut(query.graph, query.centres, None if way.reach is None else depth)
        fast = _replicas(query, way, Anatomy.of(query.model.parts))
        rng = np.random.default_rng(seed)
        stage = wider_stage(query.graph, area, rng)
        if _agree(query, area, way, stage, rng):
            deep = None if way.reach is None else depth
            return Survey(area, deep, way.reach, fast, _CHECKS, reason)
        if not tried:
            _must_be_deterministic(query, area, stage)
    if depth is None:
        return _survey_slow(query, fields.around(query.graph, query.centres, None))
    return _survey_around(query, depth, seed)


def _ways(model: Callable[..., object], depth: int) -> list[tuple[Way, str | None]]:
    """The fastest ways first."""
    if _hears_only_ends(model):
        return [(Way(depth, depth), None)]
    return [(Way(depth + 1, depth, lean=True), None), (Way(depth + 1, depth), None)]


def promised(query: Query) -> Survey | None:
    """The fastest way without a model call of its own, to be checked by what it gives.

    For models that have shown, on samples of this graph, that a batch with all shortcuts gives
    what single calls give. That and the prediction on the whole graph are found out once. None:
    look more carefully (`survey`).
    """
    if query.kind == "graph" or query.model.scores_pairs:
        return None
    notes = known(query.model, query.graph)
    depth = notes.depth
    if notes.along is None:
        notes.along = _counts_in_edges_only(query.model.call)
    if depth is None or not notes.along:
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
    notes.anatomy = notes.anatomy or Anatomy.of(query.model.parts)
    fast = _replicas(query, way, notes.anatomy)
    return Survey(area, depth, way.reach, fast, _CHECKS, promise=promise)


def _find_out(query: Query, notes: Known, depth: int) -> None:
    """Batches against single calls on samples of the graph, and what to expect on all of it."""
    graph, model = query.graph, query.model
    notes.looked = True
    try:
        for way, _ in _ways(model.call, depth):
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


def _counts_in_edges_only(model: Callable[..., object]) -> bool:
    layers = (
        [layer for layer in model.modules() if isinstance(layer, MessagePassing)]
        if isinstance(model, nn.Module)
        else []
    )
    return all(
        type(layer) in _KNOWN_LAYERS and layer.flow == "source_to_target" for layer in layers
    )


def _survey_around(query: Query, depth: int, seed: int) -> Survey:
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
    _must_be_deterministic(query, area, near)
    outputs = [
        one_by_one(query.model, graph, area, stage, states, False)
        for stage in (near, far, whole_stage(graph, area))[: 3 if graph.num_nodes <= 4096 else 2]
    ]
    if not all(close(outputs[0], other) for other in outputs[1:]):
        return _survey_slow(query, area)

    batched = _copies_agree(query, area, near, states, outputs[0])

    def evaluate(area: Field, states: States, hops: Hops) -> Tensor:  # noqa: ARG001  (all matter)
        if batched:
            return copies(query.model, graph, area, near, states, query.memory)
        return one_by_one(query.model, graph, area, near, states, False)

    how = "whole copies of" if batched else "one call a coalition on"
    reason = (
        f"{how} the neighbourhood: the model has layers that are not known to pass messages "
        "along the edges only"
    )
    checks: tuple[str, ...] = ("neighbourhood = wider graph", "deterministic")
    if batched:
        checks = ("neighbourhood = wider graph", "batch = single calls", "deterministic")
    return Survey(area, depth, None, evaluate, checks, reason, local=False)


def _copies_agree(
    query: Query, area: Field, stage: Stage, states: States, alone: Tensor
) -> bool:  # fmt: skip
    """Whether copies in one batch give what they gave one by one."""
    try:
        batch = copies(query.model, query.graph, area, stage, states, 1 << 29)
    except ModelError:
        return False
    return batch.shape == alone.shape and close(batch, alone)


def _hears_only_ends(model: Callable[..., object]) -> bool:
    if not isinstance(model, nn.Module):
        return False
    layers = [type(layer) for layer in model.modules() if isinstance(layer, MessagePassing)]
    # Aggregations are no MessagePassing; subclasses may do anything, so types must be the same.
    return bool(layers) and all(layer in _PLAIN_LAYERS for layer in layers)


def _replicas(query: Query, way: Way, anatomy: Anatomy) -> Evaluate:
    def evaluate(area: Field, states: States, hops: Hops) -> Tensor:
        return Replicas(query.model, query.graph, area, query.memory, way, anatomy)(states, hops)

    return evaluate


def _survey_slow(query: Query, area: Field) -> Survey:
    whole = query.kind == "graph"
    stage = whole_stage(query.graph, area)

    def evaluate(area: Field, states: States, hops: Hops) -> Tensor:  # noqa: ARG001  (all matter)
        here = replace(stage, position=area.ids[: area.size])
        return one_by_one(query.model, query.graph, area, here, states, whole)

    reason = "one call a coalition on the whole graph: nodes of a batch influence each other"
    return Survey(area, None, None, evaluate, ("deterministic",), reason, local=False)


def _survey_whole(query: Query, seed: int) -> Survey:
    area = fields.whole(query.graph)
    rng = np.random.default_rng(seed)
    stage = whole_stage(query.graph, area)
    for shared in (True, False):
        way = Way(None, shared=shared, whole=True)
        fast = _replicas(query, way, Anatomy.of(query.model.parts))
        if _agree(query, area, way, stage, rng):
            reason = None if shared else "feature rows copied, sharing them changed the output"
            checks = ("batch = single calls", "deterministic")
            return Survey(area, None, None, fast, checks, reason, local=False)
        _must_be_deterministic(query, area, stage)
    return _survey_slow(query, area)


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
            Anatomy.of(query.model.parts),
            eager=0,
        )(states, hops)
    except ModelError:
        # It went through alone: what fails is the batch (a fixed number of nodes, say).
        return False
    return quick.shape == slow.shape and close(quick, slow)


def close(a: Tensor, b: Tensor) -> bool:
    """Equal up to the rounding of matrix products at other sizes."""
    if not b.is_floating_point():
        a, b = a.double(), b.double()
    tolerance = 1e-10 if a.dtype == torch.float64 else 1e-5
    if b.numel():
        scale = max(1.0, float(torch.linalg.vector_norm(b, torch.inf)))
        if scale < torch.inf and float(torch.dist(a, b, torch.inf)) <= tolerance * scale:
            return True
    # Where something is not finite, it must be so in both.
    finite = b[b.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    return bool(torch.isclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True).all())


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
