"""Error, top ten, coverage and time on games with 65 to 2,500 players, against peers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GraphSAGE
from torch_geometric.utils import k_hop_subgraph, remove_self_loops, to_undirected

from benchmarks import peers
from benchmarks.coverage import fresh, values_of
from benchmarks.truths import stored
from benchmarks.worlds import node_game
from graphsvx import GraphSVX, explain
from graphsvx.engine.rows import Rows
from graphsvx.estimators import WLS, Estimator, GaussianProcess
from graphsvx.games.graph_game import GraphGame
from graphsvx.masks import Auto, Mask, Masks, SmarterSeparate
from graphsvx.methods.pipeline import Sampling
from graphsvx_lab.datasets import load
from graphsvx_lab.datasets.catalogue import data_dir, models_dir

CLASSES = ((65, 200), (201, 600), (601, 2500))
BUDGETS = (300, 1000, 4000)
WORLDS = (
    ("cora", "gcn"), ("cora", "gat"), ("cora", "sage"),
    ("amazon-photo", "gcn"), ("amazon-photo", "gat"), ("amazon-photo", "sage"),
    ("ba-community", "gcn"),
)  # fmt: skip
# Nodes that the estimator was developed on; none of them judges it.
DEVELOPED_ON = {
    "cora": (1604, 1072),
    "ba-community": (340, 821, 2, 10, 19, 20, 119, 707, 713, 718, 733, 736),
    "amazon-photo": (
        4905, 2426, 6363, 6749, 1382, 1315, 4212, 5816, 2716, 6730, 7006, 7127, 7561, 6433,
        188, 1925, 2276, 3302, 3406, 3854, 4211, 5981, 6438,
    ),
}  # fmt: skip
_LAYERS = {"ba-community": 3}
_MODELS: dict[str, Callable[..., nn.Module]] = {
    "gcn": GCN, "sage": GraphSAGE, "gat": lambda *sizes: GAT(*sizes, heads=4),
}  # fmt: skip
_EPOCHS = 60
_TRIED = 600  # nodes, to find games of a size
_FLAT = 1e-2
_BLOCK = 2000  # pairs that are evaluated at once
_LEAST_SURE = 64  # players that the second half of the calls for differences is about
_PARTS = 4  # of a truth, whose differences are its error
# From so many players on, least squares is far less precise than differences are, and truths take
# more calls, so that they are more precise than what is judged by them.
_MANY_PLAYERS, _TIMES_THE_CALLS = 601, 5


def amazon_photo() -> Data:
    """Products of Amazon that are bought together, from the file that PyG downloads."""
    path = data_dir() / "Amazon-Photo" / "raw" / "amazon_electronics_photo.npz"
    if not path.exists():
        raise FileNotFoundError(f"put amazon_electronics_photo.npz of Shchur et al. into {path}")
    from torch_geometric.io import read_npz  # noqa: PLC0415  (used here alone)

    data: Data = read_npz(path, to_undirected=True)
    data.edge_index = to_undirected(remove_self_loops(data.edge_index)[0])
    data.x = (data.x - data.x.mean(0)) / data.x.std(0).clamp(min=1e-6)
    return data


def world(name: str, kind: str) -> tuple[nn.Module, Data]:
    """A graph with a model that was trained on two thirds of its nodes, and is kept."""
    graph = amazon_photo() if name == "amazon-photo" else load(name).graph
    classes = int(graph.y.max()) + 1
    torch.manual_seed(0)
    model = _MODELS[kind](graph.num_features, 16, _LAYERS.get(name, 2), classes)
    path = models_dir() / f"bench-{name}-{kind}.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval(), graph
    known = torch.rand(graph.num_nodes) < 2 / 3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(_EPOCHS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(graph.x, graph.edge_index)[known], graph.y[known].long()
        )
        loss.backward()
        optimizer.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)
    return model.eval(), graph


@dataclass(frozen=True, eq=False)
class LargeGame:
    """A game of nodes with its Shapley values, estimated by very many calls."""

    source: str
    node: int
    question: tuple[nn.Module, Data]
    game: GraphGame
    target: int
    truth: np.ndarray
    truth_errors: np.ndarray

    @property
    def truth_error(self) -> float:
        """Relative squared error of the truth itself."""
        return float((self.truth_errors**2).sum() / (self.truth**2).sum())


def games(
    players: tuple[int, int], *, count: int, calls: int, seed: int,
    worlds: tuple[tuple[str, str], ...] = WORLDS, side: str = "nodes",
) -> Iterator[LargeGame]:  # fmt: skip
    """Games of random nodes with so many players, from every world in turn, `count` of them."""
    waiting = deque(_games_of(name, kind, players, calls, seed, side) for name, kind in worlds)
    yielded = 0
    while waiting and yielded < count:
        of_world = waiting.popleft()
        game = next(of_world, None)
        if game is not None:
            yield game
            yielded += 1
            waiting.append(of_world)


def _games_of(
    name: str, kind: str, players: tuple[int, int], calls: int, seed: int, side: str
) -> Iterator[LargeGame]:
    """Games of the nodes (or edges) around random nodes of one graph."""
    model, graph = world(name, kind)
    order = np.random.default_rng(seed).permutation(graph.num_nodes).tolist()
    for node in islice((n for n in order if n not in DEVELOPED_ON.get(name, ())), _TRIED):
        nodes, edges, _, _ = k_hop_subgraph(node, _LAYERS.get(name, 2), graph.edge_index)
        count = len(nodes) - 1 if side == "nodes" else edges.shape[1] // 2
        if not players[0] <= count <= players[1]:
            continue
        game, target = node_game(model, graph, node, side)
        if not players[0] <= game.players <= players[1]:
            continue
        rng = np.random.default_rng([seed, node])
        probes = rng.random((64, game.players)) < rng.random((64, 1))
        values = values_of(game, target, probes)
        if values.std() >= _FLAT:
            many = side == "nodes" and players[0] >= _MANY_PLAYERS
            estimators = {"differences": differences} if many else TRUTHS
            spent = _TIMES_THE_CALLS * calls if many else calls
            truth, errors = min(
                (stored(f"{name}, {spent} calls, seed {seed}", values,
                        partial(estimate, game, target, spent, rng))
                 for name, estimate in estimators.items()),
                key=lambda values_and_errors: float((values_and_errors[1] ** 2).sum()),
            )  # fmt: skip
            yield LargeGame(f"{name} {kind}", node, (model, graph), game, target, truth, errors)


def many_pairs(
    game: GraphGame, target: int, calls: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shapley values by least squares on random pairs, and their standard errors.

    Sizes are drawn by the square root of the kernel mass; no matrix of players by players.
    """
    players = game.players
    sizes = np.arange(1, players)
    mass = 1 / (sizes * (players - sizes))
    chance = np.sqrt(mass) / np.sqrt(mass).sum()
    empty, full = values_of(game, target, np.repeat([[False], [True]], players, 1))
    parts = []
    for _ in range(_PARTS):
        blocks = []
        for first in range(0, calls // 2 // _PARTS, _BLOCK):
            pairs = min(_BLOCK, calls // 2 // _PARTS - first)
            size = rng.choice(sizes, pairs, p=chance)
            noise = rng.random((pairs, players), dtype=np.float32)
            rows = noise <= np.sort(noise, 1)[np.arange(pairs), size - 1][:, None]
            values = values_of(game, target, np.concatenate([rows, ~rows]))
            odd = (values[:pairs] - values[pairs:]) / 2 - (size / players - 0.5) * (full - empty)
            weights = mass[size - 1] / chance[size - 1]
            blocks.append((np.packbits(rows, 1), size / players, odd, weights / weights.mean()))
        parts.append((full - empty) / players + _least_squares(blocks, players))
    each = np.array(parts)
    return each.mean(0), each.std(0, ddof=1) / np.sqrt(_PARTS)


def differences(
    game: GraphGame, target: int, calls: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shapley values as means of the differences that players make, and their standard errors.

    At coalitions that each player is in with probability q, and at their complements; q goes evenly
    over [0, 1]. Half of the calls are about all players, the others about those with most of the
    error.
    """
    everyone = np.arange(game.players)
    values, errors = _mean_differences(game, target, everyone, calls // 2, rng)
    least_sure = np.argsort(-errors)[:_LEAST_SURE]
    values[least_sure], errors[least_sure] = _mean_differences(
        game, target, least_sure, calls // 2, rng
    )
    return values, errors


def _mean_differences(
    game: GraphGame, target: int, players: np.ndarray, calls: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Of `players`; errors from differences of neighbours in the order of q, which is not random.

    One q differs little from the next one, so what is left is the scatter of coalitions.
    """
    count, changes = max(2, calls // (2 * len(players) + 2)), np.arange(len(players))
    order, means = np.arange(count) / count, []
    for q in (rng.random() / count + order) % 1.0:
        member = rng.random(game.players) < q
        mean = np.zeros(len(players))
        for rows in (member, ~member):
            toggled = np.repeat(rows[None], len(players) + 1, 0)
            toggled[changes, players] ^= True
            values = values_of(game, target, toggled)
            mean += np.where(rows[players], 1, -1) * (values[-1] - values[:-1]) / 2
        means.append(mean)
    at_q = np.array(means)
    scatter = (np.diff(at_q, axis=0) ** 2).mean(0) / 2
    return at_q.mean(0), np.sqrt(scatter / count)


TRUTHS = {"least squares": many_pairs, "differences": differences}
"""Two independent estimators of the truth; the one that says it is more precise is taken."""


def _least_squares(blocks: list[tuple[np.ndarray, ...]], players: int) -> np.ndarray:
    """The zero-sum part by conjugate gradients."""

    def centred(block: tuple[np.ndarray, ...]) -> np.ndarray:
        rows = np.unpackbits(block[0], axis=1, count=players).astype(np.float32)
        return rows - block[1].astype(np.float32)[:, None]

    def product(vector: np.ndarray) -> np.ndarray:
        total = np.zeros(players)
        for block in blocks:
            rows = centred(block)
            total += rows.T @ (block[3] * (rows @ vector)).astype(np.float32)
        return total

    left = sum(centred(block).T @ (block[3] * block[2]) for block in blocks)
    solution, direction, size = np.zeros(players), np.array(left), float(left @ left)
    enough = 1e-10 * size
    for _ in range(30):
        step = product(direction.astype(np.float32))
        length = size / float(direction @ step)
        solution += length * direction
        left = left - length * step
        size, before = float(left @ left), size
        if size <= enough:
            break
        direction = left + size / before * direction
    return solution - solution.mean()


def _judge(large: LargeGame, values: np.ndarray, errors: np.ndarray | None) -> dict[str, float]:
    """The truth's own error is taken off; a bar also holds what the truth misses.

    A player counts as one of the true top ten if the truth cannot tell it from the tenth.
    """
    miss, truth = values - large.truth, large.truth
    norm = float((truth**2).sum())
    size, top = np.abs(truth), np.argsort(-np.abs(values))[:10]
    tenth = np.argsort(-size)[:10][-1]
    unsure = np.hypot(large.truth_errors, large.truth_errors[tenth])
    judged = {
        "error": max(float((miss**2).sum()) / norm - large.truth_error, 0.0),
        "top": float((size[top] >= size[tenth] - 1.96 * unsure[top]).sum()),
    }
    if errors is not None:
        bar = np.hypot(errors, large.truth_errors)
        judged["coverage"] = float((np.abs(miss) <= 1.96 * bar + 1e-9 * np.abs(truth).max()).mean())
    return judged


@torch.no_grad()
def ours(large: LargeGame, mask: Mask, estimator: Estimator, calls: int, seed: int) -> Any:
    """Values and errors by coalitions of our own."""
    sampling = Sampling(mask, estimator, seed)
    fit = sampling.fit_all([sampling.play(fresh(large.game), calls)], [large.target])[0].fit
    errors = fit.errors[0].numpy()
    return fit.values[0].numpy(), None if np.isnan(errors).any() else errors


@dataclass(frozen=True)
class RandomSizes:
    """Coalitions with their complements, sizes drawn evenly or by the kernel mass (GNNShap's)."""

    evenly: bool
    separate = True

    def __call__(self, game: Any, budget: int, rng: torch.Generator) -> Masks:
        draw = np.random.default_rng(rng.initial_seed())
        players, pairs = game.players, budget // 2 - 1
        sizes = np.arange(1, players)
        mass = 1 / (sizes * (players - sizes))
        chance = np.full(players - 1, 1 / (players - 1)) if self.evenly else mass / mass.sum()
        size = draw.choice(sizes, pairs, p=chance)
        noise = draw.random((pairs, players))
        rows = np.empty((2 * pairs, players), dtype=bool)
        rows[::2] = noise <= np.sort(noise, 1)[np.arange(pairs), size - 1][:, None]
        rows[1::2] = ~rows[::2]
        weights = (mass / chance)[size - 1].repeat(2)
        pair = np.arange(pairs).repeat(2)
        return Masks(rows, game.states(rows), weights, pair=pair, unseen=np.ones(2 * pairs))


OURS: dict[str, tuple[Mask, Estimator]] = {
    "graphsvx (default)": (Auto(), GaussianProcess()),
    "graphsvx Paired + WLS": (Auto(), WLS()),
    "paper's SmarterSeparate, S=1": (SmarterSeparate(order=1), WLS()),
}

ON_EDGES: dict[str, tuple[Mask, Estimator]] = {
    "graphsvx (default)": (Auto(), GaussianProcess()),
    "GNNShap's sampler, sizes evenly": (RandomSizes(evenly=True), WLS()),
    "GNNShap's sampler, sizes by the kernel": (RandomSizes(evenly=False), WLS()),
}


def by_default(large: LargeGame) -> dict[str, float]:
    """The default of `explain`, with its time and calls."""
    model, graph = large.question
    method = GraphSVX(players="nodes")
    explain(model, graph, node=large.node, method=method.with_settings(samples=10))
    start = time.process_time()
    explanation = explain(model, graph, node=large.node, method=method)
    seconds = time.process_time() - start
    place = {int(node): i for i, node in enumerate(explanation.node_credit.ids)}
    members = large.game.setup.field.ids[large.game.setup.players.node_members]
    order = np.array([place[int(node)] for node in members])
    row = explanation.outputs.index(large.target)
    values = explanation.node_credit.values[row].numpy()[order]
    errors = explanation.node_credit.errors[row].numpy()[order]
    return {
        **_judge(large, values, errors), "seconds": seconds,
        "calls": float(explanation.certificate.calls),
        "multiple of forward passes": seconds / _forward_passes(large, method),
    }  # fmt: skip


@torch.no_grad()
def _forward_passes(large: LargeGame, method: GraphSVX) -> float:
    """Seconds of the engine on the batches of an explanation, and nothing else."""
    model, graph = large.question
    batches = []
    evaluate = Rows.evaluate

    def seen(rows: Rows, field: Any, perturbations: Any, hops: Any) -> Any:
        batches.append((rows, field, perturbations, hops))
        return evaluate(rows, field, perturbations, hops)

    with mock.patch.object(Rows, "evaluate", seen):
        explain(model, graph, node=large.node, method=method)
    start = time.process_time()
    for batch in batches:
        evaluate(*batch)
    return time.process_time() - start


def measure(
    *, each: int = 8, calls: int = 200_000, seed: int = 2026, budgets: tuple[int, ...] = BUDGETS,
    classes: tuple[tuple[int, int], ...] = CLASSES, worlds: tuple[tuple[str, str], ...] = WORLDS,
    peers_on: int = 2,
) -> dict[str, Any]:  # fmt: skip
    """Medians over games by class of size; peers on the first `peers_on` games of a class."""
    table: list[dict[str, Any]] = []
    for low, high in classes:
        found = list(games((low, high), count=each, calls=calls, seed=seed, worlds=worlds))
        if not found:
            continue
        table.append({
            "players": [low, high],
            "games": [{"source": game.source, "node": game.node, "players": game.game.players,
                       "truth error": game.truth_error} for game in found],
            "default": _summary([by_default(game) for game in found]),
            "each": {
                name: {str(budget): _summary([
                    _judge(game, *ours(game, *blocks, budget, 0)) for game in found
                ]) for budget in budgets}
                for name, blocks in OURS.items()
            },
            "peers": peers.measure(
                found[:: max(1, len(found) // peers_on)], _judge,
                lambda game: _judge(game, *ours(game, Auto(), GaussianProcess(), peers.CALLS, 0))[
                    "error"
                ],
            ),
            "edges": on_edges((low, high), calls, seed, budgets, worlds, max(1, each // 2)),
        })  # fmt: skip
    return {"classes": table, "calls": calls, "each": each}


def on_edges(
    players: tuple[int, int], calls: int, seed: int, budgets: tuple[int, ...],
    worlds: tuple[tuple[str, str], ...], count: int,
) -> dict[str, Any]:  # fmt: skip
    """The same for games whose players are edges, against GNNShap's sampler."""
    played = list(games(players, count=count, calls=calls, seed=seed, worlds=worlds, side="edges"))
    if not played:
        return {}
    return {
        "games": [{"source": game.source, "node": game.node, "players": game.game.players,
                   "truth error": game.truth_error} for game in played],
        "each": {
            name: {str(budget): _summary([
                _judge(game, *ours(game, *blocks, budget, 0)) for game in played
            ]) for budget in budgets}
            for name, blocks in ON_EDGES.items()
        },
    }  # fmt: skip


def _summary(judged: list[dict[str, float]]) -> dict[str, Any]:
    """Median of errors and times, mean of the others."""
    keys = [key for key in judged[0] if all(key in each for each in judged)]
    summary: dict[str, Any] = {
        key: median(each[key] for each in judged)
        if key not in ("top", "coverage")
        else float(np.mean([each[key] for each in judged]))
        for key in keys
    }
    return {**summary, "errors": [each["error"] for each in judged]}
