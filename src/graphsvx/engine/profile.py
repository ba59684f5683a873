"""Cached facts about (model, graph) pairs, valid until either changes, and the checks they spare.

Depth, layers, structure, the results of the run-time checks and the predictions on the full graph
do not depend on the query. They are cached with a fingerprint of the model and the graph. Weights
that were modified without torch are still safe: each explanation compares its full-coalition
output with the cached prediction, and on a mismatch the profile is invalidated.

What a call costs is counted, the same on every machine and for every seed: budgets that depended on
the clock would give other bits in the next run. Operations are counted, the numbers that they read
and write, and multiplications of matrices; fixed rates, of one core that is not fast, turn them
into seconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from torch_geometric.nn import MessagePassing

from graphsvx.core.arrays import Ids
from graphsvx.core.calling import USUAL, CallPlan
from graphsvx.core.depth import rounds_left
from graphsvx.core.field import subgraph
from graphsvx.core.fingerprints import Watched
from graphsvx.core.graph import Graph, out_edges
from graphsvx.core.model import Model, call_on
from graphsvx.core.query import Query
from graphsvx.engine.kernels import ModelLayers, is_known
from graphsvx.engine.rowwise import tensors
from graphsvx.engine.structure import Structure, read_structure
from graphsvx.errors import ModelError
from graphsvx.utils.context import give_up

# Larger graphs are not evaluated in one call.
_MOST_ITEMS = 1 << 24
_PROFILES_PER_MODEL = 4


@dataclass(eq=False)
class ModelProfile:
    """Cached facts about one (model, graph) pair, valid until either changes."""

    graph: tuple[Any, ...]
    """Stamps of the graph, and weak references to its tensors."""
    depth: int | None
    layers: ModelLayers = field(default_factory=lambda: ModelLayers.of([]))
    plan: CallPlan = USUAL
    """How the model is called."""
    shortcuts: dict[Any, Any] = field(default_factory=dict)
    """The fastest `Shortcuts` that passed the checks on samples of the graph, by kind of query."""
    full_output: Any = None
    """Raw outputs on the whole graph, [nodes, outputs]; None too for large graphs."""
    is_undirected: bool = False
    """Whether each edge has its reverse; False for large graphs, where it is not computed."""
    structure: Structure | None = None
    """The model's structure as traced in one call; None: not read yet."""
    neighbourhood_suffices: bool = False
    """Whether the undirected neighbourhood of a node once gave the output of the whole graph."""
    small_batches: bool | None = None
    """Whether tensors of the model grow faster than a batch; None: not read yet."""
    seconds_of_call: float | None = None
    """What a plain call on the whole graph costs, by a count; None: not counted yet."""
    seconds_of_replay: float = 0.0
    seconds_after_games: float = 0.0
    seconds_of_played: float = 0.0
    """How long one replayed coalition of each game, all that follows the games, and a call of them
    took in the last explanation; for limits by the clock only."""
    readings: dict[Any, Any] = field(default_factory=dict)
    """Assumed meaning of its outputs (`engine.reading.Assumption`), by kind of question."""
    given_up: list[str] = field(default_factory=list)
    """Shortcuts that failed with an error when they were checked, for all certificates."""
    explained: int = 0
    """Explanations so far: replays become rarer with their number."""

    @property
    def known(self) -> bool:
        """Whether the structure of the model is known."""
        return self.structure is not None and self.structure.known


_PROFILES: weakref.WeakKeyDictionary[nn.Module, tuple[Watched, list[ModelProfile]]]
_PROFILES = weakref.WeakKeyDictionary()


def profile_for(model: Model, graph: Graph) -> ModelProfile:
    """The cached profile of a model and a graph; a new one if either has changed."""
    module = model.call
    if not isinstance(module, nn.Module):
        unknown = Structure(False, "it is no module")
        return ModelProfile(
            (), None, ModelLayers.of(model.submodules), model.plan, structure=unknown
        )
    if not graph.stamps:  # a part of the user's graph: nothing is kept of it
        return _new_profile(model, graph)
    watched, profiles = _PROFILES.get(module, (None, []))
    if watched is None or not watched.matches(model.submodules):
        # The model has changed: its profiles are outdated.
        profiles = []
        _PROFILES[module] = Watched.of(model.submodules), profiles
    for profile in profiles:
        if profile.plan == model.plan and _is_of(profile.graph, graph):
            return profile
    new = _new_profile(model, graph)
    profiles[:] = [new, *profiles][:_PROFILES_PER_MODEL]
    return new


def _new_profile(model: Model, graph: Graph) -> ModelProfile:
    structure, left = None, None
    try:
        left = rounds_left(model, graph)
        depth = None if left is None else max(left) + 1
    except ModelError:
        depth = sum(isinstance(part, MessagePassing) for part in model.submodules)
        reason = "its rounds of message passing could not be counted"
        structure = Structure(False, reason, failed=True)
    references = (None if part is None else weakref.ref(part) for part in _tensors(graph))
    fingerprint = (graph.stamps, *references)
    layers = ModelLayers.of(model.submodules, left)
    return ModelProfile(fingerprint, depth, layers, model.plan, structure=structure)


