"""Names, sizes and raw files of the data sets; imports neither torch nor any data."""

from __future__ import annotations

from dataclasses import dataclass

from graphsvx.errors import DataError
from graphsvx.utils.printable import did_you_mean
from graphsvx_lab.datasets.origins import origin_of


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

    sizes: those of seed 0, None where they are not known without loading it.
    truth: what the ground truth explanations are, None where there are none.
    folder: folder of its raw files, None for sets that need none.
    extra: the extra that is needed to read it.
    about: what it is, in a sentence, for sets that come with the project.
    """

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

CATALOGUE: dict[str, Listed] = {
    "ba-shapes": Listed(
        PAPER_STATISTICS["ba-shapes"],
        "house",
        about="Houses attached to a random graph: which place in a house has a node?",
    ),
    "ba-community": Listed(
        PAPER_STATISTICS["ba-community"],
        "house",
        about="Two graphs of houses with features of their own, joined by random edges.",
    ),
    "tree-cycles": Listed(
        PAPER_STATISTICS["tree-cycles"],
        "cycle",
        about="Rings of six nodes attached to a binary tree: is a node in a ring?",
    ),
    "tree-grid": Listed(
        PAPER_STATISTICS["tree-grid"],
        "grid",
        about="Grids of three by three nodes attached to a binary tree: is a node in a grid?",
    ),
    "ba-2motifs": Listed(
        PAPER_STATISTICS["ba-2motifs"],
        "house or 5-cycle",
        about="Random graphs, each with a house or a ring of five nodes: which one is it?",
    ),
    "typed-motifs": Listed(
        Statistics(1, 2, 664, 4, 8480),
        "relation",
        about="Users, items and tags (a typed graph): one relation alone decides the classes.",
    ),
    "karate": Listed(
        Statistics(1, 2, 34, 34, 156),
        about="Members of a karate club that split in two: whom did each follow?",
    ),
    "les-miserables": Listed(
        Statistics(1, 5, 77, 77, 508),
        about="Characters of Les Misérables, by the chapters they share: which circle is each in?",
    ),
    "southern-women": Listed(
        Statistics(1, 2, 32, 1, 178),
        about="Women and the social events they went to (a typed graph): which circle is each in?",
    ),
    "digits": Listed(
        Statistics(1, 10, 1797, 64, 12618),
        about="Handwritten digits of 8 x 8 pixels, joined to their neighbours: which is it?",
    ),
    "molecules-aromatic": Listed(
        Statistics(505, 2, 7224, 13, 14820),
        "aromatic ring",
        extra="molecules",
        about="Well-known molecules: does each have an aromatic ring?",
    ),
    "molecules-carbonyl": Listed(
        Statistics(505, 2, 7224, 13, 14820),
        "carbonyl",
        extra="molecules",
        about="Well-known molecules: does each have a carbonyl group?",
    ),
    "molecules-logp": Listed(
        Statistics(505, 1, 14566, 13, 29504),
        "atom contributions",
        extra="molecules",
        about="Well-known molecules: Crippen's logP, a sum of contributions of atoms.",
    ),
    # Those above need no files.
    "mutag": Listed(PAPER_STATISTICS["mutag"], "NO2 or NH2", "Mutagenicity"),
    "benzene": Listed(
        Statistics(12000, 2, 246993, 13, 523842), "benzene ring", "Molecules", "molecules"
    ),
    "alkane-carbonyl": Listed(
        Statistics(4326, 2, 91393, 13, 194450), "fluoride and carbonyl", "Molecules", "molecules"
    ),
    "crippen": Listed(
        Statistics(1127, 1, 28914, 13, 58704), "atom contributions", "Molecules", "molecules"
    ),
    "acm": Listed(Statistics(1, 3, 11246, 1902, 34852), folder="ACM"),
    "fb15k-237": Listed(Statistics(1, 2, 14541, 0, 544230), folder="FB15k-237"),
    "amazon-photo": Listed(Statistics(1, 8, 7650, 745, 238162), folder="Amazon-Photo"),
    "cora": Listed(Statistics(1, 7, 2708, 1433, 10556), folder="Cora"),
    "citeseer": Listed(Statistics(1, 6, 3327, 3703, 9104), folder="CiteSeer"),
    "pubmed": Listed(Statistics(1, 3, 19717, 500, 88648), folder="PubMed"),
    "cora-noisy-features": Listed(Statistics(1, 7, 2708, 1720, 10556), folder="Cora"),
    "cora-noisy-nodes": Listed(Statistics(1, 7, 3249, 1433, 19440), folder="Cora"),
    "citeseer-noisy-features": Listed(Statistics(1, 6, 3327, 4444, 9104), folder="CiteSeer"),
    "citeseer-noisy-nodes": Listed(Statistics(1, 6, 3992, 3703, 12688), folder="CiteSeer"),
    "pubmed-noisy-features": Listed(None, folder="PubMed"),
    "pubmed-noisy-nodes": Listed(None, folder="PubMed"),
}


def names() -> tuple[str, ...]:
    """All names that `load` accepts."""
    return tuple(CATALOGUE)


def checked_name(name: object) -> str:
    """`name` if it is a data set, else an error that suggests one."""
    if isinstance(name, str) and name in CATALOGUE:
        return name
    raise DataError(f"unknown data set {_shown(name)}; {suggestion(str(name))}")


def suggestion(name: str) -> str:
    """The data set that was probably meant, and all that there are, as part of a message."""
    return f"{did_you_mean(name, CATALOGUE)}choose one of: {', '.join(CATALOGUE)}"


def _shown(name: object) -> str:
    text = " ".join(repr(name).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def data_files(name: str) -> tuple[str, ...]:
    """Files of a data set, below the data directory; none for sets that need none."""
    origin = origin_of(name)
    return tuple(f"{CATALOGUE[name].folder}/{file}" for file in origin.files) if origin else ()
