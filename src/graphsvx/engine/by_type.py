"""Evaluation of typed graphs: the typed receptive field in batches of disjoint copies.

The same guarantee as for graphs without types (`engine.choose`): values are those of one plain
call a coalition on the whole graph. A batch is a shortcut; it is compared with plain calls on the
whole graph before and after the games, and where it differs every coalition is a plain call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv, MessagePassing

from graphsvx.core import field as fields
from graphsvx.core.arrays import as_tensor
from graphsvx.core.callers import Inputs
from graphsvx.core.field import Field
from graphsvx.core.graph import Graph
from graphsvx.core.perturbation import HopCounts, Perturbations
from graphsvx.core.query import Query
from graphsvx.engine.by_type_batches import (
    Batching,
    CopiesByType,
    RowsByType,
    edges_by_type,
    evaluate_plainly,
)
from graphsvx.engine.by_type_rounds import ROUNDS
from graphsvx.engine.candidates import ONE_BY_ONE, SAME_AGAIN, SAME_ALONE
from graphsvx.engine.evaluator import Evaluator
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.profile import ModelProfile, graph_fingerprint, profile_for
from graphsvx.engine.rounding import allclose, nudged, tolerances
from graphsvx.engine.trust import (
    affordable_replays,
    is_known_to_read_degrees,
    plain_up_to,
    reads_degrees,
)
from graphsvx.errors import ModelError, see
from graphsvx.utils.exclusive import taking_back
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
            graph_fingerprint(graph), message_passing_chain(query), query.model.plan
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
    checked = Evaluator(
        field,
        depth if local else None,
        reach,
        CopiesByType(query, Batching(False, False)),
        ("same output on the whole graph", SAME_ALONE, SAME_AGAIN),
        local=local,
        replays=_replays(graph),
        plainly=lambda field, perturbed, _: evaluate_plainly(query, field, perturbed),
        plain_up_to=plain_up_to(_numbers(graph), graph, profile),
        replays_vary=_replays(graph) < _REPLAYS[1],
        agrees=lambda *outputs: _agrees(query, *outputs),
    )
    passed: dict[str, Batching] = profile.shortcuts or {}
    profile.shortcuts = passed
    if query.kind in passed:
        note(profile.given_up)
        full = unperturbed(field)
        yield replace(
            checked,
            evaluate=CopiesByType(query, passed[query.kind]),
            replays=_replays(graph, profile.explained),
            expected_output=evaluate_plainly(query, field, full)[0],
        )
        passed.clear()
    probes = _probes(field, np.random.default_rng(seed))
    alone = evaluate_plainly(query, field, probes)
    for at, batching in enumerate(_batchings(query, depth if local else None)):
        batches = CopiesByType(query, batching)
        try:
            batch = batches(field, probes, checked.hop_counts(field, probes))
        except ModelError as error:
            # Single calls succeed, so the model does not support such a batch.
            sentence = "a way of evaluating coalitions in batches was not taken"
            profile.given_up.append(give_up(sentence, error))
            continue
        if _same(query, field, probes, alone, batch, None):
            passed[query.kind] = batching
            yield replace(checked, evaluate=batches)
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


def _plain_evaluator(query: Query) -> Evaluator:
    local = query.kind != "graph"
    field = (
        fields.undirected_neighbourhood(query.graph, query.centres, None)
        if local
        else fields.whole_graph(query.graph)
    )

    def evaluate(field: Field, perturbations: Perturbations, hops: HopCounts) -> Tensor:  # noqa: ARG001  (all matter)
        return evaluate_plainly(query, field, perturbations)

    _require_deterministic(
        query, field, unperturbed(field), evaluate_plainly(query, field, unperturbed(field))
    )
    return Evaluator(
        field, None, None, evaluate, (SAME_AGAIN,), ONE_BY_ONE, local=False, proved=True
    )


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


def _agrees(
    query: Query, field: Field, perturbations: Perturbations, raw: Tensor, like: Tensor
) -> bool:
    alone = evaluate_plainly(query, field, perturbations)
    return _same(query, field, perturbations, alone, raw.to(alone.device), like)


def _same(
    query: Query, field: Field, perturbations: Perturbations, alone: Tensor, other: Tensor,
    like: Tensor | None,
) -> bool:  # fmt: skip
    """Whether outputs are those of plain calls, but for rounding.

    Where large terms cancel, features are changed by their last bit to see what rounding does.
    """
    if other.shape != alone.shape:
        return False
    if allclose(other, alone, like):
        return True
    most = float(tolerances(alone.double().flatten()[:, None].to(alone.dtype)).max())
    if not float((other.double() - alone.double()).abs().max()) <= most:
        return False
    draws = np.random.default_rng(0)

    graph = query.graph
    features = {name: nudged(x, draws) for name, x in graph.types.features.items()}
    table = nudged(plain(perturbations.feature_table), draws)
    changed = evaluate_plainly(
        replace(query, graph=graph.with_features(features)),
        field,
        replace(perturbations, feature_table=table),
    )
    noise = 16 * (changed.double() - alone.double()).abs().flatten(0, -2).amax(0)
    return allclose(other, alone, like, noise.nan_to_num().clamp(max=most))


# Number of message-passing rounds of a typed model, from its autograd graph.


def message_passing_chain(query: Query) -> int | None:
    """The longest chain of message-passing rounds from the input to the outputs.

    Layers of one round for several edge types run side by side, so calls are not counted but
    followed through torch's record of the computation. Without such a record all calls are
    counted, which is never too few. None if the model has no layers of PyG.
    """
    model = query.model
    layers = [layer for layer in model.submodules if isinstance(layer, MessagePassing)]
    if not layers:
        return None
    for small, rows_of_tables in ((True, False), (True, True), (False, False)):
        if rows_of_tables and not model.tables:
            continue
        try:
            return _chain(query, layers, small, rows_of_tables)
        except ModelError:
            if not small:
                raise
    return None


def _chain(
    query: Query, layers: list[MessagePassing], small: bool, rows_of_tables: bool
) -> int | None:
    graph, model = query.graph, query.model
    marked: list[Any] = []
    calls = 0

    def mark(_: Any, __: Any, out: Any) -> None:
        nonlocal calls
        calls += 1
        tensors = out if isinstance(out, tuple) else (out,)
        marked.extend(t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None)

    hooks: list[Any] = []

    def remove() -> None:
        for hook in hooks:
            hook.remove()

    inputs = _sample(graph, small)
    pairs = torch.zeros(2, 1, dtype=torch.long, device=graph.x.device)
    batch = {name: torch.zeros_like(rows) for name, rows in inputs.node_rows.items()}
    inputs = replace(inputs, batch=batch, pairs=pairs, relation=query.relation)
    with taking_back(remove), torch.inference_mode(False), torch.enable_grad():
        hooks += [layer.register_propagate_forward_hook(mark) for layer in layers]
        # Fresh tensors that record what is computed with them.
        x = {
            name: value.clone().requires_grad_() if value.is_floating_point() else value.clone()
            for name, value in inputs.x.items()
        }
        out = model.run(graph, replace(inputs, x=x), rows_of_tables)
        tensors = list(out.values()) if isinstance(out, Mapping) else [out]
        ends = [t.grad_fn for t in tensors if isinstance(t, Tensor) and t.grad_fn is not None]
        longest = _longest_chain(ends, marked)
    return longest or calls or None


def _sample(graph: Graph, small: bool, per_type: int = 3) -> Inputs:
    """The whole graph, or a few edges of each type."""
    order = np.argsort(graph.types.edge_type, kind="stable")
    edges = np.arange(graph.num_edges)
    nodes = np.arange(graph.num_nodes)
    ends = graph.edge_index.cpu().numpy()
    if small:
        starts = np.searchsorted(
            graph.types.edge_type[order], np.arange(len(graph.types.edge_types))
        )
        few = starts[:, None] + np.arange(per_type)
        inside = few < np.append(starts[1:], graph.num_edges)[:, None]
        edges = np.sort(order[few[inside]])
        first = graph.types.node_starts[:-1][np.diff(graph.types.node_starts) > 0]
        nodes = np.unique(np.concatenate([first, ends[:, edges].reshape(-1)]))
    local = np.searchsorted(nodes, ends[:, edges])
    rows = RowsByType(graph, nodes, local, edges, np.zeros((2, 0), dtype=np.int64), graph.x, 0,
                 np.zeros(len(nodes), dtype=np.int64))  # fmt: skip
    kinds = graph.types.node_type[nodes]
    starts = np.searchsorted(kinds, np.arange(len(graph.types.node_types) + 1))
    within = np.arange(len(nodes)) - starts[kinds]
    device = graph.x.device
    node_rows, x = {}, {}
    for at, name in enumerate(graph.types.node_types):
        ids = nodes[starts[at] : starts[at + 1]] - graph.types.node_starts[at]
        node_rows[name] = as_tensor(ids, device)
        if name in graph.types.features:
            x[name] = graph.types.features[name][node_rows[name]]
    edge_index, edge_rows = edges_by_type(rows, within)
    return Inputs(x, edge_index, node_rows, edge_rows)


def _longest_chain(ends: list[Any], marked: list[Any]) -> int:
    """Largest number of marked steps on a path through the autograd graph."""
    is_marked = set(marked)
    length: dict[Any, int] = {}
    stack = [(step, False) for step in ends]
    while stack:
        step, done = stack.pop()
        before = [following for following, _ in step.next_functions if following is not None]
        if done:
            most = max((length[following] for following in before), default=0)
            length[step] = most + (step in is_marked)
        elif step not in length:
            stack.append((step, True))
            stack += [(following, False) for following in before if following not in length]
    return max((length[step] for step in ends), default=0)
