"""Start or resume a run."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor

from graphsvx.core.arrays import Ids
from graphsvx.errors import DataError, InputError, ModelError, see
from graphsvx.many import Failure, check_call
from graphsvx.methods.baseline import Method, MethodSetting
from graphsvx.methods.graphsvx import GraphSVX
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.backends import Answer, Backend, Job, Local, LostChunk
from graphsvx.runs.queries import read_queries
from graphsvx.runs.run import Run, open_run
from graphsvx.runs.store import TRIES, RunFolder, RunProgress, Scheduler, read_progress
from graphsvx.utils.console import progress_bar
from graphsvx.utils.constraints import Count, Range, Seed, checked, shown
from graphsvx.utils.files import as_path
from graphsvx.utils.printable import one_line

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

    Returns:
        The finished run: its explanations by position, its table, its failures.

    Raises:
        InputError: arguments do not go together.
        DataError: the folder holds another run.

    """
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise InputError(f"start() does not take {unknown[0]!r}, only {sorted(_OPTIONS)}")
    kind, ids, members, node_type = read_queries(
        model, data, nodes=nodes, graphs=graphs, edges=edges, groups=groups
    )
    part = checked(part, Count, "part")
    retry_failed = checked(retry_failed, bool, "retry_failed")
    command = checked(command, str | None, "command")
    backend = Local() if backend is None else backend
    if not hasattr(type(backend), "answers"):
        raise InputError(f"backend must be one such as Local(workers=2), got {shown(backend)}")
    method = checked(GraphSVX() if method is None else method, MethodSetting, "method")
    sufficient = checked(sufficient, Annotated[float, Range(0, 1)] | None, "sufficient")
    flip = checked(flip, bool, "flip")
    settings = {"method": method, **options}
    options = {**settings, "seed": checked(seed, Seed, "seed")}
    job = Job(model, data, kind, options, members, node_type, sufficient, flip)
    settings |= {} if sufficient is None else {"sufficient": sufficient}
    settings |= {"flip": flip} if flip else {}
    check_call(model, map(job.question, ids.tolist()), job.options)
    run_identity = _identity(job, ids, settings, part)
    folder = RunFolder(as_path(out, "out"))
    folder.must_be_free()
    with folder.locked():
        if folder.exists():
            _check_same_run(folder, run_identity)
            folder.write_queries(ids)  # the file may be damaged
        else:
            folder.create({"identity": run_identity}, ids)
        run_progress = read_progress(folder, ids, part, retry_failed)
        with _display(run_progress, progress, command) as meter:
            _work(job, backend, run_progress, meter)
    return open_run(folder.path)


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
        "setting": identity.settings_as_text(settings),
        "seed": job.options["seed"],
        "queries": {
            "kind": job.kind,
            "count": len(queries),
            "sha256": identity.of_queries(queries),
            **({} if job.node_type is None else {"node type": job.node_type}),
            **({"members": identity.of_members(job.members)} if job.members else {}),
        },
        "part": part,
        "version": identity.package_versions(),
    }


def _check_same_run(folder: RunFolder, run_identity: dict[str, Any]) -> None:
    stored = folder.read_manifest().get("identity", {})
    differ = identity.differing(stored, run_identity)
    if differ:
        raise DataError(
            f"{folder.path} holds another run; what differs: {'; '.join(differ)}. "
            f"Choose another folder, or ask for what that run is" + see("another-run-in-the-folder")
        )


class _Meter:
    """Updates the progress bar, and the rate that other processes read from the folder."""

    def __init__(self, progress: RunProgress, bar: Any, command: str | None) -> None:
        self._folder, self._bar, self._command = progress.folder, bar, command
        self._start, self._answered = time.monotonic(), 0
        self._failed = int((progress.failed & progress.done).sum())
        self._task = bar.add_task(
            "explaining",
            total=len(progress.queries),
            completed=int(progress.done.sum()),
            rate="-",
            failed=self._failed,
        )
        for damaged in progress.damaged:
            text = f"{damaged}; its queries are answered anew"
            bar.console.print(text, style="yellow", markup=False, soft_wrap=True)
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

    def _write_note(self) -> None:
        self._last_note = time.monotonic()
        self._folder.note({"rate": self.rate, "command": self._command})


@contextmanager
def _display(
    run_progress: RunProgress, progress: bool | None, command: str | None
) -> Iterator[_Meter]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    shown = sys.stderr.isatty() if progress is None else progress
    with progress_bar(*columns, shown=shown) as bar:
        yield _Meter(run_progress, bar, command)


def _answers(
    job: Job, backend: Backend, scheduler: Scheduler
) -> Generator[Answer | LostChunk, None, None]:
    """The answers of a backend, whose iterator is closed with this one if it can be."""
    yield from backend.answers(job, scheduler.take)


def _work(job: Job, backend: Backend, progress: RunProgress, meter: _Meter) -> None:
    if progress.done.all():
        return
    scheduler = Scheduler(progress)
    try:
        with closing(_answers(job, backend, scheduler)) as answers:
            for result in answers:
                if isinstance(result, LostChunk):
                    answer = _failures(scheduler.put_back(result.queries), result.reason)
                else:
                    answer = result
                    scheduler.learn(answer)
                progress.add(answer)
                meter.count(answer)
    finally:
        # Also after Ctrl-C: finished answers are stored.
        progress.flush()


def _failures(queries: list[int], reason: str) -> Answer:
    error = ModelError(f"its worker was lost {TRIES} times: {reason}")
    rows = arrow_schema.to_table(queries, [Failure(query, error) for query in queries])
    return Answer(tuple(queries), rows, 0.0)
