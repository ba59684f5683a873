"""GATConv."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch_geometric.nn import GATConv

from graphsvx.engine.kernels.base import Heads, LayerKernel, with_residual
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.kernels.segments import BatchEdges, embedding_sum

# exp(-x) may underflow in single precision for larger x.
_STEEP = 50.0


def forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention whose scores are a sum of a sender's and a receiver's part.

    The softmax needs no maximum over each neighbourhood: no score is above that of the strongest
    sender, which is subtracted; scores too far below it are left to the layer's own code.
    """
    if layer.lin is None or layer.edge_dim is not None or not 0 <= layer.negative_slope <= 1:
        return None
    heads, width = layer.heads, layer.out_channels
    values = Heads.of(layer.lin(x), heads)
    sent = (values.table * layer.att_src).sum(-1).t().contiguous()
    received = (values.table * layer.att_dst).sum(-1).t().contiguous()
    most, least = sent.amax(1, keepdim=True), sent.amin(1, keepdim=True)
    if not bool((most - least < _STEEP).all()):
        return None
    loops = layer.add_self_loops
    segments = edges.segments_with_self_loops(rows) if loops else edges.segments(rows)
    sources = values.at(segments.sources)
    received = received.index_select(1, values.at(torch.arange(rows, device=sources.device)))
    shift = functional.leaky_relu(received + most, layer.negative_slope)
    targets = segments.targets()
    score = functional.leaky_relu_(
        sent.index_select(1, sources).add_(received.index_select(1, targets)), layer.negative_slope
    )
    score = (score - shift.index_select(1, targets)).exp_()
    head = torch.arange(heads, device=sources.device)[:, None]
    # The sum of the weights is one more column of the values.
    table = functional.pad(values.table, (0, 1), value=1.0).reshape(-1, width + 1)
    out = embedding_sum(
        (sources * heads + head).reshape(-1), table,
        (segments.starts + head * sources.shape[0]).reshape(-1), score.reshape(-1),
    ).view(heads, rows, width + 1)  # fmt: skip
    total = out[:, :, width:]
    if not loops:
        total = total.masked_fill(total == 0, 1)  # no in-neighbours
    return with_residual(layer, (out[:, :, :width] / total).transpose(0, 1), x, rows)


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
