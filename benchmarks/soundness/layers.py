"""Every layer of torch_geometric.nn.conv that can be built here, with small settings."""

# ruff: noqa: ARG001, ARG005  (functions that are called alike have the same arguments)

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import conv as convs

ATTRIBUTES = 3
"""Width of edge_attr in these games."""
RELATIONS = 3

Uses = Literal["nothing", "weight", "attr"]


@dataclass(frozen=True)
class Recipe:
    """How a layer is made and called."""

    make: Callable[[int, int, random.Random], nn.Module]
    """The layer from (inputs, outputs, choices)."""
    call: Callable[..., Tensor] = lambda layer, x, edges, weight, attr: layer(x, edges)
    uses: Uses = "nothing"
    keeps_width: bool = False
    """Outputs are as wide as inputs."""
    sorted_edges: bool = False
    """Edges must be in the order of where they end."""
    width: Callable[[int], int] = lambda outputs: outputs
    """How wide the result is if `outputs` are asked for."""


def _mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh(), nn.Linear(outputs, outputs))


def _weighted(layer: Any, x: Tensor, edges: Tensor, weight: Tensor | None, attr: Any) -> Tensor:
    return layer(x, edges, weight)


def _attributed(layer: Any, x: Tensor, edges: Tensor, weight: Any, attr: Tensor | None) -> Tensor:
    if getattr(layer, "edge_dim", ATTRIBUTES) is None:
        return layer(x, edges)
    return layer(x, edges, attr)


def _typed(layer: Any, x: Tensor, edges: Tensor, weight: Any, attr: Tensor) -> Tensor:
    return layer(x, edges, edge_type=_types(attr))


def _types(attr: Tensor) -> Tensor:
    return (attr[:, 0] > 0).long() + (attr[:, 1] > 0.5).long()


def _in_space(layer: Any, x: Tensor, edges: Tensor, weight: Any, attr: Any) -> Tensor:
    return layer(x, x[:, :2], edges)


def _anchored(layer: Any, x: Tensor, edges: Tensor, weight: Tensor | None, attr: Any) -> Tensor:
    return layer(x, x.tanh(), edges, weight)


