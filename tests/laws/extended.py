"""An oracle for the extensions: one model call a coalition on the whole graph, nothing shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from tests.worlds import MODELS, random_graph, random_model

POOLS = {"add": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class Pooled(nn.Module):
    """Convolutions, a pooling over each graph's nodes, one linear layer."""

    def __init__(self, kind: str, pool: str, features: int = 3, classes: int = 2) -> None:
        super().__init__()
        self.nodes = MODELS[kind](features, 6)
        self.out = nn.Linear(6, classes)
        self.pool = POOLS[pool]

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.out(self.pool(self.nodes(x, edge_index), batch))


class Bilinear(nn.Module):
    """An asymmetric decoder with dropout, to see that it is put in eval mode and back."""

    def __init__(self, width: int = 3, outputs: int = 1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.score = nn.Bilinear(width, width, outputs)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.score(self.dropout(source), self.dropout(target))


def pooled(kind: str, pool: str, seed: int) -> Pooled:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Pooled(kind, pool).double().eval()


def node_world(kind: str, seed: int, **options: Any) -> tuple[nn.Module, Data]:
    return random_model(kind, seed), random_graph(seed, **options)


Perturb = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def call(model: nn.Module, data: Data, x: Tensor, kept: Sequence[int]) -> Tensor:
    """Raw outputs of all nodes."""
    with torch.no_grad():
        return model(x, data.edge_index[:, list(kept)])


def call_graph(model: nn.Module, data: Data, x: Tensor, kept: Sequence[int]) -> Tensor:
    with torch.no_grad():
        return model(x, data.edge_index[:, list(kept)], batch=torch.zeros(len(x), dtype=torch.long))


def replaced(x: Tensor, nodes: Iterable[int], columns: Iterable[int], other: Tensor) -> Tensor:
    """x with some columns of some nodes at the reference."""
    x = x.clone()
    columns = list(columns)
    for node in nodes:
        for column in columns:
            x[node, column] = other[column]
    return x


def kept_without_nodes(data: Data, off: Iterable[int]) -> list[int]:
    gone = set(off)
    ends = data.edge_index.t().tolist()
    return [i for i, (u, v) in enumerate(ends) if u not in gone and v not in gone]


def distance_to(data: Data, centres: Iterable[int]) -> dict[int, int]:
    """Hops from each node to the nearest centre along the edges, by plain breadth-first search."""
    hops = dict.fromkeys(centres, 0)
    frontier = list(hops)
    ends = data.edge_index.t().tolist()
    while frontier:
        new = []
        for node in frontier:
            for u, v in ends:
                if v == node and u not in hops:
                    hops[u] = hops[node] + 1
                    new.append(u)
        frontier = new
    return hops
