"""GATv2Conv."""

from __future__ import annotations

from typing import Any

from torch.nn import functional
from torch_geometric.nn import GATv2Conv

from graphsvx.engine.kernels.base import (
    Heads,
    LayerKernel,
    add_projection,
    attend,
    merge_heads,
)
from graphsvx.engine.kernels.segments import BatchEdges


def forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores a . leaky_relu(W_l x_j + W_r x_i)."""
    if layer.edge_dim is not None:
        return None
    loops = layer.add_self_loops
    segments = edges.segments_with_self_loops(rows) if loops else edges.segments(rows)
    sent = Heads.of(layer.lin_l(x), layer.heads)
    received = sent if layer.share_weights else Heads.of(layer.lin_r(x), layer.heads)
    targets = segments.targets()
    pair = sent.table.index_select(0, sent.at(segments.sources))
    pair += received.table.index_select(0, received.at(targets))
    scores = (functional.leaky_relu_(pair, layer.negative_slope) * layer.att).sum(-1)
    out = merge_heads(layer, attend(scores, sent, segments, targets, rows))
    if layer.res is not None:
        out = add_projection(out, layer.res, x, rows)
    return out if layer.bias is None else out + layer.bias


KERNEL = LayerKernel(GATv2Conv, reads_degrees=False, forward=forward)
