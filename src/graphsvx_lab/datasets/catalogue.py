"""The data sets by name: sizes, titles, loaders, folders and origins of their raw files.

Imports neither torch nor any data: loaders are named, and imported when they are needed.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from graphsvx.errors import DataError
from graphsvx.utils.printable import did_you_mean

if TYPE_CHECKING:
    from graphsvx_lab.datasets.base import DataSet

FEATURES_SUFFIX, NODES_SUFFIX = "-noisy-features", "-noisy-nodes"


@dataclass(frozen=True)
class Statistics:
    """Sizes of a data set; edges are directed, as in the paper's table of synthetic sets."""

    graphs: int
    classes: int
    nodes: int
    features: int
    edges: int


@dataclass(frozen=True)
class Listed:
    """A data set in the list of all of them.

    loader: module and function that make it from its name, the seed and the data directory.
    sizes: those of seed 0, None where they are not known without loading it.
    truth: what the ground truth explanations are, None where there are none.
    folder: folder of its raw files, None for sets that need none.
    extra: the extra that is needed to read it.
    title: its name in tables and figures, where it is another one.
    about: what it is, in a sentence, for sets that come with the project.
    """

    loader: str
    sizes: Statistics | None
    truth: str | None = None
    folder: str | None = None
    extra: str | None = None
    title: str | None = None
    about: str = ""


def table_rows(name: str) -> list[dict[str, str]]:
    """The rows of a table of this package: texts by column."""
    table = Path(__file__).parents[1] / f"{name}.csv"
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _listed(loader: str, about: str, **texts: str) -> Listed:
    """A row of `catalogue.csv`: sizes are empty where they are unknown, others where none apply."""
    numbers = [texts.pop(size.name) for size in fields(Statistics)]
    sizes = Statistics(*map(int, numbers)) if all(numbers) else None
    return Listed(
        loader, sizes, about=about, **{name: text or None for name, text in texts.items()}
    )


PAPER_STATISTICS: dict[str, Statistics] = {
    row.pop("name"): Statistics(**{size: int(count) for size, count in row.items()})
    for row in table_rows("datasets/paper")
}
"""The paper's appendix, tables of statistics; for citation sets it counts undirected edges."""
CATALOGUE: dict[str, Listed] = {
    row.pop("name"): _listed(**row) for row in table_rows("datasets/catalogue")
}


def names() -> tuple[str, ...]:
    """All names that `load` accepts."""
    return tuple(CATALOGUE)


def load(name: str, seed: int = 0, root: str | Path | None = None) -> DataSet:
    """The data set `name`; the same seed gives the same tensors bit for bit.

    Args:
        name: one of `names()`.
        seed: of generated graphs and noise, and of the split.
        root: the folder with the raw files of real sets, in PyG's layout; by default
            GRAPHSVX_DATA, else a folder in the user's cache. Missing files are downloaded into it.

    Returns:
        Graphs with `x` [nodes, features], `edge_index` [2, edges] and `y`, with their classes,
        split and, where it is known, ground truth.

    """
    module, function = CATALOGUE[checked_name(name)].loader.split(".")
    loader = getattr(import_module(f"graphsvx_lab.datasets.{module}"), function)
    return loader(name, checked_seed(seed), root)


def statistics(dataset: DataSet) -> Statistics:
    """Sizes of a loaded data set, edges counted in both directions.

    Args:
        dataset: what `load` returned.

    Returns:
        Numbers of graphs, classes, nodes, feature columns and edges, summed over the graphs.

    """
    return Statistics(
        graphs=len(dataset.graphs),
        classes=dataset.classes,
        nodes=sum(int(graph.num_nodes) for graph in dataset.graphs),
        features=dataset.features,
        edges=sum(int(graph.num_edges) for graph in dataset.graphs),
    )


def checked_name(name: object) -> str:
    """`name` if it is a data set, else an error that suggests one."""
    if name in names():
        return str(name)
    shown = " ".join(repr(name).split())
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    raise DataError(f"unknown data set {shown}; {suggestion(str(name))}")


