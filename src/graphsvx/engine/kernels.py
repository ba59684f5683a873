"""Fast code for PyG's layers (kernels), which layers of a model it applies to, edges of a batch.

PyG gathers a row for each edge, weighs it and scatters it. In a batch whose edges are sorted by
target (`BatchEdges`), `torch.embedding_bag` adds the rows of each segment where they are: several
times faster.

A layer of one's own that reads its in-edges only is registered in the same way:

    register(LayerKernel(MyConv, reads_degrees=False))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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

from graphsvx.core.arrays import Ids, as_tensor, as_tensors
from graphsvx.engine.lazy import Lazy, PrefixRows, SharedRows, StoredRows, plain
from graphsvx.engine.structure import aggregates_locally

_ALONE = 1e-6  # share of all weights: with no more than this left, a sender is the only one


# --- edges of a batch --------------------------------------------------------------------


@dataclass(eq=False)
class BatchEdges:
    """The edges of a batch (of one type), which kernels need sorted by target."""

    index: Tensor
    """The tensor that the model gets as edge_index."""
    ends: Ids
    """The same as numbers, [2, edges]."""
    senders: int
    rows: int
    """Number of nodes that edges go from, and to."""
    prefix: Sequence[int] | None = None
    """Of the nodes that edges go to: how many are within 0, 1, ... k hops of a centre, to which k
    rounds are trimmed. None: no trimming."""
    loops: bool = False
    """Whether there are self-loops."""
    degree: Tensor | None = None
    """In-degree of each row, if edges that only add to a degree are not listed."""
    activity: Tensor | None = None
    """How active the sender of each edge is, if outputs are differentiated by it; else they are."""
    _shared: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def starts(self) -> Ids:
        """CSC pointer [rows + 1]: the edges into row i are starts[i]:starts[i + 1]."""
        starts = np.zeros(self.rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.ends[1], minlength=self.rows), out=starts[1:])
        return starts

    def once(self, name: Any, make: Callable[[], Any]) -> Any:
        """Value cached under `name` for all layers of a call; computed on first use."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def segments(self, rows: int, loops: bool = False) -> EdgeSegments:
        """The edges into the first rows; with `loops` one more per row from itself, at the end."""
        return self.once((rows, loops), lambda: self._segments(rows, loops))

    def _segments(self, rows: int, loops: bool) -> EdgeSegments:
        device, stop = self.index.device, int(self.starts[rows])
        activity = None if self.activity is None else self.activity[:stop]
        if not loops:
            starts = as_tensor(self.starts[:rows], device)
            return EdgeSegments(self.index[0, :stop], starts, activity)
        loop = np.arange(rows)
        at_loop, between = self.starts[1 : rows + 1] + loop, np.arange(stop) + self.ends[1, :stop]
        sources = np.empty(stop + rows, dtype=np.int64)
        sources[between], sources[at_loop] = self.ends[0, :stop], loop
        index, starts = as_tensors(device, sources, self.starts[:rows] + loop)
        if activity is not None:
            places = as_tensor(between, device)
            activity = activity.new_ones(stop + rows).index_copy(0, places, activity)
        return EdgeSegments(index, starts, activity)


