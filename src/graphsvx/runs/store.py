"""The folder of a run: a manifest, and Parquet files that are written whole or not at all.

    run.json            what the run is: hashes, settings, seed, versions
    queries.parquet     what is asked, in order
    parts/00012-<sha256>.parquet    finished blocks of queries
    pieces/00012-<sha256>.parquet   rows of blocks that are not finished yet
    progress.json       for other terminals: how fast, since when

A file's name holds the start of the SHA-256 of its content, so a damaged file is known without
an index beside it, and a rename is all that makes it count. Blocks are cut by the order of
queries alone, so a finished folder is the same for all numbers of processes and orders of work.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout, lock_descriptor
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from graphsvx.core.arrays import Ids, no_ids
from graphsvx.errors import DataError, InputError, ModelError, first_line
from graphsvx.many import Failure
from graphsvx.runs import arrow_schema
from graphsvx.runs.backends import Answer, Backend, Chunk, Job, LostChunk
from graphsvx.utils.console import progress_bar
from graphsvx.utils.constraints import Count, NotNegative, checked
from graphsvx.utils.files import atomic_write

FORMAT, VERSION = "graphsvx.run", 1
_NAME = re.compile(r"(\d{5,})-([0-9a-f]{16})\.parquet")


@dataclass(frozen=True)
class StoredFile:
    """A file with rows of one block."""

    path: Path
    block: int

    def read(self, names: list[str] | None = None) -> pa.Table:
        """Its rows; a DataError if its content is not what its name says."""
        try:
            content = self.path.read_bytes()
            if _digest(content) != self.path.stem.partition("-")[2]:
                raise DataError(f"{self.path} is damaged (its checksum is another)")
            file = pq.ParquetFile(pa.BufferReader(content))
            if not file.schema_arrow.equals(arrow_schema.SCHEMA):
                raise DataError(f"{self.path} is damaged (it has other columns)")
            return file.read(names, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path} cannot be read: {error}") from error


@contextmanager
def _using(folder: Path) -> Iterator[None]:
    """What the system says of a folder, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{folder} cannot be used for a run: {error.strerror or error}; choose another folder"
        ) from error


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept."""

    path: Path

    @property
    def manifest(self) -> Path:
        """Written last when a run is begun: a folder without it is no run."""
        return self.path / "run.json"

    def exists(self) -> bool:
        """Whether a run was begun here."""
        with _using(self.path):
            return self.manifest.is_file()

    def must_be_free(self) -> None:
        """Raise DataError if the folder holds files of something else."""
        ours = {"run.json", "queries.parquet", "parts", "pieces", "progress.json", "lock"}
        with _using(self.path):
            if self.path.exists() and not self.path.is_dir():
                raise DataError(f"{self.path} is a file; choose a folder")
            names = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        strange = sorted(name for name in names - ours if not name.startswith(".part-"))
        if strange and not self.exists():
            raise DataError(
                f"{self.path} is not empty and holds no run (it has {', '.join(strange[:3])}); "
                f"choose another folder"
            )

    def create(self, manifest: Mapping[str, Any], queries: Ids) -> None:
        """Begin a run."""
        self.write_queries(queries)
        checksum = _manifest_digest(manifest.get("identity"))
        record = {"format": FORMAT, "version": VERSION, "sha256": checksum, **manifest}
        _write(self.manifest, json.dumps(record, indent=2).encode())

    def read_manifest(self) -> dict[str, Any]:
        """What the run is."""
        try:
            record = json.loads(self.manifest.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(f"{self.path} holds no run: there is no run.json in it") from None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{self.manifest} cannot be read: {error}") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise DataError(f"{self.manifest} is no manifest of a run")
        if record.get("version") != VERSION:
            raise DataError(
                f"{self.manifest} has version {record.get('version')}, this graphsvx reads "
                f"{VERSION}; use the graphsvx that wrote it"
            )
        if record.get("sha256") != _manifest_digest(record.get("identity")):
            raise DataError(f"{self.manifest} is damaged (its checksum is another)")
        try:
            part, queries = record["identity"]["part"], record["identity"]["queries"]
            checked(part, Count, "part")
            checked(queries, dict[str, Any], "queries")
        except (InputError, TypeError, KeyError) as error:
            raise DataError(f"{self.manifest} is damaged: {error}") from error
        return record

    def write_queries(self, queries: Ids) -> None:
        """Store the ids of the queries."""
        _write(self.path / "queries.parquet", _parquet(pa.table({"query": pa.array(queries)})))

    def read_queries(self) -> Ids:
        """Ids of the queries, in order."""
        path = self.path / "queries.parquet"
        try:
            queries = pq.ParquetFile(path).read(["query"])["query"]
        except (OSError, pa.ArrowException, KeyError) as error:
            raise DataError(f"{path} cannot be read: {first_line(error)}") from error
        if queries.type != pa.int64() or queries.null_count:
            raise DataError(f"{path} is damaged: it does not hold numbers")
        return np.asarray(queries.to_numpy())

    def files(self, block: int | None = None) -> list[StoredFile]:
        """All files with rows, or those of one block; finished blocks first."""
        start = "" if block is None else f"{block:05d}-"
        files = []
        with _using(self.path):
            for name in ("parts", "pieces"):
                for path in sorted((self.path / name).glob(f"{start}*.parquet")):
                    match = _NAME.fullmatch(path.name)
                    if match and path.is_file():
                        files.append(StoredFile(path, int(match[1])))
        return files

    def keep(self, block: int, rows: pa.Table, finished: bool) -> StoredFile:
        """Write rows of a block; on return they survive whatever happens."""
        content = _parquet(rows.cast(arrow_schema.SCHEMA))
        place = "parts" if finished else "pieces"
        stored = StoredFile(self.path / place / f"{block:05d}-{_digest(content)}.parquet", block)
        _write(stored.path, content)
        return stored

    def sweep(self) -> None:
        """Remove what writers left that were killed."""
        with _using(self.path):
            for place in (self.path, self.path / "parts", self.path / "pieces"):
                for path in place.glob(".part-*"):
                    path.unlink(missing_ok=True)

    def note(self, progress: Mapping[str, Any]) -> None:
        """Tell other terminals; a disk that is full must not stop a run for this."""
        with suppress(DataError), atomic_write(self.path / "progress.json") as part:
            part.write_text(json.dumps(progress), encoding="utf-8")

    def read_note(self) -> tuple[float | None, str | None]:
        """The rate and the command that were told last; None where they cannot be read."""
        try:
            note = json.loads((self.path / "progress.json").read_text(encoding="utf-8"))
            rate = checked(note.get("rate"), NotNegative | None, "rate")
            return rate or None, checked(note.get("command"), str | None, "command")
        except (OSError, ValueError, AttributeError, RecursionError):
            return None, None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time; the system frees the lock of a writer that was killed.

        Forked workers do not inherit it (`filelock` closes its file in them), so a worker that
        outlives a killed writer does not keep the folder locked.
        """
        with _using(self.path):
            for name in ("parts", "pieces"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / "lock", thread_local=False)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                raise DataError(
                    f"another process is working on {self.path}; wait for it, or stop it"
                ) from None
        try:
            yield
        finally:
            lock.release()

    def in_use(self) -> bool:
        """Whether a process is working on it. Read access to the folder is enough."""
        try:
            handle = os.open(self.path / "lock", os.O_RDONLY)
        except OSError:  # there is none, or no permission to open it
            return False
        try:
            return not lock_descriptor(handle, blocking=False)
        finally:
            os.close(handle)


