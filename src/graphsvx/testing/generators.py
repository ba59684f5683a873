"""Laws of generators (GEN) and of kinds of players: what coalitions are in a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx.api import explain
from graphsvx.core.arrays import Bools, Floats, derive_rng
from graphsvx.core.field import Field, Perturbations
from graphsvx.core.model import evaluation_mode
from graphsvx.core.query import Query, build_query
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.lazy import plain
from graphsvx.generators import GameSetup, Generator
from graphsvx.masks.base import all_rows
from graphsvx.methods import Edges, GraphSVX, Nodes, NodesAndFeatures, PlayerKind
from graphsvx.testing.laws import Laws, random_graph, random_model, random_numbers
from graphsvx.testing.oracle import distances, probability_of, shapley_of_table
from graphsvx.utils.exclusive import exclusive

_MOST_PLAYERS = 7
"""All 2^M coalitions of so many players are run one by one."""
_TRAITS: dict[str, tuple[Any, ...]] = {
    "blocks_paths": (True, False),
    "edge_players": (True, False),
    "feature_rows": ("own", "by_mask", "any"),
}
"""What a generator may say of itself; the last where it says nothing."""


def check_generator(generator: Generator, *, seeds: Iterable[int] = range(4)) -> None:
    """Check a generator on small random graphs, all coalitions, against brute force.

    Args:
        generator: the generator with its settings.
        seeds: one random graph and model each.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    laws = Laws(generator)
    law = "has a method prepare(setup, rng) that returns the generator to use"
    laws.require(callable(getattr(generator, "prepare", None)), law)
    traits = {name: getattr(generator, name, allowed[-1]) for name, allowed in _TRAITS.items()}
    for name, trait in traits.items():
        laws.require(trait in _TRAITS[name], f"{name} is one of {_TRAITS[name]}, got {trait!r}")
    edge_players = bool(traits["edge_players"])
    kinds = (Edges(),) if edge_players else (Nodes(), NodesAndFeatures())
    for seed in seeds:
        data, model = random_graph(seed), random_model(seed)
        with exclusive():
            query = build_query(model, data, node=0)
            with evaluation_mode(query.model.submodules):
                everyone = Edges() if edge_players else NodesAndFeatures(features="all")
                setup = everyone.setup(query, choose_evaluator(query, None, 0), 0)
                _check_graphs(laws, generator, setup, traits, seed)
        for kind in kinds:
            _check_credit(laws, kind, generator, model, data)


