"""Random models and graphs for the tests, and an oracle that shares no code with the library.

The oracle enumerates coalitions with one model call each on the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphConv, GraphSAGE


class SumNet(nn.Module):
    """GraphConv layers with edge weights: PyG has no ready-made stack of them."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GraphConv(features, 8)
        self.second = GraphConv(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = self.first(x, edge_index, edge_weight).tanh()
        return self.second(hidden, edge_index, edge_weight)


MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": lambda f, c: GCN(f, 8, 2, c, act="tanh"),
    "gat": lambda f, c: GAT(f, 8, 2, c, heads=2, act="tanh"),
    "gin": lambda f, c: GIN(f, 8, 2, c, act="tanh"),
    "sage": lambda f, c: GraphSAGE(f, 8, 2, c, act="tanh"),
    "graphconv": SumNet,
}


def random_graph(seed: int, nodes: int = 9, features: int = 3, directed: bool = False,
                 chance: float = 0.22) -> Data:  # fmt: skip
    """A random graph with a self-loop and, if directed, a repeated edge."""
    rng = torch.Generator().manual_seed(seed)
    there = torch.rand(nodes, nodes, generator=rng) < chance
    there.fill_diagonal_(False)
    if not directed:
        there |= there.t().clone()
    there[0, 0] = True
    edges = there.nonzero().t()
    if directed and edges.shape[1] > 1:
        edges = torch.cat([edges, edges[:, 1:2]], 1)
    x = torch.randn(nodes, features, generator=rng, dtype=torch.float64)
    return Data(x=x, edge_index=edges.contiguous(), y=torch.arange(nodes) % 2)


def random_model(kind: str, seed: int, features: int = 3, classes: int = 3) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[kind](features, classes).double().eval()


def one_gcn() -> nn.Module:
    """The same GCN each time, for the command line."""
    return random_model("gcn", 1)


def prediction(model: nn.Module, data: Data, node: int, target: int | None) -> tuple[float, int]:
    with torch.no_grad():
        probs = _call(model, data.x, data.edge_index, data)[node].softmax(-1)
    target = int(probs.argmax()) if target is None else target
    return float(probs[target]), target


def score(
    model: nn.Module, data: Data, node: int, target: int, nodes_off: Sequence[int],
    features_off: Sequence[int], reference: Tensor | None = None,
) -> float:  # fmt: skip
    """f_v(X', A') by Eq. 1 and 2, to the letter: one call on the whole graph."""
    x = data.x.clone()
    mean = data.x.mean(0) if reference is None else reference
    for column in features_off:
        x[node, column] = mean[column]
    gone = set(nodes_off)
    keep = [
        position
        for position, (u, v) in enumerate(data.edge_index.t().tolist())
        if u not in gone and v not in gone
    ]
    with torch.no_grad():
        out = _call(model, x, data.edge_index[:, keep], data, keep)
    return float(out[node].softmax(-1)[target])


def _call(
    model: nn.Module, x: Tensor, edge_index: Tensor, data: Data, keep: list[int] | None = None
):
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        return model(x, edge_index)
    return model(x, edge_index, weight if keep is None else weight[keep])


def shapley(players: Sequence[int], value: Callable[[frozenset[int]], float]) -> dict[int, float]:
    """The definition: weighted marginal contributions over all coalitions."""
    count = len(players)
    worth = {
        frozenset(chosen): value(frozenset(chosen))
        for size in range(count + 1)
        for chosen in combinations(players, size)
    }
    return {
        player: sum(
            (worth[group | {player}] - worth[group]) / (count * comb(count - 1, len(group)))
            for group in worth
            if player not in group
        )
        for player in players
    }


def node_truth(
    model: nn.Module, data: Data, node: int, target: int, players: Sequence[int]
) -> dict[int, float]:
    """Exact credit of nodes, all features on."""
    return shapley(
        players,
        lambda on: score(model, data, node, target, [p for p in players if p not in on], []),
    )


def feature_truth(
    model: nn.Module,
    data: Data,
    node: int,
    target: int,
    players: Sequence[int],
    nodes: Sequence[int],
) -> dict[int, float]:
    """Exact credit of features, all nodes off."""
    return shapley(
        players,
        lambda on: score(model, data, node, target, nodes, [p for p in players if p not in on]),
    )
