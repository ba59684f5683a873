"""The paper's data sets, with ground truth explanations where they are known.

>>> from graphsvx import datasets
>>> datasets.load("ba-shapes", seed=0).graph.num_nodes
700
"""

from graphsvx.datasets.base import DataSet, Noise, Split
from graphsvx.datasets.folders import data_dir, models_dir
from graphsvx.datasets.noise import with_noisy_features, with_noisy_nodes
from graphsvx.datasets.real import nitro_and_amino
from graphsvx.datasets.registry import PAPER_STATISTICS, Statistics, load, names, statistics
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
