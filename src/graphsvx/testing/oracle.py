"""The paper in one file, without a shortcut: what all tests trust, and a good file to read first.

GraphSVX (Duval and Malliaros 2021), as slow as it is written there: MASK takes all coalitions, GEN
cuts edges and replaces features in a copy of the user's graph, f is one plain call of the model on
this whole graph, EXPL is the definition of the Shapley value or the regression of Eq. 3. Nothing of
the library is imported, so that no mistake is on both sides.

    score = probability_of(model, 3, target=0)                  # f_v
    credit = algorithm_1(score, data, 3, nodes=[1, 2], features=[0, 1])

Graphs are PyG's `Data` or `HeteroData`. Nodes and edges have the names that their user would give
them: numbers in `Data`, ("paper", 3) and (("author", "writes", "paper"), 0) in `HeteroData`.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Player = TypeVar("Player", bound=Hashable)

# --- MASK --------------------------------------------------------------------------------------


def coalitions(players: Iterable[Player]) -> list[frozenset[Player]]:
    """All 2^M subsets of the players, small ones first."""
    players = list(players)
    sizes = range(len(players) + 1)
    return [frozenset(members) for size in sizes for members in combinations(players, size)]


# --- GEN ---------------------------------------------------------------------------------------


def replace_features(
    data: Any, nodes: Iterable[Any], columns: Iterable[int], reference: Any = None
) -> Any:
    """X' of Eq. 1: columns of some nodes become their mean over all nodes, or the reference."""
    changed, columns = copy.copy(data), list(columns)
    for node in nodes if columns else ():
        (before, row), (after, _) = _place(data, node), _place(changed, node)
        other = before.x.double().mean(0) if reference is None else torch.as_tensor(reference)
        after.x = after.x.clone()
        after.x[row, columns] = other[columns].to(after.x.dtype)
    return changed


def _place(data: Any, node: Any) -> tuple[Any, int]:
    return (data[node[0]], node[1]) if isinstance(node, tuple) else (data, node)


def cut(data: Any, nodes: Collection[Any] = (), edges: Collection[Any] = ()) -> Any:
    """A' of Eq. 2: the graph without the edges of some nodes, and without some edges.

    Weights, attributes and types go with their edges. Edges are named by their position in
    `edge_index`; nodes stay, isolated. Also cuts further tensors named `..._edge_index`.
    """
    changed, nodes, edges = copy.copy(data), {*nodes}, {*edges}
    with warnings.catch_warnings(action="ignore"):  # data without x: by the largest number
        count = data.num_nodes
    for before, after in zip(data.edge_stores, changed.edge_stores, strict=True):
        kind = before._key  # None, or the type of these edges
        for index in [name for name in before if name.endswith("edge_index")]:
            remain = torch.tensor([not {*ends} & nodes for ends in _ends(before, index)]).bool()
            for i in range(len(remain)) if index == "edge_index" else ():
                remain[i] &= (i if kind is None else (kind, i)) not in edges
            after[index] = before[index][:, remain]
            for name, value in before.items():  # `far_edge_attr` goes with `far_edge_index`
                rows = isinstance(value, Tensor) and value.dim() and len(value) == len(remain)
                named = name.startswith(index.removesuffix("index"))
                of_these_edges = named or (index == "edge_index" and len(remain) != count)
                if rows and of_these_edges and not name.endswith("index"):
                    after[name] = value[remain]
    return changed


def ends_of(data: Any) -> list[tuple[Any, Any]]:
    """Names of both ends of each edge."""
    return [pair for store in data.edge_stores for pair in _ends(store, "edge_index")]


def _ends(store: Any, name: str) -> list[tuple[Any, Any]]:
    pairs, kind = [(u, v) for u, v in store[name].t().tolist()], store._key
    return pairs if kind is None else [((kind[0], u), (kind[2], v)) for u, v in pairs]


def distances(ends: Collection[tuple[Any, Any]], centres: Iterable[Any]) -> dict[Any, int]:
    """Steps along the edges from each node that reaches a centre to the nearest one."""
    steps = dict.fromkeys(centres, 0)
    while new := {u for u, v in ends if v in steps and u not in steps}:
        steps |= dict.fromkeys(new, max(steps.values()) + 1)
    return steps


def indirect_effect(
    data: Any,
    on: Iterable[int],
    off: Collection[int],
    centres: Collection[int],
    paths: Mapping[int, Sequence[int]],
    passing: Tensor,
) -> Any:
    """Algorithm 2: nodes that are on but cut off from the explained ones get a path back.

    `paths` has one shortest path (w, ..., v), drawn once, of each node w around v. Its inner nodes
    get the features `passing` unless they are on: the mean by the text, X_v by the pseudocode.
    """
    ends, off, usable = ends_of(data), {*off}, {*paths, *centres}
    connected = distances([p for p in ends if {*p} <= usable and not {*p} & off], centres)
    returned, x = set(), data.x.clone()
    for path in [paths[w] for w in on if w in paths and w not in connected]:
        returned |= {frozenset(step) for step in pairwise(path)}
        for inner in off & {*path[1:-1]}:
            x[inner] = passing.to(x.dtype)
    removed = [i for i, p in enumerate(ends) if {*p} & off and frozenset(p) not in returned]
    changed = cut(data, edges=removed)
    changed.x = x
    return changed


# --- f -----------------------------------------------------------------------------------------


