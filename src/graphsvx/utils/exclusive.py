"""One explanation at a time in a process, also where the process is forked.

For the time of an explanation the modes and layers of the model and the random state are changed,
so a second thread waits. A process that is forked meanwhile inherits the lock and the changes of
a thread that it does not have. So a fork waits for the end of the explanation, though not for
long, and a child starts with a new lock and takes back what other threads had changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock, get_ident, local

import torch

from graphsvx.utils.threads import single_thread

# Seconds that a fork waits for an explanation. Its end is the best moment: nothing is changed,
# and no thread is inside a library that may hold a lock of its own.
_PATIENCE = 2.0

_lock = RLock()
_changes: list[tuple[int, Callable[[], None]]] = []
"""By thread, what takes back each change that is in force."""
_forking = local()


@contextmanager
def exclusive() -> Iterator[None]:
    """No other explanation in this process; no gradients, and one thread (see `one_thread`).

    Also needed for large tensors in a forked process, where the threads of OpenMP do not exist
    and a call that wants them never returns.
    """
    with _lock, torch.no_grad(), single_thread():
        yield


@contextmanager
def taking_back(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` at the end, and in a child process that another thread forks meanwhile.

    Changes are made inside; `undo` must not mind if they were not, or are taken back already.
    """
    change = (get_ident(), undo)
    _changes.append(change)
    try:
        yield
    finally:
        undo()
        _changes.remove(change)


def _before_fork() -> None:
    _forking.has_lock = _lock.acquire(timeout=_PATIENCE)


def _after_fork_in_parent() -> None:
    if _forking.has_lock:
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603  (its owner may be a thread that is not here)
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
