"""Loaders of data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from graphsvx.errors import DataError
from graphsvx_lab.datasets import included, molecules, real, synthetic, typed
from graphsvx_lab.datasets.base import DataSet
from graphsvx_lab.datasets.catalogue import CATALOGUE, Statistics, checked_name
from graphsvx_lab.datasets.noise import with_noisy_features, with_noisy_nodes

Loader = Callable[[int, str | Path | None], DataSet]


def _without_files(build: Callable[[int], DataSet]) -> Loader:
    return lambda seed, _root: build(seed)


def _noisy(folder: str, add: Callable[[DataSet], DataSet]) -> Loader:
    return lambda seed, root: add(real.citation(folder, seed, root))


LOADERS: dict[str, Loader] = {
    "ba-shapes": _without_files(synthetic.ba_shapes),
    "ba-community": _without_files(synthetic.ba_community),
    "tree-cycles": _without_files(synthetic.tree_cycles),
    "tree-grid": _without_files(synthetic.tree_grid),
    "ba-2motifs": _without_files(synthetic.ba_2motifs),
    "karate": _without_files(included.karate),
    "les-miserables": _without_files(included.les_miserables),
    "southern-women": _without_files(included.southern_women),
    "digits": _without_files(included.digits),
    "mutag": real.mutag,
    "amazon-photo": real.amazon_photo,
    "acm": typed.acm,
    "fb15k-237": typed.fb15k_237,
    "typed-motifs": _without_files(typed.typed_motifs),
}
for _name in molecules.CLASS_NAMES:
    LOADERS[_name] = partial(molecules.molecules, _name)
for _name in molecules.WELL_KNOWN_CLASSES:
    LOADERS[_name] = _without_files(partial(molecules.well_known, _name))
for _folder in ("Cora", "CiteSeer", "PubMed"):
    LOADERS[_folder.lower()] = partial(real.citation, _folder)
for _folder in ("Cora", "CiteSeer", "PubMed"):
    LOADERS[f"{_folder.lower()}-noisy-features"] = _noisy(_folder, with_noisy_features)
    LOADERS[f"{_folder.lower()}-noisy-nodes"] = _noisy(_folder, with_noisy_nodes)
LOADERS = {name: LOADERS[name] for name in CATALOGUE}  # in the order of the list


def load(name: str, seed: int = 0, root: str | Path | None = None) -> DataSet:
    """The data set `name`; the same seed gives the same tensors bit for bit.

    `root` is the folder with the raw files of real sets, in PyG's layout; by default GRAPHSVX_DATA,
    else a folder in the user's cache. Missing files are downloaded into it.
    """
    return LOADERS[checked_name(name)](checked_seed(seed), root)


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
        edges=sum(int(graph.num_edges) for graph in dataset.graphs),
    )
