"""What each part of the default estimator is worth: scripts/bench ablate [--quick] [--json FILE].

Every component is switched off alone, on the same games with known Shapley values. Errors are
squared, relative to the squared norm of the credit, with the truth's own error taken off; bars of
95 % hold a player's credit if they hold it within the truth's own bar. Times are of the processor.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import coverage, large_games
from graphsvx import GraphSVX
from graphsvx.estimators import WLS
from graphsvx.utils.context import Components, only
from graphsvx.utils.files import atomic_write

CALLS = (100, 1000, None)
"""Calls of an explanation; None: by default."""
_LARGEST = 20
_TRUTH_CALLS = 1000  # a player, of games whose truth is not exact,
_MOLECULE_TRUTH = 30_000  # where look-ups are precise,
_LARGE_TRUTH = 200_000  # and of large games, in all
_BUILDS = {"trees": coverage.tree, "hubs": coverage.hub, "stars": coverage.star}
_CITATION = (("cora", "gcn"), ("citeseer", "gat"), ("cora", "sage"), ("citeseer", "gcn"))
_LARGE = (("cora", "gcn"), ("cora", "gat"), ("amazon-photo", "gcn"), ("amazon-photo", "gat"),
          ("amazon-photo", "sage"), ("ba-community", "gcn"))  # fmt: skip

Game = coverage.Judged | large_games.LargeGame


def _generated(names: tuple[str, ...], low: int, high: int, each: int, seed: int) -> Iterator[Game]:
    rng = np.random.default_rng(seed)
    asked: Iterator[coverage.Question] = (
        _BUILDS[names[turn % len(names)]](int(rng.integers(low, high + 1)), turn, seed + turn)
        for turn in count()
    )
    return coverage.judged_games(asked, (low, high), seed=seed, each=each, calls=_TRUTH_CALLS)


def _on_graphs(
    worlds: tuple[tuple[str, str], ...], low: int, high: int, each: int, seed: int
) -> Iterator[Game]:
    return large_games.games((low, high), count=each, calls=_LARGE_TRUTH, seed=seed, worlds=worlds)


def _molecules(low: int, high: int, each: int, seed: int) -> Iterator[Game]:
    return coverage.games("molecules", (low, high), seed=seed, each=each, calls=_MOLECULE_TRUTH)


FAMILIES: dict[str, Callable[[int, int], Iterator[Game]]] = {
    "small": partial(_generated, tuple(_BUILDS), 10, 16),
    "trees": partial(_generated, ("trees",), 21, 64),
    "citation": partial(_on_graphs, _CITATION, 21, 64),
    "hubs": partial(_generated, ("hubs",), 21, 64),
    "molecules": partial(_molecules, 21, 60),
    "65-200": partial(_on_graphs, _LARGE, 65, 200),
    "201-600": partial(_on_graphs, _LARGE, 201, 600),
    "601-2,500": partial(_on_graphs, _LARGE, 601, 2500),
    "2,501-8,000": partial(_on_graphs, _LARGE[2:5], 2501, 8000),
}

METHOD = GraphSVX(players="nodes")
REMOVED: dict[str, tuple[GraphSVX, Components]] = {
    "nothing": (METHOD, Components()),
    "the process (WLS)": (METHOD.with_settings(estimator=WLS()), Components()),
    **{
        name.replace("_", " "): (METHOD, replace(Components(), **{name: False}))
        for name in vars(Components())
    },
}


def _without(removed: str) -> tuple[GraphSVX, Components]:
    """The method without some components, joined by "+"."""
    method, chosen = METHOD, Components()
    for name in removed.split("+"):
        if name in REMOVED:
            estimator, only_this = REMOVED[name]
            method = estimator if estimator != METHOD else method
            off = {part: False for part, on in vars(only_this).items() if not on}
            chosen = replace(chosen, **off)
        else:
            raise ValueError(f"no component {name!r}; known are {', '.join(REMOVED)}")
    return method, chosen


@dataclass(frozen=True)
class Outcome:
    """One explanation beside the truth."""

    error: float
    held: float
    """Share of the players whose bars hold their credit."""
    held_largest: float
    seconds: float


@torch.no_grad()
def outcome(judged: Game, removed: str, calls: int | None, seed: int) -> Outcome | None:
    """Of one explanation without a component; None: it is exact."""
    method, chosen = _without(removed)
    method = method.with_settings(budget=replace(method.budget, samples=calls))
    start = time.process_time()
    with only(chosen):
        explanation = method(judged.game.query, seed)
    seconds = time.process_time() - start
    credit = explanation.node_credit
    row = explanation.outputs.index(judged.target) if len(credit.values) > 1 else 0
    values, errors = credit.values[row].numpy(), credit.errors[row].numpy()
    if not errors.any():
        return None
    miss, truth = values - judged.truth, judged.truth
    norm = float((truth**2).sum())
    of_truth = float((judged.truth_errors**2).sum()) / norm
    error = float((miss**2).sum()) / norm - of_truth
    bar = np.hypot(errors, judged.truth_errors)
    held = np.abs(miss) <= 1.96 * bar + 1e-9 * np.abs(truth).max()
    largest = np.argsort(-np.abs(truth))[:_LARGEST]
    return Outcome(
        max(error, of_truth / 2, 1e-12), float(held.mean()), float(held[largest].mean()), seconds
    )


def measure(
    families: list[str], removed: list[str], each: int, seeds: int, budgets: tuple[int | None, ...],
    seed: int = 2027, tell: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each family, number of calls and component; games that are exact are left out."""
    rows = []
    for family in families:
        games = list(FAMILIES[family](each, seed))
        for calls in budgets:
            pairs: dict[str, list[tuple[Outcome, Outcome]]] = {name: [] for name in removed}
            for game, turn in ((game, turn) for game in games for turn in range(seeds)):
                complete = outcome(game, "nothing", calls, turn)
                for name in removed:
                    without = complete if name == "nothing" else outcome(game, name, calls, turn)
                    if complete is not None and without is not None:
                        pairs[name].append((without, complete))
            for name, both in pairs.items():
                if both:
                    row = {"family": family, "calls": calls, "removed": name, **_summary(both)}
                    rows.append(row)
                    tell(_line(row))
    return rows


