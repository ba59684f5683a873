"""Whatever happens to a run, the finished one has the same bits."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from graphsvx import runs
from graphsvx.errors import DataError
from graphsvx.results import serialize
from graphsvx.runs import store as running
from graphsvx.runs.backends import Chunk, Job, LostChunk
from tests.runs import helpers
from tests.runs.helpers import (
    alive,
    children,
    in_a_process,
    mode,
    names,
    same_rows,
    start,
    wait_until,
)
from tests.worlds import random_graph, random_model


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_no_bit(tmp_path, reference, workers, impatient) -> None:
    start(tmp_path / "run", workers)
    assert names(tmp_path / "run") == names(reference.folder)
    assert list((tmp_path / "run" / "pieces").iterdir()) == []


def test_a_run_killed_six_times_at_random_gives_the_same_table(
    tmp_path, reference, impatient
) -> None:
    out, rng, orphans = tmp_path / "run", random.Random(7), []
    for kill in range(6):
        before = _files(out)
        with mode(delay=0.1):
            child = in_a_process(lambda: start(out))
        if kill % 2:  # just after something was written
            wait_until(lambda known=before: _files(out) != known)
            time.sleep(rng.uniform(0.0, 0.1))
        else:
            time.sleep(rng.uniform(0.0, 0.4))
        orphans += children(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL, "finished before it could be killed"
        if (out / "run.json").exists():
            _rows_are_the_reference_s(out, reference)
    assert 0 < runs.open(out).status().done < helpers.NODES
    run = start(out)
    assert run.status().state == "finished"
    assert names(out) == names(reference.folder)
    assert list(out.rglob(".part-*")) == []
    wait_until(lambda: not any(alive(pid) for pid in orphans))


def _files(out) -> list[str]:
    return sorted(path.name for path in out.glob("p*s/*.parquet"))


def _rows_are_the_reference_s(out, reference) -> None:
    rows = runs.open(out).table()
    there = np.isin(reference.table()["query"].to_numpy(), rows["query"].to_numpy())
    assert same_rows(rows, reference.table().filter(there))


def test_finished_queries_are_not_computed_again(tmp_path, impatient) -> None:
    with mode(wrong=tuple(range(helpers.NODES))):
        start(tmp_path / "run")
    run = start(tmp_path / "run")  # would succeed now, but nobody asked for a retry
    assert run.status().failed == helpers.NODES


def test_workers_die_one_by_one(tmp_path, reference, impatient) -> None:
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    with mode(deaths=deaths):
        run = start(tmp_path / "run")
    assert len(list(deaths.iterdir())) == 16
    assert run.failures() == {}
    assert names(tmp_path / "run") == names(reference.folder)


def test_a_query_that_kills_every_worker_is_a_failure_of_its_own(tmp_path, reference) -> None:
    with mode(deadly=(11,)):
        run = start(tmp_path / "run")
    assert list(run.failures()) == [11]
    assert "lost 3 times" in run.failures()[11]
    with pytest.raises(DataError, match="lost 3 times"):
        run[11]
    assert serialize.same(run[12], reference[12])


@dataclass(frozen=True)
class Losing:
    """A backend whose workers die of what it knows."""

    reason: str

    def answers(self, job: Job, take: Callable[[], Chunk | None]) -> Iterator[LostChunk]:
        while (chunk := take()) is not None:
            yield LostChunk(chunk, self.reason)


def test_a_failure_says_what_its_workers_died_of(tmp_path) -> None:
    backend = Losing("the node ran out of memory")
    run = runs.start(
        random_model("gcn", 1), random_graph(1), [3], out=tmp_path / "run", backend=backend
    )
    assert "lost 3 times: the node ran out of memory" in run.failures()[3]


def test_failures_are_recorded_and_tried_again_on_request(tmp_path, reference) -> None:
    out = tmp_path / "run"
    with mode(wrong=(0, 5, 47)):
        run = start(out)
    assert run.failures() == {
        node: f"ModelError: node {node} is not in the mood" for node in (0, 5, 47)
    }
    now = run.status()
    assert (now.state, now.done, now.failed, now.left) == ("finished", 45, 3, 0)
    assert len(list(run)) == 45
    with mode(wrong=(5,)):
        assert list(start(out, retry_failed=True).failures()) == [5]
    start(out, retry_failed=True)
    assert names(out) == names(reference.folder)


def test_a_run_killed_between_merging_and_removing_files_resumes(tmp_path, reference) -> None:
    out = tmp_path / "run"
    shutil.copytree(reference.folder, out)
    run = runs.open(out)
    store = run._store
    part = store.files(2)[0]
    store.keep(2, part.read().slice(0, 3), finished=False)
    assert same_rows(run.table(), reference.table())
    start(out)
    assert names(out) == names(reference.folder)
    assert list((out / "pieces").iterdir()) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_part_is_found_and_made_again(tmp_path, reference, damage, capsys) -> None:
    out = tmp_path / "run"
    shutil.copytree(reference.folder, out)
    run = runs.open(out)
    victim = out / "parts" / names(out)[3]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes({"flip": bytes(content), "cut": bytes(content[:-9]), "empty": b""}[damage])
    with pytest.raises(DataError, match=r"damaged.*started again"):
        run.table()
    now = run.status()
    assert (now.state, now.done, now.left) == (
        "stopped",
        helpers.NODES - helpers.PART,
        helpers.PART,
    )
    assert now.damaged == 1
    assert serialize.same(run[0], reference[0])  # the others are still there
    start(out, progress=True)
    assert "answered anew" in capsys.readouterr().err
    assert (run.status().state, run.status().damaged) == ("finished", 0)
    assert names(out) == names(reference.folder)


def _mounted(path, size: str, *more: str) -> bool:
    path.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join([*more, f"size={size}"]), "tmpfs", str(path)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_a_full_disk(tmp_path, reference, impatient) -> None:
    disk = tmp_path / "disk"
    if os.getuid() != 0 or not _mounted(disk, "128k"):
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        with mode(delay=0.01), pytest.raises(DataError, match=r"No space left.*goes on"):
            start(disk / "run")
        run = runs.open(disk / "run")
        assert 0 < run.status().done < helpers.NODES
        assert run.status().state == "stopped"
        _rows_are_the_reference_s(disk / "run", reference)
        assert _mounted(disk, "8m", "remount")
        start(disk / "run")
        assert names(disk / "run") == names(reference.folder)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_as_the_system_says_it(tmp_path, reference, impatient, monkeypatch) -> None:
    real, calls = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 8:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left"):
        start(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", real)
    assert list(tmp_path.rglob(".part-*")) == []
    _rows_are_the_reference_s(tmp_path / "run", reference)
    start(tmp_path / "run")
    assert names(tmp_path / "run") == names(reference.folder)


def test_a_run_has_one_writer_and_any_number_of_readers(tmp_path, impatient) -> None:
    out = tmp_path / "run"
    with mode(delay=0.1):
        child = in_a_process(lambda: start(out))
    try:
        # A rate needs two explanations.
        wait_until(lambda: (out / "run.json").exists() and runs.open(out).status().rate is not None)
        assert runs.open(out).status().state == "running"
        with pytest.raises(DataError, match="another process"):
            start(out)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    assert runs.open(out).status().state == "stopped"


def test_stopping_leaves_no_process_and_keeps_what_is_done(tmp_path, monkeypatch) -> None:
    class Enough(running._Meter):
        def show(self) -> None:
            super().show()
            if self._progress.done.sum() >= 10:
                raise KeyboardInterrupt

    monkeypatch.setattr(running, "_Meter", Enough)
    before = set(children(os.getpid()))
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "run")
    assert set(children(os.getpid())) == before
    # Nothing was written yet when it stopped, and yet nothing that had come is lost.
    assert runs.open(tmp_path / "run").status().done >= 10
