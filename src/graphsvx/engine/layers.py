"""The layers that most models are made of, on a batch whose edges are in the order of their ends.

PyG gathers a row for each edge, weighs it and scatters it again. Here the edges into a node are
next to each other, so that `embedding_bag` adds the rows up where they are: several times
faster. Only layers of exactly these classes, as PyG made them, without hooks; whatever is out of
the ordinary goes through the layer's own code. That both are the same is checked at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, MessagePassing, SAGEConv
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.dense.linear import Linear

from graphsvx.engine.lazy import Lazy, plain
from graphsvx.engine.prefix import PrefixRows, first
from graphsvx.engine.rows import SharedRows
from graphsvx.graph import Ids

# Rows wider than this are not added up before they are projected.
_WIDE = 64
# exp() of less than minus this may vanish in single precision.
_STEEP = 50.0


@dataclass(eq=False)
class Edges:
    """The edges of a batch, in the order of the nodes that they end in."""

    index: Tensor
    """What the model is given as edge_index."""
    weight: Tensor | None
    source: Ids
    target: Ids
    starts: Ids
    """[rows + 1]: the edges into row i are from starts[i] to starts[i + 1]."""
    loops: bool
    """Whether an edge ends where it begins."""
    degree: Tensor | None = None
    """Edges into each row, where there are more than those that are listed."""
    _kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Nodes of the batch."""
        return len(self.starts) - 1

    def once(self, name: Any, make: Callable[[], Any]) -> Any:
        """What all layers share is made once."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def bags(self, limit: int) -> Bags:
        """The edges into the first `limit` rows."""
        sources, starts = self.once("plain", self._plain)
        return Bags(sources[: int(self.starts[limit])], starts[:limit])

    def _plain(self) -> tuple[Tensor, Tensor]:
        return self.index[0], _tensor(self.starts, self.index)

    def bags_with_loops(self, limit: int) -> Bags:
        """The same with one edge from each row to itself, which comes last.

        Edges of the batch that end where they begin are left out, as PyG does it.
        """
        sources, starts, ends = self.once("looped", lambda: self._looped(limit))
        if starts.shape[0] < limit:  # a later round that needs more than the first: not expected
            sources, starts, ends = self._kept["looped"] = self._looped(limit)
        return Bags(sources[: int(ends[limit]) + limit], starts[:limit])

    def _looped(self, limit: int) -> tuple[Tensor, Tensor, Ids]:
        source, target, ends = self.without_loops()
        stop = int(ends[limit])
        rows = np.arange(limit)
        sources = np.empty(stop + limit, dtype=np.int64)
        sources[np.arange(stop) + target[:stop]] = source[:stop]
        sources[ends[1 : limit + 1] + rows] = rows
        return _tensor(sources, self.index), _tensor(ends[:limit] + rows, self.index), ends

    def without_loops(self) -> tuple[Ids, Ids, Ids]:
        """Sources, targets and starts of the edges between different rows."""
        if not self.loops:
            return self.source, self.target, self.starts
        return self.once("between", self._between)

    def _between(self) -> tuple[Ids, Ids, Ids]:
        between = self.source != self.target
        target = self.target[between]
        ends = np.zeros_like(self.starts)
        np.cumsum(np.bincount(target, minlength=self.rows), out=ends[1:])
        return self.source[between], target, ends


@dataclass(frozen=True, eq=False)
class Bags:
    """Rows to be added up: those of bag i are sources[starts[i]:starts[i + 1]]."""

    sources: Tensor
    starts: Tensor

    def add(self, x: Tensor, weight: Tensor | None = None, mode: str = "sum") -> Tensor:
        """Sums (means) of rows of x, which may be shared or a prefix."""
        sources = self.sources
        if isinstance(x, SharedRows):
            sources, x = x.index.index_select(0, sources), x.base
        elif isinstance(x, PrefixRows):
            x = x.base
        return _added(sources, plain(x), self.starts, weight, mode)


def _added(
    sources: Tensor, x: Tensor, starts: Tensor, weight: Tensor | None, mode: str = "sum"
) -> Tensor:
    """`embedding_bag` without the checks of its wrapper."""
    return torch.embedding_bag(
        x, sources, starts, mode=int(mode == "mean"), per_sample_weights=weight
    )[0]


Quick = Callable[[Any, Any, Edges, int], Any]
"""(layer, x, edges, rows wanted) -> the first rows of the layer's output; None: not this time."""


