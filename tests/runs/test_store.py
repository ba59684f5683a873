"""The lock of a run folder."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from graphsvx.errors import DataError
from graphsvx.runs.store import RunFolder
from tests.runs.helpers import in_a_process


def _write(path: Path, said: Connection) -> None:
    """A writer and its forked worker, which says its process id."""
    with RunFolder(path).locked():
        if os.fork() == 0:
            said.send(os.getpid())
        time.sleep(120)


def test_only_one_writer_at_a_time(tmp_path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert not folder.in_use()
    with folder.locked():
        assert folder.in_use()
        with (
            pytest.raises(DataError, match=f"another process is working on {folder.path}"),
            folder.locked(),
        ):
            pass
        assert folder.in_use()
    assert not folder.in_use()
    with folder.locked():
        assert folder.in_use()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_writer_frees_the_folder_though_its_worker_lives(tmp_path) -> None:
    folder = RunFolder(tmp_path)
    heard, said = Pipe(duplex=False)
    with heard, said:
        writer = in_a_process(lambda: _write(tmp_path, said))
        worker = heard.recv()
    try:
        assert folder.in_use()
        writer.kill()
        writer.join()
        os.kill(worker, 0)  # it lives
        assert not folder.in_use()
        with folder.locked():
            assert folder.in_use()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_the_state_of_a_run_is_read_without_write_access(tmp_path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        pass
    (folder.path / "lock").chmod(0o444)
    assert not folder.in_use()