def _summary(pairs: list[tuple[Outcome, Outcome]]) -> dict[str, Any]:
    without, complete = (list(side) for side in zip(*pairs, strict=True))
    logs = [np.log(a.error / b.error) for a, b in pairs]

    def of(side: list[Outcome]) -> dict[str, float]:
        return {
            "error": float(np.median([one.error for one in side])),
            "coverage": float(np.mean([one.held for one in side])),
            "largest": float(np.mean([one.held_largest for one in side])),
            "seconds": float(np.mean([one.seconds for one in side])),
        }

    return {
        "explanations": len(pairs), "ratio": float(np.exp(np.mean(logs))),
        "without": of(without), "with": of(complete),
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    one, other = row["without"], row["with"]
    return (
        f"{row['family']:12} {row['calls'] or 'default':>7} {row['removed']:20} "
        f"error x{row['ratio']:<7.2f} ({one['error']:.1e} / {other['error']:.1e})  "
        f"held {one['coverage']:.2f} / {other['coverage']:.2f}  "
        f"largest {one['largest']:.2f} / {other['largest']:.2f}  "
        f"time x{one['seconds'] / max(other['seconds'], 1e-9):.2f}  n={row['explanations']}"
    )


def tables(rows: list[dict[str, Any]]) -> str:
    """Errors, coverage and times by component and family, by each number of calls."""
    ratios = _table(rows, lambda row: row["ratio"])
    times = _table(rows, lambda row: row["without"]["seconds"] / row["with"]["seconds"])
    coverage, largest = (
        _table(rows, lambda row, of=of: row["without"][of]) for of in ("coverage", "largest")
    )
    return "\n\n".join([
        "Error without over with", ratios, "Coverage, all players", coverage,
        f"Coverage, {_LARGEST} largest", largest, "Time without over with", times,
    ])  # fmt: skip


def _table(rows: list[dict[str, Any]], figure: Callable[[dict[str, Any]], float]) -> str:
    families = list(dict.fromkeys(row["family"] for row in rows))
    found = {(row["removed"], row["family"], row["calls"]): row for row in rows}
    lines = [f"| without | {' | '.join(families)} |", "|" + " --- |" * (len(families) + 1)]
    for name in dict.fromkeys(row["removed"] for row in rows):
        cells = []
        for family in families:
            some = [found.get((name, family, calls)) for calls in CALLS]
            cells.append(" / ".join("-" if row is None else f"{figure(row):.2f}" for row in some))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench ablate", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one or two games of some families")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument(
        "--removed", nargs="+", default=list(REMOVED), metavar="NAME",
        help="components, or several joined by +",
    )  # fmt: skip
    parser.add_argument("--each", type=int, default=6, help="games of a family")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    families, each, seeds, budgets = chosen.families, chosen.each, chosen.seeds, CALLS
    if chosen.quick:
        families = [name for name in families if name in ("small", "trees", "hubs")]
        each, seeds, budgets = 2, 1, (100, 1000)
    rows = measure(families, chosen.removed, each, seeds, budgets, tell=partial(print, flush=True))
    print(tables(rows))
    if chosen.json:
        with atomic_write(chosen.json) as part:
            part.write_text(json.dumps(rows, indent=1) + "\n")
    return 0