def invalidate(model: Model) -> None:
    """Drop the cached profiles of a model."""
    if isinstance(model.call, nn.Module):
        _PROFILES.pop(model.call, None)


def _tensors(graph: Graph) -> list[Tensor | None]:
    further = tensors(*(attribute.value for attribute in graph.attributes.values()))
    return [graph.x, graph.edge_index, graph.edge_weight, graph.edge_attr, *further]


def _is_of(cached: tuple[Any, ...], graph: Graph) -> bool:
    """Whether stamps and references are those of a graph."""
    stamps, *references = cached
    cached_tensors = [None if reference is None else reference() for reference in references]
    now = _tensors(graph)
    return stamps == graph.stamps and [*map(id, cached_tensors)] == [*map(id, now)]


def depth_changed(query: Query, profile: ModelProfile) -> bool:
    """Whether another number of rounds is counted now."""
    try:
        return rounds_left(query.model, query.graph) != profile.layers.rounds_left
    except ModelError:
        return False


def fits_one_call(graph: Graph) -> bool:
    """Whether the graph is small enough to be evaluated in one call."""
    return graph.x.numel() + 32 * (graph.num_nodes + graph.num_edges) <= _MOST_ITEMS


def sample_graph(graph: Graph) -> Graph:
    """A small part of a graph, the same each time."""
    return subgraph(graph, _sample_neighbourhood(graph, np.random.default_rng(0)))


def _sample_neighbourhood(
    graph: Graph, rng: np.random.Generator, most: int = 40, per_node: int = 12
) -> Ids:
    """Nodes around a random node with an in-edge, along edges in both directions."""
    starts = rng.integers(0, graph.num_nodes, 32)
    in_degrees = graph.index.start[starts + 1] - graph.index.start[starts]
    first = int(starts[np.argmax(in_degrees > 0)])
    out = out_edges(graph)
    sources, targets = (end.cpu().numpy() for end in graph.edge_index)
    nodes, waiting = {first: None}, [first]
    while waiting and len(nodes) < most:
        node = np.asarray([waiting.pop(0)])
        neighbours = np.concatenate(
            [
                sources[graph.index.edges_into(node)[:per_node]],
                targets[out.edges_into(node)[:per_node]],
            ]
        )
        new = dict.fromkeys(n for n in neighbours.tolist() if n not in nodes)
        new = dict.fromkeys([*new][: most - len(nodes)])
        nodes |= new
        waiting += new
    return np.asarray([*nodes], dtype=np.int64)


# What is known of a model's structure, and how many coalitions are replayed because of it.


# Coalitions that are replayed: of models whose structure is known, after 1, 4, 16, ... explanations
# on a graph; of others always, as many as take a part of a second.
_REPLAYS_KNOWN = 2
_REPLAYS_UNKNOWN = (4, 64)
_REPLAYS_LATER = 2  # of graphs with types whose plain calls are costly
_REPLAYED_NUMBERS = 1 << 26
_MOST_PLAIN = 512
_SECONDS_OF_REPLAYS = 0.25  # of each game, by a count
_SECONDS_OF_PLAIN = 1.0  # of a game that is evaluated by plain calls alone
_COPIES = 3  # of a small graph, which show whether tensors grow faster than a batch


def read_into(profile: ModelProfile, query: Query) -> None:
    """Trace the structure of the model, if that was not done before."""
    if profile.structure is not None:
        return
    try:
        profile.structure = read_structure(query.model, sample_graph(query.graph), is_known)
    except ModelError as error:  # too small a graph for the model
        give_up("the structure of the model was not read", error)


def distrust_structure(query: Query) -> int:
    """Treat the structure as unknown, as a shortcut failed that a known one allows.

    Returns the number of coalitions of each game that must be evaluated again.
    """
    profile = profile_for(query.model, query.graph)
    seen = profile.structure or Structure(False)
    reason = "a batch gave other outputs than plain calls"
    profile.structure = Structure(False, reason, precision=seen.precision)
    return _replays_of_unknown(query, profile)


def required_replays(query: Query, profile: ModelProfile) -> int:
    """Number of coalitions of each game that must be evaluated again by plain calls.

    Fewer but for the 1st, 4th, 16th, ... explanation, where the structure is known or the graph has
    types and plain calls are costly.
    """
    by_type = query.graph.has_types
    if not by_type and not profile.known:
        return _replays_of_unknown(query, profile)
    profile.explained += 1
    is_power_of_four = profile.explained.bit_count() == 1 and profile.explained.bit_length() % 2
    if by_type:
        first, later = replays_by_type(query.graph)
    else:
        first, later = _REPLAYS_KNOWN, 0
    return first if is_power_of_four else later


