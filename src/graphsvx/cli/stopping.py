"""Ctrl-C while packages are imported, and SIGTERM handled like Ctrl-C in long commands."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from graphsvx.utils.console import message
from graphsvx_command import stop


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command like Ctrl-C, with another exit code."""


@contextmanager
def stopped_at_once() -> Iterator[None]:
    """End the process on Ctrl-C during imports, which may turn it into an error of their own."""
    before = signal.getsignal(signal.SIGINT)
    # Ignored in jobs that go on without a terminal; `stop` is set when the command starts.
    if before not in (signal.default_int_handler, stop):
        yield
        return
    with _handler(signal.SIGINT, stop, afterwards=signal.default_int_handler):
        yield


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, which batch systems send to end a job."""

    def stop(*_: Any) -> None:
        raise Terminated

    with _handler(signal.SIGTERM, stop, afterwards=signal.getsignal(signal.SIGTERM)):
        yield


@contextmanager
def resumable(folder: Path, command: str) -> Iterator[None]:
    """Work that is kept in a folder: when it is stopped, say how to go on."""
    with stopped_by_signals():
        try:
            yield
        except KeyboardInterrupt:
            message(f"stopped; what is done is kept in {folder}. To go on:")
            message(command)
            raise typer.Exit(130) from None


@contextmanager
def _handler(number: signal.Signals, handler: Any, afterwards: Any) -> Iterator[None]:
    """Within it, `handler` handles a signal; outside of the main thread nothing can."""
    try:
        signal.signal(number, handler)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, afterwards)
