"""Noise among the top: counted by hand, and models whose use of noise is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv

import graphsvx
from graphsvx import GraphSVX
from graphsvx.errors import InputError
from graphsvx_lab import datasets, zoo
from graphsvx_lab.metrics.measurements import Measurements, Row
from graphsvx_lab.metrics.truth import expected_hits
from graphsvx_lab.studies import noise
from graphsvx_lab.studies.noise import (
    CANDIDATES,
    OURS,
    PAPER,
    attention_on_noise,
    noise_of,
    noise_shares,
    top_k,
)
from graphsvx_lab.zoo.models import CitationGAT, CitationGCN
from tests.records import credit, house
from tests.studies.conftest import answer_of


def test_k_is_twenty_or_a_fifth_of_few_candidates():
    assert [top_k(n) for n in (0, 1, 2, 7, 12, 13, 99, 100, 2000)] == [0, 1, 1, 1, 2, 3, 20, 20, 20]


def noise_among(values: np.ndarray, noisy: np.ndarray, k: int) -> float:
    noise = {int(place) for place in noisy.nonzero()[0]}
    return expected_hits(list(range(len(values))), torch.from_numpy(values), noise, k)


def test_noise_among_the_top_is_counted_and_ties_are_shared():
    noisy = np.array([0.0, 1, 1, 0, 1])
    values = np.array([5.0, 4, 1, 1, 1])
    assert noise_among(values, noisy, 2) == 1
    # One more place for three that tie, two of them noise.
    assert noise_among(values, noisy, 3) == pytest.approx(1 + 2 / 3)
    assert noise_among(values, noisy, 5) == 3
    assert noise_among(np.zeros(5), noisy, 2) == pytest.approx(2 * 3 / 5)


def test_ties_are_what_random_breaking_gives_on_average():
    rng = np.random.default_rng(0)
    values, noisy = rng.integers(0, 4, 30).astype(float), (rng.random(30) < 0.3).astype(float)
    tries = []
    for _ in range(4000):
        order = np.lexsort((rng.random(30), -values))
        tries.append(noisy[order[:12]].sum())
    assert noise_among(values, noisy, 12) == pytest.approx(np.mean(tries), abs=0.06)


def test_shares_are_taken_by_value_and_by_magnitude():
    # Ten candidates, k = 2; column 9 speaks against the class, 8 has no credit, 77 is none.
    values = {i: 0.1 * i for i in range(8)} | {9: -5.0, 77: 9.0}
    assert noise_shares(values, list(range(10)), {7, 9, 77}, "x") == {
        "number, x": 1, "share by value, x": 0.5, "share by magnitude, x": 1,
    }  # fmt: skip
    assert noise_shares({}, [], set(), "x") == {}


def test_candidates_are_our_players_and_those_that_are_there():
    # house(): features 0 .06 and 4 -.015 play, nodes 400 and 401 are next to 402.
    x = torch.zeros(700, 10)
    x[402, 0] = 1
    of_features = SimpleNamespace(features=torch.tensor([0, 9]), nodes=torch.tensor([]))
    dataset = SimpleNamespace(noise=of_features, graph=SimpleNamespace(x=x), name="cora")
    trained: Any = SimpleNamespace(dataset=dataset)
    other = replace(house(), feature_credit=credit([4, 9], [1.0, 2.0]))
    measured = noise.counted(answer_of(trained, other, 402, others={OURS: house()}))
    # Of the players 0 and 4, 4 has more credit; of those that are there, only 0 is left.
    assert measured == {
        f"number, {CANDIDATES['features'][0]}": 0,
        f"share by value, {CANDIDATES['features'][0]}": 0,
        f"share by magnitude, {CANDIDATES['features'][0]}": 0,
        f"number, {CANDIDATES['features'][1]}": 1,
        f"share by value, {CANDIDATES['features'][1]}": 1,
        f"share by magnitude, {CANDIDATES['features'][1]}": 1,
    }
    dataset.noise = SimpleNamespace(features=torch.tensor([]), nodes=torch.tensor([400, 17]))
    measured = noise.counted(answer_of(trained, house(), 402, method=OURS))
    assert measured["share by value, direct neighbours"] == 1
    assert noise.counted(answer_of(trained, house(), 402)) == {}


# --- models ---------------------------------------------------------------------------------


def noisy(model: torch.nn.Module | None = None, nodes: bool = False) -> zoo.Trained:
    """A small noisy set with an untrained citation model."""
    plain = datasets.load("ba-community", 0)
    added = datasets.with_noisy_nodes(plain) if nodes else datasets.with_noisy_features(plain)
    torch.manual_seed(0)
    settings = zoo.Settings(hidden=6, dropout=0.5)
    model = model or CitationGCN(added.features, added.classes, settings)
    card = zoo.Card(
        dataset=added.name, data_seed=0, fingerprint=added.fingerprint, task="node",
        features=added.features, classes=added.classes, seed=0,
        settings=zoo.settings_for("cora"), accuracy={}, best_epoch=0, versions={},
    )  # fmt: skip
    return zoo.Trained(model.eval(), card, added)


def use(trained: zoo.Trained) -> dict[str, float]:
    case: Any = SimpleNamespace(trained=trained)
    return {measure: value for _, _, measure, value in noise.use(case)}


def test_a_model_without_weights_for_noise_does_not_use_it_and_gives_it_no_credit():
    trained = noisy()
    context: Any = SimpleNamespace(trained_model=lambda *_: trained)
    unable = noise.without_noise_weights("gcn", context, "x", 0)
    assert use(trained)["change without noise"] > 1e-4
    measured = use(unable)
    assert measured["change without noise"] == measured["classes that change"] == 0
    assert measured["weights, noise / words"] == 0
    assert measured["test accuracy"] == measured["accuracy without noise"]
    # The model that was given stays as it was.
    assert use(trained)["weights, noise / words"] > 0.5
    columns = noise_of(trained)[1]
    exact = GraphSVX(samples=20_000, players="features")
    for node in trained.dataset.split.test.tolist()[:3]:
        graph = unable.dataset.graph
        explanation = graphsvx.explain(unable.model, graph, node=node, method=exact)
        played = columns & set(explanation.features)
        assert all(abs(explanation.features[column]) < 1e-6 for column in played)


def test_a_graph_without_its_noisy_nodes_is_the_graph_before():
    trained = noisy(nodes=True)
    before = datasets.load("ba-community", 0)
    test = trained.dataset.split.test
    said = trained.model(before.graph.x, before.graph.edge_index)[test].argmax(1)
    expected = float((said == before.labels[test]).double().mean())
    assert use(trained)["accuracy without noise"] == pytest.approx(expected)
    assert use(trained)["change without noise"] > 0
    assert "weights, noise / words" not in use(trained)
    with pytest.raises(InputError, match="data set with noise"):
        noise_of(replace(trained, dataset=before))


def test_even_attention_is_the_mean_over_those_who_look_at_a_node():
    trained = noisy(nodes=True)
    data, settings = trained.dataset, zoo.Settings(hidden=2, heads=2, out_heads=1)
    model = CitationGAT(data.features, data.classes, settings)
    for layer in (model.first, model.second):
        assert isinstance(layer, GATConv)
        torch.nn.init.zeros_(layer.att_src)
        torch.nn.init.zeros_(layer.att_dst)
    measured = attention_on_noise(replace(trained, model=model.eval()))
    graph, nodes = trained.dataset.graph, trained.dataset.noise.nodes
    degree = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes) + 1
    for words, loops in (("without", False), ("with", True)):
        means = []
        for node in nodes.tolist():
            seen_by = graph.edge_index[1, graph.edge_index[0] == node].tolist()
            parts = [1 / float(degree[v]) for v in [*seen_by, *([node] if loops else [])]]
            means += [np.mean(parts)] if parts else []
        expected = pytest.approx(np.mean(means), abs=1e-6)
        assert measured[f"attention {words} loops, noisy"] == expected
    # A model without attention has none to measure.
    assert attention_on_noise(trained) == {}


def test_claims_are_made_for_every_model_and_for_those_that_cannot_use_noise():
    results, name = Measurements("noisy-features"), CANDIDATES["features"][0]
    for model, level in (("gcn", 0.1), ("gcn, noise weights 0", 0.0)):
        for seed in range(5):
            for question in range(10):
                for method, more in ((PAPER, 0.0), (OURS, 0.0), ("LIME", 0.2)):
                    value = level + more + 0.001 * question
                    row = Row("cora-noisy-features", model, seed, method, question,
                              f"share by value, {name}")  # fmt: skip
                    results.add(row, value)
    page = noise.noise_page(results, "features", ["LIME"])
    holds = {claim.cells()[0]: claim.holds for claim in page.claims}
    assert len(holds) == 10  # two sets and two models, and the one that cannot use noise
    assert {statement: verdict for statement, verdict in holds.items() if verdict is not None} == {
        "Close to no noisy features at GraphSVX's top (Cora, GCN)": False,
        "Fewer noisy features than with any baseline (Cora, GCN)": True,
        "Close to no noisy features at GraphSVX's top (Cora, GCN, noise weights 0)": True,
        "Fewer noisy features than with any baseline (Cora, GCN, noise weights 0)": True,
    }