def suggestion(name: str) -> str:
    """The data set that was probably meant, and all that there are, as part of a message."""
    return f"{did_you_mean(name, CATALOGUE)}choose one of: {', '.join(CATALOGUE)}"


def checked_seed(seed: int) -> int:
    """`seed` if it is an integer of at least 0, else an error."""
    if type(seed) is not int or seed < 0:
        raise DataError(f"the seed must be an integer of at least 0, got {seed!r}")
    return seed


def clean_name(name: str) -> str:
    """The name of the data set that noise was added to."""
    return name.partition("-noisy-")[0]


# --- titles in tables and figures --------------------------------------------------------------

TRUTH_SETS = tuple(PAPER_STATISTICS)[:6]
"""Data sets with a known explanation, in the paper's order."""
TRUTH_TITLES = {name: CATALOGUE[name].title or name for name in TRUTH_SETS}
NODE_SETS, GRAPH_SETS = TRUTH_SETS[:4], TRUTH_SETS[4:]
NODE_TITLES = tuple(TRUTH_TITLES[name] for name in NODE_SETS)


def data_title(dataset: str, model: str = "") -> str:
    """`Cora, GAT`: a data set and, unless it is the usual one, the model."""
    clean = clean_name(dataset)
    title = CATALOGUE[clean].title or clean if clean in CATALOGUE else clean
    shown = model.replace("gcn", "GCN").replace("gat", "GAT")
    return ", ".join(part for part in (title, shown) if part)


# --- folders and origins of raw files ----------------------------------------------------------


def cache_dir() -> Path:
    """`graphsvx` in the user's cache directory (`~/.cache` on Linux, or XDG_CACHE_HOME)."""
    return user_cache_path("graphsvx", appauthor=False)


def data_dir(root: str | Path | None = None) -> Path:
    """Folder of the raw files of real data sets.

    Args:
        root: a folder; by default GRAPHSVX_DATA, or else one in the user's cache.

    Returns:
        The folder, whether it exists or not.

    """
    return Path(root or os.environ.get("GRAPHSVX_DATA") or cache_dir() / "data")


def models_dir(root: str | Path | None = None) -> Path:
    """Folder of checkpoints.

    Args:
        root: a folder; by default GRAPHSVX_MODELS, or else one in the user's cache.

    Returns:
        The folder, whether it exists or not.

    """
    return Path(root or os.environ.get("GRAPHSVX_MODELS") or cache_dir() / "models")


@dataclass(frozen=True)
class Origin:
    """Where the files of a data set come from.

    url: address of the folder that has the downloads.
    downloads: names of the files and zip archives that are fetched.
    files: what is kept, below the folder of the data set: the downloads, or made from them.
    licence: what the source says of itself.
    sha256: of the contents of `files` (`raw.sha256`); None where no copy was there to take it from.
    """

    url: str
    downloads: tuple[str, ...]
    files: tuple[str, ...]
    licence: str
    sha256: str | None


def _origin(url: str, downloads: str, files: str, licence: str, sha256: str) -> Origin:
    """A row of `origins.csv`: without files, the downloads are kept below `raw`."""
    names = tuple(downloads.split())
    paths = tuple(files.split()) or tuple(f"raw/{name}" for name in names)
    return Origin(url, names, paths, licence, sha256 or None)


ORIGINS: dict[str, Origin] = {
    row.pop("name"): _origin(**row) for row in table_rows("datasets/origins")
}


def origin_of(name: str) -> Origin | None:
    """Source of a data set, of a citation set with noise too; None for synthetic sets."""
    return ORIGINS.get(clean_name(name))


def data_files(name: str) -> tuple[str, ...]:
    """Files of a data set, below the data directory; none for sets that need none."""
    origin = origin_of(name)
    return tuple(f"{CATALOGUE[name].folder}/{file}" for file in origin.files) if origin else ()
