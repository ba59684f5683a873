"""Fast code for PyG's layers (kernels), and which layers of a model it applies to."""

from __future__ import annotations

from dataclasses import dataclass
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

from graphsvx.engine.kernels.base import (
    Heads,
    LayerKernel,
    add_projection,
    attend,
    has_hooks,
    is_mean,
    merge_heads,
    project,
    with_residual,
)
from graphsvx.engine.kernels.first_round import FirstRound
from graphsvx.engine.kernels.segments import BatchEdges, Edges, EdgeSegments, as_tensor
from graphsvx.engine.lazy.base import Lazy, plain
from graphsvx.engine.lazy.prefix import PrefixRows, first
from graphsvx.engine.lazy.shared import SharedRows
from graphsvx.engine.structure import aggregates_locally

# GraphConv.


def graph_conv_forward(layer: Any, x: Any, edges: Edges, rows: int) -> Any:
    """W_1 X + W_2 (sum or mean over in-neighbours)."""
    weight = edges.weights_into(rows)
    if weight is not None and is_mean(layer):
        return None
    out = project(layer.lin_rel, x, edges.segments(rows), weight, is_mean(layer))
    return None if out is None else add_projection(out, layer.lin_root, x, rows)


GRAPH_CONV_KERNEL = LayerKernel(
    GraphConv, reads_degrees=False, forward=graph_conv_forward, first_round=graph_conv_forward,
    aggregations=(SumAggregation, MeanAggregation),
)  # fmt: skip


# SAGEConv.


def sage_forward(layer: Any, x: Any, edges: Edges, rows: int) -> Any:
    """W_1 X + W_2 (mean or sum over in-neighbours)."""
    if layer.project or edges.weight is not None:
        return None
    out = project(layer.lin_l, x, edges.segments(rows), None, is_mean(layer))
    if out is None:
        return None
    if layer.root_weight:
        out = add_projection(out, layer.lin_r, x, rows)
    return functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


SAGE_KERNEL = LayerKernel(
    SAGEConv, reads_degrees=False, forward=sage_forward, first_round=sage_forward,
    aggregations=(SumAggregation, MeanAggregation),
)  # fmt: skip


# GINConv.


# Rows wider than this are projected before they are added up.
_GIN_WIDE = 64


def gin_forward(layer: Any, x: Any, edges: Edges, rows: int) -> Any:
    """nn((1 + eps) X + sum over in-neighbours)."""
    if edges.weight is not None:
        return None
    if x.shape[1] <= _GIN_WIDE:
        root = (1 + layer.eps) * plain(first(x, rows))
        return layer.nn(edges.segments(rows).add(x) + root)
    net = layer.nn
    if type(net) is not nn.Sequential or type(net[0]) is not nn.Linear or has_hooks(net, net[0]):
        return None
    hidden = functional.linear(x, net[0].weight)
    out = edges.segments(rows).add(hidden) + (1 + layer.eps) * plain(first(hidden, rows))
    return net[1:](out if net[0].bias is None else out + net[0].bias)


GIN_KERNEL = LayerKernel(GINConv, reads_degrees=False, forward=gin_forward, first_round=gin_forward)


# GCNConv.


def gcn_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
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


def gcn_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:  # noqa: ARG001  (all rows)
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


GCN_KERNEL = LayerKernel(
    GCNConv, reads_degrees=True, forward=gcn_forward, first_round=gcn_first_round
)


# GATConv.


# exp(-x) may underflow in single precision for larger x.
_GAT_STEEP = 50.0


def gat_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention whose scores are a sum of a sender's and a receiver's part.

    The softmax needs no maximum over each neighbourhood: no score is above that of the strongest
    sender, which is subtracted; scores too far below it are left to the layer's own code.
    """
    if layer.lin is None or layer.edge_dim is not None or not 0 <= layer.negative_slope <= 1:
        return None
    values = Heads.of(layer.lin(x), layer.heads)
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
    return with_residual(layer, segments.means(weights, values.table, sources), x, rows)


def gat_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.lin is None or layer.edge_dim is not None:
        return None
    values = Heads.of(layer.lin(x), layer.heads).table
    sent, received = (values * layer.att_src).sum(-1), (values * layer.att_dst).sum(-1)
    sources, targets = edges.edges.sources, edges.edges.targets
    pair = sent.index_select(0, sources) + received.index_select(0, targets)
    scores = functional.leaky_relu(pair, layer.negative_slope)
    self_scores = functional.leaky_relu(sent + received, layer.negative_slope)[: edges.edges.count]
    out = edges.attend(scores, self_scores if layer.add_self_loops else None, values)
    return None if out is None else with_residual(layer, out, x, rows)


GAT_KERNEL = LayerKernel(
    GATConv, reads_degrees=False, forward=gat_forward, first_round=gat_first_round
)


# GATv2Conv.


def gatv2_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores a . leaky_relu(W_l x_j + W_r x_i)."""
    if layer.edge_dim is not None:
        return None
    loops = layer.add_self_loops
    segments = edges.segments_with_self_loops(rows) if loops else edges.segments(rows)
    sent, received = _gatv2_projected(layer, x)
    targets = segments.targets()
    pair = sent.table.index_select(0, sent.at(segments.sources))
    pair += received.table.index_select(0, received.at(targets))
    out = attend(_gatv2_scores(layer, pair), sent, segments, targets, rows)
    return with_residual(layer, out, x, rows)


