"""The paper's models: made, trained, kept and loaded again.

>>> from graphsvx_lab import zoo
>>> trained = zoo.ensure("ba-shapes")          # trains the first time, loads afterwards
>>> logits = trained.model(trained.dataset.graph.x, trained.dataset.graph.edge_index)
"""

from graphsvx_lab.zoo.checkpoints import checkpoint_path, ensure, load, read, save
from graphsvx_lab.zoo.settings import Card, Settings, models, settings_for
from graphsvx_lab.zoo.training import Progress, Step, Trained, accuracies, build, train

__all__ = [
    "Card",
    "Progress",
    "Settings",
    "Step",
    "Trained",
    "accuracies",
    "build",
    "checkpoint_path",
    "ensure",
    "load",
    "models",
    "read",
    "save",
    "settings_for",
    "train",
]