def _tensor(array: Ids, like: Tensor) -> Tensor:
    return torch.from_numpy(array).to(like.device)


def _gcn(layer: Any, x: Any, edges: Edges, limit: int) -> Any:
    if not layer.normalize:
        return None
    if layer.add_self_loops and edges.loops and edges.weight is not None:
        return None  # loops keep their weight
    x = layer.lin(x)
    # `improved` makes loops weigh 2, but PyG forgets it where edges have no weight.
    heavy = layer.improved and edges.weight is not None
    fill = (2.0 if heavy else 1.0) if layer.add_self_loops else 0.0
    bags = edges.bags_with_loops(limit) if fill else edges.bags(limit)
    weight = edges.once(("gcn", fill), lambda: _symmetric(edges, fill, limit, bags, x.dtype))
    count = bags.sources.shape[0]
    if weight.shape[0] < count:  # a later round that needs more than the first: not expected
        weight = _symmetric(edges, fill, limit, bags, x.dtype)
    out = bags.add(x, weight[:count])
    return out if layer.bias is None else out.add_(layer.bias)


def _symmetric(edges: Edges, fill: float, limit: int, bags: Bags, dtype: torch.dtype) -> Tensor:
    """D^-1/2 (A + fill I) D^-1/2, a weight for each edge of the bags."""
    if edges.degree is not None:
        degree = edges.degree.to(dtype)
    elif edges.weight is None:
        starts = edges.without_loops()[2] if fill else edges.starts
        degree = _tensor(np.diff(starts), edges.index).to(dtype)
    else:
        degree = torch.zeros(edges.rows, dtype=dtype, device=edges.index.device)
        degree.index_add_(0, edges.index[1], edges.weight.to(dtype))
    root = (degree + fill).pow_(-0.5)
    root.masked_fill_(root == torch.inf, 0)
    ends = bags.starts.new_empty(limit + 1)
    count = bags.sources.shape[0]
    ends[:limit], ends[limit] = bags.starts, count
    into = torch.repeat_interleave(root[:limit], ends.diff(), output_size=count)
    found = root.index_select(0, bags.sources).mul_(into)
    if edges.weight is not None:
        own = edges.weight.new_full((len(found),), fill)
        stop = int(edges.starts[limit])
        shift = edges.target[:stop] if fill else 0
        own[_tensor(np.arange(stop) + shift, edges.index)] = edges.weight[:stop]
        found *= own
    return found


def _graph_conv(layer: Any, x: Any, edges: Edges, limit: int) -> Any:
    weight = None if edges.weight is None else edges.weight[: int(edges.starts[limit])]
    mode = "mean" if type(layer.aggr_module) is MeanAggregation else "sum"
    if weight is not None and mode == "mean":
        return None
    out = _project(layer.lin_rel, x, edges.bags(limit), weight, mode)
    return None if out is None else _add_rows(out, layer.lin_root, x, limit)


def _sage(layer: Any, x: Any, edges: Edges, limit: int) -> Any:
    if layer.project or edges.weight is not None:
        return None
    mode = "mean" if type(layer.aggr_module) is MeanAggregation else "sum"
    out = _project(layer.lin_l, x, edges.bags(limit), None, mode)
    if out is None:
        return None
    if layer.root_weight:
        out = _add_rows(out, layer.lin_r, x, limit)
    return functional.normalize(out, p=2.0, dim=-1) if layer.normalize else out


