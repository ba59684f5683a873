from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def raw_folder() -> Callable[[str], Path]:
    """The raw files of a real data set, or a skip where they are not."""

    def find(folder: str) -> Path:
        root = os.environ.get("GRAPHSVX_DATA")
        if not root or not (Path(root) / folder / "raw").is_dir():
            pytest.skip(f"GRAPHSVX_DATA has no {folder}/raw")
        return Path(root) / folder / "raw"

    return find
