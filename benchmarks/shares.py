"""Where the time of an explanation goes, and how much of it is the model's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import torch

import graphsvx
from benchmarks import worlds
from benchmarks.timing import take_turns
from graphsvx import GraphSVX
from graphsvx.core import field as fields
from graphsvx.core.model import Model
from graphsvx.engine import choose as evaluating
from graphsvx.engine.rows import Rows
from graphsvx.games.graph_game import GraphGame
from graphsvx.masks import Auto
from graphsvx.methods import explaining, playing
from graphsvx.methods.pipeline import Sampling

PARTS = ("field", "checks", "masks", "states", "batches", "model", "fit", "record", "rest")
"""Receptive field; run-time checks; coalitions chosen; turned into canonical states; batches
built; the model on them; the regression; the result; the rest (questions checked, scores read)."""


@dataclass
class Stopwatch:
    """Seconds of each part, without those of the parts within it."""

    seconds: dict[str, float] = field(default_factory=dict)
    _open: list[float] = field(default_factory=list)

    def timed(self, part: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._open.append(0.0)
            start = time.process_time()
            try:
                return run(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                inner = self._open.pop()
                self.seconds[part] = self.seconds.get(part, 0.0) + spent - inner
                if self._open:
                    self._open[-1] += spent

        return wrapped


@contextmanager
def watched() -> Iterator[Stopwatch]:
    """Within it, the parts of every explanation are timed."""
    watch = Stopwatch()
    with ExitStack() as stack:
        for place, name, part in (
            (fields, "in_neighbourhood", "field"),
            (evaluating, "cached_evaluator", "checks"),
            (playing, "replays_agree", "checks"),
            (Auto, "__call__", "masks"),
            (GraphGame, "states", "states"),
            (Rows, "evaluate", "batches"),
            (Model, "__call__", "model"),
            (Sampling, "fit_all", "fit"),
            (explaining, "record", "record"),
        ):
            timed = watch.timed(part, getattr(place, name))
            stack.enter_context(mock.patch.object(place, name, timed))
        yield watch


@dataclass(frozen=True)
class Shares:
    """One world: medians over nodes and repeats, in seconds."""

    where: str
    total: float
    parts: dict[str, float]
    ratio: float
    """Median over nodes of all of the time over the model's own in it."""
    together: float
    """The same of all nodes together."""
    plain: float
    """The model alone on the same distinct perturbed graphs, as plain PyG batches."""
    plain_ratio: float
    plain_together: float
    checks: float
    """Median share of the checks."""
    nodes: int


def shares(name: str, model: str | None, nodes: int, repeats: int, samples: int) -> Shares:
    """Explanations as they come, taken apart."""
    world = worlds.world(name, model)
    method = GraphSVX(samples=samples)
    totals, parts, bare = [], [], []
    for node in world.eligible[:nodes].tolist():
        batches: list[tuple[Rows, Any, Any, Any]] = []
        own = Rows.evaluate

        def seen(
            self: Rows, field: Any, states: Any, hops: Any, batches: Any = batches, own: Any = own
        ) -> Any:  # fmt: skip
            batches.append((self, field, states, hops))
            return own(self, field, states, hops)

        graphsvx.explain(world.model, world.graph, node=node, method=method)
        with mock.patch.object(Rows, "evaluate", seen):
            graphsvx.explain(world.model, world.graph, node=node, method=method)
        # Stopwatches take time themselves: the whole is timed without them.
        run = partial(graphsvx.explain, world.model, world.graph, node=node, method=method)
        whole, found, alone = [], [], []
        for _ in range(repeats):
            whole += take_turns({"all": run}, 1)["all"].seconds
            found.append(_taken_apart(world, node, method))
            alone.append(_plainly(batches))
        totals.append(median(whole))
        parts.append({part: median(lap[part] for lap in found) for part in PARTS})
        bare.append(median(alone))
    own = [lap["model"] for lap in parts]
    return Shares(
        where=world.name,
        total=median(totals),
        parts={part: median(lap[part] for lap in parts) for part in PARTS},
        ratio=median(t / m for t, m in zip(totals, own, strict=True)),
        together=sum(totals) / sum(own),
        plain=median(bare),
        plain_ratio=median(t / b for t, b in zip(totals, bare, strict=True)),
        plain_together=sum(totals) / sum(bare),
        checks=median(p["checks"] / sum(p.values()) for p in parts),
        nodes=len(totals),
    )


def _taken_apart(world: worlds.World, node: int, method: GraphSVX) -> dict[str, float]:
    with watched() as watch:
        run = watch.timed("rest", graphsvx.explain)
        run(world.model, world.graph, node=node, method=method)
    return {part: watch.seconds.get(part, 0.0) for part in PARTS}


@torch.no_grad()
def _plainly(batches: list[tuple[Rows, Any, Any, Any]]) -> float:
    """Seconds of the model on the same states, features copied and nothing else left out."""
    with watched() as watch:
        for batch, field, states, hops in batches:
            shortcuts = replace(batch.shortcuts, rounds=None, shared_rows=False, degrees_only=False)
            replace(batch, shortcuts=shortcuts).evaluate(field, states, hops)
    return watch.seconds["model"]
