"""`Run`: the table, the explanations and the status of a run in a folder; `start` makes one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from torch import Tensor

from graphsvx.api import DEFAULT
from graphsvx.errors import DataError, InputError, see
from graphsvx.methods.baseline import Method
from graphsvx.results import summary
from graphsvx.results.explanation import Explanation
from graphsvx.results.ranking import Players
from graphsvx.runs import arrow_schema, identity
from graphsvx.runs.backends import Backend, Job, Local
from graphsvx.runs.queries import read_queries
from graphsvx.runs.store import RunFolder, StoredFile, read_progress, work
from graphsvx.utils.constraints import Count, Range, Seed, as_int, checked, shown
from graphsvx.utils.files import as_path
from graphsvx.utils.printable import one_line


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
    queries: np.ndarray = field(repr=False)
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
        return summary.Explanations(self).to_pandas(players)

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


# --- start or resume a run -----------------------------------------------------------------

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
    queries = read_queries(model, data, nodes=nodes, graphs=graphs, edges=edges, groups=groups)
    part = checked(part, Count, "part")
    retry_failed = checked(retry_failed, bool, "retry_failed")
    command = checked(command, str | None, "command")
    backend = Local() if backend is None else backend
    if not hasattr(type(backend), "answers"):
        raise InputError(f"backend must be one such as Local(workers=2), got {shown(backend)}")
    method = DEFAULT if method is None else method  # checked with the first question
    sufficient = checked(sufficient, Annotated[float, Range(0, 1)] | None, "sufficient")
    flip = checked(flip, bool, "flip")
    progress = checked(progress, bool | None, "progress")
    settings = {"method": method, **options}
    options = {**settings, "seed": checked(seed, Seed, "seed")}
    of_queries = queries.kind, options, queries.members, queries.node_type
    job, ids = Job(model, data, *of_queries, sufficient, flip), queries.ids
    settings |= {} if sufficient is None else {"sufficient": sufficient}
    settings |= {"flip": flip} if flip else {}
    job.check(ids.tolist())
    run_identity = {
        **_seen(job.inputs()),
        "setting": identity.settings_as_text(settings),
        "seed": options["seed"],
        "queries": queries.identity(),
        "part": part,
        "version": identity.package_versions(),
    }
    folder = RunFolder(as_path(out, "out"))
    folder.must_be_free()
    with folder.locked():
        if folder.exists():
            differ = identity.differing(folder.read_manifest()["identity"], run_identity)
            if differ:
                raise DataError(
                    f"{folder.path} holds another run; what differs: {'; '.join(differ)}. Choose "
                    f"another folder, or ask for what that run is"
                    + see("another-run-in-the-folder")
                )
            folder.write_queries(ids)  # the file may be damaged
        else:
            folder.create({"identity": run_identity}, ids)
        run_progress = read_progress(folder, ids, part, retry_failed)
        work(job, backend, run_progress, progress, command)
    return open_run(folder.path)


def _seen(inputs: dict[str, Any]) -> dict[str, Any]:
    """Identities of model and data; a warning names what they do not tell."""
    unseen = [name for part in inputs.values() for name in part.get("unseen", [])]
    if unseen:
        names = ", ".join(map(one_line, unseen[:5]))
        warnings.warn(
            f"whether these stay the same cannot be seen: {names}; if they change, resume into "
            f"another folder",
            stacklevel=3,
        )
    return inputs
