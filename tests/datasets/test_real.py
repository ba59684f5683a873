"""Facts about the real data sets, read from GRAPHSVX_DATA; and what happens without it."""

from __future__ import annotations

import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch_geometric.utils import is_undirected

from graphsvx.errors import DataError
from graphsvx_lab import datasets
from graphsvx_lab.datasets.real import ATOMS

RawFolder = Callable[[str], Path]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.mark.data("Cora")
def test_cora_has_the_published_sizes_and_labels() -> None:
    cora = datasets.load("cora")
    assert datasets.statistics(cora) == datasets.Statistics(1, 7, 2708, 1433, 2 * 5278)
    assert cora.labels.bincount().tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert set(cora.graph.x.unique().tolist()) == {0.0, 1.0}
    assert is_undirected(cora.graph.edge_index)
    assert cora.truth is None
    assert cora.split.train.numel() == 2166
    assert cora.fingerprint == datasets.load("cora").fingerprint
    assert cora.fingerprint != datasets.load("cora", 1).fingerprint


@pytest.mark.data("CiteSeer")
def test_citeseer_has_the_published_sizes() -> None:
    assert datasets.statistics(datasets.load("citeseer")) == datasets.Statistics(
        1, 6, 3327, 3703, 9104
    )


@pytest.mark.data("Cora")
def test_noisy_cora_by_name() -> None:
    wide, long = datasets.load("cora-noisy-features"), datasets.load("cora-noisy-nodes")
    assert (wide.name, long.name) == ("cora-noisy-features", "cora-noisy-nodes")
    assert wide.features == 1433 + 287
    assert long.graph.num_nodes == 2708 + 541
    assert wide.noise is not None
    assert wide.noise.features.tolist() == list(range(1433, 1720))


@pytest.mark.data("Mutagenicity")
def test_mutag_and_its_groups(raw_folder: RawFolder) -> None:
    folder = raw_folder("Mutagenicity")
    mutag = datasets.load("mutag")
    assert datasets.statistics(mutag) == datasets.PAPER_STATISTICS["mutag"]
    assert mutag.labels.bincount().tolist() == [2401, 1936]

    truth = mutag.graph_truth
    for index in truth.graphs()[::100]:
        graph, inside = mutag.graphs[index], truth.graph_edges(index)
        assert int(graph.y) == 0
        atoms = [ATOMS[i] for i in graph.x.argmax(1).tolist()]
        bonds = nx.Graph(graph.edge_index[:, inside].t().tolist())
        for group in nx.connected_components(bonds):
            assert "".join(sorted(atoms[n] for n in group)) in {"HHN", "NOO"}
        nodes = truth.graph_nodes(index).nonzero().flatten().tolist()
        assert set(nodes) == set(bonds.nodes)
    mutagens = set((mutag.labels == 0).nonzero().flatten().tolist())
    assert set(truth.graphs()) < mutagens

    # The published marks are for all molecules, in the order of the file of bonds.
    marks = folder / "Mutagenicity_edge_gt.txt"
    if not marks.is_file():
        pytest.skip("no published marks to compare with")
    pairs = [tuple(map(int, line.split(","))) for line in _lines(folder / "Mutagenicity_A.txt")]
    published = {
        (a - 1, b - 1) for (a, b), mark in zip(pairs, _lines(marks), strict=True) if mark == "1"
    }
    files, offset = set(), 0
    for graph in mutag.graphs:
        inside = datasets.nitro_and_amino(graph.x, graph.edge_index)
        files |= {(a, b) for a, b in (graph.edge_index[:, inside] + offset).t().tolist()}
        offset += graph.num_nodes
    assert len(published) == 7352
    assert files == published


def _lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[: -1 if path.read_text().endswith("\n") else None]


