"""Workers that die, and what becomes of their tasks."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Any

import pytest

from graphsvx.utils.processes import WorkerDied, imap_unordered
from tests.utils.test_fork import in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def _send_half(self: Connection, content: Any) -> None:
    os.write(self.fileno(), bytes(content)[: len(content) // 2])
    os._exit(1)


def _work(task: int) -> bytes:
    """A worker that ends in the middle of sending the result of task 1."""
    if task == 1:
        Connection._send = _send_half  # type: ignore[attr-defined]  # of this process alone
    return bytes(1000)


def test_a_worker_that_dies_while_it_sends_its_result_is_noticed() -> None:
    def play(workers: int) -> dict[int, Any]:
        tasks = iter([1, 2])
        return dict(imap_unordered(_work, lambda: next(tasks, None), workers))

    for workers in (1, 2):
        results = in_child(lambda workers=workers: play(workers), seconds=60)
        assert results == {1: WorkerDied(), 2: bytes(1000)}
