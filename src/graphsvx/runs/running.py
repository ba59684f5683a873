"""Start or resume a run."""

from __future__ import annotations

import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor
from torch_geometric.data import Dataset

from graphsvx.api import Failure, check_call
from graphsvx.core import graph as graphs
from graphsvx.core.arrays import Ids, no_ids
from graphsvx.core.hetero_data import check_graph_of, is_typed
from graphsvx.core.names import find_names
from graphsvx.core.query import node_list, nodes_of_one_type
from graphsvx.core.types import node_number
from graphsvx.errors import DataError, InputError, ModelError, see
from graphsvx.methods.base import Method
from graphsvx.methods.graphsvx import GraphSVX, MethodSetting
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.backends import Answer, Backend, Chunk, Job, Local, LostChunk, QueryKind
from graphsvx.runs.run import Run, open_run
from graphsvx.runs.store import RunFolder, StoredFile, merge
from graphsvx.utils.constraints import Count, Range, Seed, checked, shown
from graphsvx.utils.files import as_path
from graphsvx.utils.printable import one_line
from graphsvx.utils.progress_bar import progress_bar

_OPTIONS = frozenset(
    {"target", "targets", "output", "scale", "class_names", "feature_names", "memory", "relation"}
)


def start(
    model: Callable[..., Any],
    data: Any,
    nodes: Sequence[Any] | Tensor | None = None,
    *,
    out: str | Path,
    graphs: Sequence[int] | Tensor | None = None,
    edges: Sequence[tuple[Any, Any]] | Tensor | None = None,
    groups: Sequence[Sequence[Any]] | None = None,
    method: Method | None = None,
    backend: Backend | None = None,
    seed: int = 0,
    retry_failed: bool = False,
    part: int = 256,
    progress: bool | None = None,
    command: str | None = None,
    sufficient: float | None = None,
    flip: bool = False,
    **options: Any,
) -> Run:
    """Explain many nodes, links or groups of a graph, or many graphs, and store the results.

    If the folder holds the same run already, it is resumed: the finished table is bit for bit that
    of an uninterrupted run, for every backend and number of workers. If it holds another run,
    a `DataError` lists the differences.

    Args:
        model: as for `explain`.
        data: one graph, or a list of graphs for graph queries.
        nodes: the nodes to explain; all by default.
        out: the folder.
        graphs: with a list of graphs, the positions of those to explain; all by default.
        edges: the links (u, v) to explain instead of nodes; `run[i]` is the i-th. Ends are given as
            for `explain`.
        groups: the groups of nodes to explain, each for its mean score; `run[i]` is the i-th.
        method: the explainer, `GraphSVX()` by default.
        backend: `Local(workers=2)` or `Ray(address=...)`; `Local()` by default.
        seed: seed of the explainer, the same for every query.
        retry_failed: repeat queries that failed before.
        part: queries per Parquet file.
        progress: show a bar on standard error; by default if that is a terminal.
        command: command line that resumes the run, stored for `status`.
        sufficient: also find the smallest set of players that alone keeps this share of the score,
            for each query; kept in `explanation.answers`.
        flip: also find the smallest set whose removal changes the class.
        options: further arguments of `explain` (target, targets, output, scale, class_names,
            feature_names, memory, relation).

    Raises:
        InputError: arguments do not go together.
        DataError: the folder holds another run.

    """
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise InputError(f"start() does not take {unknown[0]!r}, only {sorted(_OPTIONS)}")
    node_type: str | None = None
    members = _members(model, data, nodes=nodes, graphs=graphs, edges=edges, groups=groups)
    if members:
        kind: QueryKind = "edge" if edges is not None else "nodes"
        queries = np.arange(len(members), dtype=np.int64)
    else:
        count = None
        if is_typed(model, data):
            node_type, nodes, count = nodes_of_one_type(data, nodes)
        kind, queries = _queries(data, nodes, graphs, count)
    part = checked(part, Count, "part")
    retry_failed = checked(retry_failed, bool, "retry_failed")
    command = checked(command, str | None, "command")
    if backend is not None and (
        isinstance(backend, type) or not callable(getattr(backend, "answers", None))
    ):
        raise InputError(f"backend must be one such as Local(workers=2), got {shown(backend)}")
    method = checked(GraphSVX() if method is None else method, MethodSetting, "method")
    sufficient = checked(sufficient, Annotated[float, Range(0, 1)] | None, "sufficient")
    flip = checked(flip, bool, "flip")
    settings = {"method": method, **options}
    job = Job(model, data, kind, {**settings, "seed": checked(seed, Seed, "seed")}, members,
              node_type, sufficient, flip)  # fmt: skip
    settings |= {} if sufficient is None else {"sufficient": sufficient}
    settings |= {"flip": flip} if flip else {}
    check_call(model, map(job.question, queries.tolist()), job.options)
    run_identity = _identity(job, queries, settings, part)
    folder = RunFolder(as_path(out, "out"))
    folder.must_be_free()
    with folder.locked():
        if folder.exists():
            _check_same_run(folder, run_identity)
            folder.write_queries(queries)  # the file may be damaged
        else:
            folder.create({"identity": run_identity}, queries)
        run_progress = read_progress(folder, queries, part, retry_failed)
        with _display(run_progress, progress, command) as meter:
            _work(job, backend or Local(), run_progress, meter)
    return open_run(folder.path)


