"""Signals that end a long command, taken as Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """A batch system that ends a job is a user who presses Ctrl-C."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: nobody sends signals here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
