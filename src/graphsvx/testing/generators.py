"""Laws of generators (GEN) and of kinds of players: what coalitions are in a graph."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from graphsvx.api import explain
from graphsvx.core.arrays import Bools, Floats
from graphsvx.core.field import Field
from graphsvx.core.modules import evaluation_mode
from graphsvx.core.perturbation import Perturbations
from graphsvx.core.query import Query, build_query
from graphsvx.core.random import derive_rng
from graphsvx.engine.choose import choose_evaluator
from graphsvx.engine.lazy import plain
from graphsvx.generators import GameSetup, Generator
from graphsvx.masks.base import all_rows
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.methods.player_kinds import Edges, Nodes, NodesAndFeatures, PlayerKind
from graphsvx.testing.laws import (
    random_graph,
    random_model,
    random_numbers,
    random_state_untouched,
    require,
)
from graphsvx.testing.oracle import shapley_of_table
from graphsvx.utils.exclusive import exclusive

_MOST_PLAYERS = 7
"""All 2^M coalitions of so many players are run one by one."""


def check_generator(generator: Generator, *, seeds: Iterable[int] = range(4)) -> None:
    """Check a generator on small random graphs, all coalitions, against brute force.

    Args:
        generator: the generator with its settings.
        seeds: one random graph and model each.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    require(
        callable(getattr(generator, "prepare", None)),
        generator,
        "has a method prepare(setup, rng) that returns the generator to use",
    )
    traits = (
        ("blocks_paths", (True, False)),
        ("edge_players", (True, False)),
        ("feature_rows", ("own", "by_mask", "any")),
    )
    for name, allowed in traits:
        trait = getattr(generator, name, allowed[-1])
        require(trait in allowed, generator, f"{name} is one of {allowed}, got {trait!r}")
    alone = Edges() if getattr(generator, "edge_players", False) else Nodes()
    kinds = (alone,) if isinstance(alone, Edges) else (alone, NodesAndFeatures())
    for seed in seeds:
        data, model = random_graph(seed), random_model(seed)
        with exclusive():
            query = build_query(model, data, node=0)
            with evaluation_mode(query.model.submodules):
                _check_graph(generator, query, seed)
        for kind in kinds:
            _check_credit(generator, kind, generator, model, data)


def _setup(query: Query, edge_players: bool) -> GameSetup:
    kind = Edges() if edge_players else NodesAndFeatures(features="all")
    return kind.setup(query, choose_evaluator(query, None, 0), 0)


