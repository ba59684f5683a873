"""The paper's data sets, with ground truth explanations where they are known.

>>> from graphsvx_lab import datasets
>>> datasets.load("ba-shapes", seed=0).graph.num_nodes
700
"""

from typing import TYPE_CHECKING

from graphsvx.utils.imports import lazy_attributes
from graphsvx_lab.datasets.catalogue import (
    PAPER_STATISTICS,
    Statistics,
    data_dir,
    load,
    models_dir,
    names,
    statistics,
)

if TYPE_CHECKING:
    from graphsvx_lab.datasets.base import DataSet, GraphTruth, NodeTruth, Noise, Split, Truth
    from graphsvx_lab.datasets.real import nitro_and_amino, with_noisy_features, with_noisy_nodes

__all__ = [
    "PAPER_STATISTICS",
    "DataSet",
    "GraphTruth",
    "NodeTruth",
    "Noise",
    "Split",
    "Statistics",
    "Truth",
    "data_dir",
    "load",
    "models_dir",
    "names",
    "nitro_and_amino",
    "statistics",
    "with_noisy_features",
    "with_noisy_nodes",
]

# Imported at first use, with torch: the list of data sets does not need it.
_MODULES = {
    "base": ("DataSet", "GraphTruth", "NodeTruth", "Noise", "Split", "Truth"),
    "real": ("nitro_and_amino", "with_noisy_features", "with_noisy_nodes"),
}
__getattr__ = lazy_attributes(
    __name__, {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
)