@dataclass(frozen=True, eq=False)
class EdgeSegments:
    """Sources grouped by target: segment i is sources[starts[i]:starts[i + 1]]."""

    sources: Tensor
    starts: Tensor
    activity: Tensor | None = None
    """How active each sender is, 0 or 1; None: all are."""

    def add(self, x: Tensor, mode: str = "sum", weight: Tensor | None = None) -> Tensor:
        """Sum (or mean) of the rows of x in each segment."""
        sources = self.sources
        if isinstance(x, SharedRows):
            sources, x = x.index.index_select(0, sources), x.base
        elif isinstance(x, PrefixRows):
            x = x.base
        x = plain(x)
        if self.activity is None:
            return embedding_sum(sources, x, self.starts, weight, mode)
        activity = self.activity.to(x.dtype)
        if mode == "sum":
            weight = activity if weight is None else weight * activity
            return embedding_sum(sources, x, self.starts, weight)
        return self.means(activity.new_ones(len(sources), 1), x[:, None], sources)[:, 0]

    def means(self, weights: Tensor, values: Tensor, sources: Tensor) -> Tensor:
        """Means with `weights` [edges, heads] of `values` [rows, heads, width] at `sources`.

        [segments, heads, width]; zeros for a segment without active senders. The derivative by
        activity is the difference that a sender makes: where it is not active, and its weight is
        above the sum of all others, the derivative itself may be many times larger.
        """
        heads, width = values.shape[1:]
        alone = None
        if self.activity is not None:
            activity = self.activity.to(weights.dtype)[:, None]
            present, change = activity.detach(), activity - activity.detach()
            targets, constants = self.targets(), weights.detach()
            norm = constants.new_zeros(len(self.starts), heads).index_add_(
                0, targets, constants * present
            )
            norm = norm.index_select(0, targets)
            others = norm + constants * (1 - 2 * present)
            alone = others <= _ALONE * norm
            steepness = norm.masked_fill(norm == 0, 1) / others
            weights = weights * present + constants * steepness.masked_fill(alone, 0) * change
        head = torch.arange(heads, device=sources.device)[:, None]
        # The sum of the weights is one more column of the values.
        table = functional.pad(values, (0, 1), value=1.0).reshape(-1, width + 1)
        sums = embedding_sum(
            (sources * heads + head).reshape(-1),
            table,
            (self.starts + head * len(sources)).reshape(-1),
            weights.t().reshape(-1),
        )
        total = sums.view(heads, len(self.starts), width + 1).transpose(0, 1)
        norm = total[:, :, width:]
        means = total[:, :, :width] / norm.masked_fill(norm == 0, 1)
        if alone is None:
            return means
        edges = alone.any(1).nonzero()[:, 0]  # without these senders there is nothing
        at = targets.index_select(0, edges)
        lost = means.detach()[at] * (change * alone)[edges][:, :, None]
        return means.index_add(0, at, lost)

    def pointer(self) -> Tensor:
        """Segment boundaries [segments + 1]."""
        count = self.starts.shape[0]
        ends = self.starts.new_empty(count + 1)
        ends[:count], ends[count] = self.starts, self.sources.shape[0]
        return ends

    def targets(self) -> Tensor:
        """The segment of each edge."""
        rows = torch.arange(self.starts.shape[0], device=self.starts.device)
        return torch.repeat_interleave(
            rows, self.pointer().diff(), output_size=self.sources.shape[0]
        )


def embedding_sum(
    sources: Tensor, x: Tensor, starts: Tensor, weight: Tensor | None, mode: str = "sum"
) -> Tensor:
    """`torch.nn.functional.embedding_bag` without the checks of its wrapper."""
    return torch.embedding_bag(
        x, sources, starts, mode=int(mode == "mean"), per_sample_weights=weight
    )[0]


# --- layers ------------------------------------------------------------------------------


Forward = Callable[[Any, Any, BatchEdges, int], Any]
"""(layer, x, edges, rows) -> the first `rows` rows of the layer's output; None: not computed.

`x` is what the layer gets: rows, or a pair of rows that edges go from and to.
"""


def _senders_and_receivers(x: Any) -> tuple[Any, Any]:
    return x if isinstance(x, tuple) else (x, x)


@dataclass(frozen=True)
class LayerKernel:
    """Traits of one layer class whose messages follow the edges, and its fast forward.

    Registering a kernel states that a layer reads nothing but its node's in-edges and, with
    `reads_degrees`, the number of edges into the two ends. Only layers of exactly this class with
    PyG's own code are recognised, and what the fast forward gives is checked at run time.
    """

    layer: type[MessagePassing]
    forward: Forward | None = None
    aggregations: tuple[type, ...] = (SumAggregation,)
    """Aggregations for which `forward` is right."""
    reads_degrees: bool = field(kw_only=True)
    """Whether messages depend on in-degrees (GCN): then one more hop of edges is counted."""


