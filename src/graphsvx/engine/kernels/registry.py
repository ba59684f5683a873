"""Fast code for PyG's layers (kernels), and which layers of a model it applies to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import (
    APPNP,
    ARMAConv,
    CGConv,
    EdgeConv,
    GATConv,
    GatedGraphConv,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    GraphConv,
    LEConv,
    MFConv,
    NNConv,
    PNAConv,
    ResGatedGraphConv,
    SAGEConv,
    SGConv,
    SSGConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear

from graphsvx.engine.kernels.edges import BatchEdges, EdgeSegments, FirstRound, as_tensor
from graphsvx.engine.lazy import Lazy, PrefixRows, SharedRows, plain
from graphsvx.engine.structure import aggregates_locally

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
    forward: Forward | None = None
    first_round: FirstRoundForward | None = None
    aggregations: tuple[type, ...] = (SumAggregation,)
    """Aggregations for which `forward` is right."""
    reads_degrees: bool = field(kw_only=True)
    """Whether messages depend on in-degrees (GCN): then one more hop of edges is counted."""


def _is_mean(layer: Any) -> bool:
    """Whether messages are averaged."""
    return type(layer.aggr_module) is MeanAggregation


def _has_hooks(*modules: nn.Module) -> bool:
    """Whether a forward hook is registered on any of the modules."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def _project(
    lin: Any, x: Any, segments: EdgeSegments | FirstRound, weight: Tensor | None, mean: bool
) -> Tensor | None:
    """lin(aggregated rows), with the projection first where that is less work."""
    if type(lin) is not Linear or _has_hooks(lin):
        return None
    mode = "mean" if mean else "sum"
    # The bias is added last: a fused addmm takes twice as long.
    if not isinstance(x, SharedRows) and lin.out_channels >= lin.in_channels:
        out = functional.linear(segments.add(x, weight, mode), lin.weight)
    else:
        out = segments.add(functional.linear(x, lin.weight), weight, mode)
    return out if lin.bias is None else out.add_(lin.bias)


def _add_projection(out: Tensor, lin: Any, x: Any, rows: int) -> Tensor:
    """out + lin(first rows of x), in place."""
    x = x[:rows]
    if isinstance(x, Lazy) or type(lin) is not Linear or _has_hooks(lin):
        return out.add_(plain(lin(x)))
    out.add_(functional.linear(x, lin.weight))
    return out if lin.bias is None else out.add_(lin.bias)


@dataclass(frozen=True, eq=False)
class _Heads:
    """Projected rows of attention heads, each distinct row once."""

    table: Tensor
    """[distinct rows, heads, width]."""
    index: Tensor | None
    """The distinct row of each row of the batch; None: they are the same."""

    @staticmethod
    def of(rows: Any, heads: int) -> _Heads:
        """From the output of a projection, which may be lazy."""
        index = rows.index if isinstance(rows, SharedRows) else None
        base = rows.base if isinstance(rows, (SharedRows, PrefixRows)) else rows
        table = plain(base)
        return _Heads(table.view(table.shape[0], heads, -1), index)

    def at(self, rows: Tensor) -> Tensor:
        """Distinct rows of rows of the batch."""
        return rows if self.index is None else self.index.index_select(0, rows)


def _attend(
    scores: Tensor, values: _Heads, segments: EdgeSegments, targets: Tensor, rows: int
) -> Tensor:
    """Softmax of scores [edges, heads] over each segment, times values: [rows, heads, width].

    A segment without edges gives zeros.
    """
    shift = scores.new_full((rows, scores.shape[1]), -torch.inf)
    shift.index_reduce_(0, targets, scores.detach(), "amax")
    weights = (scores - shift.index_select(0, targets)).exp_()
    return segments.means(weights, values.table, values.at(segments.sources))


def _merge_heads(layer: Any, out: Tensor) -> Tensor:
    """_Heads side by side, or their mean."""
    return out.reshape(out.shape[0], -1) if layer.concat else out.mean(1)


def _with_residual(layer: Any, out: Tensor, x: Any, rows: int) -> Tensor:
    """Output of a GAT layer from that of its heads."""
    out = _merge_heads(layer, out)
    if layer.res is not None:
        out = _add_projection(out, layer.res, x, rows)
    return out if layer.bias is None else out + layer.bias


# GraphConv.


def _graph_conv_forward(layer: Any, x: Any, edges: BatchEdges | FirstRound, rows: int) -> Any:
    """W_1 X + W_2 (sum or mean over in-neighbours)."""
    weight = edges.weights_into(rows)
    if weight is not None and _is_mean(layer):
        return None
    out = _project(layer.lin_rel, x, edges.segments(rows), weight, _is_mean(layer))
    return None if out is None else _add_projection(out, layer.lin_root, x, rows)


