"""Time of one explanation against peers."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch

import graphsvx
from benchmarks import contenders, worlds
from benchmarks.contenders import Task
from benchmarks.shares import Shares, shares
from benchmarks.timing import take_turns
from graphsvx import GraphSVX
from graphsvx.core.players import Sides
from graphsvx.engine.rows import Copies
from graphsvx.errors import ModelError
from graphsvx.estimators import WLS, Estimator, GaussianProcess


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    contender: str
    where: str
    theirs: float
    """Median seconds (of explanations, over nodes and repeats)."""
    ours: float
    ratio: float
    """Median over nodes of theirs / ours."""
    wanted: str
    met: bool
    check: str
    """What the explanations were compared with, and how far they were from it."""
    nodes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _far(a: dict[Any, float], b: dict[Any, float]) -> float:
    return max((abs(a[key] - b[key]) for key in b), default=0.0)


def _line(
    contender: str, where: str, times: list[tuple[float, float]], wanted: float, check: str
) -> Line:
    ratios = [theirs / ours for theirs, ours in times]
    ratio = median(ratios)
    return Line(
        contender, where, median(t for t, _ in times), median(o for _, o in times), ratio,
        f"{wanted:g}x", ratio >= wanted, check, len(times),
    )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    nodes: int = 5
    slow_nodes: int = 3
    repeats: int = 5
    sizes: tuple[int, int] = (10**4, 10**6)
    scale: float = 1.0
    """Share of the rows, for a quick look."""
    leaves: int = 20_000

    @staticmethod
    def quick() -> Plan:
        return Plan(nodes=1, slow_nodes=1, repeats=1, sizes=(10**3, 10**4), scale=0.05, leaves=500)


def same_rows(plan: Plan) -> list[Line]:
    """Contenders that play the same coalitions."""
    lines = []
    for name, model, samples, wanted in (
        ("ba-shapes", None, 400, 100), ("tree-cycles", None, 1400, 100), ("cora", "gcn", 1000, 100),
    ):  # fmt: skip
        world = worlds.world(name, model)
        lines.append(
            _against(
                world,
                int(samples * plan.scale),
                plan.slow_nodes,
                plan.repeats,
                wanted,
                "one call per coalition, whole graph",
                contenders.one_by_one,
                slow=True,
            )
        )
    for name, model, samples, wanted in (("cora", "gcn", 1000, 10), ("cora", "gat", 1000, 5)):
        world = worlds.world(name, model)
        lines.append(
            _against(
                world,
                int(samples * plan.scale),
                plan.nodes,
                plan.repeats,
                wanted,
                "replicated batch, repeated features",
                lambda task: contenders.replicated(task, depth=2),
                slow=False,
                # Rows of features are of an isolated node: nothing that replicas could share.
                players="nodes",
            )
        )
    return lines


def _against(
    world: worlds.World, samples: int, nodes: int, repeats: int, wanted: float, name: str,
    theirs: Callable[[Task], dict[Any, float]], slow: bool, players: Sides = "both",
) -> Line:  # fmt: skip
    times, far, played = [], 0.0, []
    for task in _with_all_rows(world, samples, nodes, players):
        played.append(task.count())
        runs = {
            "theirs": lambda task=task: theirs(task),
            "ours": lambda task=task: contenders.ours(task, samples),
        }
        laps = take_turns(runs, repeats, frozenset({"theirs"} if slow else ()))
        far = max(far, _far(laps["ours"].result, laps["theirs"].result))
        times.append((laps["theirs"].median, laps["ours"].median))
    if far > 1e-5:
        raise AssertionError(f"{name} and graphsvx disagree by {far:.1e} on {world.name}")
    check = f"same credit to {far:.0e}"
    where = f"{world.name}, {min(played)}-{max(played)} rows"
    if players == "nodes":
        where += " of nodes"
    return _line(name, where, times, wanted, check)


def _with_all_rows(
    world: worlds.World, samples: int, nodes: int, players: Sides
) -> list[Task]:  # fmt: skip
    """The first nodes whose games have as many coalitions as are asked for.

    A node with 5 players has 32 coalitions; "400 rows" would not be true of it.
    """
    tasks: list[Task] = []
    for node in world.eligible.tolist():
        task = Task.of(world.model, world.graph, node, samples, players=players)
        if task.count() >= 0.95 * samples:
            tasks.append(task)
        if len(tasks) == nodes:
            break
    if not tasks:
        raise AssertionError(f"no node of {world.name} has {samples} coalitions")
    return tasks


def learned_masks(plan: Plan) -> list[Line]:
    """GNNExplainer against our default, node by node."""
    lines = []
    for name in ("ba-shapes", "ba-community", "tree-cycles", "tree-grid"):
        world = worlds.world(name)
        method = GraphSVX(samples=int(1000 * plan.scale))
        times, errors = [], []
        for node in world.eligible[: plan.nodes].tolist():
            runs = {
                "theirs": partial(contenders.gnn_explainer, world.model, world.graph, node),
                "ours": partial(
                    graphsvx.explain, world.model, world.graph, node=node, method=method
                ),
            }
            laps = take_turns(runs, max(1, min(plan.repeats, 3)), frozenset({"theirs"}))
            times.append((laps["theirs"].median, laps["ours"].median))
            errors.append(_reference_error(world, node, laps["ours"].result, plan))
        check = (
            f"ours to brute force or 20x the calls: {median(errors):.0e}, "
            f"at worst {max(errors):.0e} (relative squared)"
        )
        lines.append(_line("GNNExplainer, 100 epochs", f"{name}, default", times, 5, check))
    return lines


def _reference_error(world: worlds.World, node: int, e: Any, plan: Plan) -> float:
    """Against plain brute force, or 20 times the calls where there are too many coalitions."""
    if max(len(e.node_ids), len(e.feature_ids)) <= 14:
        truth = contenders.brute_force(world.model, world.graph, node, depth=3)
        best = np.array([truth[i] for i in e.node_ids.tolist()])
    else:
        method = GraphSVX(samples=int(20_000 * plan.scale))
        best = graphsvx.explain(
            world.model, world.graph, node=node, method=method, seed=1
        ).node_values.numpy()
    return float(((e.node_values.numpy() - best) ** 2).sum() / max((best**2).sum(), 1e-30))


def kernel_explainer(plan: Plan) -> list[Line]:
    """`shap.KernelExplainer` on our own (fast) game and on plain batches, against all of ours."""
    world = worlds.world("cora", "gcn")
    samples = int(1000 * plan.scale)
    ways = {"WLS": WLS(), "default": GaussianProcess()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    plainly: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    errors: dict[str, list[float]] = {name: [] for name in ("theirs", "plain", *ways)}
    equal: list[tuple[float, float]] = []
    needed: list[int] = []
    reached = 0
    for node in world.eligible[: plan.nodes].tolist():

        def theirs(node: int = node, budget: int = samples) -> np.ndarray:
            game, target = worlds.node_game(world.model, world.graph, node)
            return contenders.kernel_shap(game, target, budget)

        def ours(estimator: Estimator, budget: int = samples, node: int = node) -> np.ndarray:
            method = GraphSVX(samples=budget, players="nodes", estimator=estimator)
            e = graphsvx.explain(world.model, world.graph, node=node, method=method)
            return e.node_values.numpy()

        def plain(node: int = node) -> np.ndarray:
            return contenders.plain_kernel_shap(world.model, world.graph, node, samples, depth=2)

        runs = {"theirs": theirs, **{name: partial(ours, how) for name, how in ways.items()}}
        laps = take_turns({**runs, "plain": plain}, plan.repeats, frozenset({"plain"}))
        best = ours(GaussianProcess(), 20 * samples)
        for name, lap in laps.items():
            if lap.result.shape != best.shape:
                raise AssertionError(f"{name} explains {lap.result.shape}, not {best.shape}")
            errors[name].append(((lap.result - best) ** 2).sum() / (best**2).sum())
        for name in ways:
            times[name].append((laps["theirs"].median, laps[name].median))
            plainly[name].append((laps["plain"].median, laps[name].median))
        # As many calls as they need for our default's error, or 16 times ours.
        goal = max(errors["default"][-1], 1e-12)
        for factor in (1, 2, 4, 8, 16):
            run = partial(theirs, budget=factor * samples)
            lap = take_turns({"theirs": run}, min(plan.repeats, 3))["theirs"]
            good = ((lap.result - best) ** 2).sum() / (best**2).sum() <= goal
            if good or factor == 16:
                break
        reached += int(good)
        needed.append(factor * samples)
        equal.append((lap.median, laps["default"].median))
    lost = {name: median(ratios) for name, ratios in errors.items()}
    where = f"cora gcn nodes, {samples}"
    return [
        _line(f"shap.KernelExplainer, same game, {how}", f"{where}, {name}", ratios[name], 3,
              f"to the reference: ours {lost[name]:.0e}, theirs {lost[key]:.0e} "
              f"(median relative squared)")
        for how, ratios, key in (("played by plain PyG batches", plainly, "plain"),
                               ("played by our engine", times, "theirs"))
        for name in ways
    ] + [
        _line("shap.KernelExplainer on our engine, until its error is ours", f"{where}, default",
              equal, 3,
              f"theirs got there on {reached} of {len(equal)} nodes, with at most 16x the calls "
              f"(median {median(needed):g})")
    ]  # fmt: skip


def graph_size(plan: Plan) -> Line:
    """The same neighbourhood in a small and in a large graph."""
    small, large = (worlds.padded(size) for size in plan.sizes)
    # Means of features, and so the features' game, are of the whole graph: only nodes play.
    method = GraphSVX(samples=int(1000 * plan.scale), players="nodes")
    times, far = [], 0.0
    for node in range(plan.nodes):
        runs = {
            name: lambda world=world, node=node: graphsvx.explain(
                world[0], world[1], node=node, method=method
            )
            for name, world in (("small", small), ("large", large))
        }
        take_turns(runs, 1)  # the index is built once per graph
        laps = take_turns(runs, 2 * plan.repeats)
        far = max(far, _far(laps["small"].result.nodes, laps["large"].result.nodes))
        times.append((laps["large"].median, laps["small"].median))
    ratio = median(large / small for large, small in times)
    name = f"graph of {plan.sizes[1]:.0e} nodes against {plan.sizes[0]:.0e}".replace("e+0", "e")
    return Line(
        name, "same neighbourhood, GCN", median(t for t, _ in times), median(o for _, o in times),
        ratio, "at most 1.2x", ratio <= 1.2, f"same credit to {far:.0e}", len(times),
    )  # fmt: skip


def forward_share(plan: Plan, name: str, model: str | None) -> tuple[list[Line], Shares]:
    """All of an explanation against the model's own time; where the rest goes."""
    measured = shares(name, model, plan.nodes, plan.repeats, int(1000 * plan.scale))
    where = f"{measured.where}, default"
    lines = [
        Line(f"end to end against the forward passes of its batches, {how}", where, measured.total,
             alone, ratio, "at most 1.3x", ratio <= 1.3,
             f"all nodes together: {together:.1f}x; "
             f"checks: {100 * measured.checks:.0f} % of the time",
             measured.nodes)
        for how, alone, ratio, together in (
            ("the model as it is", measured.plain, measured.plain_ratio, measured.plain_together),
            ("sped up by the engine", measured.parts["model"], measured.ratio, measured.together),
        )
    ]  # fmt: skip
    return lines, measured


