"""Ctrl-C while packages are imported, and SIGTERM handled like Ctrl-C in long commands."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """End the process on Ctrl-C during imports, which may turn it into an error of their own."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored in jobs that go on without a terminal
        yield
        return
    try:
        signal.signal(signal.SIGINT, _exit)
    except ValueError:  # not in the main thread, where signals cannot be handled
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit(*_: Any) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, which batch systems send to end a job."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, where signals cannot be handled
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