def _gin(layer: Any, x: Any, edges: Edges, limit: int) -> Any:
    if edges.weight is not None or type(layer.aggr_module) is not SumAggregation:
        return None
    if x.shape[1] <= _WIDE:
        own = (1 + layer.eps) * plain(first(x, limit))
        return layer.nn(edges.bags(limit).add(x) + own)
    net = layer.nn
    if type(net) is not nn.Sequential or type(net[0]) is not nn.Linear or _hooked(net, net[0]):
        return None
    h = functional.linear(x, net[0].weight)
    out = edges.bags(limit).add(h) + (1 + layer.eps) * plain(first(h, limit))
    return net[1:](out if net[0].bias is None else out + net[0].bias)


def _hooked(*some: nn.Module) -> bool:
    return any(one._forward_hooks or one._forward_pre_hooks for one in some)


def _project(lin: Any, x: Any, bags: Bags, weight: Tensor | None, mode: str) -> Tensor | None:
    """lin(sums of rows), the projection first where that is less work."""
    if type(lin) is not Linear or _hooked(lin):
        return None
    # The bias comes last: a product that also adds to something takes twice as long.
    if not isinstance(x, SharedRows) and lin.out_channels >= lin.in_channels:
        out = functional.linear(bags.add(x, weight, mode), lin.weight)
    else:
        out = bags.add(functional.linear(x, lin.weight), weight, mode)
    return out if lin.bias is None else out.add_(lin.bias)


def _add_rows(out: Tensor, lin: Any, x: Any, limit: int) -> Tensor:
    """out + lin(the first rows), in place."""
    x = first(x, limit)
    if isinstance(x, Lazy) or type(lin) is not Linear or _hooked(lin):
        return out.add_(plain(lin(x)))
    out.add_(functional.linear(x, lin.weight))
    return out if lin.bias is None else out.add_(lin.bias)


def _gat(layer: Any, x: Any, edges: Edges, limit: int) -> Any:
    """Attention by a softmax that is never spelled out: its sum is one more column of the rows."""
    if layer.lin is None or layer.edge_dim is not None:
        return None
    heads, width = layer.heads, layer.out_channels
    h = layer.lin(x)
    table = plain(h.base) if isinstance(h, (SharedRows, PrefixRows)) else plain(h)
    table = table.view(-1, heads, width)
    given = (table * layer.att_src).sum(-1).t().contiguous()
    taken = (table * layer.att_dst).sum(-1).t().contiguous()
    most, least = given.amax(1, keepdim=True), given.amin(1, keepdim=True)
    if (
        layer.negative_slope > 1
        or layer.negative_slope < 0
        or not bool((most - least < _STEEP).all())
    ):
        return None
    bags = edges.bags_with_loops(limit) if layer.add_self_loops else edges.bags(limit)
    sources, count = bags.sources, bags.sources.shape[0]
    ends = bags.starts.new_empty(limit + 1)
    ends[:limit], ends[limit] = bags.starts, count
    own = torch.arange(limit, device=sources.device)
    if isinstance(h, SharedRows):
        sources, own = h.index.index_select(0, sources), h.index[:limit]
    taken = taken.index_select(1, own)
    # No edge's score is above that of the strongest sender: a shift that keeps exp() small.
    shift = functional.leaky_relu(taken + most, layer.negative_slope)
    into = torch.repeat_interleave(
        torch.arange(limit, device=sources.device), ends.diff(), output_size=count
    )
    score = functional.leaky_relu_(
        given.index_select(1, sources).add_(taken.index_select(1, into)), layer.negative_slope
    )
    score = score.sub_(shift.index_select(1, into)).exp_()
    head = torch.arange(heads, device=sources.device)[:, None]
    rows = functional.pad(table, (0, 1), value=1.0).reshape(-1, width + 1)
    out = _added(
        (sources * heads + head).reshape(-1), rows, (bags.starts + head * count).reshape(-1),
        score.reshape(-1),
    ).view(heads, limit, width + 1)  # fmt: skip
    total = out[:, :, width:]
    if not layer.add_self_loops:
        total = total.masked_fill(total == 0, 1)  # nobody sends
    out = (out[:, :, :width] / total).transpose(0, 1)
    out = out.reshape(limit, heads * width) if layer.concat else out.mean(1)
    if layer.res is not None:
        out = _add_rows(out, layer.res, x, limit)
    return out if layer.bias is None else out + layer.bias


