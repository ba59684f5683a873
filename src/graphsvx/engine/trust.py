"""What is known of a model's structure, and how many coalitions are replayed because of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import MessagePassing

from graphsvx.core import graph as graphs
from graphsvx.core.graph import Graph
from graphsvx.core.model import Model, call_on
from graphsvx.core.query import Query
from graphsvx.engine.cost import counted_seconds
from graphsvx.engine.kernels import is_known, kernel_of
from graphsvx.engine.profile import (
    ModelProfile,
    fits_one_call,
    profile_for,
    sample_neighbourhood,
)
from graphsvx.engine.rowwise import tensors
from graphsvx.engine.structure import Structure, read_structure
from graphsvx.errors import ModelError
from graphsvx.utils.given_up import give_up

# Coalitions that are replayed: of models whose structure is known, after 1, 4, 16, ... explanations
# on a graph; of others always, as many as take a part of a second.
_REPLAYS_KNOWN = 2
_REPLAYS_UNKNOWN = (4, 64)
_REPLAYS_LATER = 2  # of graphs with types whose plain calls are costly
_REPLAYED_NUMBERS = 1 << 26
_MOST_PLAIN = 512
_SECONDS_OF_REPLAYS = 0.25  # of each game, by a count
_SECONDS_OF_PLAIN = 1.0  # of a game that is evaluated by plain calls alone


def has_known_structure(query: Query, profile: ModelProfile) -> bool:
    """Whether the model is message passing with row-wise operations; traced at the first call."""
    if profile.structure is None:
        try:
            profile.structure = read_structure(query.model, sample_graph(query.graph), is_known)
        except ModelError as error:  # too small a graph for the model
            give_up("the structure of the model was not read", error)
            return False
    return profile.structure.known


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
    """Number of coalitions of each game that must be evaluated again by plain calls."""
    if not has_known_structure(query, profile):
        return _replays_of_unknown(query, profile)
    profile.explained += 1
    return _REPLAYS_KNOWN if _is_power_of_four(profile.explained) else 0


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


def replays_by_type(graph: Graph, explained: int = 1) -> int:
    """Number of coalitions of each game that must be evaluated again, of a graph with types.

    Where plain calls are cheap always as many; otherwise fewer but for the 1st, 4th, 16th, ...
    explanation.
    """
    most = int(np.clip(_affordable_replays(graph), *_REPLAYS_UNKNOWN))
    return most if _is_power_of_four(explained) or most == _REPLAYS_UNKNOWN[1] else _REPLAYS_LATER


def _is_power_of_four(number: int) -> bool:
    return number & (number - 1) == 0 and number.bit_length() % 2 == 1


def _affordable_replays(graph: Graph) -> int:
    """Plain calls on a graph that take as long as those of other graphs do."""
    numbers = sum(x.numel() for x in graph.types.features.values())
    return _REPLAYED_NUMBERS // max(1, numbers + 32 * (graph.num_nodes + graph.num_edges))


def plain_up_to(graph: Graph, profile: ModelProfile) -> int:
    """Coalitions up to which all are plain calls, where the structure of the model is unknown."""
    by_cost = int(_SECONDS_OF_PLAIN / max(profile.seconds_of_call or 0.0, 1e-9))
    return min(_MOST_PLAIN, _affordable_replays(graph), by_cost)


def needs_small_batches(query: Query, profile: ModelProfile) -> bool:
    """Whether the model makes tensors that grow faster than a batch, such as N x N matrices."""
    if profile.structure is not None and profile.structure.known:
        return False
    if profile.small_batches is None:
        profile.small_batches = grows_faster_than_batch(query.model, sample_graph(query.graph))
    return profile.small_batches


def sample_graph(graph: Graph) -> Graph:
    """A small part of a graph, the same each time."""
    return graphs.subgraph(graph, sample_neighbourhood(graph, np.random.default_rng(0)))


def reads_in_edges_only(model: Model) -> bool:
    """Whether all layers are known to pass messages along the edges."""
    return all(kernel_of(layer) is not None for layer in _message_layers(model))


def reads_degrees(model: Model) -> bool:
    """Whether messages may depend on degrees: then edges one hop further out count."""
    kernels = [kernel_of(layer) for layer in _message_layers(model)]
    return not kernels or any(kernel is None or kernel.reads_degrees for kernel in kernels)


def is_known_to_read_degrees(model: Model) -> bool:
    """Whether messages of a known layer depend on degrees."""
    kernels = [kernel_of(layer) for layer in _message_layers(model)]
    return any(kernel is not None and kernel.reads_degrees for kernel in kernels)


def _message_layers(model: Model) -> list[Any]:
    return [part for part in model.submodules if isinstance(part, MessagePassing)]


# Whether a model's tensors grow faster than its input, as dense N x N matrices do.
#
# A batch of B graphs with n nodes each makes B matrices of n^2 entries one of (B n)^2: it takes B
# times the time and the memory of single calls, so that such models are given small batches. Sizes
# are compared, not times, so that the same seed gives the same batches and the same bits.


_COPIES = 3


class _ResultSizes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """Records the number of stored entries of the result of each operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.sizes.append(max(map(_stored, tensors(out)), default=0))
        return out


def _stored(tensor: Tensor) -> int:
    if tensor.layout != torch.strided:  # a sparse N x N matrix stores the edges only
        return 0
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def grows_faster_than_batch(model: Model, graph: Graph) -> bool:
    """Whether some operation's result is much more than three times larger on three copies.

    `graph` should be small: it is evaluated once by itself and once with two copies.
    """
    try:
        alone, together = (_result_sizes(model, graph, copies) for copies in (1, _COPIES))
    except ModelError:
        return False
    if len(alone) != len(together):  # what the model does depends on the graph
        alone, together = [max(alone, default=0)], [max(together, default=0)]
    return any(
        large > 1.5 * _COPIES * small > 0 for small, large in zip(alone, together, strict=True)
    )


def _result_sizes(model: Model, graph: Graph, copies: int) -> list[int]:
    count, edges, device = graph.num_nodes, graph.num_edges, graph.x.device
    first = count * torch.arange(copies, device=device)
    weight, attr = (
        None if values is None else values.repeat(copies, *[1] * (values.dim() - 1))
        for values in (graph.edge_weight, graph.edge_attr)
    )
    batch = None
    if "batch" in model.takes:
        batch = torch.arange(copies, device=device).repeat_interleave(count)
    with _ResultSizes() as recorded:
        model(
            graph.x.repeat(copies, 1),
            graph.edge_index.repeat(1, copies) + first.repeat_interleave(edges),
            weight,
            attr,
            batch,
            first.repeat(2, 1),
            graph.attributes_at(
                torch.arange(count, device=device).repeat(copies),
                torch.arange(edges, device=device).repeat(copies),
                copies if model.whole_graphs else 1,
            ),
        )
    return recorded.sizes
