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
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout, lock_descriptor

from graphsvx.core.arrays import Ids
from graphsvx.errors import DataError, InputError, first_line
from graphsvx.runs import arrow_schema
from graphsvx.utils.constraints import Count, checked
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
            columns = arrow_schema.with_interactions(file.schema_arrow.empty_table()).schema
            if set(columns) != set(arrow_schema.SCHEMA):
                raise DataError(f"{self.path} is damaged (it has other columns)")
            stored = None if names is None else [n for n in names if n in file.schema_arrow.names]
            rows = arrow_schema.with_interactions(file.read(stored, use_threads=False))
            # Version 1 had its columns in another order.
            return rows.select(names or arrow_schema.SCHEMA.names)
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
        with _using(self.path):
            present = list(self.path.iterdir()) if self.path.is_dir() else []
        strange = sorted(path.name for path in present)
        ours = {"run.json", "queries.parquet", "parts", "pieces", "progress.json", "lock"}
        strange = [name for name in strange if name not in ours and not name.startswith(".part-")]
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file; choose a folder")
        if strange and not self.exists():
            raise DataError(
                f"{self.path} is not empty and holds no run (it has {', '.join(strange[:3])}); "
                f"choose another folder"
            )

    def create(self, manifest: Mapping[str, Any], queries: Ids) -> None:
        """Begin a run."""
        self._make_places()
        self.write_queries(queries)
        checksum = _manifest_digest(manifest.get("identity"))
        record = {"format": FORMAT, "version": VERSION, "sha256": checksum, **manifest}
        text = json.dumps(record, indent=2)
        _write(self.manifest, text.encode())

    def _make_places(self) -> None:
        with _using(self.path):
            for name in ("parts", "pieces"):
                (self.path / name).mkdir(parents=True, exist_ok=True)

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
        # Runs of versions before 1.0 have no checksum.
        if record.get("sha256", digest := _manifest_digest(record.get("identity"))) != digest:
            raise DataError(f"{self.manifest} is damaged (its checksum is another)")
        try:
            identity = checked(record.get("identity"), dict[str, Any], "identity")
            checked(identity.get("part"), Count, "part")
            checked(identity.get("queries"), dict[str, Any], "queries")
        except InputError as error:
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
        path = self.path / place / f"{block:05d}-{_digest(content)}.parquet"
        _write(path, content)
        return StoredFile(path, block)

    def sweep(self) -> None:
        """Remove what writers left that were killed."""
        self._make_places()
        with _using(self.path):
            for place in (self.path, self.path / "parts", self.path / "pieces"):
                for path in place.glob(".part-*"):
                    path.unlink(missing_ok=True)

    def note(self, progress: Mapping[str, Any]) -> None:
        """Tell other terminals; a disk that is full must not stop a run for this."""
        try:
            with atomic_write(self.path / "progress.json") as part:
                part.write_text(json.dumps(progress), encoding="utf-8")
        except DataError:
            return

    def read_note(self) -> dict[str, Any]:
        """The last thing that was told, or nothing."""
        try:
            note = json.loads((self.path / "progress.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return note if isinstance(note, dict) else {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time; the system frees the lock of a writer that was killed.

        Forked workers do not inherit it (`filelock` closes its file in them), so a worker that
        outlives a killed writer does not keep the folder locked.
        """
        with _using(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
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
        cause = error.__cause__ if isinstance(error, DataError) else error
        reason = getattr(cause, "strerror", None) or cause
        raise DataError(
            f"cannot write to {path.parent}: {reason}; what was finished before "
            f"is kept, and the same command goes on from there once there is room"
        ) from error


def merge(stored: list[StoredFile], rows: pa.Table) -> pa.Table:
    """The rows of one block, from its files and new ones."""
    # New ones first: of two failures the newer one is kept.
    return arrow_schema.merged([rows, *(stored.read() for stored in stored)])
