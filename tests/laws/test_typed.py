"""Typed graphs: credit equals brute force on the whole typed graph, whoever plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, HeteroConv

import graphsvx
from graphsvx import Explanation
from graphsvx.core.data import check_graph_with_types
from graphsvx.methods import Edges, GraphSVX, MetaPaths, Nodes, Relations
from graphsvx.testing.oracle import (
    algorithm_1,
    call,
    cut,
    distances,
    ends_of,
    probability_of,
    replace_features,
    shapley_values,
)
from tests import typed_worlds as worlds
from tests.typed_worlds import EDGE_TYPES, Node, every_node, typed_graph

HETERO = ["sage", "gat", "gatedges", "graphconv", "to_hetero", "hgt", "han", "embedding",
          "embedding-id"]  # fmt: skip


def world(family: str, seed: int) -> tuple[nn.Module, HeteroData]:
    """A random model and graph; subjects have no features where the model has a table of them."""
    data = typed_graph(seed, counts=(3, 2, 2))
    model = worlds.hetero_model(family, data, seed)
    if family.startswith("embedding"):
        count = data["subject"].num_nodes
        del data["subject"].x
        data["subject"].num_nodes = count
        if family == "embedding-id":
            data["subject"].node_id = torch.arange(count)
    return model, data


def node_credit(explanation: Explanation) -> dict[Node, float]:
    return {
        (name, i): value
        for name, credit in explanation.nodes.items()
        for i, value in credit.by_id().items()
    }


def assert_credit(found: dict[Any, float], expected: dict[Any, float]) -> None:
    """The same credit for all players; those that are not listed have none."""
    assert set(found) <= set(expected)
    for player, value in expected.items():
        assert found.get(player, 0.0) == pytest.approx(value, abs=1e-9)


def nodes_game(family: str, seed: int) -> None:
    model, data = world(family, seed)
    node = ("paper", seed % 3)
    explanation = graphsvx.explain(
        model, data, node=node, method=GraphSVX(players="nodes"), target=0
    )
    players = [other for other in every_node(data) if other != node]
    truth = algorithm_1(probability_of(model, node, target=0), data, node, players, [])
    assert_credit(node_credit(explanation), truth.nodes)
    assert explanation.base == pytest.approx(truth.base, abs=1e-9)
    assert explanation.base + explanation.total == pytest.approx(explanation.prediction, abs=1e-9)


def relations_game(family: str, seed: int) -> None:
    """A relation is all its edges; `rev_writes` and the two directions of `to` go with them."""
    model, data = world(family, seed)
    node = ("paper", seed % 3)
    pairs = {
        EDGE_TYPES[0]: {EDGE_TYPES[0], EDGE_TYPES[1]},
        EDGE_TYPES[2]: {EDGE_TYPES[2], EDGE_TYPES[3]},
        EDGE_TYPES[4]: {EDGE_TYPES[4]},
        EDGE_TYPES[5]: {EDGE_TYPES[5]},
    }
    explanation = graphsvx.explain(model, data, node=node, method=GraphSVX(players="relations"),
                                   target=0)  # fmt: skip

    score = probability_of(model, node, target=0)

    def value(on: frozenset[Any]) -> float:
        return score(cut(data, edges={
            (name, i) for first, names in pairs.items() if first not in on for name in names
            for i in range(data[name].num_edges)
        }))  # fmt: skip

    credit = shapley_values(pairs, value)
    assert_credit(explanation.by_relation(), credit)


def edges_game(family: str, seed: int) -> None:
    """Single edges of one relation play, each with its reverse; the others stay."""
    model, data = world(family, seed)
    node = ("paper", 0)
    writes, reverse = EDGE_TYPES[:2]
    pairs = data[writes].edge_index.t().tolist()
    rest = {"rest": [t for t in EDGE_TYPES if t not in (writes, reverse)]}
    explanation = graphsvx.explain(
        model, data, node=node, target=0, method=GraphSVX(players=Edges(groups=rest))
    )
    players = [*map(tuple, pairs), "rest"]
    score = probability_of(model, node, target=0)

    def value(on: frozenset[Any]) -> float:
        off = {(t, i) for t in rest["rest"] for i in range(data[t].num_edges) if "rest" not in on}
        off |= {(t, i) for i, ends in enumerate(pairs) if tuple(ends) not in on
                for t in (writes, reverse)}  # fmt: skip
        return score(cut(data, edges=off))

    credit = shapley_values(players, value)
    names = explanation.edge_credit.names or ()
    credits: dict[Any, float] = {}
    for name, ends, amount in zip(
        names, explanation.edge_ids.t().tolist(), explanation.edge_values.tolist(), strict=True
    ):
        if name == "rest":
            credits["rest"] = amount
        else:
            paper, author = sorted(ends)  # papers are numbered before authors
            credits[(author - 3, paper)] = amount
    assert_credit(credits, credit)


def meta_paths_game(family: str, seed: int) -> None:
    """An edge on two paths is there as long as one of them is."""
    model, data = world(family, seed)
    node = ("paper", 0)
    writes, reverse, topic, back, *_ = EDGE_TYPES
    paths = {"co-authors": [reverse, writes], "authors": [writes], "topics": [topic, back]}
    explanation = graphsvx.explain(
        model, data, node=node, target=0, method=GraphSVX(players=MetaPaths(paths=paths))
    )

    def instances(steps: list[Any]) -> set[tuple[Any, int]]:
        """Edges of all walks along the edge types that end in the node."""
        walks: list[tuple[Node, list[tuple[Any, int]]]] = [(node, [])]
        for step in reversed(steps):
            walks = [
                ((step[0], u), [(step, i), *edges])
                for end, edges in walks
                for i, (u, v) in enumerate(data[step].edge_index.t().tolist())
                if (step[2], v) == end
            ]
        return {edge for _, edges in walks for edge in edges}

    members = {name: instances(steps) for name, steps in paths.items()}

    score = probability_of(model, node, target=0)

    def value(on: frozenset[Any]) -> float:
        there = set().union(*(members[name] for name in on))
        return score(cut(data, edges=set().union(*members.values()) - there))

    credit = shapley_values(members, value)
    credits = dict(zip(explanation.edge_credit.names or (), explanation.edge_values.tolist(),
                     strict=True))  # fmt: skip
    assert_credit(credits, credit)


def features_game(family: str, seed: int) -> None:
    """Features of the node play with all its neighbours off, as on graphs without types."""
    model, data = world(family, seed)
    node = ("paper", seed % 3)
    explanation = graphsvx.explain(
        model, data, node=node, target=0, method=GraphSVX(players="both", features="all")
    )
    isolated = cut(data, {*every_node(data)} - {node})
    truth = algorithm_1(probability_of(model, node, target=0), isolated, node, [], range(4))
    assert_credit(explanation.features["paper"].by_id(), truth.features)
    assert explanation.base == pytest.approx(truth.base, abs=1e-9)
    assert explanation.base + explanation.total == pytest.approx(explanation.prediction, abs=1e-9)


GAMES: dict[str, Callable[[str, int], None]] = {
    "nodes": nodes_game, "relations": relations_game, "edges": edges_game,
    "meta-paths": meta_paths_game, "features": features_game,
}  # fmt: skip


@pytest.mark.parametrize("family", HETERO)
@pytest.mark.parametrize("game", ["nodes", "relations"])
def test_credit_equals_brute_force(family: str, game: str) -> None:
    GAMES[game](family, HETERO.index(family))


@pytest.mark.parametrize("family", ["sage", "graphconv", "han", "embedding"])
def test_credit_of_features_equals_brute_force(family: str) -> None:
    features_game(family, 2)


@pytest.mark.parametrize("game", ["edges", "meta-paths"])
@pytest.mark.parametrize("family", ["sage", "hgt", "embedding"])
def test_credit_of_edges_equals_brute_force(family: str, game: str) -> None:
    GAMES[game](family, 3)


# --- relational data ---------------------------------------------------------------------------


def relational_game(family: str, seed: int) -> None:
    data = worlds.relational_graph(seed, nodes=6)
    model = worlds.relational_model(family, seed)
    explanation = graphsvx.explain(model, data, node=0, target=0, method=GraphSVX(players="nodes"))
    truth = algorithm_1(probability_of(model, 0, target=0), data, 0, range(1, 6), [])
    assert_credit(explanation.nodes, truth.nodes)
    assert explanation.base == pytest.approx(truth.base, abs=1e-9)


def relational_types_game(family: str, seed: int) -> None:
    data = worlds.relational_graph(seed, nodes=6)
    model = worlds.relational_model(family, seed)
    explanation = graphsvx.explain(
        model, data, node=0, target=0, method=GraphSVX(players=Relations(directions="apart"))
    )

    kinds, score = data.edge_type.tolist(), probability_of(model, 0, target=0)
    credit = shapley_values(
        range(3),
        lambda on: score(cut(data, edges=[i for i, kind in enumerate(kinds) if kind not in on])),
    )
    by_relation = {int(name[1]): value for name, value in explanation.by_relation().items()}
    assert_credit(by_relation, credit)


@pytest.mark.parametrize("family", ["rgcn", "fast-rgcn"])
@pytest.mark.parametrize("seed", range(2))
def test_relational_credit_equals_brute_force(family: str, seed: int) -> None:
    relational_game(family, seed)
    relational_types_game(family, seed)


# --- links, groups, graphs ---------------------------------------------------------------------


def test_credit_of_a_link_equals_brute_force() -> None:
    data = typed_graph(5, counts=(3, 2, 2))
    model = worlds.hetero_model("encoder", data, 5)
    u, v = ("author", 0), ("paper", 1)
    explanation = graphsvx.explain(
        model, data, edge=(u, v), scale="value", method=GraphSVX(players="nodes")
    )
    players = [node for node in every_node(data) if node not in (u, v)]

    def value(on: frozenset[Any]) -> float:
        out = call(model, cut(data, set(players) - on))
        return float((out["author"][0] * out["paper"][1]).sum())

    credit = shapley_values(players, value)
    assert_credit(node_credit(explanation), credit)


def test_credit_of_a_group_of_nodes_equals_brute_force() -> None:
    data = typed_graph(6, counts=(3, 2, 2))
    model = worlds.hetero_model("sage", data, 6)
    explanation = graphsvx.explain(
        model, data, nodes=("paper", [0, 2]), target=0,
        method=GraphSVX(players=Nodes(groups={"authors": [("author", 0), ("author", 1)]})),
    )  # fmt: skip
    others = [("paper", 1), ("subject", 0), ("subject", 1)]
    players: list[Any] = ["authors", *others]

    score = probability_of(model, ("paper", 0), ("paper", 2), target=0)

    def value(on: frozenset[Any]) -> float:
        absent = {node for node in others if node not in on}
        absent |= set() if "authors" in on else {("author", 0), ("author", 1)}
        return score(cut(data, absent))

    credit = shapley_values(players, value)
    names = explanation.node_credit.names or ()
    by_type = dict(zip(names, explanation.node_values.tolist(), strict=True))
    named = {p if isinstance(p, str) else f"{p[0]} {p[1]}": value for p, value in credit.items()}
    assert_credit(by_type, named)


@pytest.mark.parametrize("erase", [False, True])
def test_credit_of_a_graph_equals_brute_force(erase: bool) -> None:
    data = typed_graph(7, counts=(3, 2, 2))
    model = worlds.hetero_model("pooled", data, 7)
    explanation = graphsvx.explain(
        model, data, graph=True, target=0, method=GraphSVX(players="nodes", erase=erase)
    )
    players, score = every_node(data), probability_of(model, target=0)

    def value(on: frozenset[Any]) -> float:
        changed = cut(data, set(players) - on)
        for kind, i in set(players) - on if erase else ():
            changed = replace_features(changed, [(kind, i)], range(data[kind].num_features),
                                       data[kind].x.mean(0))  # fmt: skip
        return score(changed)

    credit = shapley_values(players, value)
    assert_credit(node_credit(explanation), credit)


# --- relabelling, one type, to_homogeneous -----------------------------------------------------


def test_relabelling_within_types_relabels_the_credit() -> None:
    model, data = world("sage", 8)
    order = {"paper": [2, 0, 1], "author": [1, 0], "subject": [0, 1]}
    turned = HeteroData()
    for name in data.node_types:
        turned[name].x = data[name].x[order[name]]
    for name in data.edge_types:
        new = {end: torch.tensor(order[end]).argsort() for end in (name[0], name[2])}
        u, v = data[name].edge_index
        turned[name].edge_index = torch.stack([new[name[0]][u], new[name[2]][v]]).flip(1)
    before = graphsvx.explain(model, data, node=("paper", 2), target=0)
    after = graphsvx.explain(model, turned, node=("paper", 0), target=0)
    expected = {
        (name, order[name].index(i)): value for (name, i), value in node_credit(before).items()
    }
    assert node_credit(after) == pytest.approx(expected, abs=1e-9)


class OneType(nn.Module):
    """The layers of a homogeneous GraphSAGE as convolutions of one edge type."""

    def __init__(self, model: GraphSAGE) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            HeteroConv({("node", "to", "node"): layer}) for layer in model.convs
        )

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        hidden = {k: v.tanh() for k, v in self.layers[0](x_dict, edge_index_dict).items()}
        return self.layers[1](hidden, edge_index_dict)["node"]


@pytest.mark.parametrize("samples", [1000, 24])
def test_a_homogeneous_graph_in_one_type_has_the_same_credit(samples: int) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=rng, dtype=torch.float64)
    edge_index = torch.randint(12, (2, 34), generator=rng)
    model = GraphSAGE(3, 5, 2, 3, act="tanh").double().eval()
    data = HeteroData()
    data["node"].x = x
    data["node", "to", "node"].edge_index = edge_index
    method = GraphSVX(samples=samples)
    plain = graphsvx.explain(model, Data(x=x, edge_index=edge_index), node=4, method=method)
    typed = graphsvx.explain(OneType(model), data, node=("node", 4), method=method)
    assert typed.node_ids.tolist() == plain.node_ids.tolist()
    torch.testing.assert_close(typed.node_values, plain.node_values, atol=1e-9, rtol=0)
    torch.testing.assert_close(typed.feature_values, plain.feature_values, atol=1e-9, rtol=0)
    assert typed.base == pytest.approx(plain.base, abs=1e-9)


def test_to_homogeneous_agrees() -> None:
    """Convolutions by relation on HeteroData, and the same sums with `edge_type` on Data."""
    rng = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["a"].x = torch.randn(4, 4, generator=rng, dtype=torch.float64)
    data["b"].x = torch.randn(3, 4, generator=rng, dtype=torch.float64)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2, 3, 0], [0, 0, 1, 2, 2]])
    data["b", "back", "a"].edge_index = torch.tensor([[0, 1, 2, 2], [0, 1, 3, 0]])
    flat = data.to_homogeneous()
    model = worlds.relational_model("rgcn", 0, relations=2)

    def typed(x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> dict[str, Tensor]:
        count = len(x_dict["a"])
        shift = {"a": 0, "b": count}
        ends = [
            edge_index + torch.tensor([[shift[name[0]]], [shift[name[2]]]])
            for name, edge_index in edge_index_dict.items()
        ]
        kinds = torch.cat([torch.full((e.shape[1],), i) for i, e in enumerate(ends)])
        out = model(torch.cat(list(x_dict.values())), torch.cat(ends, 1), kinds)
        return {"a": out[:count], "b": out[count:]}

    method = GraphSVX(players="nodes")
    by_type = graphsvx.explain(typed, data, node=("b", 1), method=method)
    numbered = graphsvx.explain(model, flat, node=5, method=method)
    credit = dict(zip(by_type.node_ids.tolist(), by_type.node_values.tolist(), strict=True))
    assert {k: v for k, v in credit.items() if abs(v) > 1e-12} == pytest.approx(
        {k: v for k, v in numbered.nodes.items() if abs(v) > 1e-12}, abs=1e-9
    )


def test_the_field_is_what_reaches_the_node() -> None:
    model, data = world("sage", 4)
    explanation = graphsvx.explain(model, data, node=("paper", 1))
    assert set(node_credit(explanation)) == {
        node for node, steps in distances(ends_of(data), [("paper", 1)]).items() if 0 < steps <= 2
    }
    assert explanation.certificate.fallback is None


@pytest.mark.parametrize("family", ["embedding", "embedding-id"])
def test_tables_of_nodes_without_features_are_cut_to_the_field(family: str) -> None:
    model, data = world(family, 1)
    assert graphsvx.explain(model, data, node=("paper", 0)).certificate.fallback is None


def test_attention_over_all_nodes_is_played_on_the_whole_graph() -> None:
    model, data = world("han", 1)
    explanation = graphsvx.explain(model, data, node=("paper", 0))
    assert "one call a coalition" in (explanation.certificate.fallback or "")


def test_an_edge_type_is_paired_with_the_type_of_its_edges_turned_round() -> None:
    graph = check_graph_with_types(typed_graph(0))
    assert graph.relation_of.tolist() == [0, 0, 2, 2, 4, 5]