class _OneType(nn.Module):
    """A layer for graphs of several types of nodes, on a graph of one type."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer({"node": x}, {("node", "to", "node"): edge_index})["node"]


_METADATA = (["node"], [("node", "to", "node")])


def _sage(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    aggregations = ["mean", "max", "add", "std", "var", "median", "softmax", ["mean", "max"], "mul"]
    return convs.SAGEConv(
        inputs, outputs, aggr=draw.choice(aggregations), normalize=draw.random() < 0.2,
        root_weight=draw.random() < 0.8, project=draw.random() < 0.2,
    )  # fmt: skip


def _gcn(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    normalize = draw.random() < 0.8
    return convs.GCNConv(
        inputs, outputs, improved=draw.random() < 0.2, cached=draw.random() < 0.1,
        add_self_loops=normalize and draw.random() < 0.7, normalize=normalize,
        aggr=draw.choice(["add", "add", "add", "max", "mean"]),
        flow=draw.choice(["source_to_target"] * 8 + ["target_to_source"]),
    )  # fmt: skip


def _heads(outputs: int, draw: random.Random) -> dict[str, Any]:
    """Attention heads that give `outputs` columns, concatenated or averaged."""
    heads = draw.choice([1, 2, 4])
    if outputs % heads == 0 and draw.random() < 0.6:
        return {"out_channels": outputs // heads, "heads": heads, "concat": True}
    return {"out_channels": outputs, "heads": heads, "concat": False}


def _gat(kind: Any) -> Callable[[int, int, random.Random], nn.Module]:
    def make(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
        settings = {
            "edge_dim": draw.choice([None, ATTRIBUTES]),
            "dropout": draw.choice([0.0, 0.3]),
            "add_self_loops": draw.random() < 0.7,
            "residual": draw.random() < 0.3,
            "fill_value": draw.choice(["mean", "add", 0.5]),
        }
        return kind(inputs, **_heads(outputs, draw), **settings)

    return make


def _pna(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    return convs.PNAConv(
        inputs, outputs, aggregators=draw.sample(["mean", "max", "min", "std", "sum", "var"], 3),
        scalers=draw.sample(["identity", "amplification", "attenuation", "linear"], 2),
        deg=torch.tensor([1, 4, 6, 3, 2]), edge_dim=draw.choice([None, ATTRIBUTES]),
    )  # fmt: skip


def _gen(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    return convs.GENConv(
        inputs, outputs, aggr=draw.choice(["softmax", "powermean", "max"]),
        learn_t=draw.random() < 0.3, num_layers=draw.choice([1, 2]),
        norm=draw.choice(["layer", "batch", "instance"]), edge_dim=ATTRIBUTES,
        msg_norm=draw.random() < 0.3,
    )  # fmt: skip


def _general(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    return convs.GeneralConv(
        inputs, outputs, in_edge_channels=ATTRIBUTES,
        skip_linear=True, attention=draw.random() < 0.5, heads=draw.choice([1, 2]),
        directed_msg=draw.random() < 0.7, l2_normalize=draw.random() < 0.3,
    )  # fmt: skip


def _general_call(layer: Any, x: Tensor, edges: Tensor, weight: Any, attr: Tensor | None) -> Tensor:
    return layer(x, edges, edge_attr=attr)


def _signed(layer: Any, x: Tensor, edges: Tensor, weight: Any, attr: Tensor) -> Tensor:
    positive = attr[:, 0] > 0
    return layer(x, edges[:, positive], edges[:, ~positive])


def _dna(layer: Any, x: Tensor, edges: Tensor, weight: Tensor | None, attr: Any) -> Tensor:
    return layer(torch.stack([x, x.tanh()], 1), edges, weight)


def _gps(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    return convs.GPSConv(
        inputs, draw.choice([None, convs.GCNConv(inputs, inputs)]), heads=1,
        norm=draw.choice([None, "batch_norm", "layer_norm"]),
        attn_type=draw.choice(["multihead", "performer"]),
    )  # fmt: skip


def _dir(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    return convs.DirGNNConv(
        draw.choice([convs.GCNConv, convs.SAGEConv])(inputs, outputs),
        alpha=draw.random(),
        root_weight=draw.random() < 0.5,
    )


def _hyper(layer: Any, x: Tensor, edges: Tensor, weight: Any, attr: Any) -> Tensor:
    return layer(x, edges, num_edges=len(x))


def _hetero(inputs: int, outputs: int, draw: random.Random) -> nn.Module:
    inner = draw.choice([convs.GCNConv, convs.SAGEConv, convs.GraphConv])(inputs, outputs)
    return _OneType(convs.HeteroConv({("node", "to", "node"): inner}))


class _Summed(convs.MessagePassing):
    """The base class by itself: neighbours are added up."""

    def __init__(self, inputs: int, outputs: int, aggr: str) -> None:
        super().__init__(aggr=aggr)
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x) + self.propagate(edge_index, x=self.lin(x))


RECIPES: dict[str, Recipe] = {
    "MessagePassing": Recipe(lambda i, o, d: _Summed(i, o, d.choice(["add", "mean", "max"]))),
    "SimpleConv": Recipe(
        lambda i, o, d: convs.SimpleConv(d.choice(["mean", "sum"]), d.choice([None, "sum", "self_loop"])),
        _weighted, "weight", keeps_width=True),
    "GCNConv": Recipe(_gcn, _weighted, "weight"),
    "ChebConv": Recipe(
        lambda i, o, d: convs.ChebConv(i, o, K=d.choice([1, 2, 3]), normalization=d.choice(["sym", "rw"])),
        _weighted, "weight"),
    "SAGEConv": Recipe(_sage),
    "SAGEConv lstm": Recipe(lambda i, o, d: convs.SAGEConv(i, o, aggr="lstm"), sorted_edges=True),
    "GraphConv": Recipe(
        lambda i, o, d: convs.GraphConv(i, o, aggr=d.choice(["add", "mean", "max"])),
        _weighted, "weight"),
    "GatedGraphConv": Recipe(
        lambda i, o, d: convs.GatedGraphConv(i, num_layers=d.choice([1, 2, 3])),
        _weighted, "weight", keeps_width=True),
    "ResGatedGraphConv": Recipe(
        lambda i, o, d: convs.ResGatedGraphConv(i, o, edge_dim=ATTRIBUTES), _attributed, "attr"),
    "GATConv": Recipe(_gat(convs.GATConv), _attributed, "attr"),
    "GATv2Conv": Recipe(_gat(convs.GATv2Conv), _attributed, "attr"),
    "TransformerConv": Recipe(
        lambda i, o, d: convs.TransformerConv(i, **_heads(o, d), beta=d.random() < 0.4, edge_dim=ATTRIBUTES),
        _attributed, "attr"),
    "AGNNConv": Recipe(
        lambda i, o, d: convs.AGNNConv(add_self_loops=d.random() < 0.6), keeps_width=True),
    "TAGConv": Recipe(
        lambda i, o, d: convs.TAGConv(i, o, K=d.choice([1, 2, 3]), normalize=d.random() < 0.7),
        _weighted, "weight"),
    "GINConv": Recipe(lambda i, o, d: convs.GINConv(_mlp(i, o), eps=0.1, train_eps=d.random() < 0.5)),
    "GINEConv": Recipe(
        lambda i, o, d: convs.GINEConv(_mlp(i, o), edge_dim=ATTRIBUTES), _attributed, "attr"),
    "ARMAConv": Recipe(
        lambda i, o, d: convs.ARMAConv(i, o, num_stacks=d.choice([1, 2]), num_layers=d.choice([1, 2])),
        _weighted, "weight"),
    "SGConv": Recipe(
        lambda i, o, d: convs.SGConv(i, o, K=d.choice([1, 2]), cached=d.random() < 0.3),
        _weighted, "weight"),
    "SSGConv": Recipe(lambda i, o, d: convs.SSGConv(i, o, alpha=0.1, K=2), _weighted, "weight"),
    "APPNP": Recipe(lambda i, o, d: convs.APPNP(K=d.choice([1, 2, 3]), alpha=0.2), _weighted, "weight", keeps_width=True),
    "MFConv": Recipe(lambda i, o, d: convs.MFConv(i, o, max_degree=d.choice([2, 10]))),
    "RGCNConv": Recipe(
        lambda i, o, d: convs.RGCNConv(i, o, RELATIONS, num_bases=d.choice([None, 2])), _typed, "attr"),
    "FastRGCNConv": Recipe(lambda i, o, d: convs.FastRGCNConv(i, o, RELATIONS), _typed, "attr"),
    "RGATConv": Recipe(lambda i, o, d: convs.RGATConv(i, o, RELATIONS), _typed, "attr"),
    "SignedConv": Recipe(
        lambda i, o, d: convs.SignedConv(i, o, first_aggr=True), _signed, "attr",
        width=lambda outputs: 2 * outputs),
    "DNAConv": Recipe(lambda i, o, d: convs.DNAConv(i), _dna, "weight", keeps_width=True),
    "PointNetConv": Recipe(
        lambda i, o, d: convs.PointNetConv(_mlp(i + 2, o), _mlp(o, o), add_self_loops=d.random() < 0.6),
        _in_space),
    "GMMConv": Recipe(lambda i, o, d: convs.GMMConv(i, o, ATTRIBUTES, 2), _attributed, "attr"),
    "NNConv": Recipe(
        lambda i, o, d: convs.NNConv(i, o, nn.Linear(ATTRIBUTES, i * o), aggr=d.choice(["add", "mean", "max"])),
        _attributed, "attr"),
    "CGConv": Recipe(
        lambda i, o, d: convs.CGConv(i, ATTRIBUTES, aggr=d.choice(["add", "mean"]), batch_norm=d.random() < 0.3),
        _attributed, "attr", keeps_width=True),
    "EdgeConv": Recipe(
        lambda i, o, d: convs.EdgeConv(_mlp(2 * i, o), aggr=d.choice(["max", "mean", "add"]))),
    "PPFConv": Recipe(
        lambda i, o, d: convs.PPFConv(_mlp(i + 4, o), _mlp(o, o)),
        lambda layer, x, edges, weight, attr: layer(
            x, nn.functional.pad(x[:, :2], (0, 1)), nn.functional.pad(x[:, :2].tanh(), (1, 0), value=0.3), edges)),
    "FeaStConv": Recipe(
        lambda i, o, d: convs.FeaStConv(i, o, heads=d.choice([1, 2]), add_self_loops=d.random() < 0.6)),
    "PointTransformerConv": Recipe(
        lambda i, o, d: convs.PointTransformerConv(i, o, pos_nn=nn.Linear(2, o)), _in_space),
    "HypergraphConv": Recipe(lambda i, o, d: convs.HypergraphConv(i, o), _hyper),
    "LEConv": Recipe(lambda i, o, d: convs.LEConv(i, o), _weighted, "weight"),
    "PNAConv": Recipe(_pna, _attributed, "attr"),
    "ClusterGCNConv": Recipe(
        lambda i, o, d: convs.ClusterGCNConv(i, o, diag_lambda=d.choice([0.0, 0.5]))),
    "GENConv": Recipe(_gen, _attributed, "attr"),
    "GCN2Conv": Recipe(
        lambda i, o, d: convs.GCN2Conv(i, alpha=0.2, theta=0.5, layer=1), _anchored, "weight",
        keeps_width=True),
    "WLConvContinuous": Recipe(
        lambda i, o, d: convs.WLConvContinuous(), _weighted, "weight", keeps_width=True),
    "FiLMConv": Recipe(lambda i, o, d: convs.FiLMConv(i, o)),
    "SuperGATConv": Recipe(
        lambda i, o, d: convs.SuperGATConv(i, **_heads(o, d), attention_type=d.choice(["MX", "SD"]))),
    "FAConv": Recipe(
        lambda i, o, d: convs.FAConv(i, eps=0.3, normalize=True), _anchored, "nothing",
        keeps_width=True),
    "EGConv": Recipe(
        lambda i, o, d: convs.EGConv(
            i, o, aggregators=d.choice([["symnorm"], ["mean", "max"], ["sum", "std", "symnorm"]]),
            num_heads=d.choice([h for h in (1, 2, 4) if o % h == 0]), num_bases=2)),
    "PDNConv": Recipe(lambda i, o, d: convs.PDNConv(i, o, ATTRIBUTES, 4), _attributed, "attr"),
    "GeneralConv": Recipe(_general, _general_call, "attr"),
    "HGTConv": Recipe(lambda i, o, d: _OneType(convs.HGTConv(i, o, _METADATA, heads=1))),
    "HEATConv": Recipe(
        lambda i, o, d: convs.HEATConv(i, o, 2, RELATIONS, 2, ATTRIBUTES, 2),
        lambda layer, x, edges, weight, attr: layer(
            x, edges, (x[:, 0] > 0).long(), _types(attr), attr), "attr"),
    "HeteroConv": Recipe(_hetero),
    "HANConv": Recipe(lambda i, o, d: _OneType(convs.HANConv(i, o, _METADATA, heads=1))),
    "LGConv": Recipe(lambda i, o, d: convs.LGConv(normalize=d.random() < 0.7), _weighted, "weight", keeps_width=True),
    "PointGNNConv": Recipe(
        lambda i, o, d: convs.PointGNNConv(_mlp(i, 2), _mlp(i + 2, i), _mlp(i, i)), _in_space,
        keeps_width=True),
    "GPSConv": Recipe(_gps, keeps_width=True),
    "AntiSymmetricConv": Recipe(
        lambda i, o, d: convs.AntiSymmetricConv(i, num_iters=d.choice([1, 2])), keeps_width=True),
    "DirGNNConv": Recipe(_dir),
    "MixHopConv": Recipe(
        lambda i, o, d: convs.MixHopConv(i, o, powers=[0, 1, 2]), _weighted, "weight",
        width=lambda outputs: 3 * outputs),
}  # fmt: skip

LEFT_OUT = {
    "CuGraphSAGEConv": "needs a GPU",
    "CuGraphGATConv": "needs a GPU",
    "CuGraphRGCNConv": "needs a GPU",
    "FusedGATConv": "needs a GPU",
    "SplineConv": "needs pyg-lib",
    "DynamicEdgeConv": "needs pyg-lib, and takes no edges",
    "GravNetConv": "needs pyg-lib, and takes no edges",
    "XConv": "needs pyg-lib, and takes no edges",
    "PANConv": "needs torch-sparse",
    "WLConv": "its output depends on the calls before: no function of the graph",
    "MeshCNNConv": "needs a mesh in which each row has exactly four neighbours",
}
