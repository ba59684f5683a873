"""Models as PyG's examples and `nn.models` have them: equal to brute force, or refused helpfully.

A case is a model, a graph and a question; the oracle calls the model in the way its users call it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.data import (
    Batch,
    Data,
    FeatureStore,
    GraphStore,
    HeteroData,
    TemporalData,
)
from torch_geometric.explain import GNNExplainer as PyGExplainer
from torch_geometric.utils import to_dense_adj, to_dense_batch

from graphsvx import GraphSVX, explain, explain_many
from graphsvx.errors import GraphSVXError
from graphsvx.testing.oracle import algorithm_1

F, C = 4, 3
METHOD = GraphSVX(players="nodes", samples=4000)


# --- graphs --------------------------------------------------------------------------------


def graph(*names: str) -> Data:
    """A ring with a chord, and of the attributes that examples use those that are named."""
    nodes = 6
    rng = torch.Generator().manual_seed(3)
    ring = torch.arange(nodes)
    ends = torch.stack([ring, (ring + 1) % nodes])
    ends = torch.cat([ends, torch.tensor([[0], [3]])], 1)
    edge_index = torch.cat([ends, ends.flip(0)], 1)
    count = edge_index.shape[1]

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    x, attributes = draw(nodes, F), {
        "edge_attr": draw(count, F).abs(), "edge_weight": draw(count).abs(),
        "edge_type": torch.arange(count) % 2, "pos": draw(nodes, 3), "normal": draw(nodes, 3),
        "z": torch.arange(nodes) % 5,
    }  # fmt: skip
    return Data(x=x, edge_index=edge_index, **{name: attributes[name] for name in names})


def typed_graph() -> HeteroData:
    """Papers, authors and venues; venues have no features."""
    rng = torch.Generator().manual_seed(4)
    data = HeteroData()
    data["paper"].x = torch.randn(4, F, generator=rng, dtype=torch.float64)
    data["author"].x = torch.randn(3, F, generator=rng, dtype=torch.float64)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 0, 1, 2, 2], [0, 1, 1, 2, 3]])
    data["paper", "rev_writes", "author"].edge_index = torch.tensor(
        [[0, 1, 1, 2, 3], [0, 0, 1, 2, 2]]
    )
    data["paper", "cites", "paper"].edge_index = torch.tensor([[1, 2, 3], [0, 0, 1]])
    return data


# --- cases ---------------------------------------------------------------------------------

Call = Callable[[Any, Any], Any]


def by_edges(model: Any, data: Data) -> Tensor:
    return model(data.x, data.edge_index)


def by_attribute(*names: str) -> Call:
    return lambda model, data: model(data.x, data.edge_index, *(data[name] for name in names))


def by_graph(model: Any, data: Data) -> Tensor:
    return model(data.x, data.edge_index, torch.zeros(len(data.x), dtype=torch.long))


def by_data(model: Any, data: Any) -> Tensor:
    return model(data)


def by_types(model: Any, data: HeteroData) -> Any:
    return model(data.x_dict, data.edge_index_dict)


@dataclass(frozen=True)
class Case:
    """A model, how its users call it, and what is asked."""

    make: Callable[[], Any]
    call: Call = by_edges
    question: dict[str, Any] = field(default_factory=lambda: {"node": 0})
    options: dict[str, Any] = field(default_factory=dict)
    data: Callable[[], Any] = graph
    regression: bool = False
    dtype: torch.dtype = torch.float64
    """float32 for models that make such tensors themselves."""

    def scores(self, model: Any, data: Any) -> Tensor:
        """What is explained, [outputs], by one call as users make it."""
        with torch.no_grad():
            out = self.call(model, data)
        if "node" in self.question and isinstance(self.question["node"], tuple):
            kind, at = self.question["node"]
            rows = (out[kind] if isinstance(out, dict) else out)[at][None]
        elif "node" in self.question:
            rows = out[self.question["node"]][None]
        elif "nodes" in self.question:
            rows = out[self.question["nodes"]]
        elif "edge" in self.question and out.dim() == 2 and len(out) == data.num_nodes:
            rows = (out[self.question["edge"][0]] * out[self.question["edge"][1]]).sum()
        else:
            rows = out
        rows = rows.reshape(len(self.question.get("nodes", [0])), -1).double()
        if self.regression:
            return rows.mean(0)
        if rows.shape[1] == 1:
            rows = torch.cat([torch.zeros_like(rows), rows], 1)
        return rows.softmax(-1).mean(0)


class Stack(nn.Module):
    """Layers with an activation in between, each called with the same further arguments."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, edge_index):
        return self.run(x, edge_index)

    def run(self, x, *others, **named):
        for layer in self.layers[:-1]:
            x = layer(x, *others, **named).relu()
        return self.layers[-1](x, *others, **named)


class WithWeight(Stack):
    def forward(self, x, edge_index, edge_weight):
        return self.run(x, edge_index, edge_weight)


class WithAttributes(Stack):
    def forward(self, x, edge_index, edge_attr):
        return self.run(x, edge_index, edge_attr)


class WithRelations(Stack):
    def forward(self, x, edge_index, edge_type):
        return self.run(x, edge_index, edge_type)


class WithPositions(Stack):
    def forward(self, x, edge_index, pos):
        return self.run(x, pos, edge_index)


