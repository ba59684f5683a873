"""Folders of raw data files and of checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path


def cache_dir() -> Path:
    """`graphsvx` in the user's cache directory (`~/.cache` on Linux, or XDG_CACHE_HOME)."""
    return user_cache_path("graphsvx", appauthor=False)


def data_dir(root: str | Path | None = None) -> Path:
    """Folder of the raw files of real data sets: `root`, else GRAPHSVX_DATA, else in the cache."""
    folder = root or os.environ.get("GRAPHSVX_DATA")
    return Path(folder) if folder else cache_dir() / "data"


def models_dir(root: str | Path | None = None) -> Path:
    """Folder of checkpoints: `root`, else GRAPHSVX_MODELS, else in the cache."""
    folder = root or os.environ.get("GRAPHSVX_MODELS")
    return Path(folder) if folder else cache_dir() / "models"
