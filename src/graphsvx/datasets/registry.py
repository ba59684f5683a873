"""Loaders of data sets by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from graphsvx.datasets import real, synthetic
from graphsvx.datasets.base import DataSet
from graphsvx.datasets.noise import with_noisy_features, with_noisy_nodes
from graphsvx.errors import DataError
from graphsvx.utils.constraints import shown

Loader = Callable[[int, str | Path | None], DataSet]


@dataclass(frozen=True)
class Statistics:
    """Sizes of a data set; edges are directed, as in the paper's table of synthetic sets."""

    graphs: int
    classes: int
    nodes: int
    features: int
    edges: int


# The paper's appendix, tables of statistics; for citation sets it counts undirected edges.
PAPER_STATISTICS: dict[str, Statistics] = {
    "ba-shapes": Statistics(1, 4, 700, 10, 4110),
    "ba-community": Statistics(1, 8, 1400, 10, 8920),
    "tree-cycles": Statistics(1, 2, 871, 10, 1950),
    "tree-grid": Statistics(1, 2, 1231, 10, 3410),
    "ba-2motifs": Statistics(1000, 2, 25000, 10, 51392),
    "mutag": Statistics(4337, 2, 131488, 14, 266894),
    "cora": Statistics(1, 7, 2708, 1433, 5429),
    "pubmed": Statistics(1, 3, 19717, 500, 44338),
}


def _synthetic(build: Callable[[int], DataSet]) -> Loader:
    return lambda seed, _root: build(seed)


def _noisy(folder: str, add: Callable[[DataSet], DataSet]) -> Loader:
    return lambda seed, root: add(real.citation(folder, seed, root))


LOADERS: dict[str, Loader] = {
    "ba-shapes": _synthetic(synthetic.ba_shapes),
    "ba-community": _synthetic(synthetic.ba_community),
    "tree-cycles": _synthetic(synthetic.tree_cycles),
    "tree-grid": _synthetic(synthetic.tree_grid),
    "ba-2motifs": _synthetic(synthetic.ba_2motifs),
    "mutag": real.mutag,
}
for _folder in ("Cora", "CiteSeer", "PubMed"):
    LOADERS[_folder.lower()] = partial(real.citation, _folder)
for _folder in ("Cora", "CiteSeer", "PubMed"):
    LOADERS[f"{_folder.lower()}-noisy-features"] = _noisy(_folder, with_noisy_features)
    LOADERS[f"{_folder.lower()}-noisy-nodes"] = _noisy(_folder, with_noisy_nodes)


def names() -> tuple[str, ...]:
    """All names that `load` accepts."""
    return tuple(LOADERS)


def load(name: str, seed: int = 0, root: str | Path | None = None) -> DataSet:
    """The data set `name`; the same seed gives the same tensors bit for bit.

    `root` is the folder with the raw files of real sets, in PyG's layout; by default GRAPHSVX_DATA,
    else a folder in the user's cache. Missing files are downloaded into it.
    """
    loader = LOADERS.get(checked_name(name))
    if loader is None:  # cannot happen: checked_name raises first
        raise DataError(f"no loader for {name!r}")
    return loader(checked_seed(seed), root)


def checked_name(name: str) -> str:
    """`name` if it is a data set, else an error that suggests one."""
    if isinstance(name, str) and name in LOADERS:
        return name
    close = difflib.get_close_matches(str(name).lower(), LOADERS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise DataError(f"unknown data set {shown(name)}; {hint}choose one of: {', '.join(LOADERS)}")


def checked_seed(seed: int) -> int:
    """`seed` if it is an integer of at least 0, else an error."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise DataError(f"the seed must be an integer of at least 0, got {seed!r}")
    return seed


def statistics(dataset: DataSet) -> Statistics:
    """Sizes of a loaded data set, edges counted in both directions."""
    return Statistics(
        graphs=len(dataset.graphs),
        classes=dataset.classes,
        nodes=sum(int(graph.num_nodes) for graph in dataset.graphs),
        features=dataset.features,
        edges=sum(int(graph.edge_index.shape[1]) for graph in dataset.graphs),
    )