class WithNormals(Stack):
    def forward(self, x, edge_index, pos, normal):
        return self.run(x, pos, normal, edge_index)


def mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, 6), nn.ReLU(), nn.Linear(6, b))


def two(layer: Callable[[int, int], nn.Module], kind: type = Stack) -> Callable[[], nn.Module]:
    return lambda: kind(layer(F, 5), layer(5, C))


class MixHop(nn.Module):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.conv, self.lin = pyg.MixHopConv(a, b, powers=[0, 1, 2]), nn.Linear(3 * b, b)

    def forward(self, x, edge_index):
        return self.lin(self.conv(x, edge_index))


DEGREES = torch.tensor([0, 0, 4, 2])
NODE_LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": pyg.GCNConv,
    "gcn without loops": lambda a, b: pyg.GCNConv(a, b, add_self_loops=False),
    "gcn, cached": lambda a, b: pyg.GCNConv(a, b, cached=True),
    "cheb": lambda a, b: pyg.ChebConv(a, b, K=2),
    "sage": pyg.SAGEConv,
    "sage max": lambda a, b: pyg.SAGEConv(a, b, aggr="max", project=True),
    "graph conv": pyg.GraphConv,
    "res gated": pyg.ResGatedGraphConv,
    "gat": lambda a, b: pyg.GATConv(a, b, heads=2, concat=False),
    "gat v2": lambda a, b: pyg.GATv2Conv(a, b, heads=2, concat=False),
    "transformer": lambda a, b: pyg.TransformerConv(a, b, heads=2, concat=False, beta=True),
    "tag": pyg.TAGConv,
    "gin": lambda a, b: pyg.GINConv(mlp(a, b), train_eps=True),
    "arma": lambda a, b: pyg.ARMAConv(a, b, num_stacks=2),
    "sg": lambda a, b: pyg.SGConv(a, b, K=2),
    "ssg": lambda a, b: pyg.SSGConv(a, b, alpha=0.1, K=2),
    "mf": pyg.MFConv,
    "feast": lambda a, b: pyg.FeaStConv(a, b, heads=2),
    "edge conv": lambda a, b: pyg.EdgeConv(mlp(2 * a, b)),
    "le": pyg.LEConv,
    "cluster gcn": pyg.ClusterGCNConv,
    "film": pyg.FiLMConv,
    "super gat": lambda a, b: pyg.SuperGATConv(a, b, heads=2, concat=False),
    "eg": lambda a, b: pyg.EGConv(a, b, num_heads=1, aggregators=["sum", "max"]),
    "general": pyg.GeneralConv,
    "mixhop": MixHop,
    "pna": lambda a, b: pyg.PNAConv(a, b, ["mean", "max", "std"], ["identity", "amplification"],
                                    DEGREES),
    "both directions": lambda a, b: pyg.DirGNNConv(pyg.SAGEConv(a, b)),
    "several aggregations": lambda a, b: pyg.SAGEConv(a, b, aggr=["mean", "max", "std"]),
    "softmax aggregation": lambda a, b: pyg.SAGEConv(a, b, aggr=pyg.SoftmaxAggregation(learn=True)),
    "gen": pyg.GENConv,
    "against the edges": lambda a, b: pyg.GraphConv(a, b, flow="target_to_source"),
}  # fmt: skip


EDGE_LAYERS: dict[str, tuple[Callable[[int, int], nn.Module], type, tuple[str, ...]]] = {
    "gcn, weights": (pyg.GCNConv, WithWeight, ("edge_weight",)),
    "graph conv, weights": (pyg.GraphConv, WithWeight, ("edge_weight",)),
    "tag, weights": (pyg.TAGConv, WithWeight, ("edge_weight",)),
    "cheb, weights": (lambda a, b: pyg.ChebConv(a, b, K=2), WithWeight, ("edge_weight",)),
    "gine": (lambda a, b: pyg.GINEConv(mlp(a, b), edge_dim=F), WithAttributes, ("edge_attr",)),
    "nn conv": (lambda a, b: pyg.NNConv(a, b, mlp(F, a * b)), WithAttributes, ("edge_attr",)),
    "gat, attributes": (lambda a, b: pyg.GATConv(a, b, edge_dim=F), WithAttributes, ("edge_attr",)),
    "gat v2, attributes": (
        lambda a, b: pyg.GATv2Conv(a, b, edge_dim=F), WithAttributes, ("edge_attr",)
    ),
    "transformer, attributes": (
        lambda a, b: pyg.TransformerConv(a, b, edge_dim=F), WithAttributes, ("edge_attr",)
    ),
    "gen, attributes": (lambda a, b: pyg.GENConv(a, b, edge_dim=F), WithAttributes, ("edge_attr",)),
    "pdn": (lambda a, b: pyg.PDNConv(a, b, F, 5), WithAttributes, ("edge_attr",)),
    "gmm": (lambda a, b: pyg.GMMConv(a, b, F, 2), WithAttributes, ("edge_attr",)),
    "general, attributes": (
        lambda a, b: pyg.GeneralConv(a, b, in_edge_channels=F), WithAttributes, ("edge_attr",)
    ),
    "rgcn": (lambda a, b: pyg.RGCNConv(a, b, 2), WithRelations, ("edge_type",)),
    "fast rgcn": (lambda a, b: pyg.FastRGCNConv(a, b, 2), WithRelations, ("edge_type",)),
    "rgcn, bases": (lambda a, b: pyg.RGCNConv(a, b, 2, num_bases=2), WithRelations, ("edge_type",)),
    "rgat": (lambda a, b: pyg.RGATConv(a, b, 2), WithRelations, ("edge_type",)),
    "film, relations": (lambda a, b: pyg.FiLMConv(a, b, 2), WithRelations, ("edge_type",)),
    "point net": (
        lambda a, b: pyg.PointNetConv(mlp(a + 3, b), add_self_loops=False), WithPositions, ("pos",)
    ),
    "point transformer": (pyg.PointTransformerConv, WithPositions, ("pos",)),
    "ppf": (
        lambda a, b: pyg.PPFConv(mlp(a + 4, b), add_self_loops=False), WithNormals,
        ("pos", "normal"),
    ),
}  # fmt: skip


