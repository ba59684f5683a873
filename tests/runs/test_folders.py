"""Folders that cannot hold a run, and files in them that are not what they should be."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from graphsvx import runs
from graphsvx.cli import app
from graphsvx.errors import DataError, GraphSVXError, InputError
from graphsvx.results.explanation import Explanation
from graphsvx.runs.store import RunFolder
from tests.runs.helpers import start


def _under_a_file(path: Path) -> Path:
    (path / "file").write_text("x")
    return path / "file" / "run"


def _circle(path: Path) -> Path:
    (path / "circle").symlink_to(path / "circle")
    return path / "circle"


def _pipe(path: Path) -> Path:
    os.mkfifo(path / "pipe")
    return path / "pipe"


def _with(name: str, folder: bool) -> Callable[[Path], Path]:
    def made(path: Path) -> Path:
        if folder:
            (path / "run" / name).mkdir(parents=True)
        else:
            (path / "run").mkdir()
            (path / "run" / name).write_text("x")
        return path / "run"

    return made


def _read_only(path: Path) -> Path:
    """By its rights, or as root by a file system that nobody can write to."""
    (path / "fixed").mkdir()
    if os.getuid() != 0:
        (path / "fixed").chmod(0o500)
        return path / "fixed" / "run"
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=16k", "tmpfs", str(path / "fixed")]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a file system")
    return path / "fixed" / "run"


FOLDERS: dict[str, Callable[[Path], Any]] = {
    "under a file": _under_a_file,
    "a file": lambda path: _under_a_file(path).parent,
    "links in a circle": _circle,
    "a pipe": _pipe,
    "a name that is too long": lambda path: path / ("x" * 300),
    "a place where nothing can be made": lambda path: Path("/proc/nothing/run"),
    "a device": lambda path: Path("/dev/null"),
    "nothing": lambda path: "",
    "a zero byte": lambda path: f"{path}/a\0b",
    "a folder for the lock": _with("lock", folder=True),
    "a folder for the manifest": _with("run.json", folder=True),
    "a folder for the queries": _with("queries.parquet", folder=True),
    "a file for the parts": _with("parts", folder=False),
    "a file for the pieces": _with("pieces", folder=False),
    "read only": _read_only,
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_cannot_be_used_is_refused(tmp_path, kind) -> None:
    out = FOLDERS[kind](tmp_path)
    try:
        with pytest.raises(GraphSVXError):
            start(out)
        with pytest.raises(GraphSVXError):
            runs.open(out)
    finally:
        if kind == "read only" and os.getuid() == 0:
            subprocess.run(["umount", str(out.parent)], check=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    start(out, nodes=[1, 2])
    return out


def _manifest(**changes: Any) -> Callable[[dict[str, Any]], str]:
    def made(record: dict[str, Any]) -> str:
        record["identity"].update(changes)
        return json.dumps(record)

    return made


MANIFESTS: dict[str, Callable[[dict[str, Any]], str | bytes]] = {
    "empty": lambda record: "",
    "half": lambda record: json.dumps(record)[:100],
    "not text": lambda record: b"\xff\xfe\x00",
    "a list": lambda record: "[]",
    "nothing": lambda record: "null",
    "deep": lambda record: "[" * 100_000,
    "no identity": lambda record: json.dumps({**record, "identity": None}),
    "a list of identities": lambda record: json.dumps({**record, "identity": [1]}),
    "an empty identity": lambda record: json.dumps({**record, "identity": {}}),
    "another version": lambda record: json.dumps({**record, "version": "1"}),
    "no queries": _manifest(queries=None),
    "a list of queries": _manifest(queries=[]),
    "no hash": _manifest(queries={}),
    "no part": _manifest(part=None),
    "a part of 0": _manifest(part=0),
    "a part in words": _manifest(part="8"),
    "another model": _manifest(model=5),
    "an integer of 5,000 digits": lambda record: json.dumps(record)[:-1] + f', "n": {"1" * 5000}}}',
}


@pytest.mark.parametrize("damage", MANIFESTS)
def test_a_damaged_manifest_is_refused(tmp_path, finished, damage) -> None:
    out = _copied(finished, tmp_path)
    record = json.loads((out / "run.json").read_text())
    content = MANIFESTS[damage](record)
    (out / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=r"run\.json|another run"):
        start(out, nodes=[1, 2])
    with pytest.raises(DataError, match=r"run\.json|damaged"):
        runs.open(out)
    result = CliRunner().invoke(app, ["run", "--status", str(out)])
    assert isinstance(result.exception, GraphSVXError)


def test_a_part_that_is_a_folder_holds_no_rows(tmp_path, finished) -> None:
    out = _copied(finished, tmp_path)
    (part,) = (out / "parts").iterdir()
    part.unlink()
    part.mkdir()
    assert runs.open(out).status().left == 2
    with pytest.raises(DataError, match="it is a folder"):
        start(out, nodes=[1, 2])  # it would be written there
    part.rename(part.with_name(part.name.replace("00000", "00001")))
    assert start(out, nodes=[1, 2]).status().state == "finished"


def test_a_class_is_no_backend(tmp_path) -> None:
    with pytest.raises(InputError, match=r"backend must be one such as Local\(workers=2\)"):
        start(tmp_path / "run", backend=runs.Local)


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-1.0", "0.0", "1" * 400, "true", '"x"'])
def test_a_strange_rate_is_no_rate(tmp_path, finished, rate) -> None:
    out = _copied(finished, tmp_path)
    (out / "progress.json").write_text(f'{{"rate": {rate}}}')
    with RunFolder(out).locked():
        status = runs.open(out).status()
    assert (status.rate, status.seconds_left) == (None, None)


@pytest.mark.parametrize(
    "table",
    [None, pa.table({"other": [1]}), pa.table({"query": ["a"]}), pa.table({"query": [1, None]}),
     pa.table({"query": [1.5]}), pa.table({"query": [2, 1]})],
)  # fmt: skip
def test_damaged_queries_are_reported(tmp_path, finished, table) -> None:
    out = _copied(finished, tmp_path)
    if table is None:
        (out / "queries.parquet").write_bytes(b"PAR1")
    else:
        pq.write_table(table, out / "queries.parquet")
    with pytest.raises(DataError, match=r"queries\.parquet"):
        runs.open(out)
    assert start(out, nodes=[1, 2]).status().state == "finished"  # mended


@pytest.mark.parametrize(
    "note", ["", "[]", "{", '{"rate": "fast", "command": 5}', '{"rate": null}', "[" * 100_000]
)
def test_a_damaged_note_of_progress_does_not_matter(tmp_path, finished, note) -> None:
    out = _copied(finished, tmp_path)
    (out / "progress.json").write_text(note)
    now = runs.open(out).status()
    assert (now.state, now.rate, now.command) == ("finished", None, None)


def test_a_part_with_other_columns_is_damaged(tmp_path, finished) -> None:
    out = _copied(finished, tmp_path)
    folder = runs.open(out)._store
    (part,) = folder.files()
    part.path.unlink()
    content = part.path.parent / "new.parquet"
    pq.write_table(pa.table({"query": [1]}), content)
    digest = hashlib.sha256(content.read_bytes()).hexdigest()[:16]
    content.rename(part.path.with_name(f"00000-{digest}.parquet"))
    run = runs.open(out)
    assert run.status().damaged == 1
    with pytest.raises(DataError, match="other columns"):
        run.table()
    assert start(out, nodes=[1, 2]).status().state == "finished"


def test_explanations_are_not_written_or_read_where_they_cannot_be(tmp_path, finished) -> None:
    explanation = runs.open(finished)[1]
    for kind in ("under a file", "a name that is too long", "a place where nothing can be made",
                 "a device", "nothing", "a zero byte"):  # fmt: skip
        folder = tmp_path / kind
        folder.mkdir()
        path = FOLDERS[kind](folder)
        with pytest.raises(GraphSVXError):
            explanation.save(path)
        with pytest.raises(GraphSVXError):
            explanation.to_html(path)
        with pytest.raises(GraphSVXError):
            Explanation.load(path)


def _copied(finished: Path, path: Path) -> Path:
    shutil.copytree(finished, path / "run")
    return path / "run"
