"""Molecules with ground truth on atoms, and Amazon-Photo."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphsvx.errors import DataError
from graphsvx_lab import datasets
from graphsvx_lab.datasets.catalogue import ORIGINS

pytest.importorskip("rdkit")
HEADER = "smiles,y,split,atom_truth\n"
# toluene, ethane, biphenyl
BENZENE = (
    "Cc1ccccc1,1,train,0111111\nCC,0,test,00\n"
    "c1ccccc1-c1ccccc1,1,train,111111000000|000000111111|111111111111\n"
)


def load(folder: Path, name: str, text: str) -> datasets.DataSet:
    (folder / "Molecules").mkdir(exist_ok=True)
    (folder / "Molecules" / f"{name}.csv").write_text(HEADER + text)
    return datasets.load(name, root=folder)


def test_atoms_bonds_and_alternatives(tmp_path: Path) -> None:
    dataset = load(tmp_path, "benzene", BENZENE)
    toluene = dataset.graphs[0]
    assert toluene.num_nodes == 7
    assert toluene.edge_index.shape[1] == 2 * 7
    assert toluene.x[:, : len("CNOFS")].sum(0).tolist() == [7, 0, 0, 0, 0]
    hydrogens = dataset.feature_names.index("hydrogens")
    assert toluene.x[:, hydrogens].tolist() == [3, 0, 1, 1, 1, 1, 1]
    truth = dataset.graph_truth
    assert truth.graph_nodes(0).tolist() == [False] + [True] * 6
    assert truth.graph_edges(0).sum() == 2 * 6
    assert [len(options) for options in truth.alternatives] == [1, 0, 3]
    assert not truth.graph_nodes(1).any()
    assert truth.graphs() == (0, 2)
    assert dataset.split.test.tolist() == [1]


def test_contributions_of_atoms_with_hydrogens_add_up(tmp_path: Path) -> None:
    dataset = load(tmp_path, "crippen", "C,0.6361,train,0.1441 0.123 0.123 0.123 0.123\n")
    (methane,) = dataset.graphs
    assert methane.num_nodes == 5
    assert dataset.labels.is_floating_point()
    assert torch.isclose(dataset.graph_truth.contributions[0].sum(), methane.y[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not a molecule,1,train,0\n", "RDKit cannot read"),
        ("CC,1,train,000\n", "does not have 3 atoms"),
        ("[Na+].[Cl-],0,train,00\n", "atom 'Na'"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(tmp_path, "benzene", text)


def test_a_missing_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = replace(ORIGINS["benzene"], url="http://127.0.0.1:9")
    monkeypatch.setitem(ORIGINS, "benzene", nowhere)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    message = (
        r"put benzene_smiles\.csv, .* GRAPHSVX_DATA to a folder that has Molecules/benzene\.csv"
    )
    with pytest.raises(DataError, match=message):
        datasets.load("benzene", root=tmp_path)


@pytest.mark.data("Amazon-Photo")
def test_amazon_photo_is_undirected_and_has_the_published_sizes() -> None:
    dataset = datasets.load("amazon-photo")
    sizes = datasets.statistics(dataset)
    assert (sizes.nodes, sizes.features, sizes.edges, sizes.classes) == (7650, 745, 238162, 8)
    source, target = dataset.graph.edge_index
    assert bool((source != target).all())
    forth = torch.unique(source * sizes.nodes + target)
    assert torch.equal(forth, torch.unique(target * sizes.nodes + source))
