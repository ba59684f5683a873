"""One explanation at a time in a process, on one thread; the lock survives `fork`.

During an explanation the modes and layers of the model and the random state are changed, so a
second thread has to wait. A forked child would inherit the lock and the changes of a thread that
does not exist in it. A fork therefore waits up to `_FORK_WAIT` seconds for the explanation to end,
and the child starts with a new lock and undoes the changes of other threads.

On one thread, so that results do not depend on the number of threads: reductions in torch and BLAS
are split among threads, and a different split rounds differently. To use several cores, explain
several nodes at once in processes of one thread each.

An explanation asks between two model calls whether its result is still wanted (`interruptible`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import product
from threading import RLock, get_ident, local
from typing import Any

import torch
from threadpoolctl import LibController, ThreadpoolController

from graphsvx.utils.context import within

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


# --- one thread ----------------------------------------------------------------------------


_Pool = tuple[Callable[[], int], Callable[[int], object]]
"""Functions that read and set the number of threads of one BLAS library."""


def _pool(library: LibController) -> _Pool:
    """Functions of `library` that work from any thread.

    OpenBLAS with its own threads has one thread count per process, and threadpoolctl (from 3.8 on)
    lets only the first calling thread change it: in other threads `set_num_threads` silently does
    nothing. There, OpenBLAS's own functions are called, under whichever name the build exports.
    """
    if library.internal_api == "openblas" and library.threading_layer != "openmp":
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            get, set_ = (
                getattr(library.dynlib, f"{prefix}openblas_{verb}_num_threads{suffix}", None)
                for verb in ("get", "set")
            )
            if get is not None and set_ is not None:
                get.restype, get.argtypes = ctypes.c_int, []
                set_.restype, set_.argtypes = None, [ctypes.c_int]
                return get, set_
    return library.get_num_threads, library.set_num_threads


@lru_cache(maxsize=1)
def _pools() -> list[_Pool]:
    """One pool per BLAS library; cached because the lookup takes milliseconds."""
    libraries = ThreadpoolController().lib_controllers
    return [_pool(library) for library in libraries if library.user_api == "blas"]


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch and numpy on one thread; restore the previous thread counts afterwards.

    Torch's count belongs to the calling thread, OpenBLAS's to the process, so only one thread at
    a time may be inside (`exclusive` holds a lock).
    """
    threads = torch.get_num_threads()
    # threadpoolctl's own context manager queries far more than the number of threads.
    reduced = [
        (set_count, count) for get_count, set_count in _pools() if (count := get_count()) != 1
    ]
    try:
        for set_count, _ in reduced:
            set_count(1)
        if threads != 1:
            torch.set_num_threads(1)
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)
        for set_count, count in reduced:
            set_count(count)


# --- interruption --------------------------------------------------------------------------

_NEVER: Callable[[], bool] = bool
_is_unwanted: ContextVar[Callable[[], bool]] = ContextVar("is_unwanted", default=_NEVER)


class Interrupted(BaseException):
    """Nobody wants the result of the running work; like KeyboardInterrupt not an `Exception`."""


def interruptible(is_unwanted: Callable[[], bool]) -> AbstractContextManager[Any]:
    """Work in this context raises `Interrupted` at its next model call once `is_unwanted()`."""
    return within(_is_unwanted, is_unwanted)


def stop_if_unwanted() -> None:
    """Raise `Interrupted` if nobody wants the result any more."""
    if _is_unwanted.get()():
        raise Interrupted
