"""Cached facts about (model, graph) pairs, valid until either changes.

Depth, layer types, the results of the run-time checks and the predictions on the full graph do
not depend on the query. They are cached with a fingerprint of the model and the graph. Weights
that were modified without torch are still safe: each explanation compares its full-coalition
output with the cached prediction, and on a mismatch the profile is invalidated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.core.arrays import Ids
from graphsvx.core.calling import USUAL, CallPlan
from graphsvx.core.depth import message_passing_depth
from graphsvx.core.fingerprints import Watched
from graphsvx.core.graph import Graph, out_edges
from graphsvx.core.model import Model
from graphsvx.engine.structure import Structure
from graphsvx.errors import ModelError

# Larger graphs are not evaluated in one call.
_MOST_ITEMS = 1 << 24
_PROFILES_PER_MODEL = 4


@dataclass(eq=False)
class ModelProfile:
    """Cached facts about one (model, graph) pair, valid until either changes."""

    graph: tuple[Any, ...]
    """Weak references to the graph's tensors, with their versions."""
    depth: int | None
    plan: CallPlan = USUAL
    """How the model is called."""
    checked: bool = False
    """Whether `shortcuts` and `full_output` have been computed."""
    shortcuts: Any = None
    """The fastest `Shortcuts` that passed the checks on samples of the graph, if any."""
    full_output: Tensor | None = None
    """Raw outputs on the whole graph, [nodes, outputs]; None too for large graphs."""
    layers: Any = None
    """The model's `ModelLayers`; None: not read yet."""
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


_PROFILES: weakref.WeakKeyDictionary[nn.Module, tuple[Watched, list[ModelProfile]]]
_PROFILES = weakref.WeakKeyDictionary()


def profile_for(
    model: Model, graph: Graph, make: Callable[[], ModelProfile] | None = None
) -> ModelProfile:
    """The cached profile of a model and a graph; a new one (by `make`) if either has changed."""
    make = make or (lambda: _new_profile(model, graph))
    module = model.call
    if not isinstance(module, nn.Module):
        return ModelProfile((), None, model.plan, structure=Structure(False, "it is no module"))
    if not graph.stamps:  # a part of the user's graph: nothing is kept of it
        return make()
    watched, profiles = _PROFILES.get(module, (None, []))
    if watched is None or not watched.matches(model.submodules):
        # The model has changed: its profiles are outdated.
        profiles = []
        _PROFILES[module] = Watched.of(model.submodules), profiles
    for profile in profiles:
        if profile.plan == model.plan and _same(profile.graph, graph):
            return profile
    new = make()
    profiles[:] = [new, *profiles][:_PROFILES_PER_MODEL]
    return new


def _new_profile(model: Model, graph: Graph) -> ModelProfile:
    try:
        return ModelProfile(
            graph_fingerprint(graph), message_passing_depth(model, graph), model.plan
        )
    except ModelError:
        guess = sum(isinstance(part, MessagePassing) for part in model.submodules)
        unknown = Structure(
            False, "its rounds of message passing could not be counted", failed=True
        )
        return ModelProfile(graph_fingerprint(graph), guess, model.plan, structure=unknown)


def invalidate(model: Model) -> None:
    """Drop the cached profiles of a model."""
    if isinstance(model.call, nn.Module):
        _PROFILES.pop(model.call, None)


def _tensors(graph: Graph) -> tuple[Tensor | None, ...]:
    attributes = (attribute.value for attribute in graph.attributes.values())
    return (
        graph.x,
        graph.edge_index,
        graph.edge_weight,
        graph.edge_attr,
        *(value for value in attributes if isinstance(value, Tensor)),
    )


def graph_fingerprint(graph: Graph) -> tuple[Any, ...]:
    """Stamps of a graph and weak references to its tensors."""
    tensors = (None if part is None else weakref.ref(part) for part in _tensors(graph))
    return (graph.stamps, *tensors)


def _same(cached: tuple[Any, ...], graph: Graph) -> bool:
    stamps, *tensors = cached
    now = _tensors(graph)
    return (
        stamps == graph.stamps
        and len(tensors) == len(now)
        and all(
            (None if was is None else was()) is tensor
            for was, tensor in zip(tensors, now, strict=True)
        )
    )


def fits_one_call(graph: Graph) -> bool:
    """Whether the graph is small enough to be evaluated in one call."""
    return graph.x.numel() + 32 * (graph.num_nodes + graph.num_edges) <= _MOST_ITEMS


def sample_neighbourhood(
    graph: Graph, rng: np.random.Generator, most: int = 40, per_node: int = 12
) -> Ids:
    """Nodes around a random node with an in-edge, along edges in both directions."""
    starts = rng.integers(0, graph.num_nodes, 32)
    in_degrees = graph.index.start[starts + 1] - graph.index.start[starts]
    nodes = [int(starts[np.argmax(in_degrees > 0)])]
    out = out_edges(graph)
    sources, targets = (end.cpu().numpy() for end in graph.edge_index)
    seen = set(nodes)
    at = 0
    while at < len(nodes) < most:
        node = np.asarray(nodes[at : at + 1])
        neighbours = np.concatenate(
            [
                sources[graph.index.edges_into(node)[:per_node]],
                targets[out.edges_into(node)[:per_node]],
            ]
        )
        new = [
            neighbour for neighbour in dict.fromkeys(neighbours.tolist()) if neighbour not in seen
        ]
        nodes += new[: most - len(nodes)]
        seen.update(new)
        at += 1
    return np.asarray(nodes, dtype=np.int64)
