"""Names of data sets and models, as tables and figures show them."""

from __future__ import annotations

from functools import cache

from graphsvx_lab.datasets.noise import FEATURES_SUFFIX, NODES_SUFFIX

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
_TITLES = {
    **TRUTH_TITLES,
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
    "amazon-photo": "Amazon-Photo",
}


@cache
def data_title(dataset: str, model: str = "") -> str:
    """`Cora, GAT`: a data set and, unless it is the usual one, the model."""
    clean = dataset.removesuffix(FEATURES_SUFFIX).removesuffix(NODES_SUFFIX)
    shown = model.replace("gcn", "GCN").replace("gat", "GAT")
    return ", ".join(part for part in (_TITLES.get(clean, clean), shown) if part)
