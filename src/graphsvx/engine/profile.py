"""Cached facts about (model, graph) pairs, valid until either changes.

Depth, layer types, the results of the run-time checks and the predictions on the full graph do
not depend on the query. They are cached with a fingerprint of the model and the graph. Weights
that were modified without torch are still safe: each explanation compares its full-coalition
output with the cached prediction, and on a mismatch the profile is invalidated.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from graphsvx.core.arrays import Ids
from graphsvx.core.calling import USUAL, CallPlan
from graphsvx.core.depth import message_passing_depth
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


_PROFILES: weakref.WeakKeyDictionary[nn.Module, tuple[Fingerprint, list[ModelProfile]]]
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
    fingerprint, profiles = _PROFILES.get(module, (None, []))
    if fingerprint is None or not fingerprint.matches(model.submodules):
        # The model has changed: its profiles are outdated.
        profiles = []
        _PROFILES[module] = Fingerprint.of(model.submodules), profiles
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


# Fingerprints of models, to detect changes before each explanation.
#
# A fingerprint holds numbers, strings, classes and code objects, but no module, tensor or hook, so
# that it does not keep a model alive. Attributes are read by getters that are built once, so that
# most of a comparison runs in C.


_PLAIN = {int, float, bool, str, type(None)}
_EMPTY = {dict, OrderedDict, list, tuple, set}
_TENSORS = {Tensor, nn.Parameter, type(None)}
# Attributes of every module that no forward pass reads.
_UNREAD = {
    "_non_persistent_buffers_set",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
}


@dataclass(frozen=True, eq=False)
class ModuleSnapshot:
    """Snapshot of a module's attributes, to detect later changes."""

    kind: type
    size: int
    """Number of attributes."""
    names: Callable[[dict[str, Any]], Any]
    """Reads the plain attributes: numbers, strings, and containers (of hooks) that were empty."""
    values: Any
    others: tuple[tuple[str, Callable[[Any], Any], Any], ...]
    """(name, reader, value) of the other attributes."""

    @staticmethod
    def of(module: nn.Module) -> ModuleSnapshot:
        """Snapshot of a module."""
        plain: dict[str, Any] = {}
        others: list[tuple[str, Callable[[Any], Any], Any]] = []
        for name, value in module.__dict__.items():
            if name in _UNREAD:
                continue
            if type(value) in _PLAIN:
                plain[name] = value
            elif type(value) in _EMPTY and not value:
                plain[name] = type(value)()
            else:
                reader = _reader_of(name, value)
                others.append((name, reader, reader(value)))
        names = itemgetter(*plain) if plain else _nothing
        return ModuleSnapshot(
            type(module), len(module.__dict__), names, names(plain), tuple(others)
        )

    def matches(self, module: nn.Module) -> bool:
        """Whether the module's attributes are unchanged."""
        attributes = module.__dict__
        if (
            type(module) is not self.kind
            or len(attributes) != self.size
            or self.names(attributes) != self.values
        ):
            return False
        for name, reader, seen in self.others:  # noqa: SIM110  (`all` takes twice as long)
            if reader(attributes[name]) != seen:
                return False
        return True


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Fingerprint of the weights, layers, hooks, plain attributes and code of a model."""

    snapshots: list[ModuleSnapshot]
    ids: list[int]
    code: list[ClassCode]
    """Of the classes of its modules, each once."""

    @staticmethod
    def of(modules: list[nn.Module]) -> Fingerprint:
        """Fingerprint of a model, given all of its modules."""
        kinds = dict.fromkeys(map(type, modules))
        code = [ClassCode.of(kind) for kind in kinds]
        return Fingerprint(
            [ModuleSnapshot.of(module) for module in modules], [*map(id, modules)], code
        )

    def matches(self, modules: list[nn.Module]) -> bool:
        """Whether the model is unchanged."""
        if self.ids != [*map(id, modules)]:
            return False
        try:
            if not all(code.unchanged() for code in self.code):
                return False
            return all(
                snapshot.matches(module)
                for snapshot, module in zip(self.snapshots, modules, strict=True)
            )
        except (KeyError, TypeError, ValueError, RuntimeError):
            return False  # an attribute is missing or has another type


def _nothing(attributes: dict[str, Any]) -> None:  # noqa: ARG001  (a getter's argument)
    return None


def _reader_of(name: str, value: Any) -> Callable[[Any], Any]:
    """The function that reads an attribute for comparison."""
    if not isinstance(value, (dict, list, tuple)):
        return _item
    if name == "_modules":
        return _children
    return _weights if _holds_tensors(value) else _contents


def _children(modules: dict[str, Any]) -> list[Any]:
    """Names and identities of child modules; a fast version of `_contents`."""
    return [*modules, *map(id, modules.values())]


def _holds_tensors(value: Any) -> bool:
    """Whether a value is a dictionary of parameters or buffers."""
    return isinstance(value, dict) and all(
        type(key) is str and type(tensor) in _TENSORS for key, tensor in value.items()
    )


def _weights(tensors: Any) -> list[Any]:
    """Identity, version and address of each tensor; a fast version of `_contents`."""
    try:
        return [*tensors] + [
            tensor if tensor is None else (id(tensor), tensor._version, tensor.data_ptr())
            for tensor in tensors.values()
        ]
    except (AttributeError, RuntimeError, ValueError):  # something else by now, lazily made, ...
        return _contents(tensors)


def _contents(values: Any, depth: int = 4) -> list[Any]:
    if isinstance(values, dict):
        values = [*values, *values.values()]
    return [_item(value, depth) for value in values]


def _item(value: Any, depth: int = 4) -> Any:
    if type(value) in _PLAIN:
        return value
    if depth and type(value) in (dict, list, tuple):
        return _contents(value, depth - 1)
    if not isinstance(value, Tensor):
        return id(value)
    try:
        return id(value), None if value.is_inference() else value._version, value.data_ptr()
    except (RuntimeError, ValueError):  # lazily made, or without storage
        return id(value)


# Whether the code of a class is what it was: its methods, and the globals that they use.
#
# A user may replace `GCNConv.message`, or `gcn_norm` in the module of `GCNConv`, between two
# explanations. Identities are compared, which takes some microseconds a class; a function whose
# `__code__` is replaced in place is not noticed.


_LIBRARIES = ("torch.", "numpy.", "scipy.", "builtins", "typing", "abc")
_DEPTH = 3
"""How many functions deep globals are followed: forward -> gcn_norm -> add_remaining_self_loops."""


@dataclass(frozen=True, eq=False)
class ClassCode:
    """Identities of the attributes of a class and its bases, and of the globals they use."""

    kinds: tuple[type, ...]
    ids: tuple[list[int], ...]
    globals: tuple[tuple[dict[str, Any], tuple[str, ...], list[int]], ...]

    @staticmethod
    def of(kind: type) -> ClassCode:
        """Snapshot of the class."""
        kinds = tuple(base for base in kind.__mro__ if not _is_library(base.__module__))
        names: dict[int, tuple[dict[str, Any], set[str]]] = {}
        functions = {function for base in kinds for function in _functions(base)}
        seen: set[Any] = set()
        for _ in range(_DEPTH):
            seen |= functions
            used: set[Any] = set()
            for function in functions:
                scope = function.__globals__
                for name in _names(function.__code__):
                    value = scope.get(name)
                    if value is None or isinstance(value, ModuleType):
                        continue
                    names.setdefault(id(scope), (scope, set()))[1].add(name)
                    if isinstance(value, FunctionType) and not _is_library(value.__module__):
                        used.add(value)
            functions = used - seen
        globals_read = tuple(
            (scope, ordered := tuple(sorted(globals_of)), [id(scope[name]) for name in ordered])
            for scope, globals_of in names.values()
        )
        return ClassCode(kinds, tuple(_ids(base) for base in kinds), globals_read)

    def unchanged(self) -> bool:
        """Whether everything is still the same object."""
        if any(_ids(kind) != ids for kind, ids in zip(self.kinds, self.ids, strict=True)):
            return False
        return all([*map(id, map(scope.get, names))] == ids for scope, names, ids in self.globals)


def _is_library(module: str | None) -> bool:
    return module is None or (module + ".").startswith(_LIBRARIES)


def _ids(kind: type) -> list[int]:
    return [*map(id, vars(kind).values())]


def _functions(kind: type) -> Iterator[FunctionType]:
    for value in vars(kind).values():
        inner = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(inner, FunctionType):
            yield inner


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, type(code)):  # a function inside of the function
            yield from _names(constant)