def gatv2_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
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
    return None if out is None else with_residual(layer, out, x, rows)


def _gatv2_projected(layer: Any, x: Any) -> tuple[Heads, Heads]:
    """W_l x and W_r x."""
    sent = Heads.of(layer.lin_l(x), layer.heads)
    return sent, sent if layer.share_weights else Heads.of(layer.lin_r(x), layer.heads)


def _gatv2_scores(layer: Any, pair: Tensor) -> Tensor:
    """a . leaky_relu(pair), [edges, heads]. Overwrites `pair`."""
    scores: Tensor = (functional.leaky_relu_(pair, layer.negative_slope) * layer.att).sum(-1)
    return scores


GATV2_KERNEL = LayerKernel(
    GATv2Conv, reads_degrees=False, forward=gatv2_forward, first_round=gatv2_first_round
)


# TransformerConv.


def transformer_forward(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores q_i . k_j / sqrt(width), and a (gated) skip connection."""
    if layer.lin_edge is not None:
        return None
    segments = edges.segments(rows)
    query, key, value = _transformer_projected(layer, x)
    targets = segments.targets()
    pair = query.table.index_select(0, query.at(targets))
    pair *= key.table.index_select(0, key.at(segments.sources))
    scores = pair.sum(-1) / sqrt(layer.out_channels)
    return _transformer_with_skip(layer, attend(scores, value, segments, targets, rows), x, rows)


def transformer_first_round(layer: Any, x: Any, edges: FirstRound, rows: int) -> Any:
    """The same on the field's own edges, whose scores all graphs share."""
    if layer.lin_edge is not None:
        return None
    query, key, value = (heads.table for heads in _transformer_projected(layer, x))
    pair = query.index_select(0, edges.edges.targets) * key.index_select(0, edges.edges.sources)
    out = edges.attend(pair.sum(-1) / sqrt(layer.out_channels), None, value)
    return None if out is None else _transformer_with_skip(layer, out, x, rows)


def _transformer_projected(layer: Any, x: Any) -> tuple[Heads, Heads, Heads]:
    """Queries, keys and values."""
    query, key, value = (
        Heads.of(lin(x), layer.heads) for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
    )
    return query, key, value


def _transformer_with_skip(layer: Any, heads: Tensor, x: Any, rows: int) -> Any:
    """Output of the layer from that of its heads."""
    out = merge_heads(layer, heads)
    if not layer.root_weight:
        return out
    skip = plain(layer.lin_skip(first(x, rows)))
    if layer.lin_beta is None:
        return out + skip
    beta = layer.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
    return beta * skip + (1 - beta) * out


TRANSFORMER_KERNEL = LayerKernel(
    TransformerConv,
    reads_degrees=False,
    forward=transformer_forward,
    first_round=transformer_first_round,
)


# Layers of which only the traits are known: they run their own code.


_READ_DEGREES = (
    APPNP, ARMAConv, CGConv, EdgeConv, GatedGraphConv, GCN2Conv, GENConv, LEConv, MFConv, NNConv,
    PNAConv, ResGatedGraphConv, SGConv, SSGConv, TAGConv,
)  # fmt: skip

KERNELS_BY_TRAITS = (
    LayerKernel(GINEConv, reads_degrees=False),
    *(LayerKernel(layer, reads_degrees=True) for layer in _READ_DEGREES),
)


_KERNELS: dict[type, LayerKernel] = {}
_METHODS = {
    "forward", "propagate", "message", "aggregate", "update", "edge_updater", "edge_update",
    "message_and_aggregate", "explain_message",
}  # fmt: skip
_HOOKS = tuple(
    f"_{part}_forward_{kind}"
    for part in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for kind in ("pre_hooks", "hooks")
)


def register(kernel: LayerKernel) -> None:
    """Make a layer class known to the engine."""
    _KERNELS[kernel.layer] = kernel


for _kernel in (
    GAT_KERNEL,
    GATV2_KERNEL,
    GCN_KERNEL,
    GIN_KERNEL,
    GRAPH_CONV_KERNEL,
    SAGE_KERNEL,
    TRANSFORMER_KERNEL,
    *KERNELS_BY_TRAITS,
):
    register(_kernel)


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