def _check_graph(generator: Generator, query: Query, seed: int) -> None:
    edge_players = getattr(generator, "edge_players", False)
    setup = _setup(query, edge_players)
    field, players = setup.field, setup.players
    count = min(players.edges if edge_players else players.nodes, _MOST_PLAYERS + 1)
    second = _wide(all_rows(count), players.edges if edge_players else players.nodes)
    first = np.ones((len(second), players.features), dtype=bool)
    with random_state_untouched(generator):
        ready = generator.prepare(setup, random_numbers(seed))
        batch = ready(setup, first, second)
    _check_form(generator, batch, setup, len(second))
    edges, features = batch.active_edges(field), _features(batch)
    originals = setup.feature_table
    unchanged = edges[-1].all() and torch.equal(features[-1], originals)
    require(unchanged, generator, "the coalition of all players gives the graph as it is")
    for prepared, law in (
        (ready, "after prepare() the same coalitions give the same perturbed graphs"),
        (
            generator.prepare(setup, random_numbers(seed)),
            "prepare() with the same random numbers gives the same perturbed graphs",
        ),
    ):
        again = prepared(setup, first, second)
        same = np.array_equal(again.active_edges(field), edges)
        require(same and torch.equal(_features(again), features), generator, law)
    for row in (0, len(second) // 2, len(second) - 1):
        alone = ready(setup, first[row : row + 1], second[row : row + 1])
        same = np.array_equal(alone.active_edges(field)[0], edges[row])
        require(
            same and torch.equal(_features(alone)[0], features[row]),
            generator,
            "a perturbed graph does not depend on the other coalitions of a batch",
        )
    if edge_players:
        _check_traits(generator, setup, second, first, batch)
        return
    feature_masks = all_rows(min(players.features, 3))
    feature_masks = _wide(feature_masks, players.features)
    mixed_first = np.repeat(feature_masks, len(second), 0)
    mixed_second = np.tile(second, (len(feature_masks), 1))
    mixed = ready(setup, mixed_first, mixed_second)
    same = np.array_equal(mixed.active_edges(field), np.tile(edges, (len(feature_masks), 1)))
    require(same, generator, "the edges of a perturbed graph do not depend on features")
    _check_traits(generator, setup, mixed_second, mixed_first, mixed)


def _wide(rows: Bools, players: int) -> Bools:
    """Coalitions of the first players; the others are on."""
    return np.pad(rows, ((0, 0), (0, players - rows.shape[1])), constant_values=True)


def _features(batch: Perturbations) -> Tensor:
    """X' of each perturbed graph, [graphs, nodes, features]."""
    return plain(batch.feature_table)[torch.from_numpy(batch.feature_rows().copy())]


def _check_form(
    generator: Generator, batch: Perturbations, setup: GameSetup, coalitions: int
) -> None:
    field = setup.field
    require(isinstance(batch, Perturbations), generator, "returns a Perturbations record")
    right = batch.active.dtype == bool and batch.active.shape == (coalitions, field.size)
    require(right, generator, "active is boolean, [coalitions, nodes of the field]")
    for name in ("added_edges", "removed_edges"):
        changed = getattr(batch, name)
        right = changed is None or (
            changed.dtype == bool and changed.shape == (coalitions, len(field.edges))
        )
        require(right, generator, f"{name} is boolean, [coalitions, edges of the field]")
    table, rows = plain(batch.feature_table), batch.feature_rows()
    inside = rows.shape == (coalitions, field.size) and rows.min() >= 0 and rows.max() < len(table)
    require(inside, generator, "feature_row has a row of feature_table for each node")
    originals = setup.feature_table
    starts = len(table) >= field.size and torch.equal(table[: field.size], originals)
    require(starts, generator, "feature_table starts with the features of the field's nodes")
    require(table.isfinite().all(), generator, "features are finite")


def _check_traits(
    generator: Generator, setup: GameSetup, second: Bools, first: Bools, batch: Perturbations
) -> None:
    """What a generator says of itself, coalition by coalition."""
    field = setup.field
    edges, features, rows = batch.active_edges(field), _features(batch), batch.feature_rows()
    trait = getattr(generator, "feature_rows", "any")
    seen: dict[tuple[int, bytes], Tensor] = {}
    for k in range(len(batch) if trait != "any" else 0):
        for node in range(field.size):
            content, original = features[k, node], setup.feature_table[node]
            if trait == "own" and node >= setup.num_feature_nodes:
                require(
                    torch.equal(content, original),
                    generator,
                    'feature_rows = "own": nodes that are not explained keep their features',
                )
            elif trait == "by_mask" and rows[k, node] < field.size:
                require(
                    rows[k, node] == node,
                    generator,
                    'feature_rows = "by_mask": a row that is not replaced is the node\'s own',
                )
            else:
                before = seen.setdefault((node, first[k].tobytes()), content)
                require(
                    torch.equal(before, content),
                    generator,
                    f'feature_rows = "{trait}": a replaced row depends on its node and '
                    "the mask of features alone",
                )
    if not getattr(generator, "blocks_paths", False):
        return
    by_set: dict[tuple[bytes, bytes], tuple[Bools, Tensor]] = {}
    for k in range(len(batch)):
        connected = _connected(field, setup.players.active_nodes(field.size, second[k : k + 1])[0])
        into = edges[k] & connected[field.target]
        inner = features[k][torch.from_numpy(connected)]
        key = (connected.tobytes(), first[k].tobytes())
        edges_before, inner_before = by_set.setdefault(key, (into, inner))
        same = np.array_equal(edges_before, into) and torch.equal(inner_before, inner)
        require(
            same,
            generator,
            "blocks_paths = True: what the explained node sees depends only on the nodes "
            "that reach it through switched-on nodes",
        )


def _connected(field: Field, on: Bools) -> Bools:
    """Nodes that reach a centre through switched-on nodes of the field."""
    reached = np.zeros(field.size, dtype=bool)
    reached[: field.centres] = True
    while True:
        grown = reached.copy()
        for source, target in zip(field.source, field.target, strict=True):
            if source < field.size and target < field.size and reached[target] and on[source]:
                grown[source] = True
        if np.array_equal(grown, reached):
            return reached
        reached = grown


def check_players(kind: PlayerKind, *, seeds: Iterable[int] = range(4)) -> None:
    """Check a kind of players on questions about a node of small random graphs.

    Args:
        kind: the kind with its settings, such as `Nodes(hops=1)`.
        seeds: one random graph and model each.

    Raises:
        AssertionError: a law does not hold; the message says which.

    """
    require(isinstance(kind, PlayerKind), kind, "is a graphsvx.methods.player_kinds.PlayerKind")
    compared = 0
    for seed in seeds:
        compared += _check_credit(
            kind, kind, kind.generator, random_model(seed), random_graph(seed, nodes=4)
        )
    require(compared, kind, f"somebody plays (and at most {_MOST_PLAYERS + 1} in some graph)")


def _check_credit(
    block: object, kind: PlayerKind, generator: Generator, model: torch.nn.Module, data: object
) -> int:
    """Exact credit of GraphSVX against the definition: one call a coalition, whole graph.

    Features play while all nodes are off, nodes and edges with all features on. Returns the number
    of compared games.
    """
    with exclusive():
        query = build_query(model, data, node=0)
        playing = kind.for_query(query)
        playing.check_names(query.graph)
        with evaluation_mode(query.model.submodules):
            evaluator = choose_evaluator(query, None, 0)
            setup, again = (playing.setup(query, evaluator, 0) for _ in range(2))
            same = repr(vars(setup.players)) == repr(vars(again.players))
            require(same, block, "the same seed gives the same players")
            players = setup.players
            sides = {"features": players.features, "nodes": players.nodes, "edges": players.edges}
            sides = {side: n for side, n in sides.items() if 0 < n <= _MOST_PLAYERS + 1}
            ready = generator.prepare(setup, derive_rng(0, "paths"))  # as GraphSVX does
            scores = {}
            for side, count in sides.items():
                rows = all_rows(count)
                features = np.ones((len(rows), players.features), dtype=bool)
                others = np.ones((len(rows), players.edges or players.nodes), dtype=bool)
                if side == "features":
                    features, others = rows, ~others
                else:
                    others = rows
                scores[side] = _scores(
                    model, query, evaluator.field, ready(setup, features, others)
                )
    method = GraphSVX(players=kind, generator=generator, samples=4 << _MOST_PLAYERS)
    explanation = explain(model, data, node=0, method=method)
    gap = abs(explanation.base + explanation.total - explanation.prediction)
    require(gap < 1e-7, block, "base and credit add up to the prediction")
    for side in sides:
        values = getattr(explanation, f"{side.removesuffix('s')}_values")
        truth = shapley_of_table(scores[side][:, explanation.target])
        close = np.shape(values) == truth.shape and np.allclose(values.numpy(), truth, atol=1e-7)
        require(close, block, f"credit of {side} is the Shapley values of their game by definition")
    return len(sides)


def _scores(model: torch.nn.Module, query: Query, field: Field, batch: Perturbations) -> Floats:
    """Probabilities of the explained node, one call on the whole graph for each coalition."""
    graph, scores = query.graph, []
    ids = torch.from_numpy(field.ids[: field.size])
    for edges, features in zip(batch.active_edges(field), _features(batch), strict=True):
        keep = np.ones(graph.edge_index.shape[1], dtype=bool)
        keep[field.edges] = edges
        x = graph.x.clone()
        x[ids] = features
        out = model(x, graph.edge_index[:, torch.from_numpy(keep)])
        scores.append(out[int(query.centres[0])].softmax(-1).detach())
    return torch.stack(scores).numpy()
