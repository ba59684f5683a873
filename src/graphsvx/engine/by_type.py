"""Evaluation of typed graphs: the typed receptive field in batches of disjoint copies.

The same guarantee as for graphs without types (`engine.choose`): values are those of one plain
call a coalition on the whole graph. A batch is a shortcut; it is compared with plain calls on the
whole graph before and after the games, and where it differs every coalition is a plain call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv

from graphsvx.core import field as fields
from graphsvx.core.depth import message_passing_depth
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.by_type_batches import (
    Batching,
    CopiesByType,
    PlainByType,
    evaluate_plainly,
)
from graphsvx.engine.by_type_rounds import ROUNDS
from graphsvx.engine.checks import ONE_BY_ONE, SAME_AGAIN, SAME_ALONE, equals_plain_calls
from graphsvx.engine.evaluator import Checks, Evaluator, Plain
from graphsvx.engine.profile import ModelProfile, graph_fingerprint, profile_for
from graphsvx.engine.rounding import allclose
from graphsvx.engine.trust import (
    affordable_replays,
    is_known_to_read_degrees,
    plain_up_to,
    reads_degrees,
)
from graphsvx.errors import ModelError, see
from graphsvx.utils.given_up import give_up, note

_REPLAYS = (4, 64)
_REPLAYS_LATER = 2


def profile_of(query: Query) -> ModelProfile:
    """What is cached of the model and the graph of a query."""
    graph = query.graph
    return profile_for(
        query.model,
        graph,
        lambda: ModelProfile(
            graph_fingerprint(graph), message_passing_depth(query.model, graph), query.model.plan
        ),
    )


def evaluators(query: Query, hops: int | None, seed: int) -> Iterator[Evaluator]:
    """Evaluators that pass their checks, fastest first; the last makes plain calls only.

    What passed for a model and a graph before is taken first, and compared with the output of the
    unperturbed graph and with fewer plain calls.
    """
    graph = query.graph
    profile = profile_of(query)
    profile.explained += 1
    depth = hops if profile.depth is None else profile.depth
    if query.kind == "graph":
        field, reach = fields.whole_graph(graph), None
    else:
        field = fields.in_neighbourhood(graph, query.centres, depth)
        reach = None if depth is None else depth + 1 if reads_degrees(query.model) else depth
    local = query.kind != "graph"
    checked = CopiesByType(
        query=query,
        field=field,
        depth=depth if local else None,
        reach=reach,
        local=local,
        checks=Checks(
            ("same output on the whole graph", SAME_ALONE, SAME_AGAIN),
            replays=_replays(graph),
            replays_vary=_replays(graph) < _REPLAYS[1],
            plain_up_to=plain_up_to(_numbers(graph), graph, profile),
        ),
        batching=Batching(False, False),
    )
    plainly = checked.plain(field)
    passed: dict[str, Batching] = profile.shortcuts or {}
    profile.shortcuts = passed
    if query.kind in passed:
        note(profile.given_up)
        expected = plainly.evaluate(field, unperturbed(field))[0]
        replays = _replays(graph, profile.explained)
        yield replace(
            checked,
            batching=passed[query.kind],
            checks=replace(checked.checks, replays=replays, expected_output=expected),
        )
        passed.clear()
    probes = _probes(field, np.random.default_rng(seed))
    alone = plainly.evaluate(field, probes)
    for at, batching in enumerate(_batchings(query, depth if local else None)):
        evaluator = replace(checked, batching=batching)
        try:
            batch = evaluator.evaluate(field, probes)
        except ModelError as error:
            # Single calls succeed, so the model does not support such a batch.
            sentence = "a way of evaluating coalitions in batches was not taken"
            profile.given_up.append(give_up(sentence, error))
            continue
        if equals_plain_calls(plainly, field, probes, alone, batch):
            passed[query.kind] = batching
            yield evaluator
            passed.clear()
        elif not at:
            _require_deterministic(query, field, probes, alone)
    yield _plain_evaluator(query)


def _require_deterministic(
    query: Query, field: Field, probes: Perturbations, alone: Tensor
) -> None:
    if not allclose(alone[:1], evaluate_plainly(query, field, probes.take(slice(0, 1)))):
        raise ModelError(
            "the model gives another output each time it is called, also in eval mode; "
            "switch its random layers off (dropout with training=True, sampling) to explain it"
            + see("the-model-is-random")
        )


def _batchings(query: Query, depth: int | None) -> list[Batching]:
    """Combinations of shortcuts, the fastest first."""
    model = query.model
    cuts = [False]
    if model.tables:
        # A model that gets ids of nodes looks its tables up by them.
        cuts = [False, True] if model.takes_ids else [True, False]
    batchings = [Batching(shared, cut) for cut in cuts for shared in (True, False)]
    # Layers that read degrees need the edges of nodes that no longer matter.
    if depth is None or is_known_to_read_degrees(model):
        return batchings
    trims: list[Literal["outputs", "inputs"]] = []
    if any(isinstance(part, ROUNDS) for part in model.submodules):
        trims = ["inputs"]
    if any(isinstance(part, HeteroConv) for part in model.submodules):
        trims = ["outputs", "inputs"]
    trimmed = [Batching(True, cut, depth, trim) for trim in trims for cut in cuts]
    return [*trimmed, *(replace(batching, depth=depth) for batching in batchings), *batchings]


def _plain_evaluator(query: Query) -> Plain:
    local = query.kind != "graph"
    field = (
        fields.undirected_neighbourhood(query.graph, query.centres, None)
        if local
        else fields.whole_graph(query.graph)
    )

    _require_deterministic(
        query, field, unperturbed(field), evaluate_plainly(query, field, unperturbed(field))
    )
    checks = Checks((SAME_AGAIN,), ONE_BY_ONE, proved=True)
    return PlainByType(query, field, checks=checks)


def _replays(graph: Graph, explained: int = 1) -> int:
    """Number of coalitions of each game that must be evaluated again by plain calls.

    Where plain calls are cheap always as many; otherwise fewer but for the 1st, 4th, 16th, ...
    explanation.
    """
    most = int(np.clip(affordable_replays(_numbers(graph), graph), *_REPLAYS))
    often = explained & (explained - 1) == 0 and explained.bit_length() % 2
    return most if often or most == _REPLAYS[1] else _REPLAYS_LATER


def _numbers(graph: Graph) -> int:
    """Numbers that the features of all nodes are."""
    return sum(x.numel() for x in graph.types.features.values())


def unperturbed(field: Field) -> Perturbations:
    """The unperturbed graph, for `evaluate_plainly`."""
    return Perturbations(np.ones((1, field.size), dtype=bool), None, torch.zeros(field.size, 0))


def _probes(field: Field, rng: np.random.Generator) -> Perturbations:
    """The unperturbed graph, and one without 4 in 10 of its nodes."""
    on = np.ones((2, field.size), dtype=bool)
    others = rng.permutation(np.arange(field.centres, field.size))
    on[1, others[: -(-len(others) * 4 // 10)]] = False
    return replace(unperturbed(field), active=on)
