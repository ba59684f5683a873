"""Times of functions on a machine that does other things as well, and work that takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from statistics import median
from threading import Timer
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


@contextmanager
def shown_after(seconds: float, bar: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Show `bar()` while the work goes on, if it takes longer than `seconds`."""
    with ExitStack() as stack:
        timer = Timer(seconds, lambda: stack.enter_context(bar()))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # it may have just begun to show the bar
