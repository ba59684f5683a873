"""Worker processes, forked where that is safe, one task each at a time; a dead one is replaced."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import cloudpickle

from graphsvx.errors import InputError, first_line

Task = TypeVar("Task")
Result = TypeVar("Result")

# Seconds that a worker may continue its task after it was asked to stop.
_GRACE = 3.0


class _Signal(Enum):
    STARTED = "the first message of a worker"


@dataclass(frozen=True)
class WorkerDied:
    """Takes the place of a result if the worker process died (killed, out of memory)."""


def can_fork() -> bool:
    """Whether workers are forked and share the caller's memory; otherwise arguments are pickled.

    A forked process has none of the caller's other threads, and what they had locked stays locked:
    it cannot use CUDA, and may hang if Ray's threads were at work.
    """
    if "fork" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        return False
    # Ray leaves some ten threads behind when it is shut down.
    torch = sys.modules.get("torch")
    return not (torch and torch.cuda.is_initialized()) and "ray" not in sys.modules


def imap_unordered(
    work: Callable[[Task], Result], take: Callable[[], Task | None], workers: int
) -> Iterator[tuple[Task, Result | WorkerDied]]:
    """Run the tasks that `take()` returns in worker processes and yield results as they finish.

    A task is taken only when a worker is free and the consumer asks for more, so tasks never
    pile up. A worker that dies is replaced, and its task yields `WorkerDied`. Closing the
    generator stops the workers; a task that is still running after `_GRACE` seconds is killed.
    No thread is started here: threads and `fork` do not go together.

    Where the system has no more processes or files, those workers do the work that it let start.

    Raises:
        InputError: workers are not forked, and `work` cannot be sent to them, or none can start.
    """
    method = "fork" if can_fork() else "spawn"
    sent: Any = work if method == "fork" else _pickled(work)
    with _refused():
        stop, stop_sender = multiprocessing.Pipe(duplex=False)
    running: dict[Connection, BaseProcess] = {}
    """Processes by the connection to them."""
    started = set[Connection]()
    free: deque[Connection | None] = deque([None] * workers)
    busy: dict[Connection, Task] = {}
    ready: deque[tuple[Task, Any]] = deque()
    postponed: list[Task] = []
    """Tasks whose worker could not be started."""
    try:
        while True:
            while free and (task := postponed.pop() if postponed else take()) is not None:
                worker = free.popleft() or _start(method, sent, stop, stop_sender, running)
                if worker is None:
                    postponed.append(task)
                    continue
                busy[worker] = task
                with suppress(OSError):  # dead: noticed below
                    worker.send(task)
            if ready:
                yield ready.popleft()
                continue
            if not busy:
                return
            speaking = wait(list(busy))
            for worker in [worker for worker in busy if worker in speaking]:
                answer = _received(worker)
                if answer is _Signal.STARTED:
                    started.add(worker)
                    continue
                if isinstance(answer, WorkerDied):
                    running.pop(worker).join()
                    worker.close()
                    if method == "spawn" and worker not in started:
                        raise InputError(
                            "worker processes could not start, as their own message says; in a "
                            'script, put the call below `if __name__ == "__main__":`, or use one '
                            "worker"
                        )
                ready.append((busy.pop(worker), answer))
                free.append(worker if worker in running else None)
    finally:
        for connection in (stop_sender, *running, stop):
            connection.close()
        for process in running.values():
            process.join()


def _received(worker: Connection) -> Any:
    """The result that a worker sends; raises what its task raised."""
    try:
        error, result = worker.recv()
    except (EOFError, OSError):
        return WorkerDied()
    if error is not None:
        raise error
    return result


def _start(
    method: str,
    sent: Any,
    stop: Connection,
    stop_sender: Connection,
    running: dict[Connection, BaseProcess],
) -> Connection | None:
    """A new worker among those that are running; None: they are all that the system has.

    It alone holds the other end of the connection to it, which ends with it.
    """
    context: Any = multiprocessing.get_context(method)
    try:
        with _refused():
            connection, of_worker = multiprocessing.Pipe()
            inherited = [stop_sender, *running, connection] if method == "fork" else []
            # A daemon: at the exit of a caller that never closed the generator it is stopped, not
            # waited for.
            process: BaseProcess = context.Process(
                target=_serve, args=(sent, of_worker, stop, inherited, os.getpid()), daemon=True
            )
            with of_worker, _no_interrupt(method), warnings.catch_warnings():
                # Python 3.12 warns about forks in multi-threaded processes. `can_fork` and
                # `utils.exclusive` see to the threads that hold locks which a worker needs.
                warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
                process.start()
    except InputError:
        if running:
            return None
        raise
    running[connection] = process
    return connection


@contextmanager
def _refused() -> Iterator[None]:
    """What the system refuses is an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the system lets no worker process start: {error.strerror or error}; use one worker, "
            f"or raise its limits (ulimit -u, ulimit -n)"
        ) from error


@contextmanager
def _no_interrupt(method: str) -> Iterator[None]:
    """Ctrl-C is for the caller, also while a worker starts."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    if method == "spawn":
        resource_tracker.ensure_running()  # its own start would let signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pickled(work: Callable[[Any], Any]) -> bytes:
    try:
        return bytes(cloudpickle.dumps(work))
    except Exception as error:  # whatever the model's own pickling raises
        raise InputError(
            f"worker processes do not share memory on this system, or beside Ray or CUDA, and what "
            f"they need cannot be pickled: {first_line(error)}; use one worker"
        ) from error


# --- in the worker -------------------------------------------------------------------------

_stop_requested = False


def stop_requested() -> bool:
    """In a worker: whether the caller has asked it to stop; long tasks check between steps."""
    return _stop_requested


def _serve(
    sent: Any, caller: Connection, stop: Connection, inherited: list[Connection], parent: int
) -> None:
    # The caller holds the only other ends: when it closes them or dies, reading here ends.
    for connection in inherited:
        connection.close()
    # Ctrl-C and SIGTERM are handled by the parent process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Parallelism is over tasks: one thread per worker process. A spawned one imports torch with its
    # first task, if that needs it.
    os.environ["OMP_NUM_THREADS"] = "1"
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    threading.Thread(target=_watch, args=(stop, parent), daemon=True).start()
    with suppress(EOFError, OSError):
        work = pickle.loads(sent) if isinstance(sent, bytes) else sent  # noqa: S301  (our own)
        caller.send((None, _Signal.STARTED))
        while True:
            task = caller.recv()
            try:
                answer = pickle.dumps((None, work(task)))
            except Exception as error:  # raised again by the caller
                error.add_note(traceback.format_exc())
                answer = pickle.dumps((error, None))
            caller.send_bytes(answer)


def _watch(stop: Connection, parent: int) -> None:
    """Exit when the caller requests it, or when the parent process is gone."""
    global _stop_requested  # noqa: PLW0603  (read by the running task)
    while os.getppid() == parent and not stop.poll(0.5):
        pass
    _stop_requested = True
    if os.getppid() == parent:
        time.sleep(_GRACE)
    os._exit(1)
