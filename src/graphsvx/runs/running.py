"""Start a run, or go on with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor
from torch_geometric.data import Dataset

from graphsvx.api import Failure
from graphsvx.core import graph as graphs
from graphsvx.core.arrays import Ids
from graphsvx.core.query import build_query, node_list
from graphsvx.errors import DataError, InputError, ModelError
from graphsvx.methods.base import Method
from graphsvx.methods.graphsvx import GraphSVX, MethodSetting
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.backends import Answer, Backend, Job, Local, LostChunk
from graphsvx.runs.progress import TRIES, RunProgress, Scheduler, WriteBuffer, read_progress
from graphsvx.runs.run import Run, open_run
from graphsvx.runs.store import RunFolder
from graphsvx.utils.constraints import Count, Seed, checked, shown
from graphsvx.utils.files import as_path

_OPTIONS = frozenset({"target", "targets", "output", "scale", "class_names", "memory"})


def start(
    model: Callable[..., Any],
    data: Any,
    nodes: Sequence[int] | Tensor | None = None,
    *,
    out: str | Path,
    graphs: Sequence[int] | Tensor | None = None,
    method: Method | None = None,
    backend: Backend | None = None,
    seed: int = 0,
    retry_failed: bool = False,
    part: int = 256,
    progress: bool | None = None,
    command: str | None = None,
    **options: Any,
) -> Run:
    """Explain many nodes of a graph, or many graphs, and keep the results in a folder.

    Where the folder holds the same run already, it goes on from what is there: the finished
    table has the same bits as that of a run that was never interrupted, whatever the engine or
    the number of workers. Any other run in the folder is refused, with what differs.

    Args:
        model: as for `explain`.
        data: one graph, or a list of graphs, each of which is explained as a whole.
        nodes: the nodes to explain; all of them if left out.
        out: the folder.
        graphs: with a list of graphs, the positions of those to explain; all if left out.
        method: the explainer, `GraphSVX()` by default.
        engine: `Local(workers=2)` or `Ray(address=...)`; `Local()` by default.
        seed: of the explainer, the same for every query.
        retry_failed: try queries again that failed before.
        part: queries in one Parquet file; fewer where fields are huge.
        progress: show a bar on standard error; by default if that is a terminal.
        command: what the user would type to go on, shown by others who look at the folder.
        options: everything else that `explain` takes (target, targets, output, scale,
            class_names, memory).

    """
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise InputError(f"start() does not take {unknown[0]!r}, only {sorted(_OPTIONS)}")
    kind, queries = _questions(data, nodes, graphs)
    part = checked(part, Count, "part")
    retry_failed = checked(retry_failed, bool, "retry_failed")
    command = checked(command, str | None, "command")
    if backend is not None and not callable(getattr(backend, "answers", None)):
        raise InputError(f"engine must be one such as Local(workers=2), got {shown(backend)}")
    method = checked(GraphSVX() if method is None else method, MethodSetting, "method")
    chosen = {"method": method, **options}
    job = Job(model, data, kind, {**chosen, "seed": checked(seed, Seed, "seed")})
    # Wrong options would fail for each query; say so once instead.
    first = {"node": int(queries[0])} if kind == "node" else {"graph": True}
    build_query(model, data if kind == "node" else data[int(queries[0])], **first, **options)
    who = _identity(job, queries, chosen, part)
    folder = RunFolder(as_path(out, "out"))
    folder.must_be_free()
    with folder.locked():
        if folder.exists():
            _same_run(folder, who)
            folder.write_queries(queries)  # in case they were damaged
        else:
            folder.create({"identity": who}, queries)
        run_progress = read_progress(folder, queries, part, retry_failed)
        with _display(run_progress, progress, command) as meter:
            _work(job, backend or Local(), run_progress, meter)
    return open_run(folder.path)


def _questions(data: Any, nodes: Any, chosen: Any) -> tuple[Any, Ids]:
    several = isinstance(data, (list, tuple, Dataset))
    if several and nodes is not None:
        raise InputError("a list of graphs is explained as whole graphs; use graphs=, not nodes=")
    if not several and chosen is not None:
        raise InputError("graphs= chooses from a list of graphs, but data is one graph")
    count = len(data) if several else graphs.check_graph(data).num_nodes
    what = "graphs" if several else "nodes"
    given = chosen if several else nodes
    numbers = range(count) if given is None else node_list(given, count, what)
    if not len(numbers):
        raise InputError(f"{what} must name at least one, got none")
    wrong = next((item for item in (min(numbers), max(numbers)) if not 0 <= item < count), None)
    if wrong is not None:
        raise InputError(f"{what} must be from 0 to {count - 1}, got {wrong}")
    queries = np.sort(np.asarray(numbers, dtype=np.int64))
    if (queries[1:] == queries[:-1]).any():
        twice = int(queries[1:][queries[1:] == queries[:-1]][0])
        raise InputError(f"{what} must name each one once, got {twice} twice")
    return ("graph" if several else "node"), queries


def _identity(job: Job, queries: Ids, chosen: dict[str, Any], part: int) -> dict[str, Any]:
    several = list(job.data) if job.kind == "graph" else [job.data]
    return {
        "model": identity.of_model(job.model),
        "graph": {
            "sha256": identity.of_graphs(several),
            "graphs": len(several),
            "nodes": sum(graph.x.shape[0] for graph in several),
            "edges": sum(graph.edge_index.shape[1] for graph in several),
        },
        "setting": identity.settings(chosen),
        "seed": job.options["seed"],
        "queries": {
            "kind": job.kind,
            "count": len(queries),
            "sha256": identity.of_queries(queries),
        },
        "part": part,
        "version": identity.versions(),
    }


def _same_run(folder: RunFolder, who: dict[str, Any]) -> None:
    there = folder.read_manifest().get("identity", {})
    differ = identity.differences(there, who)
    if differ:
        raise DataError(
            f"{folder.path} holds another run; what differs: {'; '.join(differ)}. "
            f"Choose another folder, or ask for what that run is"
        )


class _Meter:
    """Counts for the bar and for other terminals."""

    def __init__(
        self, progress: RunProgress, bar: Progress, task: TaskID, command: str | None
    ) -> None:
        self._ledger, self._bar, self._task, self._command = progress, bar, task, command
        self._begun, self._told, self._answered = time.monotonic(), 0.0, 0
        self._failed = int((progress.failed & progress.done).sum())
        self._tell()

    def count(self, answer: Answer) -> None:
        self._answered += len(answer.queries)
        self._failed += int(arrow_schema.failed(answer.rows).sum())
        self._bar.update(
            self._task, advance=len(answer.queries), failed=self._failed, rate=f"{self.rate:.1f}"
        )
        if time.monotonic() - self._told > 1:
            self._tell()

    @property
    def rate(self) -> float:
        """Queries a second since this process began."""
        return self._answered / max(time.monotonic() - self._begun, 1e-9)

    def say(self, text: str) -> None:
        self._bar.console.print(text, style="yellow", markup=False, soft_wrap=True)

    def _tell(self) -> None:
        self._told = time.monotonic()
        self._ledger.folder.note({"rate": self.rate, "command": self._command})


@contextmanager
def _display(
    run_progress: RunProgress, progress: bool | None, command: str | None
) -> Iterator[_Meter]:
    shown = sys.stderr.isatty() if progress is None else progress
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s"), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
        console=Console(stderr=True, highlight=False), transient=True, disable=not shown,
    )  # fmt: skip
    with bar:
        done = int(run_progress.done.sum())
        task = bar.add_task(
            "explaining", total=len(run_progress.queries), completed=done, rate="-",
            failed=int((run_progress.failed & run_progress.done).sum()),
        )  # fmt: skip
        meter = _Meter(run_progress, bar, task, command)
        for damaged in run_progress.damaged:
            meter.say(f"{damaged}; its queries are answered anew")
        yield meter


def _work(job: Job, backend: Backend, progress: RunProgress, meter: _Meter) -> None:
    if progress.done.all():
        return
    scheduler, buffer = Scheduler(progress), WriteBuffer(progress)
    try:
        with closing(backend.answers(job, scheduler.take)) as answers:  # type: ignore[type-var]  # generators
            for result in answers:
                if isinstance(result, LostChunk):
                    given_up = scheduler.put_back(result.queries)
                    if not given_up:
                        continue
                    reason = ModelError(f"its worker was lost {TRIES} times; too little memory?")
                    rows = arrow_schema.to_table(given_up, [Failure(q, reason) for q in given_up])
                    answer = Answer(tuple(given_up), rows, 0.0)
                else:
                    answer = result
                    scheduler.learn(answer)
                buffer.add(answer)
                meter.count(answer)
    finally:
        # Also after Ctrl-C: what was answered is kept.
        buffer.flush()
