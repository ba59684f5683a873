"""Times of contenders that take turns, so that a busy machine slows all of them alike.

Processor time of the one thread: what else runs on the machine does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Lap:
    """Seconds of every run, and what the last one gave."""

    seconds: list[float]
    result: Any

    @property
    def median(self) -> float:
        return median(self.seconds)


def take_turns(
    contenders: dict[str, Callable[[], Any]], repeats: int, once: frozenset[str] = frozenset()
) -> dict[str, Lap]:
    """Every contender `repeats` times in turn (those in `once` only in the first round)."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    results: dict[str, Any] = {}
    for turn in range(repeats):
        for name, run in contenders.items():
            if turn and name in once:
                continue
            start = time.process_time()
            results[name] = run()
            seconds[name].append(time.process_time() - start)
    return {name: Lap(seconds[name], results[name]) for name in contenders}