def unknown_layers(plan: Plan) -> Line:
    """A layer that the engine does not know: copies in batches against one call a coalition."""
    world = worlds.world("cora", "gcn")
    model = worlds.chebyshev(world.graph.num_features, 7)
    method = GraphSVX(samples=int(1000 * plan.scale))
    times, far = [], 0.0
    for node in world.eligible[: plan.slow_nodes].tolist():

        def run(batched: bool, node: int = node) -> Any:
            change = mock.patch.object(Copies, "evaluate", side_effect=ModelError("left out"))
            with nullcontext() if batched else change:
                return graphsvx.explain(model, world.graph, node=node, method=method)

        laps = take_turns({"theirs": partial(run, False), "ours": partial(run, True)}, 1)
        far = max(far, _far(laps["ours"].result.nodes, laps["theirs"].result.nodes))
        times.append((laps["theirs"].median, laps["ours"].median))
    return _line("one call a coalition on the neighbourhood", "cora, untrained ChebConv, default",
                 times, 1, f"same credit to {far:.0e}")  # fmt: skip


def hub_memory(plan: Plan) -> dict[str, float]:
    """Growth of the peak resident set while a hub is explained, in a process of its own."""
    code = f"from benchmarks.speed import _hub; _hub({plan.leaves}, {int(1000 * plan.scale)})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900
    )
    grown, seconds = done.stdout.split()
    return {
        "leaves": plan.leaves,
        "MiB": float(grown),
        "allowed MiB": 512,
        "seconds": float(seconds),
    }


