"""GraphConv."""

from __future__ import annotations

from typing import Any

from torch_geometric.nn import GraphConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from graphsvx.engine.kernels.base import LayerKernel, add_projection, is_mean, project
from graphsvx.engine.kernels.segments import Edges


def forward(layer: Any, x: Any, edges: Edges, rows: int) -> Any:
    """W_1 X + W_2 (sum or mean over in-neighbours)."""
    weight = edges.weights_into(rows)
    if weight is not None and is_mean(layer):
        return None
    out = project(layer.lin_rel, x, edges.segments(rows), weight, is_mean(layer))
    return None if out is None else add_projection(out, layer.lin_root, x, rows)


KERNEL = LayerKernel(
    GraphConv, reads_degrees=False, forward=forward, first_round=forward,
    aggregations=(SumAggregation, MeanAggregation),
)  # fmt: skip
