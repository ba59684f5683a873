"""TransformerConv."""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import TransformerConv

from graphsvx.engine.kernels.base import Heads, LayerKernel, attend, merge_heads
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.kernels.segments import BatchEdges
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.prefix import first


def forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores q_i . k_j / sqrt(width), and a (gated) skip connection."""
    if layer.lin_edge is not None:
        return None
    segments = edges.segments(rows)
    query, key, value = _projected(layer, x)
    targets = segments.targets()
    pair = query.table.index_select(0, query.at(targets))
    pair *= key.table.index_select(0, key.at(segments.sources))
    scores = pair.sum(-1) / sqrt(layer.out_channels)
    return _with_skip(layer, attend(scores, value, segments, targets, rows), x, rows)


def first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.lin_edge is not None:
        return None
    query, key, value = (heads.table for heads in _projected(layer, x))
    pair = query.index_select(0, edges.edges.targets) * key.index_select(0, edges.edges.sources)
    out = edges.attend(pair.sum(-1) / sqrt(layer.out_channels), None, value)
    return None if out is None else _with_skip(layer, out, x, rows)


def _projected(layer: Any, x: Any) -> tuple[Heads, Heads, Heads]:
    """Queries, keys and values."""
    query, key, value = (
        Heads.of(lin(x), layer.heads) for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
    )
    return query, key, value


def _with_skip(layer: Any, heads: Tensor, x: Any, rows: int) -> Any:
    """Output of the layer from that of its heads."""
    out = merge_heads(layer, heads)
    if not layer.root_weight:
        return out
    skip = plain(layer.lin_skip(first(x, rows)))
    if layer.lin_beta is None:
        return out + skip
    beta = layer.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
    return beta * skip + (1 - beta) * out


KERNEL = LayerKernel(TransformerConv, reads_degrees=False, forward=forward, first_round=first_round)
