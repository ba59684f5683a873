"""Worker processes, forked where possible, one task each at a time; a dead worker is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")

# Seconds that a worker may continue its task after it was asked to stop.
_GRACE = 3.0


@dataclass(frozen=True)
class WorkerDied:
    """Takes the place of a result if the worker process died (killed, out of memory)."""


def can_fork() -> bool:
    """Whether workers are forked and share the caller's memory; otherwise arguments are pickled."""
    return "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"


def imap_unordered(
    work: Callable[[Task], Result], take: Callable[[], Task | None], workers: int
) -> Iterator[tuple[Task, Result | WorkerDied]]:
    """Run the tasks that `take()` returns in worker processes and yield results as they finish.

    A task is taken only when a worker is free and the consumer asks for more, so tasks never
    pile up. A worker that dies is replaced, and its task yields `WorkerDied`. Closing the
    generator stops the workers; a task that is still running after `_GRACE` seconds is killed.
    """
    context = multiprocessing.get_context("fork" if can_fork() else "spawn")
    stop, stop_sender = context.Pipe(duplex=False)

    def process() -> ProcessPoolExecutor:
        # One pool per process: when a process dies, its task is known.
        return ProcessPoolExecutor(
            1,
            mp_context=context,
            initializer=_start,
            initargs=(work, stop, stop_sender, os.getpid()),
        )

    pools: list[ProcessPoolExecutor] = []
    # Made one by one, each with its worker: no worker holds the ends of another one's pipes.
    free: deque[ProcessPoolExecutor | None] = deque([None] * workers)
    busy: dict[Future[Any], tuple[Task, ProcessPoolExecutor]] = {}
    ready: deque[tuple[Task, Any]] = deque()
    try:
        while True:
            while free and (task := take()) is not None:
                pool = free.popleft()
                if pool is None:
                    pool = process()
                    pools.append(pool)
                busy[_submit(pool, task)] = task, pool
            if ready:
                yield ready.popleft()
                continue
            if not busy:
                return
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                task, pool = busy.pop(future)
                try:
                    ready.append((task, future.result()))
                except BrokenExecutor:
                    ready.append((task, WorkerDied()))
                    pools.remove(pool)
                    pool.shutdown()
                    free.append(None)
                else:
                    free.append(pool)
    finally:
        stop_sender.close()
        for pool in pools:
            pool.shutdown(wait=True, cancel_futures=True)
        stop.close()


def _submit(pool: ProcessPoolExecutor, task: Any) -> Future[Any]:
    with warnings.catch_warnings():
        # Python 3.12 warns about forks in multi-threaded processes. The threads are those of the
        # pools, which hold no lock that a worker needs, and torch's, which a worker does not use.
        warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
        future = pool.submit(_run, task)
    # The worker exists now and has the only open end: if it dies while it sends a result, the
    # rest of which the pool would wait for, the pipe ends.
    results: Any = pool._result_queue
    results._writer.close()
    return future


# --- in the worker -------------------------------------------------------------------------

_work: Any = None
_stop_requested = False


def stop_requested() -> bool:
    """In a worker: whether the caller has asked it to stop; long tasks check between steps."""
    return _stop_requested


def _start(
    work: Callable[[Any], Any], stop: Connection, stop_sender: Connection | None, parent: int
) -> None:
    global _work  # noqa: PLW0603  (a worker process has exactly one kind of work)
    _work = work
    # Ctrl-C and SIGTERM are handled by the parent process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Parallelism is over tasks: one thread per worker process.
    torch.set_num_threads(1)
    if stop_sender is not None:
        # The caller holds the only open end: when it closes or dies, `stop.poll` returns.
        stop_sender.close()
    threading.Thread(target=_watch, args=(stop, parent), daemon=True).start()


def _watch(stop: Connection, parent: int) -> None:
    """Exit when the caller requests it, or when the parent process is gone."""
    global _stop_requested  # noqa: PLW0603  (read by the running task)
    while os.getppid() == parent and not stop.poll(0.5):
        pass
    _stop_requested = True
    if os.getppid() == parent:
        time.sleep(_GRACE)
    os._exit(1)


def _run(task: Any) -> Any:
    return _work(task)
