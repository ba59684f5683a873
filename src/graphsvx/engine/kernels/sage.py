"""SAGEConv."""

from __future__ import annotations

from typing import Any

from torch.nn import functional
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from graphsvx.engine.kernels.base import LayerKernel, add_projection, is_mean, project
from graphsvx.engine.kernels.segments import Edges


def forward(layer: Any, x: Any, edges: Edges, rows: int) -> Any:
    """W_1 X + W_2 (mean or sum over in-neighbours)."""
    if layer.project or edges.weight is not None:
        return None
    out = project(layer.lin_l, x, edges.segments(rows), None, is_mean(layer))
    if out is None:
        return None
    if layer.root_weight:
        out = add_projection(out, layer.lin_r, x, rows)
    return functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


KERNEL = LayerKernel(
    SAGEConv, reads_degrees=False, forward=forward, first_round=forward,
    aggregations=(SumAggregation, MeanAggregation),
)  # fmt: skip
