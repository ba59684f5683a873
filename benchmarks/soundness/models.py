"""Families of models: stacks of layers, PyG's own models, and models with steps of their own."""

# ruff: noqa: ARG001, ARG002  (functions that are called alike have the same arguments)

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from benchmarks.soundness import tricks
from benchmarks.soundness.layers import ATTRIBUTES, RECIPES, Recipe
from benchmarks.soundness.tricks import Trick

Norm = Callable[[int], nn.Module]

NORMS: dict[str, Norm] = {
    "batch": pyg.BatchNorm,
    "batch of this call": partial(nn.BatchNorm1d, track_running_stats=False),
    "layer by node": partial(pyg.LayerNorm, mode="node"),
    "layer by graph": partial(pyg.LayerNorm, mode="graph"),
    "graph": pyg.GraphNorm,
    "instance": pyg.InstanceNorm,
    "pair": lambda _: pyg.PairNorm(),
    "pair by node": lambda _: pyg.PairNorm(scale_individually=True),
    "size": lambda _: pyg.GraphSizeNorm(),
    "mean subtraction": lambda _: pyg.MeanSubtractionNorm(),
    "groups": partial(pyg.DiffGroupNorm, groups=2),
    "torch layer": nn.LayerNorm,
    "torch batch": nn.BatchNorm1d,
}
LOCAL_NORMS = ("batch", "layer by node", "groups", "torch layer", "torch batch")
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "relu": torch.relu, "elu": nn.functional.elu, "gelu": nn.functional.gelu,
    "leaky": nn.functional.leaky_relu, "module": nn.SELU(),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Built:
    """A model, what it is, and what its graph must have."""

    model: Callable[..., Any]
    label: str
    weight: bool = False
    attributes: int = 0
    sort: bool = False
    single: bool = False
    """Works in single precision only."""


class Stack(nn.Module):
    """Layers with activations, norms, dropout, residuals, jumping knowledge and a linear head."""

    def __init__(self, draw: random.Random, names: list[str], inputs: int, outputs: int,
                 norms: tuple[str, ...]) -> None:  # fmt: skip
        super().__init__()
        self.recipes: list[Recipe] = [RECIPES[name] for name in names]
        hidden = draw.choice([4, 8])
        self.lift = nn.Linear(inputs, hidden) if draw.random() < 0.3 else None
        width = inputs if self.lift is None else hidden
        jumps = (
            draw.choice(["cat", "max", "lstm"]) if len(names) > 1 and draw.random() < 0.2 else None
        )
        head = jumps is not None or draw.random() < 0.3
        self.layers, self.norms, self.narrow = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for position, recipe in enumerate(self.recipes):
            last = position == len(names) - 1
            wanted = width if recipe.keeps_width else outputs if last and not head else hidden
            self.layers.append(recipe.make(width, wanted, draw))
            width = recipe.width(wanted)
            narrow = jumps is not None and width != hidden
            self.narrow.append(nn.Linear(width, hidden) if narrow else nn.Identity())
            width = hidden if narrow else width
            norm = draw.choice(norms) if norms and draw.random() < 0.4 and not last else None
            self.norms.append(NORMS[norm](width) if norm else nn.Identity())
        self.jump = pyg.JumpingKnowledge(jumps, hidden, len(names)) if jumps else None
        width = len(names) * hidden if jumps == "cat" else width
        self.head = nn.Linear(width, outputs) if head or width != outputs else None
        self.act = _ACTIVATIONS[draw.choice(list(_ACTIVATIONS))]
        self.dropout = draw.choice([0.0, 0.5])
        self.residual = draw.random() < 0.3

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if self.lift is not None:
            x = self.lift(x)
        seen = []
        for position, (recipe, layer) in enumerate(zip(self.recipes, self.layers, strict=True)):
            before = x
            x = recipe.call(layer, x, edge_index, edge_weight, edge_attr)
            x = self.narrow[position](x)
            if self.residual and x.shape == before.shape:
                x = x + before
            if position < len(self.layers) - 1:
                x = self.act(self.norms[position](x))
                x = nn.functional.dropout(x, self.dropout, self.training)
            seen.append(x)
        if self.jump is not None:
            x = self.jump(seen)
        return x if self.head is None else self.head(x)


