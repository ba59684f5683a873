"""Ctrl-C while packages are imported, and SIGTERM handled like Ctrl-C in long commands."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphsvx_command import stop


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """End the process on Ctrl-C during imports, which may turn it into an error of their own."""
    before = signal.getsignal(signal.SIGINT)
    # Ignored in jobs that go on without a terminal; `stop` is set when the command starts.
    if before not in (signal.default_int_handler, stop):
        yield
        return
    try:
        signal.signal(signal.SIGINT, stop)
    except ValueError:  # not in the main thread, where signals cannot be handled
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
