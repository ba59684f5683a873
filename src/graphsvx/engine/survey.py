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
    GATConv,
    GATv2Conv,
    GINConv,
    GINEConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    TransformerConv,
)

from graphsvx import model as models
from graphsvx.engine import field as fields
from graphsvx.engine.field import Field
from graphsvx.engine.replicas import Replicas, Stage, Way, one_by_one, whole_stage, wider_stage
from graphsvx.engine.states import Hops, States, distances
from graphsvx.errors import ModelError
from graphsvx.query import Query

Evaluate = Callable[[Field, States, Hops], Tensor]

# Layers whose messages depend on nothing but the two ends and the edge: what enters a node k hops
# away cannot matter after k rounds. Others (GCN) also count the neighbours of the sender.
_PLAIN_LAYERS = {GATConv, GATv2Conv, GINConv, GINEConv, GraphConv, SAGEConv, TransformerConv}


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

    def hops(self, area: Field, states: States) -> Hops:
        """How far away each node is in each perturbed graph; FAR: it cannot matter."""
        if not self.local:
            return np.zeros((len(states), area.size), dtype=np.int16)
        return distances(states, area, self.reach)


def survey(query: Query, hops: int | None, seed: int) -> Survey:
    """Find the field and check the shortcuts, slower ones where faster ones fail.

    `hops` is believed where the model's depth cannot be counted (it is not a PyG model).
    """
    if query.kind == "graph":
        return _survey_whole(query, seed)
    depth = models.depth(query.model, query.graph)
    if depth is None:
        depth = hops
    ways = [Way(None)]
    if depth is not None:
        reach = depth if _hears_only_ends(query.model.call) else depth + 1
        ways = [Way(reach, depth), Way(depth + 1, shared=False), *ways]
    else:
        ways = [*ways, Way(None, shared=False)]
    reason = None
    for way in ways:
        area = fields.cut(query.graph, query.centres, None if way.reach is None else depth)
        fast = _replicas(query, way)
        rng = np.random.default_rng(seed)
        stage = wider_stage(query.graph, area, rng)
        if _agree(query, area, way, stage, rng):
            checks = ("field = wider graph", "batch = single calls", "deterministic")
            deep = None if way.reach is None else depth
            return Survey(area, deep, way.reach, fast, checks, reason)
        if reason is None:
            _must_be_deterministic(query, area, stage)
            reason = "feature rows copied, sharing them changed the output"
        else:
            reason = f"all nodes that can reach the explained one, {depth} hops are not enough"
    return _survey_slow(query, area)


def _hears_only_ends(model: Callable[..., object]) -> bool:
    if not isinstance(model, nn.Module):
        return False
    layers = [type(layer) for layer in model.modules() if isinstance(layer, MessagePassing)]
    # Aggregations are no MessagePassing; subclasses may do anything, so types must be the same.
    return bool(layers) and all(layer in _PLAIN_LAYERS for layer in layers)


def _replicas(query: Query, way: Way) -> Evaluate:
    def evaluate(area: Field, states: States, hops: Hops) -> Tensor:
        return Replicas(query.model, query.graph, area, query.memory, way)(states, hops)

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
        fast = _replicas(query, way)
        if _agree(query, area, way, stage, rng):
            reason = None if shared else "feature rows copied, sharing them changed the output"
            checks = ("batch = single calls", "deterministic")
            return Survey(area, None, None, fast, checks, reason, local=False)
        _must_be_deterministic(query, area, stage)
    return _survey_slow(query, area)


def _probes(query: Query, area: Field, rng: np.random.Generator) -> States:
    """The full graph and one random coalition, which is another one wherever there is another."""
    on = np.ones((2, area.size), dtype=bool)
    others = rng.permutation(np.arange(area.centres, area.size))
    on[1, others[: -(-len(others) * 3 // 10)]] = False
    table = query.graph.x.index_select(0, fields.tensor(area.ids, query.graph.x.device))
    return States(on, np.broadcast_to(np.arange(area.size), on.shape), table)


def _agree(
    query: Query, area: Field, way: Way, stage: Stage, rng: np.random.Generator
) -> bool:  # fmt: skip
    states = _probes(query, area, rng)
    slow = one_by_one(query.model, query.graph, area, stage, states, query.kind == "graph")
    try:
        hops = (
            np.zeros(states.on.shape, np.int16) if way.whole else distances(states, area, way.reach)
        )
        # However small the batch is, with all the shortcuts that a large one takes.
        quick = Replicas(query.model, query.graph, area, query.memory, way, 0)(states, hops)
    except ModelError:
        # It went through alone: what fails is the batch (a fixed number of nodes, say).
        return False
    return quick.shape == slow.shape and close(quick, slow)


def close(a: Tensor, b: Tensor) -> bool:
    """Equal up to the rounding of matrix products at other sizes."""
    finite = b[b.isfinite()]
    scale = float(finite.abs().max().clamp(min=1)) if finite.numel() else 1.0
    tolerance = (1e-10 if a.dtype == torch.float64 else 1e-5) * scale
    return bool(torch.isclose(a, b, rtol=0, atol=tolerance, equal_nan=True).all())


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
