"""The lock of a run folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from graphsvx.errors import DataError
from graphsvx.runs.store import RunFolder

# A writer and its forked worker, which says its process id.
WRITER = """
import os, sys, time
from pathlib import Path
from graphsvx.runs.store import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(120)
"""


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
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        worker = int(writer.stdout.readline())
        try:
            assert folder.in_use()
            writer.kill()
            writer.wait()
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
