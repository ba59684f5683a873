"""Explanations written down by hand: what plots, reports and tables are tested with."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import torch

from graphsvx.results.certificate import Certificate, GameReport
from graphsvx.results.credit import CellCredit, Credit
from graphsvx.results.details import FieldRecord
from graphsvx.results.explanation import Explanation

MEANING = "The Shapley value: a player's average contribution over all orders of joining."


def credit(ids, values, errors=None, names=None) -> Credit:
    """Credit from plain lists; one row of values or several."""
    table = torch.tensor(values, dtype=torch.float64)
    table = table[None] if table.dim() == 1 else table
    spread = torch.zeros_like(table) if errors is None else torch.tensor(errors).to(table)
    return Credit(torch.tensor(ids), table, spread.expand_as(table).clone(), names)


def game(name: str, players: int, exact: bool = True) -> GameReport:
    return GameReport(
        name,
        players,
        exact,
        budget=1000,
        calls=min(2**players, 800),
        coalitions=1000,
        r2=0.98,
        mask="All",
    )


def certificate(*games: GameReport) -> Certificate:
    return Certificate(
        games, residual=1e-16, seed=0, depth=3, checks=("field", "batch"), fallback=None
    )


def both_ways(edges) -> torch.Tensor:
    pairs = [(u, v) for u, v in edges] + [(v, u) for u, v in edges]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()


def hops_from(edges, ids, centres) -> torch.Tensor:
    graph = nx.Graph(edges)
    graph.add_nodes_from(ids)
    near = dict.fromkeys(ids, 0)
    if centres:
        near = dict(nx.multi_source_dijkstra_path_length(graph, set(centres)))
    return torch.tensor([int(near.get(n, 0)) for n in ids])


HOUSE_EDGES = [
    (402, 400), (402, 401), (400, 401), (400, 403), (401, 404), (403, 404),
    (403, 17), (17, 3), (17, 88),
]  # fmt: skip


def house() -> Explanation:
    """The roof of a house motif, eight nodes, two features, exact."""
    ids = [402, 400, 401, 403, 404, 17, 3, 88]
    values = [0.31, 0.24, 0.12, 0.10, -0.05, 0.004, -0.01]
    features = [0.06, -0.015]
    return Explanation(
        kind="node",
        centres=(402,),
        outputs=(1,),
        target=1,
        bases=torch.tensor([0.211], dtype=torch.float64),
        predictions=torch.tensor([0.97], dtype=torch.float64),
        node_credit=credit(ids[1:], values),
        feature_credit=credit([0, 4], features, names=("degree", "bias")),
        edge_credit=Credit.none(1),
        certificate=certificate(game("features", 2), game("nodes", 7)),
        field=FieldRecord(
            ids=torch.tensor(ids),
            hops=hops_from(HOUSE_EDGES, ids, [402]),
            edge_index=both_ways(HOUSE_EDGES),
            classes=torch.tensor([1, 2, 2, 3, 3, 0, 0, 0]),
            num_nodes=700,
            num_features=10,
        ),
        method="GraphSVX",
        meaning=MEANING,
        class_names=("base", "house roof", "house middle", "house floor"),
    )


def with_cells() -> Explanation:
    """The house with features of two of its nodes (`players="cells"`)."""
    cells = CellCredit(
        nodes=(400, 400, 400, 401, 401),
        features=(-1, 4, -2, -1, 0),
        values=torch.tensor([[0.3, -0.1, 0.04, 0.02, 0.1]], dtype=torch.float64),
        errors=torch.zeros(1, 5, dtype=torch.float64),
        names=("presence", "bias", "other features", "presence", "degree"),
    )
    return replace(house(), cells=cells)


def house_all() -> Explanation:
    """The same house with all four classes explained."""
    explanation = house()
    rng = np.random.default_rng(5)

    def rows(values: torch.Tensor) -> torch.Tensor:
        noise = torch.from_numpy(rng.normal(0, 0.05, (4, values.shape[1])))
        noise[1] = values[0]
        return noise

    nodes = replace(explanation.node_credit, values=rows(explanation.node_credit.values))
    nodes = replace(nodes, errors=torch.zeros_like(nodes.values))
    features = replace(explanation.feature_credit, values=rows(explanation.feature_credit.values))
    features = replace(features, errors=torch.zeros_like(features.values))
    bases = torch.tensor([0.5, 0.211, 0.2, 0.089], dtype=torch.float64)
    return replace(
        explanation,
        outputs=(0, 1, 2, 3),
        bases=bases,
        predictions=bases + nodes.values.sum(1) + features.values.sum(1),
        node_credit=nodes,
        feature_credit=features,
        edge_credit=Credit.none(4),
    )


def crowd(players: int = 299, seed: int = 3) -> Explanation:
    """A crowded neighbourhood: few nodes matter, estimated, with error bars."""
    rng = np.random.default_rng(seed)
    graph = nx.barabasi_albert_graph(players + 1, 2, seed=seed)
    hops = nx.single_source_shortest_path_length(graph, 0)
    ids = sorted(graph, key=lambda n: (hops[n], n))
    values = rng.laplace(0, 0.0008, players)
    values[:9] = [0.16, 0.12, 0.09, -0.07, 0.06, 0.05, -0.03, 0.025, 0.02]
    errors = np.abs(rng.normal(0.004, 0.001, players))
    base = 0.3
    return Explanation(
        kind="node",
        centres=(0,),
        outputs=(2,),
        target=2,
        bases=torch.tensor([base], dtype=torch.float64),
        predictions=torch.tensor([base + values.sum()], dtype=torch.float64),
        node_credit=credit(ids[1:], values, errors),
        feature_credit=Credit.none(1),
        edge_credit=Credit.none(1),
        certificate=certificate(game("nodes", players, exact=False)),
        field=FieldRecord(
            ids=torch.tensor(ids),
            hops=torch.tensor([hops[n] for n in ids]),
            edge_index=both_ways(graph.edges),
            classes=torch.from_numpy(rng.integers(0, 4, len(ids))),
            num_nodes=5000,
            num_features=50,
        ),
        method="GraphSVX",
        meaning=MEANING,
    )


NITROTOLUENE = [
    (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 6), (6, 7), (6, 8), (3, 9),
    (1, 10), (2, 11), (4, 12), (5, 13), (9, 14), (9, 15), (9, 16),
]  # fmt: skip
ATOMS = ["C"] * 6 + ["N", "O", "O", "C"] + ["H"] * 7
BONDS = {(0, 1): 2, (2, 3): 2, (4, 5): 2, (6, 7): 2}


def molecule() -> Explanation:
    """4-nitrotoluene, mutagenic for its NO2 group; a whole graph is explained."""
    ids = list(range(17))
    values = [0.03, 0.01, 0.01, 0.01, 0.01, 0.01, 0.22, 0.14, 0.13, -0.06] + [-0.005] * 7
    return Explanation(
        kind="graph",
        centres=(),
        outputs=(0,),
        target=0,
        bases=torch.tensor([0.4], dtype=torch.float64),
        predictions=torch.tensor([0.4 + sum(values)], dtype=torch.float64),
        node_credit=credit(ids, values),
        feature_credit=Credit.none(1),
        edge_credit=Credit.none(1),
        certificate=certificate(game("nodes", 17)),
        field=FieldRecord(
            ids=torch.tensor(ids),
            hops=torch.zeros(17, dtype=torch.long),
            edge_index=both_ways(NITROTOLUENE),
            num_nodes=17,
            num_features=14,
        ),
        method="GraphSVX",
        meaning=MEANING,
        class_names=("mutagenic", "not mutagenic"),
    )


def features_only() -> Explanation:
    """Only features play, estimated."""
    values = [0.2, -0.11, 0.07, 0.03, -0.01]
    explanation = house()
    return replace(
        explanation,
        predictions=torch.tensor([0.211 + sum(values)], dtype=torch.float64),
        node_credit=Credit.none(1),
        feature_credit=credit([3, 9, 4, 1, 0], values, [0.02, 0.03, 0.01, 0.004, 0.02]),
        certificate=certificate(game("features", 5, exact=False)),
    )


def edges_only() -> Explanation:
    """Edges play instead of nodes; one direction only each."""
    explanation = house()
    values = [0.3, 0.25, 0.1, 0.08, -0.06, 0.05, 0.02, 0.01, 0.009]
    ends = torch.tensor(HOUSE_EDGES).t()
    return replace(
        explanation,
        node_credit=Credit.none(1),
        feature_credit=Credit.none(1),
        edge_credit=credit(ends.tolist(), values),
        certificate=certificate(game("edges", 9)),
    )


def regression() -> Explanation:
    """A number instead of a class."""
    return replace(house(), scale="value", class_names=None, outputs=(0,), target=0)


def empty() -> Explanation:
    """Nobody plays: an isolated node without features."""
    return Explanation(
        kind="node",
        centres=(5,),
        outputs=(0,),
        target=0,
        bases=torch.tensor([0.6], dtype=torch.float64),
        predictions=torch.tensor([0.6], dtype=torch.float64),
        node_credit=Credit.none(1),
        feature_credit=Credit.none(1),
        edge_credit=Credit.none(1),
        certificate=Certificate((), residual=0.0, seed=0, depth=2),
        field=FieldRecord(
            ids=torch.tensor([5]),
            hops=torch.tensor([0]),
            edge_index=torch.zeros(2, 0, dtype=torch.long),
            num_nodes=9,
        ),
        method="GraphSVX",
        meaning=MEANING,
    )


def importances() -> Explanation:
    """A mask method: importances that do not add up, without standard errors."""
    explanation = house()
    values = [0.9, 0.8, 0.7, 0.6, 0.2, 0.1, 0.1]
    return replace(
        explanation,
        node_credit=credit(explanation.node_ids.tolist(), values, [float("nan")] * 7),
        feature_credit=Credit.none(1),
        method="GNNExplainer",
        meaning="A mask between 0 and 1: how much of the node the explanation keeps.",
        certificate=replace(certificate(game("nodes", 7, exact=False)), residual=-2.5),
    )


def hostile() -> Explanation:
    """Names that would be code if anybody forgot to escape them."""
    explanation = house()
    names = (
        "<script>window.pwned=1</script>",
        "</script><img src=x onerror=window.pwned=1>",
        "$\\frac{1$",
        "[red]bold[/red]",
        "<!-- ",
        "a\u2028b",
        "\"'&amp;",
    )
    return replace(
        explanation,
        node_credit=replace(explanation.node_credit, names=names),
        class_names=("base", "<b>roof</b>", "c$", "d"),
    )