# SAGEConv.


def _sage_forward(layer: Any, x: Any, edges: BatchEdges | FirstRound, rows: int) -> Any:
    """W_1 X + W_2 (mean or sum over in-neighbours)."""
    if layer.project or edges.weight is not None:
        return None
    out = _project(layer.lin_l, x, edges.segments(rows), None, _is_mean(layer))
    if out is None:
        return None
    if layer.root_weight:
        out = _add_projection(out, layer.lin_r, x, rows)
    return functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


# GINConv.


# Rows wider than this are projected before they are added up.
_GIN_WIDE = 64


def _gin_forward(layer: Any, x: Any, edges: BatchEdges | FirstRound, rows: int) -> Any:
    """nn((1 + eps) X + sum over in-neighbours)."""
    if edges.weight is not None:
        return None
    if x.shape[1] <= _GIN_WIDE:
        root = (1 + layer.eps) * plain(x[:rows])
        return layer.nn(edges.segments(rows).add(x) + root)
    net = layer.nn
    if type(net) is not nn.Sequential or type(net[0]) is not nn.Linear or _has_hooks(net, net[0]):
        return None
    hidden = functional.linear(x, net[0].weight)
    out = edges.segments(rows).add(hidden) + (1 + layer.eps) * plain(hidden[:rows])
    return net[1:](out if net[0].bias is None else out + net[0].bias)


# GCNConv.


def _gcn_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
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
        return _gcn_normalised_weights(edges, fill, rows, segments, x.dtype)

    weight = edges.once(("gcn", fill), weights)
    count = segments.sources.shape[0]
    if weight.shape[0] < count:  # a later round needs more rows than the first
        weight = weights()
    out = segments.add(x, weight[:count])
    return out if layer.bias is None else out.add_(layer.bias)


def _gcn_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:  # noqa: ARG001  (all rows)
    """The same; 1 / sqrt(degree) of a sender is its part of the weight of its edges."""
    if not layer.normalize or edges.degree is None:
        return None
    x = layer.lin(x)
    fill = 1.0 if layer.add_self_loops else 0.0
    root = _gcn_inverse_root(edges.degree.to(x.dtype) + fill)
    messages = plain(x.base).index_select(0, edges.edges.sources)
    own_root = edges.of_rows(root)
    out = edges.sums(messages, root * edges.active)
    if fill:
        out += own_root * plain(x)
    out *= own_root
    return out if layer.bias is None else out.add_(layer.bias)


def _gcn_inverse_root(degree: Tensor) -> Tensor:
    """D^-1/2, 0 where the degree is 0. Overwrites `degree`."""
    root = degree.pow_(-0.5)
    return root.masked_fill_(root == torch.inf, 0)