class Depth(nn.Module):
    """APPNP, GCN2, AGNN and others that need features of one width: an encoder and a head."""

    def __init__(self, *layers: nn.Module, first: bool = False) -> None:
        super().__init__()
        self.inside, self.layers, self.outside = (
            nn.Linear(F, 5),
            nn.ModuleList(layers),
            nn.Linear(5, C),
        )
        self.first = first

    def forward(self, x, edge_index):
        x = start = self.inside(x).relu()
        for layer in self.layers:
            x = layer(x, start, edge_index) if self.first else layer(x, edge_index)
        return self.outside(x)


class Dna(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.conv, self.outside = nn.Linear(F, 4), pyg.DNAConv(4), nn.Linear(4, C)

    def forward(self, x, edge_index):
        x = self.inside(x)
        return self.outside(self.conv(torch.stack([x, x.tanh()], 1), edge_index))


class Jumping(nn.Module):
    """JumpingKnowledge with a virtual node's worth of normalisation layers."""

    def __init__(self, norm: nn.Module, mode: str) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(F, 5), pyg.SAGEConv(5, 5)])
        self.norm, self.jump = norm, pyg.JumpingKnowledge(mode, 5, 2)
        self.lin = nn.Linear(10 if mode == "cat" else 5, C)

    def forward(self, x, edge_index):
        outs = []
        for conv in self.convs:
            x = self.norm(conv(x, edge_index)).relu()
            outs.append(x)
        return self.lin(self.jump(outs))


class Gps(nn.Module):
    def __init__(self, attention: str) -> None:
        super().__init__()
        self.inside = nn.Linear(F, 4)
        self.conv = pyg.GPSConv(4, pyg.GCNConv(4, 4), heads=2, attn_type=attention)
        self.outside = nn.Linear(4, C)

    def forward(self, x, edge_index, batch):
        return self.outside(self.conv(self.inside(x), edge_index, batch))


def deep() -> nn.Module:
    layers = [
        pyg.DeepGCNLayer(pyg.GENConv(5, 5), nn.LayerNorm(5), nn.ReLU(), block=block, dropout=0.1)
        for block in ("res+", "res", "dense", "plain")[:2]
    ]
    return Depth(*layers)


