"""How often 95 % error bars hold the truth, by family of graphs, players and calls a player."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

from benchmarks.truths import Truth, stored
from benchmarks.worlds import node_game
from graphsvx.estimators import WLS, Estimator, GaussianProcess
from graphsvx.games.graph_game import GraphGame
from graphsvx.masks import Auto
from graphsvx.masks.base import all_rows
from graphsvx.masks.exact import connected_masks, connected_sets
from graphsvx.methods.pipeline import Sampling
from graphsvx.testing.oracle import shapley_of_table
from graphsvx_lab import zoo

Question = tuple[nn.Module, Data, int | None]
"""A model, a graph and a node (None: the whole graph)."""

FAMILIES = ("trees", "BA", "citation", "molecules", "stars", "hubs")
PLAYERS = ((10, 20), (21, 60), (61, 150), (151, 300))
PER_PLAYER = (0.2, 0.5, 1, 2, 5, 10, 20)
ESTIMATORS: dict[str, Estimator] = {"default": GaussianProcess(), "WLS": WLS()}

_LAYERS = (GCN, GraphSAGE, GAT, GIN)
_TRAINED = {
    "trees": (("tree-grid", None), ("tree-cycles", None)),
    "BA": (("ba-shapes", None), ("ba-community", None)),
    "citation": (("cora", None), ("citeseer", None), ("cora", "gat")),
}
_MOST_TRIED = 500  # nodes, to find games of a size
_CONNECTED = 200_000  # connected sets that are still enumerated for an exact answer
_ENUMERATED = 16  # players, all of whose coalitions are
_LEAST = 200_000  # calls for a truth that is not exact
_SMALL, _MORE = 60, 3  # players up to which there are so many times more games: few values each
_FLAT = 1e-3  # standard deviation of values below which there is nothing to share out


def _untrained(kind: int, layers: int, nodes: int, ends: np.ndarray, seed: int) -> Question:
    """Random features and weights; the explained node is node 0."""
    torch.manual_seed(seed)
    model = _LAYERS[kind % len(_LAYERS)](16, 16, layers, 4).eval()
    edges = torch.from_numpy(np.concatenate([ends, ends[::-1]], 1))
    return model, Data(x=torch.randn(nodes, 16), edge_index=edges), 0


def star(leaves: int, kind: int, seed: int) -> Question:
    """A centre and its leaves, two layers."""
    around = np.arange(1, leaves + 1)
    return _untrained(kind, 2, leaves + 1, np.stack([around, 0 * around]), seed)


def tree(nodes: int, kind: int, seed: int) -> Question:
    """A random tree of depth 3 around its root, three layers."""
    rng = np.random.default_rng(seed)
    parent, depth, children = (np.zeros(nodes + 1, dtype=np.int64) for _ in range(3))
    for node in range(1, nodes + 1):
        parent[node] = rng.choice(np.flatnonzero((depth[:node] < 3) & (children[:node] < 9)))
        depth[node] = depth[parent[node]] + 1
        children[parent[node]] += 1
    return _untrained(kind, 3, nodes + 1, np.stack([np.arange(1, nodes + 1), parent[1:]]), seed)


def hub(nodes: int, kind: int, seed: int) -> Question:
    """A centre with neighbours, others behind these, and some links between them; two layers."""
    rng = np.random.default_rng(seed)
    near = int(nodes * rng.uniform(0.4, 1))
    far = np.arange(near + 1, nodes + 1)
    between = rng.integers(1, nodes + 1, (2, nodes // 3))
    spokes = np.stack([np.arange(1, near + 1), np.zeros(near, dtype=np.int64)])
    behind = np.stack([far, rng.integers(1, near + 1, len(far))])
    ends = np.concatenate([spokes, behind, between[:, between[0] != between[1]]], 1)
    return _untrained(kind, 2, nodes + 1, ends, seed)


def questions(family: str, players: tuple[int, int], seed: int) -> Iterator[Question]:
    """Random ones, most of them with the wanted number of players."""
    low, high = players
    rng = np.random.default_rng(seed)
    if family == "molecules":
        trained = zoo.ensure("mutag")
        graphs = trained.dataset.graphs
        for i in rng.permutation(len(graphs)):
            if low <= graphs[int(i)].num_nodes <= high:
                yield trained.model, graphs[int(i)], None
    elif family in _TRAINED and (family != "trees" or low < 61):
        worlds = [zoo.ensure(*name) for name in _TRAINED[family]]
        for turn in count():
            trained = worlds[turn % len(worlds)]
            graph = trained.dataset.graph
            yield trained.model, graph, int(rng.integers(graph.num_nodes))
    else:
        build = {"trees": tree, "stars": star, "hubs": hub}[family]
        for turn in count():
            yield build(int(rng.integers(low, high + 1)), turn, seed * 1000 + turn)


@dataclass(frozen=True, eq=False)
class Judged:
    """A game with its Shapley values, by an estimator that shares nothing with those judged."""

    game: GraphGame
    target: int
    truth: np.ndarray
    truth_errors: np.ndarray
    """Standard errors of the truth, 0 if it is exact."""

    @property
    def players(self) -> int:
        return self.game.players

    def fresh(self) -> GraphGame:
        return fresh(self.game)


def fresh(game: GraphGame) -> GraphGame:
    """The same game with nothing played."""
    return GraphGame(
        game.query, game.evaluator, game.setup, game.generator, game.side, game.rest_on
    )


def games(
    family: str, players: tuple[int, int], *, seed: int, each: int, calls: int
) -> Iterator[Judged]:
    """Games of a family with so many players; `calls` a player for truths that are not exact."""
    return judged_games(
        questions(family, players, seed), players, seed=seed, each=each, calls=calls
    )


def judged_games(
    asked: Iterator[Question], players: tuple[int, int], *, seed: int, each: int, calls: int
) -> Iterator[Judged]:
    """The first `each` games with so many players, with their Shapley values."""
    games_found = 0
    for model, graph, node in islice(asked, _MOST_TRIED):
        game, target = node_game(model, graph, node)
        if not players[0] <= game.players <= players[1]:
            continue
        rng = np.random.default_rng(seed)
        probes = rng.random((64, game.players)) < rng.random((64, 1))
        values = values_of(game, target, probes)
        if values.std() < _FLAT:
            continue
        many = max(_LEAST, calls * game.players)
        truth, errors = stored(
            f"exact or {many} calls, seed {seed}", values, partial(_truth, game, target, many, rng)
        )
        yield Judged(game, target, truth, errors)
        games_found += 1
        if games_found == each:
            return


def _truth(game: GraphGame, target: int, calls: int, rng: np.random.Generator) -> Truth:
    truth = exact(game, target)
    return sampled(game, target, calls, rng) if truth is None else (truth, np.zeros_like(truth))


@torch.no_grad()
def values_of(game: GraphGame, target: int, rows: np.ndarray) -> np.ndarray:
    """Scores of coalitions, in a game of their own: nothing of them is kept."""
    own = fresh(game)
    return own.values(own.states(rows))[:, target].numpy()


@torch.no_grad()
def exact(game: GraphGame, target: int) -> np.ndarray | None:
    """From all connected sets or all coalitions, where these are not too many."""
    own = fresh(game)
    sets = connected_sets(own.player_edges(), _CONNECTED, own.reach)
    if sets is not None:
        masks = connected_masks(own, *sets)
        if masks.credit is not None:
            return own.values(masks.states)[:, target].numpy() @ masks.credit.numpy()
    if game.players <= _ENUMERATED:
        return shapley_of_table(values_of(game, target, all_rows(game.players)))
    return None


def sampled(
    game: GraphGame, target: int, calls: int, rng: np.random.Generator, batches: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Least squares on very many pairs, and standard errors by the jackknife over batches."""
    players = game.players
    sizes = np.arange(1, players)
    mass = 1 / (sizes * (players - sizes))
    empty, full = values_of(game, target, np.repeat([[False], [True]], players, 1))
    parts = []
    for _ in range(batches):
        gram, link = np.zeros((players, players)), np.zeros(players)
        for pairs in np.diff([*range(0, calls // (2 * batches), 2000), calls // (2 * batches)]):
            order = rng.random((pairs, players)).argsort(1)
            rows = order < rng.choice(sizes, (pairs, 1), p=mass / mass.sum())
            values = values_of(game, target, np.concatenate([rows, ~rows]))
            share = rows.mean(1, keepdims=True)
            centred = rows - share
            gram += centred.T @ centred
            odd = (values[:pairs] - values[pairs:]) / 2
            link += centred.T @ (odd - (share[:, 0] - 0.5) * (full - empty))
        parts.append((gram, link))

    def solved(left_out: int | None = None) -> np.ndarray:
        chosen = [part for i, part in enumerate(parts) if i != left_out]
        gram, link = (sum(every) for every in zip(*chosen, strict=True))
        return (full - empty) / players + np.linalg.pinv(gram, hermitian=True, rcond=1e-10) @ link

    without = np.array([solved(i) for i in range(batches)])
    spread = ((without - without.mean(0)) ** 2).sum(0) * (batches - 1) / batches
    return solved(), np.sqrt(spread)


@dataclass(frozen=True)
class Answer:
    """One estimate, compared with the truth."""

    held: float
    """Share of the players whose interval of 1.96 standard errors holds the truth."""
    error: float
    """Squared error relative to the squared norm of the Shapley values."""


@torch.no_grad()
def answers(judged: Judged, per_player: float, seed: int) -> dict[str, Answer] | None:
    """Of every estimator, on the same rows; None where these make the game exact."""
    game = judged.fresh()
    budget = max(2, round(per_player * game.players))
    played = Sampling(Auto(), GaussianProcess(), seed).play(game, budget)
    if played.masks.exact:
        return None
    results = {}
    for name, regression in ESTIMATORS.items():
        fit = Sampling(Auto(), regression, seed).fit_all([played], [judged.target])[0].fit
        miss = fit.values[0].numpy() - judged.truth
        # The truth has an error of its own, and zeros are no better than rounding.
        bar = np.hypot(fit.errors[0].numpy(), judged.truth_errors)
        slack = 1e-9 * np.abs(judged.truth).max()
        results[name] = Answer(
            held=float((np.abs(miss) <= 1.96 * bar + slack).mean()),
            error=float((miss**2).sum() / (judged.truth**2).sum()),
        )
    return results


def measure(
    *, each: int = 4, seeds: int = 3, seed: int = 2026, calls: int = 2000,
    families: tuple[str, ...] = FAMILIES, players: tuple[tuple[int, int], ...] = PLAYERS,
    per_player: tuple[float, ...] = PER_PLAYER,
) -> dict[str, Any]:  # fmt: skip
    """Coverage and median errors by family, players and calls a player.

    `each`: games of a cell, three times as many up to 60 players.
    """
    cells, truths = [], []
    for family in families:
        for low, high in players:
            wanted = each if high > _SMALL else _MORE * each
            judged = list(games(family, (low, high), seed=seed, each=wanted, calls=calls))
            for game in judged:
                share = float((game.truth_errors**2).sum() / (game.truth**2).sum())
                truths.append({"family": family, "players": game.players, "truth error": share})
            for per in per_player:
                every = [answers(game, per, turn) for game in judged for turn in range(seeds)]
                finite = [answer for answer in every if answer is not None]
                if finite:
                    cells.append({
                        "family": family, "players": [low, high], "calls a player": per,
                        "estimates": len(finite),
                        **{name: _cell([answer[name] for answer in finite]) for name in ESTIMATORS},
                    })  # fmt: skip
    return {"seeds": seeds, "each": each, "cells": cells, "games": truths}


def _cell(some: list[Answer]) -> dict[str, float]:
    return {
        "coverage": float(np.mean([answer.held for answer in some])),
        "median error": median(answer.error for answer in some),
    }