def _members(model: Callable[..., Any], data: Any, **selectors: Any) -> tuple[tuple[int, ...], ...]:
    """Nodes of each link or group; empty if nodes or whole graphs are asked for."""
    named = [name for name, value in selectors.items() if value is not None]
    if len(named) > 1:
        raise InputError(f"a run explains one kind of query, got {' and '.join(named)}")
    if not named or named[0] not in ("edges", "groups"):
        return ()
    argument = named[0]
    if isinstance(data, (list, tuple, Dataset)):
        raise InputError(f"a list of graphs is explained as whole graphs; leave out {argument}=")
    graph = check_graph_of(model, data)
    count = graph.num_nodes
    listed = selectors[argument]
    if isinstance(listed, (Tensor, np.ndarray)):
        listed = listed.tolist()
    if not isinstance(listed, (list, tuple)) or not listed:
        raise InputError(f"{argument} must be a list of lists of nodes, got {shown(listed)}")
    if not graph.types.flat:
        listed = [[node_number(graph.types, node, f"each of {argument}") for node in nodes]
                  for nodes in listed]  # fmt: skip
    elif graph.has_types:
        names = find_names(data)
        listed = [names.node_group(nodes) for nodes in listed]
    members = tuple(tuple(node_list(nodes, count, f"each of {argument}")) for nodes in listed)
    for nodes in members:
        if not nodes or not 0 <= min(nodes) <= max(nodes) < count:
            raise InputError(
                f"{argument} must name nodes from 0 to {count - 1}, got {shown(nodes)}"
            )
        if len(set(nodes)) < len(nodes) or (argument == "edges" and len(nodes) != 2):
            expected = "pairs of two different nodes" if argument == "edges" else "each node once"
            raise InputError(f"{argument} must name {expected}, got {shown(nodes)}")
    return members


def _queries(
    data: Any, nodes: Any, positions: Any, count: int | None = None
) -> tuple[QueryKind, Ids]:
    """The kind of the queries, and their node ids or graph positions, ascending."""
    is_list = isinstance(data, (list, tuple, Dataset))
    if is_list and nodes is not None:
        raise InputError("a list of graphs is explained as whole graphs; use graphs=, not nodes=")
    if not is_list and positions is not None:
        raise InputError("graphs= chooses from a list of graphs, but data is one graph")
    if count is None:
        count = len(data) if is_list else graphs.check_graph(data).num_nodes
    argument = "graphs" if is_list else "nodes"
    ids = positions if is_list else nodes
    numbers = range(count) if ids is None else node_list(ids, count, argument)
    if not len(numbers):
        raise InputError(f"{argument} must name at least one, got none")
    wrong = next((item for item in (min(numbers), max(numbers)) if not 0 <= item < count), None)
    if wrong is not None:
        raise InputError(f"{argument} must be from 0 to {count - 1}, got {wrong}")
    queries = np.sort(np.asarray(numbers, dtype=np.int64))
    if (queries[1:] == queries[:-1]).any():
        twice = int(queries[1:][queries[1:] == queries[:-1]][0])
        raise InputError(f"{argument} must name each one once, got {twice} twice")
    return ("graph" if is_list else "node"), queries


def _identity(job: Job, queries: Ids, settings: dict[str, Any], part: int) -> dict[str, Any]:
    """Hashes and settings that must agree to resume a run."""
    inputs = job.inputs()
    unseen = [name for part in inputs.values() for name in part.get("unseen", [])]
    if unseen:
        warnings.warn(
            f"whether these stay the same cannot be seen: {', '.join(map(one_line, unseen[:5]))}; "
            f"if they change, resume into another folder",
            stacklevel=3,
        )
    return {
        **inputs,
        "setting": identity.settings(settings),
        "seed": job.options["seed"],
        "queries": {
            "kind": job.kind,
            "count": len(queries),
            "sha256": identity.of_queries(queries),
            **({} if job.node_type is None else {"node type": job.node_type}),
            **({"members": identity.of_members(job.members)} if job.members else {}),
        },
        "part": part,
        "version": identity.versions(),
    }


