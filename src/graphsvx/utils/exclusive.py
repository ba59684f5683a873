"""A process-wide lock around explanations that survives `fork`.

During an explanation the modes and layers of the model and the random state are changed, so a
second thread has to wait. A forked child would inherit the lock and the changes of a thread that
does not exist in it. A fork therefore waits up to `_FORK_WAIT` seconds for the explanation to end,
and the child starts with a new lock and undoes the changes of other threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock, get_ident, local

import torch

from graphsvx.utils.threads import single_thread

# Seconds that a fork waits for an explanation to end. At that point nothing is changed, and no
# thread is inside a library that may hold a lock of its own.
_FORK_WAIT = 2.0

_lock = RLock()
_changes: list[tuple[int, Callable[[], None]]] = []
"""(thread id, undo function) of every change that is in force."""
_forking = local()


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the process-wide lock, without gradients and on one thread (see `single_thread`).

    Also needed for large tensors in a forked process: the threads of OpenMP do not exist there,
    and a call that uses them never returns.
    """
    with _lock, torch.no_grad(), single_thread():
        yield


@contextmanager
def taking_back(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` at the end, and in a child process that another thread forks meanwhile.

    The changes are made inside the block. `undo` must be idempotent, and harmless if the changes
    were not made.
    """
    change = (get_ident(), undo)
    _changes.append(change)
    try:
        yield
    finally:
        undo()
        _changes.remove(change)


def _before_fork() -> None:
    _forking.has_lock = _lock.acquire(timeout=_FORK_WAIT)


def _after_fork_in_parent() -> None:
    if _forking.has_lock:
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603  (its owner may be a thread that does not exist in the child)
    _lock = RLock()
    others = [change for change in _changes if change[0] != get_ident()]
    for change in reversed(others):
        change[1]()
        _changes.remove(change)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
