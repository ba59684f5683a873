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
from torch import Tensor

from graphsvx import model as models
from graphsvx.engine import field as fields
from graphsvx.engine.field import Field
from graphsvx.engine.replicas import Replicas, Stage, one_by_one, whole_stage, wider_stage
from graphsvx.engine.states import Bools, States, reachable
from graphsvx.errors import ModelError
from graphsvx.query import Query

Evaluate = Callable[[Field, States, Bools], Tensor]


@dataclass(frozen=True, eq=False)
class Survey:
    """The field of a query and the fastest way of playing on it that was found to be right."""

    field: Field
    depth: int | None
    evaluate: Evaluate
    """States over the field (or a restriction of it) to raw outputs [states, centres, outputs]."""
    checks: tuple[str, ...]
    fallback: str | None = None
    local: bool = True
    """A node that cannot reach a centre does not matter. False: every node may (pooling)."""


def survey(query: Query, hops: int | None, seed: int) -> Survey:
    """Find the field and check the shortcuts, slower ones where faster ones fail.

    `hops` is believed where the model's depth cannot be counted (it is not a PyG model).
    """
    if query.kind == "graph":
        return _survey_whole(query, seed)
    depth = models.depth(query.model, query.graph)
    if depth is None:
        depth = hops
    attempts = [(depth, True), (depth, False)] + ([(None, True)] if depth is not None else [])
    reason = None
    for deep, shared in attempts:
        area = fields.cut(query.graph, query.centres, deep)
        fast = _replicas(query, shared)
        rng = np.random.default_rng(seed)
        stage = wider_stage(query.graph, area, rng)
        if _agree(query, area, deep, fast, stage, rng):
            checks = ("field = wider graph", "batch = single calls", "deterministic")
            return Survey(area, deep, fast, checks, reason)
        if reason is None:
            _must_be_deterministic(query, area, stage)
        reason = (
            "feature rows copied, sharing them changed the output" if shared and deep == depth
            else f"all nodes that can reach the explained one, {depth} hops are not enough"
        )
    return _survey_slow(query, area)


def _replicas(query: Query, shared: bool, whole: bool = False) -> Evaluate:
    def evaluate(area: Field, states: States, live: Bools) -> Tensor:
        return Replicas(query.model, query.graph, area, query.memory, shared, whole)(states, live)

    return evaluate


def _survey_slow(query: Query, area: Field) -> Survey:
    whole = query.kind == "graph"
    stage = whole_stage(query.graph, area)

    def evaluate(area: Field, states: States, live: Bools) -> Tensor:  # noqa: ARG001  (all live)
        here = replace(stage, position=area.ids[: area.size])
        return one_by_one(query.model, query.graph, area, here, states, whole)

    reason = "one call a coalition on the whole graph: nodes of a batch influence each other"
    return Survey(area, None, evaluate, ("deterministic",), reason, local=False)


def _survey_whole(query: Query, seed: int) -> Survey:
    area = fields.whole(query.graph)
    rng = np.random.default_rng(seed)
    stage = whole_stage(query.graph, area)
    for shared in (True, False):
        fast = _replicas(query, shared, whole=True)
        if _agree(query, area, None, fast, stage, rng):
            reason = None if shared else "feature rows copied, sharing them changed the output"
            checks = ("batch = single calls", "deterministic")
            return Survey(area, None, fast, checks, reason, local=False)
        _must_be_deterministic(query, area, stage)
    return _survey_slow(query, area)


def _probes(query: Query, area: Field, rng: np.random.Generator) -> States:
    """The full graph and one random coalition."""
    on = np.ones((2, area.size), dtype=bool)
    on[1] = rng.random(area.size) < 0.7
    on[:, : area.centres] = True
    table = query.graph.x.index_select(0, fields.tensor(area.ids, query.graph.x.device))
    return States(on, np.broadcast_to(np.arange(area.size), on.shape), table)


def _agree(
    query: Query, area: Field, depth: int | None, fast: Evaluate, stage: Stage,
    rng: np.random.Generator,
) -> bool:  # fmt: skip
    states = _probes(query, area, rng)
    slow = one_by_one(query.model, query.graph, area, stage, states, query.kind == "graph")
    try:
        quick = fast(area, states, reachable(states, area, depth))
    except ModelError:
        # It went through alone: what fails is the batch (a fixed number of nodes, say).
        return False
    return quick.shape == slow.shape and close(quick, slow)


def close(a: Tensor, b: Tensor) -> bool:
    """Equal up to the rounding of matrix products at other sizes."""
    scale = float(b.abs().max().clamp(min=1)) if b.numel() else 1.0
    single = a.dtype != torch.float64
    return bool(((a - b).abs() <= (1e-5 if single else 1e-10) * scale).all()) or bool(
        torch.equal(a.isnan(), b.isnan()) and a.isnan().any()
    )


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
