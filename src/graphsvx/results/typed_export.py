"""Explanations of typed graphs as PyG's `HeteroExplanation`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphsvx.results import pyg_record
from graphsvx.results.record import ExplanationRecord
from graphsvx.results.typed import GraphTypes
from graphsvx.results.typed_credit import features_by_type


def to_hetero(explanation: ExplanationRecord, types: GraphTypes, data: Any = None) -> Any:
    """A `HeteroExplanation` with a node mask [nodes, 1] or an edge mask [edges] for each type.

    Masks are by the size of the credit, `node_credit`, `edge_credit` and `feature_credit` signed.
    With `data` it has x and edge_index too, and where nodes play, their credit on edges.
    """
    converted = pyg_record.CreditedHeteroExplanation()
    nodes = torch.zeros(types.node_starts[-1], dtype=torch.float64)
    edges = None
    if explanation.edge_credit.players:
        edges = edge_mask(explanation, types)
    else:
        nodes[explanation.node_ids] = explanation.node_values
        node_masks = pyg_record.mask(nodes).float()
        node_masks[list(explanation.centres)] = 1.0
        for at, node_type in enumerate(types.node_types):
            part = slice(*types.node_starts[at : at + 2])
            converted[node_type].node_mask = node_masks[part, None].clone()
            converted[node_type].node_credit = nodes[part, None].float()
            converted[node_type].num_nodes = int(part.stop - part.start)
    if data is not None:
        first = dict(zip(types.node_types, types.node_starts, strict=False))
        ends = [
            data[name].edge_index.cpu() + torch.tensor([[first[name[0]]], [first[name[2]]]])
            for name in types.edge_types
        ]
        if edges is None:
            edges = pyg_record.carried_credit(explanation, nodes, torch.cat(ends, 1))
        for name in types.edge_types:
            converted[name].edge_index = data[name].edge_index
        for node_type in types.node_types:
            if "x" in data[node_type]:
                converted[node_type].x = data[node_type].x
    if edges is not None:
        edge_masks = pyg_record.mask(edges).float()
        for at, name in enumerate(types.edge_types):
            part = slice(*types.edge_starts[at : at + 2])
            converted[name].edge_mask = edge_masks[part].clone()
            converted[name].edge_credit = edges[part].float()
    converted.edge_credit_from = "edges" if explanation.edge_credit.players else "nodes"
    for node_type, credit in features_by_type(explanation).items():
        at = types.node_types.index(node_type)
        row = torch.zeros(types.feature_starts[at + 1] - types.feature_starts[at])
        row[credit.ids] = credit.values.float()
        converted[node_type].feature_credit = row
    converted.target = torch.tensor([explanation.target])
    converted.prediction_score = explanation.prediction
    converted.base = explanation.base
    if data is not None and types.edge_types:
        converted = converted.to(data[types.edge_types[0]].edge_index.device)
    converted._graphsvx = explanation
    return converted


def edge_mask(explanation: ExplanationRecord, types: GraphTypes) -> Tensor:
    """Credit of each edge of the graph, [edges]; the edges of one player share it evenly."""
    shares = torch.bincount(types.edge_owners, minlength=explanation.edge_credit.players)
    mask = torch.zeros(types.edge_starts[-1])
    credit = (explanation.edge_values / shares.clamp(min=1)).float()
    return mask.index_add_(0, types.edge_members, credit[types.edge_owners])
