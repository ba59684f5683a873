"""A small world for runs, and a method that can be made slow, fragile or deadly."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphsvx import Explanation, GraphSVX, runs
from graphsvx.core.query import Query
from graphsvx.errors import ModelError
from graphsvx.estimators import WLS
from graphsvx.runs import arrow_schema, store
from graphsvx.runs.backends import Answer, Chunk, Job
from tests.worlds import random_graph, random_model

NODES = 48
PART = 8
INNER = GraphSVX(samples=40, estimator=WLS())  # a third of the time of the default estimator


class ThisProcess:
    """A backend without workers, where what a worker process does is not what is tested."""

    def __init__(self, workers: int | None = 1) -> None:
        assert workers == 1

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer]:
        while (chunk := take()) is not None:
            yield job(chunk)


@dataclass(frozen=True)
class Mode:
    """How `Moody` behaves; not part of the method's settings, so a run may go on with another."""

    delay: float = 0.0
    wrong: tuple[int, ...] = ()
    deadly: tuple[int, ...] = ()
    deaths: Path | None = None
    """A folder that notes deaths: the worker dies at every third query, once each."""


MODE = Mode()


@dataclass(frozen=True)
class Moody:
    """GraphSVX that first does what `MODE` says."""

    inner: GraphSVX = INNER

    def __call__(self, query: Query, seed: int) -> Explanation:
        node = int(query.centres[0])
        time.sleep(MODE.delay)
        if node in MODE.wrong:
            raise ModelError(f"node {node} is not in the mood")
        if node in MODE.deadly or (node % 3 == 0 and self._may_die(node)):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(query, seed)

    def _may_die(self, node: int) -> bool:
        if MODE.deaths is None or (MODE.deaths / f"{node}").exists():
            return False
        (MODE.deaths / f"{node}").touch()
        return True


@contextmanager
def mode(**changes: Any) -> Iterator[None]:
    """Behave so in this process and in those that it forks."""
    global MODE  # noqa: PLW0603  (inherited by forked workers)
    before, MODE = MODE, Mode(**changes)
    try:
        yield
    finally:
        MODE = before


def world() -> tuple[Any, Any]:
    return random_model("gcn", 3), random_graph(5, nodes=NODES, chance=0.05)


def start(out: Path, workers: int = 2, backend: Any = None, **changes: Any) -> runs.Run:
    model, data = world()
    options: dict[str, Any] = {"method": Moody(), "part": PART, "seed": 3, **changes}
    return runs.start(model, data, out=out, backend=backend or runs.Local(workers), **options)


def names(out: Path) -> list[str]:
    """The finished files; their names hold the hashes of their content."""
    return sorted(path.name for path in (out / "parts").iterdir())


def same_rows(a: Any, b: Any) -> bool:
    """Bit by bit; tables with NaN in them are not equal to themselves."""
    return bool(
        store._parquet(a.cast(arrow_schema.SCHEMA)) == store._parquet(b.cast(arrow_schema.SCHEMA))
    )


def in_a_process(work: Callable[[], Any]) -> Any:
    """A forked process: it has imported everything already."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    explanations = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if int(parent) == pid and state != "Z":
            explanations.append(int(path.parent.name))
    return explanations


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
