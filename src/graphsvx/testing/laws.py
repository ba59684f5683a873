"""Random games and graphs, and the form of a failed law."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphConv, global_add_pool

from graphsvx.core.arrays import Bools, Floats
from graphsvx.games.base import FunctionGame


def require(holds: object, block: object, law: str) -> None:
    """Raise an AssertionError that names the block and the law, unless it holds."""
    if not bool(holds):
        raise AssertionError(f"{block!r}: {law}")


def table_game(values: Floats) -> FunctionGame:
    """The game with these values of all coalitions, numbered by their bits."""
    players = len(values).bit_length() - 1
    table = torch.from_numpy(values)
    return FunctionGame(
        lambda rows: table[torch.from_numpy(rows @ (1 << np.arange(players)))], players
    )


def additive_game(weights: Floats) -> FunctionGame:
    """Every player adds its own weight."""
    return FunctionGame(lambda rows: torch.from_numpy(rows @ weights), len(weights))


class PathGame(FunctionGame):
    """A path of players that ends in the explained node: one counts if all before it are on."""

    def __init__(self, weights: Floats) -> None:
        def value(rows: Bools) -> Tensor:
            connected = np.logical_and.accumulate(rows, axis=1)
            return torch.from_numpy(np.tanh(connected @ weights))

        super().__init__(value, len(weights))

    def player_edges(self) -> Bools:
        """Player i + 1 sends to player i, player 0 to the explained node."""
        edges = np.zeros((self.players + 1, self.players), dtype=bool)
        edges[np.arange(self.players - 1), np.arange(1, self.players)] = True
        edges[-1, 0] = True
        return edges


class _PooledModel(torch.nn.Module):
    """A small classifier of whole graphs."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.layer = GraphConv(features, 8)
        self.last = torch.nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Scores of the classes."""
        pooled: Tensor = global_add_pool(self.layer(x, edge_index).tanh(), batch)
        return self.last(pooled.tanh())


def random_graph(seed: int, nodes: int = 7, features: int = 3) -> Data:
    """A sparse random graph with directed and undirected edges and a self-loop."""
    rng = np.random.default_rng(seed)
    linked = rng.random((nodes, nodes)) < 0.22
    linked |= linked.T & (rng.random((nodes, nodes)) < 0.7)
    np.fill_diagonal(linked, False)
    linked[np.arange(1, 4), 0] = True  # node 0 always has a neighbourhood
    linked[2, 2] = True
    x = torch.from_numpy(rng.normal(size=(nodes, features)))
    edge_index = torch.from_numpy(np.stack(np.nonzero(linked)))
    return Data(x=x, edge_index=edge_index, y=torch.arange(nodes) % 2)


def random_model(seed: int, whole_graphs: bool = False, features: int = 3) -> torch.nn.Module:
    """A GCN of two layers, or a model that pools over all nodes, with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _PooledModel(features, 3) if whole_graphs else GCN(features, 8, 2, 3, act="tanh")
    return model.double().eval()


@contextmanager
def random_state_untouched(block: object) -> Iterator[None]:
    """Require that the global random numbers of torch and numpy are as before."""
    before, numbers = torch.get_rng_state(), np.random.get_state(legacy=False)
    yield
    law = "draws from its own random generator, not from the global one"
    require(torch.equal(before, torch.get_rng_state()), block, f"{law} of torch")
    require(repr(numbers) == repr(np.random.get_state(legacy=False)), block, f"{law} of numpy")


def random_numbers(seed: int) -> torch.Generator:
    """Random numbers of a seed."""
    return torch.Generator().manual_seed(seed)
