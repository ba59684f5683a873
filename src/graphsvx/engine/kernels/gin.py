"""GINConv."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn import functional
from torch_geometric.nn import GINConv

from graphsvx.engine.kernels.base import LayerKernel, has_hooks
from graphsvx.engine.kernels.segments import Edges
from graphsvx.engine.lazy.base import plain
from graphsvx.engine.lazy.prefix import first

# Rows wider than this are projected before they are added up.
_WIDE = 64


def forward(layer: Any, x: Any, edges: Edges, rows: int) -> Any:
    """nn((1 + eps) X + sum over in-neighbours)."""
    if edges.weight is not None:
        return None
    if x.shape[1] <= _WIDE:
        root = (1 + layer.eps) * plain(first(x, rows))
        return layer.nn(edges.segments(rows).add(x) + root)
    net = layer.nn
    if type(net) is not nn.Sequential or type(net[0]) is not nn.Linear or has_hooks(net, net[0]):
        return None
    hidden = functional.linear(x, net[0].weight)
    out = edges.segments(rows).add(hidden) + (1 + layer.eps) * plain(first(hidden, rows))
    return net[1:](out if net[0].bias is None else out + net[0].bias)


KERNEL = LayerKernel(GINConv, reads_degrees=False, forward=forward, first_round=forward)
