"""Data sets that need no download: facts about them, and that they can be trained and explained."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
import torch
from torch_geometric.data import Data

from graphsvx import explain
from graphsvx.cli.explain import _graph_number
from graphsvx.cli.options import parse_nodes
from graphsvx.errors import InputError
from graphsvx.explorer.overview import rows
from graphsvx.explorer.questions import Limits, Parameters
from graphsvx.explorer.workspace import workspace_of
from graphsvx_lab import datasets, zoo
from graphsvx_lab.datasets import raw
from graphsvx_lab.datasets.catalogue import CATALOGUE
from graphsvx_lab.datasets.included import IN_BOTH_GROUPS
from graphsvx_lab.datasets.molecules import WELL_KNOWN, WELL_KNOWN_CLASSES

SOCIAL = ("karate", "les-miserables", "southern-women")
MOLECULES = tuple(WELL_KNOWN_CLASSES)
INCLUDED = (*SOCIAL, "digits", *MOLECULES)


def load(name: str, seed: int = 0) -> datasets.DataSet:
    if name in MOLECULES:
        pytest.importorskip("rdkit")
    return datasets.load(name, seed)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Empty folders, and no network."""
    monkeypatch.setenv("GRAPHSVX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GRAPHSVX_MODELS", str(tmp_path / "models"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(raw.urllib.request, "urlopen", refuse)
    yield
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", INCLUDED)
def test_listed_sizes_and_truth_are_those_of_the_loaded_set(name: str) -> None:
    dataset = load(name)
    assert CATALOGUE[name].sizes == datasets.statistics(dataset)
    assert CATALOGUE[name].truth == (dataset.truth.kind if dataset.truth else None)
    assert CATALOGUE[name].folder is None


@pytest.mark.parametrize("name", INCLUDED)
def test_the_seed_changes_the_split_only(name: str) -> None:
    first, again, other = load(name, 3), load(name, 3), load(name, 4)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert torch.equal(first.labels, other.labels)
    parts = torch.cat(list(first.split.parts().values())).sort().values
    labelled = first.labels != -1 if first.classes > 1 else torch.ones_like(first.labels).bool()
    assert torch.equal(parts, labelled.nonzero().flatten())


@pytest.mark.parametrize("name", [*SOCIAL[:2], "digits"])
def test_edges_go_both_ways(name: str) -> None:
    graph = load(name).graph
    pairs = {tuple(pair) for pair in graph.edge_index.t().tolist()}
    assert pairs == {(target, source) for source, target in pairs}
    assert all(source != target for source, target in pairs)


def test_karate_club() -> None:
    dataset = load("karate")
    assert dataset.labels.bincount().tolist() == [17, 17]
    names = dataset.graph.node_names
    instructor, administrator = names.index("Mr. Hi"), names.index("John A.")
    assert dataset.class_names[dataset.labels[instructor]] == "Mr. Hi"
    assert dataset.class_names[dataset.labels[administrator]] == "officer"
    # They quarrelled: no edge joins them. Both know member 9, who joined the instructor's club.
    neighbours = [set(dataset.graph.edge_index[1, dataset.graph.edge_index[0] == node].tolist())
                  for node in (instructor, administrator)]  # fmt: skip
    assert administrator not in neighbours[0]
    assert names.index("member 9") in neighbours[0] & neighbours[1]
    assert dataset.labels[names.index("member 9")] == 0


def test_les_miserables_has_weights_and_circles() -> None:
    dataset = load("les-miserables")
    graph, names = dataset.graph, dataset.graph.node_names
    edge = graph.edge_index == torch.tensor([[names.index("Valjean")], [names.index("Cosette")]])
    assert graph.edge_weight[edge.all(0)].tolist() == [31.0]
    assert dataset.labels.bincount().tolist() == [33, 17, 11, 10, 6]
    circle = {name: dataset.class_names[label] for name, label in zip(names, dataset.labels,
                                                                      strict=True)}  # fmt: skip
    assert circle["Gavroche"] == circle["Courfeyrac"] == "Enjolras's circle"
    assert circle["Tholomyes"] == "Fantine's circle"


def test_southern_women_and_their_groups() -> None:
    dataset = load("southern-women")
    graph = dataset.graph
    assert (graph["woman"].num_nodes, graph["event"].num_nodes) == (18, 14)
    assert graph["woman"].names[IN_BOTH_GROUPS] == "Ruth DeSand"
    assert dataset.labels.tolist() == [0] * 8 + [-1] + [1] * 9
    attended = graph["woman", "attended", "event"].edge_index
    guests = attended[1].bincount()
    assert guests.tolist() == [3, 3, 6, 4, 8, 8, 10, 14, 12, 5, 4, 6, 3, 3]
    # The first five events were attended by group 1 only, the last five by group 2 only.
    for event in range(14):
        groups = set(dataset.labels[attended[0, attended[1] == event]].tolist()) - {-1}
        assert groups == ({0} if event < 5 else {0, 1} if event < 9 else {1})


def test_digits_are_joined_to_those_that_look_like_them() -> None:
    dataset = load("digits")
    graph = dataset.graph
    assert dataset.feature_names[8 * 3 + 4] == "pixel 3,4"
    assert 0 <= graph.x.min() < graph.x.max() == 1
    distance = torch.cdist(graph.x[:50].double(), graph.x.double())
    distance[torch.arange(50), torch.arange(50)] = torch.inf
    for image in range(50):
        neighbours = graph.edge_index[0, graph.edge_index[1] == image]
        assert len(neighbours) >= 5
        fifth = distance[image].sort().values[4]
        assert (distance[image, neighbours] <= fifth + 1e-9).sum() >= 5
    source, target = dataset.labels[graph.edge_index]
    assert (source == target).float().mean() > 0.9


# --- molecules --------------------------------------------------------------------------------


def listed_molecules() -> list[dict[str, str]]:
    with WELL_KNOWN.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_molecule_has_the_formula_that_is_written_beside_it() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    descriptors = pytest.importorskip("rdkit.Chem.rdMolDescriptors")
    rows = listed_molecules()
    assert len(rows) == 505
    molecules = [chem.MolFromSmiles(row["smiles"]) for row in rows]
    for row, molecule in zip(rows, molecules, strict=True):
        assert descriptors.CalcMolFormula(molecule) == row["formula"], row["name"]
    assert len({row["name"] for row in rows}) == len(rows)
    assert len({chem.MolToSmiles(molecule) for molecule in molecules}) == len(rows)


def atoms_of(dataset: datasets.DataSet, name: str) -> set[int]:
    return dataset.true_nodes(dataset.graph_names.index(name))


def test_the_truth_of_aspirin() -> None:
    # CC(=O)Oc1ccccc1C(O)=O
    assert atoms_of(load("molecules-aromatic"), "aspirin") == {4, 5, 6, 7, 8, 9}
    assert atoms_of(load("molecules-carbonyl"), "aspirin") == {1, 2, 10, 12}
    carbonyl = load("molecules-carbonyl")
    aspirin = carbonyl.graph_names.index("aspirin")
    assert carbonyl.graph_truth.alternative_nodes(aspirin) == [{1, 2}, {10, 12}, {1, 2, 10, 12}]
    assert carbonyl.graphs[aspirin].node_names[:4] == ["C0", "C1", "O2", "O3"]


@pytest.mark.parametrize(
    ("name", "aromatic", "carbonyl"),
    [
        ("ethanol", False, False),
        ("cyclohexane", False, False),
        ("benzene", True, False),
        ("nitrobenzene", True, False),  # N=O is no carbonyl
        ("acetone", False, True),
        ("benzoquinone", False, True),
        ("dimethyl sulfoxide", False, False),
        ("caffeine", True, True),
        ("azulene", True, False),
    ],
)
def test_labels_of_molecules(name: str, aromatic: bool, carbonyl: bool) -> None:
    for dataset, expected in ((load("molecules-aromatic"), aromatic),
                              (load("molecules-carbonyl"), carbonyl)):  # fmt: skip
        index = dataset.graph_names.index(name)
        assert bool(dataset.labels[index]) == expected
        assert bool(dataset.graph_truth.graph_nodes(index).any()) == expected


def test_contributions_add_up_to_logp() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    crippen = pytest.importorskip("rdkit.Chem.Crippen")
    dataset = load("molecules-logp")
    for graph, contributions in zip(dataset.graphs, dataset.graph_truth.contributions, strict=True):
        expected = crippen.MolLogP(chem.MolFromSmiles(graph.smiles))
        assert float(contributions.sum()) == pytest.approx(expected, abs=1e-4)
        assert len(contributions) == graph.num_nodes
        assert float(graph.y) == pytest.approx(expected, abs=1e-4)


# --- models -----------------------------------------------------------------------------------


def asked(dataset: datasets.DataSet) -> dict[str, object]:
    if dataset.task == "graph":
        return {"graph": True}
    if dataset.node_type is not None:
        return {"node": ("woman", "Ruth DeSand")}
    return {"node": getattr(dataset.graph, "node_names", [0])[0]}


@pytest.mark.parametrize("name", INCLUDED)
def test_each_is_trained_explained_and_served_from_nothing(name: str, offline: None) -> None:
    load(name)
    trained = zoo.ensure(name)
    dataset = trained.dataset
    explanation = explain(
        trained.model,
        dataset.graphs[dataset.graph_names.index("aspirin") if name in MOLECULES else 0],
        **asked(dataset),
        class_names=dataset.class_names,
        feature_names=None if dataset.node_type else dataset.feature_names,
        output="regression" if name == "molecules-logp" else "raw",
    )
    assert explanation.base + explanation.total == pytest.approx(explanation.prediction, abs=1e-4)
    subject = {"southern-women": "Ruth DeSand", "karate": "Mr. Hi", "digits": "node 0",
               "les-miserables": "Napoleon"}.get(name, "aspirin")  # fmt: skip
    assert explanation.title.startswith(f"{subject}: ")
    workspace = workspace_of({"model": trained.model}, trained.dataset)
    assert len(workspace.table().ids) >= len(dataset.labels)
    if name in MOLECULES:
        matches = rows(workspace, Parameters([("q", "ASPIR")]), Limits())()["rows"]
        assert [row["name"] for row in matches] == ["aspirin"]
    if name == "karate":
        assert workspace.node_name(33) == "John A."


@pytest.mark.learned
@pytest.mark.parametrize(
    "name", [*SOCIAL, "digits", pytest.param("molecules-carbonyl", marks=pytest.mark.thorough)]
)
def test_models_are_far_better_than_chance(name: str) -> None:
    load(name)
    accuracy = [zoo.train(datasets.load(name, seed), seed=seed).card.accuracy["test"]
                for seed in (10, 11, 12)]  # fmt: skip
    assert median(accuracy) > {"digits": 0.9, "molecules-carbonyl": 0.9}.get(name, 0.6)


def test_weights_of_edges_are_trained_with_and_part_of_the_fingerprint() -> None:
    dataset = datasets.load("les-miserables")
    brief = zoo.Settings(family="citation", model="gcn", hidden=4, layers=2, epochs=5)
    weighted = zoo.train(dataset, settings=brief)
    lighter = datasets.load("les-miserables")
    lighter.graph.edge_weight = lighter.graph.edge_weight.sqrt()
    assert lighter.fingerprint != dataset.fingerprint
    other = zoo.train(lighter, settings=brief)
    first = next(weighted.model.parameters())
    assert not torch.equal(first, next(other.model.parameters()))


def test_a_name_that_looks_like_a_negative_number_is_a_name() -> None:
    kings = Data(edge_index=torch.zeros(2, 0, dtype=torch.long), node_names=["-44", "14"])
    assert parse_nodes(kings, "-44,1", "--nodes") == ["-44", 1]


def test_the_command_line_takes_names_of_nodes_and_graphs() -> None:
    women = datasets.load("southern-women").graph
    assert parse_nodes(women, "woman:Ruth DeSand,3", "--nodes") == [
        ("woman", "Ruth DeSand"), ("woman", 3),
    ]  # fmt: skip
    graphs = load("molecules-carbonyl").graphs
    assert _graph_number(graphs, "methanol") == _graph_number(graphs, "0") == 0
    with pytest.raises(InputError, match=r"--graph 0\.\.504, or by name, got asprin; .*'aspirin'"):
        _graph_number(graphs, "asprin")


def test_a_woman_is_asked_for_by_name() -> None:
    dataset = datasets.load("southern-women")
    torch.manual_seed(0)
    model = zoo.build(
        zoo.settings_for("southern-women"), features=1, classes=2, task="node",
        dataset="southern-women",
    ).eval()  # fmt: skip
    by_number, by_name = (
        explain(model, dataset.graph, node=("woman", which)) for which in (8, "Ruth DeSand")
    )
    assert torch.equal(by_number.node_values, by_name.node_values)
    with pytest.raises(InputError, match=r"node must be one of node_names, got 'Ruth'"):
        explain(model, dataset.graph, node=("woman", "Ruth"))
