"""GCNConv."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphsvx.engine.kernels.base import LayerKernel
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.kernels.segments import BatchEdges, EdgeSegments, as_tensor
from graphsvx.engine.lazy.base import plain


def forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """D^-1/2 (A + I) D^-1/2 X W + b."""
    if not layer.normalize:
        return None
    if layer.add_self_loops and edges.loops and edges.weight is not None:
        return None  # PyG keeps the weights of existing self-loops
    x = layer.lin(x)
    # `improved` gives self-loops weight 2; PyG ignores it for edges without weights.
    heavy = layer.improved and edges.weight is not None
    fill = (2.0 if heavy else 1.0) if layer.add_self_loops else 0.0
    segments = edges.segments_with_self_loops(rows) if fill else edges.segments(rows)

    def weights() -> Tensor:
        return _normalised_weights(edges, fill, rows, segments, x.dtype)

    weight = edges.once(("gcn", fill), weights)
    count = segments.sources.shape[0]
    if weight.shape[0] < count:  # a later round needs more rows than the first
        weight = weights()
    out = segments.add(x, weight[:count])
    return out if layer.bias is None else out.add_(layer.bias)


def first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:  # noqa: ARG001  (all rows)
    """The same; 1 / sqrt(degree) of a sender is its part of the weight of its edges."""
    if not layer.normalize or edges.degree is None:
        return None
    x = layer.lin(x)
    fill = 1.0 if layer.add_self_loops else 0.0
    root = _inverse_root(edges.degree.to(x.dtype) + fill)
    messages = plain(x.base).index_select(0, edges.edges.sources)
    own_root = edges.of_rows(root)
    out = edges.sums(messages, root * edges.active)
    if fill:
        out += own_root * plain(x)
    out *= own_root
    return out if layer.bias is None else out.add_(layer.bias)


def _inverse_root(degree: Tensor) -> Tensor:
    """D^-1/2, 0 where the degree is 0. Overwrites `degree`."""
    root = degree.pow_(-0.5)
    return root.masked_fill_(root == torch.inf, 0)


def _normalised_weights(
    edges: BatchEdges, fill: float, rows: int, segments: EdgeSegments, dtype: torch.dtype
) -> Tensor:
    """Entries of D^-1/2 (A + fill I) D^-1/2, one for each edge of the segments."""
    if edges.degree is not None:
        degree = edges.degree.to(dtype)
    elif edges.weight is None:
        starts = edges.without_self_loops()[2] if fill else edges.starts
        degree = as_tensor(np.diff(starts), edges.index).to(dtype)
    else:
        degree = torch.zeros(edges.rows, dtype=dtype, device=edges.index.device)
        degree.index_add_(0, edges.index[1], edges.weight.to(dtype))
    root = _inverse_root(degree + fill)
    count = segments.sources.shape[0]
    into = torch.repeat_interleave(root[:rows], segments.pointer().diff(), output_size=count)
    weight = root.index_select(0, segments.sources).mul_(into)
    if edges.weight is not None:
        loop_weight = edges.weight.new_full((count,), fill)
        stop = int(edges.starts[rows])
        shift = edges.target[:stop] if fill else 0
        loop_weight[as_tensor(np.arange(stop) + shift, edges.index)] = edges.weight[:stop]
        weight *= loop_weight
    return weight


KERNEL = LayerKernel(GCNConv, reads_degrees=True, forward=forward, first_round=first_round)
