"""Families of games: which models meet which graphs and questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from benchmarks.soundness import models, tricks
from benchmarks.soundness.changes import CHANGES, Change
from benchmarks.soundness.graphs import random_graph
from benchmarks.soundness.judge import (
    GENERATORS,
    Judged,
    UnplayableError,
    World,
    judge,
    judge_sets,
)
from benchmarks.soundness.models import Built
from benchmarks.soundness.oracle import Question
from graphsvx.engine import kernels, profile, rows
from graphsvx.estimators import WLS, Lasso
from graphsvx.games import graph_game
from graphsvx.generators import isolate
from graphsvx.masks import All, Connected, Paired

Build = Callable[[random.Random, int, int, int], Built]
Play = Callable[[], Judged]


@dataclass(frozen=True, eq=False)
class Scenario:
    """A game that is ready to be played, in words and as a function."""

    label: str
    play: Play


# --- sizes of graphs, questions ---------------------------------------------------------------


def _size(draw: random.Random) -> tuple[int, int]:
    """Nodes and features."""
    kind = draw.random()
    if kind < 0.5:
        return draw.randint(2, 7), draw.randint(2, 4)
    if kind < 0.85:
        return draw.randint(8, 26), draw.randint(2, 5)
    return draw.randint(30, 70), draw.randint(3, 8)


def _centre(draw: random.Random, data: Data) -> int:
    """A node; most of the time one that hears another."""
    hears = data.edge_index[1].tolist()
    return draw.choice(hears) if hears and draw.random() < 0.85 else draw.randrange(data.num_nodes)


def ask(draw: random.Random, data: Data, kind: str, outputs: int, value: bool = False) -> Question:
    """A question of one kind."""
    count = data.num_nodes
    centres: tuple[int, ...] = ()
    if kind == "node":
        centres = (_centre(draw, data),)
    elif kind == "nodes":
        centres = tuple(draw.sample(range(count), min(count, draw.randint(1, 3))))
    elif kind == "edge":
        centres = tuple(draw.sample(range(count), 2))
    scale = "value" if value else draw.choice(["probability"] * 3 + ["logit", "log_odds", "value"])
    all_targets = draw.random() < 0.3
    target = draw.randrange(outputs) if scale == "value" or draw.random() < 0.3 else None
    return Question(kind, centres, scale=scale, target=target, all_targets=all_targets)


def settings(  # noqa: PLR0912  (a list of choices)
    draw: random.Random, data: Data, kind: str
) -> dict[str, Any]:
    """Settings of GraphSVX that fit the question."""
    count, width = data.x.shape
    options = ["nodes", "nodes", "features", "edges"] + ([] if kind == "graph" else ["both", None])
    players = draw.choice(options)
    chosen: dict[str, Any] = {"players": players, "samples": draw.choice([20, 100, 300, 1000])}
    plays_features = players in ("features", "both", None)
    if width > 16:
        features = draw.choice([1.8, 2.0, 2.4])
    else:
        features = draw.choice(["all", "nonzero", 0.0]) if draw.random() < 0.4 else 0.25
    if plays_features:
        chosen["features"] = features
    if draw.random() < 0.2 and kind != "graph":
        chosen["hops"] = draw.choice([0, 1, 1, 2, 3])
    if plays_features and draw.random() < 0.3:
        vector = tuple(round(draw.uniform(-1, 1), 3) for _ in range(width))
        classes = data.y.unique().tolist()
        chosen["reference"] = draw.choice(
            [draw.randrange(count), f"class:{draw.choice(classes)}", vector]
        )
        if players == "features" and kind != "graph" and draw.random() < 0.4:
            chosen["players"] = "subgraph_features"
    if players in ("nodes", "both", None) and kind != "graph" and draw.random() < 0.15:
        chosen["indirect"] = draw.choice(["mean", "target"] if kind == "node" else ["mean"])
    elif players == "nodes" and draw.random() < 0.2:
        names = draw.sample(range(count), min(count, draw.randint(2, 5)))
        half = len(names) // 2
        chosen["groups"] = {"a": names[:half], "b": names[half:]}
    if players == "features" and width > 2 and draw.random() < 0.2:
        chosen["feature_groups"] = {"pair": draw.sample(range(width), 2)}
    if players == "edges":
        chosen["directions"] = draw.choice(["together", "apart"])
    if kind == "graph" and players == "nodes" and draw.random() < 0.3:
        chosen["erase"] = True
    mask = draw.random()
    if mask < 0.15:
        chosen["mask"] = Paired()
    elif mask < 0.2 and count + width < 12 and players != "edges":
        chosen["mask"] = draw.choice([All(), All(separate=True)])
    elif mask < 0.25 and players == "nodes" and count < 12:
        chosen["mask"] = Connected()
    rest = draw.random()
    if rest < 0.15:
        chosen["estimator"] = WLS()
    elif rest < 0.2 and not chosen.get("indirect"):
        chosen["estimator"] = Lasso(k=2)
    elif rest < 0.25:
        chosen |= {"tolerance": 1e-3, "max_samples": 2000, "samples": 20}
    return chosen


# --- the engine's thresholds -------------------------------------------------------------------

_THRESHOLDS: tuple[tuple[Any, str, int], ...] = (
    (isolate, "_WIDE", 1),
    (kernels, "_GIN_WIDE", 1),
)


@contextmanager
def thresholds(draw: random.Random | None = None) -> Iterator[None]:
    """Small games take the ways of large ones: shared and patched rows, many small batches."""
    changed: list[tuple[Any, str, Any]] = [
        (where, name, value) for where, name, value in _THRESHOLDS
    ]
    if draw is not None:
        changed += [
            (rows, "_BATCH_ITEMS", draw.choice([1, 50, 400, rows._BATCH_ITEMS])),
            (graph_game, "_BLOCK_BYTES", draw.choice([1000, 20_000, graph_game._BLOCK_BYTES])),
            (profile, "_MOST_ITEMS", draw.choice([0, profile._MOST_ITEMS])),
        ]
    before = [(where, name, getattr(where, name)) for where, name, _ in changed]
    try:
        for where, name, value in changed:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


# --- scenarios ---------------------------------------------------------------------------------


def _built(draw: random.Random, build: Build, features: int, outputs: int, nodes: int) -> Built:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.randrange(2**31))
        try:
            return build(draw, features, outputs, nodes)
        except (ImportError, ValueError, AssertionError) as error:
            raise UnplayableError(f"the model cannot be built: {error}") from error


def _world(
    draw: random.Random, build: Build, kind: str, *, size: tuple[int, int] | None = None,
    value: bool = False, shape: str | None = None, finish: bool = True, outputs: int | None = None,
) -> World:  # fmt: skip
    nodes, features = size or _size(draw)
    outputs = outputs or draw.choice([1, 2, 2, 3, 4])
    built = _built(draw, build, features, outputs, nodes)
    dtype = torch.float32 if built.single or draw.random() < 0.15 else torch.float64
    data = random_graph(
        draw, nodes=nodes, features=features, dtype=dtype, weight=built.weight, shape=shape,
        attributes=built.attributes, sort=built.sort,
    )  # fmt: skip
    model = built.model
    if isinstance(model, nn.Module):
        models.settle(model, draw)
        model.to(dtype).train(draw.random() < 0.1)
    question = ask(draw, data, kind, outputs, value)
    if finish and kind in ("node", "nodes") and not (built.weight or built.attributes):
        model, question = _finished(draw, model, question, outputs)
    chosen = settings(draw, data, kind)
    if kind == "edge" and not isinstance(model, models.OfPairs):
        decoder = draw.choice([None, _difference, _both_ways])
        question = replace(question, decoder=decoder, target=_target(question, decoder))
    label = f"{built.label} | {nodes} nodes x {features}, {data.num_edges} edges, {dtype} | "
    label += f"{kind} {question.centres}, {question.scale} | {chosen}"
    memory = draw.choice([512 * 2**20] * 4 + [1, 100_000])
    return World(label, model, data, question, chosen, seed=draw.randrange(1000), memory=memory)


def _finished(
    draw: random.Random, model: Any, question: Question, outputs: int
) -> tuple[Any, Question]:  # fmt: skip
    """At times probabilities, their logarithms, or one number a node without a second dimension."""
    way = draw.random()
    if way > 0.12 or not isinstance(model, nn.Module) or question.scale == "value":
        return model, question
    if way < 0.04 and outputs == 1:
        return models.Finished(model, lambda out: out[:, 0]), question
    if outputs == 1:
        return models.Finished(model, torch.sigmoid), replace(question, output="probs")
    if way < 0.08:
        return models.Finished(model, lambda out: out.softmax(-1)), replace(
            question, output="probs"
        )
    finished = models.Finished(model, lambda out: out.log_softmax(-1))
    return finished, replace(question, output="log_probs")


def _difference(source: Tensor, target: Tensor) -> Tensor:
    return (source - target).pow(2).sum(-1)


def _both_ways(source: Tensor, target: Tensor) -> Tensor:
    return torch.stack([(source * target).sum(-1), source.sum(-1) - target.sum(-1)], -1)


def _target(question: Question, decoder: Any) -> int | None:
    if question.target is None:
        return None
    return min(question.target, 1 if decoder is _both_ways else 0)


def _plain(world: World, draw: random.Random) -> Play:
    """Explain once, or twice with another question in between, with thresholds of all sizes."""
    forced = draw.random() < 0.5
    again = draw.random() < 0.25

    def play() -> Judged:
        with thresholds(draw) if forced else nullcontext():
            if again and world.question.kind == "node":
                other = replace(world.question, centres=(_centre(draw, world.data),))
                judge(replace(world, question=other), draw)
            return judge(world, draw)

    return play


def of_models(build: Build, kinds: tuple[str, ...] = ("node", "node", "node", "nodes", "edge"),
              **options: Any) -> Callable[[random.Random], Scenario]:  # fmt: skip
    """Scenarios of one family of models."""

    def scenario(draw: random.Random) -> Scenario:
        world = _world(draw, build, draw.choice(kinds), **options)
        return Scenario(world.label, _plain(world, draw))

    return scenario


def wide(draw: random.Random) -> Scenario:
    """Graphs and features so large that the engine shares rows without being told."""
    size = (draw.randint(60, 300), draw.choice([64, 100, 130, 200]))
    shape = draw.choice(["sparse", "tree", "hub", "clique", "apart", "bipartite"])
    world = _world(
        draw, models.common, draw.choice(["node", "node", "nodes"]), size=size, shape=shape
    )
    world = replace(world, settings={**world.settings, "samples": draw.choice([100, 400, 1500])})
    return Scenario(world.label, lambda: judge(world, draw))


def behind_hubs(draw: random.Random) -> Scenario:
    """Messages by hand beside layers, on graphs with nodes of many neighbours."""
    shape = draw.choice(["hub", "behind a hub", "star"])
    size = (draw.randint(22, 60), draw.randint(2, 4))
    build = models.tricky(tricks.MESSAGES, tricks.DEGREES)
    world = _world(draw, build, "node", size=size, shape=shape)
    return Scenario(world.label, _plain(world, draw))


def generated(draw: random.Random) -> Scenario:
    """Generators that GraphSVX does not know: switched-off nodes keep their edges."""
    world = _world(
        draw, draw.choice([models.common, models.layers]), draw.choice(["node", "nodes"])
    )
    name = draw.choice(list(GENERATORS))
    world = replace(
        world, generator=name, label=f"features of {name} | {world.label}",
        settings={"players": "nodes", "samples": draw.choice([20, 300, 1000])},
    )  # fmt: skip
    return Scenario(world.label, _plain(world, draw))


def other_edges(draw: random.Random) -> Scenario:
    """Models of two tensors of edges: both are cut."""
    kind = draw.choice(["node", "nodes", "edge"])
    world = _world(draw, models.other_edges, kind, size=_few(draw), finish=False)
    far = random_graph(draw, nodes=world.data.num_nodes, features=1, shape=draw.choice(
        ["sparse", "tree", "star"]))  # fmt: skip
    world.data.far_edge_index = far.edge_index
    players = draw.choice(["nodes", "nodes", "both", "features"])
    chosen = {"players": players, "samples": draw.choice([50, 1000])}
    world = replace(world, settings=chosen)
    return Scenario(world.label, _plain(world, draw))


def own_edges(draw: random.Random) -> Scenario:
    """Models that make their own edges: nodes are removed, or it is said that none matters."""
    world = _world(
        draw, models.own_edges, draw.choice(["node", "node", "nodes"]), size=_few(draw),
        finish=False,
    )  # fmt: skip
    chosen: dict[str, Any] = {"players": draw.choice(["nodes", "nodes", "both"])}
    if draw.random() < 0.8:
        chosen["erase"] = "rows"
    world = replace(world, settings={**chosen, "samples": draw.choice([50, 1000])})
    return Scenario(world.label, _plain(world, draw))


def rare(draw: random.Random) -> Scenario:
    """Branches that few coalitions take: all are enumerated, up to 2,048."""
    size = (draw.randint(7, 12), 2)
    shape = draw.choice(["star", "hub", "tree", "sparse", "clique"])
    world = _world(draw, models.rare, "node", size=size, shape=shape, finish=False)
    players = draw.choice(["nodes", "nodes", "nodes", "edges"])
    chosen = {"players": players, "samples": draw.choice([300, 1000, 3000])}
    world = replace(world, settings=chosen, enumerated=11)
    return Scenario(world.label, _plain(world, draw))


def one_logit(draw: random.Random) -> Scenario:
    """One output on the scale of logits, of either sign."""
    build = draw.choice([models.common, models.layers])
    world = _world(draw, build, draw.choice(["node", "nodes", "edge"]), outputs=1, finish=False)
    question = replace(world.question, scale="logit", output="raw", target=None)
    world = replace(world, question=question)
    return Scenario(f"one logit | {world.label}", _plain(world, draw))


def ties(draw: random.Random) -> Scenario:
    """Smallest sets that keep or change the class, where classes often have the same score."""
    world = _world(draw, models.steps, "node", size=_few(draw), outputs=3, finish=False)
    scale = draw.choice(["probability", "logit", "log_odds"])
    question = replace(world.question, scale=scale, target=None, all_targets=False)
    world = replace(world, question=question, settings={"players": "nodes"})

    def play() -> Judged:
        judged = judge(world, draw)
        judge_sets(world, judged.explanation)
        return judged

    return Scenario(f"ties | {world.label}", play)


def _few(draw: random.Random) -> tuple[int, int]:
    return draw.randint(3, 8), draw.randint(2, 3)


def four_edges(draw: random.Random) -> Scenario:
    """Whole graphs with so few edges that a probe may be the full graph."""
    size = (draw.randint(2, 5), 2)
    world = _world(draw, models.of_graphs, "graph", size=size, shape=draw.choice(["path", "tree"]))
    return Scenario(world.label, _plain(world, draw))


def changed(draw: random.Random) -> Scenario:
    """Explain, change the model, the graph or the code in some way, explain again."""
    name = draw.choice(list(CHANGES))
    change: Change = CHANGES[name]
    build = draw.choice([models.common, models.common, models.layers, models.ready_made])
    kind = draw.choice(["node", "node", "nodes"])
    world = _world(draw, build if change.model is None else change.model, kind, finish=False)
    forced = draw.random() < 0.3
    world = replace(world, data=change.prepare(world.data), label=f"{name} | {world.label}")

    def play() -> Judged:
        with thresholds(draw) if forced else nullcontext():
            for _ in range(draw.choice([1, 2])):
                judge(world, draw)
            with change(world, draw):
                judged = judge(world, draw)
            if change.undone and draw.random() < 0.5:
                return judge(world, draw)
            return judged

    return Scenario(world.label, play)


FAMILIES: dict[str, tuple[float, Callable[[random.Random], Scenario]]] = {
    "layers": (5, of_models(models.layers)),
    "common": (2, of_models(models.common)),
    "ready-made": (2, of_models(models.ready_made)),
    "degrees": (2, of_models(models.tricky(tricks.DEGREES))),
    "edges": (2, of_models(models.tricky(tricks.EDGES))),
    "nodes": (2, of_models(models.tricky(tricks.NODES))),
    "by-hand": (2, of_models(models.tricky(tricks.MESSAGES))),
    "hidden": (2, of_models(models.tricky(tricks.HIDDEN))),
    "threads": (1, of_models(models.tricky(tricks.THREADS))),
    "behind-hubs": (1, behind_hubs),
    "scales": (2, of_models(models.scaled, value=True)),
    "no-module": (2, of_models(models.no_module)),
    "graphs": (3, of_models(models.of_graphs, ("graph",))),
    "generators": (1, generated),
    "tricky-graphs": (1, of_models(models.tricky_graphs, ("graph",))),
    "four-edges": (0.5, four_edges),
    "pairs": (1, of_models(models.of_pairs, ("edge",))),
    "wide": (1, wide),
    "changed": (4, changed),
    "other-edges": (1, other_edges),
    "own-edges": (1, own_edges),
    "rare": (1, rare),
    "one-logit": (0.5, one_logit),
    "ties": (0.5, ties),
}
"""Name, share of all games, and how a game is drawn."""