def molecule(atoms: str, bonds: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.zeros(len(atoms), len(ATOMS))
    x[torch.arange(len(atoms)), torch.tensor([ATOMS.index(a) for a in atoms])] = 1
    directed = bonds + [(b, a) for a, b in bonds]
    return x, torch.tensor(directed).t()


@pytest.mark.parametrize(
    ("atoms", "found"),
    [
        ("CNOO", [(1, 2), (1, 3)]),  # nitro
        ("CNHH", [(1, 2), (1, 3)]),  # amino
        ("ONOO", []),  # nitrate
        ("ONHH", []),  # hydroxylamine
        ("HNHH", []),  # ammonia
        ("CNOH", []),
        ("CNCC", []),
        ("CCHH", []),
    ],
)
def test_groups_around_one_centre(atoms: str, found: list[tuple[int, int]]) -> None:
    x, edge_index = molecule(atoms, [(1, 0), (1, 2), (1, 3)])
    inside = datasets.nitro_and_amino(x, edge_index)
    assert {tuple(sorted(e)) for e in edge_index[:, inside].t().tolist()} == set(found)
    assert int(inside.sum()) == 2 * len(found)


def test_a_nitrogen_needs_exactly_one_more_neighbour() -> None:
    for atoms, bonds in (
        ("NHH", [(0, 1), (0, 2)]),
        ("NHHCC", [(0, 1), (0, 2), (0, 3), (0, 4)]),
        ("NOO", [(0, 1), (0, 2)]),
    ):
        assert not datasets.nitro_and_amino(*molecule(atoms, bonds)).any()


def test_an_oxygen_with_another_neighbour_is_not_part_of_a_nitro_group() -> None:
    x, edge_index = molecule("CNOOC", [(1, 0), (1, 2), (1, 3), (3, 4)])
    assert not datasets.nitro_and_amino(x, edge_index).any()


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cora", "Cora/raw|ind.cora.allx"),
        ("citeseer-noisy-nodes", "CiteSeer/raw|ind.citeseer.graph"),
        ("pubmed", "PubMed/raw|ind.pubmed.test.index"),
        ("mutag", "Mutagenicity/raw|Mutagenicity_graph_labels.txt"),
        ("acm", "ACM/raw|pa.txt"),
        ("fb15k-237", "FB15k-237/raw|valid.txt"),
    ],
)
def test_missing_files_without_network(name: str, file: str, tmp_path: Path) -> None:
    folder, wanted = file.split("|")
    start = time.monotonic()
    with pytest.raises(DataError) as caught:
        datasets.load(name, root=tmp_path)
    assert time.monotonic() - start < 5
    assert str(tmp_path / folder) in str(caught.value)
    assert wanted in str(caught.value)
    assert "GRAPHSVX_DATA" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("offline")
@pytest.mark.data("Cora")
def test_one_missing_file_is_named_alone(raw_folder: RawFolder, tmp_path: Path) -> None:
    shutil.copytree(raw_folder("Cora"), tmp_path / "Cora" / "raw")
    place = tmp_path / "Cora" / "raw"
    place.chmod(0o755)
    (place / "ind.cora.ty").unlink()
    with pytest.raises(DataError, match=r"put ind\.cora\.ty from there into"):
        datasets.load("cora", root=tmp_path)


@pytest.mark.data("Cora")
def test_damaged_files_say_so(raw_folder: RawFolder, tmp_path: Path) -> None:
    shutil.copytree(raw_folder("Cora"), tmp_path / "Cora" / "raw")
    damaged = tmp_path / "Cora" / "raw" / "ind.cora.x"
    damaged.chmod(0o644)
    damaged.write_bytes(b"not what it should be")
    with pytest.raises(DataError, match=r"cannot be used .*sha256.* remove them"):
        datasets.load("cora", root=tmp_path)


@pytest.mark.data("Cora")
def test_reading_writes_nothing(raw_folder: RawFolder, tmp_path: Path) -> None:
    shutil.copytree(raw_folder("Cora"), tmp_path / "Cora" / "raw")
    before = sorted(tmp_path.rglob("*"))
    datasets.load("cora", root=tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
