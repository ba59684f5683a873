"""The paper's data sets, with ground truth explanations where they are known.

>>> from graphsvx import datasets
>>> datasets.load("ba-shapes", seed=0).graph.num_nodes
700
"""

from typing import TYPE_CHECKING

from graphsvx.datasets.catalogue import PAPER_STATISTICS, Statistics, names
from graphsvx.datasets.folders import data_dir, models_dir
from graphsvx.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from graphsvx.datasets.base import DataSet, Noise, Split
    from graphsvx.datasets.noise import with_noisy_features, with_noisy_nodes
    from graphsvx.datasets.real import nitro_and_amino
    from graphsvx.datasets.registry import load, statistics
    from graphsvx.datasets.truth import GraphTruth, NodeTruth, Truth

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
__getattr__ = lazy_attributes(
    __name__,
    {
        "DataSet": "graphsvx.datasets.base",
        "GraphTruth": "graphsvx.datasets.truth",
        "NodeTruth": "graphsvx.datasets.truth",
        "Noise": "graphsvx.datasets.base",
        "Split": "graphsvx.datasets.base",
        "Truth": "graphsvx.datasets.truth",
        "load": "graphsvx.datasets.registry",
        "nitro_and_amino": "graphsvx.datasets.real",
        "statistics": "graphsvx.datasets.registry",
        "with_noisy_features": "graphsvx.datasets.noise",
        "with_noisy_nodes": "graphsvx.datasets.noise",
    },
)
