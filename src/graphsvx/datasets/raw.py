"""Raw files of the real data sets: found in the data directory, or downloaded by PyG.

Files are read by PyG's own readers. Those of the citation sets are pickles, as their authors
published them, so take them from a place that you trust. Nothing is written into the data
directory but a download that is complete.
"""

from __future__ import annotations

import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torch_geometric.datasets import Planetoid, TUDataset

from graphsvx.datasets.folders import data_dir
from graphsvx.errors import DataError

T = TypeVar("T")
SECONDS_TO_CONNECT = 5


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one data set in PyG's layout: `<data directory>/<folder>/raw/<file>`."""

    folder: str
    files: tuple[str, ...]
    url: str
    download: Callable[[str], object]


def planetoid(folder: str) -> RawFiles:
    """The files of a citation set."""
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return RawFiles(
        folder=folder,
        files=tuple(f"ind.{folder.lower()}.{part}" for part in parts),
        url=Planetoid.url,
        download=lambda root: Planetoid(root, folder),
    )


def tu_dataset(folder: str) -> RawFiles:
    """The files of a set of molecules."""
    parts = ("A", "graph_indicator", "node_labels", "edge_labels", "graph_labels")
    return RawFiles(
        folder=folder,
        files=tuple(f"{folder}_{part}.txt" for part in parts),
        url=TUDataset.url,
        download=lambda root: TUDataset(root, folder),
    )


def read(wanted: RawFiles, root: str | Path | None, reader: Callable[[str, str], T]) -> T:
    """What `reader(raw folder, name)` makes of the files, which are downloaded if missing."""
    place = data_dir(root) / wanted.folder / "raw"
    if missing(wanted, place):
        _download(wanted, place)
    try:
        return reader(str(place), wanted.folder)
    # PyG's readers raise whatever the parser or the unpickler meets in a damaged file.
    except Exception as error:
        raise DataError(
            f"the files in {place} cannot be read ({type(error).__name__}: {error}); "
            f"remove them and put {_listed(wanted.files)} there again"
        ) from error


def missing(wanted: RawFiles, place: Path) -> list[str]:
    """The files that are not there."""
    return [name for name in wanted.files if not (place / name).is_file()]


def _download(wanted: RawFiles, place: Path) -> None:
    absent = missing(wanted, place)
    advice = (
        f"put {_listed(absent)} into {place}, or point GRAPHSVX_DATA to a folder "
        f"that has {wanted.folder}/raw"
    )
    try:
        # PyG's downloader waits for minutes where there is no network: ask briefly first.
        urllib.request.urlopen(wanted.url, timeout=SECONDS_TO_CONNECT).close()  # noqa: S310 - https, a constant of PyG
    except urllib.error.HTTPError:
        pass  # An answer, even "not found" for the bare folder, means that there is a network.
    except OSError as error:
        raise DataError(
            f"{wanted.folder}: {len(absent)} raw files are missing and {wanted.url} "
            f"cannot be reached; {advice}"
        ) from error
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=place.parent) as part:
            wanted.download(part)
            fetched = Path(part) / wanted.folder / "raw"
            place.mkdir(exist_ok=True)
            for name in wanted.files:
                (fetched / name).replace(place / name)
    # The network, the server's answer, the unpacking or the disk: all end in the same advice.
    except Exception as error:
        raise DataError(
            f"{wanted.folder}: the download from {wanted.url} failed ({error}); {advice}"
        ) from error


def _listed(files: list[str] | tuple[str, ...]) -> str:
    return ", ".join(files)
