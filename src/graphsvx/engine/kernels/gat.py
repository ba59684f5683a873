"""GATConv."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch_geometric.nn import GATConv

from graphsvx.engine.kernels.base import Heads, LayerKernel, with_residual
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.kernels.segments import BatchEdges

# exp(-x) may underflow in single precision for larger x.
_STEEP = 50.0


def forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention whose scores are a sum of a sender's and a receiver's part.

    The softmax needs no maximum over each neighbourhood: no score is above that of the strongest
    sender, which is subtracted; scores too far below it are left to the layer's own code.
    """
    if layer.lin is None or layer.edge_dim is not None or not 0 <= layer.negative_slope <= 1:
        return None
    values = Heads.of(layer.lin(x), layer.heads)
    sent, received = (values.table * layer.att_src).sum(-1), (values.table * layer.att_dst).sum(-1)
    most, least = sent.amax(0), sent.amin(0)
    if not bool((most - least < _STEEP).all()):
        return None
    loops = layer.add_self_loops
    segments = edges.segments_with_self_loops(rows) if loops else edges.segments(rows)
    sources, targets = values.at(segments.sources), segments.targets()
    received = received.index_select(0, values.at(torch.arange(rows, device=sources.device)))
    shift = functional.leaky_relu(received + most, layer.negative_slope)
    scores = functional.leaky_relu_(
        sent.index_select(0, sources).add_(received.index_select(0, targets)), layer.negative_slope
    )
    weights = (scores - shift.index_select(0, targets)).exp_()
    return with_residual(layer, segments.means(weights, values.table, sources), x, rows)


def first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.lin is None or layer.edge_dim is not None:
        return None
    values = Heads.of(layer.lin(x), layer.heads).table
    sent, received = (values * layer.att_src).sum(-1), (values * layer.att_dst).sum(-1)
    sources, targets = edges.edges.sources, edges.edges.targets
    pair = sent.index_select(0, sources) + received.index_select(0, targets)
    scores = functional.leaky_relu(pair, layer.negative_slope)
    self_scores = functional.leaky_relu(sent + received, layer.negative_slope)[: edges.edges.count]
    out = edges.attend(scores, self_scores if layer.add_self_loops else None, values)
    return None if out is None else with_residual(layer, out, x, rows)


KERNEL = LayerKernel(GATConv, reads_degrees=False, forward=forward, first_round=first_round)
