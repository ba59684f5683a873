"""Functions shared by the gradient methods, which use captum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphsvx.estimators.direct import mask_as_credit
from graphsvx.methods.local_graph import LocalGraph
from graphsvx.results.credit import Credit


def attributions_to_credit(
    local_graph: LocalGraph, attributions: list[Tensor]
) -> tuple[Credit, Credit]:
    """EXPL: feature and node credit from one attribution matrix [N, F] per output.

    The rows of the explained nodes are feature credit; the sum of every other row is the credit of
    its node. A graph query has no explained node, so all credit is node credit.
    """
    others = local_graph.others
    width = local_graph.x.shape[1] if len(local_graph.centres) else 0
    features = [matrix[local_graph.centres][:, :width].sum(0) for matrix in attributions]
    nodes = [matrix.sum(1)[others.to(matrix.device)] for matrix in attributions]
    return mask_as_credit(torch.arange(width), features), mask_as_credit(
        torch.from_numpy(local_graph.ids)[others], nodes
    )


def score_function(local_graph: LocalGraph, output: int) -> Any:
    """The function that captum differentiates: features [steps, N, F] to scores [steps]."""

    def scores(batch: Tensor) -> Tensor:
        return torch.stack([local_graph.scores(x)[output] for x in batch])

    return scores
