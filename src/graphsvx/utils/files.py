"""Atomic writes: a file appears complete or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` only if the block succeeds.

    The temporary file has the same suffix and lies in the same folder, so that the final rename
    is atomic; it is removed on any error, Ctrl-C included.
    """
    path = Path(path).resolve()  # behind a link, the file itself
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is a folder or a device, not a file that can be replaced")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".part-", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        # mkstemp makes private files; results should have the user's usual rights.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
