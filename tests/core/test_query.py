"""Wrong questions and wrong combinations are refused in one clear line."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphsvx import GraphSVX, explain
from graphsvx.errors import BudgetError, GraphSVXError, InputError, ModelError, UnsupportedError
from graphsvx.estimators import Lasso
from tests.worlds import pooled, random_graph, random_model

MODEL = random_model("gcn", 3)
DATA = random_graph(3)
GRAPH_MODEL = pooled("gcn", "add", 1)


def refused(error: type[GraphSVXError], part: str, run) -> None:
    with pytest.raises(error) as raised:
        run()
    message = str(raised.value)
    assert part in message, message
    assert "\n" not in message


SETTINGS = {
    "groups of nodes for subgraph features": (
        {"groups": {"a": [1]}, "players": "subgraph_features"}, "use feature_groups="),
    "earlier name of subgraph features": (
        {"features_of": "subgraph"}, 'is called players="subgraph_features" now'),
    "earlier name of the estimator": ({"regression": Lasso(2)}, "is called estimator= now"),
    "earlier name of the share of features": ({"r": 0.5}, "is called feature_share= now"),
    "unknown setting": ({"budgets": 3}, "GraphSVX has the settings players, budget, mask"),
    "unknown players": ({"players": "links"}, "'features', 'subgraph_features', 'edges', '"),
    "players that are a number": ({"players": 3}, "or a kind of players such as Edges(hops=2)"),
    "a budget that is a number": ({"budget": 400}, "use samples=400"),
    "unknown directions": (
        {"directions": "both", "players": "edges"}, "directions must be 'together' or 'apart'"),
    "directions of nodes": ({"directions": "apart"}, 'use players="edges"'),
    "draws without a mean": ({"monte_carlo": 10}, 'mean of players="subgraph_features"'),
    "features where nodes play": ({"features": "all", "players": "nodes"}, "no feature plays"),
    "balance below 0": ({"balance": -0.1}, "at least 0 and at most 1"),
    "balance is NaN": ({"balance": float("nan")}, "at least 0 and at most 1"),
    "balance of one side": ({"balance": 0.5, "players": "nodes"}, "both must play"),
    "balance of subgraph features": (
        {"balance": 0.5, "players": "subgraph_features"}, "both must play"),
    "reference without features": (
        {"reference": 1, "players": "nodes"}, "no feature is switched off"),
    "reference of edges": ({"reference": 1, "players": "edges"}, "no feature is switched off"),
    "reference that is a flag": ({"reference": True}, "reference must be"),
    "reference that is a word": ({"reference": "mean"}, 'must be a node id, "class:c"'),
    "reference class without number": ({"reference": "class:x"}, "reference must be"),
    "reference that is not finite": ({"reference": [1.0, float("nan")]}, "finite"),
    "reference of words": ({"reference": ["a", "b"]}, "reference must be"),
    "reference matrix": ({"reference": np.zeros((2, 2))}, "reference must be"),
    "group names a player twice": ({"groups": {"a": [1, 2, 1]}}, "got 1 twice, in 'a'"),
    "player in two groups": ({"groups": {"a": [1, 2], "b": [2]}}, "in 'a' and 'b'"),
    "feature in two groups": (
        {"feature_groups": {"a": [1], "b": [1]}}, "a player can be in one group only"),
    "group without members": ({"groups": {"a": []}}, "at least one member"),
    "group of words": ({"groups": {"a": ["x"]}}, "must be an integer"),
    "group that is a word": ({"groups": {"a": "12"}}, "list of members"),
    "groups that are no mapping": ({"groups": [1, 2]}, "mapping of names"),
    "groups of nodes for features": (
        {"groups": {"a": [1]}, "players": "features"}, "use feature_groups="),
    "groups of features for nodes": (
        {"feature_groups": {"a": [1]}, "players": "nodes"}, "no feature plays"),
    "erased edges": ({"erase": True, "players": "edges"}, "needs a generator of edges"),
    "erased features": ({"erase": True, "players": "features"}, "switched-off nodes"),
    "erased with indirect": ({"erase": True, "indirect": "mean"}, "give one generator"),
    "indirect edges": ({"indirect": "mean", "players": "edges"}, "needs a generator of edges"),
    "tolerance of a Lasso": ({"tolerance": 0.1, "estimator": Lasso(2)}, "standard errors"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SETTINGS))
def test_contradicting_settings_are_refused(name: str) -> None:
    settings, part = SETTINGS[name]
    refused(InputError, part, lambda: GraphSVX(**settings))


QUESTIONS = {
    "reference outside the graph": (GraphSVX(reference=9), "from 0 to 8, got 9"),
    "reference before the graph": (GraphSVX(reference=-1), "from 0 to 8, got -1"),
    "reference of the wrong width": (GraphSVX(reference=[1.0, 2.0]), "3 features, got 2"),
    "reference class without nodes": (GraphSVX(reference="class:7"), "data.y has [0, 1]"),
    "group outside the graph": (
        GraphSVX(groups={"a": [1, 40]}), "each member of group 'a' must be from 0 to 8, got 40"),
    "feature group outside the graph": (
        GraphSVX(feature_groups={"a": [3]}), "features go from 0 to 2"),
    "an edge that does not exist": (
        GraphSVX(players="edges", groups={"a": [(0, 0), (8, 8)]}), "(8, 8), which does not exist"),
    "an edge outside the graph": (
        GraphSVX(players="edges", groups={"a": [(0, 99)]}), "must be from 0 to 8, got 99"),
    "a position without an edge": (
        GraphSVX(players="edges", groups={"a": [999]}), "edges go from 0 to"),
    "edges where nodes play": (GraphSVX(groups={"a": [(0, 1)]}), 'use players="edges"'),
}  # fmt: skip


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_settings_that_do_not_fit_the_graph_are_refused(name: str) -> None:
    method, part = QUESTIONS[name]
    refused(InputError, part, lambda: explain(MODEL, DATA, node=1, method=method))


def test_an_edge_cannot_be_in_two_groups_by_position_and_by_ends() -> None:
    u, v = DATA.edge_index[:, 3].tolist()
    method = GraphSVX(players="edges", groups={"a": [3], "b": [(u, v)]})
    refused(InputError, "one group only", lambda: explain(MODEL, DATA, node=u, method=method))


GRAPHS = {
    "both": (GraphSVX(players="both"), InputError, "not both"),
    "balance": (GraphSVX(balance=0.5), InputError, "not both"),
    "indirect": (GraphSVX(indirect="mean"), UnsupportedError, "use indirect=False"),
    "reference": (GraphSVX(reference=1), InputError, 'use players="features"'),
    "feature groups": (
        GraphSVX(feature_groups={"a": [1]}), InputError, 'use players="features"'),
}  # fmt: skip


@pytest.mark.parametrize("name", list(GRAPHS))
def test_unsupported_settings_for_graphs_are_refused(name: str) -> None:
    method, error, part = GRAPHS[name]
    refused(error, part, lambda: explain(GRAPH_MODEL, DATA, graph=True, method=method))


def test_the_class_of_a_reference_needs_labels() -> None:
    data = Data(x=DATA.x, edge_index=DATA.edge_index)
    method = GraphSVX(reference="class:1")
    refused(InputError, "set data.y", lambda: explain(MODEL, data, node=1, method=method))


@pytest.mark.parametrize("form", [list, np.asarray, torch.tensor])
def test_a_reference_of_binary_features_is_one_of_numbers(form) -> None:
    binary, numbers = (GraphSVX(reference=form(row)) for row in ([True, False, True], [1, 0, 1]))
    assert binary == numbers


@pytest.mark.parametrize("form", [tuple, np.asarray, torch.tensor])
def test_the_number_of_a_reference_that_is_not_finite_is_named(form) -> None:
    row = form([0.0, 1.0, float("nan")])
    refused(InputError, "got nan for feature 2", lambda: GraphSVX(reference=row))


LINKS = {
    "outside": ({"edge": (0, 9)}, "from 0 to 8, got 9"),
    "one end": ({"edge": (0,)}, "pair of nodes"),
    "no pair": ({"edge": 3}, "pair of nodes"),
    "a loop": ({"edge": (2, 2)}, "two different nodes"),
    "half a node": ({"edge": (0.5, 1)}, "must be an integer"),
    "a node too": ({"edge": (0, 1), "node": 1}, "got node and edge"),
    "decoder without a link": ({"node": 1, "decoder": torch.mul}, "edge=(u, v)"),
    "decoder that cannot be called": ({"edge": (0, 1), "decoder": 3}, "callable"),
    "nothing": ({}, "none of them"),
}


@pytest.mark.parametrize("name", list(LINKS))
def test_invalid_links_are_refused(name: str) -> None:
    options, part = LINKS[name]
    refused(InputError, part, lambda: explain(MODEL, DATA, **options))


@pytest.mark.parametrize(
    ("decoder", "part"),
    [
        (lambda a, b: a[0] + b[0], "one score"),
        (lambda a, b: "yes", "one score"),
        (lambda a, b: a @ b, "the decoder failed"),
        (lambda a, b: (a * b).sum(-1) / 0, "NaN or infinite"),
    ],
)
def test_unusable_decoders_are_refused(decoder, part: str) -> None:
    refused(ModelError, part, lambda: explain(MODEL, DATA, edge=(0, 1), decoder=decoder))


def test_credit_that_sums_to_nothing_cannot_be_rescaled() -> None:
    """A node without neighbours, and neighbours that cancel out."""
    lonely = Data(x=DATA.x, edge_index=torch.zeros(2, 0, dtype=torch.long))
    method = GraphSVX(balance=0.4)
    refused(InputError, "0 node players", lambda: explain(MODEL, lonely, node=1, method=method))

    class Adds(nn.Module):
        def forward(self, x, edge_index):
            return x + torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])

    x = torch.tensor([[1.0], [2.0], [-2.0 + 1e-9]], dtype=torch.float64)
    data = Data(x=x, edge_index=torch.tensor([[1, 2], [0, 0]]))
    method = GraphSVX(balance=0.4, hops=1, features="all")
    refused(
        InputError, "cannot rescale node credit that sums to",
        lambda: explain(Adds(), data, node=0, method=method, scale="value"),
    )  # fmt: skip
    # All to features: nodes are shut off, nothing is divided, not even by exactly 0.
    x[2] = -2.0
    e = explain(Adds(), data, node=0, scale="value", method=replace(method, balance=0.0))
    assert e.nodes == {1: 0.0, 2: 0.0}
    assert e.base + e.total == pytest.approx(e.prediction)


def test_budgets_of_the_extensions_are_checked() -> None:
    refused(
        BudgetError, "monte_carlo", lambda: GraphSVX(players="subgraph_features", monte_carlo=0)
    )
    refused(InputError, "k must be an integer of at least 1", lambda: Lasso(k=0))


def test_settings_hash_compare_and_read_back() -> None:
    method = GraphSVX(
        reference=torch.tensor([1.0, 2.0]), groups={"a": np.array([1, 2]), "b": torch.tensor([3])}
    )
    same = GraphSVX(reference=(1, 2), groups={"a": [1, 2], "b": [3]})
    assert method == same
    assert hash(method) == hash(same)
    assert "reference=(1.0, 2.0)" in repr(method)
    assert method.with_settings(samples=5).players == method.players
    assert pickle.loads(pickle.dumps(method)) == method


def test_the_papers_setting_fits_the_papers_graph_sets() -> None:
    e = explain(GRAPH_MODEL, DATA, graph=True, method=GraphSVX.paper("mutag"))
    assert e.node_credit.players == DATA.num_nodes