def _check_same_run(folder: RunFolder, run_identity: dict[str, Any]) -> None:
    stored = folder.read_manifest().get("identity", {})
    differ = identity.differences(stored, run_identity)
    if "method.regression" in stored.get("setting", {}):
        raise DataError(
            f"{folder.path} holds a run of an earlier version of graphsvx, with other names of "
            f"settings. It can be read; to add to it, use that version, or choose another folder"
        )
    if differ:
        raise DataError(
            f"{folder.path} holds another run; what differs: {'; '.join(differ)}. "
            f"Choose another folder, or ask for what that run is" + see("another-run-in-the-folder")
        )


class _Meter:
    """Updates the progress bar, and the rate that other processes read from the folder."""

    def __init__(self, progress: RunProgress, bar: Any, task: TaskID, command: str | None) -> None:
        self._folder, self._bar, self._task, self._command = progress.folder, bar, task, command
        self._start, self._last_note, self._answered = time.monotonic(), 0.0, 0
        self._failed = int((progress.failed & progress.done).sum())
        self._write_note()

    def count(self, answer: Answer) -> None:
        self._answered += len(answer.queries)
        self._failed += int(arrow_schema.failed(answer.rows).sum())
        self._bar.update(
            self._task, advance=len(answer.queries), failed=self._failed, rate=f"{self.rate:.1f}"
        )
        if time.monotonic() - self._last_note > 1:
            self._write_note()

    @property
    def rate(self) -> float:
        """Queries per second since the start of this process."""
        return self._answered / max(time.monotonic() - self._start, 1e-9)

    def say(self, text: str) -> None:
        self._bar.console.print(text, style="yellow", markup=False, soft_wrap=True)

    def _write_note(self) -> None:
        self._last_note = time.monotonic()
        self._folder.note({"rate": self.rate, "command": self._command})


@contextmanager
def _display(
    run_progress: RunProgress, progress: bool | None, command: str | None
) -> Iterator[_Meter]:
    shown = sys.stderr.isatty() if progress is None else progress
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s"), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )  # fmt: skip
    with progress_bar(*columns, shown=shown) as bar:
        done = int(run_progress.done.sum())
        task = bar.add_task(
            "explaining", total=len(run_progress.queries), completed=done, rate="-",
            failed=int((run_progress.failed & run_progress.done).sum()),
        )  # fmt: skip
        meter = _Meter(run_progress, bar, task, command)
        for damaged in run_progress.damaged:
            meter.say(f"{damaged}; its queries are answered anew")
        yield meter


def _answers(
    job: Job, backend: Backend, scheduler: Scheduler
) -> Generator[Answer | LostChunk, None, None]:
    """The answers of a backend, whose iterator is closed with this one if it can be."""
    yield from backend.answers(job, scheduler.take)


def _work(job: Job, backend: Backend, progress: RunProgress, meter: _Meter) -> None:
    if progress.done.all():
        return
    scheduler, buffer = Scheduler(progress), WriteBuffer(progress)
    try:
        with closing(_answers(job, backend, scheduler)) as answers:
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
        # Also after Ctrl-C: finished answers are stored.
        buffer.flush()


# Progress of a run: open queries, their scheduling in chunks, and buffered writing of answers.


# Target duration of a chunk: long compared with the cost of scheduling, short compared with a run.
CHUNK_SECONDS = 1.0
# Attempts at a query whose worker died.
TRIES = 3
# The write buffer is flushed after this many seconds,
_FLUSH_SECONDS = 2.0
# or after a chunk that took this many seconds, or when it has this many bytes.
_COSTLY_SECONDS, _FLUSH_BYTES = 5.0, 64 * 2**20


