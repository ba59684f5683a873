"""Models with hand-set weights: what matters is known by construction."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, global_add_pool

CENTRE = 0
NODES = {1, 2}
"""The only nodes that matter to the centre: its neighbours with feature 0 switched on."""
EDGES = {(1, 0), (2, 0)}
OWN = 1
"""The only feature of the centre that matters."""
CARRIED = 0
"""The only feature of other nodes that matters."""


class Known(nn.Module):
    """logit of class 1 at v: 2 sum_{u -> v} relu(1.5 x_u0 - 0.5) + 2 relu(x_v1) - 3; class 0: 0.

    A mask of features starts at about 0.5: a carrier's x_u0 = 1 then still counts, whatever the
    seed, and other nodes' x_u0 < 0.3 never does.
    """

    def __init__(self, features: int = 6, factor: float = 1.0, classes: int = 2) -> None:
        super().__init__()
        self.first = GraphConv(features, 2, aggr="add")
        self.second = GraphConv(2, classes, aggr="add")
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.first.lin_root.weight[0, CARRIED] = 1.5
            self.first.lin_root.weight[1, OWN] = 1.0
            self.first.lin_rel.bias[0] = -0.5
            self.second.lin_rel.weight[1, 0] = 2.0 * factor
            self.second.lin_root.weight[1, 1] = 2.0 * factor
            self.second.lin_rel.bias[1] = -3.0 * factor

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


CLIQUE = {2, 3, 4, 5}


class KnownGraph(nn.Module):
    """logit of class 1: sum_v relu(x_v0 + sum_{u -> v} x_u0 - 1.02) / 2 - 2: marked neighbours."""

    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.first = GraphConv(features, 1, aggr="add")
        self.out = nn.Linear(1, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            self.first.lin_root.weight[0, 0] = 1.0
            self.first.lin_rel.weight[0, 0] = 1.0
            self.first.lin_rel.bias[0] = -1.02
            self.out.weight[1, 0] = 0.5
            self.out.bias[1] = -2.0

    def forward(self, x, edge_index, batch):
        return self.out(global_add_pool(self.first(x, edge_index).relu(), batch))


def both_ways(pairs):
    pairs = torch.tensor(pairs).t()
    return torch.cat([pairs, pairs.flip(0)], 1)


@pytest.fixture
def known():
    """The hand-set model and its graph."""
    return hand_set()


def hand_set(seed=0):
    """Node 0 with neighbours 1-7, of which 1 and 2 carry the signal; 8-15 further out.

    `seed`: of the features that say nothing.
    """
    torch.manual_seed(seed)
    pairs = [(u, 0) for u in range(1, 8)] + [(u, u - 7) for u in range(8, 15)] + [(15, 14), (3, 4)]
    x = 0.3 * torch.rand(40, 6)
    x[:, OWN] = 0.0
    x[CENTRE, OWN] = 1.0
    x[CENTRE, CARRIED] = 0.0
    x[[1, 2, 12], CARRIED] = 1.0
    pairs += [(u, u + 1) for u in range(15, 39)]
    return Known().eval(), Data(x=x, edge_index=both_ways(pairs))


@pytest.fixture
def known_graph():
    """A ring of 12 nodes; marked are a clique of four, and node 8, which is alone."""
    pairs = [(i, (i + 1) % 12) for i in range(12)] + [(2, 4), (2, 5), (3, 5)]
    torch.manual_seed(1)
    x = 0.1 * torch.rand(12, 4)
    x[:, 0] = 0.0
    x[[2, 3, 4, 5, 8], 0] = 1.0
    return KnownGraph().eval(), Data(x=x, edge_index=both_ways(pairs))