def _peak() -> int:
    """Peak resident set of this process in KiB.

    Not ru_maxrss: a child starts with its parent's there, and would seem not to grow at all.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise RuntimeError("no VmHWM: the peak of the resident set is measured on Linux only")


def _hub(leaves: int, samples: int) -> None:
    torch.set_num_threads(1)
    model, graph = worlds.hub(leaves)
    small, tiny = worlds.hub(20)
    graphsvx.explain(small, tiny, node=0)
    gc.collect()
    before = _peak()
    start = time.process_time()
    graphsvx.explain(model, graph, node=0, method=GraphSVX(samples=samples))
    seconds = time.process_time() - start
    after = _peak()
    print((after - before) / 1024, seconds)


def measure(plan: Plan) -> dict[str, Any]:
    """Everything, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        lines = [*same_rows(plan), *learned_masks(plan), *kernel_explainer(plan), graph_size(plan)]
        lines.append(unknown_layers(plan))
        parts = []
        for name, model in (
            ("cora", "gcn"),
            ("cora", "gat"),
            ("ba-shapes", None),
            ("tree-grid", None),
        ):
            more, measured = forward_share(plan, name, model)
            lines += more
            parts.append(asdict(measured))
        return {
            "lines": [line.to_json() for line in lines],
            "parts": parts,
            "hub": hub_memory(plan),
        }
    finally:
        torch.set_num_threads(threads)
