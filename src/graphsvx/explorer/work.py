"""A queue of work for one thread: the most urgent first; abandoned work is not started or stops."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import count
from threading import Condition, Thread
from typing import Any, TypeVar

from graphsvx.errors import GraphSVXError
from graphsvx.utils.interruption import Interrupted, interruptible

Result = TypeVar("Result")


class BusyError(GraphSVXError):
    """Too much work is waiting."""


class Work(Future[Result]):
    """The result of a function that waits in a queue or runs."""

    unwanted = False
    """Whether nobody waits for the result: it is not started, or stops at its next model call."""

    def abandon(self) -> None:
        """Do not start it; stop it if it runs."""
        self.unwanted = True
        self.cancel()


class WorkQueue:
    """Runs functions one after the other in a thread of its own."""

    def __init__(self, name: str, most: int) -> None:
        self._most = most
        self._waiting: list[tuple[int, int, Work[Any], Callable[[], Any]]] = []
        self._numbers = count()
        self._change = Condition()
        self._closed = False
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Result], urgency: int = 0) -> Work[Result]:
        """Add work; a lower `urgency` is done earlier. Abandoning it takes it out."""
        work: Work[Result] = Work()
        with self._change:
            if self._closed:
                raise BusyError("the server is closing")
            self._waiting = [entry for entry in self._waiting if not entry[2].cancelled()]
            heapq.heapify(self._waiting)
            if len(self._waiting) >= self._most:
                raise BusyError(f"{self._most} questions are waiting already; ask again later")
            heapq.heappush(self._waiting, (urgency, next(self._numbers), work, function))
            self._change.notify()
        return work

    def waiting(self) -> int:
        """Number of functions that are neither started nor cancelled."""
        with self._change:
            return sum(not entry[2].cancelled() for entry in self._waiting)

    def close(self) -> None:
        """Cancel what has not started, and wait for what has."""
        with self._change:
            self._closed = True
            for entry in self._waiting:
                entry[2].cancel()
            self._change.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._waiting and not self._closed:
                    self._change.wait()
                if not self._waiting:
                    return
                _, _, work, function = heapq.heappop(self._waiting)
            if not work.set_running_or_notify_cancel():
                continue
            try:
                with interruptible(partial(getattr, work, "unwanted")):
                    work.set_result(function())
            except Interrupted:
                work.set_exception(CancelledError())
            except BaseException as error:  # raised by `result()`
                work.set_exception(error)
