"""Paths as users give them, and files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphsvx.errors import DataError, InputError, first_line
from graphsvx.utils.constraints import shown


def as_path(path: Any, name: str = "path") -> Path:
    """A path from text or a `Path`; anything else is refused."""
    if not isinstance(path, (str, os.PathLike)) or not str(path) or "\0" in str(path):
        raise InputError(f"{name} must be a path, got {shown(path)}")
    return Path(path)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` only if the block succeeds.

    The temporary file has the same suffix and lies in the same folder, so that the final rename
    is atomic; it is removed on any error, Ctrl-C included. A file that cannot be written, in the
    block too, is a DataError.
    """
    path, part = as_path(path), None
    try:
        # Replace the target of a symbolic link, not the link (realpath allows circular links).
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            raise OSError("it is a folder or a device, not a file that can be replaced")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".part-", suffix=target.suffix, dir=target.parent)
        part = Path(name)
        os.close(handle)
        yield part
        # mkstemp makes private files; results should have the user's usual rights.
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)
        part.replace(target)
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise DataError(f"{path} cannot be written: {reason}; choose another file") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
