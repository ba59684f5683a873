"""TransformerConv."""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch_geometric.nn import TransformerConv

from graphsvx.engine.kernels.base import Heads, LayerKernel, attend, merge_heads
from graphsvx.engine.kernels.segments import BatchEdges
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.prefix import first


def forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores q_i . k_j / sqrt(width), and a (gated) skip connection."""
    if layer.lin_edge is not None:
        return None
    segments, heads = edges.segments(rows), layer.heads
    query, key, value = (
        Heads.of(lin(x), heads) for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
    )
    targets = segments.targets()
    pair = query.table.index_select(0, query.at(targets))
    pair *= key.table.index_select(0, key.at(segments.sources))
    scores = pair.sum(-1) / sqrt(layer.out_channels)
    out = merge_heads(layer, attend(scores, value, segments, targets, rows))
    if not layer.root_weight:
        return out
    skip = plain(layer.lin_skip(first(x, rows)))
    if layer.lin_beta is None:
        return out + skip
    beta = layer.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
    return beta * skip + (1 - beta) * out


KERNEL = LayerKernel(TransformerConv, reads_degrees=False, forward=forward)
