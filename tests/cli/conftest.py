"""The command line as a shell runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from graphsvx import cli


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


HEAR_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
"""Code for children: the tests may have been started by a shell whose jobs ignore the signal."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line as a shell would, and give back exit code and output."""

    def command(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["graphsvx", *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        assert isinstance(code, int | None)
        return Ran(code or 0, captured.out, captured.err)

    return command
