from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphsvx_lab import datasets, zoo
from graphsvx_lab.datasets import DataSet
from graphsvx_lab.zoo import Trained


@pytest.fixture(scope="session")
def shapes() -> DataSet:
    return datasets.load("ba-shapes")


@pytest.fixture(scope="session")
def quick(shapes: DataSet) -> Trained:
    """A model that was trained for a moment."""
    return zoo.train(shapes, settings=replace(zoo.settings_for(shapes), epochs=10))


@pytest.fixture
def path(quick: Trained, tmp_path: Path) -> Path:
    """The quick model's checkpoint."""
    return zoo.save(quick, root=tmp_path)
