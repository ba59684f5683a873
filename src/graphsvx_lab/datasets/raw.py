"""Files of the real data sets: found in the data directory, or downloaded into it.

A download is held in memory until it is complete and its contents are those expected, and every
file is written whole or not at all. Several processes may therefore download the same set at the
same time. Those of the citation sets are pickles, as published by their authors: they are unpickled
by PyG's reader, after the check.
"""

from __future__ import annotations

import hashlib
import io
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError

import numpy as np
from numpy.typing import NDArray
from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

from graphsvx.errors import DataError, first_line, see
from graphsvx.utils.console import progress_bar
from graphsvx.utils.files import atomic_write
from graphsvx_lab.datasets.catalogue import CATALOGUE, ORIGINS, Origin, data_dir, data_files

T = TypeVar("T")
_FAQ = see("a-data-set-is-missing")
Contents = Mapping[str, bytes]
"""Contents of files by name."""
TIMEOUT = 10.0
"""Seconds without any data after which a download is given up."""


def read_files(name: str, root: str | Path | None, reader: Callable[[str, str], T]) -> T:
    """The result of `reader(raw folder, its name)` for files in PyG's layout.

    They are checked each time, because a pickle of another origin could run any code.
    """
    folder = folder_of(name, root)
    try:
        _check(name, {file: (folder / file).read_bytes() for file in ORIGINS[name].files})
        return reader(str(folder / "raw"), folder.name)
    # PyG's readers pass on any exception of the parser or unpickler for a damaged file.
    except Exception as error:
        raise DataError(
            f"the files in {folder} cannot be used ({type(error).__name__}: {first_line(error)}); "
            f"remove them, and they are downloaded again{_FAQ}"
        ) from error


def folder_of(
    name: str, root: str | Path | None, convert: Callable[[Contents], Contents] | None = None
) -> Path:
    """The folder of a data set with all its files; missing ones are downloaded first.

    `convert` makes the files from the downloads; without it the downloads are the files. Downloads
    that are in the subfolder `raw` already are taken from there.
    """
    origin, folder = ORIGINS[name], data_dir(root) / str(CATALOGUE[name].folder)
    absent = [file for file in origin.files if not (folder / file).is_file()]
    if absent:
        downloads = _downloads(name, origin, folder / "raw")
        try:
            contents = convert(downloads) if convert else _in_raw(downloads)
            contents = {file: contents[file] for file in origin.files}
            _check(name, contents)
        # Any exception of a parser, for a damaged download.
        except Exception as error:
            raise DataError(
                f"{name}: what came from {origin.url} cannot be used "
                f"({type(error).__name__}: {first_line(error)}) and is not kept; try again, "
                f"without downloads in {folder / 'raw'}{_FAQ}"
            ) from error
        for file in absent:
            with atomic_write(folder / file) as part:
                part.write_bytes(contents[file])
    return folder


def sha256(contents: Contents) -> str:
    """SHA-256 of what files say: of the numbers in arrays, the words of texts, else the bytes.

    So that neither compression nor line ends matter.
    """
    total = hashlib.sha256()
    for name in sorted(contents):
        total.update(f"{name}\n".encode())
        if name.endswith(".npz"):
            for key, array in sorted(_numbers(contents[name]).items()):
                total.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
                total.update(array.tobytes())
        elif name.endswith((".txt", ".csv")):
            total.update(b"\n".join(contents[name].split()))
        else:
            total.update(contents[name])
    return total.hexdigest()


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file, none of them a pickle."""
    with readable(path), np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever is wrong with a file as a DataError."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); put it there again") from error


def _numbers(content: bytes) -> dict[str, NDArray[np.generic]]:
    """The numeric arrays of an npz file; names, which may be pickles, are left out."""
    numbers = {}
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        for key in file.files:
            with suppress(ValueError):  # an array of pickles
                numbers[key] = file[key]
    return {key: array for key, array in numbers.items() if array.dtype.kind in "biuf"}


def _check(name: str, contents: Contents) -> None:
    expected, actual = ORIGINS[name].sha256, sha256(contents)
    if expected not in (None, actual):
        raise DataError(f"its sha256 is {actual[:12]}..., not the published {expected[:12]}...")


def _in_raw(downloads: Contents) -> Contents:
    """Downloads, and the files in archives, by their names below the folder of the data set."""
    files = {}
    for name, content in downloads.items():
        if name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for file in archive.namelist():
                    files[f"raw/{PurePosixPath(file).name}"] = archive.read(file)
        else:
            files[f"raw/{name}"] = content
    return files


def _downloads(name: str, origin: Origin, folder: Path) -> Contents:
    title = TextColumn("{task.description}")
    columns = (title, BarColumn(), DownloadColumn(), TransferSpeedColumn())
    absent = [file for file in origin.downloads if not (folder / file).is_file()]
    try:
        with progress_bar(*columns, shown=sys.stderr.isatty()) as bar:
            return {
                file: _download(f"{origin.url}/{file}", bar)
                if file in absent
                else (folder / file).read_bytes()
                for file in origin.downloads
            }
    except (OSError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        cause = error.reason if type(error) is URLError else error
        reason = f"no data for {TIMEOUT:g} s" if isinstance(cause, TimeoutError) else str(cause)
        converted = [file for file in data_files(name) if Path(file).name not in origin.downloads]
        raise DataError(
            f"{name}: files are missing and cannot be downloaded from {origin.url} ({reason}); "
            f"put {', '.join(absent)} from there into {folder}, or point GRAPHSVX_DATA to a folder "
            f"that has {', '.join(converted) or 'them'}{_FAQ}"
        ) from error


def _download(url: str, bar: Any) -> bytes:
    content = bytearray()
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310  (addresses of ours)
        size = int(answer.headers.get("Content-Length") or 0)
        task = bar.add_task(url.rpartition("/")[2], total=size or None)
        while block := answer.read(1 << 16):
            content += block
            bar.advance(task, len(block))
    if len(content) < size:
        raise OSError(f"the connection ended after {len(content):,} of {size:,} bytes")
    return bytes(content)
