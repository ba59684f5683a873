"""Which queries are left, in which portions they are handed out, and how answers are kept."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from graphsvx.core.arrays import Ids
from graphsvx.errors import DataError
from graphsvx.runs import arrow_schema
from graphsvx.runs.backends import Answer, Chunk
from graphsvx.runs.store import RunFolder, StoredFile, merge

# A worker gets about so many seconds of work at a time: long beside the cost of handing it out,
# short beside a run, and little enough to lose.
CHUNK_SECONDS = 1.0
# How often a query is given to another worker when its worker was lost with it.
TRIES = 3
# Answers are written together if they come faster than this ...
_FLUSH_SECONDS = 2.0
# ... unless one of them was as much work as this, or together they are as large.
_DEAR_SECONDS, _FLUSH_BYTES = 5.0, 64 * 2**20


@dataclass(eq=False)
class RunProgress:
    """What a folder holds already, and what is still to do."""

    folder: RunFolder
    queries: Ids
    """All queries, ascending."""
    part: int
    """Queries in a block."""
    done: np.ndarray
    failed: np.ndarray
    stored: dict[int, list[StoredFile]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    """Files that were found damaged and removed."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-len(self.queries) // self.part)

    def span(self, block: int) -> slice:
        """Where a block's queries are."""
        return slice(block * self.part, (block + 1) * self.part)

    def mark(self, rows: pa.Table) -> Ids:
        """Note that these rows exist; gives back where their queries are."""
        place = np.searchsorted(self.queries, arrow_schema.queries(rows))
        wrong = arrow_schema.failed(rows)
        self.failed[place] = np.where(self.done[place], self.failed[place] & wrong, wrong)
        self.done[place] = True
        return place

    def keep(self, block: int, rows: pa.Table) -> None:
        """Write rows of a block; a finished block becomes one file in the order of queries."""
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
    """Look through a folder: damaged files are removed, half-made blocks are completed."""
    folder.sweep()
    nothing = np.zeros(len(queries), dtype=bool)
    progress = RunProgress(folder, queries, part, nothing, nothing.copy())
    for stored in folder.files():
        try:
            rows = stored.read()
            there = arrow_schema.queries(rows)
            span = queries[progress.span(stored.block)]
            if not np.isin(there, span).all() or rows.schema != arrow_schema.SCHEMA:
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
    """Hands out what is left, in chunks sized by the time that queries took so far."""

    def __init__(self, progress: RunProgress) -> None:
        self._ledger = progress
        self._block = 0
        self._left: Ids = np.zeros(0, dtype=np.int64)
        self._again: deque[int] = deque()
        self._tries: dict[int, int] = {}
        self._queries, self._seconds = 0.0, 0.0

    def take(self) -> Chunk | None:
        """The next chunk, within one block; None: nothing is left."""
        if self._again:
            # One by one, so that a query that kills its worker takes no other with it.
            return (self._again.popleft(),)
        while not len(self._left):
            if self._block >= self._ledger.blocks:
                return None
            span = self._ledger.span(self._block)
            self._left = self._ledger.queries[span][~self._ledger.done[span]]
            self._block += 1
        size = self._size()
        chunk, self._left = tuple(self._left[:size].tolist()), self._left[size:]
        return chunk

    def _size(self) -> int:
        if not self._queries:
            return 1
        each = self._seconds / self._queries
        return int(min(max(CHUNK_SECONDS / max(each, 1e-6), 1), 4 * self._queries + 1))

    def learn(self, answer: Answer) -> None:
        """Note how long a chunk took; the newest count most."""
        self._queries = 0.8 * self._queries + len(answer.queries)
        self._seconds = 0.8 * self._seconds + answer.seconds

    def put_back(self, chunk: Chunk) -> list[int]:
        """A chunk was lost with its worker; gives back the queries that had their tries."""
        given_up = []
        for query in chunk:
            self._tries[query] = self._tries.get(query, 0) + 1
            if self._tries[query] < TRIES:
                self._again.append(query)
            else:
                given_up.append(query)
        return given_up


class WriteBuffer:
    """Answers on their way to the disk: few, and not for long."""

    def __init__(self, progress: RunProgress, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = progress
        self._clock = clock
        self._rows: list[pa.Table] = []
        self._bytes = 0
        self._last = clock()

    def add(self, answer: Answer) -> None:
        """Keep an answer, soon."""
        if not answer.queries:
            return
        self._rows.append(answer.rows)
        self._bytes += answer.rows.nbytes
        if (
            self._clock() - self._last >= _FLUSH_SECONDS
            or answer.seconds >= _DEAR_SECONDS
            or self._bytes >= _FLUSH_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        """Keep everything now."""
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        self._rows, self._bytes = [], 0
        blocks = self._ledger.mark(rows) // self._ledger.part
        for block in np.unique(blocks).tolist():
            chosen = rows.take(pa.array(np.flatnonzero(blocks == block)))
            self._ledger.keep(block, arrow_schema.merged([chosen]))
        self._last = self._clock()
