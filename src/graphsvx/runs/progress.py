"""Progress of a run: open queries, their scheduling in chunks, and buffered writing of answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from graphsvx.core.arrays import Ids, no_ids
from graphsvx.errors import DataError
from graphsvx.runs import arrow_schema
from graphsvx.runs.backends import Answer, Chunk
from graphsvx.runs.store import RunFolder, StoredFile, merge

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