def _has_hooks(*modules: nn.Module) -> bool:
    """Whether a forward hook is registered on any of the modules."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def _sum_projected(layer: Any, lin: Any, x: Any, edges: BatchEdges, rows: int) -> Tensor | None:
    """lin(aggregated rows), with the projection first where that is less work."""
    if type(lin) is not Linear or _has_hooks(lin):
        return None
    mode = "mean" if type(layer.aggr_module) is MeanAggregation else "sum"
    segments = edges.segments(rows)
    # The bias is added last: a fused addmm takes twice as long.
    if not isinstance(x, SharedRows) and lin.out_channels >= lin.in_channels:
        out = functional.linear(segments.add(x, mode), lin.weight)
    else:
        out = segments.add(functional.linear(x, lin.weight), mode)
    return out if lin.bias is None else out.add_(lin.bias)


def _add_projection(out: Tensor, lin: Any, x: Any, rows: int) -> Tensor:
    """out + lin(first rows of x), in place."""
    x = x[:rows]
    if isinstance(x, Lazy) or type(lin) is not Linear or _has_hooks(lin):
        return out.add_(plain(lin(x)))
    out.add_(functional.linear(x, lin.weight))
    return out if lin.bias is None else out.add_(lin.bias)


def _graph_conv(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """W_1 X + W_2 (sum or mean over in-neighbours)."""
    sent, received = _senders_and_receivers(x)
    out = _sum_projected(layer, layer.lin_rel, sent, edges, rows)
    return None if out is None else _add_projection(out, layer.lin_root, received, rows)


def _sage(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """W_1 X + W_2 (mean or sum over in-neighbours)."""
    sent, received = _senders_and_receivers(x)
    out = None if layer.project else _sum_projected(layer, layer.lin_l, sent, edges, rows)
    if out is not None and layer.root_weight:
        out = _add_projection(out, layer.lin_r, received, rows)
    return functional.normalize(out, p=2.0, dim=-1) if layer.normalize and out is not None else out


# Rows wider than this are projected before they are added up.
_GIN_WIDE = 64


def _gin(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """nn((1 + eps) X + sum over in-neighbours)."""
    sent, received = _senders_and_receivers(x)
    if sent.shape[1] <= _GIN_WIDE:
        root = (1 + layer.eps) * plain(received[:rows])
        return layer.nn(edges.segments(rows).add(sent) + root)
    net = layer.nn
    if type(net) is not nn.Sequential or type(net[0]) is not nn.Linear or _has_hooks(net, net[0]):
        return None
    hidden = functional.linear(sent, net[0].weight)
    at_receivers = hidden if received is sent else functional.linear(received, net[0].weight)
    out = edges.segments(rows).add(hidden) + (1 + layer.eps) * plain(at_receivers[:rows])
    return net[1:](out if net[0].bias is None else out + net[0].bias)


def _gcn(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """D^-1/2 (A + I) D^-1/2 X W + b."""
    loops = layer.add_self_loops
    if not layer.normalize or (loops and edges.loops) or isinstance(x, tuple):
        return None
    x, segments = layer.lin(x), edges.segments(rows, loops)

    def weights() -> Tensor:
        degree = edges.degree
        if degree is None:
            degree = as_tensor(np.diff(edges.starts), edges.index.device)
        root = _inverse_root(degree.to(x.dtype) + loops)
        into = root[:rows].index_select(0, segments.targets())
        return root.index_select(0, segments.sources).mul_(into)

    weight = edges.once(("gcn", rows, loops, x.dtype), weights)
    out = segments.add(x, weight=weight)
    return out if layer.bias is None else out.add_(layer.bias)


def _inverse_root(degree: Tensor) -> Tensor:
    """D^-1/2, 0 where the degree is 0. Overwrites `degree`."""
    root = degree.pow_(-0.5)
    return root.masked_fill_(root == torch.inf, 0)


# Attention.


@dataclass(frozen=True, eq=False)
class _Heads:
    """What rows have for each attention head, each distinct row once."""

    table: Tensor
    """[distinct rows, heads, ...]."""
    index: Tensor | None
    """The distinct row of each row of the batch; None: they are the same."""

    @staticmethod
    def of(rows: Any, heads: int) -> _Heads:
        """From the output of a projection, which may be lazy."""
        table = plain(rows.base if isinstance(rows, StoredRows) else rows)
        index = rows.index if isinstance(rows, SharedRows) else None
        return _Heads(table.view(table.shape[0], heads, -1), index)

    def at(self, rows: Tensor) -> Tensor:
        """Distinct rows of rows of the batch."""
        return rows if self.index is None else self.index.index_select(0, rows)

    def pick(self, rows: Tensor) -> Tensor:
        """A copy of what rows of the batch have."""
        return self.table.index_select(0, self.at(rows))


Score = Callable[[Tensor, Tensor], Tensor]
"""Scores [edges, heads] of what senders and receivers have, of which the first is overwritten."""
_OfAttention = tuple[_Heads, _Heads, _Heads, Score]
"""What senders and receivers have for the scores, values, and the score itself."""


def _attend(parts: _OfAttention, edges: BatchEdges, rows: int, loops: bool) -> Tensor:
    """Means of values, weighed by a softmax of scores over each node's in-edges.

    [rows, heads, width]; zeros for a node without edges.
    """
    senders, receivers, values, score = parts
    segments = edges.segments(rows, loops)
    targets = segments.targets()
    scores = score(senders.pick(segments.sources), receivers.pick(targets))
    shift = scores.new_full((rows, scores.shape[1]), -torch.inf)
    places = targets[:, None].expand_as(scores)
    shift.scatter_reduce_(0, places, scores.detach(), "amax")
    weights = (scores - shift.index_select(0, targets)).exp_()
    return segments.means(weights, values.table, values.at(segments.sources))


def _merge_heads(layer: Any, out: Tensor) -> Tensor:
    """Heads side by side, or their mean."""
    return out.flatten(1) if layer.concat else out.mean(1)


def _gat(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """GATConv and GATv2Conv, with scores of the sum of a sender's and a receiver's part."""
    second = isinstance(layer, GATv2Conv)
    loops = layer.add_self_loops
    sent, received = _senders_and_receivers(x)
    if layer.edge_dim is not None or (loops and (edges.loops or sent is not received)):
        return None

    def score(sent: Tensor, received: Tensor) -> Tensor:
        out = functional.leaky_relu_(sent.add_(received), layer.negative_slope)
        return (out * layer.att).sum(-1) if second else out

    if second:  # a . leaky_relu(W_l x_j + W_r x_i)
        values = senders = _Heads.of(layer.lin_l(sent), layer.heads)
        same = layer.share_weights and sent is received
        receivers = senders if same else _Heads.of(layer.lin_r(received), layer.heads)
    else:  # leaky_relu(a_l . W x_j + a_r . W x_i)
        of_sender, of_receiver = (layer.lin or lin for lin in (layer.lin_src, layer.lin_dst))
        values = at_receivers = _Heads.of(of_sender(sent), layer.heads)
        if sent is not received or of_sender is not of_receiver:
            at_receivers = _Heads.of(of_receiver(received), layer.heads)
        senders, receivers = (
            replace(heads, table=(heads.table * part).sum(-1))
            for heads, part in ((values, layer.att_src), (at_receivers, layer.att_dst))
        )
    out = _merge_heads(layer, _attend((senders, receivers, values, score), edges, rows, loops))
    if layer.res is not None:
        out = _add_projection(out, layer.res, received, rows)
    return out if layer.bias is None else out + layer.bias


def _transformer(layer: Any, x: Any, edges: BatchEdges, rows: int) -> Any:
    """Attention with scores q_i . k_j / sqrt(width), and a (gated) skip connection."""
    if layer.lin_edge is not None:
        return None

    def score(keys: Tensor, queries: Tensor) -> Tensor:
        return keys.mul_(queries).sum(-1) / sqrt(layer.out_channels)

    sent, received = _senders_and_receivers(x)
    query = _Heads.of(layer.lin_query(received), layer.heads)
    key, value = (_Heads.of(lin(sent), layer.heads) for lin in (layer.lin_key, layer.lin_value))
    out = _merge_heads(layer, _attend((key, query, value, score), edges, rows, False))
    if not layer.root_weight:
        return out
    skip = plain(layer.lin_skip(received[:rows]))
    if layer.lin_beta is None:
        return out + skip
    beta = layer.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
    return beta * skip + (1 - beta) * out


# --- which layers have kernels -----------------------------------------------------------


_SUM_OR_MEAN = (SumAggregation, MeanAggregation)
# Layers of which only the traits are known: they run their own code.
_READ_DEGREES = (
    APPNP, ARMAConv, CGConv, EdgeConv, GatedGraphConv, GCN2Conv, GENConv, LEConv, MFConv, NNConv,
    PNAConv, ResGatedGraphConv, SGConv, SSGConv, TAGConv,
)  # fmt: skip
_KERNELS = {
    kernel.layer: kernel
    for kernel in (
        LayerKernel(GraphConv, _graph_conv, _SUM_OR_MEAN, reads_degrees=False),
        LayerKernel(SAGEConv, _sage, _SUM_OR_MEAN, reads_degrees=False),
        LayerKernel(GINConv, _gin, reads_degrees=False),
        LayerKernel(GCNConv, _gcn, reads_degrees=True),
        LayerKernel(GATConv, _gat, reads_degrees=False),
        LayerKernel(GATv2Conv, _gat, reads_degrees=False),
        LayerKernel(TransformerConv, _transformer, reads_degrees=False),
        LayerKernel(GINEConv, reads_degrees=False),
        *(LayerKernel(layer, reads_degrees=True) for layer in _READ_DEGREES),
    )
}
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

    layers: tuple[tuple[int, Forward | None], ...]
    """Their positions among the modules, with the code that computes them where there is some."""
    widest: int
    """Largest number of output features of any layer."""
    follow_edges: bool
    """Whether all are known to pass messages along the edges."""
    reads_degrees: bool
    """Whether messages of a known layer depend on degrees."""
    may_read_degrees: bool
    """Whether messages may depend on degrees: then edges one hop further out count."""
    all_fast: bool
    """Whether all layers have a kernel."""
    degrees_suffice: bool
    """Whether all layers are fast and edges beyond the last round only count in GCN's degrees."""
    rounds_left: tuple[int, ...] | None = None
    """How many rounds follow each one of a call; None: they come one after the other."""

    @staticmethod
    def of(parts: list[nn.Module], rounds_left: tuple[int, ...] | None = None) -> ModelLayers:
        """Those of a model, given all of its modules."""
        matrices = [
            weight.shape[0]
            for part in parts
            for weight in part._parameters.values()
            if weight is not None and not nn.parameter.is_lazy(weight) and weight.dim() > 1
        ]
        passing = [(at, part) for at, part in enumerate(parts) if isinstance(part, MessagePassing)]
        kernels_of_layers = [kernel_of(layer) for _, layer in passing]
        kernels = [fast_kernel(layer) for _, layer in passing]
        forwards = [None if kernel is None else kernel.forward for kernel in kernels]
        all_fast = None not in forwards
        normalised = all(type(layer) is not GCNConv or layer.normalize for _, layer in passing)
        return ModelLayers(
            tuple((at, forward) for (at, _), forward in zip(passing, forwards, strict=True)),
            max(matrices, default=0),
            all(kernel is not None for kernel in kernels_of_layers),
            any(kernel is not None and kernel.reads_degrees for kernel in kernels_of_layers),
            not kernels_of_layers
            or any(kernel is None or kernel.reads_degrees for kernel in kernels_of_layers),
            all_fast,
            all_fast and normalised and bool(passing),
            rounds_left,
        )


def is_plain_call(x: Any, rest: tuple[Any, ...], named: Any, edges: BatchEdges) -> bool:
    """Whether a layer that was called on these edges gets rows of their ends and nothing else."""
    counts = edges.senders, edges.rows
    return all(
        isinstance(part, Tensor)
        and part.dim() == 2
        and part.shape[0] == count
        and (not isinstance(part, Lazy) or isinstance(part, StoredRows))
        for part, count in zip(_senders_and_receivers(x), counts, strict=True)
    ) and all(value is None for value in (*rest, *named.values()))