def _manifest_digest(identity: Any) -> str:
    return _digest(json.dumps(identity, sort_keys=True).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    return sink.getvalue()


def _write(path: Path, content: bytes) -> None:
    """Whole, and on the disk itself before the name is there: power may fail too."""
    try:
        with atomic_write(path) as part, part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if os.name == "posix":
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except (DataError, OSError) as error:
        cause = error.__cause__ or error
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise DataError(
            f"cannot write to {path.parent}: {reason or cause}; what was finished before "
            f"is kept, and the same command goes on from there once there is room"
        ) from error


# --- progress: open queries, their scheduling in chunks, and buffered writing of answers ---

# Target duration of a chunk: long compared with the cost of scheduling, short compared with a run.
CHUNK_SECONDS = 1.0
# Attempts at a query whose worker died.
TRIES = 3
# Answers wait so many seconds, or until they have so many bytes, and are written together; a chunk
# that took as long is written at once.
_FLUSH_SECONDS, _FLUSH_BYTES = 2.0, 64 * 2**20


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
    _buffer: list[pa.Table] = field(default_factory=list)
    _bytes: int = 0
    _written: float = field(default_factory=time.monotonic)

    def span(self, block: int) -> slice:
        """Positions of a block's queries in `queries`."""
        return slice(block * self.part, (block + 1) * self.part)

    def mark(self, rows: pa.Table) -> None:
        """Mark the queries of these rows as done."""
        positions = np.searchsorted(self.queries, arrow_schema.queries(rows))
        answered = self.done[positions] & ~self.failed[positions]
        self.failed[positions] = arrow_schema.failed(rows) & ~answered
        self.done[positions] = True

    def keep(self, block: int, rows: pa.Table) -> None:
        """Write rows of a block; the files of a finished block are merged, ordered by query."""
        old = self.stored.get(block, [])
        if not self.done[self.span(block)].all():
            self.stored[block] = [*old, self.folder.keep(block, rows, finished=False)]
            return
        # New ones first: of two failures the newer one is kept.
        merged = arrow_schema.merged([rows, *(stored.read() for stored in old)])
        new = self.folder.keep(block, merged, finished=True)
        self.stored[block] = [new]
        for stored in old:
            if stored.path != new.path:
                stored.path.unlink(missing_ok=True)

    def add(self, answer: Answer) -> None:
        """Mark queries as done; their rows are written now or with later ones."""
        if not answer.queries:
            return
        self.mark(answer.rows)
        self._buffer.append(answer.rows)
        self._bytes += answer.rows.nbytes
        waited = max(answer.seconds, time.monotonic() - self._written)
        if waited >= _FLUSH_SECONDS or self._bytes >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all rows that wait."""
        if not self._buffer:
            return
        rows, self._buffer, self._bytes = pa.concat_tables(self._buffer), [], 0
        blocks = np.searchsorted(self.queries, arrow_schema.queries(rows)) // self.part
        for block in np.unique(blocks).tolist():
            block_rows = rows.take(pa.array(np.flatnonzero(blocks == block)))
            self.keep(block, arrow_schema.merged([block_rows]))
        self._written = time.monotonic()


def read_progress(folder: RunFolder, queries: Ids, part: int, retry_failed: bool) -> RunProgress:
    """Read the progress of a folder; removes damaged files and merges the files of done blocks."""
    folder.sweep()
    none_done = np.zeros(len(queries), dtype=bool)
    progress = RunProgress(folder, queries, part, none_done, none_done.copy())
    for stored in folder.files():
        try:
            rows = stored.read()
            span = queries[progress.span(stored.block)]
            if not np.isin(arrow_schema.queries(rows), span).all():
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
        self._tries: Counter[int] = Counter()
        self._retries: deque[int] = deque()
        self._queries, self._seconds = 0.0, 0.0

    def take(self) -> Chunk | None:
        """The next chunk, within one block; None if no query is open."""
        if self._retries:
            # One by one, so that a query that kills its worker affects no other query.
            return (self._retries.popleft(),)
        progress = self._progress
        while not len(self._open):
            span = progress.span(self._block)
            if span.start >= len(progress.queries):
                return None
            self._open = progress.queries[span][~progress.done[span]]
            self._block += 1
        size = 1
        if self._queries:
            seconds_per_query = max(self._seconds / self._queries, 1e-6)
            size = int(min(max(CHUNK_SECONDS / seconds_per_query, 1), 4 * self._queries + 1))
        chunk, self._open = tuple(self._open[:size].tolist()), self._open[size:]
        return chunk

    def learn(self, answer: Answer) -> None:
        """Update the estimated time per query, with exponentially decaying weights."""
        self._queries = 0.8 * self._queries + len(answer.queries)
        self._seconds = 0.8 * self._seconds + answer.seconds

    def put_back(self, chunk: Chunk) -> list[int]:
        """Schedule the queries of a lost chunk again; returns those that reached `TRIES`."""
        self._tries.update(chunk)
        given_up = [query for query in chunk if self._tries[query] >= TRIES]
        self._retries.extend(query for query in chunk if self._tries[query] < TRIES)
        return given_up


# --- the work of a run ---------------------------------------------------------------------


class _Meter:
    """Shows progress in a bar, and tells other processes the rate."""

    def __init__(self, progress: RunProgress, bar: Any, command: str | None) -> None:
        self._progress, self._bar, self._command = progress, bar, command
        self._start, self._before = time.monotonic(), int(progress.done.sum())
        self._last_note = -math.inf
        self._task = bar.add_task("explaining", total=len(progress.queries), rate="-", failed=0)
        for damaged in progress.damaged:
            text = f"{damaged}; its queries are answered anew"
            bar.console.print(text, style="yellow", markup=False, soft_wrap=True)
        self.show()

    def show(self) -> None:
        """The number of queries that are done, and how many a second since the start."""
        now, done = time.monotonic(), int(self._progress.done.sum())
        rate, failed = (done - self._before) / max(now - self._start, 1e-9), self._progress.failed
        self._bar.update(self._task, completed=done, failed=int(failed.sum()), rate=f"{rate:.1f}")
        if now - self._last_note > 1:
            self._last_note = now
            self._progress.folder.note({"rate": rate, "command": self._command})


def _answers(
    job: Job, backend: Backend, scheduler: Scheduler
) -> Generator[Answer | LostChunk, None, None]:
    """The answers of a backend, whose iterator is closed with this one if it can be."""
    yield from backend.answers(job, scheduler.take)


def work(
    job: Job, backend: Backend, progress: RunProgress, shown: bool | None, command: str | None
) -> None:
    """Explain what is open, and keep it; `shown` and `command` as for `runs.start`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]} failed"),
    )
    with progress_bar(*columns, shown=sys.stderr.isatty() if shown is None else shown) as bar:
        meter, scheduler = _Meter(progress, bar, command), Scheduler(progress)
        if progress.done.all():
            return
        try:
            with closing(_answers(job, backend, scheduler)) as answers:
                for result in answers:
                    if isinstance(result, LostChunk):
                        answer = _failures(scheduler.put_back(result.queries), result.reason)
                    else:
                        answer = result
                        scheduler.learn(answer)
                    progress.add(answer)
                    meter.show()
        finally:
            # Also after Ctrl-C: finished answers are stored.
            progress.flush()


def _failures(queries: list[int], reason: str) -> Answer:
    error = ModelError(f"its worker was lost {TRIES} times: {reason}")
    rows = arrow_schema.to_table(queries, [Failure(query, error) for query in queries])
    return Answer(tuple(queries), rows, 0.0)