def _gcn_normalised_weights(
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
    root = _gcn_inverse_root(degree + fill)
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


# GATConv.


# exp(-x) may underflow in single precision for larger x.
_GAT_STEEP = 50.0


def _gat_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention whose scores are a sum of a sender's and a receiver's part.

    The softmax needs no maximum over each neighbourhood: no score is above that of the strongest
    sender, which is subtracted; scores too far below it are left to the layer's own code.
    """
    if layer.lin is None or layer.edge_dim is not None or not 0 <= layer.negative_slope <= 1:
        return None
    values = _Heads.of(layer.lin(x), layer.heads)
    sent, received = (values.table * layer.att_src).sum(-1), (values.table * layer.att_dst).sum(-1)
    most, least = sent.amax(0), sent.amin(0)
    if not bool((most - least < _GAT_STEEP).all()):
        return None
    loops = layer.add_self_loops
    segments = edges.segments_with_self_loops(rows) if loops else edges.segments(rows)
    sources, targets = values.at(segments.sources), segments.targets()
    received = received.index_select(0, values.at(torch.arange(rows, device=sources.device)))
    shift = functional.leaky_relu(received + most, layer.negative_slope)
    scores = functional.leaky_relu_(
        sent.index_select(0, sources).add_(received.index_select(0, targets)), layer.negative_slope
    )
    weights = (scores - shift.index_select(0, targets)).exp_()
    return _with_residual(layer, segments.means(weights, values.table, sources), x, rows)


def _gat_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.lin is None or layer.edge_dim is not None:
        return None
    values = _Heads.of(layer.lin(x), layer.heads).table
    sent, received = (values * layer.att_src).sum(-1), (values * layer.att_dst).sum(-1)
    sources, targets = edges.edges.sources, edges.edges.targets
    pair = sent.index_select(0, sources) + received.index_select(0, targets)
    scores = functional.leaky_relu(pair, layer.negative_slope)
    self_scores = functional.leaky_relu(sent + received, layer.negative_slope)[: edges.edges.count]
    out = edges.attend(scores, self_scores if layer.add_self_loops else None, values)
    return None if out is None else _with_residual(layer, out, x, rows)


# GATv2Conv.


def _gatv2_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores a . leaky_relu(W_l x_j + W_r x_i)."""
    if layer.edge_dim is not None:
        return None
    loops = layer.add_self_loops
    segments = edges.segments_with_self_loops(rows) if loops else edges.segments(rows)
    sent, received = _gatv2_projected(layer, x)
    targets = segments.targets()
    pair = sent.table.index_select(0, sent.at(segments.sources))
    pair += received.table.index_select(0, received.at(targets))
    out = _attend(_gatv2_scores(layer, pair), sent, segments, targets, rows)
    return _with_residual(layer, out, x, rows)


def _gatv2_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.edge_dim is not None:
        return None
    sent, received = (heads.table for heads in _gatv2_projected(layer, x))
    pair = sent.index_select(0, edges.edges.sources)
    pair += received.index_select(0, edges.edges.targets)
    self_scores = None
    if layer.add_self_loops:
        self_scores = _gatv2_scores(layer, (sent + received)[: edges.edges.count])
    out = edges.attend(_gatv2_scores(layer, pair), self_scores, sent)
    return None if out is None else _with_residual(layer, out, x, rows)


def _gatv2_projected(layer: Any, x: Any) -> tuple[_Heads, _Heads]:
    """W_l x and W_r x."""
    sent = _Heads.of(layer.lin_l(x), layer.heads)
    return sent, sent if layer.share_weights else _Heads.of(layer.lin_r(x), layer.heads)


def _gatv2_scores(layer: Any, pair: Tensor) -> Tensor:
    """a . leaky_relu(pair), [edges, heads]. Overwrites `pair`."""
    scores: Tensor = (functional.leaky_relu_(pair, layer.negative_slope) * layer.att).sum(-1)
    return scores


# TransformerConv.


def _transformer_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores q_i . k_j / sqrt(width), and a (gated) skip connection."""
    if layer.lin_edge is not None:
        return None
    segments = edges.segments(rows)
    query, key, value = _transformer_projected(layer, x)
    targets = segments.targets()
    pair = query.table.index_select(0, query.at(targets))
    pair *= key.table.index_select(0, key.at(segments.sources))
    scores = pair.sum(-1) / sqrt(layer.out_channels)
    return _transformer_with_skip(layer, _attend(scores, value, segments, targets, rows), x, rows)


def _transformer_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.lin_edge is not None:
        return None
    query, key, value = (heads.table for heads in _transformer_projected(layer, x))
    pair = query.index_select(0, edges.edges.targets) * key.index_select(0, edges.edges.sources)
    out = edges.attend(pair.sum(-1) / sqrt(layer.out_channels), None, value)
    return None if out is None else _transformer_with_skip(layer, out, x, rows)


def _transformer_projected(layer: Any, x: Any) -> tuple[_Heads, _Heads, _Heads]:
    """Queries, keys and values."""
    query, key, value = (
        _Heads.of(lin(x), layer.heads) for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
    )
    return query, key, value


def _transformer_with_skip(layer: Any, heads: Tensor, x: Any, rows: int) -> Any:
    """Output of the layer from that of its heads."""
    out = _merge_heads(layer, heads)
    if not layer.root_weight:
        return out
    skip = plain(layer.lin_skip(x[:rows]))
    if layer.lin_beta is None:
        return out + skip
    beta = layer.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
    return beta * skip + (1 - beta) * out


# Layers of which only the traits are known: they run their own code.


_READ_DEGREES = (
    APPNP, ARMAConv, CGConv, EdgeConv, GatedGraphConv, GCN2Conv, GENConv, LEConv, MFConv, NNConv,
    PNAConv, ResGatedGraphConv, SGConv, SSGConv, TAGConv,
)  # fmt: skip

_SUM_OR_MEAN = (SumAggregation, MeanAggregation)
_KERNELS = {
    kernel.layer: kernel
    for kernel in (
        LayerKernel(
            GraphConv, _graph_conv_forward, _graph_conv_forward, _SUM_OR_MEAN, reads_degrees=False
        ),
        LayerKernel(SAGEConv, _sage_forward, _sage_forward, _SUM_OR_MEAN, reads_degrees=False),
        LayerKernel(GINConv, _gin_forward, _gin_forward, reads_degrees=False),
        LayerKernel(GCNConv, _gcn_forward, _gcn_first_round, reads_degrees=True),
        LayerKernel(GATConv, _gat_forward, _gat_first_round, reads_degrees=False),
        LayerKernel(GATv2Conv, _gatv2_forward, _gatv2_first_round, reads_degrees=False),
        LayerKernel(
            TransformerConv, _transformer_forward, _transformer_first_round, reads_degrees=False
        ),
        LayerKernel(GINEConv, reads_degrees=False),
        *(LayerKernel(layer, reads_degrees=True) for layer in _READ_DEGREES),
    )
}
_METHODS = {
    "forward",
    "propagate",
    "message",
    "aggregate",
    "update",
    "edge_updater",
    "edge_update",
    "message_and_aggregate",
    "explain_message",
}
_HOOKS = tuple(
    f"_{part}_forward_{kind}"
    for part in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for kind in ("pre_hooks", "hooks")
)


def register(kernel: LayerKernel) -> None:
    """Make a layer class known to the engine."""
    _KERNELS[kernel.layer] = kernel


def kernel_of(layer: nn.Module) -> LayerKernel | None:
    """The kernel of a layer that runs its class's own code along the edges; None: there is none."""
    kernel = _KERNELS.get(type(layer))
    if kernel is None or not _is_unchanged(layer, kernel.layer):
        return None
    return kernel if layer.__dict__["flow"] == "source_to_target" else None


def is_known(layer: Any) -> bool:
    """Whether a layer is known to read the in-edges of each node, one node at a time."""
    return kernel_of(layer) is not None and aggregates_locally(layer.aggr_module)


def _is_unchanged(layer: nn.Module, kind: type) -> bool:
    """Whether no method was replaced, in the layer or in its class, and no hook registered."""
    attributes = layer.__dict__
    if any(map(attributes.get, _HOOKS)) or attributes.get("_explain"):
        return False
    for name in attributes.keys() & _METHODS:
        # PyG binds a method of the class again when explain mode or decomposition changes.
        variants = [getattr(kind, f"{prefix}{name}", None) for prefix in ("", "_orig_", "_jinja_")]
        function = getattr(attributes[name], "__func__", None)
        if function is None or function not in variants:
            return False
    homes = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return all(
        getattr(getattr(kind, name, None), "__module__", kind.__module__).partition(".")[0] in homes
        for name in _METHODS
    )


def fast_kernel(layer: nn.Module) -> LayerKernel | None:
    """The kernel that computes a layer; None: it runs its own code."""
    kernel = kernel_of(layer)
    if kernel is None or kernel.forward is None:
        return None
    attributes = layer.__dict__
    usual = attributes["node_dim"] in (-2, 0) and attributes.get("_decomposed_layers", 1) == 1
    return kernel if usual and type(layer.aggr_module) in kernel.aggregations else None


@dataclass(frozen=True, eq=False)
class ModelLayers:
    """Which modules of a model pass messages, and how. Holds no reference to any of them."""

    layers: tuple[tuple[int, LayerKernel | None], ...]
    """Their positions among the modules, with the kernel that computes them where there is one."""
    widest: int
    """Largest number of output features of any layer."""
    degrees_suffice: bool
    """Whether all layers are fast and edges beyond the last round only count in GCN's degrees."""
    all_fast: bool
    """Whether all layers have a kernel, for the first round too."""

    @staticmethod
    def of(parts: list[nn.Module]) -> ModelLayers:
        """Those of a model, given all of its modules."""
        matrices = [
            weight.shape[0]
            for part in parts
            for weight in part._parameters.values()
            if weight is not None and not nn.parameter.is_lazy(weight) and weight.dim() > 1
        ]
        passing = [(at, part) for at, part in enumerate(parts) if isinstance(part, MessagePassing)]
        layers = tuple((at, fast_kernel(layer)) for at, layer in passing)
        fast = all(kernel is not None for _, kernel in layers)
        first_rounds = all(kernel is not None and kernel.first_round for _, kernel in layers)
        normalised = all(type(layer) is not GCNConv or layer.normalize for _, layer in passing)
        return ModelLayers(layers, max(matrices, default=0), fast and normalised, first_rounds)


def is_plain_call(
    x: Any, edge_index: Any, rest: tuple[Any, ...], named: Any, edges: BatchEdges
) -> bool:
    """Whether a layer was called on the batch itself, with no other arguments than weights."""
    arguments = [value for value in (*rest, *named.values()) if value is not None]
    return (
        edge_index is edges.index
        and isinstance(x, Tensor)
        and x.dim() == 2
        and x.shape[0] == edges.rows
        and (not isinstance(x, Lazy) or isinstance(x, (SharedRows, PrefixRows)))
        and len(arguments) == (edges.weight is not None)
        and all(value is edges.weight for value in arguments)
    )
