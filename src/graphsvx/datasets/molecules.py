"""Molecules with ground truth on atoms (needs RDKit): benzene, alkane-carbonyl, crippen.

Sanchez-Lengeling et al. 2020, from ZINC12. Files are plain text: `smiles`, `y`, `split` and
`atom_truth`, which for the two classification sets holds the alternatives that each explain the
label on their own, and for crippen the contribution of every atom to y.
"""

from __future__ import annotations

import csv
import io
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphsvx.datasets import raw
from graphsvx.datasets.base import DataSet, Split, generator
from graphsvx.datasets.truth import GraphTruth
from graphsvx.errors import DataError
from graphsvx.utils.extras import require_extra

COLUMNS = ("smiles", "y", "split", "atom_truth")
ATOMS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P", "H")
FEATURES = (*ATOMS, "hydrogens", "degree", "charge")
CLASS_NAMES = {
    "benzene": ("no benzene ring", "benzene ring"),
    "alkane-carbonyl": ("not both", "fluoride and carbonyl"),
    "crippen": ("logP",),
}
MOTIFS = {"benzene": ("c1ccccc1",), "alkane-carbonyl": ("[FX1]", "[CX3]=O")}
"""SMARTS of what a molecule of class 1 has, as in the code of the authors."""
_VALIDATION = 0.1


def molecules(name: str, seed: int, root: str | Path | None) -> DataSet:
    """One of the sets; the seed chooses a tenth of the training part for validation."""
    require_extra("rdkit", "molecules")
    regression = name == "crippen"
    graphs, node_masks, alternatives, contributions, test = [], [], [], [], []
    for row in _rows(raw.folder_of(name, root, partial(convert, name)) / f"{name}.csv"):
        graph = _graph(row["smiles"], hydrogens=regression)
        label = float(row["y"]) if regression else int(row["y"])
        graph.y = torch.tensor([label])
        graphs.append(graph)
        test.append(row["split"] == "test")
        if regression:
            truth = torch.tensor([float(part) for part in row["atom_truth"].split()])
            contributions.append(truth)
            node_masks.append(torch.zeros(len(truth), dtype=torch.bool))
        else:
            options = tuple(
                torch.tensor([letter == "1" for letter in option])
                for option in row["atom_truth"].split("|")
            )
            alternatives.append(options if bool(options[0].any()) else ())
            node_masks.append(torch.stack(options).any(0))
        if len(node_masks[-1]) != graph.num_nodes:
            raise DataError(f"{name}: {row['smiles']} does not have {len(node_masks[-1])} atoms")
    kind = {"benzene": "benzene ring", "alkane-carbonyl": "fluoride and carbonyl"}
    return DataSet(
        name=name,
        seed=seed,
        graphs=tuple(graphs),
        task="graph",
        class_names=CLASS_NAMES[name],
        feature_names=FEATURES,
        split=_split(torch.tensor(test), generator(seed, name, "split")),
        truth=GraphTruth(
            tuple(node_masks),
            tuple(_edges_inside(*pair) for pair in zip(graphs, node_masks, strict=True)),
            kind.get(name, "atom contributions"),
            alternatives=tuple(alternatives) or None,
            contributions=tuple(contributions) or None,
        ),
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
        truth = _contributions(row["smiles"]) if name == "crippen" else _motifs(name, row["smiles"])
        table.writerow([row["smiles"], truth[0], "test" if index in test else "train", truth[1]])
    return {f"{name}.csv": text.getvalue().encode()}


def _contributions(smiles: str) -> tuple[str, str]:
    """logP by Crippen's rules, and the part of every atom in it."""
    from rdkit.Chem.rdMolDescriptors import _CalcCrippenContribs  # noqa: PLC0415  (an extra)

    parts = [logp for logp, _ in _CalcCrippenContribs(_molecule(smiles, hydrogens=True))]
    return f"{sum(parts):g}", " ".join(f"{part:g}" for part in parts)


def _motifs(name: str, smiles: str) -> tuple[str, str]:
    """Whether all motifs are there, and the sets of atoms that show it.

    Each union of some matches of the first motif with some of the second shows it.
    """
    from rdkit import Chem  # noqa: PLC0415  (an extra)

    molecule = _molecule(smiles, hydrogens=False)
    unions = []
    for motif in MOTIFS[name]:
        matches = molecule.GetSubstructMatches(Chem.MolFromSmarts(motif))
        sizes = range(1, len(matches) + 1)
        unions.append(
            [set().union(*subset) for size in sizes for subset in combinations(matches, size)]
        )
    options = [set().union(*parts) for parts in product(*unions)]
    atoms = range(molecule.GetNumAtoms())
    marks = ["".join(str(int(atom in option)) for atom in atoms) for option in options or [set()]]
    return str(int(bool(options))), "|".join(marks)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise DataError(f"{path} must have the columns {sorted(COLUMNS)}")
    return rows


def _graph(smiles: str, *, hydrogens: bool) -> Data:
    """Atoms as nodes in RDKit's order, bonds as edges in both directions."""
    molecule = _molecule(smiles, hydrogens=hydrogens)
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    ends = [pair for first, second in bonds for pair in ((first, second), (second, first))]
    return Data(
        x=torch.tensor([_features(atom) for atom in molecule.GetAtoms()]),
        edge_index=torch.tensor(ends, dtype=torch.long).reshape(-1, 2).t().contiguous(),
    )


def _molecule(smiles: str, *, hydrogens: bool) -> Any:
    from rdkit import Chem  # noqa: PLC0415  (an extra)

    molecule: Any = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise DataError(f"RDKit cannot read the molecule {smiles!r}")
    return Chem.AddHs(molecule) if hydrogens else molecule


def _features(atom: Any) -> list[float]:
    """Kind of atom (one-hot), attached hydrogens that are no nodes, degree and charge."""
    symbol = atom.GetSymbol()
    if symbol not in ATOMS:
        raise DataError(f"atom {symbol!r} is none of {', '.join(ATOMS)}")
    kind = [float(symbol == name) for name in ATOMS]
    counts = (atom.GetTotalNumHs(), atom.GetDegree(), atom.GetFormalCharge())
    return [*kind, *map(float, counts)]


def _split(test: Tensor, rng: torch.Generator) -> Split:
    train = torch.nonzero(~test).flatten()
    order = train[torch.randperm(len(train), generator=rng)]
    count = int(_VALIDATION * len(train))
    return Split(
        train=order[count:].sort().values,
        val=order[:count].sort().values,
        test=torch.nonzero(test).flatten(),
    )


def _edges_inside(graph: Data, node_mask: Tensor) -> Tensor:
    return node_mask[graph.edge_index].all(0)
