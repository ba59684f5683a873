"""Explanations of typed graphs as PyG's `HeteroExplanation`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphsvx.results.base import BaseExplanation
from graphsvx.results.typed import GraphTypes
from graphsvx.results.typed_credit import features_by_type


def to_hetero(explanation: BaseExplanation, types: GraphTypes) -> Any:
    """A `HeteroExplanation` with a node mask [nodes, 1] (or an edge mask [edges]) for each type."""
    from torch_geometric.explain import HeteroExplanation  # noqa: PLC0415  (slow)

    converted = HeteroExplanation()
    if explanation.edge_credit.players:
        mask = edge_mask(explanation, types)
        for at, name in enumerate(types.edge_types):
            converted[name].edge_mask = mask[types.edge_starts[at] : types.edge_starts[at + 1]]
    else:
        mask = torch.zeros(types.node_starts[-1])
        mask[explanation.node_ids] = explanation.node_values.float()
        for at, node_type in enumerate(types.node_types):
            part = mask[types.node_starts[at] : types.node_starts[at + 1]]
            converted[node_type].node_mask = part[:, None].clone()
            converted[node_type].num_nodes = len(part)
    for node_type, credit in features_by_type(explanation).items():
        at = types.node_types.index(node_type)
        row = torch.zeros(types.feature_starts[at + 1] - types.feature_starts[at])
        row[credit.ids] = credit.values.float()
        converted[node_type].feature_credit = row
    converted.target = torch.tensor([explanation.target])
    converted.prediction_score = explanation.prediction
    converted.base = explanation.base
    return converted


def edge_mask(explanation: BaseExplanation, types: GraphTypes) -> Tensor:
    """Credit of each edge of the graph, [edges]; the edges of one player share it evenly."""
    shares = torch.bincount(types.edge_owners, minlength=explanation.edge_credit.players)
    mask = torch.zeros(types.edge_starts[-1])
    credit = (explanation.edge_values / shares.clamp(min=1)).float()
    return mask.index_add_(0, types.edge_members, credit[types.edge_owners])
