"""Public sources of the real data sets; imports neither torch nor any data."""

from __future__ import annotations

from dataclasses import dataclass


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


def _citations(name: str, sha256: str | None) -> Origin:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    downloads = tuple(f"ind.{name}.{part}" for part in parts)
    return Origin(
        url="https://github.com/kimiyoung/planetoid/raw/master/data",
        downloads=downloads,
        files=tuple(f"raw/{file}" for file in downloads),
        licence="MIT",
        sha256=sha256,
    )


def _molecules(name: str, folder: str, sha256: str) -> Origin:
    return Origin(
        url=f"https://raw.githubusercontent.com/google-research/graph-attribution/main/data/{folder}",
        downloads=(f"{folder}_smiles.csv", f"{folder}_traintest_indices.npz"),
        files=(f"{name}.csv",),
        licence="Apache-2.0; a part of ZINC12, with its author's permission",
        sha256=sha256,
    )


ORIGINS: dict[str, Origin] = {
    "cora": _citations("cora", "ea09bc6de26576365fa1d693174cde92d61d4517b088112e54ee6840cfd1d059"),
    "citeseer": _citations(
        "citeseer", "510dfff3b8e3057f967b5e075c1f50b1d0d5a0b60a17a6226e260f78e92d2ac0"
    ),
    "pubmed": _citations("pubmed", None),
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
        files=tuple(
            f"raw/Mutagenicity_{part}.txt"
            for part in ("A", "graph_indicator", "node_labels", "edge_labels", "graph_labels")
        ),
        licence="none stated",
        sha256="7252fedbdebc1f142a4491bbef390458f681cf13a6160cf8f3990128abb9f6cb",
    ),
    "acm": Origin(
        url="https://github.com/liun-online/HeCo/raw/main/data/acm",
        downloads=(
            "p_feat.npz",
            "labels.npy",
            "pa.txt",
            "ps.txt",
            "train_60.npy",
            "val_60.npy",
            "test_60.npy",
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
    "benzene": _molecules(
        "benzene", "benzene", "14c8005911a0b4507afa311e90143afd1be23349b756ede449e5727a9c86956d"
    ),
    "alkane-carbonyl": _molecules(
        "alkane-carbonyl",
        "logic7",
        "1e9c79cdf2251ec52a483d27530c67930f9d9e7e98bb75cb285bf2f6626fb40b",
    ),
    "crippen": _molecules(
        "crippen", "crippen", "b2788a6665b810827d6dad0f2e78f435aff59e5b128ba3ddefb96c45361d15ac"
    ),
}


def origin_of(name: str) -> Origin | None:
    """Source of a data set, of a citation set with noise too; None for synthetic sets."""
    return ORIGINS.get(name.partition("-noisy-")[0])
