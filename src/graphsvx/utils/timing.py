"""Times of functions on a machine that does other things as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any


def take_turns(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median processor seconds; contenders in turn, so that a busy machine slows all."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: median(times) for name, times in seconds.items()}
