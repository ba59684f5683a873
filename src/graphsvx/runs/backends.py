"""The `Backend` protocol, and the backend for processes on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import pyarrow as pa
from torch_geometric.data import HeteroData

from graphsvx.api import Failure, explain, failure_of
from graphsvx.core import graph as graphs
from graphsvx.core.hetero_data import check_graph_of
from graphsvx.core.types import nodes_by_type
from graphsvx.errors import DataError
from graphsvx.results.explanation import Explanation
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.torch_state import TorchState
from graphsvx.utils import processes
from graphsvx.utils.constraints import Checked, Workers

Chunk = tuple[int, ...]
"""Queries of one task of a worker."""
QueryKind = Literal["node", "nodes", "edge", "graph"]
"""What the queries of a run are: nodes, groups of nodes, links or whole graphs."""


@dataclass(frozen=True, eq=False)
class Job:
    """Model, data and options of a run: everything that a worker needs besides the queries."""

    model: Callable[..., Any]
    data: Any
    """One graph, or a list of graphs."""
    kind: QueryKind
    options: dict[str, Any]
    members: tuple[tuple[int, ...], ...] = ()
    """Links and groups: the nodes of each query, by its position; of HeteroData they are numbered
    one type after the other."""
    node_type: str | None = None
    """HeteroData: the type of the nodes."""
    sufficient: float | None = None
    """Share of the score that the smallest set of players is looked for with; None: it is not."""
    flip: bool = False
    """Whether the smallest set is looked for whose removal changes the class."""
    torch_state: TorchState = field(default_factory=TorchState.current)
    given_up: tuple[str, ...] = ()
    """What the worker could not do, for all certificates."""

    def inputs(self) -> dict[str, Any]:
        """Identity of everything that outputs depend on, the same in every process."""
        with self.torch_state.in_force():
            graphs = list(self.data) if self.kind == "graph" else [self.data]
            return identity.of_inputs(self.model, graphs)

    def check_inputs(self, inputs: dict[str, Any]) -> None:
        """Raise a DataError unless this process has the model and graph of the one that sent it."""
        differ = identity.differences(inputs, self.inputs())
        if differ:
            raise DataError(
                f"the workers have another model or graph: {'; '.join(differ[:5])} (there: where "
                f"the run was started); make it part of the model, such as an attribute"
            )

    def explain(self, query: int) -> Explanation | Failure:
        """Explain one query; whatever it raises but Ctrl-C becomes a `Failure`."""
        try:
            data, question = self.question(query)
            with self.torch_state.in_force():
                explanation = explain(self.model, data, **question, **self.options)
            if self.sufficient is not None or self.flip:
                share = self.sufficient
                sets = [] if share is None else [explanation.sufficient(share)]
                sets += [explanation.flip()] if self.flip else []
                explanation = replace(explanation, answers=tuple(sets))
            if self.given_up:
                given_up = (*explanation.certificate.given_up, *self.given_up)
                certificate = replace(explanation.certificate, given_up=given_up)
                explanation = replace(explanation, certificate=certificate)
            if self.kind == "graph":
                return replace(explanation, graph_index=query)
            return explanation
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a single failure must not stop the run
            return failure_of(query, error)

    def question(self, query: int) -> tuple[Any, dict[str, Any]]:
        """The graph that a query is about, and the argument of `graphsvx.explain` that asks it."""
        match self.kind:
            case "node":
                node = query if self.node_type is None else (self.node_type, query)
                return self.data, {"node": node}
            case "graph":
                return self.data[query], {"graph": True}
            case "edge":
                return self.data, {"edge": tuple(self._nodes(query))}
            case "nodes":
                return self.data, {"nodes": self._nodes(query)}

    def _nodes(self, query: int) -> list[Any]:
        """The nodes of a link or group; of HeteroData as pairs of a type and an id."""
        numbers = list(self.members[query])
        return nodes_by_type(self.data, numbers) if isinstance(self.data, HeteroData) else numbers

    def __call__(self, chunk: Chunk) -> Answer:
        """Explain the queries of a chunk; fewer of them if the worker was asked to stop."""
        start, results = time.monotonic(), []
        for query in chunk:
            if processes.stop_requested():
                break
            results.append(self.explain(query))
        done = chunk[: len(results)]
        return Answer(done, _rows(done, results), time.monotonic() - start)


def _rows(queries: Chunk, results: list[Explanation | Failure]) -> pa.Table:
    """A row for each query; one that cannot be stored is a failure of that query."""
    try:
        return arrow_schema.to_table(queries, results)
    except Exception as error:  # of an explainer of the user's, such as text that is no text
        if len(queries) == 1:
            return arrow_schema.to_table(queries, [failure_of(queries[0], error)])
        return pa.concat_tables(map(_rows, zip(queries), ([result] for result in results)))


@dataclass(frozen=True, eq=False)
class Answer:
    """Results of a chunk: one row per query."""

    queries: Chunk
    rows: pa.Table
    seconds: float
    """Computation time of the worker."""


@dataclass(frozen=True)
class LostChunk:
    """A chunk whose worker died."""

    queries: Chunk


class Backend(Protocol):
    """Executes chunks in workers, and takes no more of them than its workers can start."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """Run the chunks of `take()` in workers and yield their results in any order.

        `take` returns None if no query is open; it may return more after a `LostChunk`.
        """
        ...


def cores() -> int:
    """Number of CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class _SentJob:
    """A job that is pickled for a worker, which checks at first that it is the same there."""

    job: Job
    inputs: dict[str, Any]

    @cached_property
    def received(self) -> Job:
        self.job.check_inputs(self.inputs)
        return self.job

    def __call__(self, chunk: Chunk) -> Answer:
        return self.received(chunk)


@dataclass(frozen=True)
class Local(Checked):
    """Processes on this machine that share the graph's memory, with one torch thread each."""

    workers: Workers | None = None
    """Number of processes; None: the number of cores."""

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[Answer | LostChunk]:
        """See `Backend`."""
        if processes.can_fork() and job.kind != "graph":
            # Index once here, not in every worker.
            graphs.out_edges(check_graph_of(job.model, job.data))
        work = job if processes.can_fork() else _SentJob(job, job.inputs())
        for chunk, result in processes.imap_unordered(work, take, self.workers or cores()):
            yield LostChunk(chunk) if isinstance(result, processes.WorkerDied) else result
