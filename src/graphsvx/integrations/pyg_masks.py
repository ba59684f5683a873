"""Signed credit as the masks of `torch_geometric.explain`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import HeteroExplanation

from graphsvx.results.cells import OTHER_FEATURES
from graphsvx.results.explanation import Explanation
from graphsvx.results.pyg_record import mask


def set_masks(converted: HeteroExplanation, side: str) -> None:
    """Masks of all types on one scale."""
    credit = converted.collect(f"{side}_credit")
    masked = mask(torch.cat([part.reshape(-1) for part in credit.values()]))
    sizes = [part.numel() for part in credit.values()]
    for (name, part), values in zip(credit.items(), torch.split(masked, sizes), strict=True):
        converted[name][f"{side}_mask"] = values.reshape(part.shape).clone()


def cell_credit(explanation: Explanation, data: Data) -> Tensor:
    """Credit of each feature of each node, [nodes, features].

    The credit of features that share a cell, and that of nodes without cells, is spread evenly
    over their columns.
    """
    if explanation.cells is None:
        return explanation.to_captum(data)[0][0].double().cpu()
    matrix, row = explanation.cell_matrix, explanation.outputs.index(explanation.target)
    columns_of: dict[int, set[int]] = {}
    for node, feature in zip(explanation.cells.nodes, explanation.cells.features, strict=True):
        columns_of.setdefault(node, set()).add(feature)
    values = explanation.cells.values[row]
    for node, feature, value in zip(
        explanation.cells.nodes, explanation.cells.features, values, strict=True
    ):
        others = [column for column in range(matrix.shape[1]) if column not in columns_of[node]]
        if feature == OTHER_FEATURES and others:
            matrix[node, others] += value / len(others)
    for node, value in explanation.nodes.items():
        if node not in columns_of and node >= 0:
            matrix[node] += value / matrix.shape[1]
    return matrix
