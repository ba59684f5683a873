"""Models of data sets that a study changed: trained once, then read from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

from graphsvx import datasets, zoo
from graphsvx.datasets.base import DataSet, generator, stratified_split
from graphsvx.studies.context import QUICK_EPOCHS, StudyContext, digest
from graphsvx.studies.study import MakeModel
from graphsvx.zoo import Settings, Trained

Change = Callable[[DataSet], DataSet]


def model_of(change: Change, settings: Settings, name: str) -> MakeModel:
    """A model with these settings, trained on a data set after `change`."""

    def make(context: StudyContext, dataset: str, seed: int) -> Trained:
        shorter = replace(settings, epochs=max(1, settings.epochs // QUICK_EPOCHS))
        return _trained(change, shorter if context.quick else settings, name, dataset, seed,
                        context.runs / "models-of-changed-data")  # fmt: skip

    return make


@lru_cache(maxsize=2)
def _trained(
    change: Change, settings: Settings, name: str, dataset: str, seed: int, folder: Path
) -> Trained:
    data = change(datasets.load(dataset, seed))
    kind = f"{name}-{digest(settings)}-{data.fingerprint[:12]}"
    path = folder / f"{dataset}-{kind}-seed{seed}.safetensors"
    if path.exists():
        return zoo.load(path, dataset=data)
    trained = zoo.train(data, seed=seed, settings=settings)
    zoo.save(trained, path)
    return trained


def part_of(data: DataSet, count: int) -> DataSet:
    """`count` graphs drawn by the seed of the data, split anew; graphs have no truth any more."""
    order = torch.randperm(len(data.graphs), generator=generator(data.seed, data.name, "part"))
    graphs = tuple(data.graphs[i] for i in order[:count].tolist())
    labels = torch.cat([graph.y for graph in graphs])
    split = stratified_split(labels, generator(data.seed, data.name, "part split"))
    return replace(data, graphs=graphs, split=split, truth=None)
