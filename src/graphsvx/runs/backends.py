"""What an engine is, and the one for this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import pyarrow as pa

from graphsvx.api import Failure, explain
from graphsvx.core import graph as graphs
from graphsvx.errors import GraphSVXError, ModelError
from graphsvx.results.explanation import Explanation
from graphsvx.runs import arrow_schema
from graphsvx.utils import processes
from graphsvx.utils.constraints import Checked, Workers

Chunk = tuple[int, ...]
"""Queries that one worker answers in one go."""


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that a worker needs besides the queries."""

    model: Callable[..., Any]
    data: Any
    """One graph, or a list of graphs."""
    kind: Literal["node", "graph"]
    options: dict[str, Any]

    def explain(self, query: int) -> Explanation | Failure:
        """One query; whatever goes wrong in it is its own affair."""
        try:
            if self.kind == "node":
                return explain(self.model, self.data, node=query, **self.options)
            explanation = explain(self.model, self.data[query], graph=True, **self.options)
            return replace(explanation, graph_index=query)
        except GraphSVXError as error:
            return Failure(query, error)
        except Exception as error:  # a run of thousands must not stop for one
            return Failure(query, ModelError(f"{type(error).__name__}: {error}"))

    def __call__(self, chunk: Chunk) -> Answer:
        """All queries of a chunk, or the first ones if the worker is told to stop."""
        start, results = time.monotonic(), []
        for query in chunk:
            if processes.stop_requested():
                break
            results.append(self.explain(query))
        done = chunk[: len(results)]
        return Answer(done, arrow_schema.to_table(done, results), time.monotonic() - start)


@dataclass(frozen=True, eq=False)
class Answer:
    """The rows of a chunk."""

    queries: Chunk
    rows: pa.Table
    seconds: float
    """Time that a worker spent on it."""


@dataclass(frozen=True)
class LostChunk:
    """A chunk whose worker was lost."""

    queries: Chunk


class Backend(Protocol):
    """Workers somewhere. An engine holds no more chunks than its workers can start on."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """Give `take()`'s chunks to workers and yield what comes back, in any order.

        `take` gives None when there is nothing left, and may give more after a `Lost`.
        """
        ...


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@dataclass(frozen=True)
class Local(Checked):
    """Processes on this machine that share the graph's memory, with one torch thread each."""

    workers: Workers | None = None
    """How many; None: as many as there are cores."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """See `Engine`."""
        if processes.can_fork() and job.kind == "node":
            graphs.out_edges(graphs.check_graph(job.data))  # index once here, not in every worker
        for chunk, result in processes.imap_unordered(job, take, self.workers or cores()):
            yield LostChunk(chunk) if isinstance(result, processes.WorkerDied) else result