class ByNumber(nn.Module):
    """Embeddings of atoms by number instead of features."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv = nn.Embedding(5, 4), pyg.GINConv(mlp(4, C))

    def forward(self, z, edge_index):
        return self.conv(self.table(z), edge_index)


class TupleOf(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index):
        out = self.inner(x, edge_index)
        return {"logits": out, "hidden": x}


def linkx() -> nn.Module:
    return pyg.LINKX(6, F, 5, C, num_layers=2)


NODE_MODELS: dict[str, Case] = {
    "GCN": Case(lambda: pyg.GCN(F, 5, 2, C, norm="batch_norm", jk="cat")),
    "GAT": Case(lambda: pyg.GAT(F, 6, 2, C, heads=2, v2=True)),
    "GIN": Case(lambda: pyg.GIN(F, 5, 3, C, norm="layer_norm")),
    "GraphSAGE": Case(lambda: pyg.GraphSAGE(F, 5, 2, C, jk="lstm")),
    "PNA": Case(lambda: pyg.PNA(F, 5, 2, C, aggregators=["mean", "max"], scalers=["identity"],
                                deg=DEGREES)),
    "EdgeCNN": Case(lambda: pyg.EdgeCNN(F, 5, 2, C)),
    "PMLP": Case(lambda: pyg.PMLP(F, 5, C, 2, norm=False)),
    "LINKX": Case(linkx),
    "GraphUNet": Case(lambda: pyg.GraphUNet(F, 5, C, depth=1, pool_ratios=1.0)),
    "SGFormer": Case(lambda: pyg.SGFormer(F, 4, C, trans_num_layers=1, gnn_num_layers=1),
                     by_graph, dtype=torch.float32),
    "Polynormer": Case(lambda: pyg.Polynormer(F, 4, C, local_layers=1, global_layers=1, heads=2),
                       by_graph),
    "RECT_L": Case(lambda: pyg.RECT_L(F, 5), regression=True,
                   options={"output": "regression", "target": 1}),
    "encoder and decoder": Case(lambda: Depth(pyg.APPNP(2, 0.1))),
    "GCNII": Case(lambda: Depth(pyg.GCN2Conv(5, 0.1), pyg.GCN2Conv(5, 0.1), first=True)),
    "FAGCN": Case(lambda: Depth(pyg.FAConv(5), pyg.FAConv(5), first=True)),
    "AGNN": Case(lambda: Depth(pyg.AGNNConv(), pyg.AGNNConv())),
    "gated": Case(lambda: Depth(pyg.GatedGraphConv(5, 2))),
    "light": Case(lambda: Depth(pyg.LGConv(), pyg.LGConv())),
    "simple": Case(lambda: Depth(pyg.SimpleConv("mean"), pyg.SimpleConv("max"))),
    "anti-symmetric": Case(lambda: Depth(pyg.AntiSymmetricConv(5, num_iters=2))),
    "wl continuous": Case(lambda: Depth(pyg.WLConvContinuous())),
    "DeepGCN": Case(deep),
    "DNA": Case(Dna),
    "jumping, batch norm": Case(lambda: Jumping(pyg.BatchNorm(5), "cat")),
    "jumping, layer norm over nodes": Case(lambda: Jumping(pyg.LayerNorm(5), "max")),
    "jumping, pair norm": Case(lambda: Jumping(pyg.PairNorm(), "max")),
    "jumping, message norm": Case(lambda: Jumping(pyg.DiffGroupNorm(5, 2), "lstm")),
    "jumping, instance norm": Case(lambda: Jumping(pyg.InstanceNorm(5), "max")),
    "jumping, graph norm": Case(lambda: Jumping(pyg.GraphNorm(5), "max")),
    "GPS": Case(lambda: Gps("multihead"), by_graph),
    "atoms by number": Case(ByNumber, lambda model, data: model(data.z, data.edge_index),
                            data=lambda: graph("z")),
    "a dictionary": Case(lambda: TupleOf(pyg.GCN(F, 5, 2, C)),
                         lambda model, data: model(data.x, data.edge_index)["logits"],
                         options={"output": lambda out: out["logits"]}),
    "Sequential": Case(lambda: pyg.Sequential("x, edge_index", [
        (pyg.GCNConv(F, 5), "x, edge_index -> x"), nn.ReLU(),
        (pyg.GCNConv(5, C), "x, edge_index -> x")])),
    "DeepGraphInfomax": Case(
        lambda: pyg.DeepGraphInfomax(C, pyg.GCN(F, 5, 2, C), lambda z, *_: z.mean(0).sigmoid(),
                                     lambda x, e: (x.flip(0), e)),
        lambda model, data: model(data.x, data.edge_index)[0],
        options={"output": lambda out: out[0]}),
}  # fmt: skip


# --- models of one Data --------------------------------------------------------------------


class OfData(nn.Module):
    """forward(data), with what loaders put into it."""

    def __init__(self, how: str, pooled: bool) -> None:
        super().__init__()
        self.gnn, self.how, self.pooled = pyg.GCN(F, 5, 2, C), how, pooled

    def forward(self, data):
        x = self.gnn(data.x, data.edge_index)
        if not self.pooled:
            return x[: data.batch_size] if self.how == "batch_size" else x
        if self.how == "num_graphs":
            return pyg.global_add_pool(x, data.batch, size=data.num_graphs)
        if self.how == "ptr":
            sizes = data.ptr[1:] - data.ptr[:-1]
            return pyg.global_add_pool(x, data.batch) / sizes[:, None]
        if self.how == "batch_size":
            return pyg.global_mean_pool(x, data.batch, data.batch_size).view(data.batch_size, -1)
        return pyg.global_max_pool(x, data.batch)


def loaded(**attributes: Any) -> Callable[[], Data]:
    def make() -> Data:
        data = graph()
        for name, value in attributes.items():
            data[name] = value
        return data

    return make


class Sliced(nn.Module):
    """forward(x, edge_index, batch_size): outputs of the first nodes, as with NeighborLoader."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn = pyg.GraphSAGE(F, 5, 2, C)

    def forward(self, x, edge_index, batch_size):
        return self.gnn(x, edge_index)[:batch_size]


class Normed(nn.Module):
    """A model of nodes that normalises each graph of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.gnn = pyg.GraphNorm(F), pyg.GCN(F, 5, 2, C)

    def forward(self, x, edge_index, batch=None):
        return self.gnn(self.norm(x, batch), edge_index)


def one_batch(model: Any, data: Data) -> Tensor:
    return model(Batch.from_data_list([Data(x=data.x, edge_index=data.edge_index)]))


DATA_MODELS: dict[str, Case] = {
    "data": Case(lambda: OfData("", False), by_data),
    "data, first rows": Case(lambda: OfData("batch_size", False), by_data,
                             data=loaded(batch_size=2)),
    "first rows": Case(Sliced, by_attribute("batch_size"), data=loaded(batch_size=2)),
    "batch of graphs": Case(Normed, by_attribute("batch"), {"node": 4},
                            data=loaded(batch=torch.tensor([0, 0, 0, 1, 1, 1]))),
    **{f"pooled data, {how}": Case(lambda how=how: OfData(how, True), one_batch, {"graph": True})
       for how in ("num_graphs", "ptr", "batch_size", "")},
    "pooled data, given as a batch": Case(
        lambda: OfData("num_graphs", True), one_batch, {"graph": True},
        data=lambda: Batch.from_data_list([graph()]),
    ),
}  # fmt: skip


# --- whole graphs --------------------------------------------------------------------------


class Pooled(nn.Module):
    """A GNN, a pooling and a head."""

    def __init__(self, pool: Any, width: int = 5, conv: Any = None) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(F, 5) if conv is None else conv
        self.pool, self.lin = pool, nn.Linear(width, C)

    def forward(self, x, edge_index, batch):
        return self.lin(self.pool(self.conv(x, edge_index).relu(), batch))


class Coarse(nn.Module):
    """Nodes are dropped or merged by a pooling layer before the graph is read out."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.conv, self.pool, self.lin = pyg.GraphConv(F, 5), pool, nn.Linear(5, C)

    def forward(self, x, edge_index, batch):
        x = self.conv(x, edge_index).relu()
        if isinstance(self.pool, pyg.EdgePooling):
            x, edge_index, batch, _ = self.pool(x, edge_index, batch)
        else:
            x, edge_index, _, batch, *_ = self.pool(x, edge_index, batch=batch)
        return self.lin(pyg.global_mean_pool(x, batch))


