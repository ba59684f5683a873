"""Workers that are forked and workers that start afresh: the same results, whatever happens."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from graphsvx import GraphSVX, explain_many
from graphsvx.errors import InputError
from graphsvx.utils import processes
from graphsvx.utils.processes import WorkerDied, can_fork, imap_unordered
from tests.utils.test_fork import in_child
from tests.worlds import random_graph, random_model

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(params=[pytest.param("fork", marks=needs_fork), "spawn"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(processes, "can_fork", lambda: request.param == "fork")
    return str(request.param)


def _results(work: Any, tasks: list[Any], workers: int = 2) -> dict[Any, Any]:
    waiting = iter(tasks)
    return dict(imap_unordered(work, lambda: next(waiting, None), workers))


def _dying() -> Any:
    """Task 1 ends in the middle of sending its result, task 2 before it has one."""

    def send_half(self: Connection, content: Any) -> None:
        os.write(self.fileno(), bytes(content)[: len(content) // 2])
        os._exit(1)

    def work(task: int) -> bytes:
        if task == 1:
            Connection._send = send_half  # type: ignore[attr-defined]  # of this process alone
        if task == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(1000)

    return work


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EMFILE])
def test_fewer_workers_than_asked_for_do_all_of_the_work(number, monkeypatch) -> None:
    no_interrupt, begun = processes._no_interrupt, []

    def limited(method: str) -> Any:
        begun.append(method)
        if len(begun) != 2:
            raise OSError(number, os.strerror(number))
        return no_interrupt(method)

    monkeypatch.setattr(processes, "_no_interrupt", limited)
    with pytest.raises(InputError, match=r"lets no worker process start: .*use one worker"):
        _results(abs, [-1, -2, -3], 3)
    assert _results(abs, [-1, -2, -3], 3) == {-1: 1, -2: 2, -3: 3}
    assert len(begun) == 4
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_replaced_and_its_task_says_so(method: str) -> None:
    results = _results(_dying(), [1, 2, 3], 1)
    assert results == {1: WorkerDied(), 2: WorkerDied(), 3: bytes(1000)}
    assert multiprocessing.active_children() == []


@needs_fork
def test_a_worker_that_dies_is_noticed_by_a_process_that_was_forked_itself() -> None:
    for workers in (1, 2):
        results = in_child(lambda workers=workers: _results(_dying(), [1, 3], workers), seconds=60)
        assert results == {1: WorkerDied(), 3: bytes(1000)}


def test_explanations_are_the_same_bits_and_a_model_of_no_module_can_be_sent(method: str) -> None:
    inner, data = random_model("gcn", 1), random_graph(2)

    def model(x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return inner(x, edge_index)

    options: dict[str, Any] = {"method": GraphSVX(samples=60), "seed": 3}
    sequential = list(explain_many(model, data, [1, 3], **options))
    parallel = list(explain_many(model, data, [1, 3], workers=2, **options))
    records = {e.centres: e.to_dict() for e in parallel}
    assert records == {e.centres: e.to_dict() for e in sequential}


def test_an_error_of_a_task_is_raised_with_its_traceback_and_nothing_is_left(method: str) -> None:
    def work(task: int) -> int:
        return 1 // task

    with pytest.raises(ZeroDivisionError) as caught:
        _results(work, [1, 0], 1)
    assert "in work" in caught.value.__notes__[0]
    assert multiprocessing.active_children() == []


def test_workers_stop_when_no_more_results_are_wanted(method: str) -> None:
    def work(task: int) -> int:
        while task and not processes.stop_requested():
            time.sleep(0.01)
        return task

    tasks = iter([0, 1])
    results = imap_unordered(work, lambda: next(tasks, None), 1)
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]  # a generator
    assert multiprocessing.active_children() == []


def test_what_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: False)
    lock = threading.Lock()
    with pytest.raises(InputError, match=r"cannot be pickled: .*lock"):
        _results(lambda _: lock.locked(), [1])


@pytest.mark.skipif(sys.platform == "darwin", reason="never forks")
@needs_fork
def test_no_fork_beside_ray_or_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    assert can_fork()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", object())
        assert not can_fork()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert not can_fork()


SCRIPT = """
import signal, time
from graphsvx.utils import processes

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests ignore it

def work(task):
    time.sleep(task)
    return task

def play(method, tasks):
    processes.can_fork = lambda: method == "fork"
    waiting = iter(tasks)
    return processes.imap_unordered(work, lambda: next(waiting, None), 2)
"""


def _script(tmp_path: Path, lines: str) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + lines, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(path)], start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


GUARDED = """
if __name__ == "__main__":
    results = play({method!r}, {tasks})
    {then}
"""


@needs_fork
@pytest.mark.parametrize(("method", "tasks"), [("fork", [0, 0, 100, 100]), ("spawn", [100, 100])])
def test_ctrl_c_ends_the_caller_and_its_workers_at_work_or_starting(
    method: str, tasks: list[int], tmp_path: Path
) -> None:
    then = "print('begun', flush=True)\n    for task, _ in results: print(task, flush=True)"
    script = _script(tmp_path, GUARDED.format(method=method, tasks=tasks, then=then))
    assert script.stdout is not None
    for expected in ["begun", *(str(task) for task in tasks if task == 0)]:
        assert script.stdout.readline().strip() == expected
    time.sleep(0.5)
    os.killpg(script.pid, signal.SIGINT)
    _, errors = script.communicate(timeout=200)  # the workers hold its pipes too
    assert script.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1


@needs_fork
def test_a_caller_that_ends_in_the_middle_does_not_wait_for_its_workers(tmp_path: Path) -> None:
    then = "print(next(results))"
    script = _script(tmp_path, GUARDED.format(method="fork", tasks=[0, 0, 100, 100], then=then))
    output, errors = script.communicate(timeout=200)
    assert output == "(0, 0)\n"
    assert errors == ""


def test_a_script_that_starts_itself_again_is_told_what_to_do(tmp_path: Path) -> None:
    script = _script(tmp_path, "print(list(play('spawn', [0, 0, 0])))")
    _, errors = script.communicate(timeout=200)
    assert "InputError: worker processes could not start" in errors.splitlines()[-1]
    assert "__main__" in errors.splitlines()[-1]
