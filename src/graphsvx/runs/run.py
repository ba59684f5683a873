"""A run as a record: its table, its explanations, how far it is."""

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
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.store import RunFolder, StoredFile
from graphsvx.utils.constraints import as_int
from graphsvx.utils.files import as_path


@dataclass(frozen=True)
class Status:
    """How far a run is."""

    state: Literal["running", "stopped", "finished"]
    total: int
    done: int
    """Queries with an explanation."""
    failed: int
    """Queries with an error."""
    rate: float | None = None
    """Queries a second, while it runs."""
    command: str | None = None
    """What goes on with it, if it was started from the command line."""
    damaged: int = 0
    """Files whose content is not what was written; their queries are left to do."""

    @property
    def left(self) -> int:
        """Queries that nobody has answered."""
        return self.total - self.done - self.failed

    @property
    def seconds_left(self) -> float | None:
        """Time that the rest will take, while it runs."""
        return self.left / self.rate if self.rate else None


@dataclass(frozen=True, eq=False)
class Overview:
    """What matters on the whole, over all explanations of a run."""

    features: summary.Summary
    classes: dict[int, summary.Summary]
    """Features again, for each explained class by itself."""
    roles: summary.Summary
    """Credit of the nodes of each role, summed within an explanation."""


@dataclass(frozen=True, eq=False)
class Run:
    """Many explanations in a folder, finished or not."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    """What the run is: hashes of model and graph, settings, seed, versions."""
    queries: Ids = field(repr=False)
    """What is asked: nodes, or positions in the list of graphs; ascending."""

    @property
    def _store(self) -> RunFolder:
        return RunFolder(self.folder)

    def table(self, names: list[str] | None = None) -> pa.Table:
        """All rows by query, failures too, as a pyarrow table (`.to_pandas()` for pandas).

        `names`: only these columns.
        """
        schema = arrow_schema.SCHEMA
        wanted = None
        if names is not None:
            unknown = [name for name in names if name not in schema.names]
            if unknown:
                raise InputError(f"there is no column {unknown[0]!r}, only {schema.names}")
            wanted = list(dict.fromkeys(["query", "error", *names]))
            schema = pa.schema([schema.field(name) for name in wanted])
        rows = pa.concat_tables([schema.empty_table(), *(rows for _, rows in self._blocks(wanted))])
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
            again = self._store.files(block)
            if again != files:  # a running run has put them together meanwhile
                return self._read(block, again, names)
            raise DataError(f"{error}; the same run started again makes it anew") from error

    def __getitem__(self, query: int) -> Explanation:
        """The explanation of a node (or of a graph, by its position)."""
        query = as_int(query, "query")
        place = int(np.searchsorted(self.queries, query))
        if place == len(self.queries) or self.queries[place] != query:
            raise InputError(f"{query} is not among the {len(self.queries)} queries of this run")
        block = place // int(self.manifest["identity"]["part"])
        files = self._store.files(block)
        rows = self._read(block, files) if files else arrow_schema.SCHEMA.empty_table()
        where = np.flatnonzero(arrow_schema.queries(rows) == query)
        if not len(where):
            raise DataError(f"{query} is not explained yet: {self._counted()}")
        error = rows["error"][int(where[0])].as_py()
        if error is not None:
            raise DataError(f"{query} could not be explained: {error}")
        return arrow_schema.explanation(rows, int(where[0]))

    def __iter__(self) -> Iterator[Explanation]:
        """All explanations by query; failures are left out."""
        for _, rows in self._blocks(None):
            for position in np.flatnonzero(~arrow_schema.failed(rows)).tolist():
                yield arrow_schema.explanation(rows, position)

    def __len__(self) -> int:
        """How many explanations there are."""
        return self.status().done

    def failures(self) -> dict[int, str]:
        """Queries that could not be explained, and why."""
        rows = self.table(["query", "error"])
        chosen = rows.filter(pa.array(arrow_schema.failed(rows)))
        return dict(zip(chosen["query"].to_pylist(), chosen["error"].to_pylist(), strict=True))

    def status(self) -> Status:
        """How far it is, by files that are whole; right while another process works on it."""
        done, failed, damaged = self._counts()
        note = self._store.read_note()
        state: Literal["running", "stopped", "finished"] = "stopped"
        if self._store.in_use():
            state = "running"
        elif done + failed == len(self.queries):
            state = "finished"
        rate, command = note.get("rate"), note.get("command")
        if state != "running" or not isinstance(rate, (int, float)):
            rate = None
        if not isinstance(command, str):
            command = None
        return Status(state, len(self.queries), done, failed, rate, command, damaged)

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
            # A running run removes files that it has put together.
            if not damaged or self._store.files() == files:
                break
        if not tables:
            return 0, 0, damaged
        wrong = arrow_schema.failed(arrow_schema.merged(tables))
        return int((~wrong).sum()), int(wrong.sum()), damaged

    def _counted(self) -> str:
        now = self.status()
        return f"{now.done} of {now.total} are, the run is {now.state}"

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self._counted()})"


def open_run(folder: str | Path) -> Run:
    """Open the run in a folder, finished or not."""
    store = RunFolder(as_path(folder, "folder"))
    manifest, queries = store.read_manifest(), store.read_queries()
    if manifest["identity"]["queries"].get("sha256") != identity.of_queries(queries):
        raise DataError(
            f"{store.path / 'queries.parquet'} is damaged; the same run started again mends it"
        )
    return Run(store.path, manifest, queries)
