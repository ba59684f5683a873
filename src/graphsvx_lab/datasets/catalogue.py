"""The data sets by name: sizes, titles, loaders, folders and origins of their raw files.

Imports neither torch nor any data: loaders are named, and imported when they are needed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
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
    about: what it is, in a sentence, for sets that come with the project.
    """

    loader: str
    sizes: Statistics | None
    truth: str | None = None
    folder: str | None = None
    extra: str | None = None
    about: str = ""


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


def _included(loader: str, about: str, *sizes: int, truth: str | None = None) -> Listed:
    return Listed(loader, Statistics(1, *sizes), truth, about=about)


def _well_known(truth: str, question: str, classes: int, nodes: int, edges: int) -> Listed:
    sizes, about = Statistics(505, classes, nodes, 13, edges), f"Well-known molecules: {question}"
    return Listed("molecules.well_known", sizes, truth, extra="molecules", about=about)


def _in_files(truth: str, *sizes: int) -> Listed:
    return Listed("molecules.molecules", Statistics(*sizes), truth, "Molecules", "molecules")


def _citation(folder: str, *sizes: int) -> Listed:
    return Listed("real.citation", Statistics(1, *sizes) if sizes else None, folder=folder)


_SYNTHETIC = {
    "ba-shapes": ("house", "Houses attached to a random graph: which place in a house has a node?"),
    "ba-community": (
        "house", "Two graphs of houses with features of their own, joined by random edges."),
    "tree-cycles": (
        "cycle", "Rings of six nodes attached to a binary tree: is a node in a ring?"),
    "tree-grid": (
        "grid", "Grids of three by three nodes attached to a binary tree: is a node in a grid?"),
    "ba-2motifs": ("house or 5-cycle",
                   "Random graphs, each with a house or a ring of five nodes: which one is it?"),
}  # fmt: skip
"""The ground truth of the paper's synthetic sets, and what they are."""
CATALOGUE: dict[str, Listed] = {
    **{
        name: Listed(
            f"synthetic.{name.replace('-', '_')}", PAPER_STATISTICS[name], truth, about=about
        )
        for name, (truth, about) in _SYNTHETIC.items()
    },
    "typed-motifs": _included(
        "typed.typed_motifs",
        "Users, items and tags (a typed graph): one relation alone decides the classes.",
        *(2, 664, 4, 8480),
        truth="relation",
    ),
    "karate": _included(
        "included.karate",
        "Members of a karate club that split in two: whom did each follow?",
        *(2, 34, 34, 156),
    ),
    "les-miserables": _included(
        "included.les_miserables",
        "Characters of Les Misérables, by the chapters they share: which circle is each in?",
        *(5, 77, 77, 508),
    ),
    "southern-women": _included(
        "included.southern_women",
        "Women and the social events they went to (a typed graph): which circle is each in?",
        *(2, 32, 1, 178),
    ),
    "digits": _included(
        "included.digits",
        "Handwritten digits of 8 x 8 pixels, joined to their neighbours: which is it?",
        *(10, 1797, 64, 12618),
    ),
    "molecules-aromatic": _well_known(
        "aromatic ring", "does each have an aromatic ring?", 2, 7224, 14820
    ),
    "molecules-carbonyl": _well_known(
        "carbonyl", "does each have a carbonyl group?", 2, 7224, 14820
    ),
    "molecules-logp": _well_known(
        "atom contributions", "Crippen's logP, a sum of contributions of atoms.", 1, 14566, 29504
    ),
    # Those above need no files.
    "mutag": Listed("real.mutag", PAPER_STATISTICS["mutag"], "NO2 or NH2", "Mutagenicity"),
    "benzene": _in_files("benzene ring", 12000, 2, 246993, 13, 523842),
    "alkane-carbonyl": _in_files("fluoride and carbonyl", 4326, 2, 91393, 13, 194450),
    "crippen": _in_files("atom contributions", 1127, 1, 28914, 13, 58704),
    "acm": Listed("typed.acm", Statistics(1, 3, 11246, 1902, 34852), folder="ACM"),
    "fb15k-237": Listed("typed.fb15k_237", Statistics(1, 2, 14541, 0, 544230), folder="FB15k-237"),
    "amazon-photo": Listed(
        "real.amazon_photo", Statistics(1, 8, 7650, 745, 238162), folder="Amazon-Photo"
    ),
    "cora": _citation("Cora", 7, 2708, 1433, 10556),
    "citeseer": _citation("CiteSeer", 6, 3327, 3703, 9104),
    "pubmed": _citation("PubMed", 3, 19717, 500, 88648),
    "cora-noisy-features": _citation("Cora", 7, 2708, 1720, 10556),
    "cora-noisy-nodes": _citation("Cora", 7, 3249, 1433, 19440),
    "citeseer-noisy-features": _citation("CiteSeer", 6, 3327, 4444, 9104),
    "citeseer-noisy-nodes": _citation("CiteSeer", 6, 3992, 3703, 12688),
    "pubmed-noisy-features": _citation("PubMed"),
    "pubmed-noisy-nodes": _citation("PubMed"),
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

TRUTH_TITLES = {
    "ba-shapes": "BA-Shapes",
    "ba-community": "BA-Community",
    "tree-cycles": "Tree-Cycles",
    "tree-grid": "Tree-Grid",
    "ba-2motifs": "BA-2motifs",
    "mutag": "MUTAG",
}
"""Data sets with a known explanation, in the paper's order."""
TRUTH_SETS = tuple(TRUTH_TITLES)
NODE_SETS, GRAPH_SETS = TRUTH_SETS[:4], TRUTH_SETS[4:]
NODE_TITLES = tuple(TRUTH_TITLES[name] for name in NODE_SETS)
_NAMED_AFTER_FOLDERS = ("cora", "citeseer", "pubmed", "amazon-photo")


def data_title(dataset: str, model: str = "") -> str:
    """`Cora, GAT`: a data set and, unless it is the usual one, the model."""
    clean = clean_name(dataset)
    title = CATALOGUE[clean].folder if clean in _NAMED_AFTER_FOLDERS else TRUTH_TITLES.get(clean)
    shown = model.replace("gcn", "GCN").replace("gat", "GAT")
    return ", ".join(part for part in (title or clean, shown) if part)


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


def _planetoid(name: str, sha256: str | None) -> Origin:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    downloads = tuple(f"ind.{name}.{part}" for part in parts)
    url = "https://github.com/kimiyoung/planetoid/raw/master/data"
    return Origin(url, downloads, tuple(f"raw/{file}" for file in downloads), "MIT", sha256)


def _attribution(name: str, folder: str, sha256: str) -> Origin:
    return Origin(
        url=f"https://raw.githubusercontent.com/google-research/graph-attribution/main/data/{folder}",
        downloads=(f"{folder}_smiles.csv", f"{folder}_traintest_indices.npz"),
        files=(f"{name}.csv",),
        licence="Apache-2.0; a part of ZINC12, with its author's permission",
        sha256=sha256,
    )


_PARTS = ("A", "graph_indicator", "node_labels", "edge_labels", "graph_labels")
ORIGINS: dict[str, Origin] = {
    "cora": _planetoid("cora", "ea09bc6de26576365fa1d693174cde92d61d4517b088112e54ee6840cfd1d059"),
    "citeseer": _planetoid(
        "citeseer", "510dfff3b8e3057f967b5e075c1f50b1d0d5a0b60a17a6226e260f78e92d2ac0"
    ),
    "pubmed": _planetoid("pubmed", None),
    "amazon-photo": Origin(
        url="https://github.com/shchur/gnn-benchmark/raw/master/data/npz",
        downloads=("amazon_electronics_photo.npz",),
        files=("raw/amazon_electronics_photo.npz",),
        licence="MIT",
        sha256="5f6a0122955add27444f628d630174a7287990b8ed6df390c28a7a08815e45c7",
    ),
    "mutag": Origin(
        url="https://www.chrsmrrs.com/graphkerneldatasets",
        downloads=("Mutagenicity.zip",),
        files=tuple(f"raw/Mutagenicity_{part}.txt" for part in _PARTS),
        licence="none stated",
        sha256="7252fedbdebc1f142a4491bbef390458f681cf13a6160cf8f3990128abb9f6cb",
    ),
    "acm": Origin(
        url="https://github.com/liun-online/HeCo/raw/main/data/acm",
        downloads=(
            *("p_feat.npz", "labels.npy", "pa.txt", "ps.txt"),
            *("train_60.npy", "val_60.npy", "test_60.npy"),
        ),
        files=("acm.npz",),
        licence="none stated",
        sha256="16a8c75061277739b8c922f5340d66c33ce4b8da10403a77eae4e2ce2f46cf3a",
    ),
    "fb15k-237": Origin(
        url="https://raw.githubusercontent.com/villmow/datasets_knowledge_embedding/master/FB15k-237",
        downloads=("train.txt", "valid.txt", "test.txt"),
        files=("triples.npz", "entities.txt", "relations.txt"),
        licence="none stated; Freebase is CC BY 2.5",
        sha256="60de3c1c474203fafc29ad801b493e6183e6b632c0b05d3294ae9b329ad59147",
    ),
    "benzene": _attribution(
        "benzene", "benzene", "14c8005911a0b4507afa311e90143afd1be23349b756ede449e5727a9c86956d"
    ),
    "alkane-carbonyl": _attribution(
        "alkane-carbonyl",
        "logic7",
        "1e9c79cdf2251ec52a483d27530c67930f9d9e7e98bb75cb285bf2f6626fb40b",
    ),
    "crippen": _attribution(
        "crippen", "crippen", "b2788a6665b810827d6dad0f2e78f435aff59e5b128ba3ddefb96c45361d15ac"
    ),
}


def origin_of(name: str) -> Origin | None:
    """Source of a data set, of a citation set with noise too; None for synthetic sets."""
    return ORIGINS.get(clean_name(name))


def data_files(name: str) -> tuple[str, ...]:
    """Files of a data set, below the data directory; none for sets that need none."""
    origin = origin_of(name)
    return tuple(f"{CATALOGUE[name].folder}/{file}" for file in origin.files) if origin else ()
