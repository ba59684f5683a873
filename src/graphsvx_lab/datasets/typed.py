"""Typed data sets: ACM, FB15k-237, and a generated one whose deciding relation is known."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, load_npz
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from graphsvx.core.types import EdgeType
from graphsvx_lab.datasets import raw
from graphsvx_lab.datasets.base import DataSet, RelationTruth, Split, data_set, generator

ACM_CLASSES = ("database", "wireless communication", "data mining")
ACM_WORDS = 1902
_ACM_PARTS = {"paper_y": "labels", "train": "train_60", "val": "val_60", "test": "test_60"}
_CSR = ("data", "indices", "indptr", "shape")
"""Parts of a sparse matrix in the file of ACM."""
RELATIONS = 237
"""Relations of FB15k-237; relation r + 237 is r turned round."""


@dataclass(frozen=True)
class GraphSchema:
    """Node types with their counts and feature columns (0: none), and edge types."""

    nodes: Mapping[str, tuple[int, int]]
    edge_types: tuple[EdgeType, ...] = ()


def _and_back(*edge_types: EdgeType, prefix: str = "rev_") -> tuple[EdgeType, ...]:
    """Each edge type and its reverse."""
    return tuple(
        edge_type
        for source, name, target in edge_types
        for edge_type in ((source, name, target), (target, f"{prefix}{name}", source))
    )


USERS, ITEMS, TAGS, FEATURES = 400, 240, 24, 4
TYPES = {
    "acm": GraphSchema(
        {"paper": (4019, ACM_WORDS), "author": (7167, ACM_WORDS), "subject": (60, 0)},
        _and_back(("paper", "to", "author"), ("paper", "to", "subject"), prefix=""),
    ),
    "typed-motifs": GraphSchema(
        {"user": (USERS, FEATURES), "item": (ITEMS, FEATURES), "tag": (TAGS, FEATURES)},
        (
            *_and_back(("user", "buys", "item"), ("user", "views", "item"), ("item", "has", "tag")),
            ("user", "knows", "user"),
        ),
    ),
    "southern-women": GraphSchema(
        {"woman": (18, 1), "event": (14, 14)}, _and_back(("woman", "attended", "event"))
    ),
    "fb15k-237": GraphSchema({"node": (14541, 0)}),
}
"""Types of the typed sets; the classified node type is the first."""


def acm(name: str, seed: int, root: str | Path | None) -> DataSet:
    """ACM (HeCo, Wang et al. 2021): papers, their authors and subjects; papers have a class.

    Papers and authors have words, subjects no features. Its split is published (180 papers for
    training, 1,000 for validation, 1,000 for test), so the seed changes nothing.
    """
    file = raw.arrays(raw.folder_of(name, root, convert_acm) / "acm.npz")
    graph = HeteroData()
    for kind in ("paper", "author"):
        data, indices, starts, shape = (file[f"{kind}_x_{part}"] for part in _CSR)
        words = csr_matrix((data, indices, starts), shape)
        graph[kind].x = torch.from_numpy(words.toarray()).float()
    graph["subject"].num_nodes = int(file["num_subjects"])
    graph["paper"].y = torch.from_numpy(file["paper_y"])
    for other in ("author", "subject"):
        ends = torch.from_numpy(file[f"paper_{other}"].astype(np.int64))
        graph["paper", "to", other].edge_index = ends
        graph[other, "to", "paper"].edge_index = ends.flip(0)
    split = Split(*(torch.from_numpy(file[part]) for part in ("train", "val", "test")))
    return data_set(name, seed, graph, ACM_CLASSES, split=split, node_type="paper")


def fb15k_237(name: str, seed: int, root: str | Path | None) -> DataSet:
    """FB15k-237 (Toutanova and Chen 2015): facts (head, relation, tail) of a knowledge base.

    The graph holds the facts for training, each in both directions: relation r + 237 is r turned
    round. `graph.triples` are all facts, [3, facts] (head, relation, tail); the split numbers them.
    The seed changes nothing.
    """
    folder = raw.folder_of(name, root, convert_fb15k_237)
    file = raw.arrays(folder / "triples.npz")
    parts = [torch.from_numpy(file[part].astype(np.int64)) for part in ("train", "valid", "test")]
    head, relation, tail = parts[0].t()
    entities, relations = (_lines(folder / f"{kind}.txt") for kind in ("entities", "relations"))
    graph = Data(
        edge_index=torch.stack([torch.cat([head, tail]), torch.cat([tail, head])]),
        edge_type=torch.cat([relation, relation + RELATIONS]),
        num_nodes=len(entities),
        triples=torch.cat(parts).t().contiguous(),
    )
    graph.node_names = entities
    graph.relation_names = [*relations, *(f"{label} (inverse)" for label in relations)]
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    split = Split(*(torch.arange(*ends[i : i + 2]) for i in range(3)))
    return data_set(name, seed, graph, ("no link", "link"), split=split, task="link")


def convert_acm(downloads: raw.Contents) -> raw.Contents:
    """One file of arrays from those of HeCo.

    The words of a paper weigh 1 together; those of an author are the sum over the author's papers.
    """
    words = load_npz(io.BytesIO(downloads["p_feat.npz"])).tocsr().sorted_indices()
    count = np.diff(words.indptr)
    words.data = np.repeat(1 / np.maximum(count, 1), count)
    edges = {
        name: np.loadtxt(io.BytesIO(downloads[file]), dtype=np.int32).T
        for name, file in (("paper_author", "pa.txt"), ("paper_subject", "ps.txt"))
    }
    papers, authors = edges["paper_author"]
    authorship = csr_matrix((np.ones(len(papers)), (authors, papers)), None, np.float64)
    arrays: dict[str, NDArray[np.generic]] = {
        **edges,
        "num_subjects": edges["paper_subject"][1].max().astype(np.int64) + 1,
    }
    for name, matrix in (("paper", words), ("author", (authorship @ words).sorted_indices())):
        kinds = (np.float32, np.int32, np.int32, np.int64)
        for part, kind in zip(_CSR, kinds, strict=True):
            arrays[f"{name}_x_{part}"] = np.asarray(getattr(matrix, part), kind)
    for name, file in _ACM_PARTS.items():
        array = np.load(io.BytesIO(downloads[f"{file}.npy"]), allow_pickle=False)
        arrays[name] = array.astype(np.int64)
    return {"acm.npz": _npz(arrays)}


def convert_fb15k_237(downloads: raw.Contents) -> raw.Contents:
    """Arrays of numbers and two lists of names from facts as lines `head relation tail`.

    Entities and relations are numbered as they appear, as by PyG's `FB15k_237`.
    """
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}

    def number(fact: str) -> tuple[int, ...]:
        names = zip((entities, relations, entities), fact.split("\t"), strict=True)
        return tuple(numbers.setdefault(name, len(numbers)) for numbers, name in names)

    parts = {
        part: np.array(list(map(number, downloads[f"{part}.txt"].decode().splitlines())), np.int32)
        for part in ("train", "valid", "test")
    }
    return {
        "triples.npz": _npz(parts),
        "entities.txt": "".join(f"{name}\n" for name in entities).encode(),
        "relations.txt": "".join(f"{name}\n" for name in relations).encode(),
    }


def _npz(arrays: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def _lines(path: Path) -> list[str]:
    with raw.readable(path):
        return path.read_text(encoding="utf-8").splitlines()


# --- a generated set with known truth --------------------------------------------------------

_TASTES = 2
"""Kinds of items: the class of a user is the kind of most items that the user bought."""


def typed_motifs(name: str, seed: int, _root: object) -> DataSet:
    """Users with a class that one relation decides: what they bought, not what they viewed.

    A user buys 3 items of one kind and views 6 of any kind; friends are drawn at random and items
    have tags that say nothing. The class of a user is the kind of the bought items, which is one
    of the items' features; all other features are noise. The truth of a user are the items bought
    (nodes), the edges to them, and the relation "buys".
    """
    rng = generator(seed, name, "graph")
    kind = torch.arange(ITEMS) % _TASTES
    label = torch.arange(USERS) % _TASTES
    by_kind = [(kind == k).nonzero()[:, 0] for k in label]
    bought = torch.stack(
        [items[torch.randperm(len(items), generator=rng)[:3]] for items in by_kind]
    )
    viewed = torch.stack([torch.randperm(ITEMS, generator=rng)[:6] for _ in range(USERS)])
    users = torch.arange(USERS)
    graph = HeteroData()
    graph["user"].x = torch.randn(USERS, FEATURES, generator=rng)
    graph["user"].y = label
    graph["item"].x = torch.randn(ITEMS, FEATURES, generator=rng)
    graph["item"].x[:, 0] = 2.0 * kind - 1
    graph["tag"].x = torch.randn(TAGS, FEATURES, generator=rng)

    def both_ways(relation: str, source: Tensor, target: Tensor, ends: tuple[str, str]) -> None:
        graph[ends[0], relation, ends[1]].edge_index = torch.stack([source, target])
        graph[ends[1], f"rev_{relation}", ends[0]].edge_index = torch.stack([target, source])

    both_ways("buys", users.repeat_interleave(3), bought.reshape(-1), ("user", "item"))
    both_ways("views", users.repeat_interleave(6), viewed.reshape(-1), ("user", "item"))
    tags = torch.randint(TAGS, (ITEMS,), generator=rng)
    both_ways("has", torch.arange(ITEMS), tags, ("item", "tag"))
    others = torch.randint(USERS - 1, (USERS,), generator=rng)
    friends = torch.stack([users, (users + 1 + others) % USERS])
    graph["user", "knows", "user"].edge_index = torch.cat([friends, friends.flip(0)], 1)
    truth = RelationTruth(
        relation=("user", "buys", "item"),
        nodes={int(u): tuple(("item", int(i)) for i in bought[u]) for u in users},
    )
    return data_set(name, seed, graph, ("kind 0", "kind 1"), node_type="user", truth=truth)