class DensePooled(nn.Module):
    """DiffPool, MinCut and DMoN: a dense adjacency matrix made inside."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.assign, self.embed = pyg.DenseGCNConv(F, 2), pyg.DenseGCNConv(F, 5)
        self.how, self.lin = how, nn.Linear(5, C)
        self.dmon = pyg.DMoNPooling(5, 2)

    def forward(self, x, edge_index, batch):
        dense, mask = to_dense_batch(x, batch)
        adj = to_dense_adj(edge_index, batch, max_num_nodes=dense.shape[1])
        s, z = self.assign(dense, adj, mask), self.embed(dense, adj, mask)
        if self.how == "dmon":
            return self.lin(self.dmon(z, adj, mask)[1].mean(1))
        pool = pyg.dense_diff_pool if self.how == "diff" else pyg.dense_mincut_pool
        return self.lin(pool(z, adj, s, mask)[0].mean(1))


class VirtualNode(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv, self.second = nn.Embedding(1, F), pyg.GINConv(mlp(F, F)), \
            pyg.GINConv(mlp(F, C))  # fmt: skip

    def forward(self, x, edge_index, batch):
        shared = self.table(torch.zeros(int(batch[-1]) + 1, dtype=torch.long))
        x = self.conv(x + shared[batch], edge_index)
        shared = shared + pyg.global_add_pool(x, batch)
        return pyg.global_mean_pool(self.second(x + shared[batch], edge_index), batch)


class OneGraph(nn.Module):
    """A model of a single graph, without batch."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.conv, self.flat = pyg.GCN(F, 5, 2, C), flat

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).mean(0, keepdim=not self.flat)


GRAPH = {"graph": True}
GRAPH_MODELS: dict[str, Case] = {
    **{f"pooled by {name}": Case(lambda pool=pool, width=width: Pooled(pool(), width), by_graph,
                                 GRAPH)
       for name, pool, width in (
           ("add", lambda: pyg.global_add_pool, 5),
           ("mean", lambda: pyg.global_mean_pool, 5),
           ("max", lambda: pyg.global_max_pool, 5),
           ("attention", lambda: pyg.AttentionalAggregation(nn.Linear(5, 1)), 5),
           ("set2set", lambda: pyg.Set2Set(5, 2), 10),
           ("sort", lambda: pyg.SortAggregation(k=3), 15),
           ("set transformer", lambda: pyg.SetTransformerAggregation(5, heads=1), 5),
           ("multiset", lambda: pyg.GraphMultisetTransformer(5, k=2, heads=1), 5),
           ("deep sets", lambda: pyg.DeepSetsAggregation(nn.Linear(5, 5), nn.Linear(5, 5)), 5),
           ("quantile", lambda: pyg.QuantileAggregation([0.2, 0.8]), 10),
           ("lstm", lambda: pyg.LSTMAggregation(5, 5), 5),
           ("power mean", pyg.PowerMeanAggregation, 5),
           ("softmax", pyg.SoftmaxAggregation, 5),
           ("std", pyg.StdAggregation, 5),
       )},
    **{f"coarsened by {name}": Case(lambda pool=pool: Coarse(pool()), by_graph, GRAPH,
                                    dtype=torch.float32)
       for name, pool in (
           ("top k", lambda: pyg.TopKPooling(5, ratio=0.6)),
           ("sag", lambda: pyg.SAGPooling(5, ratio=0.6)),
           ("asap", lambda: pyg.ASAPooling(5, ratio=0.6)),
           ("edges", lambda: pyg.EdgePooling(5)),
       )},
    **{f"dense, {how}": Case(lambda how=how: DensePooled(how), by_graph, GRAPH,
                             dtype=torch.float32)
       for how in ("diff", "mincut", "dmon")},
    "virtual node": Case(VirtualNode, by_graph, GRAPH),
    "one graph": Case(lambda: OneGraph(False), by_edges, GRAPH),
    "one graph, flat": Case(lambda: OneGraph(True), by_edges, GRAPH),
    "NeuralFingerprint": Case(lambda: pyg.models.NeuralFingerprint(F, 5, C, 2), by_graph, GRAPH),
    "AttentiveFP": Case(
        lambda: pyg.AttentiveFP(F, 5, C, edge_dim=F, num_layers=2, num_timesteps=2),
        lambda model, data: model(data.x, data.edge_index, data.edge_attr,
                                  torch.zeros(len(data.x), dtype=torch.long)),
        GRAPH, data=lambda: graph("edge_attr")),
    "regression": Case(lambda: Pooled(pyg.global_add_pool), by_graph, GRAPH, regression=True,
                       options={"output": "regression", "target": 0}),
}  # fmt: skip


