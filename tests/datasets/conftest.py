from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def raw_folder() -> Callable[[str], Path]:
    """The raw files of a real data set, for a test marked `data` with this folder."""
    return lambda folder: Path(os.environ["GRAPHSVX_DATA"]) / folder / "raw"