def _check_graphs(
    laws: Laws, generator: Generator, setup: GameSetup, traits: Mapping[str, Any], seed: int
) -> None:
    field, players = setup.field, setup.players
    playing = players.edges if traits["edge_players"] else players.nodes
    second = _wide(all_rows(min(playing, _MOST_PLAYERS + 1)), playing)
    first = np.ones((len(second), players.features), dtype=bool)
    with laws.random_state_untouched():
        ready = generator.prepare(setup, random_numbers(seed))
        batch = ready(setup, first, second)
    _check_form(laws, batch, setup, len(second))
    edges, features = batch.active_edges(field), _features(batch)

    def same(again: Perturbations, rows: slice = slice(None)) -> bool:
        same_edges = np.array_equal(again.active_edges(field), edges[rows])
        return same_edges and torch.equal(_features(again), features[rows])

    unchanged = edges[-1].all() and torch.equal(features[-1], setup.feature_table)
    laws.require(unchanged, "the coalition of all players gives the graph as it is")
    law = "after prepare() the same coalitions give the same perturbed graphs"
    laws.require(same(ready(setup, first, second)), law)
    prepared = generator.prepare(setup, random_numbers(seed))
    law = "prepare() with the same random numbers gives the same perturbed graphs"
    laws.require(same(prepared(setup, first, second)), law)
    for row in (0, len(second) // 2, len(second) - 1):
        alone = slice(row, row + 1)
        law = "a perturbed graph does not depend on the other coalitions of a batch"
        laws.require(same(ready(setup, first[alone], second[alone]), alone), law)
    if not traits["edge_players"]:
        feature_masks = _wide(all_rows(min(players.features, 3)), players.features)
        first, second = (
            np.repeat(feature_masks, len(second), 0),
            np.tile(second, (len(feature_masks), 1)),
        )
        batch = ready(setup, first, second)
        independent = np.array_equal(
            batch.active_edges(field), np.tile(edges, (len(feature_masks), 1))
        )
        laws.require(independent, "the edges of a perturbed graph do not depend on features")
    _check_rows(laws, traits["feature_rows"], setup, first, batch)
    if traits["blocks_paths"]:
        _check_paths(laws, setup, first, second, batch)


def _wide(rows: Bools, players: int) -> Bools:
    """Coalitions of the first players; the others are on."""
    return np.pad(rows, ((0, 0), (0, players - rows.shape[1])), constant_values=True)


def _features(batch: Perturbations) -> Tensor:
    """X' of each perturbed graph, [graphs, nodes, features]."""
    return plain(batch.feature_table)[torch.from_numpy(batch.feature_rows().copy())]


def _check_form(laws: Laws, batch: Perturbations, setup: GameSetup, coalitions: int) -> None:
    field = setup.field
    laws.require_type(batch, Perturbations, "returns a Perturbations record")
    right = batch.active.dtype == bool and batch.active.shape == (coalitions, field.size)
    laws.require(right, "active is boolean, [coalitions, nodes of the field]")
    for name in ("added_edges", "removed_edges"):
        changed = getattr(batch, name)
        right = changed is None or (
            changed.dtype == bool and changed.shape == (coalitions, len(field.edges))
        )
        laws.require(right, f"{name} is boolean, [coalitions, edges of the field]")
    table, rows = plain(batch.feature_table), batch.feature_rows()
    inside = rows.shape == (coalitions, field.size) and rows.min() >= 0 and rows.max() < len(table)
    laws.require(inside, "feature_row has a row of feature_table for each node")
    starts = len(table) >= field.size and torch.equal(table[: field.size], setup.feature_table)
    laws.require(starts, "feature_table starts with the features of the field's nodes")
    laws.require(table.isfinite().all(), "features are finite")


def _check_rows(
    laws: Laws, trait: str, setup: GameSetup, first: Bools, batch: Perturbations
) -> None:
    """`feature_rows`: which features a node may get, coalition by coalition."""
    features, rows = _features(batch), batch.feature_rows()
    seen: dict[tuple[int, bytes], Tensor] = {}
    law = f'feature_rows = "{trait}": '
    for k in range(len(batch) if trait != "any" else 0):
        for node in range(setup.field.size):
            content, row = features[k, node], rows[k, node]
            if trait == "own" and node >= setup.num_feature_nodes:
                unchanged = torch.equal(content, setup.feature_table[node])
                laws.require(unchanged, f"{law}nodes that are not explained keep their features")
            elif trait == "by_mask" and row < setup.field.size:
                laws.require(row == node, f"{law}a row that is not replaced is the node's own")
            else:
                before = seen.setdefault((node, first[k].tobytes()), content)
                by_mask = "a replaced row depends on its node and the mask of features alone"
                laws.require(torch.equal(before, content), law + by_mask)


def _check_paths(
    laws: Laws, setup: GameSetup, first: Bools, second: Bools, batch: Perturbations
) -> None:
    """`blocks_paths`: what is behind a node that is off cannot be seen, coalition by coalition."""
    field, edges, features = setup.field, batch.active_edges(setup.field), _features(batch)
    law = (
        "blocks_paths = True: what the explained node sees depends only on the nodes that reach "
        "it through switched-on nodes"
    )
    by_set: dict[tuple[bytes, bytes], tuple[Bools, Tensor]] = {}
    for k in range(len(batch)):
        connected = _connected(field, setup.players.active_nodes(field.size, second[k : k + 1])[0])
        into = edges[k] & connected[field.target]
        inner = features[k][torch.from_numpy(connected)]
        key = (connected.tobytes(), first[k].tobytes())
        edges_before, inner_before = by_set.setdefault(key, (into, inner))
        same = np.array_equal(edges_before, into) and torch.equal(inner_before, inner)
        laws.require(same, law)


def _connected(field: Field, on: Bools) -> Bools:
    """Nodes that reach a centre through switched-on nodes of the field."""
    ends = zip(field.source.tolist(), field.target.tolist(), strict=True)
    inside = [(u, v) for u, v in ends if u < field.size and v < field.size and on[u]]
    reached = np.zeros(field.size, dtype=bool)
    reached[list(distances(inside, range(field.centres)))] = True
    return reached


def check_players(kind: PlayerKind, *, seeds: Iterable[int] = range(4)) -> None:
    """Check a kind of players on questions about a node of small random graphs.

    Args:
        kind: the kind with its settings, such as `Nodes(hops=1)`.
        seeds: one random graph and model each.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    laws, compared = Laws(kind), 0
    laws.require_type(kind, PlayerKind, "is a graphsvx.methods.player_kinds.PlayerKind")
    for seed in seeds:
        model, data = random_model(seed), random_graph(seed, nodes=4)
        compared += _check_credit(laws, kind, kind.generator, model, data)
    laws.require(compared, f"somebody plays (and at most {_MOST_PLAYERS + 1} in some graph)")


def _check_credit(
    laws: Laws, kind: PlayerKind, generator: Generator, model: torch.nn.Module, data: object
) -> int:
    """Exact credit of GraphSVX against the definition: one call a coalition, whole graph.

    Features play while all nodes are off, nodes and edges with all features on. Returns the number
    of compared games.
    """
    with exclusive():
        query = build_query(model, data, node=0)
        playing = kind.for_query(query)
        with evaluation_mode(query.model.submodules):
            evaluator = choose_evaluator(query, None, 0)
            setup, again = (playing.setup(query, evaluator, 0) for _ in range(2))
            same = repr(vars(setup.players)) == repr(vars(again.players))
            laws.require(same, "the same seed gives the same players")
            players = setup.players
            sides = {"features": players.features, "nodes": players.nodes, "edges": players.edges}
            sides = {side: n for side, n in sides.items() if 0 < n <= _MOST_PLAYERS + 1}
            ready = generator.prepare(setup, derive_rng(0, "paths"))  # as GraphSVX does
            scores = {}
            for side, count in sides.items():
                rows = all_rows(count)
                others = np.ones((len(rows), players.edges or players.nodes), dtype=bool)
                features = np.ones((len(rows), players.features), dtype=bool)
                coalitions = (rows, ~others) if side == "features" else (features, rows)
                scores[side] = _scores(model, query, evaluator.field, ready(setup, *coalitions))
    method = GraphSVX(players=kind, generator=generator, samples=4 << _MOST_PLAYERS)
    explanation = explain(model, data, node=0, method=method)
    gap = abs(explanation.base + explanation.total - explanation.prediction)
    laws.require(gap < 1e-7, "base and credit add up to the prediction")
    for side in sides:
        values = getattr(explanation, f"{side.removesuffix('s')}_values")
        truth = shapley_of_table(scores[side][:, explanation.target])
        close = np.shape(values) == truth.shape and np.allclose(values.numpy(), truth, atol=1e-7)
        laws.require(close, f"credit of {side} is the Shapley values of their game by definition")
    return len(sides)


def _scores(model: torch.nn.Module, query: Query, field: Field, batch: Perturbations) -> Floats:
    """Probabilities of the explained node, one call on the whole graph for each coalition."""
    graph, scores = query.graph, []
    score, ids = probability_of(model, int(query.centres[0])), field.ids[: field.size]
    for edges, features in zip(batch.active_edges(field), _features(batch), strict=True):
        keep = np.ones(graph.edge_index.shape[1], dtype=bool)
        keep[field.edges] = edges
        x = graph.x.clone()
        x[ids] = features
        scores.append(score(Data(x=x, edge_index=graph.edge_index[:, torch.from_numpy(keep)])))
    return torch.stack(scores).numpy()