# --- links ---------------------------------------------------------------------------------


class PairScores(nn.Module):
    """encode, decode and a forward of edge_label_index, as in PyG's link prediction."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.gnn, self.lin = pyg.GCN(F, 5, 2, 4), nn.Linear(8, width)

    def encode(self, x, edge_index):
        return self.gnn(x, edge_index)

    def decode(self, z, edge_label_index):
        u, v = edge_label_index
        return self.lin(torch.cat([z[u], z[v]], -1))

    def forward(self, x, edge_index, edge_label_index):
        return self.decode(self.encode(x, edge_index), edge_label_index)


class FlatScores(PairScores):
    def forward(self, x, edge_index, edge_label_index):
        return super().forward(x, edge_index, edge_label_index).view(-1)


PAIR = torch.tensor([[0], [2]])
LINK = {"edge": (0, 2)}


def by_pair(model: Any, data: Data) -> Tensor:
    return model(data.x, data.edge_index, PAIR)


def by_code(model: Any, data: Data) -> Tensor:
    z = model.encode(data.x, data.edge_index)
    return (z[0] * z[2]).sum()


LINKS: dict[str, Case] = {
    "inner product": Case(lambda: pyg.GCN(F, 5, 2, 4), by_edges, LINK),
    "pairs": Case(PairScores, by_pair, LINK),
    "pairs, flat": Case(FlatScores, by_pair, LINK),
    "pairs, classes": Case(lambda: PairScores(3), by_pair, LINK),
    "GAE": Case(lambda: pyg.GAE(pyg.GCN(F, 5, 2, 4)), by_code, LINK),
    "VGAE": Case(lambda: pyg.VGAE(Variational()), by_code, LINK),
    "ARGA": Case(lambda: pyg.ARGA(pyg.GCN(F, 5, 2, 4), nn.Linear(4, 4)), by_code, LINK),
    "a decoder": Case(
        lambda: pyg.SAGEConv(F, 4), lambda model, data: -(by_edges(model, data)[0] -
                                                          by_edges(model, data)[2]).norm(),
        LINK, options={"decoder": lambda u, v: -(u - v).norm(dim=-1)}),
}  # fmt: skip


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.deviation = pyg.GCNConv(F, 4), pyg.GCNConv(F, 4)

    def forward(self, x, edge_index):
        return self.mean(x, edge_index), self.deviation(x, edge_index)


# --- typed graphs --------------------------------------------------------------------------


class Typed(nn.Module):
    """Layers over dictionaries and a head; `what` is returned."""

    def __init__(self, layer: nn.Module, what: str, width: int = 5) -> None:
        super().__init__()
        self.layer, self.lin, self.what = layer, nn.Linear(width, C), what

    def forward(self, x_dict, edge_index_dict):
        out = {name: x for name, x in self.layer(x_dict, edge_index_dict).items() if x is not None}
        out = {name: self.lin(x.relu()) for name, x in out.items()}
        if self.what == "graph":
            return out["paper"].mean(0, keepdim=True)
        if self.what == "flat graph":
            return torch.cat([*out.values()]).sum(0)
        return out if self.what == "all" else out[self.what]


class OfHetero(Typed):
    def forward(self, data):
        out = super().forward(data.x_dict, data.edge_index_dict)
        return out[: data["paper"].batch_size]


class ByName(Typed):
    def forward(self, edge_index_dict, x_dict):
        return super().forward(x_dict, edge_index_dict)


class ChangesItsInput(nn.Module):
    """As examples of bipartite graphs do."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.conv = nn.Linear(F, 5), pyg.SAGEConv((5, F), C)

    def forward(self, x_dict, edge_index_dict):
        x_dict["author"] = self.lin(x_dict["author"])
        ends = x_dict["author"], x_dict["paper"]
        x_dict["paper"] = self.conv(ends, edge_index_dict["author", "writes", "paper"])
        return x_dict["paper"]


META = typed_graph().metadata()


