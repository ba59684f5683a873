"""The oracle on games and graphs whose answers are worked out by hand."""

from __future__ import annotations

import ast
import inspect
import random

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphConv

from graphsvx.testing import oracle

PATH = Data(
    x=torch.tensor([[1.0], [2.0], [4.0], [8.0]], dtype=torch.float64),
    edge_index=torch.tensor([[1, 2, 3], [0, 0, 2]]),
    edge_weight=torch.tensor([1.0, 1.0, 3.0], dtype=torch.float64),
    far_edge_index=torch.tensor([[0, 3], [1, 2]]),
    far_edge_attr=torch.tensor([5.0, 6.0]),
)  # 1 -> 0 <- 2 <- 3


def sums(data: Data) -> float:
    """x_0 + x_1 + x_2 while all edges are there."""
    return float((data.x[0] + data.x[data.edge_index[0, data.edge_index[1] == 0]].sum(0))[0])


def test_nothing_of_the_library_is_imported() -> None:
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(oracle)))
               if isinstance(node, ast.Import | ast.ImportFrom)]  # fmt: skip
    names = [getattr(node, "module", None) or node.names[0].name for node in imports]
    assert imports
    assert not [name for name in names if name.startswith("graphsvx")]


def test_the_glove_game() -> None:
    """One left glove and two right ones: a pair is worth 1. Shapley (1953): 2/3, 1/6, 1/6."""
    credit = oracle.shapley_values("abc", lambda on: float("a" in on and len(on) > 1))
    assert credit == pytest.approx({"a": 2 / 3, "b": 1 / 6, "c": 1 / 6})


@pytest.mark.parametrize("players", range(1, 7))
def test_the_regression_of_eq_3_gives_shapley_values(players: int) -> None:
    draws = random.Random(players)
    worth = {on: draws.gauss() for on in oracle.coalitions(range(players))}
    assert len(worth) == 2**players
    credit = oracle.shapley_values(range(players), worth.__getitem__)
    assert oracle.weighted_regression(range(players), worth.__getitem__) == pytest.approx(credit)
    gain = worth[frozenset(range(players))] - worth[frozenset()]
    assert sum(credit.values()) == pytest.approx(gain)


def test_switched_off_features_are_means_of_all_nodes() -> None:
    changed = oracle.replace_features(PATH, [0, 2], [0])
    assert changed.x[:, 0].tolist() == [3.75, 2, 3.75, 8]
    assert oracle.replace_features(PATH, [1], [0], [7]).x[:, 0].tolist() == [1, 7, 4, 8]
    assert PATH.x[:, 0].tolist() == [1, 2, 4, 8]


def test_edges_are_cut_with_all_that_goes_with_them() -> None:
    changed = oracle.cut(PATH, nodes=[3])
    assert changed.edge_index.tolist() == [[1, 2], [0, 0]]
    assert changed.edge_weight.tolist() == [1, 1]
    assert changed.far_edge_index.tolist() == [[0], [1]]
    assert changed.far_edge_attr.tolist() == [5]
    assert oracle.cut(PATH, edges=[1]).edge_weight.tolist() == [1, 3]
    assert PATH.num_edges == 3


def test_edges_of_typed_graphs_are_cut_by_names() -> None:
    data, writes = HeteroData(), ("author", "writes", "paper")
    data["author"].x, data["paper"].x = torch.zeros(2, 1), torch.tensor([[1.0], [3.0]])
    data[writes].edge_index = torch.tensor([[0, 1, 1], [0, 0, 1]])
    data[writes].edge_attr = torch.tensor([1.0, 2.0, 3.0])
    assert oracle.cut(data, nodes=[("author", 0)])[writes].edge_attr.tolist() == [2, 3]
    assert oracle.cut(data, nodes=[("paper", 0)])[writes].edge_attr.tolist() == [3]
    assert oracle.cut(data, edges=[(writes, 1)])[writes].edge_attr.tolist() == [1, 3]
    changed = oracle.replace_features(data, [("paper", 0)], [0])
    assert changed["paper"].x[:, 0].tolist() == [2, 3]
    assert oracle.ends_of(data)[2] == (("author", 1), ("paper", 1))


@pytest.mark.parametrize(
    ("on", "ends", "x"),
    [
        ([3], [(2, 0), (3, 2)], [1, 2, -1, 8]),  # joined along 2, whose features are replaced
        ([2, 3], [(2, 0), (3, 2)], [1, 2, 4, 8]),  # connected
        ([1], [(1, 0)], [1, 2, 4, 8]),
        ([], [], [1, 2, 4, 8]),
    ],
)
def test_cut_off_nodes_get_their_path_back(on: list[int], ends: list, x: list[float]) -> None:
    paths = {1: (1, 0), 2: (2, 0), 3: (3, 2, 0)}
    off = {1, 2, 3} - {*on}
    changed = oracle.indirect_effect(PATH, on, off, [0], paths, torch.tensor([-1.0]))
    assert oracle.ends_of(changed) == ends
    assert changed.x[:, 0].tolist() == x


def test_steps_follow_the_edges() -> None:
    assert oracle.distances(oracle.ends_of(PATH), [0]) == {0: 0, 1: 1, 2: 1, 3: 2}
    assert oracle.distances(oracle.ends_of(PATH), [3]) == {3: 0}


def test_models_are_called_by_their_arguments() -> None:
    layer = GraphConv(1, 2, bias=False).double()
    torch.nn.init.ones_(layer.lin_rel.weight)
    torch.nn.init.ones_(layer.lin_root.weight)
    assert oracle.call(layer, PATH)[2].tolist() == [28, 28]
    assert oracle.call(lambda data: data.x, PATH) is PATH.x
    assert oracle.call(lambda x, batch, other=3: batch, PATH).tolist() == [0, 0, 0, 0]
    assert oracle.probability_of(layer, 2, target=1)(PATH) == 0.5
    assert oracle.probability_of(layer, 0, 1)(PATH).tolist() == [0.5, 0.5]


def test_algorithm_1_on_sums() -> None:
    """Each neighbour gets its own value, the feature what it is above the mean."""
    credit = oracle.algorithm_1(sums, PATH, 0, nodes=[1, 2, 3], features=[0])
    assert credit.nodes == pytest.approx({1: 2, 2: 4, 3: 0})
    assert credit.features == pytest.approx({0: 1 - 3.75})
    assert (credit.base, credit.prediction) == (3.75, 7)
