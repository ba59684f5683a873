"""Traits of a layer class and, where it pays, its fast forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear

from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.kernels.segments import BatchEdges, EdgeSegments, Sums
from graphsvx.engine.lazy.base import Lazy, plain
from graphsvx.engine.lazy.prefix import PrefixRows, first
from graphsvx.engine.lazy.shared import SharedRows

Forward = Callable[[Any, Any, BatchEdges, int], Any]
"""(layer, x, edges, rows) -> the first `rows` rows of the layer's output; None: not computed."""
FirstRoundForward = Callable[[Any, Any, FirstRound, int], Any]
"""The same in the first round of a batch, where x stands for rows of the field's nodes."""


@dataclass(frozen=True)
class LayerKernel:
    """Traits of one layer class whose messages follow the edges, and its fast forward.

    Registering a kernel states that a layer reads nothing but its node's in-edges and, with
    `reads_degrees`, the number of edges into the two ends. Only layers of exactly this class with
    PyG's own code are recognised, and what the fast forward gives is checked at run time.
    """

    layer: type[MessagePassing]
    reads_degrees: bool
    """Whether messages depend on in-degrees (GCN): then one more hop of edges is counted."""
    forward: Forward | None = None
    first_round: FirstRoundForward | None = None
    aggregations: tuple[type, ...] = (SumAggregation,)
    """Aggregations for which `forward` is right."""


def is_mean(layer: Any) -> bool:
    """Whether messages are averaged."""
    return type(layer.aggr_module) is MeanAggregation


def has_hooks(*modules: nn.Module) -> bool:
    """Whether a forward hook is registered on any of the modules."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def project(lin: Any, x: Any, segments: Sums, weight: Tensor | None, mean: bool) -> Tensor | None:
    """lin(aggregated rows), with the projection first where that is less work."""
    if type(lin) is not Linear or has_hooks(lin):
        return None
    mode = "mean" if mean else "sum"
    # The bias is added last: a fused addmm takes twice as long.
    if not isinstance(x, SharedRows) and lin.out_channels >= lin.in_channels:
        out = functional.linear(segments.add(x, weight, mode), lin.weight)
    else:
        out = segments.add(functional.linear(x, lin.weight), weight, mode)
    return out if lin.bias is None else out.add_(lin.bias)


def add_projection(out: Tensor, lin: Any, x: Any, rows: int) -> Tensor:
    """out + lin(first rows of x), in place."""
    x = first(x, rows)
    if isinstance(x, Lazy) or type(lin) is not Linear or has_hooks(lin):
        return out.add_(plain(lin(x)))
    out.add_(functional.linear(x, lin.weight))
    return out if lin.bias is None else out.add_(lin.bias)


@dataclass(frozen=True, eq=False)
class Heads:
    """Projected rows of attention heads, each distinct row once."""

    table: Tensor
    """[distinct rows, heads, width]."""
    index: Tensor | None
    """The distinct row of each row of the batch; None: they are the same."""

    @staticmethod
    def of(rows: Any, heads: int) -> Heads:
        """From the output of a projection, which may be lazy."""
        index = rows.index if isinstance(rows, SharedRows) else None
        base = rows.base if isinstance(rows, (SharedRows, PrefixRows)) else rows
        table = plain(base)
        return Heads(table.view(table.shape[0], heads, -1), index)

    def at(self, rows: Tensor) -> Tensor:
        """Distinct rows of rows of the batch."""
        return rows if self.index is None else self.index.index_select(0, rows)


def attend(
    scores: Tensor, values: Heads, segments: EdgeSegments, targets: Tensor, rows: int
) -> Tensor:  # fmt: skip
    """Softmax of scores [edges, heads] over each segment, times values: [rows, heads, width].

    A segment without edges gives zeros.
    """
    shift = scores.new_full((rows, scores.shape[1]), -torch.inf)
    shift.index_reduce_(0, targets, scores.detach(), "amax")
    weights = (scores - shift.index_select(0, targets)).exp_()
    return segments.means(weights, values.table, values.at(segments.sources))


def merge_heads(layer: Any, out: Tensor) -> Tensor:
    """Heads side by side, or their mean."""
    return out.reshape(out.shape[0], -1) if layer.concat else out.mean(1)


def with_residual(layer: Any, out: Tensor, x: Any, rows: int) -> Tensor:
    """Output of a GAT layer from that of its heads."""
    out = merge_heads(layer, out)
    if layer.res is not None:
        out = add_projection(out, layer.res, x, rows)
    return out if layer.bias is None else out + layer.bias
