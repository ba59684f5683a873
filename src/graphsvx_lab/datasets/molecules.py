"""Molecules with ground truth on atoms (needs RDKit).

benzene, alkane-carbonyl and crippen: Sanchez-Lengeling et al. 2020, from ZINC12. Their files have
the columns `smiles`, `y`, `split` and `atom_truth`, which for the two classification sets holds the
alternatives that each explain the label on their own, and for crippen the contribution of every
atom to y.

molecules-aromatic, molecules-carbonyl and molecules-logp: well-known drugs, solvents, dyes and
natural products, by name (`molecules.csv`); labels and ground truth are computed by RDKit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx.errors import DataError
from graphsvx.utils.imports import require_extra
from graphsvx_lab.datasets import raw
from graphsvx_lab.datasets.base import DataSet, GraphTruth, Split, data_set, generator

COLUMNS = ("smiles", "y", "split", "atom_truth")
WELL_KNOWN = Path(__file__).with_name("molecules.csv")
ATOMS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P", "H")
FEATURES = (*ATOMS, "hydrogens", "degree", "charge")
LOGP = ("logP",)
CLASS_NAMES = {
    "benzene": ("no benzene ring", "benzene ring"),
    "alkane-carbonyl": ("not both", "fluoride and carbonyl"),
    "crippen": LOGP,
}
WELL_KNOWN_CLASSES = {
    "molecules-aromatic": ("no aromatic ring", "aromatic ring"),
    "molecules-carbonyl": ("no carbonyl", "carbonyl"),
    "molecules-logp": LOGP,
}
MOTIFS = {"benzene": ("c1ccccc1",), "alkane-carbonyl": ("[FX1]", "[CX3]=O")}
"""SMARTS of what a molecule of class 1 has, as in the code of the authors."""
CARBONYL = "[#6]=[OX1]"
"""SMARTS of C=O, whatever else the carbon is bound to."""
_VALIDATION = 0.1
Explained = tuple[Data, tuple[Tensor, ...]]
"""A molecule with masks of atoms that each explain its class on their own (none where it has no
explanation), or with the contributions of its atoms to logP."""


def molecules(name: str, seed: int, root: str | Path | None) -> DataSet:
    """One of the sets in files; the seed chooses a tenth of the training part for validation."""
    require_extra("rdkit", "molecules")
    regression = CLASS_NAMES[name] == LOGP
    number: type[int | float] = float if regression else int
    rows = _rows(raw.folder_of(name, root, partial(convert, name)) / f"{name}.csv", *COLUMNS)
    explained: list[Explained] = []
    for row in rows:
        graph = _graph(_molecule(row["smiles"], hydrogens=regression))
        graph.smiles, graph.y = row["smiles"], torch.tensor([number(row["y"])])
        texts = row["atom_truth"].split("|")
        parts = [text.split() if regression else list(text) for text in texts]
        options = [torch.tensor([number(part) for part in atoms]) for atoms in parts]
        if len(options[0]) != graph.num_nodes:
            raise DataError(f"{name}: {row['smiles']} does not have {len(options[0])} atoms")
        masks = options if regression else [option.bool() for option in options]
        explained.append((graph, tuple(masks) if bool(options[0].any()) else ()))
    test = torch.tensor([row["split"] == "test" for row in rows])
    train = torch.nonzero(~test).flatten()
    order = train[torch.randperm(len(train), generator=generator(seed, name, "split"))]
    count = int(_VALIDATION * len(train))
    parts_of_split = (order[count:].sort().values, order[:count].sort().values)
    split = Split(*parts_of_split, torch.nonzero(test).flatten())
    return _data_set(name, seed, explained, CLASS_NAMES[name], split)


def well_known(name: str, seed: int, _root: object) -> DataSet:
    """One of the sets of well-known molecules; the seed determines the split only."""
    require_extra("rdkit", "molecules")
    class_names = WELL_KNOWN_CLASSES[name]
    explained: list[Explained] = []
    for row in _rows(WELL_KNOWN, "name", "smiles"):
        molecule = _molecule(row["smiles"], hydrogens=class_names == LOGP)
        graph = _graph(molecule)
        graph.name, graph.smiles = row["name"], row["smiles"]
        if class_names == LOGP:
            options = [torch.tensor(_logp_contributions(molecule))]
            graph.y = options[0].sum().reshape(1)
        else:
            aromatic = name == "molecules-aromatic"
            groups = _aromatic_rings(molecule) if aromatic else _matches(molecule, CARBONYL)
            atoms = torch.arange(int(graph.num_nodes))
            options = [torch.isin(atoms, torch.tensor(group)) for group in groups]
            graph.y = torch.tensor([int(len(options) > 0)])
            options += [torch.stack(options).any(0)] if len(options) > 1 else []
        explained.append((graph, tuple(options)))
    return _data_set(name, seed, explained, class_names)


def _data_set(
    name: str,
    seed: int,
    explained: list[Explained],
    class_names: tuple[str, ...],
    split: Split | None = None,
) -> DataSet:
    graphs, truths = zip(*explained, strict=True)
    regression = class_names == LOGP
    masks = [
        torch.zeros(int(graph.num_nodes), dtype=torch.bool)
        if regression or not options
        else torch.stack(options).any(0)
        for graph, options in explained
    ]
    truth = GraphTruth(
        tuple(masks),
        tuple(mask[graph.edge_index].all(0) for graph, mask in zip(graphs, masks, strict=True)),
        "atom contributions" if regression else class_names[1],
        alternatives=None if regression else truths,
        contributions=tuple(options[0] for options in truths) if regression else None,
    )
    return data_set(
        name, seed, graphs, class_names, split=split, feature_names=FEATURES, truth=truth
    )


def convert(name: str, downloads: raw.Contents) -> raw.Contents:
    """One table from the published molecules and split; the truth follows from the atoms."""
    smiles, split = (content for _, content in sorted(downloads.items()))
    with np.load(io.BytesIO(split), allow_pickle=False) as file:
        test = set(file["test_index"].tolist())
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for index, row in enumerate(csv.DictReader(io.StringIO(smiles.decode()))):
        truth = _logp(row["smiles"]) if name == "crippen" else _motifs(name, row["smiles"])
        table.writerow([row["smiles"], truth[0], "test" if index in test else "train", truth[1]])
    return {f"{name}.csv": text.getvalue().encode()}


def _logp(smiles: str) -> tuple[str, str]:
    """logP by Crippen's rules, and the part of every atom in it."""
    parts = _logp_contributions(_molecule(smiles, hydrogens=True))
    return f"{sum(parts):g}", " ".join(f"{part:g}" for part in parts)