def hetero_conv(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: pyg.HeteroConv({kind: make() for kind in META[1]}, aggr="sum")


def to_hetero() -> nn.Module:
    class Homogeneous(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = pyg.SAGEConv(F, 5), pyg.SAGEConv(5, 5)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    return pyg.to_hetero(Homogeneous(), META)


TYPED_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "hetero sage": hetero_conv(lambda: pyg.SAGEConv((F, F), 5)),
    "hetero gat": hetero_conv(lambda: pyg.GATConv((F, F), 5, add_self_loops=False)),
    "hgt": lambda: pyg.HGTConv(F, 5, META, heads=1),
    "han": lambda: pyg.HANConv(F, 5, META, heads=1),
    "to_hetero": to_hetero,
}
PAPER = {"node": ("paper", 0)}


class TypedPairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = TYPED_LAYERS["hetero sage"]()

    def forward(self, x_dict, edge_index_dict, edge_label_index):
        z = self.layer(x_dict, edge_index_dict)
        return (z["author"][edge_label_index[0]] * z["paper"][edge_label_index[1]]).sum(-1)


TYPED: dict[str, Case] = {
    **{f"{name}, {what}": Case(lambda layer=layer, what=what: Typed(layer(), what), by_types,
                               question, data=typed_graph)
       for name, layer in TYPED_LAYERS.items()
       for what, question in (("all", PAPER), ("paper", PAPER), ("graph", GRAPH))},
    "flat graph": Case(lambda: Typed(to_hetero(), "flat graph"), by_types, GRAPH, data=typed_graph),
    "dictionaries by name": Case(
        lambda: ByName(to_hetero(), "paper"),
        lambda model, data: model(data.edge_index_dict, data.x_dict), PAPER, data=typed_graph),
    "dictionaries changed in place": Case(
        ChangesItsInput, lambda model, data: model(dict(data.x_dict), data.edge_index_dict), PAPER,
        data=typed_graph),
    "HeteroData, first rows": Case(
        lambda: OfHetero(to_hetero(), "paper"),
        lambda model, data: Typed.forward(model, data.x_dict, data.edge_index_dict), PAPER,
        data=typed_graph),
    "typed pairs": Case(
        TypedPairs, lambda model, data: model(data.x_dict, data.edge_index_dict,
                                              torch.tensor([[1], [2]])),
        {"edge": (("author", 1), ("paper", 2))}, data=typed_graph),
}  # fmt: skip


# --- the law -------------------------------------------------------------------------------

CASES: dict[str, Case] = {
    **{f"layer {name}": Case(two(layer)) for name, layer in NODE_LAYERS.items()},
    **{f"layer {name}": Case(two(layer, kind), by_attribute(*names),
                             data=lambda names=names: graph(*names))
       for name, (layer, kind, names) in EDGE_LAYERS.items()},
    **NODE_MODELS, **DATA_MODELS, **GRAPH_MODELS, **LINKS, **TYPED,
    **{f"a group, {name}": Case(two(NODE_LAYERS[name]), question={"nodes": [0, 3]})
       for name in ("gcn", "gat", "gin", "edge conv")},
    **{f"a graph, {name}": Case(
        lambda layer=layer: Pooled(pyg.global_add_pool, 5, layer(F, 5)), by_graph, GRAPH)
       for name, layer in NODE_LAYERS.items() if name in ("gcn", "gat", "gin", "cheb", "pna")},
    **{f"a link, {name}": Case(two(NODE_LAYERS[name]), by_edges, LINK)
       for name in ("gcn", "gat", "sage", "transformer", "tag")},
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_brute_force_agrees(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(7)
    data, model = case.data(), case.make().to(case.dtype).eval()
    if isinstance(data, Data):
        data.x = data.x.to(case.dtype)
    plain = copy.deepcopy(model)
    for layer in plain.modules():
        if getattr(layer, "cached", False) is True:  # it would answer for another graph
            layer.cached = False
    options = {"output": "class", **case.options}
    e = explain(model, data, **case.question, method=METHOD, **options)
    flat = e.types is None or e.types.flat
    players = [p if flat else e.types.node(p) for p in e.node_ids.tolist()]
    truth = algorithm_1(lambda d: float(case.scores(plain, d)[e.target]), data, None, players, [])
    credit = dict(zip(players, e.node_values.tolist(), strict=True))
    slack = 1e-8 if case.dtype == torch.float64 else 2e-6
    assert e.prediction == pytest.approx(truth.prediction, abs=slack)
    assert credit == pytest.approx(truth.nodes, abs=slack), e.certificate.line()
    assert e.certificate.exact
    assert max(map(abs, credit.values())) > 10 * slack


# --- what is not explained, and what to write instead ----------------------------------------


def net() -> nn.Module:
    return pyg.GCN(F, 5, 2, C).double()


def changed(**attributes: Any) -> Data:
    data = graph()
    for name, value in attributes.items():
        data[name] = value
    return data


class OwnGraph(nn.Module):
    """forward() over a graph that the script has made."""

    def forward(self):
        return net()(graph().x, graph().edge_index)


class Sign(nn.Module):
    """Features of several hops, precomputed."""

    def __init__(self) -> None:
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(F, C), nn.Linear(F, C)])

    def forward(self, xs):
        return sum(lin(x) for lin, x in zip(self.lins, xs, strict=True))


def one_by_edge(x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
    """As many outputs as edges, as histograms of colours have as many as colours."""
    return edge_index[:1].to(x)


class Relational(nn.Module):
    """encode and decode of relations, without forward."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relations = pyg.RGCNConv(F, 4, 2), nn.Parameter(torch.ones(2, 4))

    def encode(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)

    def decode(self, z, edge_index, edge_type):
        return (z[edge_index[0]] * self.relations[edge_type] * z[edge_index[1]]).sum(1)


class WithIds(Typed):
    """A tensor of ids beside the dictionaries, as recommenders have it."""

    def forward(self, user_id, x_dict, edge_index_dict):
        return super().forward(x_dict, edge_index_dict)


def stops(x: Tensor, edge_index: Tensor) -> Tensor:
    return next(iter([]))


class SparseTensor:
    """As torch_sparse has it."""

    def coo(self) -> None: ...


class Features(FeatureStore):
    def _get_tensor(self, attr):
        return None

    _put_tensor = _remove_tensor = _get_tensor_size = get_all_tensor_attrs = _get_tensor


class Edges(GraphStore):
    def _get_edge_index(self, edge_attr):
        return None

    _put_edge_index = _remove_edge_index = get_all_edge_attrs = _get_edge_index


def memory_map(folder: Path) -> np.ndarray:
    array = np.memmap(folder / "x.bin", dtype="float64", mode="w+", shape=(6, F))
    array[:] = graph().x.numpy()
    return array


Ask = Callable[[Path], Any]
REFUSED: dict[str, tuple[Ask, str]] = {
    "forward()": (lambda _: explain(OwnGraph(), graph(), node=1),
                  r"def forward\(self, x, edge_index"),
    "forward(xs)": (lambda _: explain(Sign().double(), graph(), node=1),
                    r"def model\(x, edge_index"),
    "a pair of stores": (lambda _: explain(net(), (Features(), Edges()), node=1),
                         r"Data\(x=\.\.\."),
    "a feature store": (lambda _: explain(net(), Features(), node=1), r"Data\(x=\.\.\."),
    "numpy x": (lambda _: explain(net(), changed(x=graph().x.numpy()), node=1), r"torch\.tensor\("),
    "memory-mapped x": (lambda folder: explain(net(), changed(x=memory_map(folder)), node=1),
                        r"torch\.tensor\("),
    "numpy edge_index": (lambda _: explain(net(), changed(edge_index=graph().edge_index.numpy()),
                                           node=1), r"torch\.tensor\("),
    "SparseTensor": (lambda _: explain(net(), Data(x=graph().x, adj_t=SparseTensor()), node=1),
                     "to_torch_sparse_csr_tensor"),
    "SparseTensor as edge_index": (lambda _: explain(net(), changed(edge_index=SparseTensor()),
                                                     node=1), "adj_t"),
    "index=": (lambda _: explain(net(), graph(), index=3), "write node=3"),
    "a node by position": (lambda _: explain(net(), graph(), 3), r"data, node=3\)"),
    "a tensor of pairs": (lambda _: explain(net(), graph(), edge_label_index=PAIR),
                          r"write edge=\(u, v\)"),
    "no data": (lambda _: explain(net(), node=1), r"explain\(model, data, node="),
    "x and edge_index": (lambda _: explain(net(), graph().x, graph().edge_index, node=1),
                         r"Data\(x=x, edge_index=edge_index\)"),
    "x= and edge_index=": (lambda _: explain(net(), x=graph().x, edge_index=graph().edge_index),
                           r"Data\(x=x, edge_index=edge_index\)"),
    "a class": (lambda _: explain(pyg.GCN, graph(), node=1), r"make an instance.*GCN\(\.\.\.\)"),
    "swapped": (lambda _: explain(graph(), net(), node=1), r"swapped; write explain\(model, data"),
    "samples=": (lambda _: explain(net(), graph(), node=1, samples=500),
                 r"write method=GraphSVX\(samples=500\)"),
    "samples= of many": (lambda _: explain_many(net(), graph(), [1], samples=500),
                         r"write method=GraphSVX\(samples=500\)"),
    "swapped, many": (lambda _: explain_many(graph(), net(), [1]), "swapped"),
    "a method by name": (lambda _: explain(net(), graph(), node=1, method="gnnexplainer"),
                         r"write method=GNNExplainer\(\)"),
    "a method in capitals": (lambda _: explain(net(), graph(), node=1, method="GNNExplainer"),
                             r"write method=GNNExplainer\(\)"),
    "the class of a method": (lambda _: explain(net(), graph(), node=1, method=GraphSVX),
                              r"write method=GraphSVX\(\)"),
    "PyG's algorithm": (lambda _: explain(net(), graph(), node=1, method=PyGExplainer()),
                        r"write method=GNNExplainer\(\)"),
    "as many outputs as edges": (
        lambda _: explain(one_by_edge, graph(), graph=True, output="regression", target=0),
        "as many for every graph"),
    "a decoder of relations": (
        lambda _: explain(Relational().double(), graph("edge_type"), edge=(0, 2)),
        "write relation="),
    "ids beside dictionaries": (
        lambda _: explain(WithIds(to_hetero(), "paper").double(), typed_graph(), node=("paper", 0)),
        "needs 'user_id'.*give a function"),
    "a model that stops": (lambda _: explain(stops, graph(), node=1), "StopIteration"),
    "a misspelt argument": (lambda _: explain(net(), graph(), nod=1), "did you mean 'node'"),
    "no graph without edges": (
        lambda _: explain(two(lambda a, b: pyg.SAGEConv(a, b, aggr=pyg.MedianAggregation()))()
                          .double(), graph(), node=0, output="class"), "add self-loops"),
    "a row a node for a graph": (lambda _: explain(net(), graph(), graph=True, output="class"),
                                 "ask with node="),
    "a row a graph for a node": (
        lambda _: explain(OneGraph(False).double(), graph(), node=1, output="class"),
        "ask with graph=True"),
    "events": (lambda _: explain(net(), TemporalData(), node=1), "make a Data or HeteroData"),
    "node types": (lambda _: explain(Typed(to_hetero(), "paper").double(), typed_graph(), node=0),
                   r'\("paper", '),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_refusal_says_what_to_write(name: str, tmp_path: Path) -> None:
    ask, words = REFUSED[name]
    with pytest.raises(GraphSVXError, match=words) as error:
        ask(tmp_path)
    assert "\n" not in str(error.value)
    assert not re.search(r"docs/|src/|\.md\b|\.py\b", str(error.value))


def test_there_are_at_least_150_cases() -> None:
    assert len(CASES) + len(REFUSED) >= 150