def _replays_of_unknown(query: Query, profile: ModelProfile) -> int:
    """As many coalitions as take about `_SECONDS_OF_REPLAYS` as plain calls on the whole graph."""
    if not fits_one_call(query.graph):
        return _REPLAYS_UNKNOWN[0]
    if profile.seconds_of_call is None:
        try:
            seconds = counted_seconds(lambda: call_on(query.model, query.graph))
        except ModelError:  # what is wrong shows in the checks
            seconds = 0.0
        profile.seconds_of_call = seconds
    affordable = _SECONDS_OF_REPLAYS / max(profile.seconds_of_call, 1e-9)
    return int(np.clip(affordable, *_REPLAYS_UNKNOWN))


def replays_by_type(graph: Graph) -> tuple[int, int]:
    """Replays of first and of later explanations of a graph with types: fewer if calls are costly.

    Where plain calls are cheap always as many.
    """
    most = int(np.clip(_affordable_replays(graph), *_REPLAYS_UNKNOWN))
    return most, most if most == _REPLAYS_UNKNOWN[1] else _REPLAYS_LATER


def _affordable_replays(graph: Graph) -> int:
    """Plain calls on a graph that take as long as those of other graphs do."""
    numbers = sum(x.numel() for x in graph.types.features.values())
    return _REPLAYED_NUMBERS // max(1, numbers + 32 * (graph.num_nodes + graph.num_edges))


def plain_up_to(graph: Graph, profile: ModelProfile) -> int:
    """Coalitions up to which all are plain calls, where the structure of the model is unknown."""
    by_cost = int(_SECONDS_OF_PLAIN / max(profile.seconds_of_call or 0.0, 1e-9))
    return min(_MOST_PLAIN, _affordable_replays(graph), by_cost)


def needs_small_batches(query: Query, profile: ModelProfile) -> bool:
    """Whether some operation's result is much more than three times larger on three copies.

    Such as N x N matrices: a batch of B graphs with n nodes each makes B matrices of n^2 entries
    one of (B n)^2, which takes B times the time and the memory of single calls. Sizes are compared,
    not times, so that the same seed gives the same batches and the same bits.
    """
    if profile.known:
        return False
    if profile.small_batches is None:
        graph = sample_graph(query.graph)
        try:
            alone, together = (_result_sizes(query.model, graph, n) for n in (1, _COPIES))
        except ModelError:
            alone, together = [], []
        if len(alone) != len(together):  # what the model does depends on the graph
            alone, together = [max(alone, default=0)], [max(together, default=0)]
        profile.small_batches = any(
            large > 1.5 * _COPIES * small > 0 for small, large in zip(alone, together, strict=True)
        )
    return profile.small_batches


def _result_sizes(model: Model, graph: Graph, copies: int) -> list[int]:
    """Number of entries of the result of each operation, on copies of a graph."""
    count, edges, device = graph.num_nodes, graph.num_edges, graph.x.device
    first = count * torch.arange(copies, device=device)
    nodes = torch.arange(count, device=device).repeat(copies)
    positions = torch.arange(edges, device=device).repeat(copies)
    batch = None
    if "batch" in model.takes:
        batch = torch.arange(copies, device=device).repeat_interleave(count)
    with _Counted() as counted:
        model(
            graph.x[nodes],
            graph.edge_index[:, positions] + first.repeat_interleave(edges),
            *graph.edge_rows(positions),
            batch,
            first.repeat(2, 1),
            graph.attributes_at(nodes, positions, copies if model.whole_graphs else 1),
        )
    return counted.sizes


# What a call costs.


_SECONDS_OF_NUMBER, _SECONDS_OF_FLOP, _SECONDS_OF_CALL = 1.5e-9, 3e-11, 1e-5
_NUMBERS_OF_SCORE = 20  # read and written for each pair of rows that an attention compares


class _Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Adds up what the operations within it cost, and records how large their results are."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.seconds = 0.0
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        # A sparse N x N matrix stores the edges only.
        dense = (part.numel() for part in tensors(out) if part.layout == torch.strided)
        self.sizes.append(max(dense, default=0))
        if func is torch.ops.aten._to_copy.default and args[0].device != out.device:
            return out  # a copy to or from a device, which a CPU does without
        operands = tensors(args, kwargs, out)
        self.seconds += _SECONDS_OF_CALL
        if func.is_view:
            return out
        numbers = sum(map(_stored, operands))
        if "attention" in func.__name__ and operands[0].dim() > 2:  # scores are not an operand
            *copies, rows, _ = operands[0].shape
            numbers += _NUMBERS_OF_SCORE * torch.Size(copies).numel() * rows**2
        self.seconds += _SECONDS_OF_NUMBER * numbers
        flops = flop_registry.get(func.overloadpacket)
        if flops is not None and all(operand.layout == torch.strided for operand in operands):
            self.seconds += _SECONDS_OF_FLOP * flops(*args, **kwargs, out_val=out)
        return out


def _stored(tensor: Tensor) -> int:
    return tensor.numel() if tensor.layout == torch.strided else tensor._nnz()


def counted_seconds(run: Callable[[], Any]) -> float:
    """What `run()` costs, about as long as it takes on one core; it is run once."""
    with _Counted() as counted:
        run()
    return counted.seconds
