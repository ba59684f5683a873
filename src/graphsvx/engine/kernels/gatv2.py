"""GATv2Conv."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GATv2Conv

from graphsvx.engine.kernels.base import Heads, LayerKernel, attend, with_residual
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.kernels.segments import BatchEdges


def forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores a . leaky_relu(W_l x_j + W_r x_i)."""
    if layer.edge_dim is not None:
        return None
    loops = layer.add_self_loops
    segments = edges.segments_with_self_loops(rows) if loops else edges.segments(rows)
    sent, received = _projected(layer, x)
    targets = segments.targets()
    pair = sent.table.index_select(0, sent.at(segments.sources))
    pair += received.table.index_select(0, received.at(targets))
    out = attend(_scores(layer, pair), sent, segments, targets, rows)
    return with_residual(layer, out, x, rows)


def first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.edge_dim is not None:
        return None
    sent, received = (heads.table for heads in _projected(layer, x))
    pair = sent.index_select(0, edges.edges.sources)
    pair += received.index_select(0, edges.edges.targets)
    self_scores = None
    if layer.add_self_loops:
        self_scores = _scores(layer, (sent + received)[: edges.edges.count])
    out = edges.attend(_scores(layer, pair), self_scores, sent)
    return None if out is None else with_residual(layer, out, x, rows)


def _projected(layer: Any, x: Any) -> tuple[Heads, Heads]:
    """W_l x and W_r x."""
    sent = Heads.of(layer.lin_l(x), layer.heads)
    return sent, sent if layer.share_weights else Heads.of(layer.lin_r(x), layer.heads)


def _scores(layer: Any, pair: Tensor) -> Tensor:
    """a . leaky_relu(pair), [edges, heads]. Overwrites `pair`."""
    scores: Tensor = (functional.leaky_relu_(pair, layer.negative_slope) * layer.att).sum(-1)
    return scores


KERNEL = LayerKernel(GATv2Conv, reads_degrees=False, forward=forward, first_round=first_round)
