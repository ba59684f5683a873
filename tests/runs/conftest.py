from __future__ import annotations

import pytest

from graphsvx.runs import store as progress
from tests.runs import helpers


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """The run that was never interrupted, by one worker."""
    out = tmp_path_factory.mktemp("reference") / "run"
    return helpers.start(out, workers=1)


@pytest.fixture
def impatient(monkeypatch):
    """Small chunks, written at once: many moments to be killed at."""
    monkeypatch.setattr(progress, "CHUNK_SECONDS", 0.05)
    monkeypatch.setattr(progress, "_FLUSH_SECONDS", 0.05)
