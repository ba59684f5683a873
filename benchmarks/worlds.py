"""Models, graphs and nodes that the contenders explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, ChebConv

import graphsvx
from graphsvx import GraphSVX
from graphsvx.masks import Masks
from graphsvx_lab import zoo


@dataclass(frozen=True, eq=False)
class World:
    """A trained model and a graph."""

    name: str
    model: nn.Module
    graph: Data
    eligible: np.ndarray
    """Nodes that may be explained, in a random order."""


def world(name: str, model: str | None = None) -> World:
    """The zoo's model; nodes of motifs where there are any (as the paper explains), else of
    the test set.
    """
    trained = zoo.ensure(name, model)
    dataset = trained.dataset
    labels = dataset.graph.y.numpy()
    nodes = dataset.split.test.numpy()
    if dataset.truth is not None:
        base = 4 if name.startswith("ba-") else 2
        nodes = np.flatnonzero(labels % base != 0)
    order = np.random.default_rng(0).permutation(nodes)
    return World(f"{name} {model}" if model else name, trained.model, dataset.graph, order)


@dataclass(frozen=True)
class Grab:
    """A mask that plays nothing and hands the game out."""

    games: list[Any] = field(default_factory=list, repr=False)
    separate = True

    def __call__(self, game: Any, budget: int, rng: torch.Generator) -> Masks:  # noqa: ARG002  (a mask's arguments)
        self.games.append(game)
        none = np.zeros((0, game.players), dtype=bool)
        return Masks(none, game.states(none), np.zeros(0), exact=True)


@dataclass(frozen=True, eq=False)
class Played:
    """A real game with the values of all its coalitions."""

    source: str
    players: int
    values: np.ndarray
    """[2^M], bit i of the index says whether player i is on."""
    game: Any
    """The graph game itself, for a fresh count of model calls use `fresh`."""
    target: int


def node_game(
    model: nn.Module, graph: Data, node: int | None, players: str = "nodes"
) -> tuple[Any, int]:
    """The game of the nodes (or edges) around `node` (None: of the whole graph)."""
    grab = Grab()
    where: dict[str, Any] = {"graph": True} if node is None else {"node": node}
    e = graphsvx.explain(model, graph, method=GraphSVX(mask=grab, players=players), **where)
    return grab.games[-1], e.target


@torch.no_grad()
def played(
    source: str, model: nn.Module, graph: Data, node: int | None, sizes: range
) -> Played | None:
    game, target = node_game(model, graph, node)
    if game.players not in sizes:
        return None
    bits = np.arange(1 << game.players)[:, None] >> np.arange(game.players)
    values = game.values(game.states((bits & 1) == 1))[:, target].numpy()
    # A flat game has nothing to share out.
    if values.std() < 1e-3:
        return None
    return Played(source, game.players, values, (model, graph, node), target)


def real_games(each: int, sizes: range, skip: int = 0) -> Iterator[Played]:
    """`each` games from every source; `skip` leaves those out that estimators were tuned on."""
    for name in ("ba-shapes", "tree-grid", "cora"):
        trained = zoo.ensure(name)
        graph = trained.dataset.graph
        order = np.random.default_rng(11).permutation(graph.num_nodes)
        yield from _first(
            (played(name, trained.model, graph, int(node), sizes) for node in order),
            each, skip,
        )  # fmt: skip
    molecules = zoo.ensure("mutag")
    graphs = molecules.dataset.graphs
    order = np.random.default_rng(11).permutation(len(graphs))
    candidates = (graphs[int(i)] for i in order if graphs[int(i)].num_nodes in sizes)
    yield from _first(
        (played("mutagenicity", molecules.model, graph, None, sizes) for graph in candidates),
        each,
        skip,
    )


def _first(games: Iterator[Played | None], count: int, skip: int) -> Iterator[Played]:
    count_found = 0
    for game in games:
        if game is None:
            continue
        count_found += 1
        if count_found > skip:
            yield game
        if count_found == skip + count:
            return


def padded(nodes: int, seed: int = 0) -> tuple[nn.Module, Data]:
    """One neighbourhood of 400 nodes, and any number of others that it does not touch."""
    rng = np.random.default_rng(seed)
    near = rng.integers(0, 400, (2, 900))
    # A ring through all others, and as many random links between them.
    others = np.arange(400, nodes)
    far = np.stack([np.concatenate([others, others]),
                    np.concatenate([np.roll(others, 1), rng.permutation(others)])])  # fmt: skip
    ends = np.concatenate([near, near[::-1], far], axis=1)
    x = torch.from_numpy(rng.normal(size=(nodes, 16)).astype(np.float32))
    x[:400] = torch.from_numpy(np.random.default_rng(1).normal(size=(400, 16)).astype(np.float32))
    torch.manual_seed(0)
    return GCN(16, 16, 2, 4).eval(), Data(x=x, edge_index=torch.from_numpy(ends))


class _Chebyshev(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = ChebConv(features, 16, K=2)
        self.second = ChebConv(16, classes, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        output: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return output


def chebyshev(features: int, classes: int) -> nn.Module:
    """An untrained model of layers that the engine does not know."""
    torch.manual_seed(0)
    return _Chebyshev(features, classes).eval()


def hub(leaves: int) -> tuple[nn.Module, Data]:
    """A node with very many neighbours."""
    spokes = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
    x: Tensor = torch.randn(leaves + 1, 16, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    return GCN(16, 16, 2, 4).eval(), Data(x=x, edge_index=torch.cat([spokes, spokes.flip(0)], 1))