@dataclass(eq=False)
class RunProgress:
    """Which queries of a run are done, and the files that store them."""

    folder: RunFolder
    queries: Ids
    """All queries, ascending."""
    part: int
    """Queries per block."""
    done: np.ndarray
    """Boolean [queries]: explained or failed."""
    failed: np.ndarray
    """Boolean [queries]."""
    stored: dict[int, list[StoredFile]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    """Error messages of damaged files, which were removed."""

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-len(self.queries) // self.part)

    def span(self, block: int) -> slice:
        """Positions of a block's queries in `queries`."""
        return slice(block * self.part, (block + 1) * self.part)

    def mark(self, rows: pa.Table) -> Ids:
        """Mark the queries of these rows as done; returns their positions in `queries`."""
        positions = np.searchsorted(self.queries, arrow_schema.queries(rows))
        failed = arrow_schema.failed(rows)
        self.failed[positions] = np.where(
            self.done[positions], self.failed[positions] & failed, failed
        )
        self.done[positions] = True
        return positions

    def keep(self, block: int, rows: pa.Table) -> None:
        """Write rows of a block; the files of a finished block are merged, ordered by query."""
        old = self.stored.get(block, [])
        if not self.done[self.span(block)].all():
            self.stored[block] = [*old, self.folder.keep(block, rows, finished=False)]
            return
        new = self.folder.keep(block, merge(old, rows), finished=True)
        self.stored[block] = [new]
        for stored in old:
            if stored.path != new.path:
                stored.path.unlink(missing_ok=True)


def read_progress(folder: RunFolder, queries: Ids, part: int, retry_failed: bool) -> RunProgress:
    """Read the progress of a folder; removes damaged files and merges the files of done blocks."""
    folder.sweep()
    none_done = np.zeros(len(queries), dtype=bool)
    progress = RunProgress(folder, queries, part, none_done, none_done.copy())
    for stored in folder.files():
        try:
            rows = stored.read()
            stored_queries = arrow_schema.queries(rows)
            span = queries[progress.span(stored.block)]
            if not np.isin(stored_queries, span).all() or rows.schema != arrow_schema.SCHEMA:
                raise DataError(f"{stored.path} holds other rows than its name says")
        except DataError as error:
            progress.damaged.append(str(error))
            stored.path.unlink(missing_ok=True)
            continue
        progress.mark(rows)
        progress.stored.setdefault(stored.block, []).append(stored)
    for block, files in progress.stored.items():
        complete = bool(progress.done[progress.span(block)].all())
        if complete and (len(files) > 1 or files[0].path.parent.name == "pieces"):
            progress.keep(block, arrow_schema.SCHEMA.empty_table())
    if retry_failed:
        progress.done &= ~progress.failed
        progress.failed[:] = False
    return progress


class Scheduler:
    """Yields open queries in chunks of about `CHUNK_SECONDS`, estimated from earlier chunks."""

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self._block = 0
        self._open: Ids = no_ids()
        self._retries: deque[int] = deque()
        self._tries: dict[int, int] = {}
        self._queries, self._seconds = 0.0, 0.0

    def take(self) -> Chunk | None:
        """The next chunk, within one block; None if no query is open."""
        if self._retries:
            # One by one, so that a query that kills its worker affects no other query.
            return (self._retries.popleft(),)
        while not len(self._open):
            if self._block >= self._progress.blocks:
                return None
            span = self._progress.span(self._block)
            self._open = self._progress.queries[span][~self._progress.done[span]]
            self._block += 1
        size = self._size()
        chunk, self._open = tuple(self._open[:size].tolist()), self._open[size:]
        return chunk

    def _size(self) -> int:
        if not self._queries:
            return 1
        seconds_per_query = self._seconds / self._queries
        return int(min(max(CHUNK_SECONDS / max(seconds_per_query, 1e-6), 1), 4 * self._queries + 1))

    def learn(self, answer: Answer) -> None:
        """Update the estimated time per query, with exponentially decaying weights."""
        self._queries = 0.8 * self._queries + len(answer.queries)
        self._seconds = 0.8 * self._seconds + answer.seconds

    def put_back(self, chunk: Chunk) -> list[int]:
        """Schedule the queries of a lost chunk again; returns those that reached `TRIES`."""
        given_up = []
        for query in chunk:
            self._tries[query] = self._tries.get(query, 0) + 1
            if self._tries[query] < TRIES:
                self._retries.append(query)
            else:
                given_up.append(query)
        return given_up


class WriteBuffer:
    """Write buffer, flushed every 2 s, at 64 MiB, or after a costly answer."""

    def __init__(self, progress: RunProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._clock = clock
        self._rows: list[pa.Table] = []
        self._bytes = 0
        self._last = clock()

    def add(self, answer: Answer) -> None:
        """Add an answer to the buffer, and flush it if due."""
        if not answer.queries:
            return
        self._rows.append(answer.rows)
        self._bytes += answer.rows.nbytes
        if (
            self._clock() - self._last >= _FLUSH_SECONDS
            or answer.seconds >= _COSTLY_SECONDS
            or self._bytes >= _FLUSH_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        """Write all buffered rows to the folder."""
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        self._rows, self._bytes = [], 0
        blocks = self._progress.mark(rows) // self._progress.part
        for block in np.unique(blocks).tolist():
            block_rows = rows.take(pa.array(np.flatnonzero(blocks == block)))
            self._progress.keep(block, arrow_schema.merged([block_rows]))
        self._last = self._clock()