def settle(model: nn.Module, draw: random.Random) -> None:
    """Running statistics as if the model had been trained; weights large enough to matter."""
    rng = torch.Generator().manual_seed(draw.randrange(2**31))
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.3 * torch.randn(buffer.shape, generator=rng))
        elif name.endswith("running_var"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=rng))
    for norm in model.modules():
        if isinstance(norm, pyg.GraphNorm):
            norm.mean_scale.data.copy_(torch.rand(norm.mean_scale.shape, generator=rng))


def _stack(draw: random.Random, names: list[str], inputs: int, outputs: int,
           norms: tuple[str, ...] = tuple(NORMS)) -> Built:  # fmt: skip
    uses = {RECIPES[name].uses for name in names}
    return Built(
        Stack(draw, names, inputs, outputs, norms),
        "+".join(names),
        weight="weight" in uses and draw.random() < 0.5,
        attributes=ATTRIBUTES if "attr" in uses else 0,
        sort=any(RECIPES[name].sorted_edges for name in names),
    )


def layers(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """One to three layers of any kind; most games have one kind of layer."""
    names = [draw.choice(list(RECIPES))]
    names *= draw.choice([1, 1, 2, 2, 3])
    if draw.random() < 0.25:
        names.append(draw.choice(list(RECIPES)))
    return _stack(draw, names, inputs, outputs, () if draw.random() < 0.4 else tuple(NORMS))


_COMMON = ["GCNConv", "GCNConv", "SAGEConv", "GraphConv", "GATConv", "GINConv", "TransformerConv",
           "TAGConv", "GATv2Conv"]  # fmt: skip


def common(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Layers that the engine knows, with norms that keep nodes apart."""
    names = [draw.choice(_COMMON)] * draw.choice([1, 2, 2, 3])
    return _stack(draw, names, inputs, outputs, LOCAL_NORMS)


class Tricky(nn.Module):
    """Steps before and after a stack of layers."""

    def __init__(self, body: nn.Module, before: list[Trick], after: list[Trick]) -> None:
        super().__init__()
        self.body, self.before, self.after = body, before, after

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.steps(x, edge_index, None, None)

    def steps(self, x: Tensor, edges: Tensor, weight: Tensor | None, attr: Tensor | None) -> Tensor:
        given = edges
        for trick in self.before:
            x, edges, weight = trick(x, edges, weight)
        attr = attr if edges is given else None
        x = self.body(x, edges, weight, attr)
        for trick in self.after:
            x, edges, weight = trick(x, edges, weight)
        return x


class TrickyWithWeights(Tricky):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.steps(x, edge_index, edge_weight, None)


_PLAIN = ["GCNConv", "SAGEConv", "GraphConv", "GINConv", "TAGConv", "FeaStConv", "ChebConv",
          "SGConv", "EdgeConv", "MFConv", "LEConv", "ClusterGCNConv"]  # fmt: skip
_WEIGHTED = ["GCNConv", "GraphConv", "TAGConv", "LEConv", "ARMAConv"]


def tricky(*groups: dict[str, Trick]) -> Callable[[random.Random, int, int, int], Built]:
    """Common layers with one step of the groups before or after them."""

    def build(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
        options = {name: trick for group in groups for name, trick in group.items()}
        if tricks.EDGES in groups:
            limit = draw.randint(1, 3 * nodes)
            options[f"fewer than {limit} edges"] = tricks.fewer_edges_than(limit)
            lonely = draw.randrange(nodes)
            options[f"node {lonely} is isolated"] = tricks.node_is_isolated(lonely)
        name = draw.choice(list(options))
        of_weights = name.startswith(("weight", "order of", "first edges"))
        weight = of_weights or draw.random() < 0.2
        layer = draw.choice(_WEIGHTED if weight else _PLAIN)
        names = [layer] * draw.choice([1, 1, 2])
        body = Stack(draw, names, inputs, outputs, LOCAL_NORMS if draw.random() < 0.3 else ())
        late = draw.random() < 0.35 and not of_weights and options[name] not in (
            tricks.EDGES.get("edges dropped by hash"),)  # fmt: skip
        before, after = ([], [options[name]]) if late else ([options[name]], [])
        kind = TrickyWithWeights if weight else Tricky
        where = "after" if late else "before"
        return Built(kind(body, before, after), f"{name} {where} {'+'.join(names)}", weight=weight)

    return build


def scaled(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Outputs that are small, large, or of very different sizes, with and without a trick."""
    name = draw.choice(list(tricks.SCALES))
    trick = draw.choice([None, None, *tricks.ALL])
    layer = draw.choice(_PLAIN)
    body = Stack(draw, [layer] * draw.choice([1, 2]), inputs, outputs, ())
    before = [] if trick is None else [tricks.ALL[trick]]
    label = f"{name} after {layer}" + (f", {trick} before" if trick else "")
    return Built(Tricky(body, before, [tricks.SCALES[name]]), label)


# --- PyG's own models ------------------------------------------------------------------------


class _WithoutBatch(nn.Module):
    """A model that must be given a batch: all nodes are one graph."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index, torch.zeros(len(x), dtype=torch.long))


class Finished(nn.Module):
    """A model with something done to its outputs."""

    def __init__(self, inner: nn.Module, finish: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.finish = inner, finish

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.finish(self.inner(x, edge_index))


class _Encoded(nn.Module):
    """A graph autoencoder's embeddings."""

    def __init__(self, inner: pyg.GAE) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner.encode(x, edge_index)


class _Identified(nn.Module):
    """Features and a learned embedding of each node's number."""

    def __init__(self, nodes: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Embedding(nodes, inputs)
        self.conv = pyg.SAGEConv(inputs, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x + self.own.weight, edge_index)


class _Propagated(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lin = nn.Linear(inputs, outputs)
        self.spread = pyg.LabelPropagation(3, 0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.spread(self.lin(x), edge_index, post_step=lambda y: y.clamp(-2, 2))


class _Deep(nn.Module):
    def __init__(self, draw: random.Random, inputs: int, outputs: int) -> None:
        super().__init__()
        self.lift = nn.Linear(inputs, 8)
        self.blocks = nn.ModuleList(
            pyg.DeepGCNLayer(
                pyg.GENConv(8, 8), nn.LayerNorm(8), nn.ReLU(),
                block=draw.choice(["res+", "res", "dense", "plain"][:2]), dropout=0.2,
            )
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.lift(x)
        for block in self.blocks:
            x = block(x, edge_index)
        return self.head(x)


class _Meta(nn.Module):
    """torch_geometric's MetaLayer: edges, nodes and the whole graph are updated in turn."""

    def __init__(self, inputs: int, outputs: int, with_globals: bool) -> None:
        super().__init__()
        self.edges, self.nodes = (
            nn.Linear(2 * inputs + ATTRIBUTES, 4),
            nn.Linear(inputs + 4, outputs),
        )
        self.globals = nn.Linear(outputs, outputs) if with_globals else None
        self.layer = pyg.MetaLayer(self._edge, self._node)

    def _edge(self, source: Any, target: Any, attr: Any, u: Any, batch: Any) -> Tensor:
        return self.edges(torch.cat([source, target, attr], 1)).tanh()

    def _node(self, x: Any, edges: Any, attr: Any, u: Any, batch: Any) -> Tensor:
        total = x.new_zeros(len(x), 4).index_add(0, edges[1], attr)
        return self.nodes(torch.cat([x, total], 1))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.layer(x, edge_index, edge_attr)[0]
        return x if self.globals is None else x + self.globals(x.mean(0, keepdim=True))


def ready_made(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Models that PyG has."""
    depth = draw.choice([1, 2, 2, 3])
    settings: dict[str, Any] = {
        "dropout": draw.choice([0.0, 0.4]),
        "act": draw.choice(["relu", "tanh", "elu"]),
        "act_first": draw.random() < 0.2,
        "jk": draw.choice([None, None, "cat", "max", "last", "lstm"]),
        "norm": draw.choice([None, None, "batch", "layer", "graph", "pair", "instance"]),
    }
    unet = {"depth": draw.choice([1, 2]), "pool_ratios": draw.choice([0.5, 0.8])}
    options: dict[str, Callable[[], Callable[..., Any]]] = {
        "GCN": lambda: pyg.GCN(inputs, 8, depth, outputs, cached=draw.random() < 0.2, **settings),
        "GraphSAGE": lambda: pyg.GraphSAGE(inputs, 8, depth, outputs, **settings),
        "GIN": lambda: pyg.GIN(inputs, 8, depth, outputs, **settings),
        "GAT": lambda: pyg.GAT(inputs, 8, depth, outputs, heads=2, v2=depth == 2, **settings),
        "EdgeCNN": lambda: pyg.EdgeCNN(inputs, 8, depth, outputs, **settings),
        "PNA": lambda: pyg.PNA(inputs, 8, depth, outputs, aggregators=["mean", "max", "std"],
                               scalers=["identity", "amplification"], deg=torch.tensor([1, 5, 4]),
                               **settings),
        "GraphUNet": lambda: pyg.GraphUNet(inputs, 8, outputs, **unet),
        "RECT_L": lambda: _Recognised(inputs, outputs),
        "LINKX": lambda: pyg.LINKX(nodes, inputs, 8, outputs, 2),
        "SGFormer": lambda: _WithoutBatch(pyg.SGFormer(inputs, 8, outputs, gnn_num_layers=2)),
        "Polynormer": lambda: _WithoutBatch(pyg.Polynormer(inputs, 8, outputs, local_layers=2)),
        "PMLP": lambda: pyg.PMLP(inputs, 8, outputs, 2),
        "GAE": lambda: _Encoded(pyg.GAE(pyg.GCN(inputs, 8, 2, outputs))),
        "VGAE": lambda: _Encoded(pyg.VGAE(_Variational(inputs, outputs))),
        "LabelPropagation": lambda: _Propagated(inputs, outputs),
        "embedding of nodes": lambda: _Identified(nodes, inputs, outputs),
        "DeepGCNLayer": lambda: _Deep(draw, inputs, outputs),
        "Sequential": lambda: pyg.Sequential("x, edge_index", [
            (pyg.GCNConv(inputs, 8), "x, edge_index -> x"), nn.ReLU(),
            (pyg.SAGEConv(8, outputs), "x, edge_index -> x")]),
        "MetaLayer": lambda: _Meta(inputs, outputs, draw.random() < 0.5),
    }  # fmt: skip
    name = draw.choice(list(options))
    attributes = ATTRIBUTES if name == "MetaLayer" else 0
    label = f"{name} {settings}" if name in ("GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN") else name
    weight = name in ("GCN", "GraphUNet") and draw.random() < 0.3
    single = name == "SGFormer"
    return Built(options[name](), label, weight=weight, attributes=attributes, single=single)


class _Variational(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mean, self.spread = pyg.GCNConv(inputs, outputs), pyg.GCNConv(inputs, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean(x, edge_index), self.spread(x, edge_index)


class _Recognised(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inner, self.head = pyg.RECT_L(inputs, 8), nn.Linear(inputs, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.inner(x, edge_index))


# --- models that are no modules --------------------------------------------------------------


class _Callable:
    """An object that is called, with layers or without."""

    def __init__(self, inner: Callable[..., Tensor]) -> None:
        self.inner = inner

    def __call__(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index)

    def method(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index)


def no_module(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Functions, objects and methods; some compute by hand, others hide a module."""
    rng = torch.Generator().manual_seed(draw.randrange(2**31))
    first = torch.randn(inputs, outputs, generator=rng, dtype=torch.float64)
    name = draw.choice([None, *tricks.names_of(tricks.ALL)])
    trick = tricks.ALL[name] if name else tricks.MESSAGES["sum by hand"]
    depth = draw.choice([1, 2])

    def by_hand(x: Tensor, edge_index: Tensor) -> Tensor:
        weight = None
        for _ in range(depth):
            x, edge_index, weight = trick(x, edge_index, weight)
        x, _, _ = tricks.MESSAGES["mean by hand"](x, edge_index, weight)
        return (x @ first.to(x.dtype)).tanh()

    form = draw.choice(["function", "closure around a module", "object", "method", "partial"])
    label = f"{form}: {name or 'by hand'}"
    if form == "function":
        return Built(by_hand, label)
    hidden = draw.choice([common, layers, ready_made])(draw, inputs, outputs, nodes)
    inside = by_hand
    if isinstance(hidden.model, nn.Module) and not hidden.attributes and draw.random() < 0.7:
        module = hidden.model.double().eval()
        for layer in module.modules():  # nobody could tell it to forget a graph
            if getattr(layer, "cached", False) is True:
                layer.cached = False
        settle(module, draw)
        label = f"{form}: {hidden.label}"

        def inside(x: Tensor, edge_index: Tensor) -> Tensor:
            return module.to(x.dtype)(x, edge_index)

    else:
        hidden = Built(by_hand, label)
    made: dict[str, Callable[..., Any]] = {
        "closure around a module": inside,
        "object": _Callable(inside),
        "method": _Callable(inside).method,
        "partial": partial(_called, inside),
    }
    return Built(made[form], label, sort=hidden.sort)


def _called(inner: Callable[..., Tensor], x: Tensor, edge_index: Tensor) -> Tensor:
    return inner(x, edge_index)


# --- whole graphs and links ------------------------------------------------------------------


class Pooled(nn.Module):
    """Node embeddings, a norm, a pooling over each graph's nodes, and a linear head."""

    def __init__(self, draw: random.Random, body: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.body = body
        norm = draw.choice([None, None, *NORMS])
        self.norm = NORMS[norm](width) if norm else None
        self.norm_by_graph = norm in ("layer by graph", "graph", "instance", "pair", "size",
                                      "mean subtraction") and draw.random() < 0.6  # fmt: skip
        self.choose = draw.choice([None, None, None, "topk", "sag", "edges counted", "trick"])
        if self.choose == "topk":
            self.select: Any = pyg.TopKPooling(width, ratio=draw.choice([0.5, 0.8]))
        elif self.choose == "sag":
            self.select = pyg.SAGPooling(width, ratio=0.6)
        elif self.choose == "trick":
            self.trick = tricks.ALL[draw.choice(list(tricks.ALL))]
        pools: dict[str, Callable[..., Tensor]] = {
            "add": pyg.global_add_pool, "mean": pyg.global_mean_pool, "max": pyg.global_max_pool,
            "set2set": pyg.Set2Set(width, 2), "sort": pyg.SortAggregation(3),
            "softmax": pyg.SoftmaxAggregation(learn=True),
            "attention": pyg.AttentionalAggregation(nn.Linear(width, 1)),
            "degree-scaled": pyg.global_add_pool,
        }  # fmt: skip
        self.kind = draw.choice(list(pools))
        self.pool = pools[self.kind]
        wide = {"set2set": 2 * width, "sort": 3 * width}.get(self.kind, width)
        self.head = nn.Linear(wide, outputs)
        self.label = f"{self.kind} pool, norm {norm}{' by graph' if self.norm_by_graph else ''}, {self.choose}"  # noqa: E501  (one label)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.body(x, edge_index)
        if self.norm is not None:
            x = self.norm(x, batch) if self.norm_by_graph else self.norm(x)
        if self.choose in ("topk", "sag"):
            x, edge_index, _, batch, _, _ = self.select(x, edge_index, batch=batch)
        elif self.choose == "trick":
            x, _, _ = self.trick(x, edge_index, None)
        graphs = int(batch.max()) + 1
        if self.kind == "degree-scaled":
            x = (
                x
                / (
                    1
                    + torch.zeros(len(x)).index_add(
                        0, edge_index[1], torch.ones(edge_index.shape[1])
                    )
                ).to(x)[:, None]
            )
        pooled = self.pool(x, batch) if callable(self.pool) else x
        if self.choose == "edges counted":
            counted = torch.bincount(batch[edge_index[0]], minlength=graphs)
            pooled = pooled * (1 + counted)[:, None].to(pooled).log()
        return self.head(pooled)


def of_graphs(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Models of whole graphs."""
    names = [draw.choice([*_PLAIN, "GPSConv", "EGConv", "SimpleConv"])] * draw.choice([1, 2])
    body = Stack(draw, names, inputs, 6, LOCAL_NORMS)
    model = Pooled(draw, body, 6, outputs)
    return Built(model, f"{'+'.join(names)}, {model.label}")


class _TrickyPool(nn.Module):
    """Nodes by a tricky model, added up in each graph."""

    def __init__(self, inner: nn.Module, mean: bool) -> None:
        super().__init__()
        self.inner, self.pool = inner, pyg.global_mean_pool if mean else pyg.global_add_pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.pool(self.inner(x, edge_index), batch)


def tricky_graphs(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Models of whole graphs with a trick that knows nothing of batches."""
    built = tricky(tricks.DEGREES, tricks.EDGES, tricks.NODES, tricks.MESSAGES)(
        draw, inputs, outputs, nodes
    )
    return Built(_TrickyPool(built.model, draw.random() < 0.5), f"pooled: {built.label}")


class OfPairs(nn.Module):
    """Scores of pairs of nodes."""

    def __init__(self, draw: random.Random, body: nn.Module, outputs: int) -> None:
        super().__init__()
        self.body, self.score = body, nn.Bilinear(6, 6, outputs)
        self.common = draw.random() < 0.3

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        x = self.body(x, edge_index)
        source, target = edge_label_index
        out = self.score(x[source], x[target])
        if self.common:  # common in-neighbours of the two ends
            near = x.new_zeros(len(x), len(x))
            near[edge_index[1], edge_index[0]] = 1
            out = out + (near[source] * near[target]).sum(1)[:, None]
        return out


def of_pairs(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Models that are asked about pairs of nodes."""
    names = [draw.choice(_PLAIN)] * draw.choice([1, 2])
    body: nn.Module = Stack(draw, names, inputs, 6, LOCAL_NORMS)
    label = "+".join(names)
    if draw.random() < 0.3:
        name = draw.choice(list(tricks.ALL))
        body, label = Tricky(body, [tricks.ALL[name]], []), f"{name} before {label}"
    return Built(OfPairs(draw, body, outputs), f"pairs: {label}")


# --- models that read more than edge_index, or less ---------------------------------------------


class FarEdges(nn.Module):
    """A stack on edge_index and a layer on other edges, before it or after it."""

    def __init__(self, body: nn.Module, layer: nn.Module, first: bool) -> None:
        super().__init__()
        self.body, self.layer, self.first = body, layer, first

    def forward(self, x: Tensor, edge_index: Tensor, far_edge_index: Tensor) -> Tensor:
        if self.first:
            return self.body(self.layer(x, far_edge_index).tanh(), edge_index)
        return self.layer(self.body(x, edge_index).tanh(), far_edge_index)


def other_edges(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Layers on two tensors of edges; the graph must be given the second."""
    kinds = ["GCNConv", "SAGEConv", "GraphConv", "GATConv", "GINConv", "TAGConv"]
    names = [draw.choice(kinds)] * draw.choice([1, 2])
    first = draw.random() < 0.5
    kind = draw.choice([pyg.GraphConv, pyg.SAGEConv, pyg.GCNConv])
    layer = kind(inputs, inputs) if first else kind(outputs, outputs)
    body = Stack(draw, names, inputs, outputs, LOCAL_NORMS)
    return Built(FarEdges(body, layer, first), f"far edges, first {first}, {'+'.join(names)}")


class OwnEdges(nn.Module):
    """A stack on edges between nodes with similar features; the graph's own are not read."""

    def __init__(self, body: nn.Module, nearest: int | None) -> None:
        super().__init__()
        self.body, self.nearest = body, nearest

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        apart = torch.cdist(x, x)
        if self.nearest is None:
            edges = (apart < 2).nonzero().t()
        else:
            source = apart.topk(min(self.nearest, len(x)), largest=False).indices
            target = torch.arange(len(x))[:, None].expand_as(source)
            edges = torch.stack([source.flatten(), target.flatten()])
        return self.body(x, edges)


def own_edges(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Layers on edges that the model makes: by distance, or to the nearest nodes."""
    names = [draw.choice(["GCNConv", "SAGEConv", "GraphConv", "GATConv"])] * draw.choice([1, 2])
    nearest = draw.choice([None, 2, 3])
    return Built(
        OwnEdges(Stack(draw, names, inputs, outputs, ()), nearest),
        f"own edges, nearest {nearest}, {'+'.join(names)}",
    )


def rare(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Layers, and a branch that few coalitions take: those with a certain number of edges."""
    edges, some, other = draw.randint(0, 2 * nodes), draw.randrange(nodes), draw.randrange(nodes)
    branches = {
        f"exactly {edges} edges": tricks.exactly_edges(edges),
        f"node {some} hears {edges % 4}": tricks.exactly_heard(some, edges % 4),
        f"exactly {edges % nodes} isolated": tricks.exactly_isolated(edges % nodes),
        f"node {some} does not hear {other}": tricks.turned_without(some, other),
    }
    name = draw.choice(list(branches))
    names = [draw.choice(_PLAIN)] * draw.choice([1, 1, 2])
    body = Stack(draw, names, inputs, outputs, ())
    return Built(Tricky(body, [branches[name]], []), f"{name} before {'+'.join(names)}")


class Steps(nn.Module):
    """Sums of whole numbers, so that classes often have exactly the same score."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randint(-1, 2, (inputs, outputs)).double())

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.sign()
        heard = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        return (x + heard) @ self.weight.round().to(x.dtype)


def steps(draw: random.Random, inputs: int, outputs: int, nodes: int) -> Built:
    """Whole numbers as scores."""
    return Built(Steps(inputs, outputs), "steps")
