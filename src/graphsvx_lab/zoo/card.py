"""The model card of a checkpoint: model, data, settings and accuracy."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Literal

import numpy
import torch
import torch_geometric

from graphsvx.errors import DataError, InputError
from graphsvx.utils.constraints import Checked, Range, Seed, Share, shown
from graphsvx_lab.zoo.settings import Settings, Width

FORMAT = 1


@dataclass(frozen=True)
class Card(Checked):
    """Metadata of a checkpoint.

    dataset, data_seed, fingerprint: the data, and the SHA-256 of its tensors.
    task, features, classes: the task, and the model's input and output widths.
    seed: seed of initial weights, dropout and batches.
    accuracy: accuracy on "train", "val" and "test".
    best_epoch: the epoch with the lowest validation loss, whose weights are stored.
    versions: package versions at training time.
    weights: SHA-256 of the weights file, "" before it is written.
    """

    dataset: str
    data_seed: Seed
    fingerprint: str
    task: Literal["node", "graph", "link"]
    features: Width
    classes: Width
    seed: Seed
    settings: Settings
    accuracy: dict[str, Share]
    best_epoch: Annotated[int, Range(0)]
    versions: dict[str, str]
    weights: str = ""

    @property
    def name(self) -> str:
        """File name without suffix: data set, model, seed, and the data's seed if it differs."""
        data_seed = "" if self.data_seed == self.seed else f"-data{self.data_seed}"
        return f"{self.dataset}-{self.settings.model}-seed{self.seed}{data_seed}"

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Card:
        """Parse JSON text; `DataError` if it is damaged or has unknown entries.

        Raises:
            DataError: it is no card, is damaged, or has unknown entries.

        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON ({error})") from error
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise DataError(f"not a card of format {FORMAT}")
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            raise DataError(f"missing or unknown entries {', '.join(sorted(set(values) ^ names))}")
        if not isinstance(values["settings"], dict):
            raise DataError(f"settings must be a dictionary, got {shown(values['settings'])}")
        try:
            return cls(**{**values, "settings": Settings.from_json(values["settings"])})
        except InputError as error:
            raise DataError(str(error)) from error

    def with_weights(self, digest: str) -> Card:
        """The card of the checkpoint whose weights file has this SHA-256."""
        return replace(self, weights=digest)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that training depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "numpy": numpy.__version__,
    }
