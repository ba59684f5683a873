"""Stopping an explanation in another thread: work asks between two model calls whether to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NEVER: Callable[[], bool] = bool
_is_unwanted: ContextVar[Callable[[], bool]] = ContextVar("is_unwanted", default=_NEVER)


class Interrupted(BaseException):
    """Nobody wants the result of the running work; like KeyboardInterrupt not an `Exception`."""


@contextmanager
def interruptible(is_unwanted: Callable[[], bool]) -> Iterator[None]:
    """Work in this context raises `Interrupted` at its next model call once `is_unwanted()`."""
    token = _is_unwanted.set(is_unwanted)
    try:
        yield
    finally:
        _is_unwanted.reset(token)


def stop_if_unwanted() -> None:
    """Raise `Interrupted` if nobody wants the result any more."""
    if _is_unwanted.get()():
        raise Interrupted
