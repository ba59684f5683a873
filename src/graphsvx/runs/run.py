"""`Run`: the table, the explanations and the status of a run in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from graphsvx.core.arrays import Ids
from graphsvx.errors import DataError, InputError
from graphsvx.results import summary
from graphsvx.results.explanation import Explanation
from graphsvx.results.export import many_to_pandas
from graphsvx.results.ranking import Players
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.store import RunFolder, StoredFile
from graphsvx.utils.constraints import as_int
from graphsvx.utils.files import as_path


@dataclass(frozen=True)
class Status:
    """Progress of a run."""

    state: Literal["running", "stopped", "finished"]
    total: int
    done: int
    """Queries with an explanation."""
    failed: int
    """Queries with an error."""
    rate: float | None = None
    """Queries per second while it is running, else None."""
    command: str | None = None
    """Command line that resumes it, if it was started from the command line."""
    damaged: int = 0
    """Number of damaged files; their queries are not done."""

    @property
    def left(self) -> int:
        """Number of queries that are neither explained nor failed."""
        return self.total - self.done - self.failed

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining time in seconds while it is running, else None."""
        return self.left / self.rate if self.rate else None


@dataclass(frozen=True, eq=False)
class Overview:
    """Global importance over all explanations of a run."""

    features: summary.Summary
    classes: dict[int, summary.Summary]
    """Feature importance by explained class."""
    roles: summary.Summary
    """Credit of the nodes of each role, summed within an explanation."""


@dataclass(frozen=True, eq=False)
class Run:
    """Many explanations in a folder, finished or not."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    """Identity of the run: hashes of model and graph, settings, seed, versions."""
    queries: Ids = field(repr=False)
    """Node ids, or positions in the list of graphs, ascending."""

    @property
    def _store(self) -> RunFolder:
        return RunFolder(self.folder)

    def table(self, names: list[str] | None = None) -> pa.Table:
        """All rows by query, failures too, as a pyarrow table (`.to_pandas()` for pandas).

        `names`: only these columns.

        Raises:
            InputError: a column that does not exist.

        """
        schema = arrow_schema.SCHEMA
        columns = None
        if names is not None:
            unknown = [name for name in names if name not in schema.names]
            if unknown:
                raise InputError(f"there is no column {unknown[0]!r}, only {schema.names}")
            columns = list(dict.fromkeys(["query", "error", *names]))
            schema = pa.schema([schema.field(name) for name in columns])
        tables = [rows for _, rows in self._blocks(columns)]
        rows = pa.concat_tables([schema.empty_table(), *tables])
        return rows if names is None else rows.select(names)

    def _blocks(self, names: list[str] | None) -> Iterator[tuple[int, pa.Table]]:
        """Rows block by block, so that a large run need not fit into memory."""
        blocks: dict[int, list[StoredFile]] = {}
        for stored in self._store.files():
            blocks.setdefault(stored.block, []).append(stored)
        for block in sorted(blocks):
            yield block, self._read(block, blocks[block], names)

    def _read(
        self, block: int, files: list[StoredFile], names: list[str] | None = None
    ) -> pa.Table:
        try:
            return arrow_schema.merged([stored.read(names) for stored in files])
        except DataError as error:
            current_files = self._store.files(block)
            if current_files != files:  # a running run has merged them in the meantime
                return self._read(block, current_files, names)
            raise DataError(f"{error}; the same run started again makes it anew") from error

    def __getitem__(self, query: int) -> Explanation:
        """The explanation of a node (or of a graph, by its position)."""
        query = as_int(query, "query")
        position = int(np.searchsorted(self.queries, query))
        if position == len(self.queries) or self.queries[position] != query:
            raise InputError(f"{query} is not among the {len(self.queries)} queries of this run")
        block = position // int(self.manifest["identity"]["part"])
        files = self._store.files(block)
        rows = self._read(block, files) if files else arrow_schema.SCHEMA.empty_table()
        row_positions = np.flatnonzero(arrow_schema.queries(rows) == query)
        if not len(row_positions):
            raise DataError(f"{query} is not explained yet: {self._progress_text()}")
        row = int(row_positions[0])
        error = rows["error"][row].as_py()
        if error is not None:
            raise DataError(f"{query} could not be explained: {error}")
        return arrow_schema.read_row(rows, row)

    def __iter__(self) -> Iterator[Explanation]:
        """All explanations by query; failures are left out."""
        for _, rows in self._blocks(None):
            for position in np.flatnonzero(~arrow_schema.failed(rows)).tolist():
                yield arrow_schema.read_row(rows, position)

    def __len__(self) -> int:
        """Number of explanations."""
        return self.status().done

    def to_pandas(self, players: Players = "all") -> Any:
        """A long `pandas.DataFrame`: a row per explanation and player; failures are left out."""
        return many_to_pandas(list(self), players)

    def failures(self) -> dict[int, str]:
        """Queries that could not be explained, and why."""
        rows = self.table(["query", "error"])
        failed = rows.filter(pa.array(arrow_schema.failed(rows)))
        return dict(zip(failed["query"].to_pylist(), failed["error"].to_pylist(), strict=True))

    def status(self) -> Status:
        """Progress by undamaged files; correct also while another process writes to the folder."""
        done, failed, damaged = self._counts()
        rate, command = self._store.read_note()
        total = len(self.queries)
        if self._store.in_use():
            return Status("running", total, done, failed, rate, command, damaged)
        state: Literal["stopped", "finished"] = "finished" if done + failed == total else "stopped"
        return Status(state, total, done, failed, None, command, damaged)

    def summary(self, roles: summary.By = "hops") -> Overview:
        """Global importance with intervals: by feature, by class, by role of the nodes.

        `roles`: "hops", "class", or the role of each node (a mapping, sequence or tensor).
        """
        features = summary.features(self)
        outputs = np.array(features.outputs)
        classes = {
            target: replace(
                features,
                matrix=features.matrix[outputs == target],
                outputs=tuple(outputs[outputs == target].tolist()),
            )
            for target in sorted(set(features.outputs))
        }
        return Overview(features, classes, summary.nodes(self, by=roles))

    def _counts(self) -> tuple[int, int, int]:
        """Queries with an explanation, those with an error, and damaged files."""
        while True:
            files, tables = self._store.files(), []
            for file in files:
                with suppress(DataError):
                    tables.append(file.read(["query", "error"]))
            damaged = len(files) - len(tables)
            # A running run removes files that it has merged.
            if not damaged or self._store.files() == files:
                break
        if not tables:
            return 0, 0, damaged
        failed = arrow_schema.failed(arrow_schema.merged(tables))
        return int((~failed).sum()), int(failed.sum()), damaged

    def _progress_text(self) -> str:
        status = self.status()
        return f"{status.done} of {status.total} are, the run is {status.state}"

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self._progress_text()})"


def open_run(folder: str | Path) -> Run:
    """Open the run in a folder, finished or not.

    Args:
        folder: that `start` or `graphsvx run` wrote.

    Returns:
        The run: its explanations by position, its table, its failures.

    Raises:
        DataError: there is no run, or its files are damaged.

    """
    store = RunFolder(as_path(folder, "folder"))
    manifest, queries = store.read_manifest(), store.read_queries()
    if manifest["identity"]["queries"].get("sha256") != identity.of_queries(queries):
        raise DataError(
            f"{store.path / 'queries.parquet'} is damaged; the same run started again mends it"
        )
    return Run(store.path, manifest, queries)