def call(model: Callable[..., Any], data: Any) -> Any:
    """f(X', A'): the model on the whole graph, with all that its arguments name."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(getattr(model, "forward", model)).parameters.items():
        by_type = name.removesuffix("_dict")  # `to_hetero` leaves it out
        if name == "batch_dict":
            counts = {kind: data[kind].num_nodes for kind in data.node_types}
            arguments[name] = {k: torch.zeros(n, dtype=torch.long) for k, n in counts.items()}
        elif hasattr(data, "node_types") and any(by_type in store for store in data.stores):
            arguments[name] = data.collect(by_type)
        elif name in data:
            arguments[name] = data[name]
        elif parameter.default is parameter.empty and "VAR" not in parameter.kind.name:
            zeros = torch.zeros(data.num_nodes, dtype=torch.long)
            arguments[name] = zeros if name == "batch" else data
    with torch.no_grad():
        return model(**arguments)


def probability_of(
    model: Callable[..., Any], *nodes: Any, target: int | None = None
) -> Callable[[Any], Any]:
    """f_v: probabilities of a node, their mean over several, or of the graph if none is named."""

    def score(data: Any) -> Any:
        out, named = call(model, data), nodes or (0,)
        out = out[named[0][0]] if isinstance(out, dict) else out
        rows = [_place(data, node)[1] for node in named]
        probabilities = out[rows].softmax(-1).mean(0)
        return probabilities if target is None else float(probabilities[target])

    return score


# --- EXPL --------------------------------------------------------------------------------------


def shapley_values(
    players: Iterable[Player], value: Callable[[frozenset[Player]], Any]
) -> dict[Player, Any]:
    """The definition: what each player adds to all coalitions of the others, by their weights.

    Values are numbers, or arrays of several outputs.
    """
    players = list(players)
    worth = {coalition: value(coalition) for coalition in coalitions(players)}
    return {
        player: sum(
            (worth[others | {player}] - worth[others])
            / (len(players) * comb(len(players) - 1, len(others)))
            for others in worth
            if player not in others
        )
        for player in players
    }


def shapley_of_table(values: Any) -> Any:
    """The same, [players, ...], of a game by its values: `values[k]` of the players in k's bits."""
    values = np.asarray(values)
    count = len(values).bit_length() - 1
    on = (np.arange(len(values))[:, None] >> np.arange(count)) & 1
    others = on.sum(1, keepdims=True) - on  # number of the others that are on
    weights = 1 / (count * np.array([comb(count - 1, size) for size in range(count)])[others])
    return np.tensordot(weights * (2 * on - 1), values, (0, 0))


def kernel_weight(size: int, players: int) -> float:
    """pi of Eq. 3, for coalitions that are neither empty nor full."""
    return (players - 1) / (players * size) / comb(players - 1, size)


def weighted_regression(
    players: Iterable[Player], value: Callable[[frozenset[Player]], float]
) -> dict[Player, float]:
    """Eq. 3: the linear g of least weighted squared error; theorem 1: these are Shapley values.

    The empty and the full coalition have infinite weight: g is exact there.
    """
    players = list(players)
    count, base = len(players), value(frozenset())
    normal, right = torch.zeros(2, count + 1, count + 1, dtype=torch.float64)
    normal[:count, count] = normal[count, :count] = 1  # the sum is given (Lagrange)
    right[count, 0] = value(frozenset(players)) - base
    for coalition in coalitions(players)[1:-1]:
        z = torch.tensor([player in coalition for player in players], dtype=torch.float64)
        weight = kernel_weight(len(coalition), count)
        normal[:count, :count] += weight * torch.outer(z, z)
        right[:count, 0] += weight * (value(coalition) - base) * z
    return dict(zip(players, torch.linalg.solve(normal, right[:, 0]).tolist(), strict=False))


# --- algorithm 1 -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Credit:
    """phi_0 and phi, which add up to the prediction."""

    base: Any
    features: dict[int, Any]
    nodes: dict[Any, Any]
    prediction: Any


def algorithm_1(
    score: Callable[[Any], Any],
    data: Any,
    centre: Any,
    nodes: Collection[Any],
    features: Collection[int],
    reference: Any = None,
) -> Credit:
    """GraphSVX of one or several nodes: features play while they are isolated, then nodes play.

    These are two games (relative efficiency) that meet at "all features, no nodes".

    Args:
        score: f_v of a graph, such as `probability_of(model, v, target=0)`.
        data: the graph.
        centre: the explained node v, or a list of nodes.
        nodes: the D nodes that play.
        features: the B columns of X_v that play.
        reference: what a feature that is off becomes; None is its mean over all nodes.

    """
    isolated, centres = cut(data, nodes), centre if isinstance(centre, list) else [centre]

    def of_features(on: frozenset[int]) -> Any:
        return score(replace_features(isolated, centres, {*features} - on, reference))

    def of_nodes(on: frozenset[Any]) -> Any:
        return score(cut(data, {*nodes} - on))

    return Credit(
        of_features(frozenset()),
        shapley_values(features, of_features),
        shapley_values(nodes, of_nodes),
        score(data),
    )


def credit_of(
    explanation: Any, model: Callable[..., Any], data: Any, reference: Any = None
) -> Credit:
    """Algorithm 1 for the centres, the class and the players that an explanation names."""
    centres = list(explanation.centres)
    score = probability_of(model, *centres, target=explanation.target)
    nodes, features = explanation.node_ids.tolist(), explanation.feature_ids.tolist()
    return algorithm_1(score, data, centres, nodes, features, reference)