_QUICK: dict[type, tuple[Quick, Any]] = {
    kind: (quick, kind.forward)
    for kind, quick in (
        (GCNConv, _gcn), (GraphConv, _graph_conv), (SAGEConv, _sage), (GINConv, _gin),
        (GATConv, _gat),
    )
}  # fmt: skip
_OWN = {"forward", "propagate", "message", "aggregate", "update", "edge_updater", "edge_update"}
_METHODS = (*sorted(_OWN), "message_and_aggregate", "explain_message")
_HOOKS = tuple(
    f"_{part}_forward_{kind}"
    for part in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for kind in ("pre_hooks", "hooks")
)


def is_unchanged(layer: nn.Module) -> bool:
    """Whether a layer runs the code of its class, which is PyG's, without hooks."""
    own, kind = layer.__dict__, type(layer)
    if not _OWN.isdisjoint(own) or any(map(own.get, _HOOKS)) or own.get("_explain"):
        return False
    return all(
        getattr(getattr(kind, name, None), "__module__", kind.__module__).startswith("torch_geom")
        for name in _METHODS
    )


def quick(layer: nn.Module) -> Quick | None:
    """How to compute this layer fast; None: it is not, or no longer, one of the known ones."""
    known = _QUICK.get(type(layer))
    own = layer.__dict__
    if known is None or type(layer).forward is not known[1] or not is_unchanged(layer):
        return None
    plainly = own["flow"] == "source_to_target" and own["node_dim"] in (-2, 0)
    adds = type(layer.aggr_module) in (SumAggregation, MeanAggregation)
    if not plainly or not adds or own.get("_decomposed_layers", 1) != 1:
        return None
    if type(layer) in (GCNConv, GATConv) and type(layer.aggr_module) is not SumAggregation:
        return None
    return known[0]


@dataclass(frozen=True, eq=False)
class Anatomy:
    """Which of a model's modules pass messages, and how. Keeps none of them alive."""

    layers: tuple[tuple[int, Quick | None], ...]
    """Their positions among the modules, and how they are computed fast, where they are."""
    widest: int
    """Numbers that a node may have after the widest layer."""
    all_quick: bool
    """Whether all layers are computed here, and those that read degrees are GCN layers."""

    @staticmethod
    def of(found: list[nn.Module]) -> Anatomy:
        """That of a model, given all of its modules."""
        matrices = [
            weight.shape[0]
            for one in found
            for weight in one._parameters.values()
            if weight is not None and weight.dim() > 1
        ]
        passing = [(at, one) for at, one in enumerate(found) if isinstance(one, MessagePassing)]
        layers = tuple((at, quick(one)) for at, one in passing)
        known = all(fast is not None for _, fast in layers)
        normal = all(type(one) is not GCNConv or one.normalize for _, one in passing)
        return Anatomy(layers, max(matrices, default=0), known and normal)


def usable(x: Any, edge_index: Any, rest: tuple[Any, ...], named: Any, edges: Edges) -> bool:
    """Whether a layer was called on the batch itself, with nothing out of the ordinary."""
    given = [value for value in (*rest, *named.values()) if value is not None]
    return (
        edge_index is edges.index
        and isinstance(x, Tensor)
        and x.dim() == 2
        and x.shape[0] == edges.rows
        and (not isinstance(x, Lazy) or isinstance(x, (SharedRows, PrefixRows)))
        and len(given) == (edges.weight is not None)
        and all(value is edges.weight for value in given)
    )
