"""Noise among the top: counted by hand, models whose use of noise is known, both studies."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np
import pytest
import torch
from graphsvx.studies.noise_figures import percent, span, wins
from graphsvx.studies.noise_use import (
    attention,
    deaf_to_noise,
    deleted_alone,
    effects_beside,
    first_weights,
    noisy_columns,
    per_node,
    use_of_features,
    use_of_nodes,
)
from torch_geometric.nn import GATConv

import graphsvx
from graphsvx import GraphSVX, datasets, zoo
from graphsvx.studies import Desk, noisy_features, noisy_nodes
from graphsvx.studies.noise import (
    LeaveOneOut,
    Tally,
    correlation,
    explained_nodes,
    noise_among,
    outcome,
    top_k,
    with_credit,
)
from graphsvx.zoo.models import CitationGAT, CitationGCN


def test_k_is_twenty_or_a_fifth_of_few_candidates():
    assert [top_k(n) for n in (0, 1, 2, 7, 12, 13, 99, 100, 2000)] == [0, 1, 1, 1, 2, 3, 20, 20, 20]


def test_noise_among_the_top_is_counted_and_ties_are_shared():
    noisy = np.array([0.0, 1, 1, 0, 1])
    values = np.array([5.0, 4, 1, 1, 1])
    assert noise_among(values, noisy, 2) == 1
    # One more place for three that tie, two of them noise.
    assert noise_among(values, noisy, 3) == pytest.approx(1 + 2 / 3)
    assert noise_among(values, noisy, 5) == 3
    assert noise_among(np.zeros(5), noisy, 2) == pytest.approx(2 * 3 / 5)
    assert noise_among(values, noisy, 0) == 0


def test_ties_are_what_random_breaking_gives_on_average():
    rng = np.random.default_rng(0)
    values, noisy = rng.integers(0, 4, 30).astype(float), (rng.random(30) < 0.3).astype(float)
    tries = []
    for _ in range(4000):
        order = np.lexsort((rng.random(30), -values))
        tries.append(noisy[order[:12]].sum())
    assert noise_among(values, noisy, 12) == pytest.approx(np.mean(tries), abs=0.06)


def test_an_outcome_ranks_by_value_and_by_absolute_value():
    # Ten candidates, k = 2; column 9 speaks against the class and 8 has no credit.
    credit = {i: 0.1 * i for i in range(8)} | {9: -5.0, 77: 9.0}
    found = outcome(credit, list(range(10)), {7, 9, 77})
    assert (found.k, found.candidates, found.noisy) == (2, 10, 2)
    assert (found.value, found.absolute) == (1, 2)
    assert (found.share("value"), found.share("absolute"), found.base) == (0.5, 1, 0.2)
    assert found.curve[-1] == pytest.approx(0.2)
    assert isnan(outcome({}, [], set()).share("value"))


def test_only_what_has_credit_is_chosen():
    credit = {0: 3.0, 1: 0.0, 2: -4.0, 3: 1.0}
    assert with_credit(credit, {1, 2}, "value") == (0, 2)
    assert with_credit(credit, {1, 2}, "absolute") == (1, 3)
    assert with_credit(credit, {2}, "absolute", k=1) == (1, 1)
    assert with_credit({}, {2}, "value") == (0, 0)


def test_a_tally_averages_within_seeds_first_and_compares():
    tally = Tally()
    half = outcome({0: 1.0, 1: 0.5, 2: 0.0}, [0, 1, 2], {0})
    none = outcome({0: 0.0, 1: 0.5, 2: 0.0}, [0, 1, 2], {0})
    tally.add(("cora", "gcn", "a"), 0, [half, none])
    tally.add(("cora", "gcn", "a"), 1, [none])
    tally.add(("cora", "gcn", "b"), 0, [half])
    assert tally.share("cora", "gcn", "a").mean == pytest.approx(0.25)
    assert tally.share("cora", "gcn", "a").count == 3
    assert tally.base("cora", "gcn", "a").mean == pytest.approx(1 / 3)
    assert tally.methods("cora", "gcn") == ["a", "b"]
    assert wins(tally, [("cora", "gcn")], "a", ["b", "missing"]) == (1, 1)
    assert wins(tally, [("cora", "gcn")], "b", ["b"]) == (0, 1)
    assert wins(tally, [("cora", "gcn")], "b", ["b"], or_equal=True) == (1, 1)


def test_shares_are_told_in_words():
    assert percent(0.123) == "12 %"
    assert percent(0.0123) == "1.2 %"
    assert span([0.05, 0.2, float("nan")]) == "5.0 to 20 %"
    assert span([0.2, 0.201]) == "20 %"
    assert span([]) == "none"


# --- models ---------------------------------------------------------------------------------


def world(model: torch.nn.Module | None = None, nodes: bool = False) -> zoo.Trained:
    """A small noisy set with an untrained citation model."""
    plain = datasets.load("ba-community", 0)
    noisy = datasets.with_noisy_nodes(plain) if nodes else datasets.with_noisy_features(plain)
    torch.manual_seed(0)
    model = model or CitationGCN(noisy.features, 6, noisy.classes, 0.5)
    card = zoo.Card(
        dataset=noisy.name, data_seed=0, fingerprint=noisy.fingerprint, task="node",
        features=noisy.features, classes=noisy.classes, seed=0,
        settings=zoo.settings_for("cora"), accuracy={}, best_epoch=0, versions={},
    )  # fmt: skip
    return zoo.Trained(model.eval(), card, noisy)


def test_explained_nodes_are_test_nodes_and_the_same_each_time():
    here = world()
    asked = explained_nodes(here, 20)
    assert len(set(asked)) == 20
    assert set(asked) <= set(here.dataset.split.test.tolist())
    assert asked == explained_nodes(here, 20)


@torch.no_grad()
def test_deleting_one_by_one_is_what_the_whole_model_says():
    here = world()
    graph, model = here.dataset.graph, here.model
    node = explained_nodes(here, 1)[0]
    explanation = graphsvx.explain(model, graph, node=node, method=LeaveOneOut("nodes"))
    full = model(graph.x, graph.edge_index)[node].softmax(0)[explanation.target]
    for other in list(explanation.nodes)[:5]:
        kept = (graph.edge_index != other).all(0)
        less = model(graph.x, graph.edge_index[:, kept])[node].softmax(0)[explanation.target]
        assert explanation.nodes[other] == pytest.approx(float(full - less), abs=1e-5)
    explanation = graphsvx.explain(model, graph, node=node, method=LeaveOneOut("features"))
    for column in list(explanation.features)[:5]:
        x = graph.x.clone()
        x[node, column] = graph.x[:, column].mean()
        less = model(x, graph.edge_index)[node].softmax(0)[explanation.target]
        assert explanation.features[column] == pytest.approx(float(full - less), abs=1e-5)
    assert not explanation.nodes


@torch.no_grad()
def test_deleting_alone_isolates_the_node():
    here = world()
    graph = here.dataset.graph
    node = explained_nodes(here, 1)[0]
    explanation = graphsvx.explain(here.model, graph, node=node)
    column = int(explanation.feature_ids[0])
    x = graph.x.clone()
    x[node, column] = graph.x[:, column].mean()
    apart = graph.edge_index[:, (graph.edge_index != node).all(0)]
    full, less = (
        float(here.model(one, apart)[node].softmax(0)[explanation.target]) for one in (graph.x, x)
    )
    assert deleted_alone(here, explanation)[column] == pytest.approx(full - less, abs=1e-5)


def test_a_deaf_model_does_not_use_noise_and_gives_it_no_credit():
    here = world()
    deaf = deaf_to_noise(here)
    assert use_of_features(here, draws=1).moved > 1e-4
    use = use_of_features(deaf, draws=1)
    assert use.moved == use.weight == use.flipped == use.helps_train == use.helps_test == 0
    assert use.accuracy == use.without == use.shuffled
    assert use.moved_by_words > 0
    # The model that was given stays as it was.
    assert first_weights(here.model)[:, noisy_columns(here)].abs().sum() > 0
    noise = set(here.dataset.noise.features.tolist())
    for node in explained_nodes(here, 3):
        exact = GraphSVX(samples=20_000, players="features")
        explanation = graphsvx.explain(deaf.model, deaf.dataset.graph, node=node, method=exact)
        assert all(abs(explanation.features[i]) < 1e-6 for i in noise & set(explanation.features))


def test_a_graph_without_its_noisy_nodes_is_the_graph_before():
    here = world(nodes=True)
    before = datasets.load("ba-community", 0)
    test = here.dataset.split.test
    use = use_of_nodes(here)
    said = here.model(before.graph.x, before.graph.edge_index)[test].argmax(1)
    assert use.without == pytest.approx(float((said == before.labels[test]).double().mean()))
    assert use.moved > 0


def test_credit_stands_beside_effects():
    found = effects_beside(
        [{0: 3.0, 1: 2.0, 2: -1.0}, {5: 1.0, 6: 0.5}],
        [{0: 0.3, 1: 0.2, 2: -0.1}, {5: -0.4, 6: 0.1}],
        {1, 2, 5},
        [2, 1],
    )
    assert found.top == (True, True, False, True, False)
    assert found.raising(noisy=True) == 0.5
    assert found.raising(noisy=False) == 1
    assert found.harming(noisy=True) == pytest.approx(2 / 3)
    assert found.size(noisy=True) == pytest.approx(0.7 / 3)
    assert found.correlation(noisy=True) == correlation([2, -1, 1], [0.2, -0.1, -0.4])
    assert isnan(correlation([1, 1], [0, 1]))


def test_attention_is_averaged_over_the_edges_of_each_node():
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 2]])
    got, known = per_node(edges, torch.tensor([0.2, 0.4, 0.5, 0.7]), 4)
    assert got.tolist() == pytest.approx([0.3, 0.5, 0.7, 0])
    assert known.tolist() == [True, True, True, False]


@pytest.mark.parametrize("loops", [False, True])
def test_even_attention_is_recognised(loops: bool):
    plain = world(nodes=True)
    model = CitationGAT(
        plain.dataset.features, 2, plain.dataset.classes, heads=2, out_heads=1, dropout=0.0
    )
    for layer in (model.first, model.second):
        assert isinstance(layer, GATConv)
        torch.nn.init.zeros_(layer.att_src)
        torch.nn.init.zeros_(layer.att_dst)
    found = attention(replace(plain, model=model.eval()), loops)
    assert found.noisy == pytest.approx(found.even_noisy)
    assert found.normal == pytest.approx(found.even_normal)
    # The ties by hand: 1 / (degree + 1) of those who look at the node.
    graph, noise = plain.dataset.graph, plain.dataset.noise
    degree = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes) + 1
    means = []
    for node in noise.nodes.tolist():
        seen_by = graph.edge_index[1, graph.edge_index[0] == node].tolist()
        parts = [1 / float(degree[one]) for one in [*seen_by, *([node] if loops else [])]]
        if parts:
            means.append(np.mean(parts))
    assert found.noisy == pytest.approx(np.mean(means), abs=1e-6)


# --- the studies ----------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    if not (Path(os.environ.get("GRAPHSVX_DATA", "none")) / "Cora" / "raw").is_dir():
        pytest.skip("GRAPHSVX_DATA has no Cora/raw")
    return Desk(tmp_path / "out", tmp_path / "runs", quick=True, workers=1)


def read(desk: Desk, name: str) -> tuple[str, dict]:
    return (
        (desk.out / f"{name}.md").read_text(),
        json.loads((desk.out / f"{name}.json").read_text()),
    )


def test_the_study_of_noisy_features(desk: Desk):
    files = noisy_features.STUDY.run(desk)
    assert {file.name for file in files} == {
        "noisy-features.md", "noisy-features.json", "noisy-features-kde.png",
        "noisy-features-curves.png", "noisy-features-why.png",
    }  # fmt: skip
    text, found = read(desk, "noisy-features")
    assert "Failures" not in text, text[-3000:]
    first = {row["method"]: row for row in found["tables"][0]["rows"]}
    mine = first["GraphSVX (as in the paper)"]
    assert mine["Cora, GAT"]["paper"] == "close to 0"
    assert mine["Cora, GAT"]["ours"]["count"] == 2
    assert mine["PubMed, GAT"] == "files missing" or "files missing" not in text
    assert {"GNNExplainer", "GraphLIME", "LIME", "SHAP", "Greedy", "Random"} <= set(first)
    deaf = next(t for t in found["tables"] if "cannot use it" in t["title"])
    rows = {row["method"]: row for row in deaf["rows"]}
    assert rows["SHAP"]["Cora, GAT, that the node has"]["mean"] == 0


def test_the_study_of_noisy_nodes(desk: Desk):
    noisy_nodes.STUDY.run(desk)
    text, found = read(desk, "noisy-nodes")
    assert "Failures" not in text, text[-3000:]
    rows = {row["method"]: row for row in found["tables"][0]["rows"]}
    assert rows["GraphSVX (as in the paper)"]["Cora, GAT"]["ours"]["count"] == 3
    assert set(rows) >= {"GNNExplainer", "Greedy", "Random", "k", "candidates"}
    looked = next(t for t in found["tables"] if "attention" in t["title"])
    assert looked["rows"][0]["noisy"]["paper"] == 0.11
    assert looked["rows"][0]["normal"]["paper"] == 0.15
    assert 0 < looked["rows"][0]["noisy"]["ours"]["mean"] < 1
    assert "against 0.15" in found["headline"]


def test_without_raw_files_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    desk = Desk(tmp_path / "out", tmp_path / "runs", quick=True, workers=1)
    monkeypatch.setattr(Desk, "missing", lambda *_: "not there")
    for study in (noisy_features.STUDY, noisy_nodes.STUDY):
        study.run(desk)
        assert "raw files are missing" in read(desk, study.name)[1]["headline"]