def _motifs(name: str, smiles: str) -> tuple[str, str]:
    """Whether all motifs are there, and the sets of atoms that show it.

    Each union of some matches of the first motif with some of the second shows it.
    """
    molecule = _molecule(smiles, hydrogens=False)
    unions = []
    for motif in MOTIFS[name]:
        matches = _matches(molecule, motif)
        sizes = range(1, len(matches) + 1)
        unions.append(
            [set().union(*subset) for size in sizes for subset in combinations(matches, size)]
        )
    options = [set().union(*parts) for parts in product(*unions)]
    atoms = range(molecule.GetNumAtoms())
    marks = ["".join(str(int(atom in option)) for atom in atoms) for option in options or [set()]]
    return str(int(bool(options))), "|".join(marks)


def _aromatic_rings(molecule: Any) -> list[tuple[int, ...]]:
    """Atoms of each ring whose atoms are all aromatic."""
    return [
        ring
        for ring in molecule.GetRingInfo().AtomRings()
        if all(molecule.GetAtomWithIdx(atom).GetIsAromatic() for atom in ring)
    ]


def _matches(molecule: Any, smarts: str) -> Sequence[tuple[int, ...]]:
    from rdkit import Chem  # noqa: PLC0415  (an extra)

    return molecule.GetSubstructMatches(Chem.MolFromSmarts(smarts))


def _logp_contributions(molecule: Any) -> list[float]:
    """The contribution of every atom to logP (Wildman and Crippen 1999)."""
    from rdkit.Chem import rdMolDescriptors  # noqa: PLC0415  (an extra)

    return [logp for logp, _ in rdMolDescriptors._CalcCrippenContribs(molecule)]


def _rows(path: Path, *columns: str) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not set(columns) <= set(rows[0]):
        raise DataError(f"{path} must have the columns {sorted(columns)}")
    return rows


def _molecule(smiles: str, *, hydrogens: bool) -> Any:
    from rdkit import Chem  # noqa: PLC0415  (an extra)

    molecule: Any = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise DataError(f"RDKit cannot read the molecule {smiles!r}")
    return Chem.AddHs(molecule) if hydrogens else molecule


def _graph(molecule: Any) -> Data:
    """Atoms as nodes in RDKit's order, bonds as edges in both directions."""
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    ends = [pair for first, second in bonds for pair in ((first, second), (second, first))]
    return Data(
        x=torch.tensor([_features(atom) for atom in molecule.GetAtoms()]),
        edge_index=torch.tensor(ends, dtype=torch.long).reshape(-1, 2).t().contiguous(),
        node_names=[f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in molecule.GetAtoms()],
    )


def _features(atom: Any) -> list[float]:
    """Kind of atom (one-hot), attached hydrogens that are no nodes, degree and charge."""
    symbol = atom.GetSymbol()
    if symbol not in ATOMS:
        raise DataError(f"atom {symbol!r} is none of {', '.join(ATOMS)}")
    kind = [float(symbol == name) for name in ATOMS]
    counts = (atom.GetTotalNumHs(), atom.GetDegree(), atom.GetFormalCharge())
    return [*kind, *map(float, counts)]
