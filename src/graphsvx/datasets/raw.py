"""Raw files of the real data sets: read from the data directory, or downloaded by PyG.

Files are read by PyG's own readers. Those of the citation sets are pickles, as published by their
authors, so use files from a trusted source only. Only complete downloads are moved into the data
directory.
"""

from __future__ import annotations

import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch_geometric.data import Data
from torch_geometric.datasets import Amazon, Planetoid, TUDataset
from torch_geometric.utils import remove_self_loops, to_undirected

from graphsvx.datasets.catalogue import raw_files
from graphsvx.datasets.folders import data_dir
from graphsvx.errors import DataError, see

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
    return _of_pyg(folder, Planetoid)


def tu_dataset(folder: str) -> RawFiles:
    """The files of a set of molecules."""
    return _of_pyg(folder, TUDataset)


def _of_pyg(folder: str, kind: type[Planetoid] | type[TUDataset]) -> RawFiles:
    return RawFiles(folder, raw_files(folder), kind.url, lambda root: kind(root, folder))


def amazon(name: str) -> RawFiles:
    """The file of a graph of products."""
    return RawFiles(
        folder=f"Amazon-{name}",
        files=raw_files(f"Amazon-{name}"),
        url=Amazon.url,
        download=lambda root: Amazon(f"{root}/Amazon-{name}", name),
    )


def read_amazon(folder: str, name: str) -> Data:
    """Features, undirected edges and classes of a graph of products, from plain arrays."""
    (file,) = raw_files(name)
    with np.load(Path(folder) / file, allow_pickle=False) as arrays:
        x, adjacency = (
            csr_matrix(
                (arrays[f"{part}_data"], arrays[f"{part}_indices"], arrays[f"{part}_indptr"]),
                arrays[f"{part}_shape"],
            )
            for part in ("attr", "adj")
        )
        labels = torch.from_numpy(arrays["labels"]).long()
    ends = adjacency.tocoo()
    edge_index = torch.from_numpy(np.stack([ends.row, ends.col])).long()
    return Data(
        x=torch.from_numpy((x.toarray() > 0).astype(np.float32)),
        edge_index=to_undirected(remove_self_loops(edge_index)[0]),
        y=labels,
    )


def read(raw_files: RawFiles, root: str | Path | None, reader: Callable[[str, str], T]) -> T:
    """The result of `reader(raw folder, name)`; files that are missing are downloaded first."""
    folder = data_dir(root) / raw_files.folder / "raw"
    if missing(raw_files, folder):
        _download(raw_files, folder)
    try:
        return reader(str(folder), raw_files.folder)
    # PyG's readers pass on any exception of the parser or unpickler for a damaged file.
    except Exception as error:
        raise DataError(
            f"the files in {folder} cannot be read ({type(error).__name__}: {error}); "
            f"remove them and put {', '.join(raw_files.files)} there again"
        ) from error


def missing(raw_files: RawFiles, folder: Path) -> list[str]:
    """Names of the files that do not exist in `folder`."""
    return [name for name in raw_files.files if not (folder / name).is_file()]


def _download(raw_files: RawFiles, folder: Path) -> None:
    absent = missing(raw_files, folder)
    advice = (
        f"put {', '.join(absent)} into {folder}, or point GRAPHSVX_DATA to a folder "
        f"that has {raw_files.folder}/raw"
    )
    try:
        # PyG's downloader blocks for minutes without a network: test with a short timeout first.
        urllib.request.urlopen(raw_files.url, timeout=SECONDS_TO_CONNECT).close()  # noqa: S310  (https, a constant of PyG)
    except urllib.error.HTTPError:
        pass  # Any HTTP answer, even 404 for the bare folder, means that the server is reachable.
    except OSError as error:
        raise DataError(
            f"{raw_files.folder}: {len(absent)} raw files are missing and {raw_files.url} "
            f"cannot be reached; {advice}{see('a-data-set-is-missing')}"
        ) from error
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as part:
            raw_files.download(part)
            downloaded = Path(part) / raw_files.folder / "raw"
            folder.mkdir(exist_ok=True)
            for name in raw_files.files:
                (downloaded / name).replace(folder / name)
    # Network, server, unpacking and disk errors all lead to the same advice.
    except Exception as error:
        raise DataError(
            f"{raw_files.folder}: the download from {raw_files.url} failed ({error}); {advice}"
        ) from error
