"""Plays many games and says which are wrong."""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.soundness.families import FAMILIES
from benchmarks.soundness.judge import UnplayableError, Verdict, verdict
from graphsvx.engine import states
from graphsvx.engine.state_graph import StateGraphs
from graphsvx.utils.files import atomic_write
from graphsvx.utils.printable import markdown_table


def play(family: str, seed: int) -> Verdict:
    """One game; family and seed say everything about it."""
    draw = random.Random(f"{family}:{seed}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw.randrange(2**31))
        try:
            scenario = FAMILIES[family][1](draw)
        except UnplayableError as error:
            return Verdict(family, seed, family, "unplayable", str(error))
        return verdict(family, seed, scenario.label, scenario.play)


def games(count: int, seed: int, families: list[str]) -> Iterator[tuple[str, int]]:
    """Families in proportion to their shares, each with seeds of its own."""
    shares = {family: FAMILIES[family][0] for family in families}
    total = sum(shares.values())
    played: Counter[str] = Counter()
    for position in range(count):
        family = max(
            families, key=lambda name: (position + 1) * shares[name] / total - played[name]
        )
        yield family, seed + played[family]
        played[family] += 1


def table(verdicts: list[Verdict]) -> str:
    """Outcomes by family, as Markdown."""
    by_family: dict[str, list[Verdict]] = defaultdict(list)
    for each in verdicts:
        by_family[each.family].append(each)
    columns = ("family", "games", "right", "wrong, claimed", "crashed", "refused", "unplayable",
               "exact", "shortcuts", "s/game")  # fmt: skip
    rows = []
    for family, members in [*by_family.items(), ("all", verdicts)]:
        outcomes = Counter(each.outcome for each in members)
        claimed = sum(each.failed and each.outcome == "wrong" for each in members)
        right = [each for each in members if each.outcome == "right"]
        shortcuts = sum(each.evaluator == "shortcuts" for each in right)
        seconds = sum(each.seconds for each in members) / len(members)
        counts = (
            len(members), outcomes["right"], claimed, outcomes["crashed"], outcomes["refused"],
            outcomes["unplayable"], sum(each.exact for each in right), shortcuts,
        )  # fmt: skip
        rows.append([family, *map(str, counts), f"{seconds:.2f}"])
    return markdown_table(columns, rows)


def line(each: Verdict) -> str:
    """One game in one line, with what plays it again."""
    claim = "exact" if each.exact else "checked" if each.checked else "no claim"
    return (
        f"{each.outcome:10} --only {each.family}:{each.seed}  [{claim}; {each.evaluator}]\n"
        f"    {each.label}\n    {each.detail}"
    )


def look_everything_up() -> None:
    """However few the coalitions and however many the states, and whatever batches say."""
    states.FEWEST_GRAPHS = 1
    StateGraphs.may_have_few = lambda *_: True
    number = StateGraphs.number
    StateGraphs.number = lambda graphs, perturbations, _=None: number(graphs, perturbations)
    states.allclose = lambda *_: True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench soundness", description=__doc__)
    parser.add_argument("--games", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="seed of each family's first game")
    parser.add_argument("--family", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--only", metavar="FAMILY:SEED", help="play one game")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all verdicts to FILE")
    parser.add_argument("--gigabytes", type=int, default=6, help="memory of all games; 0: no limit")
    parser.add_argument("--look-ups", action="store_true", help="all games of nodes by look-ups")
    parser.add_argument("--refused", action="store_true", help="print refused games too")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if chosen.look_ups:
        look_everything_up()
    # A model of dense matrices must fail by itself, not take the machine with it.
    if chosen.gigabytes:
        resource.setrlimit(resource.RLIMIT_AS, (chosen.gigabytes << 30, -1))
    if chosen.only:
        family, _, seed = chosen.only.partition(":")
        each = play(family, int(seed))
        print(line(each))
        return int(each.failed)
    verdicts: list[Verdict] = []
    started = time.perf_counter()
    for family, seed in games(chosen.games, chosen.seed, chosen.family):
        each = play(family, seed)
        verdicts.append(each)
        if each.outcome in ("wrong", "crashed") or (chosen.refused and each.outcome == "refused"):
            print(line(each), flush=True)
        if chosen.minutes and time.perf_counter() - started > 60 * chosen.minutes:
            break
    print(table(verdicts))
    failed = [each for each in verdicts if each.failed]
    print(f"{len(failed)} of {len(verdicts)} games failed")
    if chosen.json:
        with atomic_write(chosen.json) as part:
            part.write_text(json.dumps([asdict(each) for each in verdicts], indent=1) + "\n")
    return int(bool(failed))
