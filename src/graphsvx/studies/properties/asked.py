"""Which nodes the study of properties explains."""

from __future__ import annotations

import torch

from graphsvx.data.base import generator
from graphsvx.studies.desk import Desk
from graphsvx.studies.motifs import Asked
from graphsvx.zoo import Trained

MOTIF_NODES = 45
TEST_NODES = 30


def questions(desk: Desk, world: Trained) -> list[int]:
    """Motif nodes that the model classifies right, or test nodes where there are no motifs."""
    if world.dataset.truth is not None:
        return list(Asked.of(world, desk.pick(MOTIF_NODES, 6)).strict)
    test = world.dataset.split.test
    order = torch.randperm(len(test), generator=generator(world.dataset.seed, "properties"))
    return sorted(test[order[:TEST_NODES]].tolist())


def cora_worlds(desk: Desk) -> list[tuple[str, str, str | None]]:
    """Cora's two models as (title, data set, model), where its files are there."""
    if desk.quick or desk.missing("cora") is not None:
        return []
    return [("Cora, GCN", "cora", "gcn"), ("Cora, GAT", "cora", "gat")]
